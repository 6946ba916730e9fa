//! Encryption of secrets at rest, with keys that the embedder keeps outside of the store.
//!
//! For secrets that must be read again. Secrets that only have to be compared are stored as hashes.

use std::fmt;

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::entropy::Entropy;

/// The keys that encrypt secrets in the store: the first key seals, all keys open.
///
/// A key must be kept as long as the store has a secret that was sealed with it. The memory of the keys is overwritten
/// when they are dropped.
#[derive(Clone)]
pub struct SealKeys(Vec<(u64, XChaCha20Poly1305)>);

/// The error for a sealed secret that does not open: its key is missing, or it was changed or sealed for another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sealed secret does not open; the key that sealed it may be missing")]
pub struct SealError;

const VERSION: u8 = 1;
const NONCE_LEN: usize = 24;

impl SealKeys {
    /// Returns the keys, newest first. Sealed secrets refer to their key by its number.
    pub fn new(keys: impl IntoIterator<Item = (u64, impl Into<Zeroizing<[u8; 32]>>)>) -> Self {
        let cipher = |key: Zeroizing<[u8; 32]>| XChaCha20Poly1305::new_from_slice(&*key).ok();
        Self(keys.into_iter().filter_map(|(id, key)| cipher(key.into()).map(|cipher| (id, cipher))).collect())
    }

    /// Seals a secret with XChaCha20-Poly1305 and a random nonce. `place` is authenticated, so that a secret that was
    /// sealed for one resource does not open for another.
    ///
    /// The result is the version (1 byte), the key's number (8 bytes, big-endian), the nonce (24 bytes) and the
    /// ciphertext.
    ///
    /// # Errors
    /// [`SealError`] when there is no key.
    pub fn seal(&self, entropy: &dyn Entropy, place: &str, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let (id, cipher) = self.0.first().ok_or(SealError)?;
        let mut nonce = [0; NONCE_LEN];
        entropy.fill(&mut nonce);
        let payload = Payload { msg: secret, aad: place.as_bytes() };
        let text = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError)?;
        Ok([&[VERSION][..], &id.to_be_bytes(), &nonce, &text].concat())
    }

    /// Returns whether `sealed` is this secret, sealed for this place with the newest key.
    pub fn is_sealed(&self, place: &str, sealed: &[u8], secret: &[u8]) -> bool {
        let newest = self.0.first().map(|(id, _)| id.to_be_bytes());
        // The number of the key follows the version.
        let id = sealed.split_first().and_then(|(_, rest)| rest.first_chunk());
        newest.as_ref() == id && self.open(place, sealed).is_ok_and(|opened| *Zeroizing::new(opened) == secret)
    }

    /// Opens a secret that was sealed for this place.
    ///
    /// # Errors
    /// [`SealError`] when the key is missing, or when `sealed` was changed or is for another place.
    pub fn open(&self, place: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (version, rest) = sealed.split_first().ok_or(SealError)?;
        let (id, rest) = rest.split_first_chunk().ok_or(SealError)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError)?;
        let id = u64::from_be_bytes(*id);
        let (_, cipher) = self.0.iter().find(|(known, _)| *known == id && *version == VERSION).ok_or(SealError)?;
        let payload = Payload { msg: text, aad: place.as_bytes() };
        cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| SealError)
    }
}

/// Shows the numbers of the keys and not the keys.
impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

/// A text that must not appear in logs: `Debug` does not show it. Its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Returns the text as a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(…)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Fixed;

    #[test]
    fn a_secret_opens_only_at_the_place_that_it_was_sealed_for() {
        let keys = SealKeys::new([(7, [1; 32])]);
        let sealed = keys.seal(&Fixed, "a", b"hush").unwrap();
        assert_eq!(keys.open("a", &sealed).as_deref(), Ok(&b"hush"[..]));
        assert_eq!(keys.open("b", &sealed), Err(SealError));
        assert!(!sealed.windows(4).any(|part| part == b"hush"));
    }

    #[test]
    fn a_sealed_secret_with_a_changed_bit_or_truncated_does_not_open() {
        let keys = SealKeys::new([(7, [1; 32])]);
        let sealed = keys.seal(&Fixed, "a", b"hush").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open("a", &changed), Err(SealError), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert_eq!(keys.open("a", &sealed[..len]), Err(SealError));
        }
    }

    #[test]
    fn the_newest_key_seals_and_older_keys_still_open() {
        let old = SealKeys::new([(1, [1; 32])]);
        let both = SealKeys::new([(2, [2; 32]), (1, [1; 32])]);
        let sealed = old.seal(&Fixed, "a", b"hush").unwrap();
        assert_eq!(both.open("a", &sealed).as_deref(), Ok(&b"hush"[..]));
        assert_eq!(old.open("a", &both.seal(&Fixed, "a", b"hush").unwrap()), Err(SealError));
        assert!(old.is_sealed("a", &sealed, b"hush") && !old.is_sealed("a", &sealed, b"other"));
        assert!(!both.is_sealed("a", &sealed, b"hush"), "an older key sealed it");
        let none = SealKeys::new(Vec::<(u64, [u8; 32])>::new());
        assert_eq!(none.seal(&Fixed, "a", b"hush"), Err(SealError));
    }

    #[test]
    fn debug_shows_neither_keys_nor_secrets() {
        let shown = format!("{:?} {:?}", SealKeys::new([(9, [1; 32])]), Secret::new("hush"));
        assert_eq!(shown, "[9] Secret(…)");
    }
}
