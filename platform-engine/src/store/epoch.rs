//! Epochs, by which commits and caches notice changes of the data that they depend on.

use std::fmt;

use crate::uid::{self, Uid};

/// A counter that commits raise when they change data that others depend on. A reader remembers the counter's value, and
/// a later commit requires this value, which ensures that the data has not changed since. The value of an epoch that was
/// never raised is 0.
///
/// Its text, `name/uid`, is unique, so that stores can use it as a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// The data that the epoch covers, such as `grants`, without `/`. The engine and the kinds choose the names.
    pub name: &'static str,
    /// The resource whose data the epoch covers. Empty for data of the whole installation.
    pub uid: Uid,
}

impl Epoch {
    /// Returns the epoch of a resource's data.
    pub const fn new(name: &'static str, uid: Uid) -> Self {
        Self { name, uid }
    }

    /// Returns the epoch of the organization that a uid is in; the epoch of the installation for an empty uid.
    pub fn of_organization(name: &'static str, uid: &str) -> Self {
        Self::new(name, Uid::opaque(uid::root(uid)))
    }

    /// Returns the organization that the epoch belongs to: the first segment of its uid.
    pub fn organization(&self) -> &str {
        self.uid.root()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.uid)
    }
}
