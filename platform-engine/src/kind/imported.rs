//! Kinds whose resources are imported in bulk and identified by a natural key.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Resource;
use crate::{
    BoxFuture,
    access::{Caller, Capability},
    context::Context,
    error::{Error, Result, Violations},
    platform::Platform,
    store::Delete,
    uid::Uid,
};

/// A kind whose resources come from an external source and are written with
/// [`Platform::put`](crate::platform::Platform::put).
///
/// Its fields with [`Access::InputOnly`](super::Access::InputOnly) are stored, and lists can filter by them, but no
/// reply shows them.
pub trait Imported: Resource {
    /// The capabilities that a caller must hold at or above the parent to write, all of them; empty if only the
    /// operator may write.
    const WRITE: &'static [Capability];

    /// The name of an epoch of the organization that every write raises, if data derived from all resources of the kind
    /// is cached. A kind without parents has one epoch for the installation.
    const EPOCH: Option<&'static str> = None;

    /// Returns the uid of this resource below a parent, which is empty for a kind without parents. It is derived from
    /// the natural key, so the same resource always has the same uid.
    fn uid_in(&self, parent: &str) -> Uid;

    /// Sets the uid, completes the values of the source, and adds a violation for each rule that they break.
    fn complete(&mut self, uid: Uid, violations: &mut Violations);

    /// Returns the records to delete with a resource, in addition to its dependents.
    fn associated(_uid: &Uid) -> Option<Delete> {
        None
    }

    /// The epoch of the installation that every change of the resources raises from which [`Imported::look_up`] takes
    /// values; `None` if the kind has no such values.
    const LOOKED_UP: Option<&'static str> = None;

    /// Returns, for each of these bodies, output-only values that come from other resources. They are stored for the
    /// index keys of the kind; [`Resource::render`] replaces them. Only called with [`Imported::LOOKED_UP`].
    ///
    /// # Errors
    /// Those of the store.
    fn look_up<'a>(_cx: &'a Context<'_>, bodies: &'a [&'a Value]) -> BoxFuture<'a, Result<Vec<Map<String, Value>>>> {
        Box::pin(async { Ok(vec![Map::new(); bodies.len()]) })
    }

    /// Whether resources of other kinds store values of this kind, so that [`Imported::follow`] is called.
    const FOLLOWED: bool = false;

    /// Updates the resources that store values of these. It is called after each commit of a put or a remove, with the
    /// new and the previous bodies, also with those that a put has left unchanged: a put that is repeated completes
    /// one that was interrupted.
    ///
    /// # Errors
    /// Those of the store.
    fn follow<'a>(
        _platform: &'a Platform,
        _caller: &'a Caller,
        _bodies: &'a [Value],
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

/// Returns a child uid that is derived from these values: 64 bits of SHA-256 over the values, each preceded by its
/// length.
pub fn derived_uid(parent: &str, values: &[&str]) -> Uid {
    let mut hash = Sha256::new();
    for value in values {
        hash.update((value.len() as u64).to_be_bytes());
        hash.update(value);
    }
    let digest = hash.finalize();
    Uid::opaque(format!("{parent}/{}", hex::encode(digest.get(..8).unwrap_or_default())))
}

/// Returns a uid with one segment that consists of these values, [escaped] and separated by colons. Colons in the
/// values are not escaped, so the values must differ even when they are joined.
pub fn opaque_uid(values: &[&str]) -> Uid {
    Uid::opaque(values.iter().map(|value| escaped(value)).collect::<Vec<_>>().join(":"))
}

/// Percent-encodes `/` and `%`, so that a text can be part of a segment of a uid.
pub fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}
