//! Kinds that come from data and not from callers: found again by what they are, and written many at once.

use sha2::{Digest, Sha256};

use super::Resource;
use crate::{
    access::Capability,
    error::Violations,
    store::{Delete, Epoch},
    uid::{self, Uid},
};

/// A kind of which [`Platform::put`](crate::platform::Platform::put) writes what a source says.
///
/// Its fields with [`Access::InputOnly`](super::Access::InputOnly) are kept with a resource, and lists can filter by
/// them, but no reply shows them.
pub trait Imported: Resource {
    /// What a caller must hold, all of it, at or above the parent to write; nothing means that the operator alone may.
    const WRITE: &'static [Capability];

    /// The prefix of the name of an epoch that every write raises, if data derived from all resources of the kind is
    /// cached; each organization has its own epoch.
    const EPOCH: Option<&'static str> = None;

    /// Returns the uid that this has below a parent. It follows from what makes two of them the same, so that what is
    /// written again is found.
    fn uid_in(&self, parent: &Uid) -> Uid;

    /// Takes its uid, completes what the source says and adds the rules that it breaks.
    fn complete(&mut self, uid: Uid, violations: &mut Violations);

    /// Returns what goes with a resource that is removed, besides what hangs on it.
    fn goes_with(_uid: &Uid) -> Option<Delete> {
        None
    }
}

/// Returns the epoch of this name of the organization of a uid.
pub fn epoch_of(name: &str, uid: &str) -> Epoch {
    format!("{name}/{}", uid::root(uid)).into()
}

/// Returns a uid below another that follows from these values: 64 bits of SHA-256 over them, each preceded by its
/// length.
pub fn derived_uid(parent: &Uid, values: &[&str]) -> Uid {
    let mut hash = Sha256::new();
    for value in values {
        hash.update((value.len() as u64).to_be_bytes());
        hash.update(value);
    }
    let digest = hash.finalize();
    Uid::opaque(format!("{parent}/{}", hex::encode(digest.get(..8).unwrap_or_default())))
}

/// Returns a uid of one segment that shows these values, with colons between them.
pub fn opaque_uid(values: &[&str]) -> Uid {
    Uid::opaque(values.iter().map(|value| escaped(value)).collect::<Vec<_>>().join(":"))
}

/// Writes a text so that it can be a segment of a uid: `/` and `%` as in URLs.
pub fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}
