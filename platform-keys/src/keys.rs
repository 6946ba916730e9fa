//! The server's own keys: for signing access tokens, for signing webhook tokens, for authenticating page tokens, and
//! for sealing secrets in the store.

use std::{fmt, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use platform_engine::{
    aip::page_token::PageKeys, clock::Clock, entropy::Entropy, seal::SealKeys, timestamp::Timestamp,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    DataDirError,
    files::{malformed, read, read_or_create, update},
};
use crate::{
    algorithm::Algorithm,
    key::{SigningKey, UnusableKey, VerifyingKey},
};

const FILE: &str = "keys.json";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The maximum lifetime of a token that a signing key signs; our choice: 30 days.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// The time for which a signing key still verifies after its replacement: the maximum lifetime of a token plus a day.
pub const SIGNING_KEY_RETENTION: Duration = MAX_TTL.saturating_add(DAY);
/// The time for which a page-token key is still accepted after its replacement: the three days for which a page token
/// is valid (`docs/api.md`), plus a day.
pub const PAGE_TOKEN_KEY_RETENTION: Duration = DAY.saturating_mul(4);

/// The server's keys. One of each kind is in use, usually the newest; all are accepted.
///
/// Each list begins with the key in use. The others follow, newest first: with a [`KeyRing`](super::KeyRing) for several
/// servers, a key that was created a moment ago is published and not in use yet.
#[derive(Debug)]
pub struct Keys {
    signing: SigningKey,
    others: Vec<SigningKey>,
    /// The creation times of the signing keys, in their order.
    signing_created: Vec<Timestamp>,
    webhooks: Vec<(SigningKey, Timestamp)>,
    page_tokens: Vec<SecretKey>,
    sealing: Vec<SecretKey>,
    /// The creation time of the oldest key that is not in use yet.
    pub(super) unused: Option<Timestamp>,
    /// The revision of the document that the keys were read from; 0 for others.
    pub(super) revision: u64,
}

/// A secret key of 256 bits. Its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey {
    id: String,
    created: Timestamp,
    secret: Zeroizing<[u8; 32]>,
}

impl Keys {
    /// Generates one key of each kind, in memory only.
    ///
    /// # Errors
    /// [`DataDirError::Key`] when the cryptographic library fails.
    pub fn generate(algorithm: Algorithm, clock: &dyn Clock, entropy: &dyn Entropy) -> Result<Self, DataDirError> {
        KeysFile::generate(algorithm, clock.now(), entropy)?.into_keys(Path::new(FILE), None)
    }

    /// Reads the keys in `keys.json` of this directory, or generates them when the file does not exist. Adds the kinds
    /// of keys that a file of an earlier version lacks.
    ///
    /// `algorithm` applies to a new signing key; an existing one keeps its own. Processes that start concurrently agree
    /// on the result. The file has mode 0600 and survives a power failure. A missing directory is created.
    ///
    /// # Errors
    /// [`DataDirError`]; a file that is accessible to other users is rejected.
    pub fn read_or_create(
        data_dir: &Path,
        algorithm: Algorithm,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        let path = data_dir.join(FILE);
        let mut file: KeysFile = read_or_create(&path, || KeysFile::generate(algorithm, clock.now(), entropy))?;
        if file.lacks_keys() {
            // Another process may already have added the keys; the update reads the file again under the lock.
            file = update(&path, |old: KeysFile| old.with_missing_keys(clock.now(), entropy))?;
        }
        file.into_keys(&path, None)
    }

    /// Reads the keys in `keys.json` of this directory; returns `None` when the file does not exist.
    ///
    /// # Errors
    /// As [`Keys::read_or_create`].
    pub fn read(data_dir: &Path) -> Result<Option<Self>, DataDirError> {
        let path = data_dir.join(FILE);
        read::<KeysFile>(&path)?.map(|file| file.into_keys(&path, None)).transpose()
    }

    /// Adds a new key of each kind and drops the keys that are no longer needed. Sealing keys are never dropped.
    ///
    /// A running process uses the keys that it has read until it reads the file again. Concurrent rotations each add
    /// their keys.
    ///
    /// # Errors
    /// [`DataDirError`]; the file must exist.
    pub fn rotate(
        data_dir: &Path,
        algorithm: Algorithm,
        clock: &dyn Clock,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        let path = data_dir.join(FILE);
        update(&path, |old: KeysFile| old.rotated(&path, algorithm, clock.now(), entropy))?.into_keys(&path, None)
    }

    /// Returns the key that signs access tokens.
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// Returns the public halves of all access-token signing keys, the one in use first.
    pub fn verifying(&self) -> impl Iterator<Item = &VerifyingKey> {
        std::iter::once(&self.signing).chain(&self.others).map(SigningKey::verifying)
    }

    /// Returns the public halves of all access-token signing keys, the one in use first, each with its creation time.
    pub fn signing_keys(&self) -> impl Iterator<Item = (&VerifyingKey, Timestamp)> {
        self.verifying().zip(self.signing_created.iter().copied())
    }

    /// Returns the key that signs webhook tokens, always with ES256.
    pub fn webhook(&self) -> Option<&SigningKey> {
        self.webhooks.first().map(|(key, _)| key)
    }

    /// Returns the public halves of all webhook keys, the one in use first, each with its creation time.
    pub fn webhook_keys(&self) -> impl Iterator<Item = (&VerifyingKey, Timestamp)> {
        self.webhooks.iter().map(|(key, created)| (key.verifying(), *created))
    }

    /// Returns the page-token keys in the form that [`Builder::page_keys`](platform_engine::platform::Builder::page_keys)
    /// takes.
    pub fn page_keys(&self) -> PageKeys {
        PageKeys::new(self.page_tokens.iter().map(SecretKey::numbered))
    }

    /// Returns the keys that seal secrets in the form that
    /// [`Builder::seal_keys`](platform_engine::platform::Builder::seal_keys) takes.
    pub fn seal_keys(&self) -> SealKeys {
        SealKeys::new(self.sealing.iter().map(SecretKey::numbered))
    }

    /// Returns the page-token keys, the one in use first; at least one.
    pub fn page_tokens(&self) -> &[SecretKey] {
        &self.page_tokens
    }

    /// Returns the keys that seal secrets in the store, the one in use first; at least one.
    pub fn sealing(&self) -> &[SecretKey] {
        &self.sealing
    }
}

impl SecretKey {
    /// Returns the key id that values made with this key refer to: 16 hex digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn numbered(&self) -> (u64, Zeroizing<[u8; 32]>) {
        (u64::from_str_radix(&self.id, 16).unwrap_or_default(), self.secret.clone())
    }

    /// Returns the creation time.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Returns the secret.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

/// Omits the secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("id", &self.id).field("created", &self.created).finish_non_exhaustive()
    }
}

/// Drops the keys that were replaced at least `retention` ago. A key was replaced when its predecessor in the list,
/// which is newer, was created.
fn drop_expired<T>(keys: &mut Vec<T>, created: impl Fn(&T) -> Timestamp, retention: Duration, now: Timestamp) {
    let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    let mut replaced = None;
    keys.retain(|key| {
        let expired = replaced.is_some_and(|at: Timestamp| at.plus_millis(retention) <= now);
        replaced = Some(created(key));
        !expired
    });
}

/// The format of `keys.json`. In version 1 all lists are newest first, and unknown fields are rejected. Files of
/// earlier releases lack `sealing` or `webhooks`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct KeysFile {
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
    pkcs8: Zeroizing<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SecretEntry {
    id: String,
    created: Timestamp,
    secret: Zeroizing<String>,
}

impl KeysFile {
    pub(super) fn generate(
        algorithm: Algorithm,
        created: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        Ok(Self {
            version: 1,
            signing: vec![SigningEntry::generate(algorithm, created)?],
            webhooks: vec![SigningEntry::generate(Algorithm::Es256, created)?],
            page_tokens: vec![SecretEntry::generate(created, entropy)],
            sealing: vec![SecretEntry::generate(created, entropy)],
        })
    }

    /// Adds a new key of each kind, and drops the keys that are no longer needed.
    pub(super) fn rotated(
        self,
        path: &Path,
        algorithm: Algorithm,
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        let old = self.with_missing_keys(now, entropy)?;
        // Reports unusable keys before anything is written, not after.
        old.clone().into_keys(path, None)?;
        let mut new = Self::generate(algorithm, now, entropy)?;
        new.signing.extend(old.signing);
        new.webhooks.extend(old.webhooks);
        new.page_tokens.extend(old.page_tokens);
        // Never dropped: values that they sealed may still be stored.
        new.sealing.extend(old.sealing);
        drop_expired(&mut new.signing, |key| key.created, SIGNING_KEY_RETENTION, now);
        drop_expired(&mut new.webhooks, |key| key.created, DAY, now);
        drop_expired(&mut new.page_tokens, |key| key.created, PAGE_TOKEN_KEY_RETENTION, now);
        Ok(new)
    }

    /// Removes a key that is not in use. Its signatures are invalid from then on.
    pub(super) fn revoked(mut self, id: &str, cutoff: Option<Timestamp>) -> Result<Self, DataDirError> {
        let refused = |reason| DataDirError::NotRevoked { id: id.to_owned(), reason };
        if self.sealing.iter().any(|key| key.id == id) {
            return Err(refused("the secrets in the store that it seals could not be read any more"));
        }
        let mut found = None;
        for keys in [&mut self.signing, &mut self.webhooks] {
            found = found.or(remove(keys, |key| key.kid == id, |key| key.created, cutoff));
        }
        found = found.or(remove(&mut self.page_tokens, |key| key.id == id, |key| key.created, cutoff));
        match found {
            Some(true) => Ok(self),
            Some(false) => Err(refused(
                "it is in use: rotate the keys first. Servers that share a database use new keys 15 seconds later",
            )),
            None => Err(refused("no key has this id")),
        }
    }

    /// Replaces all keys by new ones, but keeps those that seal secrets.
    pub(super) fn renewed(
        self,
        path: &Path,
        algorithm: Algorithm,
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> Result<Self, DataDirError> {
        self.clone().with_missing_keys(now, entropy)?.into_keys(path, None)?;
        let mut new = Self::generate(algorithm, now, entropy)?;
        new.sealing.extend(self.sealing);
        Ok(new)
    }

    /// Returns whether it is of a version that had fewer kinds of keys.
    pub(super) fn lacks_keys(&self) -> bool {
        self.sealing.is_empty() || self.webhooks.is_empty()
    }

    /// Adds the kinds of keys that a file of an earlier version lacks.
    pub(super) fn with_missing_keys(mut self, now: Timestamp, entropy: &dyn Entropy) -> Result<Self, DataDirError> {
        if self.sealing.is_empty() {
            self.sealing.push(SecretEntry::generate(now, entropy));
        }
        if self.webhooks.is_empty() {
            self.webhooks.push(SigningEntry::generate(Algorithm::Es256, now)?);
        }
        Ok(self)
    }

    /// Returns the keys. Of each kind, the newest that was created at or before `cutoff` is in use, or else the oldest;
    /// without a cutoff, the newest.
    pub(super) fn into_keys(mut self, path: &Path, cutoff: Option<Timestamp>) -> Result<Keys, DataDirError> {
        if self.version != 1 {
            return Err(malformed(path, "unsupported version"));
        }
        let mut unused = None;
        for list in [&mut self.signing, &mut self.webhooks] {
            unused = unused.into_iter().chain(put_in_use(list, |key| key.created, cutoff)).min();
        }
        for list in [&mut self.page_tokens, &mut self.sealing] {
            unused = unused.into_iter().chain(put_in_use(list, |key| key.created, cutoff)).min();
        }
        let unusable = |UnusableKey(reason)| malformed(path, reason);
        let signing_created = self.signing.iter().map(|entry| entry.created).collect();
        let mut signing = self.signing.iter().map(|entry| entry.to_key().map_err(unusable));
        let Some(current) = signing.next() else { return Err(malformed(path, "it has no signing key")) };
        let webhooks = self.webhooks.iter().map(|entry| Ok((entry.to_key().map_err(unusable)?, entry.created)));
        let webhooks = webhooks.collect::<Result<Vec<_>, DataDirError>>()?;
        let secrets = |entries: Vec<SecretEntry>, missing, wrong_length| {
            let keys: Option<Vec<_>> = entries.into_iter().map(SecretEntry::into_key).collect();
            let keys = keys.ok_or_else(|| malformed(path, wrong_length))?;
            if keys.is_empty() { Err(malformed(path, missing)) } else { Ok(keys) }
        };
        let wrong_length = "a page-token key does not have 32 bytes";
        let page_tokens = secrets(self.page_tokens, "it has no page-token key", wrong_length)?;
        let wrong_length = "a sealing key does not have 32 bytes";
        let sealing = secrets(self.sealing, "it has no sealing key", wrong_length)?;
        Ok(Keys {
            signing: current?,
            others: signing.collect::<Result<_, _>>()?,
            signing_created,
            webhooks,
            page_tokens,
            sealing,
            unused,
            revision: 0,
        })
    }
}

/// Returns the position of the key that is in use in a list, which is newest first; `None` for an empty list.
fn in_use<T>(keys: &[T], created: impl Fn(&T) -> Timestamp, cutoff: Option<Timestamp>) -> Option<usize> {
    let oldest = keys.len().checked_sub(1)?;
    let Some(cutoff) = cutoff else { return Some(0) };
    Some(keys.iter().position(|key| created(key) <= cutoff).unwrap_or(oldest))
}

/// Removes a key unless it is in use. Returns whether it was removed; `None` if the list does not have it.
fn remove<T>(
    keys: &mut Vec<T>,
    is: impl Fn(&T) -> bool,
    created: impl Fn(&T) -> Timestamp,
    cutoff: Option<Timestamp>,
) -> Option<bool> {
    let at = keys.iter().position(is)?;
    let is_in_use = in_use(keys, created, cutoff) == Some(at);
    if !is_in_use {
        keys.remove(at);
    }
    Some(!is_in_use)
}

/// Moves the key that is in use to the front of a list, which is newest first. Returns the creation time of the oldest
/// key that is newer than it.
fn put_in_use<T>(keys: &mut Vec<T>, created: impl Fn(&T) -> Timestamp, cutoff: Option<Timestamp>) -> Option<Timestamp> {
    let in_use = in_use(keys, &created, cutoff)?;
    let next = in_use.checked_sub(1).and_then(|index| keys.get(index)).map(created);
    let key = keys.remove(in_use);
    keys.insert(0, key);
    next
}

impl SigningEntry {
    fn generate(algorithm: Algorithm, created: Timestamp) -> Result<Self, DataDirError> {
        if !Algorithm::OWN.contains(&algorithm) {
            return Err(UnusableKey("the server's own keys must be for RS256 or ES256").into());
        }
        let key = SigningKey::generate(algorithm)?;
        Ok(Self {
            kid: key.kid().to_owned(),
            algorithm: algorithm.name().to_owned(),
            created,
            pkcs8: STANDARD.encode(&*key.to_pkcs8()?).into(),
        })
    }

    fn to_key(&self) -> Result<SigningKey, UnusableKey> {
        let algorithm = Algorithm::from_name(&self.algorithm).filter(|algorithm| Algorithm::OWN.contains(algorithm));
        let algorithm = algorithm.ok_or(UnusableKey("a signing key has an unknown algorithm"))?;
        let der = STANDARD.decode(&*self.pkcs8).map_err(|_| UnusableKey("a signing key is not base64"))?;
        let der = Zeroizing::new(der);
        let key = SigningKey::from_pkcs8(algorithm, &der)?;
        if key.kid() == self.kid { Ok(key) } else { Err(UnusableKey("the kid of a signing key is not its thumbprint")) }
    }
}

impl SecretEntry {
    fn generate(created: Timestamp, entropy: &dyn Entropy) -> Self {
        let (mut id, mut secret) = ([0; 8], Zeroizing::new([0; 32]));
        entropy.fill(&mut id);
        entropy.fill(&mut *secret);
        Self { id: hex::encode(id), created, secret: STANDARD.encode(*secret).into() }
    }

    fn into_key(self) -> Option<SecretKey> {
        let secret = Zeroizing::new(STANDARD.decode(&*self.secret).ok()?);
        let secret = Zeroizing::new(secret.as_slice().try_into().ok()?);
        Some(SecretKey { id: self.id, created: self.created, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_dropped_when_their_retention_ends() {
        let at = |day: i64| Timestamp::from_millis(day * 24 * 3600 * 1000);
        let retained = |now| {
            let mut days = vec![10, 5, 4, 1];
            drop_expired(&mut days, |day| at(*day), PAGE_TOKEN_KEY_RETENTION, at(now));
            days
        };
        assert_eq!(retained(7), [10, 5, 4, 1]);
        assert_eq!(retained(8), [10, 5, 4], "1 was replaced on day 4");
        assert_eq!(retained(9), [10, 5]);
        assert_eq!(retained(14), [10]);
        assert_eq!(retained(999), [10]);
        assert_eq!(retained(-5), [10, 5, 4, 1], "a clock that went back drops nothing");
    }

    #[test]
    fn the_newest_key_that_is_old_enough_is_in_use() {
        let at = Timestamp::from_millis;
        let in_use = |cutoff: Option<i64>| {
            let mut keys = vec![30, 20, 10];
            let next = put_in_use(&mut keys, |key| at(*key), cutoff.map(at));
            (keys, next.map(Timestamp::millis))
        };
        assert_eq!(in_use(None), (vec![30, 20, 10], None));
        assert_eq!(in_use(Some(30)), (vec![30, 20, 10], None));
        assert_eq!(in_use(Some(29)), (vec![20, 30, 10], Some(30)));
        assert_eq!(in_use(Some(19)), (vec![10, 30, 20], Some(20)));
        assert_eq!(in_use(Some(0)), (vec![10, 30, 20], Some(20)), "the oldest, if none is old enough");
        assert_eq!(put_in_use(&mut Vec::<i64>::new(), |key| at(*key), Some(at(1))), None);
    }
}
