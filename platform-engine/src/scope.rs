//! The scopes of a list: hierarchy filters and grants as sets of disjoint scopes (`docs/api.md`, Hierarchy filters).

use crate::{
    store::Scope,
    uid::{self, Uid},
};

/// A set of scopes, none of which lies in another. [`Scopes::and`] combines filters.
///
/// `Roots` and the subtree of an organization both contain the uid of the organization. No list finds a record twice,
/// though: a kind whose roots are shared has no resource with a group's uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Returns the scope of all records.
    pub fn all() -> Self {
        Self(vec![Scope::All])
    }

    /// Returns the set of these scopes, none of which may lie in another.
    pub fn disjoint(places: impl IntoIterator<Item = Scope>) -> Self {
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort();
        places.dedup();
        Self(places)
    }

    /// Returns the intersection of both sets.
    ///
    /// Costs a few binary searches for each scope of this set, plus the size of the result. [`Scope::Children`] costs
    /// in addition a comparison with each scope of the other set below it.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        // Both sets are disjoint, so the intersections of all pairs are disjoint, too. Scopes overlap only if one of
        // their uids is at or above the other, so most pairs need not be compared.
        let other = Sorted::new(&other.0);
        Self::disjoint(self.0.iter().flat_map(|a| other.near(a).filter_map(|b| intersect(a, b))))
    }

    /// Returns whether a uid lies in one of the scopes.
    pub fn contain(&self, uid: &str) -> bool {
        self.0.iter().any(|scope| scope.contains(uid))
    }

    /// Returns whether the set has no scopes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the scopes, in order.
    pub fn as_slice(&self) -> &[Scope] {
        &self.0
    }

    /// Returns the scopes, in order.
    pub fn into_vec(self) -> Vec<Scope> {
        self.0
    }
}

/// Scopes sorted by their uids, to find those that can overlap with another.
struct Sorted<'a> {
    /// The scopes without a uid.
    wide: Vec<&'a Scope>,
    /// The scopes with a uid, in the order of the uids.
    by_uid: Vec<(&'a Uid, &'a Scope)>,
}

impl<'a> Sorted<'a> {
    fn new(places: &'a [Scope]) -> Self {
        let wide = places.iter().filter(|place| uid_of(place).is_none()).collect();
        let mut by_uid: Vec<_> = places.iter().filter_map(|place| Some((uid_of(place)?, place))).collect();
        by_uid.sort();
        Self { wide, by_uid }
    }

    /// Returns the scopes whose uids are at, above or below the uid of `place`, and those without a uid; all scopes
    /// when `place` has no uid. No scope below is returned for [`Scope::Exact`], which contains nothing below its uid.
    fn near(&self, place: &Scope) -> impl Iterator<Item = &'a Scope> {
        let mut near = Vec::new();
        let below = match (uid_of(place), place) {
            (None, _) => self.by_uid.as_slice(),
            (Some(uid), place) => {
                // A scope at the uid or at an ancestor may contain the uid.
                for uid in uid.ancestry() {
                    near.extend_from_slice(self.range(uid, |known| known <= uid));
                }
                // The uids below share this prefix, so they are adjacent in bytewise order.
                let first = format!("{uid}/");
                match place {
                    Scope::Exact(_) => &[],
                    _ => self.range(&first, |known| known.starts_with(&first)),
                }
            }
        };
        near.extend_from_slice(below);
        self.wide.clone().into_iter().chain(near.into_iter().map(|(_, place)| place))
    }

    /// Returns the scopes from a uid on, up to the first one whose uid does not pass.
    fn range(&self, first: &str, passes: impl Fn(&str) -> bool) -> &[(&'a Uid, &'a Scope)] {
        let begin = self.by_uid.partition_point(|(uid, _)| uid.as_str() < first);
        let rest = self.by_uid.get(begin..).unwrap_or_default();
        rest.get(..rest.partition_point(|(uid, _)| passes(uid))).unwrap_or_default()
    }
}

/// Returns the uid of a scope, if it has one.
fn uid_of(place: &Scope) -> Option<&Uid> {
    match place {
        Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => Some(uid),
        Scope::Roots | Scope::All => None,
    }
}

/// Returns whether all of `inner` lies in `outer`.
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

/// Returns the intersection of two scopes, which is one scope or empty.
fn intersect(a: &Scope, b: &Scope) -> Option<Scope> {
    if contains(a, b) {
        return Some(b.clone());
    }
    if contains(b, a) {
        return Some(a.clone());
    }
    match (a, b) {
        (Scope::Subtree(top), Scope::Children(parent)) | (Scope::Children(parent), Scope::Subtree(top)) => {
            // A subtree that does not contain the parent has at most one of its children: the subtree's top.
            (uid::parent(top) == Some(parent)).then(|| Scope::Exact(top.clone()))
        }
        (Scope::Subtree(top), Scope::Roots) | (Scope::Roots, Scope::Subtree(top)) => {
            top.is_root().then(|| Scope::Exact(top.clone()))
        }
        _ => None,
    }
}

/// The hierarchy filter of a list request. A resource must meet every condition that is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UidpFilter {
    /// The resource is an ancestor of this one.
    pub ancestors_of: Option<Uid>,
    /// The resource is at or below this group.
    pub descendants_of: Option<Uid>,
    /// The resource is a direct child of this parent.
    pub children_of: Option<Parent>,
    /// The resource is in no group.
    pub in_root: bool,
    /// The resource has one of these uids; any uid when empty.
    pub ids: Vec<Uid>,
}

/// The parent in [`UidpFilter::children_of`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parent {
    /// `/`: the resource has no parent.
    Root,
    /// This resource.
    Uid(Uid),
}

impl UidpFilter {
    /// Returns the scopes in which all conditions hold.
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

    #[test]
    fn scopes_are_in_order_and_without_duplicates() {
        let scopes = ["b", "a", "b"].map(|uid| Scope::Subtree(Uid::opaque(uid)));
        assert_eq!(Scopes::disjoint(scopes.clone()).as_slice(), [&scopes[1], &scopes[0]].map(Clone::clone));
    }

    #[test]
    fn an_exact_scope_is_not_compared_with_scopes_below_it() {
        let below = |n: usize| Scope::Subtree(Uid::opaque(format!("a/{n}")));
        let places: Vec<_> = (0..1000).map(below).chain([Scope::Subtree(Uid::opaque("a"))]).collect();
        let near = |place: Scope| Sorted::new(&places).near(&place).count();
        assert_eq!(near(Scope::Exact(Uid::opaque("a"))), 1);
        assert_eq!(near(Scope::Subtree(Uid::opaque("a"))), 1001);
    }

    /// Returns every uid of a small tree, in which some names are prefixes of others.
    fn universe() -> Vec<Uid> {
        let names = ["a", "ab", "b"];
        let mut all: Vec<String> = names.map(str::to_owned).to_vec();
        for depth in 0..3 {
            let parents: Vec<_> = all.iter().filter(|uid| uid.matches('/').count() == depth).cloned().collect();
            all.extend(parents.iter().flat_map(|parent| ["a", "ab"].map(|name| format!("{parent}/{name}"))));
        }
        all.into_iter().map(Uid::opaque).collect()
    }

    /// Grants as they are resolved: subtrees, none of which lies in another.
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

    /// Returns whether a uid passes a filter, as the documentation defines it.
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

    /// Any set of scopes of the small tree, none of which lies in another.
    fn places() -> impl Strategy<Value = Scopes> {
        let place = (prop::sample::select(universe()), 0..3).prop_map(|(uid, form)| match form {
            0 => Scope::Subtree(uid),
            1 => Scope::Children(uid),
            _ => Scope::Exact(uid),
        });
        let place = prop_oneof![20 => place, 1 => Just(Scope::Roots), 1 => Just(Scope::All)];
        prop::collection::vec(place, 0..12).prop_map(|places| {
            let alone = |(at, place): &(usize, &Scope)| {
                let mut others = places.iter().enumerate().filter(|(other, _)| other != at);
                others.all(|(other, outer)| {
                    !universe().iter().any(|uid| outer.contains(uid) && place.contains(uid))
                        || (*at < other && outer == *place)
                })
            };
            Scopes::disjoint(places.iter().enumerate().filter(alone).map(|(_, place)| place.clone()))
        })
    }

    #[test]
    fn large_sets_of_uids_and_grants_are_intersected_with_few_comparisons() {
        let group = |n: usize| Uid::opaque(format!("{:040x}/{n:016x}", n % 7));
        let grants = Scopes::disjoint((0..40_000).map(|n| Scope::Subtree(group(n))));
        let ids = Scopes::disjoint((0..40_000).map(|n| Scope::Exact(group(n * 2))));
        let near: usize = {
            let sorted = Sorted::new(&grants.0);
            ids.0.iter().map(|place| sorted.near(place).count()).sum()
        };
        assert!(near <= 40_000, "{near} comparisons");
        let both = (0..40_000).filter(|n| grants.0.binary_search(&Scope::Subtree(group(n * 2))).is_ok()).count();
        assert_eq!(ids.and(&grants).0.len(), both);
        assert_eq!(grants.and(&ids), ids.and(&grants));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_intersection_is_the_union_of_all_pairwise_intersections(a in places(), b in places()) {
            let naive = Scopes::disjoint(a.0.iter().flat_map(|a| b.0.iter().filter_map(|b| intersect(a, b))));
            prop_assert_eq!(a.and(&b), naive);
        }

        #[test]
        fn each_granted_uid_that_passes_the_filter_is_in_exactly_one_scope(grants in grants(), filter in filter()) {
            let scopes = filter.scopes().and(&grants);
            for uid in universe() {
                let granted = grants.0.iter().any(|place| place.contains(&uid));
                let found = scopes.0.iter().filter(|place| place.contains(&uid)).count();
                prop_assert_eq!(found, usize::from(granted && passes(&filter, &uid)), "{} in {:?}", uid, &scopes);
            }
        }
    }
}
