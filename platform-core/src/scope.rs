//! Where a list looks: hierarchy filters and grants as sets of disjoint places (`docs/api.md`, Hierarchy filters).

use crate::{
    store::Scope,
    uid::{self, Uid},
};

/// A set of places of the hierarchy, none of which lies in another. Filters combine by AND, which is [`Scopes::and`].
///
/// Two places may share a uid where they touch (`Roots` and an organisation's subtree), but no record: a kind whose
/// roots are shared has no resource with a group's uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Everything.
    pub fn all() -> Self {
        Self(vec![Scope::All])
    }

    /// Returns these places, of which none lies in another.
    pub fn disjoint(places: impl IntoIterator<Item = Scope>) -> Self {
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort();
        places.dedup();
        Self(places)
    }

    /// Returns the places that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        // Thousands of uids with thousands of groups must not be compared one by one.
        match (self.are_exact(), other.are_exact()) {
            (true, _) => self.exact_in(other),
            (_, true) => other.exact_in(self),
            _ => Self::disjoint(self.0.iter().flat_map(|a| other.0.iter().filter_map(|b| intersect(a, b)))),
        }
    }

    fn are_exact(&self) -> bool {
        self.0.iter().all(|place| matches!(place, Scope::Exact(_)))
    }

    /// Returns those of these uids that lie in a place of `other`.
    fn exact_in(&self, other: &Self) -> Self {
        let lies = |place: &&Scope| matches!(place, Scope::Exact(uid) if other.has(uid));
        Self(self.0.iter().filter(lies).cloned().collect())
    }

    /// Tells whether a uid lies in one of the places, which are in order.
    fn has(&self, uid: &Uid) -> bool {
        let has = |place: Scope| self.0.binary_search(&place).is_ok();
        has(Scope::All)
            || (uid.is_root() && has(Scope::Roots))
            || has(Scope::Exact(uid.clone()))
            || uid.parent().is_some_and(|parent| has(Scope::Children(parent)))
            || uid.ancestry().any(|top| has(Scope::Subtree(Uid::opaque(top))))
    }

    /// Tells whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the places.
    pub fn into_vec(self) -> Vec<Scope> {
        self.0
    }
}

/// Tells whether all of `inner` lies in `outer`.
fn contains(outer: &Scope, inner: &Scope) -> bool {
    match (outer, inner) {
        (Scope::All, _) => true,
        (Scope::Subtree(top), Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid)) => {
            uid.is_at_or_below(top)
        }
        (outer, Scope::Exact(uid)) => outer.contains(uid),
        (outer, inner) => outer == inner,
    }
}

/// Returns what lies in both places, which is one place or none.
fn intersect(a: &Scope, b: &Scope) -> Option<Scope> {
    if contains(a, b) {
        return Some(b.clone());
    }
    if contains(b, a) {
        return Some(a.clone());
    }
    match (a, b) {
        (Scope::Subtree(top), Scope::Children(parent)) | (Scope::Children(parent), Scope::Subtree(top)) => {
            (uid::parent(top) == Some(parent)).then(|| Scope::Exact(top.clone()))
        }
        (Scope::Subtree(top), Scope::Roots) | (Scope::Roots, Scope::Subtree(top)) => {
            top.is_root().then(|| Scope::Exact(top.clone()))
        }
        _ => None,
    }
}

/// The hierarchy filter of a list request: all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UidpFilter {
    /// Above this resource, without itself.
    pub ancestors_of: Option<Uid>,
    /// At or below this group.
    pub descendants_of: Option<Uid>,
    /// Directly below this.
    pub children_of: Option<Parent>,
    /// In no group.
    pub in_root: bool,
    /// One of these; empty means any.
    pub ids: Vec<Uid>,
}

/// What resources can be directly below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parent {
    /// `/`: nothing.
    Root,
    /// A resource.
    Uid(Uid),
}

impl UidpFilter {
    /// Returns the places where all of the filter holds.
    pub fn scopes(&self) -> Scopes {
        let mut scopes = Scopes::all();
        let mut narrow = |places: Vec<Scope>| scopes = scopes.and(&Scopes::disjoint(places));
        if let Some(uid) = &self.ancestors_of {
            narrow(uid.ancestry().skip(1).map(|uid| Scope::Exact(Uid::opaque(uid))).collect());
        }
        if let Some(uid) = &self.descendants_of {
            narrow(vec![Scope::Subtree(uid.clone())]);
        }
        match &self.children_of {
            Some(Parent::Root) => narrow(vec![Scope::Roots]),
            Some(Parent::Uid(uid)) => narrow(vec![Scope::Children(uid.clone())]),
            None => {}
        }
        if self.in_root {
            narrow(vec![Scope::Roots]);
        }
        if !self.ids.is_empty() {
            narrow(self.ids.iter().cloned().map(Scope::Exact).collect());
        }
        scopes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every uid of a small tree whose names are prefixes of each other.
    fn universe() -> Vec<Uid> {
        let names = ["a", "ab", "b"];
        let mut all: Vec<String> = names.map(str::to_owned).to_vec();
        for depth in 0..3 {
            let parents: Vec<_> = all.iter().filter(|uid| uid.matches('/').count() == depth).cloned().collect();
            all.extend(parents.iter().flat_map(|parent| ["a", "ab"].map(|name| format!("{parent}/{name}"))));
        }
        all.into_iter().map(Uid::opaque).collect()
    }

    /// Grants, as they are resolved: subtrees of which none lies in another.
    fn grants() -> impl Strategy<Value = Scopes> {
        prop::collection::vec(prop::sample::select(universe()), 0..5).prop_map(|groups| {
            let topmost = |uid: &&Uid| !groups.iter().any(|group| uid.is_below(group));
            Scopes::disjoint(groups.iter().filter(topmost).cloned().map(Scope::Subtree))
        })
    }

    fn filter() -> impl Strategy<Value = UidpFilter> {
        let uid = || prop::option::of(prop::sample::select(universe()));
        let parent = prop_oneof![
            3 => Just(None),
            1 => Just(Some(Parent::Root)),
            3 => prop::sample::select(universe()).prop_map(|uid| Some(Parent::Uid(uid))),
        ];
        let ids = prop::collection::vec(prop::sample::select(universe()), 0..4);
        (uid(), uid(), parent, any::<bool>(), ids).prop_map(
            |(ancestors_of, descendants_of, children_of, in_root, ids)| UidpFilter {
                ancestors_of,
                descendants_of,
                children_of,
                in_root,
                ids,
            },
        )
    }

    /// What the documentation says of a filter, uid by uid.
    fn passes(filter: &UidpFilter, uid: &Uid) -> bool {
        filter.ancestors_of.as_ref().is_none_or(|below| below.is_below(uid))
            && filter.descendants_of.as_ref().is_none_or(|top| uid.is_at_or_below(top))
            && filter.children_of.as_ref().is_none_or(|parent| match parent {
                Parent::Root => uid.is_root(),
                Parent::Uid(parent) => uid.parent().as_ref() == Some(parent),
            })
            && (!filter.in_root || uid.is_root())
            && (filter.ids.is_empty() || filter.ids.contains(uid))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn a_list_looks_once_where_the_filter_and_a_grant_both_hold(grants in grants(), filter in filter()) {
            let scopes = filter.scopes().and(&grants);
            for uid in universe() {
                let granted = grants.0.iter().any(|place| place.contains(&uid));
                let found = scopes.0.iter().filter(|place| place.contains(&uid)).count();
                prop_assert_eq!(found, usize::from(granted && passes(&filter, &uid)), "{} in {:?}", uid, &scopes);
            }
        }
    }
}
