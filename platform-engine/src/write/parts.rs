//! The parts of a write that the change log reads, and the record that it adds.

use std::collections::HashSet;

use super::{Otherwise, Taken, Write};
use crate::{
    store::{Delete, Epoch, Key, Put, Require},
    uid::Uid,
};

impl Write {
    /// Returns the deletes that were added so far.
    pub(crate) fn deletes(&self) -> &[Delete] {
        &self.deletes
    }

    /// Returns the epochs that it raises.
    pub(crate) fn raises(&self) -> &[Epoch] {
        &self.raises
    }

    /// Returns the keys that the write requires to exist.
    pub(crate) fn existing(&self) -> HashSet<&Key> {
        let existing = self.requirements.iter().filter_map(|(require, _)| match require {
            Require::Exists(key) | Require::Revision(key, _) => Some(key),
            _ => None,
        });
        existing.collect()
    }

    /// Returns the keys that the write requires to be absent.
    pub(crate) fn absent(&self) -> HashSet<&Key> {
        let absent = self.requirements.iter().filter_map(|(require, _)| match require {
            Require::Absent(key) => Some(key),
            _ => None,
        });
        absent.collect()
    }

    /// Requires that what is known of an organization has not changed. If it has, it is forgotten, and the operation is
    /// retried.
    pub(crate) fn require_known(&mut self, organization: &Uid, unchanged: Require) {
        self.requirements.push((unchanged, Otherwise::Forget(organization.clone())));
    }

    /// Adds a put of a new record of the engine's own. If there is one with this key, the operation is retried.
    pub(crate) fn put_own(&mut self, put: Put) {
        self.require_or_retry(Require::Absent(put.key.clone()));
        self.puts.push((put, Taken::Retry));
    }
}
