//! Replies in parts: a long message is encoded in steps, and sent without a copy of the whole, which would take
//! milliseconds in which the thread answers no other request.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    vec,
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use platform_engine::error::{Error, Result};
use platform_http::{Origin, ReplyCharge};
use tonic::Status;

use crate::frame::PREFIX;

/// The length in bytes at which a part is full. Our choice: tonic copies a message of one part.
pub(crate) const PART: usize = 64 << 10;

/// A message in parts, which are charged to the budget of replies.
#[derive(Debug)]
pub(crate) struct Parts {
    parts: Vec<Bytes>,
    bytes: usize,
    charge: ReplyCharge,
}

impl Parts {
    /// Returns a message without parts.
    pub(crate) fn new(origin: &Origin) -> Self {
        Self { parts: Vec::new(), bytes: 0, charge: origin.reply_in_parts() }
    }

    /// Returns a message that is already encoded, without a copy.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when unread replies use too much memory.
    pub(crate) fn of(origin: &Origin, mut message: Bytes) -> Result<Self> {
        let mut parts = Self::new(origin);
        while !message.is_empty() {
            parts.push(message.split_to(message.len().min(PART)))?;
        }
        Ok(parts)
    }

    /// Adds a part.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when unread replies use too much memory.
    pub(crate) fn push(&mut self, part: impl Into<Bytes>) -> Result<()> {
        let part = part.into();
        self.charge.take(part.len())?;
        self.bytes += part.len();
        self.parts.push(part);
        Ok(())
    }

    /// Returns the length of the message in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the message if it is only one part.
    pub(crate) fn single(&mut self) -> Option<Bytes> {
        if self.parts.len() > 1 { None } else { Some(self.parts.pop().unwrap_or_default()) }
    }

    /// Returns the body of a response with this message.
    ///
    /// # Errors
    /// INTERNAL for a message of more than 4 GiB.
    pub(crate) fn into_body(self) -> Result<tonic::body::Body> {
        let mut prefix = BytesMut::with_capacity(PREFIX);
        prefix.put_u8(0);
        prefix.put_u32(u32::try_from(self.bytes).map_err(Error::internal)?);
        let mut trailers = HeaderMap::new();
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        let Self { parts, charge, .. } = self;
        let body =
            PartsBody { prefix: Some(prefix.freeze()), parts: parts.into_iter(), charge, trailers: Some(trailers) };
        Ok(tonic::body::Body::new(body))
    }
}

/// The body of a response with a message in parts.
struct PartsBody {
    prefix: Option<Bytes>,
    parts: vec::IntoIter<Bytes>,
    charge: ReplyCharge,
    trailers: Option<HeaderMap>,
}

impl Body for PartsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.prefix.take() {
            Some(prefix) => Some(prefix),
            None => {
                let part = self.parts.next();
                // The listener charges for it from here on.
                self.charge.release(part.as_ref().map_or(0, Bytes::len));
                part
            }
        };
        Poll::Ready(data.map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none()
    }
}
