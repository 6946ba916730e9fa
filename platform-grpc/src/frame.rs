//! The one message of a unary call, read within the limits of its size and time.

use bytes::{Buf, Bytes};
use http_body::Body;
use platform_core::error::{Code, Error, Result};
use platform_http::{BoxError, Limits, NoRoom, Unread, read as read_body};

/// How many bytes stand before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Reads the message, with its prefix.
///
/// # Errors
/// INVALID_ARGUMENT for one that is too large or not whole, and for more than one; DEADLINE_EXCEEDED for one that is
/// not sent; RESOURCE_EXHAUSTED when there is no room for it.
pub(crate) async fn read<B>(body: B, limits: &Limits) -> Result<Bytes>
where
    B: Body<Error: Into<BoxError>>,
{
    let broken = || Error::invalid_field("message", "was not sent to its end");
    let bytes = read_body(body, limits.body.saturating_add(PREFIX), limits.body_time).await;
    let bytes = bytes.map_err(|unread| match unread {
        // The same as REST says, since clients repeat what is refused otherwise, and this would be refused again.
        Unread::TooLarge => Error::invalid_field("message", format!("is larger than {} bytes", limits.body)),
        Unread::TooSlow => Error::new(Code::DeadlineExceeded, "The message took too long to arrive"),
        Unread::NoRoom => NoRoom.into(),
        Unread::Broken(error) => broken().because(error),
    })?;
    match whole(&bytes) {
        Some(true) => Ok(bytes),
        Some(false) => Err(Error::invalid_field("message", "is followed by more, and the call takes one")),
        None => Err(broken()),
    }
}

/// Tells whether these are one message and nothing else. None when it is not whole.
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
