//! Digests of the content of images.

use std::{fmt, ops::Deref};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The SHA-256 digest of an image: `sha256:` and 64 lower-case hexadecimal digits.
///
/// Reading one does not validate it: the field's rule has validated the text of a request, and stored texts are
/// trusted. The default is the empty text, of a resource that has no digest yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

/// The error for a text that is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidDigest;

impl fmt::Display for InvalidDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "digest must match {:?}", Digest::PATTERN)
    }
}

impl std::error::Error for InvalidDigest {}

impl Digest {
    /// The regular expression (ECMA-262) of digests.
    pub const PATTERN: &str = "^sha256:[0-9a-f]{64}$";

    /// Requires a digest, as the check of a field.
    ///
    /// # Errors
    /// The rule that the value breaks.
    pub fn check(value: &Value) -> Result<(), String> {
        Self::parse(value.as_str().unwrap_or_default()).map(drop).map_err(|rule| rule.to_string())
    }

    /// Parses a digest.
    ///
    /// # Errors
    /// [`InvalidDigest`] for a text that does not match [`Digest::PATTERN`].
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let hex = |digits: &str| digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match text.strip_prefix("sha256:") {
            Some(digits) if hex(digits) => Ok(Self(text.to_owned())),
            _ => Err(InvalidDigest),
        }
    }

    /// Returns a digest with this text, without validation.
    pub fn opaque(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Deref for Digest {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
