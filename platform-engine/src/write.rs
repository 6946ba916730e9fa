//! A commit under construction: its requirements and changes, each with the consequence of its conflict.
//!
//! A store reports a conflict by the index of the requirement or put. Requirements and puts are therefore kept with
//! their consequences, and separated only when the write is handed over, so that no index has to be adjusted when two
//! writes become one.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use bytes::Bytes;
use heck::ToLowerCamelCase;
use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    event::{Recorded, Subscribers},
    fields::{self, Checked, Keys},
    kind::{Kind, Unique},
    quota::Quotas,
    store::{
        Commit, Conflict, Delete, Epoch, Filter, Item, Key, KeyName, KeyValue, KindName, Put, Query, Require, Scope,
        StoreError, UniqueKey,
    },
    uid::Uid,
};

mod deferred;
mod dependents;
mod parts;

pub(crate) use deferred::Deferred;
pub(crate) use dependents::{Dependents, NotEmpty, spoken};

/// The rendering of bodies that are stored as replies return them. Raised when a release renders differently, so that
/// bodies of earlier releases are rendered when they are read. Bodies of later releases are rendered too, and updates
/// keep their additional fields, so that two releases can serve one store during an upgrade. A release that removes a
/// field raises it.
pub const CURRENT_RENDERING: u16 = 1;

/// The rendering of bodies that [`Resource::render`](crate::kind::Resource::render) completes at each read.
pub const RENDER_ON_READ: u16 = 0;

/// The maximum length of a resource that a caller sends, in bytes of JSON. Our choice, which keeps pages short.
pub const MAX_RESOURCE: usize = 256 << 10;

/// Returns whether a stored body is what replies return. That of a kind with a history may have been written with an
/// earlier table, so that it is rendered at each read.
pub(crate) const fn is_current(kind: &Kind, rendering: u16) -> bool {
    rendering == CURRENT_RENDERING && !kind.has_history
}

/// Returns whether an update keeps values of a stored body that have no field: unless an earlier release stored it,
/// which had fields that this one has removed, a later release did, which is running at the same time during an upgrade.
pub(crate) const fn keeps_unknown(rendering: u16) -> bool {
    rendering == RENDER_ON_READ || rendering >= CURRENT_RENDERING
}

/// A commit, and the consequence of each of its conflicts.
#[derive(Debug, Default)]
pub struct Write {
    requirements: Vec<(Require, Otherwise)>,
    deletes: Vec<Delete>,
    puts: Vec<(Put, Taken)>,
    /// The epochs that it raises, each once.
    raises: Vec<Epoch>,
    /// The resources that its puts reference.
    references: Vec<Referenced>,
    /// The events that it records.
    pub(crate) recorded: Vec<Recorded>,
    /// The subscriptions whose delivery has something to do after the commit, besides these events.
    pub(crate) wakes: Vec<Uid>,
}

/// The consequence of a requirement that does not hold.
#[derive(Debug)]
enum Otherwise {
    /// The operation fails with this error.
    Fail(Error),
    /// The delete fails, because there are children.
    NotEmpty(NotEmpty),
    /// The operation is retried.
    Retry,
    /// Cached data of this organization has changed: it is removed from the cache, and the operation is retried.
    Forget(Uid),
}

/// A resource that a put references.
#[derive(Debug)]
struct Referenced {
    key: Key,
    /// Whether the replaced body did not have this reference, so the resource must exist at the commit.
    is_new: bool,
    /// The error if it does not exist.
    missing: Error,
}

/// The handling of a unique-key conflict of a put.
#[derive(Debug)]
enum Taken {
    /// The operation fails with ALREADY_EXISTS. One rival for each unique key of the put.
    Refused(Vec<Rival>),
    /// The resource was created concurrently: retry, as an update.
    Retry,
}

/// A resource that is put, and a unique key of it that another resource may already have.
#[derive(Debug)]
pub(crate) struct Rival {
    kind: &'static Kind,
    unique: &'static Unique,
    value: KeyValue,
    uid: Uid,
    /// The filters that find the other resource among the children of the same parent.
    by: Vec<Filter>,
}

impl Rival {
    fn new(
        kind: &'static Kind,
        unique: &'static Unique,
        value: KeyValue,
        uid: &Uid,
        keys: &[(KeyName, KeyValue)],
    ) -> Self {
        let by = keys.iter().filter(|(key, _)| unique.by.contains(key));
        let by = by.map(|(key, value)| Filter::AnyOf { key, values: vec![value.clone()] });
        Self { kind, unique, value, uid: uid.clone(), by: by.collect() }
    }

    /// Returns the error of the conflict. `other` is the uid of the resource that has the key, if it may be named.
    pub(crate) fn error(&self, other: Option<&Uid>) -> Error {
        let error = Error::already_exists(format!("{} already exists", self.unique.description));
        error.of_resource(self.kind, other.map_or("", Uid::as_str))
    }

    /// Returns the query that finds the resource with the key among those of the same parent (`docs/api.md`, Errors);
    /// `None` when the error must not name it.
    pub(crate) fn query(&self) -> Option<Query> {
        let parent = self.uid.parent().filter(|_| !self.by.is_empty())?;
        let among = Query::new(self.kind.name, Scope::Children(parent));
        Some(Query { filters: self.by.clone(), limit: RIVALS, ..among })
    }

    /// Returns the uid of the first of these resources that has the key. They share the filter keys with the resource
    /// that is put, which may be only a part of the unique value.
    pub(crate) fn find(&self, items: Vec<Item>) -> Option<Uid> {
        let has_key = |item: &Item| {
            let body = Checked::stored(self.kind, &item.body).ok();
            body.and_then(|body| self.unique.value(&body)).is_some_and(|value| value == self.value)
        };
        items.into_iter().find(has_key).map(|item| item.uid())
    }
}

/// The maximum number of resources that are compared to name the one that has a unique key.
const RIVALS: usize = 200;

impl Write {
    /// Adds a requirement. If it does not hold, the operation fails with `otherwise`.
    pub fn require_or_fail(&mut self, require: Require, otherwise: Error) {
        self.requirements.push((require, Otherwise::Fail(otherwise)));
    }

    /// Adds a requirement that there are no children. If it does not hold, the delete fails.
    fn require_none(&mut self, require: Require, otherwise: NotEmpty) {
        self.requirements.push((require, Otherwise::NotEmpty(otherwise)));
    }

    /// Adds a requirement. If it does not hold, the operation is retried from the start.
    pub fn require_or_retry(&mut self, require: Require) {
        self.requirements.push((require, Otherwise::Retry));
    }

    /// Requires that the subscriptions of an organization have not changed. If they have, they are removed from the
    /// cache and the operation is retried.
    pub fn require_subscribers(&mut self, subscribers: &Subscribers) {
        self.require_known(subscribers.organization(), subscribers.unchanged());
    }

    /// Requires that the quotas of an organization have not changed. If they have, they are removed from the cache and
    /// the operation is retried.
    pub(crate) fn require_quotas(&mut self, quotas: &Quotas) {
        let unchanged = quotas.unchanged();
        // Most writes require the same epoch because of their event.
        let is_required = |(require, otherwise): &(Require, Otherwise)| {
            *require == unchanged && matches!(otherwise, Otherwise::Forget(_))
        };
        if !self.requirements.iter().any(is_required) {
            self.require_known(quotas.organization(), unchanged);
        }
    }

    /// Returns the organizations in which the write may create records of these kinds, with the kinds. Organizations
    /// that it creates itself are left out.
    pub(crate) fn creates(&self, is_wanted: impl Fn(KindName) -> bool) -> BTreeMap<Uid, BTreeSet<KindName>> {
        // Roots are organizations and registered persons, which are in no organization.
        let is_wanted = |put: &&Put| is_wanted(put.key.kind) && !put.key.uid.is_root();
        let mut creates: BTreeMap<Uid, BTreeSet<KindName>> = BTreeMap::new();
        if !self.puts().any(|put| is_wanted(&put)) {
            return creates;
        }
        let existing = self.existing();
        for put in self.puts().filter(is_wanted).filter(|put| !existing.contains(&put.key)) {
            match creates.get_mut(put.key.uid.root()) {
                Some(kinds) => drop(kinds.insert(put.key.kind)),
                None => drop(creates.insert(Uid::opaque(put.key.uid.root()), [put.key.kind].into())),
            }
        }
        for put in self.puts().filter(|put| put.key.uid.is_root() && !existing.contains(&put.key)) {
            creates.remove(&put.key.uid);
        }
        creates
    }

    /// Adds a delete. Deletes are applied before puts.
    pub fn delete(&mut self, delete: Delete) {
        self.deletes.push(delete);
    }

    /// Raises an epoch to the sequence of the commit.
    pub fn raise(&mut self, epoch: Epoch) {
        if !self.raises.contains(&epoch) {
            self.raises.push(epoch);
        }
    }

    /// Wakes the delivery of a subscription after the commit.
    pub fn wake(&mut self, subscription: Uid) {
        self.wakes.push(subscription);
    }

    /// Makes the last put the create of an upsert, which found no resource to replace. If one of its unique keys is
    /// taken at the commit, there is one now, and the operation is retried.
    pub(crate) fn mark_upsert(&mut self) {
        self.puts.last_mut().into_iter().for_each(|(_, taken)| *taken = Taken::Retry);
    }

    /// Adds a put of a resource that a caller sent, as [`Write::put_body`] does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when it is longer than [`MAX_RESOURCE`], and as [`Write::put`].
    pub(crate) fn put_bounded(
        &mut self,
        kind: &'static Kind,
        uid: &Uid,
        before: Option<&Checked>,
        body: &Checked,
        computed: bool,
        private: Bytes,
    ) -> Result<()> {
        self.put_body(kind, uid, before, body, computed, private)?;
        match self.puts.last() {
            Some((put, _)) if put.body.len() > MAX_RESOURCE => {
                let rule = format!("must be at most {MAX_RESOURCE} bytes of JSON");
                Err(Error::invalid_field(kind.name.to_lower_camel_case(), rule))
            }
            _ => Ok(()),
        }
    }

    /// Adds a put of a body with its index keys and unique keys. `computed` is whether
    /// [`Resource::render`](crate::kind::Resource::render) completes it at each read. `before` is the body that it
    /// replaces, if it is known: references that stay are not checked.
    ///
    /// # Errors
    /// As [`Write::put`].
    pub(crate) fn put_body(
        &mut self,
        kind: &'static Kind,
        uid: &Uid,
        before: Option<&Checked>,
        body: &Checked,
        computed: bool,
        private: Bytes,
    ) -> Result<()> {
        // Fields that only the reply of a create shows are never stored.
        // A hook may have cleared a field with a default, of which the index keys are made.
        let evolved = kind.has_history.then(|| body.clone().evolved(kind));
        let body = evolved.as_ref().unwrap_or(body);
        let body = &fields::without(kind.fields, Cow::Borrowed(&**body), |field| field.once);
        self.add_references(kind, uid, before, body)?;
        let Keys { sort, filter, search } = Keys::of(kind, body, &private)?;
        let (mut unique, mut rivals) = (Vec::new(), Vec::new());
        for rule in kind.unique {
            let Some(value) = rule.value(body) else { continue };
            rivals.push(Rival::new(kind, rule, value.clone(), uid, &filter));
            unique.push(UniqueKey { space: rule.space, value: short(value) });
        }
        let put = Put {
            key: Key::new(kind.name, uid.clone()),
            sort,
            filter,
            unique,
            search,
            // Stored bodies of a kind with a history are rendered even after a release without the history.
            rendering: if computed || kind.has_history { RENDER_ON_READ } else { CURRENT_RENDERING },
            body: serde_json::to_vec(&**body).map_err(Error::internal)?.into(),
            private,
            queue: kind.queue,
            revision: None,
        };
        self.puts.push((put, Taken::Refused(rivals)));
        Ok(())
    }

    /// Appends the requirements, changes and events of another write. A put that both have is made once.
    pub fn append(&mut self, other: Self) {
        self.requirements.extend(other.requirements);
        self.deletes.extend(other.deletes);
        let had = self.puts.len();
        for (put, taken) in other.puts {
            if !self.puts().take(had).any(|known| *known == put) {
                self.puts.push((put, taken));
            }
        }
        self.references.extend(other.references);
        self.recorded.extend(other.recorded);
        self.wakes.extend(other.wakes);
        other.raises.into_iter().for_each(|epoch| self.raise(epoch));
    }

    /// Returns the puts that were added so far.
    pub(crate) fn puts(&self) -> impl ExactSizeIterator<Item = &Put> {
        self.puts.iter().map(|(put, _)| put)
    }

    /// Returns whether it has no puts and no deletes.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }

    /// Returns the commit, to pass it to a store without the platform's checks: for imports, restores and benchmarks.
    /// The caller is responsible for everything that the methods would have checked, including references.
    pub fn into_commit(self) -> Commit {
        self.split().0
    }

    /// Returns the commit, and how its conflicts are handled.
    pub(crate) fn into_parts(mut self) -> (Commit, Meaning) {
        // These requirements come last, so that other conflicts are reported first. A resource that the same commit
        // puts need not exist before it.
        for Referenced { key, is_new, missing } in std::mem::take(&mut self.references) {
            if is_new && self.puts().all(|put| put.key != key) {
                self.require_or_fail(Require::Exists(key), missing);
            }
        }
        self.split()
    }

    fn split(self) -> (Commit, Meaning) {
        let (require, otherwise) = self.requirements.into_iter().unzip();
        let (put, taken) = self.puts.into_iter().unzip();
        (Commit { require, delete: self.deletes, put, raise: self.raises }, Meaning { otherwise, taken })
    }
}

/// Returns the epoch that a write raises when it sets a reference to a resource whose uid begins with this segment:
/// that of its organization, or the resource's own if it is outside all organizations.
fn references_epoch(root: &str) -> Epoch {
    Epoch::of_organization("references", root)
}

/// Returns a unique value that every store accepts: its SHA-256 when it is too long. A hash suffices, because unique
/// values are only compared for equality.
pub(crate) fn short(value: KeyValue) -> KeyValue {
    if !value.is_too_long() {
        return value;
    }
    KeyValue::from_bytes(Sha256::digest(value.as_bytes()).to_vec())
}

/// The consequences of the conflicts of a commit, which a store reports by the index of the requirement or put.
#[derive(Debug)]
pub(crate) struct Meaning {
    otherwise: Vec<Otherwise>,
    taken: Vec<Taken>,
}

/// The consequence of a failed commit.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The operation fails with this error; [`Error::stale`] is retried.
    With(Error),
    /// A delete fails, because there are children.
    NotEmpty(NotEmpty),
    /// Cached data of this organization has changed: retry with fresh values.
    Cached(Uid),
    /// Another resource has a unique key of a put.
    Taken(Rival),
}

impl Meaning {
    /// Returns the consequence of a failed commit.
    pub(crate) fn of(self, error: StoreError) -> Failed {
        match error {
            StoreError::Conflict(Conflict::Require(index)) => match self.otherwise.into_iter().nth(index) {
                Some(Otherwise::Fail(error)) => Failed::With(error),
                Some(Otherwise::NotEmpty(failed)) => Failed::NotEmpty(failed),
                Some(Otherwise::Forget(organization)) => Failed::Cached(organization),
                Some(Otherwise::Retry) => Failed::With(Error::stale()),
                None => Failed::With(Error::internal("a conflict of a requirement that the commit does not have")),
            },
            StoreError::Conflict(Conflict::Unique { put, unique }) => match self.taken.into_iter().nth(put) {
                Some(Taken::Retry) => Failed::With(Error::stale()),
                Some(Taken::Refused(rivals)) => match rivals.into_iter().nth(unique) {
                    Some(rival) => Failed::Taken(rival),
                    None => Failed::With(Error::internal("a conflict of a unique key that the commit does not have")),
                },
                None => Failed::With(Error::internal("a conflict of a put that the commit does not have")),
            },
            other => Failed::With(other.into()),
        }
    }
}
