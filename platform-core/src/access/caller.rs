//! Callers: identities that a token has proved, and what the token narrows them to.

use std::{collections::HashMap, sync::Arc};

use super::CapabilitySet;
use crate::uid::{self, Uid};

/// An identity that somebody has proved to act as. Whoever makes one vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The identity.
    pub identity: Uid,
    /// What the token allows of what the identity may do; none when all of it.
    pub narrowing: Option<Arc<Narrowing>>,
}

impl Caller {
    /// Returns the identity as a caller, not narrowed.
    pub const fn new(identity: Uid) -> Self {
        Self { identity, narrowing: None }
    }

    /// Returns the caller with what a token narrows it to.
    #[must_use]
    pub fn narrowed(self, narrowing: Narrowing) -> Self {
        Self { narrowing: Some(Arc::new(narrowing)), ..self }
    }
}

/// The most that a token allows: capabilities at or below groups. It takes away and never gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Narrowing(HashMap<Uid, CapabilitySet>);

impl Narrowing {
    /// Returns what these groups' capabilities narrow to.
    pub fn new(groups: impl IntoIterator<Item = (Uid, CapabilitySet)>) -> Self {
        Self(groups.into_iter().collect())
    }

    /// Returns what is allowed at a uid: what its group and all above it allow.
    pub(crate) fn at(&self, uid: &str) -> CapabilitySet {
        let above = std::iter::successors(Some(uid), |uid| uid::parent(uid));
        above.filter_map(|group| self.0.get(group)).fold(CapabilitySet::EMPTY, |all, set| all.union(*set))
    }

    /// Returns the groups that it names.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Uid> {
        self.0.keys()
    }
}
