//! Denials that name what was missing.

use super::Error;

/// The requirements of a denied request, for the code that decides what the caller may know of it. Clients see it only as the
/// metadata that explain it ([`Error::with_metadata`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// The uid that access was decided for.
    pub place: String,
    /// The names of the capabilities that the caller does not hold there.
    pub missing: Vec<&'static str>,
}

impl Error {
    /// Returns PERMISSION_DENIED, as [`Error::denied`] does, for a request at this uid that requires these capabilities,
    /// too.
    pub fn denied_at(place: &str, missing: Vec<&'static str>) -> Self {
        let mut error = Self::denied();
        error.0.denial = Some(Denial { place: place.to_owned(), missing });
        error
    }

    /// Returns what a denied request required; `None` for other errors, and for denials without a place.
    pub fn denial(&self) -> Option<&Denial> {
        self.0.denial.as_ref()
    }

    /// Sets the metadata of the ErrorInfo: pairs of a key and a value. Keys match `[a-z][a-zA-Z0-9-_]+` (AIP-193).
    #[must_use]
    pub fn with_metadata(mut self, metadata: Vec<(&'static str, String)>) -> Self {
        self.0.metadata = metadata;
        self
    }

    /// Returns a value of the metadata of the ErrorInfo.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.0.metadata.iter().find_map(|(name, value)| (*name == key).then_some(value.as_str()))
    }
}
