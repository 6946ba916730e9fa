//! Identifiers, which are paths: a resource's uid begins with its parent's uid.
//!
//! Ancestors are therefore prefixes, "at or below a group" is one key range, and access is decided by the uid alone,
//! before anything is loaded. Prefixes are compared by segment: `ab` is not an ancestor of `abc`. The grammar is
//! `docs/api.md`, Identifiers.

use std::{
    borrow::Borrow,
    fmt,
    ops::Deref,
    str::{FromStr, Utf8Error},
};

use bytes::Bytes;
use bytestring::ByteString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{entropy::Entropy, timestamp::Timestamp};

/// A resource's identifier: segments separated by `/`, of which all but the last form the parent's uid.
///
/// Resources of the hierarchy have 40 hex digits and then any number of `/` and 16 hex digits, all in lower
/// case ([`Uid::parse`]). Kinds with external identifiers, such as library artifacts, have a single opaque segment
/// ([`Uid::opaque`]). Most uids are random and are not reused after their resource is deleted; others are
/// derived ([`Uid::from_digest`]).
///
/// The order is bytewise. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(ByteString);

/// The error for a text that is not a uid of the hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a uid: 40 lower-case hex digits, then any number of `/` and 16 lower-case hex digits")]
pub struct InvalidUid;

const ROOT_LEN: usize = 40;
const SEGMENT_LEN: usize = 16;

/// The random bits of a segment that begins with a time.
const TIME_SHIFT: u32 = 20;

impl Uid {
    /// The maximum number of segments of a uid. Our choice: 32.
    pub const MAX_SEGMENTS: usize = 32;

    /// The regular expression (ECMA-262) of uids of the hierarchy, for documentation.
    pub const PATTERN: &str = "^[0-9a-f]{40}(/[0-9a-f]{16})*$";

    /// Parses a uid of the hierarchy: [`Uid::PATTERN`], with at most [`Uid::MAX_SEGMENTS`] segments.
    ///
    /// # Errors
    /// [`InvalidUid`] for anything else, including the empty text and upper-case digits.
    pub fn parse(text: &str) -> Result<Self, InvalidUid> {
        let hex = |segment: &str, len| {
            segment.len() == len && segment.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let mut segments = text.split('/');
        let root = segments.next().is_some_and(|root| hex(root, ROOT_LEN));
        let mut count = 1;
        let rest = segments.all(|segment| {
            count += 1;
            hex(segment, SEGMENT_LEN)
        });
        if root && rest && count <= Self::MAX_SEGMENTS { Ok(Self(text.into())) } else { Err(InvalidUid) }
    }

    /// Returns a uid with this text, without validation. It must consist of non-empty segments separated by `/`.
    ///
    /// For external identifiers, and for stores that read what they have written. Uids in requests are parsed with
    /// [`Uid::parse`].
    pub fn opaque(text: impl Into<ByteString>) -> Self {
        Self(text.into())
    }

    /// Returns a uid as [`Uid::opaque`] does, without a copy: the buffer that the bytes are part of lives as long as
    /// the uid.
    ///
    /// # Errors
    /// When the bytes are not UTF-8.
    pub fn shared(bytes: Bytes) -> Result<Self, Utf8Error> {
        ByteString::try_from(bytes).map(Self)
    }

    /// Returns a new uid with one random segment, for a resource without a parent.
    pub fn new_root(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; ROOT_LEN / 2];
        entropy.fill(&mut bytes);
        Self::from_digest(bytes)
    }

    /// Returns the uid with one segment of these 20 bytes, for uids that are derived instead of random.
    pub fn from_digest(bytes: [u8; ROOT_LEN / 2]) -> Self {
        Self(hex::encode(bytes).into())
    }

    /// Returns a new uid directly below this one.
    pub fn new_child(&self, entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; SEGMENT_LEN / 2];
        entropy.fill(&mut bytes);
        Self(format!("{}/{}", self.0, hex::encode(bytes)).into())
    }

    /// Returns a new uid directly below this one that sorts after those of earlier milliseconds, so that indexes grow at
    /// their ends.
    ///
    /// The last segment is the time in milliseconds followed by 20 random bits, which usually distinguish the uids of one
    /// millisecond. A commit must require that the uid is absent, and is retried with other bits if it is not.
    pub fn new_time_ordered_child(&self, now: Timestamp, entropy: &dyn Entropy) -> Self {
        let mut random = [0; 4];
        entropy.fill(&mut random);
        let segment = (now.millis().cast_unsigned() << TIME_SHIFT) | u64::from(u32::from_be_bytes(random) >> 12);
        Self(format!("{}/{segment:016x}", self.0).into())
    }

    /// Returns the time of a uid that [`Uid::new_time_ordered_child`] has made.
    pub(crate) fn time(&self) -> Timestamp {
        let segment = u64::from_str_radix(self.last_segment(), 16).unwrap_or_default();
        Timestamp::from_millis((segment >> TIME_SHIFT).cast_signed())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the parent's uid, or `None` for a uid of one segment.
    pub fn parent(&self) -> Option<Self> {
        parent(&self.0).map(Self::opaque)
    }

    /// Returns this uid and its ancestors, nearest first.
    pub fn ancestry(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(&*self.0), |uid| parent(uid))
    }

    /// Returns the first segment, which is the organization's uid for a resource in an organization.
    pub fn root(&self) -> &str {
        root(&self.0)
    }

    /// Returns the last segment.
    pub fn last_segment(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns whether the uid has only one segment.
    pub fn is_root(&self) -> bool {
        !self.0.contains('/')
    }

    /// Returns whether this is `other` or lies below it, at any depth.
    pub fn is_at_or_below(&self, other: &str) -> bool {
        is_at_or_below(&self.0, other)
    }

    /// Returns whether this lies below `other`, at any depth.
    pub fn is_below(&self, other: &str) -> bool {
        self.0.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Returns the first segment of a uid.
pub fn root(uid: &str) -> &str {
    uid.split('/').next().unwrap_or_default()
}

/// Returns whether a uid is `other` or lies below it, at any depth.
pub fn is_at_or_below(uid: &str, other: &str) -> bool {
    uid.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the text before the last `/`, if there is one.
pub fn parent(uid: &str) -> Option<&str> {
    uid.rsplit_once('/').map(|(parent, _)| parent)
}

/// The empty text, which stands in for a uid in the struct of a resource: for its own uid before it is created, and for
/// an optional reference that is not set. Code that decides access uses `Option<Uid>` instead.
impl Default for Uid {
    fn default() -> Self {
        Self("".into())
    }
}

impl FromStr for Uid {
    type Err = InvalidUid;
    fn from_str(text: &str) -> Result<Self, InvalidUid> {
        Self::parse(text)
    }
}

impl Deref for Uid {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Uid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Uid {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({})", self.0)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Accepts any text: stored bodies are trusted, and in requests the field is output-only and ignored.
impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::opaque)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

    #[test]
    fn only_texts_of_the_grammar_are_parsed() {
        let child = format!("{ROOT}/0123456789abcdef");
        let deepest = ROOT.to_owned() + &"/0123456789abcdef".repeat(Uid::MAX_SEGMENTS - 1);
        for good in [ROOT, &child, &deepest] {
            assert_eq!(Uid::parse(good).as_deref(), Ok(good));
        }
        let too_deep = deepest.clone() + "/0123456789abcdef";
        let bad = [
            "",
            "/",
            "abc",
            &ROOT[..39],
            &format!("{ROOT}0"),
            &ROOT.to_uppercase(),
            &format!("{ROOT}/"),
            &format!("/{ROOT}"),
            &format!("{ROOT}//0123456789abcdef"),
            &format!("{ROOT}/0123456789abcde"),
            &format!("{ROOT}/0123456789abcdeg"),
            &format!("{ROOT}/0123456789ABCDEF"),
            &format!("{child}\n"),
            &format!(" {ROOT}"),
            &format!("{ROOT}/../{ROOT}"),
            &too_deep,
        ];
        for bad in bad {
            assert_eq!(Uid::parse(bad), Err(InvalidUid), "{bad:?}");
        }
    }

    #[test]
    fn ancestry_is_compared_by_segment_and_not_by_prefix() {
        let uid = Uid::opaque("ab/c/d");
        assert_eq!(uid.ancestry().collect::<Vec<_>>(), ["ab/c/d", "ab/c", "ab"]);
        assert_eq!(uid.parent(), Some(Uid::opaque("ab/c")));
        assert_eq!(Uid::opaque("ab").parent(), None);
        assert!(uid.is_at_or_below("ab/c/d") && !uid.is_below("ab/c/d"));
        assert!(uid.is_below("ab") && uid.is_below("ab/c"));
        for other in ["a", "ab/", "ab/c/", "b", "ab/c/d/e", "ab/cd"] {
            assert!(!uid.is_at_or_below(other), "{other}");
        }
    }
}
