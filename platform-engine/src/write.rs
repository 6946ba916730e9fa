//! A commit in the making: what to require, and what to answer when it does not hold.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    event::{Recorded, Subscribers},
    fields::{self, Checked, Keys},
    kind::{Kind, Unique, Verb},
    store::{
        Commit, Conflict, Delete, Epoch, Filter, Item, Key, KeyName, KeyValue, Put, Query, Require, Scope, StoreError,
        UniqueKey,
    },
    uid::Uid,
};

/// The rendering of bodies that are stored as they are returned. Raised when a release renders differently.
pub const RENDERING: u16 = 1;

/// The rendering of bodies that [`Resource::render`](crate::kind::Resource::render) completes at each read.
pub const COMPUTED: u16 = 0;

/// The most bytes of a resource that a caller sends, as JSON. Our choice, so that a page of them is not too long.
pub const MAX_RESOURCE: usize = 256 << 10;

/// A commit, and an answer for each of its requirements.
#[derive(Debug, Default)]
pub struct Write {
    commit: Commit,
    otherwise: Vec<Option<Error>>,
    taken: Vec<Taken>,
    /// The events that it records.
    pub(crate) recorded: Vec<Recorded>,
    /// The requirements that the subscriptions of organizations have not changed: index and organization.
    subscribers: Vec<(usize, Uid)>,
}

/// What a conflict of a unique key means.
#[derive(Debug)]
enum Taken {
    /// There is already one of these.
    Refused(Vec<Rival>),
    /// It was created in between, and is to be replaced.
    Again,
}

/// A resource with a unique key that another may already have.
#[derive(Debug)]
pub(crate) struct Rival {
    kind: &'static Kind,
    unique: &'static Unique,
    value: KeyValue,
    uid: Uid,
    /// The filters that find the other one under its parent.
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

    /// Returns the error of the conflict, given the uid of the resource that has the key, if it may be named.
    pub(crate) fn error(&self, other: Option<&Uid>) -> Error {
        let error = Error::already_exists(format!("There is already {}", self.unique.what));
        error.of_resource(self.kind, other.map_or("", Uid::as_str))
    }

    /// Returns the query that finds the resource that has the key among those of the same parent (`docs/api.md`,
    /// Errors); none when it must not be named.
    pub(crate) fn query(&self) -> Option<Query> {
        let parent = self.uid.parent().filter(|_| !self.by.is_empty())?;
        let among = Query::new(self.kind.name, Scope::Children(parent));
        Some(Query { filters: self.by.clone(), limit: RIVALS, ..among })
    }

    /// Returns the uid of the first of these resources that has the key.
    pub(crate) fn find(&self, items: Vec<Item>) -> Option<Uid> {
        let has_key = |item: &Item| {
            let body = serde_json::from_slice(&item.body).ok();
            body.and_then(|body: serde_json::Value| (self.unique.value)(&body)).is_some_and(|value| value == self.value)
        };
        items.into_iter().find(has_key).map(|item| item.uid)
    }
}

/// How many resources are looked at to name the one that has a unique key.
const RIVALS: usize = 200;

impl Write {
    /// Requires this; if it does not hold, the operation fails with `otherwise`.
    pub fn require_or_fail(&mut self, require: Require, otherwise: Error) {
        self.commit.require.push(require);
        self.otherwise.push(Some(otherwise));
    }

    /// Requires this; if it does not hold, the operation is done again from the start.
    pub fn require_or_retry(&mut self, require: Require) {
        self.commit.require.push(require);
        self.otherwise.push(None);
    }

    /// Requires that the subscriptions of an organization have not changed; otherwise the cache forgets them and the
    /// operation is retried.
    pub fn require_subscribers(&mut self, subscribers: &Subscribers) {
        self.subscribers.push((self.commit.require.len(), subscribers.organization().clone()));
        self.require_or_retry(subscribers.unchanged());
    }

    /// Deletes this.
    pub fn delete(&mut self, delete: Delete) {
        self.commit.delete.push(delete);
    }

    /// Raises an epoch.
    pub fn raise(&mut self, epoch: Epoch) {
        if !self.commit.raise.contains(&epoch) {
            self.commit.raise.push(epoch);
        }
    }

    /// Marks the record that was put last as one of a queue.
    pub(crate) fn mark_queue(&mut self) {
        self.commit.put.last_mut().into_iter().for_each(|put| put.queue = true);
    }

    /// Gives the record that was put last a filter key that is not of its body. The value must not be too long.
    pub fn add_key(&mut self, name: KeyName, value: KeyValue) {
        self.commit.put.last_mut().into_iter().for_each(|put| put.filter.push((name, value.clone())));
    }

    /// Writes a resource as a caller sent it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when it is longer than [`MAX_RESOURCE`], and as [`Write::put`].
    pub(crate) fn put_bounded(
        &mut self,
        kind: &'static Kind,
        uid: &Uid,
        body: &Checked,
        computed: bool,
        private: Bytes,
    ) -> Result<()> {
        self.put_body(kind, uid, body, computed, private)?;
        match self.commit.put.last() {
            Some(put) if put.body.len() > MAX_RESOURCE => {
                let rule = format!("must be at most {MAX_RESOURCE} bytes of JSON");
                Err(Error::invalid_field(lower_camel(kind.name), rule))
            }
            _ => Ok(()),
        }
    }

    /// Writes the body of a resource, `computed` when [`Resource::render`](crate::kind::Resource::render) completes it.
    ///
    /// # Errors
    /// As [`Write::put`].
    pub(crate) fn put_body(
        &mut self,
        kind: &'static Kind,
        uid: &Uid,
        body: &Checked,
        computed: bool,
        private: Bytes,
    ) -> Result<()> {
        let body = &fields::without(kind.fields, body, |field| field.once);
        let Keys { sort, filter } = Keys::of(kind, body)?;
        let replaces = kind.method(Verb::Create).is_some_and(|create| create.upsert.is_some());
        let (mut unique, mut rivals) = (Vec::new(), Vec::new());
        for rule in kind.unique {
            let Some(value) = (rule.value)(body) else { continue };
            if !replaces {
                rivals.push(Rival::new(kind, rule, value.clone(), uid, &filter));
            }
            unique.push(UniqueKey { space: rule.space, value: short(value) });
        }
        self.taken.push(if replaces { Taken::Again } else { Taken::Refused(rivals) });
        self.commit.put.push(Put {
            key: Key::new(kind.name, uid.clone()),
            sort,
            filter,
            unique,
            rendering: if computed { COMPUTED } else { RENDERING },
            body: serde_json::to_vec(&**body).map_err(Error::internal)?.into(),
            private,
            queue: false,
        });
        Ok(())
    }

    /// Adds all of another, after what is here.
    pub fn append(&mut self, other: Self) {
        let before = self.commit.require.len();
        self.subscribers
            .extend(other.subscribers.into_iter().map(|(index, organization)| (before + index, organization)));
        self.commit.require.extend(other.commit.require);
        self.commit.delete.extend(other.commit.delete);
        self.commit.put.extend(other.commit.put);
        self.otherwise.extend(other.otherwise);
        self.taken.extend(other.taken);
        self.recorded.extend(other.recorded);
        other.commit.raise.into_iter().for_each(|epoch| self.raise(epoch));
    }

    /// Returns what it writes so far.
    pub(crate) fn puts(&self) -> &[Put] {
        &self.commit.put
    }

    /// Tells whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.commit.put.is_empty() && self.commit.delete.is_empty()
    }

    /// Returns the commit as a store takes it, for who fills a store without the platform's checks: to import, to
    /// restore, to measure. Its caller vouches for what the verbs would have checked.
    pub fn into_commit(self) -> Commit {
        self.commit
    }

    /// Returns the commit, and what its conflicts mean.
    pub(crate) fn into_parts(self) -> (Commit, Meaning) {
        let Self { commit, otherwise, taken, recorded: _, subscribers } = self;
        (commit, Meaning { otherwise, taken, subscribers })
    }
}

/// Returns a kind's name as a field of requests: `RoleBinding` is `roleBinding`.
fn lower_camel(name: &str) -> String {
    let (first, rest) = name.split_at_checked(1).unwrap_or_default();
    format!("{}{rest}", first.to_ascii_lowercase())
}

/// Returns a unique value that no store refuses: its SHA-256 when it is too long, since it is only compared.
fn short(value: KeyValue) -> KeyValue {
    if !value.is_too_long() {
        return value;
    }
    KeyValue::from_bytes(Sha256::digest(value.as_bytes()).to_vec())
}

/// What the conflicts of a commit mean to its caller.
#[derive(Debug)]
pub(crate) struct Meaning {
    otherwise: Vec<Option<Error>>,
    taken: Vec<Taken>,
    subscribers: Vec<(usize, Uid)>,
}

/// The consequence of a failed commit.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The caller gets this error; a stale one is retried.
    With(Error),
    /// The subscriptions of this organization have changed: retry with fresh ones.
    Subscribers(Uid),
    /// Another resource has a unique key.
    Taken(Rival),
}

impl Meaning {
    /// Returns the consequence of a failed commit.
    pub(crate) fn of(mut self, error: StoreError) -> Failed {
        match error {
            StoreError::Conflict(Conflict::Require(index)) => {
                if let Some(at) = self.subscribers.iter().position(|(at, _)| *at == index) {
                    return Failed::Subscribers(self.subscribers.swap_remove(at).1);
                }
                let error = self.otherwise.get_mut(index).and_then(Option::take);
                Failed::With(error.unwrap_or_else(Error::stale))
            }
            StoreError::Conflict(Conflict::Unique { put, unique }) => match self.taken.into_iter().nth(put) {
                Some(Taken::Again) => Failed::With(Error::stale()),
                Some(Taken::Refused(rivals)) => match rivals.into_iter().nth(unique) {
                    Some(rival) => Failed::Taken(rival),
                    None => Failed::With(Error::internal("a conflict of a unique key that was not put")),
                },
                None => Failed::With(Error::internal("a conflict of a put that was not made")),
            },
            other => Failed::With(other.into()),
        }
    }
}
