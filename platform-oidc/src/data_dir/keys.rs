//! The keys of the server itself: those that sign its tokens and those of its webhooks, those that authenticate its
//! page tokens, and those that seal secrets in its store.

use std::{
    fmt, fs,
    path::Path,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use platform_core::{clock::Clock, entropy::Entropy, timestamp::Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    DataDirError,
    files::{change, malformed, read, read_or_create},
};
use crate::{
    issuer::MAX_TTL,
    jws::Algorithm,
    key::{SigningKey, UnusableKey, VerifyingKey},
};

const FILE: &str = "keys.json";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long a signing key goes on verifying after a newer one took its place: as long as a token of it may live, and
/// a day.
pub const SIGNING_KEY_KEPT: Duration = MAX_TTL.saturating_add(DAY);
/// How long a page-token key goes on being known after a newer one took its place: the three days that a page token
/// is good for (`docs/api.md`), and a day.
pub const PAGE_TOKEN_KEY_KEPT: Duration = DAY.saturating_mul(4);

/// The server's keys. The newest of each sort is in use, the others are still known.
#[derive(Debug)]
pub struct Keys {
    signing: SigningKey,
    previous: Vec<SigningKey>,
    /// When each of the signing keys was made, newest first.
    signing_created: Vec<Timestamp>,
    webhooks: Vec<(SigningKey, Timestamp)>,
    page_tokens: Vec<SecretKey>,
    sealing: Vec<SecretKey>,
}

/// Tells one writing of the file of keys from the next, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysStamp {
    modified: SystemTime,
    /// Keys that are put in front make it longer, so that two rotations within a tick of the clock differ too.
    len: u64,
}

/// A secret key of 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey {
    id: String,
    created: Timestamp,
    secret: [u8; 32],
}

impl Keys {
    /// Makes one key of each sort, in memory only.
    ///
    /// # Errors
    /// [`DataDirError::Key`] when the cryptographic library fails.
    pub fn generate(algorithm: Algorithm, clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, DataDirError> {
        KeysFile::generate(algorithm, clock.now(), entropy)?.into_keys(Path::new(FILE))
    }

    /// Returns the keys in `keys.json` of this directory, after making them when there are none. A file of an earlier
    /// version that lacks a sort of keys gets them.
    ///
    /// `algorithm` is that of a new signing key; one that stands already keeps its own. Processes that start at once
    /// agree; the file is mode 0600 and survives a power cut. The directory is created when it is missing.
    ///
    /// # Errors
    /// [`DataDirError`]; a file that others may read is refused.
    pub fn read_or_create(
        data_dir: &Path,
        algorithm: Algorithm,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        let path = data_dir.join(FILE);
        let mut file: KeysFile = read_or_create(&path, || KeysFile::generate(algorithm, clock.now(), entropy))?;
        if file.sealing.is_empty() || file.webhooks.is_empty() {
            // Another process may have been first, which the change sees.
            file = change(&path, |old: KeysFile| old.completed(clock.now(), entropy))?;
        }
        file.into_keys(&path)
    }

    /// Returns the keys in `keys.json` of this directory; none when there is no such file.
    ///
    /// # Errors
    /// As [`Keys::read_or_create`].
    pub fn read(data_dir: &Path) -> Result<Option<Self>, DataDirError> {
        let path = data_dir.join(FILE);
        read::<KeysFile>(&path)?.map(|file| file.into_keys(&path)).transpose()
    }

    /// Returns what tells whether `keys.json` of this directory was written again; none when it cannot be told.
    pub fn stamp(data_dir: &Path) -> Option<KeysStamp> {
        let metadata = fs::metadata(data_dir.join(FILE)).ok()?;
        Some(KeysStamp { modified: metadata.modified().ok()?, len: metadata.len() })
    }

    /// Puts a new key of each sort in front and drops those that nothing can need any more, which of those that seal
    /// is none.
    ///
    /// A process that runs goes on with the keys it read until it reads again. Rotations at the same time each add
    /// their keys.
    ///
    /// # Errors
    /// [`DataDirError`]; the file must be there.
    pub fn rotate(
        data_dir: &Path,
        algorithm: Algorithm,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        let path = data_dir.join(FILE);
        let rotate = |old: KeysFile| {
            let now = clock.now();
            let old = old.completed(now, entropy)?;
            // What cannot be used is an error before anything is written, not after.
            old.clone().into_keys(&path)?;
            let mut new = KeysFile::generate(algorithm, now, entropy)?;
            new.signing.extend(old.signing);
            new.webhooks.extend(old.webhooks);
            new.page_tokens.extend(old.page_tokens);
            // None is ever dropped: what they sealed may still be stored.
            new.sealing.extend(old.sealing);
            drop_outdated(&mut new.signing, |key| key.created, SIGNING_KEY_KEPT, now);
            drop_outdated(&mut new.webhooks, |key| key.created, DAY, now);
            drop_outdated(&mut new.page_tokens, |key| key.created, PAGE_TOKEN_KEY_KEPT, now);
            Ok(new)
        };
        change(&path, rotate)?.into_keys(&path)
    }

    /// Returns the key that signs.
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// Returns the public halves of all signing keys, newest first.
    pub fn verifying(&self) -> impl Iterator<Item = &VerifyingKey> {
        std::iter::once(&self.signing).chain(&self.previous).map(SigningKey::verifying)
    }

    /// Returns the public halves of all signing keys, newest first, each with when it was made.
    pub fn signing_keys(&self) -> impl Iterator<Item = (&VerifyingKey, Timestamp)> {
        self.verifying().zip(self.signing_created.iter().copied())
    }

    /// Returns the key that signs what goes with events to webhooks, always by ES256.
    pub fn webhook(&self) -> Option<&SigningKey> {
        self.webhooks.first().map(|(key, _)| key)
    }

    /// Returns the public halves of all keys of webhooks, newest first, each with when it was made.
    pub fn webhook_keys(&self) -> impl Iterator<Item = (&VerifyingKey, Timestamp)> {
        self.webhooks.iter().map(|(key, created)| (key.verifying(), *created))
    }

    /// Returns the page-token keys, newest first and never none.
    pub fn page_tokens(&self) -> &[SecretKey] {
        &self.page_tokens
    }

    /// Returns the keys that seal secrets in the store, newest first and never none.
    pub fn sealing(&self) -> &[SecretKey] {
        &self.sealing
    }
}

impl SecretKey {
    /// Returns the name by which what was made with the key refers to it: 16 hex digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns when the key was made.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Returns the secret.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

/// Shows no secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("id", &self.id).field("created", &self.created).finish_non_exhaustive()
    }
}

/// Drops what was replaced at least `kept` ago. A key was replaced when the one before it in the list was made.
fn drop_outdated<T>(keys: &mut Vec<T>, created: impl Fn(&T) -> Timestamp, kept: Duration, now: Timestamp) {
    let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let mut replaced = None;
    keys.retain(|key| {
        let outdated = replaced.is_some_and(|at: Timestamp| at.plus_millis(kept) <= now);
        replaced = Some(created(key));
        !outdated
    });
}

/// The file. Version 1 has all lists newest first; a reader refuses what it does not know. Files that were written
/// before secrets were sealed lack the last list.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct KeysFile {
    version: u32,
    signing: Vec<SigningEntry>,
    page_tokens: Vec<SecretEntry>,
    #[serde(default)]
    sealing: Vec<SecretEntry>,
    #[serde(default)]
    webhooks: Vec<SigningEntry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SigningEntry {
    kid: String,
    algorithm: String,
    created: Timestamp,
    pkcs8: String,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SecretEntry {
    id: String,
    created: Timestamp,
    secret: String,
}

impl KeysFile {
    fn generate(algorithm: Algorithm, created: Timestamp, entropy: &dyn Entropy) -> Result<Self, DataDirError> {
        Ok(Self {
            version: 1,
            signing: vec![SigningEntry::generate(algorithm, created)?],
            webhooks: vec![SigningEntry::generate(Algorithm::Es256, created)?],
            page_tokens: vec![SecretEntry::draw(created, entropy)],
            sealing: vec![SecretEntry::draw(created, entropy)],
        })
    }

    /// Adds the sorts of keys that a file of an earlier version lacks.
    fn completed(mut self, now: Timestamp, entropy: &dyn Entropy) -> Result<Self, DataDirError> {
        if self.sealing.is_empty() {
            self.sealing.push(SecretEntry::draw(now, entropy));
        }
        if self.webhooks.is_empty() {
            self.webhooks.push(SigningEntry::generate(Algorithm::Es256, now)?);
        }
        Ok(self)
    }

    fn into_keys(self, path: &Path) -> Result<Keys, DataDirError> {
        if self.version != 1 {
            return Err(malformed(path, "another version wrote it"));
        }
        let unusable = |UnusableKey(reason)| malformed(path, reason);
        let signing_created = self.signing.iter().map(|entry| entry.created).collect();
        let mut signing = self.signing.iter().map(|entry| entry.to_key().map_err(unusable));
        let Some(current) = signing.next() else { return Err(malformed(path, "it has no signing key")) };
        let webhooks = self.webhooks.iter().map(|entry| Ok((entry.to_key().map_err(unusable)?, entry.created)));
        let webhooks = webhooks.collect::<Result<Vec<_>, DataDirError>>()?;
        let secrets = |entries: Vec<SecretEntry>, none, short| {
            let keys: Option<Vec<_>> = entries.into_iter().map(SecretEntry::into_key).collect();
            let keys = keys.ok_or_else(|| malformed(path, short))?;
            if keys.is_empty() { Err(malformed(path, none)) } else { Ok(keys) }
        };
        let short = "a page-token key in it does not have 32 bytes";
        let page_tokens = secrets(self.page_tokens, "it has no page-token key", short)?;
        let short = "a sealing key in it does not have 32 bytes";
        let sealing = secrets(self.sealing, "it has no sealing key", short)?;
        Ok(Keys {
            signing: current?,
            previous: signing.collect::<Result<_, _>>()?,
            signing_created,
            webhooks,
            page_tokens,
            sealing,
        })
    }
}

impl SigningEntry {
    fn generate(algorithm: Algorithm, created: Timestamp) -> Result<Self, DataDirError> {
        if !Algorithm::OWN.contains(&algorithm) {
            return Err(UnusableKey("the server signs with RS256 or ES256").into());
        }
        let key = SigningKey::generate(algorithm)?;
        Ok(Self {
            kid: key.kid().to_owned(),
            algorithm: algorithm.name().to_owned(),
            created,
            pkcs8: STANDARD.encode(key.to_pkcs8()?),
        })
    }

    fn to_key(&self) -> Result<SigningKey, UnusableKey> {
        let algorithm = Algorithm::from_name(&self.algorithm).filter(|algorithm| Algorithm::OWN.contains(algorithm));
        let algorithm = algorithm.ok_or(UnusableKey("unknown algorithm of a signing key"))?;
        let der = STANDARD.decode(&self.pkcs8).map_err(|_| UnusableKey("a signing key is not base64"))?;
        let key = SigningKey::from_pkcs8(algorithm, &der)?;
        if key.kid() == self.kid { Ok(key) } else { Err(UnusableKey("a signing key and its kid do not agree")) }
    }
}

impl SecretEntry {
    fn draw(created: Timestamp, entropy: &dyn Entropy) -> Self {
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        entropy.fill(&mut id);
        entropy.fill(&mut secret);
        Self { id: hex::encode(id), created, secret: STANDARD.encode(secret) }
    }

    fn into_key(self) -> Option<SecretKey> {
        let secret = STANDARD.decode(&self.secret).ok()?.try_into().ok()?;
        Some(SecretKey { id: self.id, created: self.created, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_dropped_so_long_after_the_next_one_was_made() {
        let at = |day: i64| Timestamp::from_millis(day * 24 * 3600 * 1000);
        let kept = |now| {
            let mut days = vec![10, 5, 4, 1];
            drop_outdated(&mut days, |day| at(*day), PAGE_TOKEN_KEY_KEPT, at(now));
            days
        };
        assert_eq!(kept(7), [10, 5, 4, 1]);
        assert_eq!(kept(8), [10, 5, 4], "1 was replaced on day 4");
        assert_eq!(kept(9), [10, 5]);
        assert_eq!(kept(14), [10]);
        assert_eq!(kept(999), [10]);
        assert_eq!(kept(-5), [10, 5, 4, 1], "a clock that went back drops nothing");
    }
}
