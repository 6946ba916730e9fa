//! What an identity holds and where, worked out once and asked often.

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;

use super::{Capability, CapabilitySet};
use crate::{
    resources::iam::Identity,
    store::Epoch,
    uid::{self, Uid},
};

/// The live grants of an identity, as of the epochs that they were read at.
pub struct Grants {
    /// The identity's record.
    pub(crate) identity: Identity,
    /// Whether this is the installation's operator.
    pub(crate) operator: bool,
    /// What must not have changed for the grants to hold.
    pub(crate) epochs: Arc<[Epoch]>,
    /// The values of the epochs.
    pub(crate) as_of: Vec<u64>,
    by_group: HashMap<Uid, CapabilitySet>,
    /// The topmost groups where sets of capabilities are held, worked out when first asked for.
    nodes: Mutex<HashMap<CapabilitySet, Arc<[Uid]>>>,
}

impl Grants {
    /// Returns the grants of an identity that holds these capabilities at these groups, cut to its reach.
    pub(crate) fn new(
        identity: Identity,
        operator: bool,
        epochs: Arc<[Epoch]>,
        as_of: Vec<u64>,
        bound: impl IntoIterator<Item = (Uid, CapabilitySet)>,
    ) -> Self {
        let mut by_group: HashMap<Uid, CapabilitySet> = HashMap::new();
        for (group, capabilities) in bound {
            if let Some(group) = within_reach(&identity.uid, group) {
                let held = by_group.entry(group).or_default();
                *held = held.union(capabilities);
            }
        }
        Self { identity, operator, epochs, as_of, by_group, nodes: Mutex::default() }
    }

    /// Returns the grants of nobody, which never become stale.
    pub(crate) fn none() -> Self {
        Self::new(Identity::default(), false, Arc::default(), Vec::new(), [])
    }

    /// Returns what is held at a uid: what is bound there and at every group above.
    pub fn at(&self, uid: &str) -> CapabilitySet {
        let above = std::iter::successors(Some(uid), |uid| uid::parent(uid));
        above.filter_map(|group| self.by_group.get(group)).fold(CapabilitySet::EMPTY, |all, held| all.union(*held))
    }

    /// Returns what is bound at each group, without what is bound above it, in no order.
    pub fn bound(&self) -> impl Iterator<Item = (&Uid, CapabilitySet)> {
        self.by_group.iter().map(|(group, held)| (group, *held))
    }

    /// Returns the groups that something is bound at.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Uid> {
        self.by_group.keys()
    }

    /// Returns the topmost groups at which all of these are held; none of them lies below another.
    pub fn nodes(&self, capabilities: &[Capability]) -> Arc<[Uid]> {
        let wanted = CapabilitySet::from_iter(capabilities.iter().copied());
        if let Some(nodes) = self.nodes.lock().get(&wanted) {
            return Arc::clone(nodes);
        }
        let nodes = topmost(self.by_group.keys(), |group| self.at(group).is_superset(&wanted));
        self.nodes.lock().insert(wanted, Arc::clone(&nodes));
        nodes
    }
}

/// Returns those of the groups that pass and have no ancestor that passes.
pub(crate) fn topmost<'a>(groups: impl Iterator<Item = &'a Uid>, passes: impl Fn(&str) -> bool) -> Arc<[Uid]> {
    let topmost = |group: &&Uid| passes(group) && !group.ancestry().skip(1).any(&passes);
    let mut nodes: Vec<_> = groups.filter(topmost).cloned().collect();
    nodes.sort();
    nodes.dedup();
    nodes.into()
}

/// Returns where a binding at `group` counts for an identity.
///
/// An identity that was created in a group reaches no further than that group: a binding above counts there, one
/// elsewhere nowhere. A registered person, whose uid is of one segment, reaches everything.
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
        f.debug_struct("Grants").field("identity", &self.identity.uid).field("by_group", &self.by_group).finish()
    }
}
