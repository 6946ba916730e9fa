//! The keys of an installation, which all its servers share.

use std::{fmt, sync::Arc, time::Duration};

use platform_engine::{clock::Clock, entropy::Entropy, timestamp::Timestamp};

use super::{
    DataDirError,
    documents::{self, Documents},
    keys::{Keys, KeysFile},
};
use crate::algorithm::Algorithm;

const DOCUMENT: &str = "keys";

/// The interval at which a server looks for new keys.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which several servers use a new key: by then each has read it, even if some of its attempts failed and
/// its clock differs by a few seconds. Our choice: 15 seconds.
pub const ACTIVATION_DELAY: Duration = Duration::from_secs(15);

/// The keys of an installation, in the document `keys`: loads them, follows their changes and rotates them.
///
/// With several servers, a rotation has two steps. A new key is published at once: every server accepts it. It is used
/// after a delay ([`use_new_keys_after`](Self::use_new_keys_after)), when every server has read it, so that no server
/// receives a token, page token or sealed secret that it cannot verify or open. The second step needs no action: it
/// follows from the creation times of the keys.
pub struct KeyRing {
    documents: Arc<dyn Documents>,
    algorithm: Algorithm,
    delay: Duration,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl KeyRing {
    /// Returns the keys in this place. `algorithm` applies to new signing keys; existing ones keep theirs.
    pub fn new(
        documents: Arc<dyn Documents>,
        algorithm: Algorithm,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { documents, algorithm, delay: Duration::ZERO, clock, entropy }
    }

    /// Sets the time after which a new key is used. By default it is used at once, for installations of one server; for
    /// others, use [`ACTIVATION_DELAY`].
    #[must_use]
    pub fn use_new_keys_after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Reads the keys; returns `None` when there are none yet.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub async fn load(&self) -> Result<Option<Keys>, DataDirError> {
        let found = documents::load(&*self.documents, DOCUMENT).await?;
        found.map(|(file, revision)| self.keys(file, revision)).transpose()
    }

    /// Reads the keys, or generates them when there are none. Adds the kinds of keys that an earlier release did not
    /// have. Servers that start concurrently agree on the result.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub async fn load_or_create(&self) -> Result<Keys, DataDirError> {
        let (documents, entropy) = (&*self.documents, &*self.entropy);
        let generate = || KeysFile::generate(self.algorithm, self.clock.now(), entropy);
        let (mut file, mut revision) = documents::load_or_create(documents, DOCUMENT, generate).await?;
        if KeysFile::lacks_keys(&file) {
            let add = |old: KeysFile| old.with_missing_keys(self.clock.now(), entropy);
            (file, revision) = documents::update(documents, DOCUMENT, add).await?;
        }
        self.keys(file, revision)
    }

    /// Adds a new key of each kind and drops the keys that are no longer needed, as [`Keys::rotate`] does. Concurrent
    /// rotations each add their keys.
    ///
    /// # Errors
    /// [`DataDirError`]; the keys must exist.
    pub async fn rotate(&self) -> Result<Keys, DataDirError> {
        let path = self.documents.place(DOCUMENT);
        let rotate = |old: KeysFile| old.rotated(&path, self.algorithm, self.clock.now(), &*self.entropy);
        let (file, revision) = documents::update(&*self.documents, DOCUMENT, rotate).await?;
        self.keys(file, revision)
    }

    /// Removes a key that was replaced, by its `kid` or id: what was signed with it is invalid from then on. Servers that
    /// follow the keys reject it within [`POLL_INTERVAL`].
    ///
    /// # Errors
    /// [`DataDirError::NotRevoked`] if the key is in use, seals secrets or does not exist; the keys must exist.
    pub async fn revoke(&self, id: &str) -> Result<Keys, DataDirError> {
        let revoke = |old: KeysFile| old.revoked(id, self.cutoff());
        let (file, revision) = documents::update(&*self.documents, DOCUMENT, revoke).await?;
        self.keys(file, revision)
    }

    /// Replaces all keys by new ones, except that secrets sealed with the previous keys can still be read. All tokens, page
    /// tokens and webhook tokens that were signed before become invalid: for a restored backup, whose installation must
    /// not accept what was issued after the backup.
    ///
    /// # Errors
    /// [`DataDirError`]; the keys must exist.
    pub async fn renew(&self) -> Result<Keys, DataDirError> {
        let path = self.documents.place(DOCUMENT);
        let renew = |old: KeysFile| old.renewed(&path, self.algorithm, self.clock.now(), &*self.entropy);
        let (file, revision) = documents::update(&*self.documents, DOCUMENT, renew).await?;
        self.keys(file, revision)
    }

    /// Returns the keys if they have changed since `current` was read, or if other keys are in use now.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub async fn changed(&self, current: &Keys) -> Result<Option<Keys>, DataDirError> {
        let Some(document) = self.documents.read(DOCUMENT).await? else { return Ok(None) };
        let is_due = current.unused.is_some_and(|created| Some(created) <= self.cutoff());
        if document.revision == current.revision && !is_due {
            return Ok(None);
        }
        self.load().await
    }

    fn keys(&self, file: KeysFile, revision: u64) -> Result<Keys, DataDirError> {
        let mut keys = file.into_keys(&self.documents.place(DOCUMENT), self.cutoff())?;
        keys.revision = revision;
        Ok(keys)
    }

    /// Returns the time at or before which keys that are in use were created; `None` if all may be used.
    fn cutoff(&self) -> Option<Timestamp> {
        let millis = i64::try_from(self.delay.as_millis()).unwrap_or(i64::MAX);
        (millis > 0).then(|| self.clock.now().plus_millis(millis.saturating_neg()))
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("documents", &self.documents).finish_non_exhaustive()
    }
}
