//! The tables that the records of a store were written with, and what a kind needs after a change of its table.
//!
//! Bodies are converted when they are read ([`Field::was`](crate::kind::Field::was),
//! [`Field::default`](crate::kind::Field::default), [`Kind::removed`]), so that most changes need no rewrite. Index keys
//! are stored with the records and are not: a new order, filter or uniqueness rule needs [`rewrite`]. For each kind, a
//! record of the store has its *shape*: the fields that stored bodies may have, and the keys that every record has.
//! [`adopt`] compares it with the table before the first request, and refuses a table with which old records would be
//! lost or not be found.
//!
//! ```
//! # use std::sync::Arc;
//! # use platform_engine::{kind::Registered, shape, store::{Store, memory::MemoryStore}};
//! # const OWN: &[Registered] = &[];
//! # pollster::block_on(async {
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! shape::adopt(&*store, OWN).await?;
//! // Then build the platform over the store.
//! # Ok::<_, shape::AdoptError>(())
//! # }).unwrap();
//! ```
//!
//! Shapes do not follow functions: a function that computes other keys than before needs another name for the key or the
//! namespace, or an explicit [`rewrite`].

mod rewrite;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use rewrite::{RewriteError, Rewritten, Taken, rewrite};

use crate::{
    kind::{Domain, Field, Kind, Registered, Resource, Type},
    platform::Invalid,
    store::{Commit, Key, Put, Query, Scope, Store, StoreError},
    uid::Uid,
};

/// The kind of the records that have the shapes, for copies of a store. It has no methods, and no platform serves it.
pub const RECORDS: Registered = Registered::of::<KindShape>();

/// The shape of a kind in a store. Its uid is the name of the kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KindShape {
    uid: Uid,
    /// The fields that stored bodies may have, by their dotted paths.
    fields: BTreeMap<String, StoredField>,
    /// The index keys and uniqueness rules that every record has, each with its definition.
    indexes: BTreeMap<String, String>,
    /// The checksums of the tables that records were written with since the last rewrite. A release with one of them may
    /// start again, beside a later one or after it: it reads bodies with further fields, and keeps them.
    tables: BTreeSet<String>,
    /// The rewrite that was begun and has not ended.
    rewrite: Option<Progress>,
}

/// A field of stored bodies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredField {
    ty: String,
    /// Whether every body has it, in every message that has it.
    always: bool,
}

/// A rewrite that was begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Progress {
    /// A checksum of the shape that it leads to.
    to: String,
    /// The uid of the last record that was rewritten.
    after: Uid,
}

impl Resource for KindShape {
    const KIND: &'static Kind =
        &Kind::new("KindShape", "kindShapes", "KindShapes", Domain::new("shapes", "platform.shapes")).fields(&[
            Field::UID,
            Field::new("fields", Type::Map(&Type::Message(&[Field::string("ty").required(), Field::bool("always")]))),
            Field::string_map("indexes"),
            Field::strings("tables"),
            Field::message("rewrite", &[Field::string("to"), Field::string("after")]),
        ]);

    fn example() -> Self {
        let field = StoredField { ty: "text".to_owned(), always: true };
        Self {
            uid: Uid::opaque("Ticket"),
            fields: BTreeMap::from([("title".to_owned(), field)]),
            indexes: BTreeMap::from([("order by title".to_owned(), "text".to_owned())]),
            tables: BTreeSet::from(["e3b0c442".to_owned()]),
            rewrite: Some(Progress { to: "e3b0c442".to_owned(), after: Uid::opaque("aa/bb") }),
        }
    }
}

impl KindShape {
    fn key(kind: &Kind) -> Key {
        Key::new(Self::KIND.name, Uid::opaque(kind.name))
    }

    /// Returns the stored shape of a kind; `None` if the store was never used with the kind, or only by a release without
    /// shapes.
    async fn read(store: &dyn Store, kind: &Kind) -> Result<Option<Self>, StoreError> {
        let record = store.get(&[Self::key(kind)], &[]).await?.records.pop().flatten();
        let parse = |body: &[u8]| serde_json::from_slice(body).map_err(|error| StoreError::Corrupt(error.into()));
        record.map(|record| parse(&record.body)).transpose()
    }

    fn put(&self, kind: &Kind) -> Result<Put, StoreError> {
        Ok(Put {
            key: Self::key(kind),
            sort: Vec::new(),
            filter: Vec::new(),
            unique: Vec::new(),
            search: Vec::new(),
            rendering: crate::write::CURRENT_RENDERING,
            body: serde_json::to_vec(self).map_err(|error| StoreError::Invalid(error.into()))?.into(),
            private: "".into(),
            queue: false,
            revision: None,
        })
    }
}

/// The reason why kinds cannot be used with a store as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// These changes of tables lose or hide values of stored resources.
    #[error("tables of kinds do not fit the stored resources: {}", list(.0))]
    Refused(Vec<Invalid>),
    /// The index keys of stored resources differ from those of the tables, so that lists would be wrong until the kinds
    /// are [rewritten](rewrite).
    #[error("stored resources must be rewritten: {}", list(.0))]
    MustRewrite(Vec<Invalid>),
    /// The store has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list(invalid: &[Invalid]) -> String {
    invalid.iter().map(Invalid::to_string).collect::<Vec<_>>().join("; ")
}

/// Compares the tables of these kinds with the shapes that the store has, and stores the new ones. Call it before a
/// platform over the store is used.
///
/// A kind without records can change in any way. A store that was used with a kind by a release without shapes gets that
/// of the present table.
///
/// # Errors
/// [`AdoptError::Refused`] and [`AdoptError::MustRewrite`], after which nothing was written; and those of the store.
pub async fn adopt(store: &dyn Store, kinds: &[Registered]) -> Result<(), AdoptError> {
    let (mut refused, mut rewrites, mut put) = (Vec::new(), Vec::new(), Vec::new());
    for Registered { kind, .. } in kinds.iter().filter(|registered| !registered.kind.fields.is_empty()) {
        let stored = KindShape::read(store, kind).await?;
        let mut shape = KindShape::of(kind);
        if let Some(stored) = &stored
            && !is_empty(store, kind).await?
        {
            if !shape.is_known_to(stored) {
                refused.extend(stored.refused(kind));
            }
            rewrites.extend(stored.outdated(kind));
            shape = shape.over(stored, kind);
        }
        if stored.as_ref() != Some(&shape) {
            put.push(shape.put(kind)?);
        }
    }
    if !refused.is_empty() {
        return Err(AdoptError::Refused(refused));
    }
    if !rewrites.is_empty() {
        return Err(AdoptError::MustRewrite(rewrites));
    }
    if !put.is_empty() {
        store.commit(Commit { put, ..Commit::default() }).await?;
    }
    Ok(())
}

/// Returns the reasons why the stored resources of a kind must be [rewritten](rewrite).
///
/// # Errors
/// [`AdoptError::Refused`], and those of the store.
pub async fn outdated(store: &dyn Store, registered: &Registered) -> Result<Vec<Invalid>, AdoptError> {
    let kind = registered.kind;
    let Some(stored) = KindShape::read(store, kind).await? else { return Ok(Vec::new()) };
    if is_empty(store, kind).await? {
        return Ok(Vec::new());
    }
    let refused = stored.refused(kind);
    if refused.is_empty() { Ok(stored.outdated(kind)) } else { Err(AdoptError::Refused(refused)) }
}

/// Returns the search indexes that stored resources of a kind may lack, because they were written before the kind had the
/// index or any shape: until the kind is [rewritten](rewrite), lists compare its resources instead. For kinds that are not
/// [adopted](adopt).
///
/// # Errors
/// Those of the store.
pub async fn unsearched(store: &dyn Store, registered: &Registered) -> Result<Vec<Invalid>, AdoptError> {
    let kind = registered.kind;
    if !kind.fields.iter().any(|field| field.searched) || is_empty(store, kind).await? {
        return Ok(Vec::new());
    }
    let stored = KindShape::read(store, kind).await?.unwrap_or_default();
    Ok(stored.outdated(kind).into_iter().filter(|lacking| lacking.item.starts_with(table::SEARCH)).collect())
}

async fn is_empty(store: &dyn Store, kind: &Kind) -> Result<bool, StoreError> {
    let query = Query { limit: 1, ..Query::new(kind.name, Scope::All) };
    Ok(store.list(&query).await?.items.is_empty())
}
