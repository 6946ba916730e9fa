//! The dependents of a deleted resource: its children, and the resources that reference it (`docs/api.md`, Deletes and
//! References).
//!
//! The store itself finds and deletes children, because their uids begin with the uid of the deleted resource.
//! Resources that reference a deleted one have other uids and must be read: just before its commit, a write is
//! completed with the consequences of all its deletes, whether a method or a hook of a kind added them.
//!
//! Each write that sets a reference requires that the referenced resource exists, and raises an epoch of that
//! resource's organization. A delete that has read references requires that this epoch is unchanged, so that no
//! reference is added between the read and the commit.

use std::collections::{BTreeMap, BTreeSet};

use heck::ToSnakeCase;

use super::{Referenced, Write, references_epoch};
use crate::{
    error::{Error, Result},
    fields::{Checked, is_empty},
    kind::{Field, Kind, OnDelete, OnParentDelete, Reference},
    store::{Delete, Epoch, Filter, Item, Key, KeyValue, Query, Require, Scope, Store},
    timestamp::Timestamp,
    uid::Uid,
    write::CURRENT_RENDERING,
};

/// The maximum number of resources that are read to complete a delete. Our choice.
const MAX_READ: usize = 1000;

/// The maximum length of the resources that are read to complete a delete, in bytes. Our choice.
const MAX_BYTES: usize = 16 << 20;

/// How many uids a query for references contains.
const AT_ONCE: usize = 100;

/// The kinds of a platform, and the fields by which their resources reference others.
#[derive(Debug)]
pub(crate) struct Dependents {
    kinds: Vec<&'static Kind>,
    references: Vec<Referring>,
}

/// A resource that cannot be deleted because there are children of a kind.
#[derive(Debug)]
pub(crate) struct NotEmpty {
    pub(crate) kind: &'static Kind,
    pub(crate) uid: Uid,
    pub(crate) child: &'static Kind,
}

/// A field of a kind that references resources.
#[derive(Debug, Clone, Copy)]
struct Referring {
    kind: &'static Kind,
    field: &'static Field,
    to: Reference,
}

impl Referring {
    /// Returns the error of a delete that this reference restricts.
    fn in_use(&self) -> Error {
        let (kind, referring) = (spoken(self.to.kind.name), spoken(self.kind.plural));
        let why = format!("cannot delete {kind} that is the {} of {referring}", self.field.name);
        Error::blocked("RESOURCE_IN_USE", why)
    }
}

impl Dependents {
    pub(crate) fn new(kinds: impl Iterator<Item = &'static Kind>) -> Self {
        let kinds: Vec<_> = kinds.collect();
        let references = kinds.iter().flat_map(|kind| {
            kind.fields.iter().filter_map(|field| Some(Referring { kind, field, to: field.reference? }))
        });
        let references = references.collect();
        Self { kinds, references }
    }

    /// Adds cascading deletes for children and, at every depth, a requirement that no restricting child exists.
    ///
    /// Walks the tables of kinds and reads no records: the store deletes and checks all records of a kind below the uid
    /// at once.
    pub(crate) fn add_children(&self, kind: &'static Kind, uid: &Uid, write: &mut Write) {
        let mut below = Vec::new();
        for (child, same_uid) in self.below(kind) {
            match (child.on_parent_delete, same_uid) {
                (OnParentDelete::Restrict, _) => {
                    let require = if same_uid {
                        Require::Absent(Key::new(child.name, uid.clone()))
                    } else {
                        Require::NoneBelow(uid.clone(), vec![child.name])
                    };
                    write.require_none(require, NotEmpty { kind, uid: uid.clone(), child });
                }
                (OnParentDelete::Cascade, true) => write.delete(Delete::Key(Key::new(child.name, uid.clone()))),
                (OnParentDelete::Cascade, false) => below.push(child.name),
            }
        }
        if !below.is_empty() {
            write.delete(Delete::Below(uid.clone(), below));
        }
    }

    /// Returns the kinds whose resources a delete of a resource deletes too or is restricted by, breadth-first, and whether
    /// their records have the same uid as the resource. Such a record is not below the uid and needs a delete of its own.
    pub(crate) fn below(&self, kind: &'static Kind) -> Vec<(&'static Kind, bool)> {
        let mut found = Vec::new();
        let mut cascading = vec![(kind.name, true)];
        let mut next = 0;
        while let Some((parent, same_uid)) = cascading.get(next).copied() {
            next += 1;
            for child in self.kinds.iter().filter(|child| child.parent.kind() == Some(parent)) {
                let same_uid = same_uid && child.parent.shares_uid();
                found.push((*child, same_uid));
                // Each kind is visited once, even if several paths lead to it or it can be its own descendant.
                let is_new = cascading.iter().all(|(name, _)| *name != child.name);
                if child.on_parent_delete == OnParentDelete::Cascade && is_new {
                    cascading.push((child.name, same_uid));
                }
            }
        }
        found
    }

    /// Completes a write that deletes resources, for the resources that reference the deleted ones: deletes those whose
    /// reference cascades, together with their own dependents, clears the reference in others, and returns an error if
    /// a reference restricts the delete.
    ///
    /// A resource that the same write deletes does not restrict anything. If the platform has no references, or the
    /// write deletes only resources that cannot be referenced, this function does not read the store.
    ///
    /// # Errors
    /// FAILED_PRECONDITION when a resource restricts the delete, and when more would have to be read than [`MAX_READ`]
    /// or [`MAX_BYTES`]; INVALID_ARGUMENT for a put that references a resource that the write deletes;
    /// [`Error::stale`] when references change in between; and those of the store.
    pub(crate) async fn complete(&self, store: &dyn Store, now: Timestamp, write: &mut Write) -> Result<()> {
        if self.references.is_empty() || write.deletes.is_empty() {
            return Ok(());
        }
        let mut reading = Reading { store, epochs: BTreeMap::new(), left: MAX_READ, bytes: MAX_BYTES };
        let mut gone = BTreeSet::new();
        // The deletes of cascading resources are appended, and are completed in their turn.
        let mut next = 0;
        while let Some(delete) = write.deletes.get(next).cloned() {
            next += 1;
            for kind in &self.kinds {
                let uids: Vec<_> = self.deleted(&mut reading, &delete, kind, &gone, write).await?;
                gone.extend(uids.iter().map(|uid| Key::new(kind.name, uid.clone())));
                for referring in self.to(kind, OnDelete::Cascade) {
                    for item in reading.referring(referring, &uids).await? {
                        let key = Key::new(referring.kind.name, item.uid());
                        if !is_changed(write, &gone, &key) {
                            self.add_children(referring.kind, &key.uid, write);
                            write.require_or_retry(Require::Revision(key.clone(), item.revision));
                            write.delete(Delete::Key(key));
                        }
                    }
                }
            }
        }
        self.restrict(&mut reading, &gone, write).await?;
        self.clear(&mut reading, &gone, now, write).await?;
        if let Some(at) = write.references.iter().position(|referenced| gone.contains(&referenced.key)) {
            return Err(write.references.swap_remove(at).missing);
        }
        for (epoch, value) in reading.epochs {
            write.require_or_retry(Require::Epoch(epoch, value));
        }
        Ok(())
    }

    /// Returns the references to a kind with this effect.
    fn to(&self, kind: &Kind, on_delete: OnDelete) -> impl Iterator<Item = &Referring> {
        let name = kind.name;
        self.references.iter().filter(move |to| to.to.kind.name == name && to.to.on_delete == on_delete)
    }

    /// Returns the uids of the resources of a kind that a delete removes, as far as they are needed: resources that
    /// others may reference and, for [`Delete::With`], resources that reference others, because their uids do not show
    /// that they are deleted. Resources in `gone` and resources that the write puts again are left out.
    async fn deleted(
        &self,
        reading: &mut Reading<'_>,
        delete: &Delete,
        kind: &Kind,
        gone: &BTreeSet<Key>,
        write: &mut Write,
    ) -> Result<Vec<Uid>> {
        let is_referenced = self.references.iter().any(|to| to.to.kind.name == kind.name);
        let refers = self.references.iter().any(|to| to.kind.name == kind.name);
        let mut uids = match delete {
            Delete::Key(key) if is_referenced && key.kind == kind.name => vec![key.uid.clone()],
            Delete::Below(top, kinds) if is_referenced && kinds.contains(&kind.name) => {
                let query = Query::new(kind.name, Scope::Subtree(top.clone()));
                let found = reading.list(query, [top.root()].into()).await?;
                found.into_iter().map(|item| item.uid()).filter(|uid| uid != top).collect()
            }
            Delete::With(name, key, value) if (is_referenced || refers) && *name == kind.name => {
                let filters = vec![Filter::AnyOf { key, values: vec![value.clone()] }];
                let query = Query { filters, ..Query::new(kind.name, Scope::All) };
                let found = reading.list(query, BTreeSet::new()).await?;
                for item in &found {
                    let key = Key::new(kind.name, item.uid());
                    write.require_or_retry(Require::Revision(key, item.revision));
                }
                found.into_iter().map(|item| item.uid()).collect()
            }
            _ => Vec::new(),
        };
        uids.retain(|uid| {
            let key = Key::new(kind.name, uid.clone());
            !gone.contains(&key) && !puts(write, &key)
        });
        Ok(uids)
    }

    /// Requires that nothing references a deleted resource by a field that restricts its delete.
    async fn restrict(&self, reading: &mut Reading<'_>, gone: &BTreeSet<Key>, write: &mut Write) -> Result<()> {
        for referring in self.references.iter().filter(|to| to.to.on_delete == OnDelete::Restrict) {
            let uids = of_kind(gone, referring.to.kind);
            let deletes_some = write.deletes.iter().any(|delete| match delete {
                Delete::Key(key) => key.kind == referring.kind.name,
                Delete::Below(_, kinds) => kinds.contains(&referring.kind.name),
                Delete::With(kind, ..) => *kind == referring.kind.name,
            });
            // A requirement cannot exclude the resources that the write itself deletes, so the referring ones are read.
            if deletes_some {
                for item in reading.referring(referring, &uids).await? {
                    if !is_deleted(write, gone, &Key::new(referring.kind.name, item.uid())) {
                        return Err(referring.in_use());
                    }
                }
                continue;
            }
            for uid in uids {
                let require = Require::NoneWith(referring.kind.name, referring.field.name, KeyValue::text(&uid));
                write.require_or_fail(require, referring.in_use());
            }
        }
        Ok(())
    }

    /// Clears the fields that reference a deleted resource with [`OnDelete::Clear`].
    async fn clear(
        &self,
        reading: &mut Reading<'_>,
        gone: &BTreeSet<Key>,
        now: Timestamp,
        write: &mut Write,
    ) -> Result<()> {
        // A commit has at most one put for each resource, so all fields of one resource are cleared together.
        let mut found: BTreeMap<Key, (&Referring, u64, Vec<&Field>)> = BTreeMap::new();
        for referring in self.references.iter().filter(|to| to.to.on_delete == OnDelete::Clear) {
            for item in reading.referring(referring, &of_kind(gone, referring.to.kind)).await? {
                let key = Key::new(referring.kind.name, item.uid());
                if !is_changed(write, gone, &key) {
                    found.entry(key).or_insert((referring, item.revision, Vec::new())).2.push(referring.field);
                }
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = found.keys().cloned().collect();
        let read = reading.store.get(&keys, &[]).await?;
        for ((key, (referring, revision, fields)), record) in found.into_iter().zip(read.records) {
            // Deleted or changed since it was listed.
            let Some(record) = record.filter(|record| record.revision == revision) else { return Err(Error::stale()) };
            let old = Checked::stored(referring.kind, &record.body)?;
            let body = old.clone().cleared(&fields, now);
            let computed = record.rendering != CURRENT_RENDERING;
            write.put_body(referring.kind, &key.uid, Some(&old), &body, computed, record.private)?;
            write.require_or_retry(Require::Revision(key, revision));
        }
        Ok(())
    }
}

/// The reads that complete a delete.
struct Reading<'a> {
    store: &'a dyn Store,
    /// The epochs of the references that were read, with the values that they were read at.
    epochs: BTreeMap<Epoch, u64>,
    /// How many resources, and bytes of them, may still be read.
    left: usize,
    bytes: usize,
}

impl Reading<'_> {
    /// Returns the resources that reference one of these uids by a field.
    async fn referring(&mut self, referring: &Referring, uids: &[Uid]) -> Result<Vec<Item>> {
        let mut found = Vec::new();
        for some in uids.chunks(AT_ONCE) {
            let values = some.iter().map(|uid| KeyValue::text(uid)).collect();
            let filters = vec![Filter::AnyOf { key: referring.field.name, values }];
            let query = Query { filters, ..Query::new(referring.kind.name, Scope::All) };
            found.extend(self.list(query, some.iter().map(|uid| uid.root()).collect()).await?);
        }
        Ok(found)
    }

    /// Lists all records of a query, and remembers the epochs of the references to resources of these organizations.
    async fn list(&mut self, query: Query, organizations: BTreeSet<&str>) -> Result<Vec<Item>> {
        let epochs: Vec<_> = organizations.into_iter().map(references_epoch).collect();
        let query = Query { limit: self.left + 1, bytes: self.bytes, epochs: epochs.clone().into(), ..query };
        let page = self.store.list(&query).await?;
        for (epoch, value) in epochs.into_iter().zip(page.epochs) {
            if *self.epochs.entry(epoch).or_insert(value) != value {
                return Err(Error::stale());
            }
        }
        let bytes = page.items.iter().map(|item| item.body.len()).sum();
        match (self.left.checked_sub(page.items.len()), self.bytes.checked_sub(bytes)) {
            (Some(left), Some(bytes)) if page.next.is_none() => (self.left, self.bytes) = (left, bytes),
            _ => {
                let why = format!(
                    "cannot delete: together with it, more than {MAX_READ} resources or {} MiB may reference others or \
                     be referenced; delete some of them first",
                    MAX_BYTES >> 20
                );
                return Err(Error::blocked("TOO_MANY_REFERENCES", why));
            }
        }
        Ok(page.items)
    }
}

fn of_kind(gone: &BTreeSet<Key>, kind: &Kind) -> Vec<Uid> {
    gone.iter().filter(|key| key.kind == kind.name).map(|key| key.uid.clone()).collect()
}

fn puts(write: &Write, key: &Key) -> bool {
    write.puts().any(|put| put.key == *key)
}

fn is_deleted(write: &Write, gone: &BTreeSet<Key>, key: &Key) -> bool {
    let deletes = |delete: &Delete| match delete {
        Delete::Key(deleted) => deleted == key,
        Delete::Below(top, kinds) => kinds.contains(&key.kind) && key.uid.is_below(top),
        // Its resources are in `gone`.
        Delete::With(..) => false,
    };
    gone.contains(key) || write.deletes.iter().any(deletes)
}

/// Returns whether the write already deletes or puts a resource. A hook that puts a resource determines its references,
/// so they are not changed again.
fn is_changed(write: &Write, gone: &BTreeSet<Key>, key: &Key) -> bool {
    puts(write, key) || is_deleted(write, gone, key)
}

/// Returns a camelCase name as separate words: "role bindings" for `roleBindings`.
pub(crate) fn spoken(name: &str) -> String {
    name.to_snake_case().replace('_', " ")
}

/// References of puts.
impl Write {
    /// Adds the requirements of a body's references: each referenced resource must exist at the commit, unless the
    /// previous body had the same reference. A resource of an organization can reference only resources of the same
    /// organization and resources outside all organizations, so callers cannot find out which resources exist in other
    /// organizations.
    pub(super) fn add_references(
        &mut self,
        kind: &Kind,
        uid: &Uid,
        before: Option<&Checked>,
        body: &serde_json::Value,
    ) -> Result<()> {
        for field in kind.fields {
            let (Some(Reference { kind: to, .. }), Some(value)) = (field.reference, body.get(field.name)) else {
                continue;
            };
            if is_empty(&field.ty, value) {
                continue;
            }
            let is_new = before.is_none_or(|before| before.get(field.name) != Some(value));
            let target = Uid::opaque(value.as_str().unwrap_or_default());
            let rule =
                format!("must be the uid of an existing {} of the same organization or of none", spoken(to.name));
            let missing = Error::invalid_field(field.name, rule);
            let is_of_none = |uid: &Uid, kind: &Kind| uid.is_root() && kind.parent.kind() != Some(kind.name);
            if is_new && target.root() != uid.root() && !is_of_none(&target, to) && !is_of_none(uid, kind) {
                return Err(missing);
            }
            if is_new {
                self.raise(references_epoch(target.root()));
            }
            self.references.push(Referenced { key: Key::new(to.name, target), is_new, missing });
        }
        Ok(())
    }
}
