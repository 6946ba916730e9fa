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
    ///
    /// Costs a few binary searches per place of this set, plus the size of the result; a place of direct children costs all
    /// places of the other set below it.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let other = Sorted::new(&other.0);
        Self::disjoint(self.0.iter().flat_map(|a| other.near(a).filter_map(|b| intersect(a, b))))
    }

    /// Tells whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the places, in order.
    pub fn as_slice(&self) -> &[Scope] {
        &self.0
    }

    /// Returns the places.
    pub fn into_vec(self) -> Vec<Scope> {
        self.0
    }
}

/// Places sorted by their uids, to find those that can overlap with another.
struct Sorted<'a> {
    /// Those without a uid.
    wide: Vec<&'a Scope>,
    /// Those with one, in the order of the uids.
    by_uid: Vec<(&'a Uid, &'a Scope)>,
}

impl<'a> Sorted<'a> {
    fn new(places: &'a [Scope]) -> Self {
        let wide = places.iter().filter(|place| uid_of(place).is_none()).collect();
        let mut by_uid: Vec<_> = places.iter().filter_map(|place| Some((uid_of(place)?, place))).collect();
        by_uid.sort();
        Self { wide, by_uid }
    }

    /// Returns the places that are at the uid of another, above or below it; all, where it has none.
    fn near(&self, place: &Scope) -> impl Iterator<Item = &'a Scope> {
        let mut near = Vec::new();
        let below = match (uid_of(place), place) {
            (None, _) => self.by_uid.as_slice(),
            (Some(uid), place) => {
                for uid in uid.ancestry() {
                    near.extend_from_slice(self.range(uid, |known| known <= uid));
                }
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

    /// Returns the places from a uid on, up to the first whose uid does not pass.
    fn range(&self, first: &str, passes: impl Fn(&str) -> bool) -> &[(&'a Uid, &'a Scope)] {
        let begin = self.by_uid.partition_point(|(uid, _)| uid.as_str() < first);
        let rest = self.by_uid.get(begin..).unwrap_or_default();
        rest.get(..rest.partition_point(|(uid, _)| passes(uid))).unwrap_or_default()
    }
}

/// Returns the uid that a place is at.
fn uid_of(place: &Scope) -> Option<&Uid> {
    match place {
        Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => Some(uid),
        Scope::Roots | Scope::All => None,
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

    #[test]
    fn a_single_uid_is_compared_with_no_place_below_it() {
        let below = |n: usize| Scope::Subtree(Uid::opaque(format!("a/{n}")));
        let places: Vec<_> = (0..1000).map(below).chain([Scope::Subtree(Uid::opaque("a"))]).collect();
        let near = |place: Scope| Sorted::new(&places).near(&place).count();
        assert_eq!(near(Scope::Exact(Uid::opaque("a"))), 1);
        assert_eq!(near(Scope::Subtree(Uid::opaque("a"))), 1001);
    }

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

    /// Any set of places of the small tree, of which none lies in another.
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
    fn many_uids_and_many_grants_are_intersected_with_few_comparisons() {
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
        fn the_intersection_equals_that_of_each_pair_of_places(a in places(), b in places()) {
            let naive = Scopes::disjoint(a.0.iter().flat_map(|a| b.0.iter().filter_map(|b| intersect(a, b))));
            prop_assert_eq!(a.and(&b), naive);
        }

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
