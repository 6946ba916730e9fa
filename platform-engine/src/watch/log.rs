//! The records of a change log. `record` says how a commit gets its own.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    error::{Error, Result},
    store::{Epoch, Item, KeyValue, KindName, Order, OrderBy, Position, Query, Scope},
    uid::Uid,
};

/// The kind of the records. No platform serves it, and no copy of a store has it: a copy begins without watches.
pub(crate) const ENTRY: KindName = "ChangeLogEntry";

/// Returns the epoch that rises when an organization gets a lease, and when it loses it.
pub(crate) fn watched(organization: &str) -> Epoch {
    Epoch::of_organization("watched", organization)
}

/// Returns the epoch that rises with each record of an organization's log: its value is the end of the log. A commit that
/// reads which resources it deletes requires it, so that no resource is created in between.
pub(crate) fn end(organization: &str) -> Epoch {
    Epoch::of_organization("changes", organization)
}

/// How a resource changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// A change in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: String,
    pub(crate) uid: Uid,
    pub(crate) ty: ChangeType,
    pub(crate) rendering: u16,
    /// The stored body; `None` for a delete.
    pub(crate) body: Option<Bytes>,
}

/// A record of the log: what one commit has changed in an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The sequence of the commit.
    pub(crate) sequence: u64,
    pub(crate) changes: Vec<Change>,
    /// The epochs that the commit has raised, as text.
    pub(crate) raised: Vec<String>,
    /// Whether there were too many changes.
    pub(crate) overflowed: bool,
    /// Its length in the store.
    pub(crate) bytes: usize,
}

/// A record as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryForm<'a> {
    #[serde(borrow)]
    pub(super) changes: Vec<ChangeForm<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) raised: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) overflowed: bool,
}

/// A change in a record as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangeForm<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(rename = "type")]
    pub(super) ty: ChangeType,
    #[serde(default)]
    pub(super) rendering: u16,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<&'a RawValue>,
}

impl Entry {
    /// Parses a record. The bodies share its memory.
    pub(crate) fn parse(item: &Item) -> Result<Self> {
        let form: EntryForm<'_> = serde_json::from_slice(&item.body).map_err(Error::internal)?;
        let changes = form.changes.into_iter().map(|change| Change {
            kind: change.kind.into_owned(),
            uid: Uid::opaque(change.uid.into_owned()),
            ty: change.ty,
            rendering: change.rendering,
            body: change.body.map(|body| item.body.slice_ref(body.get().as_bytes())),
        });
        Ok(Self {
            sequence: item.revision,
            changes: changes.collect(),
            raised: form.raised,
            overflowed: form.overflowed,
            bytes: item.body.len(),
        })
    }
}

/// Returns the query for the records of a log after a sequence, in commit order, with the values of these epochs.
pub(crate) fn after(organization: &Uid, sequence: u64, limit: usize, bytes: usize, epochs: &[Epoch]) -> Query {
    // A commit has at most one record in a log, and no segment of a uid sorts after this one.
    let uid = Uid::opaque(format!("{organization}/~"));
    Query {
        order: Order { by: OrderBy::Sequence, descending: false },
        after: Some(Position { value: KeyValue::integer(sequence.cast_signed()), uid }),
        limit,
        bytes,
        epochs: epochs.into(),
        ..Query::new(ENTRY, Scope::Children(organization.clone()))
    }
}
