//! Grants: the capabilities of an identity at each group, resolved once and cached.

use std::{any::Any, collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;

use super::{ActsAs, Caller, Capability, CapabilitySet, RegistrationId, Revocations};
use crate::{
    scope::Scopes,
    store::{Epoch, Scope},
    timestamp::Timestamp,
    uid::{self, Uid},
};

/// Epochs, and the values that they had when the data that depends on them was read.
#[derive(Debug, Clone, Default)]
pub struct AsOf {
    pub(crate) epochs: Arc<[Epoch]>,
    pub(crate) values: Arc<[u64]>,
}

impl AsOf {
    /// Returns the epochs with their values; surplus epochs or values are dropped.
    pub fn new(epochs: impl IntoIterator<Item = Epoch>, values: impl IntoIterator<Item = u64>) -> Self {
        let (epochs, values): (Vec<_>, Vec<_>) = epochs.into_iter().zip(values).unzip();
        Self { epochs: epochs.into(), values: values.into() }
    }

    /// Returns each epoch with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&Epoch, u64)> {
        self.epochs.iter().zip(self.values.iter().copied())
    }

    /// Returns the epochs at these indices, with their values.
    fn at(&self, places: impl Iterator<Item = usize> + Clone) -> Self {
        let epochs = places.clone().filter_map(|place| self.epochs.get(place).cloned());
        Self::new(epochs, places.filter_map(|place| self.values.get(place).copied()))
    }
}

/// The grants of an identity, with the epochs that they were read at.
///
/// The capabilities in one organization depend only on the epochs of the identity and of that organization, so a
/// change in one organization does not invalidate decisions about another, and a decision about an organization needs
/// no data of another, except the caller's own.
pub struct Grants {
    /// `None` for nobody, who holds no capabilities.
    identity: Option<Uid>,
    /// The id of this registration of a person; `None` for an identity of a group.
    registration: Option<RegistrationId>,
    /// When the identity was created.
    created: Option<Timestamp>,
    /// The revocations of the identity's tokens.
    revocations: Revocations,
    /// The data that the authority attached.
    record: Option<Box<dyn Any + Send + Sync>>,
    /// Whether this is the installation's operator.
    pub(crate) operator: bool,
    /// All epochs: those of the identity and its sign-in, then those of each of the organizations.
    as_of: AsOf,
    /// The index of the first epoch of each organization.
    starts: Vec<usize>,
    /// The epochs of the identity and its sign-in alone.
    own: AsOf,
    /// The organizations with a binding, in order.
    organizations: Vec<Uid>,
    /// The capabilities that are bound at each group, without those that are bound above it.
    by_group: HashMap<Uid, CapabilitySet>,
    /// The capabilities that are held at every uid.
    everywhere: CapabilitySet,
    /// Memo: the topmost groups at which each set of capabilities is held. Emptied when it reaches [`most_nodes`].
    nodes: Mutex<HashMap<CapabilitySet, Arc<[Uid]>>>,
    /// The approximate size in memory in bytes, including `nodes` at its largest, so it never changes and the
    /// cache of grants can weigh it once.
    bytes: usize,
}

/// Where capabilities are held.
///
/// Exhaustive, so that code that decides access handles both cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// At every uid, and at the top of the hierarchy.
    Everywhere,
    /// At and below these groups, which are in order. None of them is below another.
    Below(Arc<[Uid]>),
}

impl Nodes {
    /// Returns whether the capabilities are held nowhere.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Below(groups) if groups.is_empty())
    }

    /// Returns the scopes that contain these places.
    pub fn scopes(&self) -> Scopes {
        match self {
            Self::Everywhere => Scopes::all(),
            Self::Below(groups) => Scopes::disjoint(groups.iter().cloned().map(Scope::Subtree)),
        }
    }
}

/// The approximate overhead of an allocation or of an entry of a map, in bytes.
const OVERHEAD: usize = 64;

/// The maximum number of groups in all sets of `nodes` together is this number for each bound group, plus
/// [`MORE_NODES`].
const NODES_PER_GROUP: usize = 4;
const MORE_NODES: usize = 64;

impl Grants {
    /// Returns the grants of an identity with bindings of these capabilities at these groups, restricted to the
    /// identity's reach.
    ///
    /// `own` are the epochs of the identity and its sign-in. `organizations` must be sorted and contain the organization
    /// of every group, each with the epochs of the grants there.
    pub fn new(
        identity: Uid,
        operator: bool,
        own: AsOf,
        organizations: Vec<(Uid, AsOf)>,
        bound: impl IntoIterator<Item = (Uid, CapabilitySet)>,
    ) -> Self {
        let mut by_group: HashMap<Uid, CapabilitySet> = HashMap::new();
        for (group, capabilities) in bound {
            if let Some(group) = within_reach(&identity, group) {
                let held = by_group.entry(group).or_default();
                *held = held.union(capabilities);
            }
        }
        let mut all: Vec<(Epoch, u64)> = own.iter().map(|(epoch, value)| (epoch.clone(), value)).collect();
        let mut starts = Vec::with_capacity(organizations.len());
        for (_, as_of) in &organizations {
            starts.push(all.len());
            all.extend(as_of.iter().map(|(epoch, value)| (epoch.clone(), value)));
        }
        let (epochs, values): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let as_of = AsOf::new(epochs, values);
        let organizations: Vec<Uid> = organizations.into_iter().map(|(organization, _)| organization).collect();
        let sets = by_group.len() * size_of::<CapabilitySet>();
        let uids = by_group.keys().chain(&organizations).map(|uid| uid.len() + size_of::<Uid>() + OVERHEAD);
        let epochs = as_of.epochs.iter().map(|epoch| epoch.uid.len() + size_of::<(Epoch, u64)>() + OVERHEAD);
        let nodes = most_nodes(by_group.len()) * size_of::<Uid>();
        let bytes = size_of::<Self>() + sets + uids.sum::<usize>() + epochs.sum::<usize>() + nodes;
        Self { identity: Some(identity), operator, as_of, starts, own, organizations, by_group, bytes, ..Self::none() }
    }

    /// Sets the creation time of the identity, and the id of this registration of a person.
    #[must_use]
    pub fn registered(self, created: Option<Timestamp>, registration: Option<RegistrationId>) -> Self {
        Self { created, registration, ..self }
    }

    /// Sets the revocations of the identity's tokens.
    #[must_use]
    pub fn with_revocations(self, revocations: Revocations) -> Self {
        let bytes = self.bytes + revocations.bytes();
        Self { revocations, bytes, ..self }
    }

    /// Adds capabilities that are held everywhere, at the top of the hierarchy too.
    #[must_use]
    pub fn everywhere(self, everywhere: CapabilitySet) -> Self {
        Self { everywhere, ..self }
    }

    /// Attaches data that the authority read about the identity. `bytes` is its approximate size in memory.
    #[must_use]
    pub fn with_record<T: Any + Send + Sync>(self, record: T, bytes: usize) -> Self {
        Self { record: Some(Box::new(record)), bytes: self.bytes + bytes, ..self }
    }

    /// Returns the data that the authority attached with [`Grants::with_record`], if it is of this type.
    pub fn record<T: Any>(&self) -> Option<&T> {
        self.record.as_ref().and_then(|record| record.downcast_ref())
    }

    /// Returns the identity; `None` for nobody.
    pub fn identity(&self) -> Option<&Uid> {
        self.identity.as_ref()
    }

    /// Returns whether the identity is the installation's operator.
    pub fn is_operator(&self) -> bool {
        self.operator
    }

    /// Returns the id of this registration of a person; `None` for an identity of a group, for the operator that an
    /// installation starts with, and for persons who registered before ids were introduced.
    pub fn registration(&self) -> Option<RegistrationId> {
        self.registration
    }

    /// Returns whether these are the grants of the registration that a caller acts as.
    pub(crate) fn are_of(&self, acts_as: ActsAs) -> bool {
        match acts_as {
            ActsAs::Current => true,
            ActsAs::Registration(id) => self.registration == Some(id),
            ActsAs::AsOf(time) => {
                let began = self.created.is_some_and(|created| created.seconds() <= time.seconds());
                self.registration.is_none() || began
            }
        }
    }

    /// Returns the revocations of the identity's tokens.
    pub const fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Returns whether the caller's token is not revoked.
    pub(crate) fn admit(&self, caller: &Caller) -> bool {
        caller.credential.as_ref().is_none_or(|credential| self.revocations.admit(credential))
    }

    /// Returns the grants of nobody: no capabilities, and no epochs that could become stale.
    pub(crate) fn none() -> Self {
        Self {
            identity: None,
            registration: None,
            created: None,
            revocations: Revocations::default(),
            record: None,
            operator: false,
            as_of: AsOf::default(),
            starts: Vec::new(),
            own: AsOf::default(),
            organizations: Vec::new(),
            by_group: HashMap::new(),
            everywhere: CapabilitySet::EMPTY,
            nodes: Mutex::default(),
            bytes: size_of::<Self>(),
        }
    }

    /// Returns the organizations with a binding, in order.
    pub fn organizations(&self) -> &[Uid] {
        &self.organizations
    }

    /// Returns the index of an organization among [`Self::organizations`].
    pub fn place_of(&self, organization: &str) -> Option<usize> {
        self.organizations.binary_search_by(|known| known.as_str().cmp(organization)).ok()
    }

    /// Returns the epochs that all of the grants depend on.
    pub fn as_of_all(&self) -> AsOf {
        self.as_of.clone()
    }

    /// Returns the epochs that the grants in the organizations at these indices depend on, including the identity's
    /// own.
    pub fn as_of(&self, places: &[usize]) -> AsOf {
        let own = self.own.epochs.len();
        match places.len() {
            all if all == self.organizations.len() => self.as_of_all(),
            0 => self.own.clone(),
            _ => {
                let start = |place: usize| self.starts.get(place).copied().unwrap_or(self.as_of.epochs.len());
                let of_places = places.iter().flat_map(|place| start(*place)..start(place + 1));
                self.as_of.at((0..own).chain(of_places))
            }
        }
    }

    /// Returns the capabilities that are held at a uid: those that are bound there and at its ancestors.
    pub fn at(&self, uid: &str) -> CapabilitySet {
        let above = std::iter::successors(Some(uid), |uid| uid::parent(uid));
        above.filter_map(|group| self.by_group.get(group)).fold(self.everywhere, |all, held| all.union(*held))
    }

    /// Returns the capabilities that are bound at each group, without those that are bound above it, in no particular
    /// order.
    pub fn bound(&self) -> impl Iterator<Item = (&Uid, CapabilitySet)> {
        self.by_group.iter().map(|(group, held)| (group, *held))
    }

    /// Returns the groups with bindings, in no particular order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Uid> {
        self.by_group.keys()
    }

    /// Returns where all of these capabilities are held.
    pub fn nodes(&self, capabilities: &[Capability]) -> Nodes {
        let wanted = CapabilitySet::from_iter(capabilities.iter().copied());
        if self.everywhere.is_superset(&wanted) {
            return Nodes::Everywhere;
        }
        if let Some(nodes) = self.nodes.lock().get(&wanted) {
            return Nodes::Below(Arc::clone(nodes));
        }
        // Computed without the lock: concurrent callers may compute the same set, but none waits for another.
        let nodes = topmost(self.by_group.keys(), |group| self.at(group).is_superset(&wanted));
        let mut known = self.nodes.lock();
        // Each set counts as four more groups, the size of an empty one.
        let size = |nodes: &Arc<[Uid]>| nodes.len() + 4;
        if known.values().map(size).sum::<usize>() + size(&nodes) > most_nodes(self.by_group.len()) {
            known.clear();
        }
        known.insert(wanted, Arc::clone(&nodes));
        Nodes::Below(nodes)
    }

    /// Returns the number of groups in all cached sets together.
    #[cfg(test)]
    pub(crate) fn remembered_nodes(&self) -> usize {
        self.nodes.lock().values().map(|nodes| nodes.len()).sum()
    }

    /// Returns the approximate size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the maximum number of groups in all cached sets together, for an identity with bindings at this many groups.
const fn most_nodes(groups: usize) -> usize {
    MORE_NODES + NODES_PER_GROUP * groups
}

/// Returns the groups that pass and have no ancestor that passes, sorted and without duplicates.
pub fn topmost<'a>(groups: impl Iterator<Item = &'a Uid>, passes: impl Fn(&str) -> bool) -> Arc<[Uid]> {
    let topmost = |group: &&Uid| passes(group) && !group.ancestry().skip(1).any(&passes);
    let mut nodes: Vec<_> = groups.filter(topmost).cloned().collect();
    nodes.sort();
    nodes.dedup();
    nodes.into()
}

/// Returns the group at which a binding at `group` takes effect for an identity; `None` if it has no effect.
///
/// An identity that was created in a group holds capabilities only at and below that group: a binding above it takes
/// effect at the group, and a binding elsewhere has no effect. A registered person, whose uid has one segment, has no
/// such limit.
fn within_reach(identity: &Uid, group: Uid) -> Option<Uid> {
    match identity.parent() {
        None => Some(group),
        Some(home) if group.is_at_or_below(&home) => Some(group),
        Some(home) if home.is_below(&group) => Some(home),
        Some(_) => None,
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants").field("identity", &self.identity).field("by_group", &self.by_group).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topmost_groups_are_in_order_without_duplicates_and_none_is_below_another() {
        let groups = ["b", "a/1", "a/1/2", "b", "c", "a/3"].map(Uid::opaque);
        assert_eq!(*topmost(groups.iter(), |group| !["a", "c"].contains(&group)), ["a/1", "a/3", "b"].map(Uid::opaque));
    }

    #[test]
    fn a_caller_acts_as_a_registration_that_had_begun_and_as_any_identity_of_a_group() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let grants = |registration| {
            Grants::new(Uid::opaque("a"), false, AsOf::default(), Vec::new(), []).registered(Some(at(10)), registration)
        };
        let [id, other] = ["11", "22"].map(|hex| RegistrationId::try_from(hex.repeat(16)).unwrap());
        for (acts_as, of_person, of_group) in [
            (ActsAs::Current, true, true),
            (ActsAs::Registration(id), true, false),
            (ActsAs::Registration(other), false, false),
            (ActsAs::AsOf(at(9)), false, true),
            (ActsAs::AsOf(at(10)), true, true),
        ] {
            assert_eq!(grants(Some(id)).are_of(acts_as), of_person, "{acts_as:?}");
            assert_eq!(grants(None).are_of(acts_as), of_group, "{acts_as:?}");
        }
    }

    #[test]
    fn sets_of_groups_are_cached_up_to_the_bound_and_then_dropped() {
        let held = [0, 1, 2, 3].map(|bit| Capability::of_contract(bit.into(), "CAP", "cap", bit));
        let group = |n: usize| Uid::opaque(format!("{:040x}/{n:016x}", 1));
        // Five sets of 44 groups, each counted as 48, are exactly 64 + 4 * 44.
        let bound = (0..44).map(|n| (group(n), held.into_iter().collect()));
        let grants = Grants::new(Uid::opaque("a"), false, AsOf::default(), Vec::new(), bound);
        let remembered = [&held[..1], &held[..2], &held[..3], &held[..4], &held[1..2], &held[2..3]].map(|wanted| {
            assert_eq!(grants.nodes(wanted).scopes().as_slice().len(), 44);
            grants.remembered_nodes()
        });
        assert_eq!(remembered, [44, 88, 132, 176, 220, 44]);
    }
}
