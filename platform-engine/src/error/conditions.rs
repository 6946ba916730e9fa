//! Errors of preconditions that do not hold or cannot be checked (RFC 9110 section 13.1).

use super::{Code, Error, Inner};
use crate::etag::Tag;

/// The reason of [`Error::etag_mismatch`].
const ETAG_MISMATCH: &str = "ETAG_MISMATCH";

/// The reason of [`Error::not_modified`].
const NOT_MODIFIED: &str = "NOT_MODIFIED";

/// The type of the violation of [`Error::unchecked_condition`].
const NOT_SUPPORTED: &str = "CONDITION_NOT_SUPPORTED";

impl Error {
    /// Returns ABORTED with the reason `ETAG_MISMATCH`, for a precondition that does not hold. Its metadata has the current
    /// tag of the resource, `None` for a caller who may not read it. It has no RetryInfo: a repetition would fail, too.
    pub fn etag_mismatch(current: Option<Tag>) -> Self {
        let message = "The resource does not have the state that the precondition requires; read it again";
        Self::of_condition(ETAG_MISMATCH, message, current)
    }

    /// Returns ABORTED with the reason `NOT_MODIFIED`, for a read whose precondition names the current representation,
    /// over a transport without a status for it.
    pub fn not_modified(current: Option<Tag>) -> Self {
        Self::of_condition(NOT_MODIFIED, "The resource still has the state that the precondition names", current)
    }

    /// Returns FAILED_PRECONDITION of the type CONDITION_NOT_SUPPORTED, for a precondition in this header that the method
    /// does not check. Nothing was changed.
    pub fn unchecked_condition(header: &str) -> Self {
        Self::blocked(NOT_SUPPORTED, format!("this method does not check {header}"))
    }

    fn of_condition(reason: &'static str, message: &str, etag: Option<Tag>) -> Self {
        let error = Self::new(Code::Aborted, message);
        Self(Box::new(Inner { reason: Some(reason), etag, ..*error.0 }))
    }

    /// Returns whether a precondition of the request is the reason: it does not hold, or is not checked. HTTP has a status
    /// for this.
    pub fn is_of_condition(&self) -> bool {
        let is_unchecked =
            |detail: &super::Detail| matches!(detail, super::Detail::PreconditionFailure { kind: NOT_SUPPORTED, .. });
        self.0.reason == Some(ETAG_MISMATCH) || self.0.details.iter().any(is_unchecked)
    }
}
