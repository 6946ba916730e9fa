//! Entity tags of resources (AIP-154, RFC 9110 section 8.8.3; `docs/api.md`, Conditional requests).
//!
//! The tag of a representation that is stored is the revision of its record. A representation that is completed when it
//! is read, with counts or names of other resources, has a hash of its bytes, too: the tag changes with them. Tags are
//! strong. The hash takes no part in a comparison of revisions, so that a count that has changed does not conflict with a
//! writer.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// The number of bytes of the hash of a representation. Our choice.
const HASH: usize = 16;

/// The revision in the tag of a reply whose write is not committed yet. It is greater than every sequence
/// ([`MAX_SEQUENCE`](crate::store::MAX_SEQUENCE)).
pub(crate) const UNCOMMITTED: u64 = u64::MAX;

/// The entity tag of a representation of a resource. It is shown with its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    revision: u64,
    hash: Option<[u8; HASH]>,
}

impl Tag {
    /// Returns the tag of a representation that is stored as it is shown, by the revision of its record.
    pub const fn of_stored(revision: u64) -> Self {
        Self { revision, hash: None }
    }

    /// Returns the tag of a representation that is completed at each read, by the revision of its record and its bytes.
    pub fn of_completed(revision: u64, body: &[u8]) -> Self {
        let digest = Sha256::digest(body);
        Self { revision, hash: digest.first_chunk().copied() }
    }

    /// Returns the revision of the record: the sequence of the commit that wrote it, and 0 for a singleton that was never
    /// written.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether it is the tag of a representation that is stored as it is shown.
    pub(crate) const fn is_stored(&self) -> bool {
        self.hash.is_none()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{:x}", self.revision)?;
        if let Some(hash) = &self.hash {
            f.write_str("-")?;
            hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        f.write_str("\"")
    }
}

/// The body of a reply of a method that returns nothing.
const EMPTY: &[u8] = b"{}";

/// A resource as a method returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// A JSON object.
    pub body: Bytes,
    /// Its entity tag; `None` for the reply of a delete, and for that of a preview that would change the resource.
    pub tag: Option<Tag>,
    /// Whether it is the recorded reply of an earlier request with the same idempotency key.
    pub is_replayed: bool,
}

impl Reply {
    /// Returns a resource with the tag of this revision. `is_stored` is whether the body is stored as it is shown.
    pub(crate) fn new(body: Bytes, revision: u64, is_stored: bool) -> Self {
        let tag = if is_stored { Tag::of_stored(revision) } else { Tag::of_completed(revision, &body) };
        Self { body, tag: Some(tag), is_replayed: false }
    }

    /// Returns a reply without a tag.
    pub(crate) const fn untagged(body: Bytes) -> Self {
        Self { body, tag: None, is_replayed: false }
    }

    /// Returns the reply of a method that returns nothing: an empty object.
    pub(crate) const fn empty() -> Self {
        Self::untagged(Bytes::from_static(EMPTY))
    }

    /// Returns whether it is an empty object.
    pub(crate) fn is_empty(&self) -> bool {
        self.body == EMPTY
    }

    /// Returns the reply of a write that was committed with this sequence.
    pub(crate) fn committed(self, sequence: u64) -> Self {
        let revised = |tag: Tag| if tag.revision == UNCOMMITTED { Tag { revision: sequence, ..tag } } else { tag };
        Self { tag: self.tag.map(revised), ..self }
    }
}

/// The entity tags that a precondition names: the value of `If-Match` or `If-None-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// `*`: any representation of a resource that exists.
    Any,
    /// A list of tags.
    These(Vec<Listed>),
}

/// A tag as a client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    is_weak: bool,
    /// The text between the quotes.
    opaque: Vec<u8>,
}

/// How tags are compared (RFC 9110 section 8.8.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// For `If-Match`: a weak tag equals none.
    Strong,
    /// For `If-None-Match`.
    Weak,
}

impl Tags {
    /// Parses the value of a header; several lines are joined by commas (RFC 9110 section 13.1.1). Empty elements of the
    /// list are ignored (section 5.6.1).
    ///
    /// # Errors
    /// The rule that the value breaks.
    pub fn parse(value: &[u8]) -> Result<Self, &'static str> {
        const RULE: &str = "must be * or a list of entity tags in double quotes";
        if value.trim_ascii() == b"*" {
            return Ok(Self::Any);
        }
        let (mut tags, mut rest) = (Vec::new(), value);
        loop {
            rest = rest.trim_ascii_start();
            if let [b',', after @ ..] = rest {
                rest = after;
                continue;
            }
            if rest.is_empty() {
                return if tags.is_empty() { Err(RULE) } else { Ok(Self::These(tags)) };
            }
            let (is_weak, quoted) = match rest {
                [b'W', b'/', quoted @ ..] => (true, quoted),
                quoted => (false, quoted),
            };
            let Some((b'"', text)) = quoted.split_first() else { return Err(RULE) };
            let end = text.iter().position(|byte| *byte == b'"').ok_or(RULE)?;
            let (opaque, after) = text.split_at_checked(end).ok_or(RULE)?;
            if !opaque.iter().all(|byte| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)) {
                return Err(RULE);
            }
            tags.push(Listed { is_weak, opaque: opaque.to_vec() });
            rest = after.get(1..).unwrap_or_default().trim_ascii_start();
            if !rest.is_empty() && !rest.starts_with(b",") {
                return Err(RULE);
            }
        }
    }

    /// Returns whether they name a revision: one of them begins with it, whatever the rest of the representation was. A
    /// weak tag names none in the strong comparison of `If-Match` (RFC 9110 section 8.8.3.2).
    pub fn name_revision(&self, revision: u64, comparison: Comparison) -> bool {
        let Self::These(tags) = self else { return true };
        let revision = format!("{revision:x}");
        let of =
            |tag: &Listed| tag.opaque.split(|byte| matches!(byte, b'-' | b'+')).next() == Some(revision.as_bytes());
        tags.iter().any(|tag| of(tag) && (!tag.is_weak || comparison == Comparison::Weak))
    }

    /// Returns the tag, with its quotes, that names a representation with this tag by the weak comparison of
    /// `If-None-Match`; `current` itself for `*`. The representation may have been sent with a content coding, whose name
    /// follows a plus sign in its tag.
    pub fn find(&self, current: &str) -> Option<String> {
        let Self::These(tags) = self else { return Some(current.to_owned()) };
        let opaque = current.trim_start_matches("W/").trim_matches('"').as_bytes();
        let is_it = |tag: &&Listed| tag.opaque.split(|byte| *byte == b'+').next() == Some(opaque);
        tags.iter().find(is_it).map(|tag| {
            let weak = if current.starts_with("W/") { "W/" } else { "" };
            format!("{weak}\"{}\"", String::from_utf8_lossy(&tag.opaque))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn these(tags: &[(bool, &str)]) -> Result<Tags, ()> {
        let listed = |(is_weak, text): &(bool, &str)| Listed { is_weak: *is_weak, opaque: text.as_bytes().to_vec() };
        Ok(Tags::These(tags.iter().map(listed).collect()))
    }

    #[test]
    fn a_precondition_is_a_star_or_a_list_of_quoted_tags() {
        for (value, parsed) in [
            ("*", Ok(Tags::Any)),
            (" * ", Ok(Tags::Any)),
            ("\"1\"", these(&[(false, "1")])),
            ("\"a,b\" ,, W/\"c\",", these(&[(false, "a,b"), (true, "c")])),
            ("\"\"", these(&[(false, "")])),
            ("\"*\"", these(&[(false, "*")])),
            ("", Err(())),
            (",", Err(())),
            ("1", Err(())),
            ("\"1", Err(())),
            ("\"1\" \"2\"", Err(())),
            ("w/\"1\"", Err(())),
            ("*, \"1\"", Err(())),
            ("\"a b\"", Err(())),
            ("\"a\u{7f}\"", Err(())),
        ] {
            assert_eq!(Tags::parse(value.as_bytes()).map_err(drop), parsed, "{value}");
        }
    }

    #[test]
    fn a_revision_is_compared_without_the_rest_of_the_tag() {
        for (value, strong, weak) in [
            ("*", true, true),
            ("\"1f\"", true, true),
            ("\"2\", \"1f-00ff\"", true, true),
            ("\"1f+gzip\"", true, true),
            ("W/\"1f\"", false, true),
            ("\"1F\"", false, false),
            ("\"01f\"", false, false),
            ("\"1f0\"", false, false),
        ] {
            let tags = Tags::parse(value.as_bytes()).unwrap();
            let named = [Comparison::Strong, Comparison::Weak].map(|comparison| tags.name_revision(0x1f, comparison));
            assert_eq!(named, [strong, weak], "{value}");
        }
    }

    #[test]
    fn a_representation_is_found_by_its_whole_tag_in_any_coding() {
        let tag = Tag::of_completed(0x1f, b"{}").to_string();
        let bare = tag.trim_matches('"');
        for (value, found) in [
            ("*".to_owned(), Some(tag.clone())),
            (format!("\"1f\", {tag}"), Some(tag.clone())),
            (format!("W/{tag}"), Some(tag.clone())),
            (format!("\"{bare}+gzip\""), Some(format!("\"{bare}+gzip\""))),
            ("\"1f\"".to_owned(), None),
        ] {
            assert_eq!(Tags::parse(value.as_bytes()).unwrap().find(&tag), found, "{value}");
        }
        assert_eq!(Tags::parse(b"\"a\"").unwrap().find("W/\"a\""), Some("W/\"a\"".to_owned()));
    }
}
