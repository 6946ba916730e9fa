//! The errors of idempotency keys.

use super::{Error, Inner};
use crate::idempotency::HEADER;

/// The reason of [`Error::idempotency_key_reused`].
const KEY_REUSED: &str = "IDEMPOTENCY_KEY_REUSED";

impl Error {
    /// Returns INVALID_ARGUMENT with the reason `IDEMPOTENCY_KEY_REUSED`, for a request with the idempotency key of another
    /// one of the same caller. Nothing was changed.
    pub(crate) fn idempotency_key_reused() -> Self {
        let error = Self::invalid_field(HEADER, "was used for another request in the last 24 hours; use a new key");
        Self(Box::new(Inner { reason: Some(KEY_REUSED), ..*error.0 }))
    }
}
