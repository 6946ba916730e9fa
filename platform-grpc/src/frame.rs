//! The one message of a unary call, read within the limits of its size and time.

use bytes::{Buf, Bytes};
use http_body::Body;
use platform_core::error::{Code, Error, Result};
use platform_http::{BoxError, Limits, OverBudget, ReadError, read_body};

/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Reads the message, with its prefix.
///
/// # Errors
/// INVALID_ARGUMENT for one that is too large or incomplete, and for more than one; DEADLINE_EXCEEDED for one that does
/// not arrive; RESOURCE_EXHAUSTED when it exceeds a budget.
pub(crate) async fn read<B>(body: B, limits: &Limits) -> Result<Bytes>
where
    B: Body<Error: Into<BoxError>>,
{
    let broken = || Error::invalid_field("message", "was not sent to its end");
    let bytes = read_body(body, limits.body.saturating_add(PREFIX), limits.body_time).await;
    let bytes = bytes.map_err(|unread| match unread {
        // The same code as over REST: clients would retry RESOURCE_EXHAUSTED, and be refused again.
        ReadError::TooLarge => Error::invalid_field("message", format!("is larger than {} bytes", limits.body)),
        ReadError::TooSlow => Error::new(Code::DeadlineExceeded, "The message took too long to arrive"),
        ReadError::OverBudget => OverBudget.into(),
        ReadError::Broken(error) => broken().because(error),
    })?;
    match whole(&bytes) {
        Some(true) => Ok(bytes),
        Some(false) => Err(Error::invalid_field("message", "is followed by more, and the call takes one")),
        None => Err(broken()),
    }
}

/// Returns whether these are exactly one message. None when it is incomplete.
fn whole(mut bytes: &[u8]) -> Option<bool> {
    let length = bytes.len().checked_sub(PREFIX)?;
    bytes.advance(1);
    let announced = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (announced <= length).then_some(announced == length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_one_whole_message() {
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
            assert_eq!(whole(bytes), expected, "{bytes:?}");
        }
    }
}
