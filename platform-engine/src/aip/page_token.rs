//! Page tokens (AIP-158; `docs/api.md`, Lists): the position after which a list continues, authenticated and bound to
//! the list.
//!
//! A token is base64url of:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | version |
//! | 8 | number of the key, big-endian |
//! | 8 | time of issue in milliseconds since 1970, big-endian |
//! | 2 | length of the sort key, big-endian |
//! | … | sort key of the last resource of the page |
//! | … | uid of the last resource of the page |
//! | 16 | HMAC-SHA-256, truncated, over all of the above and the binding |
//!
//! The binding is the caller and the parsed request. A token of another caller or of another list is therefore
//! rejected, and none can be forged. The caller's grants are not part of the binding: they are evaluated for every page.
//! The token is not encrypted, because its holder has just read the resource that it names.
//!
//! Rejected: an offset, which skips and repeats resources while others are created and deleted; a cursor in the store,
//! which is a write for each page and has to expire; a signed JSON object (JWS), which is three times as long.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{
    store::{KeyValue, Position},
    timestamp::Timestamp,
    uid::Uid,
};

/// The validity of a token in milliseconds: 3 days. An older token restarts the list, without an error.
pub const VALIDITY_MILLIS: i64 = 3 * 24 * 60 * 60 * 1000;

/// The keys that authenticate page tokens: the first key signs, all keys verify.
///
/// A key must be kept for [`VALIDITY_MILLIS`] after it has signed its last token: a token with an unknown key is
/// rejected. The memory of the keys is overwritten when they are dropped.
#[derive(Clone)]
pub struct PageKeys(Vec<(u64, Hmac<Sha256>)>);

/// The binding of a page token: properties of a list, each with a name and values.
///
/// Names and values are encoded with their lengths, so that different lists never have the same bytes. The encoding is
/// part of the format of a token: a change makes all tokens of an earlier release invalid, and requires a new version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Binding(Vec<u8>);

impl Binding {
    /// Returns the bytes, by which equal bindings are recognized.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the binding with another property.
    #[must_use]
    pub(crate) fn with<'v>(mut self, name: &'v str, values: impl IntoIterator<Item = &'v [u8]>) -> Self {
        for part in [name.as_bytes()].into_iter().chain(values) {
            // Saturates only above the limit of a request's length.
            self.0.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            self.0.extend(part);
        }
        self.0.extend(u32::MAX.to_be_bytes());
        self
    }
}

/// The error for a token that was not issued with one of the keys for this list and caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a page token of this list for this caller; omit it to restart the list")]
pub struct InvalidToken;

const VERSION: u8 = 1;
const MAC_LEN: usize = 16;
const HEAD_LEN: usize = 1 + 8 + 8 + 2;

impl PageKeys {
    /// Returns the keys, newest first. Tokens refer to their key by its number.
    pub fn new(keys: impl IntoIterator<Item = (u64, impl Into<Zeroizing<[u8; 32]>>)>) -> Self {
        let mac = |key: Zeroizing<[u8; 32]>| Hmac::new_from_slice(&*key).ok();
        Self(keys.into_iter().filter_map(|(id, key)| mac(key.into()).map(|mac| (id, mac))).collect())
    }

    /// Returns the token for the page after `position`, in the list that `binding` identifies.
    pub(crate) fn issue(&self, now: Timestamp, binding: &Binding, position: &Position) -> String {
        let Some((id, mac)) = self.0.first() else { return String::new() };
        let value = position.value.as_bytes();
        let mut token = Vec::with_capacity(HEAD_LEN + value.len() + position.uid.len() + MAC_LEN);
        token.push(VERSION);
        token.extend(id.to_be_bytes());
        token.extend(now.millis().to_be_bytes());
        token.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        token.extend(value);
        token.extend(position.uid.as_bytes());
        let tag = tag(mac, &token, binding);
        token.extend(tag);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Returns the position of a token; `None` when it has expired, in which case the list restarts.
    ///
    /// # Errors
    /// [`InvalidToken`] when it was not issued with one of these keys for this binding.
    pub(crate) fn open(
        &self,
        now: Timestamp,
        binding: &Binding,
        token: &str,
    ) -> Result<Option<Position>, InvalidToken> {
        let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| InvalidToken)?;
        let (signed, found) = token.split_last_chunk::<MAC_LEN>().ok_or(InvalidToken)?;
        let mut rest = signed;
        let [version] = take(&mut rest)?;
        let id = u64::from_be_bytes(take(&mut rest)?);
        let issued = i64::from_be_bytes(take(&mut rest)?);
        let value_len = usize::from(u16::from_be_bytes(take(&mut rest)?));
        let (_, mac) = self.0.iter().find(|(known, _)| *known == id).ok_or(InvalidToken)?;
        let genuine = subtle::ConstantTimeEq::ct_eq(&tag(mac, signed, binding)[..], &found[..]);
        if !bool::from(genuine) || version != VERSION {
            return Err(InvalidToken);
        }
        let (value, uid) = rest.split_at_checked(value_len).ok_or(InvalidToken)?;
        let uid = std::str::from_utf8(uid).map_err(|_| InvalidToken)?;
        // When the clock has stepped back, a token may be from the future. It is valid for the same time.
        let fresh = now.millis().abs_diff(issued) <= VALIDITY_MILLIS.unsigned_abs();
        Ok(fresh.then(|| Position { value: KeyValue::from_bytes(value), uid: Uid::opaque(uid) }))
    }
}

impl PageKeys {
    /// Opens a token with this content and a valid MAC: for fuzzing, which cannot compute a MAC.
    #[doc(hidden)]
    pub fn open_signed(&self, signed: &[u8]) {
        let Some((_, mac)) = self.0.first() else { return };
        let mut token = signed.to_vec();
        token.extend(tag(mac, signed, &Binding::default()));
        let opened = self.open(Timestamp::EPOCH, &Binding::default(), &URL_SAFE_NO_PAD.encode(token));
        drop(opened);
    }
}

impl std::fmt::Debug for PageKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

/// Returns the truncated MAC of a token's content and its binding.
fn tag(mac: &Hmac<Sha256>, token: &[u8], binding: &Binding) -> [u8; MAC_LEN] {
    let mut mac = mac.clone();
    // The length separates the token from the binding, so that no bytes can move from one to the other.
    mac.update(&(token.len() as u64).to_be_bytes());
    mac.update(token);
    mac.update(&binding.0);
    let mut tag = [0; MAC_LEN];
    tag.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(byte, full)| *byte = full);
    tag
}

/// Splits the first `N` bytes off.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], InvalidToken> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(InvalidToken)?;
    *rest = tail;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn position() -> Position {
        Position { value: KeyValue::text("nginx"), uid: Uid::opaque("a/b") }
    }

    fn list() -> Binding {
        Binding::default().with("kind", [&b"repo"[..]])
    }

    #[test]
    fn properties_with_other_boundaries_have_other_bytes() {
        let of = |properties: &[(&str, &[&[u8]])]| {
            let with = |binding: Binding, (name, values): &(&str, &[&[u8]])| binding.with(name, values.iter().copied());
            properties.iter().fold(Binding::default(), with).0
        };
        let all = [
            of(&[("a", &[b"b", b"c"])]),
            of(&[("a", &[b"bc"])]),
            of(&[("a", &[b"bd"])]),
            of(&[("ab", &[b"c"])]),
            of(&[("a", &[b"b"]), ("c", &[])]),
            of(&[("a", &[]), ("b", &[b"c"])]),
            of(&[("a", &[b"b", b"", b"c"])]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn no_bytes_can_move_between_a_token_and_its_binding() {
        let keys = PageKeys::new([(7, [1; 32])]);
        let tag = |token: &[u8], binding: &[u8]| tag(&keys.0[0].1, token, &Binding(binding.to_vec()));
        assert_ne!(tag(b"ab", b"c"), tag(b"a", b"bc"));
    }

    #[test]
    fn a_token_opens_only_for_the_list_that_it_was_issued_for() {
        let keys = PageKeys::new([(7, [1; 32])]);
        let token = keys.issue(NOW, &list(), &position());
        assert_eq!(keys.open(NOW, &list(), &token), Ok(Some(position())));
        assert_eq!(keys.open(NOW, &list().with("filter", [&b"a"[..]]), &token), Err(InvalidToken));
        assert_eq!(PageKeys::new([(7, [2; 32])]).open(NOW, &list(), &token), Err(InvalidToken));
    }

    #[test]
    fn a_token_with_a_changed_bit_or_truncated_is_rejected() {
        let keys = PageKeys::new([(7, [1; 32])]);
        let token = URL_SAFE_NO_PAD.decode(keys.issue(NOW, &list(), &position())).unwrap();
        for bit in 0..token.len() * 8 {
            let mut forged = token.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(NOW, &list(), &URL_SAFE_NO_PAD.encode(forged)), Err(InvalidToken), "bit {bit}");
        }
        for len in 0..token.len() {
            assert_eq!(keys.open(NOW, &list(), &URL_SAFE_NO_PAD.encode(&token[..len])), Err(InvalidToken));
        }
        for text in ["", "!", "AAAA", "Zm9v=="] {
            assert_eq!(keys.open(NOW, &list(), text), Err(InvalidToken));
        }
    }

    #[test]
    fn a_token_of_more_than_three_days_ago_or_ahead_restarts_the_list() {
        let keys = PageKeys::new([(7, [1; 32])]);
        let token = keys.issue(NOW, &list(), &position());
        for sign in [1, -1] {
            let open = |millis: i64| keys.open(NOW.plus_millis(sign * millis), &list(), &token);
            assert_eq!(open(VALIDITY_MILLIS), Ok(Some(position())), "{sign}");
            assert_eq!(open(VALIDITY_MILLIS + 1), Ok(None), "{sign}");
        }
    }

    #[test]
    fn a_token_of_another_version_is_rejected() {
        let keys = PageKeys::new([(7, [1; 32])]);
        let token = URL_SAFE_NO_PAD.decode(keys.issue(NOW, &list(), &position())).unwrap();
        let of_version = |version: u8| {
            let (signed, _) = token.split_last_chunk::<MAC_LEN>().unwrap();
            let mut token = signed.to_vec();
            token[0] = version;
            token.extend(tag(&keys.0[0].1, &token, &list()));
            keys.open(NOW, &list(), &URL_SAFE_NO_PAD.encode(token))
        };
        assert_eq!(of_version(VERSION), Ok(Some(position())));
        assert_eq!(of_version(VERSION + 1), Err(InvalidToken));
    }

    #[test]
    fn tokens_of_an_older_key_still_open_after_a_rotation() {
        let old = PageKeys::new([(1, [1; 32])]);
        let rotated = PageKeys::new([(2, [2; 32]), (1, [1; 32])]);
        let token = old.issue(NOW, &list(), &position());
        assert_eq!(rotated.open(NOW, &list(), &token), Ok(Some(position())));
        assert_eq!(old.open(NOW, &list(), &rotated.issue(NOW, &list(), &position())), Err(InvalidToken));
    }
}
