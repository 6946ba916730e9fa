//! Blobs: immutable bytes that are too long for a resource, and that resources name by their digest.
//!
//! A blob belongs to the parent of the resources that name it. So a caller who may import below one parent cannot read
//! the blobs of another by naming their digests. Fields that name blobs are marked with
//! [`Field::blob`](crate::kind::Field::blob). A resource that names a blob is written only while the blob is there.
//!
//! Blobs are stored before the resources that name them, so a crash between the two leaves a blob that no resource
//! names. [`Platform::collect_blobs`](crate::platform::Platform::collect_blobs) deletes such blobs after a grace
//! period.

use std::{fmt, fmt::Debug};

use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    fields::evolve,
    kind::{Field, Kind, Type},
    store::{KindName, Query, Scope, Store, StoreError},
    timestamp::Timestamp,
    uid::{self, Uid},
};

mod memory;

pub use memory::MemoryBlobs;

/// The maximum length of a blob in bytes: 12 MB. Our choice, so that a blob in base64 is a line of an import.
pub const MAX_LEN: usize = 12_000_000;

/// Storage of blobs.
///
/// All methods may block, so asynchronous code calls them through [`Offload`](crate::offload::Offload).
pub trait BlobStore: Debug + Send + Sync + 'static {
    /// Stores a blob, which is durable when this returns, and sets its time to `now`. Returns whether it was written:
    /// an intact blob that exists is not written again, and a damaged one is replaced. The caller ensures
    /// that the content matches the id.
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is no space, [`StoreError::Unavailable`] when it cannot be written. Then the
    /// blob may be stored nevertheless.
    fn put(&self, id: &BlobId, content: &[u8], now: Timestamp) -> Result<bool, StoreError>;

    /// Returns a blob; `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the content does not match the id, [`StoreError::Unavailable`] when it cannot be
    /// read.
    fn get(&self, id: &BlobId) -> Result<Option<Bytes>, StoreError>;

    /// Sets the time of a blob to `now` unless it is later, so that it is not deleted. Returns whether it exists, in
    /// which case it is durable. The content is not checked.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the blob cannot be accessed.
    fn renew(&self, id: &BlobId, now: Timestamp) -> Result<bool, StoreError>;

    /// Deletes a blob if its time is before `before`, in one step with regard to [`BlobStore::put`] and
    /// [`BlobStore::renew`]. Returns whether it was deleted.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it cannot be deleted.
    fn delete(&self, id: &BlobId, before: Timestamp) -> Result<bool, StoreError>;

    /// Returns the ids of all blobs, in any order. Those that are put or deleted concurrently may be missing.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when they cannot be listed.
    fn list(&self) -> Result<Vec<BlobId>, StoreError>;
}

/// The identifier of a blob: the parent of the resources that name it, and the digest of its content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId {
    /// The first half of the SHA-256 of the parent's uid.
    parent: [u8; 16],
    digest: [u8; 32],
}

impl BlobId {
    /// Returns the id of a blob with this content.
    pub fn of(parent: &str, content: &[u8]) -> Self {
        Self { parent: hash_of(parent), digest: Sha256::digest(content).into() }
    }

    /// Returns the id of the blob with this digest, `sha256:` and 64 hexadecimal digits in lower case; `None` if the
    /// digest is malformed.
    pub fn named(parent: &str, digest: &str) -> Option<Self> {
        Some(Self { parent: hash_of(parent), digest: unhex(digest.strip_prefix("sha256:")?)? })
    }

    /// Parses the parts of [`BlobId::parts`].
    pub fn parse(parent: &str, digest: &str) -> Option<Self> {
        Some(Self { parent: unhex(parent)?, digest: unhex(digest)? })
    }

    /// Returns the parent's hash, 32 hexadecimal digits in lower case, and the digest, 64 of them: names for files.
    pub fn parts(&self) -> (String, String) {
        (hex::encode(self.parent), hex::encode(self.digest))
    }

    /// Returns whether this is the digest of the content.
    pub fn matches(&self, content: &[u8]) -> bool {
        <[u8; 32]>::from(Sha256::digest(content)) == self.digest
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parent, digest) = self.parts();
        write!(f, "{parent}/{digest}")
    }
}

impl Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobId({self})")
    }
}

fn hash_of(parent: &str) -> [u8; 16] {
    let hash = <[u8; 32]>::from(Sha256::digest(parent));
    let mut half = [0; 16];
    half.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    half
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

/// The error for a blob whose content differs from the stored one.
pub fn corrupt(id: &BlobId) -> StoreError {
    StoreError::Corrupt(format!("the blob {id} does not match its digest").into())
}

/// Calls `visit` with the path and the digest of each blob that an object names.
pub(crate) fn named_in(fields: &[Field], object: &Map<String, Value>, visit: &mut dyn FnMut(String, &str)) {
    fields.iter().for_each(|field| {
        if let Some(value) = object.get(field.name) {
            in_value(field, &field.ty, value, field.name.to_owned(), visit);
        }
    });
}

fn in_value(field: &Field, ty: &Type, value: &Value, path: String, visit: &mut dyn FnMut(String, &str)) {
    match (ty, value) {
        (Type::String, Value::String(digest)) if field.blob && !digest.is_empty() => visit(path, digest),
        (Type::Message(fields), Value::Object(object)) => {
            named_in(fields, object, &mut |inner, digest| visit(format!("{path}.{inner}"), digest));
        }
        (Type::List(element), Value::Array(values)) => {
            for (at, value) in values.iter().enumerate() {
                in_value(field, element, value, format!("{path}[{at}]"), visit);
            }
        }
        (Type::Map(element), Value::Object(values)) => {
            for (key, value) in values {
                in_value(field, element, value, format!("{path}.{key}"), visit);
            }
        }
        _ => {}
    }
}

/// Returns whether resources of a kind can name blobs.
fn names_blobs(fields: &[Field]) -> bool {
    fields.iter().any(|field| {
        let mut ty = &field.ty;
        while let Type::List(element) | Type::Map(element) = ty {
            ty = element;
        }
        field.blob || matches!(ty, Type::Message(inner) if names_blobs(inner))
    })
}

/// A blob that a stored resource names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The kind of the resource.
    pub kind: KindName,
    /// The uid of the resource.
    pub uid: Uid,
    /// The field, such as `blobs[2].digest`.
    pub field: String,
    /// The blob.
    pub id: BlobId,
}

/// The number of resources that are read at once.
const PAGE: usize = 100;

/// Calls `visit` with each blob that the stored resources of these kinds name, kind by kind in the order of uids.
///
/// # Errors
/// Those of the store, and [`StoreError::Corrupt`] for a body that is not a JSON object.
pub async fn named(
    store: &dyn Store,
    kinds: impl IntoIterator<Item = &'static Kind>,
    mut visit: impl FnMut(Named),
) -> Result<(), StoreError> {
    for kind in kinds {
        if !names_blobs(kind.fields) {
            continue;
        }
        let mut after = None;
        loop {
            let query = Query { after: after.take(), limit: PAGE, ..Query::new(kind.name, Scope::All) };
            let page = store.list(&query).await?;
            for item in &page.items {
                let mut body: Map<_, _> =
                    serde_json::from_slice(&item.body).map_err(|error| StoreError::Corrupt(error.into()))?;
                evolve(kind, &mut body);
                let uid = item.uid();
                let parent =
                    if kind.parent.shares_uid() { uid.as_str() } else { uid::parent(&uid).unwrap_or_default() };
                named_in(kind.fields, &body, &mut |field, digest| {
                    if let Some(id) = BlobId::named(parent, digest) {
                        visit(Named { kind: kind.name, uid: uid.clone(), field, id });
                    }
                });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(())
}

/// The damage of a blob that a resource names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// It does not exist.
    Missing,
    /// Its content does not match its digest.
    Corrupt,
}

/// Reads all blobs that the stored resources of these kinds name, and returns those that are damaged, in the order of
/// [`named`].
///
/// # Errors
/// Those of [`named`], and those of the blob store other than [`StoreError::Corrupt`].
pub async fn damaged(
    store: &dyn Store,
    kinds: impl IntoIterator<Item = &'static Kind>,
    blobs: &dyn BlobStore,
) -> Result<Vec<(Named, Damage)>, StoreError> {
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    named(store, kinds, |named| match blobs.get(&named.id) {
        Ok(Some(_)) => {}
        Ok(None) => found.push((named, Damage::Missing)),
        Err(StoreError::Corrupt(_)) => found.push((named, Damage::Corrupt)),
        Err(error) => failed = Err(error),
    })
    .await?;
    failed.map(|()| found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DIGEST: Field = Field::string("digest").blob();

    #[test]
    fn blobs_are_found_at_every_depth_with_their_paths() {
        const ENTRY: &[Field] = &[DIGEST, Field::string("other")];
        let fields = &[
            Field::string("name"),
            Field::string("top").blob(),
            Field::strings("list").blob(),
            Field::new("entries", Type::List(&Type::Message(ENTRY))),
            Field::message("one", ENTRY),
        ];
        let object = json!({
            "name": "n", "top": "a", "list": ["b", ""], "one": { "digest": "e", "other": "x" },
            "entries": [{ "digest": "c" }, { "other": "x" }, { "digest": "d" }],
        });
        let mut found = Vec::new();
        named_in(fields, object.as_object().unwrap(), &mut |path, digest| found.push(format!("{path}={digest}")));
        assert_eq!(found, ["top=a", "list[0]=b", "entries[0].digest=c", "entries[2].digest=d", "one.digest=e"]);
        assert!(names_blobs(fields) && !names_blobs(&[Field::string("name")]));
    }

    #[test]
    fn an_id_depends_on_the_parent_and_the_content() {
        let id = BlobId::of("a/b", b"x");
        let (parent, digest) = id.parts();
        assert_eq!(BlobId::parse(&parent, &digest), Some(id));
        assert_eq!(BlobId::named("a/b", &format!("sha256:{digest}")), Some(id));
        assert_ne!(BlobId::of("a/c", b"x"), id);
        assert!(id.matches(b"x") && !id.matches(b"y"));
        for malformed in ["", "sha256:", &digest, &format!("sha256:{}", digest.to_uppercase()), "sha256:../../etc"] {
            assert_eq!(BlobId::named("a/b", malformed), None, "{malformed}");
        }
    }
}
