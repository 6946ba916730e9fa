//! Records of one store as puts of another: the index keys of a record follow from its body and the table of its kind.

use bytes::Bytes;

use crate::{
    error::{Error, Result},
    fields::{Checked, Keys},
    kind::Registered,
    store::{MAX_COPIED, Put, Record, UniqueKey},
    write::short,
};

/// Copies of records.
impl Registered {
    /// Returns the put that copies a record to another store, with its revision. The body, the private part and the
    /// revision are kept, and the index keys are computed as for a write of the resource by this release.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when the body is not that of a resource with the record's uid, when an index key is too long,
    /// and when the revision is 0 or greater than [`MAX_COPIED`].
    pub fn restored(&self, record: Record) -> Result<Put> {
        let Record { key, revision, rendering, body, private } = record;
        let kind = self.kind;
        if !(1..=MAX_COPIED).contains(&revision) {
            return Err(Error::invalid_field("revision", format!("must be a number from 1 to {MAX_COPIED}")));
        }
        let parsed = Checked::stored(kind, &body).map_err(|_| Error::invalid_field("body", "must be a JSON object"))?;
        if parsed.get("uid").and_then(serde_json::Value::as_str) != Some(&key.uid) {
            return Err(Error::invalid_field("body.uid", "must be the uid of the record"));
        }
        let Keys { sort, filter, search } = Keys::of(kind, &parsed, &private)?;
        let unique = kind.unique.iter().filter_map(|rule| Some((rule.space, rule.value(&parsed)?)));
        let unique = unique.map(|(space, value)| UniqueKey { space, value: short(value) }).collect();
        let revision = Some(revision);
        Ok(Put { key, sort, filter, search, unique, rendering, body, private, queue: kind.queue, revision })
    }

    /// Returns the private part of a record without its secrets, as
    /// [`Resource::without_secrets`](crate::kind::Resource::without_secrets) does.
    ///
    /// # Errors
    /// INTERNAL when the private part is malformed.
    pub fn without_secrets(&self, private: Bytes) -> Result<Bytes> {
        if private.is_empty() { Ok(private) } else { (self.without_secrets)(private) }
    }
}
