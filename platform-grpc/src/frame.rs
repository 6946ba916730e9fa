//! Reads the single message of a unary call within limits of size and time.

use bytes::{Buf, Bytes};
use http_body::Body;
use platform_engine::error::{Code, Error, Result};
use platform_http::{BoxError, Limits, OverBudget, ReadError, read_body};

/// The length of the prefix of each message, in bytes: a compression flag and a 32-bit length.
pub(crate) const PREFIX: usize = 5;

/// Reads the message, including its prefix.
///
/// # Errors
/// INVALID_ARGUMENT for a message that is too large or incomplete, and for more than one; DEADLINE_EXCEEDED for a
/// message that does not arrive in time; RESOURCE_EXHAUSTED when it exceeds a budget.
pub(crate) async fn read<B>(body: B, limits: &Limits) -> Result<Bytes>
where
    B: Body<Error: Into<BoxError>>,
{
    let incomplete = || Error::invalid_field("message", "is incomplete");
    let bytes = read_body(body, limits.body.saturating_add(PREFIX), limits.body_time).await;
    let bytes = bytes.map_err(|unread| match unread {
        // The same code as over REST. Clients would retry RESOURCE_EXHAUSTED, only to be rejected again.
        ReadError::TooLarge => Error::invalid_field("message", format!("is larger than {} bytes", limits.body)),
        ReadError::TooSlow => Error::new(Code::DeadlineExceeded, "The message took too long to arrive"),
        ReadError::OverBudget => OverBudget.into(),
        ReadError::Broken(error) => incomplete().because(error),
    })?;
    match is_single_message(&bytes) {
        Some(true) => Ok(bytes),
        Some(false) => Err(Error::invalid_field("message", "must be the only message of the call")),
        None => Err(incomplete()),
    }
}

/// Returns whether the bytes are exactly one message; None when the message is incomplete.
fn is_single_message(mut bytes: &[u8]) -> Option<bool> {
    let length = bytes.len().checked_sub(PREFIX)?;
    bytes.advance(1);
    let announced = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (announced <= length).then_some(announced == length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_exactly_one_complete_message() {
        for (bytes, expected) in [
            (&[0, 0, 0, 0, 0][..], Some(true)),
            (&[0, 0, 0, 0, 2, 1, 2], Some(true)),
            (&[1, 0, 0, 0, 1, 1], Some(true)),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Some(false)),
            (&[0, 0, 0, 0, 1, 1, 7], Some(false)),
            (&[], None),
            (&[0, 0, 0, 0], None),
            (&[0, 0, 0, 0, 2, 1], None),
            (&[0, 255, 255, 255, 255], None),
        ] {
            assert_eq!(is_single_message(bytes), expected, "{bytes:?}");
        }
    }
}
