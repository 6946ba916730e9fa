//! Idempotency keys: writes that a client can repeat (AIP-155, draft-ietf-httpapi-idempotency-key-header; `docs/api.md`,
//! Repeatable writes).
//!
//! The commit of a write with a key has one more record: the hash of the request, and the reply. It requires that this
//! record is absent, so that of any number of repetitions, at any time and through any server, one is carried out, and
//! each of the others gets the reply of that one. A failure is not recorded, because it has no commit.
//!
//! The reply must be known before the commit. A method with a key therefore runs with a [`Context`] that keeps its write
//! instead of handing it to the store; [`Platform`] adds the record to the write when the method has returned, and commits
//! both. A repetition runs the method too, and the record is looked up only when the method or its commit has failed. So
//! the first request costs no further read, and a caller who has lost access since then gets no reply but an empty one.
//!
//! [`Context`]: crate::context::Context
//! [`Platform`]: crate::platform::Platform

use std::fmt;

pub mod record;

/// The name of the header of a key, and of the metadata of a gRPC call.
pub const HEADER: &str = "idempotency-key";

/// The name of the header, and of the gRPC metadata, of a reply that was [replayed](crate::etag::Reply::is_replayed).
pub const REPLAYED: &str = "idempotency-replayed";

/// The maximum length of a key in bytes. Our choice.
pub const MAX_KEY: usize = 255;

/// The time for which a reply is kept, in milliseconds: 24 hours. Our choice.
pub const KEPT_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The maximum length of a reply that is recorded, in bytes. Our choice: four times the longest resource that a caller can
/// send.
pub const MAX_REPLY: usize = 1 << 20;

/// A key that a client has chosen for one write: 1 to [`MAX_KEY`] visible ASCII characters. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// Parses the value of the header: the key itself, or the string of a structured field (RFC 9651 section 3.3.3), in
    /// double quotes, as in the draft. Both forms of a key are the same key.
    ///
    /// # Errors
    /// The rule that the value breaks.
    pub fn parse(value: &[u8]) -> Result<Self, &'static str> {
        const RULE: &str = "must have 1 to 255 visible ASCII characters, or these in double quotes";
        let value = value.trim_ascii();
        let key = match value {
            [b'"', quoted @ ..] => quoted.strip_suffix(b"\"").and_then(unescaped).ok_or(RULE)?,
            bare => bare.to_vec(),
        };
        let is_valid = (1..=MAX_KEY).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
        let key = String::from_utf8(key).ok().filter(|_| is_valid);
        key.map(|key| Self(key.into())).ok_or(RULE)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the text of a quoted string, in which a backslash precedes each double quote and each backslash.
fn unescaped(quoted: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut rest) = (Vec::with_capacity(quoted.len()), quoted.iter());
    while let Some(byte) = rest.next() {
        text.push(match byte {
            b'"' => return None,
            b'\\' => *rest.next().filter(|escaped| matches!(escaped, b'"' | b'\\'))?,
            byte => *byte,
        });
    }
    Some(text)
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_bare_or_quoted_and_has_1_to_255_visible_ascii_characters() {
        let long = "a".repeat(MAX_KEY);
        for (value, parsed) in [
            ("a", Some("a")),
            (" 8e03978e-40d5-43dd-bc93-6894a57f9324 ", Some("8e03978e-40d5-43dd-bc93-6894a57f9324")),
            ("\"a\"", Some("a")),
            (r#""a\"b\\c""#, Some(r#"a"b\c"#)),
            (&long, Some(&*long)),
            (&format!("\"{long}\""), Some(&*long)),
            ("", None),
            ("\"\"", None),
            ("a b", None),
            ("\"a b\"", None),
            ("\"a", None),
            ("\"", None),
            ("\"a\"b\"", None),
            (r#""a\""#, None),
            (r#""a\b""#, None),
            ("é", None),
            ("a\u{7f}", None),
            (&format!("{long}a"), None),
        ] {
            let key = IdempotencyKey::parse(value.as_bytes()).ok();
            assert_eq!(key.as_ref().map(|key| &*key.0), parsed, "{value}");
        }
    }
}
