//! Denials of an operation.

use super::Context;
use crate::{access::Capability, error::Error};

impl Context<'_> {
    /// Returns PERMISSION_DENIED for a request at a uid that requires these capabilities. The platform explains it to a
    /// caller who may see the place (`docs/api.md`, Denials).
    pub fn denied(&self, uid: &str, needed: impl Iterator<Item = Capability>) -> Error {
        let held = self.held_at(uid);
        Error::denied_at(uid, needed.filter(|one| !held.contains(*one)).map(Capability::name).collect())
    }
}
