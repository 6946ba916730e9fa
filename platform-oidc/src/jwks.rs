//! JSON Web Key Sets (RFC 7517): parsing and serialization.
//!
//! Unusable entries of a set are skipped, with the reason, and the rest is used (RFC 7517 section 5): a new type of key,
//! or a mistake in one entry, does not disable an issuer.

use std::{fmt, sync::Arc};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::{Map, Value, json};

use crate::{
    error::TokenError,
    json,
    jws::{Jws, MAX_KID},
};
use platform_keys::{Algorithm, UnusableKey, VerifyingKey};

/// The maximum length of a key set, in bytes; our choice: 256 KiB.
pub const MAX_KEY_SET: usize = 256 * 1024;
/// The maximum number of keys that are used of a set; our choice. Further ones are skipped.
pub const MAX_KEYS: usize = 100;
/// The maximum number of entries whose reasons are kept, and of those that errors list; our choice.
const MAX_SKIPPED: usize = 100;
const MAX_LISTED: usize = 5;

/// Members that occur only in private or shared keys (RFC 7518 section 6, RFC 8037 section 2).
const SECRET_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Base64url with or without padding. RFC 7515 section 2 omits it; issuers that add it mean the same bytes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The public keys of one issuer, in the order of publication. Clones share the keys.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<Arc<VerifyingKey>>,
    skipped: Vec<Skipped>,
}

/// An entry of a key set that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The index in `keys`, from 0.
    pub index: usize,
    /// The key's `kid`, if it is a text.
    pub kid: Option<String>,
    /// The rule that the entry breaks.
    pub reason: &'static str,
    cause: Cause,
}

/// The fault of an entry that is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Nothing: it has another type, algorithm or purpose than the keys that are used here.
    Foreign,
    /// It would be used if it did not break a rule.
    Mistake,
    /// It is secret, and so compromised when it is published.
    Secret,
}

/// The reason for not using an entry.
type Unused = (Cause, &'static str);

/// Shows the index, the first 64 characters of the `kid`, and the reason.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys[{}]", self.index)?;
        if let Some(kid) = &self.kid {
            write!(f, " (kid {:?})", kid.chars().take(64).collect::<String>())?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The reason why a key set is rejected. The message quotes no part of the key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKeySet {
    /// Longer than [`MAX_KEY_SET`], or more than [`MAX_KEYS`] keys for [`KeySet::new`].
    #[error("{}", self.rule())]
    TooLarge,
    /// Not a JSON object with an array `keys`, or a JSON object with duplicate keys.
    #[error("{}", self.rule())]
    Malformed,
    /// Two keys for one algorithm have the same `kid`, so that the `kid` in a token is ambiguous.
    #[error("{}", self.rule())]
    DuplicateKid,
}

impl InvalidKeySet {
    /// Returns the violated rule, the same as the message.
    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::TooLarge => "it must have at most 256 KiB and 100 keys",
            Self::Malformed => {
                "it must be a JSON object with an array `keys`, without duplicate keys or a byte order mark"
            }
            Self::DuplicateKid => "two of its keys have the same `kid` and algorithm",
        }
    }
}

impl KeySet {
    /// Creates a set of keys. A key that the set already has is not added again.
    ///
    /// # Errors
    /// [`InvalidKeySet::DuplicateKid`], [`InvalidKeySet::TooLarge`].
    pub fn new(keys: impl IntoIterator<Item = VerifyingKey>) -> Result<Self, InvalidKeySet> {
        let mut set = Self::default();
        for key in keys {
            set.add(key)?;
        }
        Ok(set)
    }

    /// Creates a set of the server's own keys, without validation: the server generated them.
    pub(crate) fn own<'a>(keys: impl Iterator<Item = &'a VerifyingKey>) -> Self {
        Self { keys: keys.cloned().map(Arc::new).collect(), skipped: Vec::new() }
    }

    /// Parses a key set.
    ///
    /// Skips an entry when its `kty`, `crv` or `alg` does not belong to one of [`Algorithm::ALL`], when `use` is not
    /// `sig` or `key_ops` lacks `verify`, when it is secret, and when the key is invalid or weak (RFC 7517 section 5);
    /// [`KeySet::skipped`] has the reasons. Of different keys with the same `kid` and algorithm, the first is used. A
    /// key without `kid` can only be the only key of a set, because no token can select it among others.
    ///
    /// An RSA key without `alg` is for every algorithm of RSA. Padding of base64url, leading zeros of numbers, and
    /// missing ones of coordinates are accepted, since they change no number (our choice). The set may end up empty.
    ///
    /// # Errors
    /// [`InvalidKeySet`] when the set as a whole is not readable.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidKeySet> {
        if json.len() > MAX_KEY_SET {
            return Err(InvalidKeySet::TooLarge);
        }
        let set = json::object(json).ok_or(InvalidKeySet::Malformed)?;
        let Some(Value::Array(entries)) = set.get("keys") else { return Err(InvalidKeySet::Malformed) };
        let mut parsed = Self::default();
        let mut nameless = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let added = parse_key(entry).and_then(|key| {
                let is_nameless = key.kid().is_none();
                let result = parsed.add(key);
                if is_nameless && result.is_ok() {
                    nameless.push(index);
                }
                result.map_err(|error| match error {
                    InvalidKeySet::DuplicateKid => mistake("another key of the set has the same `kid` and algorithm"),
                    _ => mistake("the set has more than 100 keys"),
                })
            });
            if let Err((cause, reason)) = added {
                let kid = entry.get("kid").and_then(Value::as_str).map(str::to_owned);
                parsed.skip(Skipped { index, kid, reason, cause });
            }
        }
        if parsed.only_key().is_none() {
            parsed.keys.retain(|key| key.kid().is_some());
            let reason = "it has no `kid`, and the set has other keys, so that no token can select it";
            let skipped = |index| Skipped { index, kid: None, reason, cause: Cause::Mistake };
            nameless.into_iter().for_each(|index| parsed.skip(skipped(index)));
        }
        Ok(parsed)
    }

    /// Adds a key unless the set already has it.
    fn add(&mut self, key: VerifyingKey) -> Result<(), InvalidKeySet> {
        let same_kid = || self.keys.iter().filter(|known| known.kid() == key.kid());
        if same_kid().any(|known| covers(known, &key)) {
            return Ok(());
        }
        let is_ambiguous = |known: &Arc<VerifyingKey>| {
            known.thumbprint() != key.thumbprint()
                && Algorithm::ALL.iter().any(|algorithm| known.allows(*algorithm) && key.allows(*algorithm))
        };
        if key.kid().is_some() && same_kid().any(is_ambiguous) {
            return Err(InvalidKeySet::DuplicateKid);
        }
        if self.keys.len() >= MAX_KEYS {
            return Err(InvalidKeySet::TooLarge);
        }
        self.keys.push(Arc::new(key));
        Ok(())
    }

    fn skip(&mut self, skipped: Skipped) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(skipped);
        }
    }

    /// Returns the first key if all keys of the set are the same one, for different algorithms or with different `kid`s.
    fn only_key(&self) -> Option<&Arc<VerifyingKey>> {
        let first = self.keys.first()?;
        self.keys.iter().all(|key| key.thumbprint() == first.thumbprint()).then_some(first)
    }

    /// Returns the key with exactly this `kid` that allows the algorithm. Without a `kid`, returns the key of a set that
    /// has only one (OpenID Connect Core section 10.1).
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Arc<VerifyingKey>> {
        match kid {
            Some(_) => self.keys.iter().find(|key| key.kid() == kid && key.allows(algorithm)),
            None => self.only_key().and_then(|_| self.keys.iter().find(|key| key.allows(algorithm))),
        }
    }

    /// Returns the key that a token selects, by [`KeySet::find`].
    ///
    /// # Errors
    /// [`TokenError::UnusableKey`] if the entry with this `kid` is not used, [`TokenError::Key`] if there is none.
    pub(crate) fn find_for(&self, jws: &Jws<'_>) -> Result<&Arc<VerifyingKey>, TokenError> {
        let kid = jws.kid.as_deref();
        let why_not = || self.skipped.iter().find(|skipped| skipped.kid.as_deref() == kid);
        self.find(kid, jws.algorithm)
            .ok_or_else(|| why_not().map_or(TokenError::Key, |skipped| TokenError::UnusableKey(skipped.reason)))
    }

    /// Returns the entries that are not used, at most the first 100 that were found.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Returns the first entries that are not used as text, with their reasons; empty if there are none.
    pub(crate) fn describe_skipped(&self) -> String {
        let listed: Vec<String> = self.skipped.iter().take(MAX_LISTED).map(Skipped::to_string).collect();
        let rest = self.skipped.len().saturating_sub(MAX_LISTED);
        listed.join("; ") + &if rest > 0 { format!("; and {rest} more") } else { String::new() }
    }

    /// Returns whether this set has every key of `other`, with the same `kid` and all of its algorithms.
    pub fn contains_all(&self, other: &Self) -> bool {
        let is_same = |a: &VerifyingKey, b: &VerifyingKey| a.kid() == b.kid() && covers(a, b);
        other.keys.iter().all(|key| self.keys.iter().any(|mine| is_same(mine, key)))
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[Arc<VerifyingKey>] {
        &self.keys
    }

    /// Returns the set as JSON, with only the public members.
    pub fn to_json(&self) -> String {
        json!({"keys": self.keys.iter().map(|key| key.to_jwk()).collect::<Vec<_>>()}).to_string()
    }
}

/// Checks the static keys of an identity as an exchange reads them: a key set of which at least one key can verify
/// tokens, without secrets and without keys that would be used but for a mistake. Keys of other types, algorithms and
/// purposes may be in it (RFC 7517 section 5).
///
/// # Errors
/// The rule and the entries that break it, by index and `kid`.
pub fn check_static_keys(text: &str) -> Result<(), String> {
    let set = KeySet::parse(text.as_bytes()).map_err(|error| format!("must be a JWK Set: {error}"))?;
    let first = |cause| set.skipped.iter().find(|skipped| skipped.cause == cause);
    if let Some(secret) = first(Cause::Secret) {
        return Err(format!("must have public keys only: {secret}; remove it, and use another key"));
    }
    if let Some(mistake) = first(Cause::Mistake) {
        return Err(format!("must have keys that can verify tokens: {mistake}; correct or remove it"));
    }
    if !set.keys.is_empty() {
        return Ok(());
    }
    let entries = if set.skipped.is_empty() { "it has none".to_owned() } else { set.describe_skipped() };
    Err(format!(
        "must have a key that can verify tokens: {entries}; use an RSA key of 2048 to 4096 bits, or one on P-256, P-384, \
         P-521 or Ed25519"
    ))
}

/// Returns whether `a` is the same key as `b` and allows all of its algorithms.
fn covers(a: &VerifyingKey, b: &VerifyingKey) -> bool {
    a.thumbprint() == b.thumbprint()
        && Algorithm::ALL.iter().all(|algorithm| a.allows(*algorithm) || !b.allows(*algorithm))
}

const fn mistake(reason: &'static str) -> Unused {
    (Cause::Mistake, reason)
}

const fn foreign(reason: &'static str) -> Unused {
    (Cause::Foreign, reason)
}

/// Parses one public key, or returns why it is not used.
fn parse_key(entry: &Value) -> Result<VerifyingKey, Unused> {
    let jwk = entry.as_object().ok_or(mistake("it must be a JSON object"))?;
    if jwk.get("kty") == Some(&json!("oct")) {
        return Err((Cause::Secret, "a symmetric key is never used"));
    }
    if SECRET_MEMBERS.iter().any(|name| jwk.contains_key(*name)) {
        return Err((Cause::Secret, "it has the private part of the key, which is no longer secret"));
    }
    let kid = match jwk.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() <= MAX_KID => Some(kid.clone()),
        Some(_) => return Err(mistake("its `kid` must be a string of at most 512 bytes")),
    };
    check_purpose(jwk)?;
    let algorithm = match jwk.get("alg") {
        None => None,
        Some(name) => Some(name.as_str().and_then(Algorithm::from_name).ok_or(foreign("its `alg` is not supported"))?),
    };
    let kty = jwk.get("kty").and_then(Value::as_str).ok_or(foreign("its `kty` is missing or not a string"))?;
    let crv = jwk.get("crv").map(|crv| crv.as_str().unwrap_or_default());
    let coordinates = |len| Ok((coordinate(jwk, "x", len)?, coordinate(jwk, "y", len)?));
    let key = match (kty, crv) {
        ("RSA", None) => VerifyingKey::rsa_for(algorithm, kid, &number(jwk, "n")?, &number(jwk, "e")?),
        ("EC", Some("P-256")) => coordinates(32).map(|(x, y)| VerifyingKey::p256(kid, &x, &y))?,
        ("EC", Some("P-384")) => coordinates(48).map(|(x, y)| VerifyingKey::p384(kid, &x, &y))?,
        ("EC", Some("P-521")) => coordinates(66).map(|(x, y)| VerifyingKey::p521(kid, &x, &y))?,
        ("OKP", Some("Ed25519")) => VerifyingKey::ed25519(kid, &bytes(jwk, "x")?),
        _ => return Err(foreign("its `kty` or `crv` is not supported")),
    };
    let key = key.map_err(|UnusableKey(reason)| mistake(reason))?;
    match algorithm {
        Some(algorithm) if !key.allows(algorithm) => Err(mistake("its `alg` is for keys of another type")),
        _ => Ok(key),
    }
}

/// Checks that `use` and `key_ops` allow a key to verify signatures. An absent member allows it.
fn check_purpose(jwk: &Map<String, Value>) -> Result<(), Unused> {
    let allows = |name, allowed: &dyn Fn(&Value) -> bool| jwk.get(name).is_none_or(allowed);
    let is_verify = |ops: &Value| {
        ops.as_array().is_some_and(|ops| ops.iter().all(Value::is_string) && ops.contains(&json!("verify")))
    };
    if !allows("use", &|usage| usage == "sig") {
        return Err(foreign("its `use` is not `sig`"));
    }
    if allows("key_ops", &is_verify) { Ok(()) } else { Err(foreign("its `key_ops` do not have `verify`")) }
}

/// Returns a big-endian number without leading zeros, which RFC 7518 section 6.3.1.1 forbids and some libraries write.
fn number(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, Unused> {
    Ok(bytes(jwk, name)?.into_iter().skip_while(|byte| *byte == 0).collect())
}

/// Returns a coordinate with the length of its curve, which RFC 7518 section 6.2.1.2 requires and some libraries do not
/// write.
fn coordinate(jwk: &Map<String, Value>, name: &str, len: usize) -> Result<Vec<u8>, Unused> {
    let number = number(jwk, name)?;
    let missing = len.checked_sub(number.len()).ok_or(mistake("a coordinate is longer than those of the curve"))?;
    Ok([vec![0; missing], number].concat())
}

fn bytes(jwk: &Map<String, Value>, name: &str) -> Result<Vec<u8>, Unused> {
    let text =
        jwk.get(name).and_then(Value::as_str).ok_or(mistake("a member of the key is missing or not a string"))?;
    BASE64.decode(text).map_err(|_| mistake("a member of the key is not base64url"))
}

#[cfg(test)]
mod tests;
