//! The interface to the place of an installation's keys and uids, and the directory as such a place.

use std::{
    fmt::{self, Debug},
    path::PathBuf,
    sync::Arc,
};

use async_trait::async_trait;
use platform_engine::{entropy::Entropy, seal::SealKeys};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{DataDirError, files};

/// The number of times that an update is tried when other processes write the document at the same time. Our choice.
const ATTEMPTS: usize = 32;

/// Small named documents that all processes of an installation share: its keys and the uids that it assigned.
///
/// [`Directory`] stores them as files, for a store that one process uses at a time. For a store that several servers
/// share, an embedder stores them in its database, sealed by [`SealedDocuments`].
#[async_trait]
pub trait Documents: Debug + Send + Sync + 'static {
    /// Returns a document; `None` if it does not exist.
    ///
    /// # Errors
    /// [`DataDirError`] when the place cannot be read.
    async fn read(&self, name: &str) -> Result<Option<Document>, DataDirError>;

    /// Writes a document if its revision is still `expected`, 0 for one that does not exist. Returns `false`, and writes
    /// nothing, if it is not: the first of concurrent writes wins. A document that was written survives a crash.
    ///
    /// # Errors
    /// [`DataDirError`] when the place cannot be written.
    async fn write(&self, name: &str, expected: u64, contents: &[u8]) -> Result<bool, DataDirError>;

    /// Returns where a document is, for messages to the operator.
    fn place(&self, name: &str) -> PathBuf;
}

/// A document as it was read. Its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Document {
    /// The contents.
    pub contents: Zeroizing<Vec<u8>>,
    /// A number other than 0 that differs from that of earlier contents.
    pub revision: u64,
}

/// Omits the contents.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Documents as files of a directory: `<name>.json`, with mode 0600, each written atomically.
///
/// Calls block for the time of a few small file operations.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    /// Returns the documents in this directory, which is created when the first is written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

#[async_trait]
impl Documents for Directory {
    async fn read(&self, name: &str) -> Result<Option<Document>, DataDirError> {
        let contents = files::read_bytes(&self.place(name))?;
        Ok(contents.map(|contents| Document { revision: revision(&contents), contents }))
    }

    async fn write(&self, name: &str, expected: u64, contents: &[u8]) -> Result<bool, DataDirError> {
        let path = self.place(name);
        match expected {
            0 => files::create(&path, contents),
            _ => files::replace_if(&path, |before| revision(before) == expected, contents),
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }
}

/// Returns a number that is practically unique to these contents.
fn revision(contents: &[u8]) -> u64 {
    number(contents).max(1)
}

/// Returns the first 8 bytes of the SHA-256.
fn number(bytes: &[u8]) -> u64 {
    Sha256::digest(bytes).first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Documents that are sealed with key-encryption keys before they are written to another place, such as a database or a
/// directory whose administrators and backups must not have the keys.
///
/// Sealed by [`SealKeys`]: XChaCha20-Poly1305, with the name of the document authenticated. The first key seals, all
/// keys open, so that a key-encryption key can be replaced: add the new one in front on all servers, then
/// [`reseal`](Self::reseal).
#[derive(Debug)]
pub struct SealedDocuments {
    inner: Arc<dyn Documents>,
    keys: SealKeys,
    entropy: Arc<dyn Entropy>,
    reads_plain: bool,
}

impl SealedDocuments {
    /// Returns documents that are sealed with the first of these keys.
    pub fn new(
        inner: Arc<dyn Documents>,
        keys: impl IntoIterator<Item = Zeroizing<[u8; 32]>>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        // A key is numbered by its hash, which reveals nothing about a random key.
        let keys = SealKeys::new(keys.into_iter().map(|key| (number(&*key), key)));
        Self { inner, keys, entropy, reads_plain: false }
    }

    /// Also reads documents that were written without a key-encryption key. [`Self::reseal`] seals them.
    ///
    /// Only for a place whose writers are trusted: a document that is not sealed is not authenticated.
    #[must_use]
    pub fn reading_plain(self) -> Self {
        Self { reads_plain: true, ..self }
    }

    /// Seals these documents with the first key, as far as they exist and are not.
    ///
    /// # Errors
    /// As [`Documents::read`] and [`Documents::write`].
    pub async fn reseal(&self, names: &[&str]) -> Result<(), DataDirError> {
        for name in names {
            for _ in 0..ATTEMPTS {
                let Some(sealed) = self.inner.read(name).await? else { break };
                let document = self.open(name, sealed.clone())?;
                if self.keys.is_sealed(&sealed_place(name), &sealed.contents, &document.contents)
                    || self.write(name, document.revision, &document.contents).await?
                {
                    break;
                }
            }
        }
        Ok(())
    }

    fn open(&self, name: &str, sealed: Document) -> Result<Document, DataDirError> {
        // All documents are JSON objects, and begin with another byte than sealed ones.
        if self.reads_plain && sealed.contents.first() == Some(&b'{') {
            return Ok(sealed);
        }
        let opened = self.keys.open(&sealed_place(name), &sealed.contents);
        let contents = opened.map_err(|_| DataDirError::Sealed { path: self.inner.place(name) })?;
        Ok(Document { contents: Zeroizing::new(contents), revision: sealed.revision })
    }
}

/// Returns what is authenticated with a document.
fn sealed_place(name: &str) -> String {
    format!("document/{name}")
}

#[async_trait]
impl Documents for SealedDocuments {
    async fn read(&self, name: &str) -> Result<Option<Document>, DataDirError> {
        self.inner.read(name).await?.map(|sealed| self.open(name, sealed)).transpose()
    }

    async fn write(&self, name: &str, expected: u64, contents: &[u8]) -> Result<bool, DataDirError> {
        let sealed = self.keys.seal(&*self.entropy, &sealed_place(name), contents);
        let sealed = sealed.map_err(|_| DataDirError::Sealed { path: self.inner.place(name) })?;
        self.inner.write(name, expected, &sealed).await
    }

    fn place(&self, name: &str) -> PathBuf {
        self.inner.place(name)
    }
}

/// Reads a document of this type and its revision.
pub(crate) async fn load<T: DeserializeOwned>(
    documents: &dyn Documents,
    name: &str,
) -> Result<Option<(T, u64)>, DataDirError> {
    let Some(Document { contents, revision }) = documents.read(name).await? else { return Ok(None) };
    Ok(Some((files::decode(&contents, &documents.place(name))?, revision)))
}

/// Reads a document of this type, or creates it with the result of `make`. Processes that do so concurrently agree on
/// the result.
pub(crate) async fn load_or_create<T: Serialize + DeserializeOwned>(
    documents: &dyn Documents,
    name: &str,
    make: impl FnOnce() -> Result<T, DataDirError>,
) -> Result<(T, u64), DataDirError> {
    if let Some(found) = load(documents, name).await? {
        return Ok(found);
    }
    let contents = files::encode(&make()?, &documents.place(name))?;
    documents.write(name, 0, &contents).await?;
    // Read back, because another process may have been first.
    load(documents, name).await?.ok_or_else(|| missing(documents, name))
}

/// Replaces a document by the result of `change`, which is called again if another process has written it.
pub(crate) async fn update<T: Serialize + DeserializeOwned>(
    documents: &dyn Documents,
    name: &str,
    mut change: impl FnMut(T) -> Result<T, DataDirError>,
) -> Result<(T, u64), DataDirError> {
    for _ in 0..ATTEMPTS {
        let (before, revision) = load(documents, name).await?.ok_or_else(|| missing(documents, name))?;
        let contents = files::encode(&change(before)?, &documents.place(name))?;
        if documents.write(name, revision, &contents).await? {
            return load(documents, name).await?.ok_or_else(|| missing(documents, name));
        }
    }
    Err(files::malformed(&documents.place(name), "other processes keep writing it"))
}

fn missing(documents: &dyn Documents, name: &str) -> DataDirError {
    files::malformed(&documents.place(name), "it does not exist")
}
