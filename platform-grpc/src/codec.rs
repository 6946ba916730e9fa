//! A tonic codec that passes messages through as bytes, for servers and clients that encode them by other means.

use bytes::{Buf, BufMut, Bytes};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// The initial capacity of a reply's buffer, in bytes. It grows for longer replies.
const BUFFER: usize = 1 << 10;

/// A tonic codec that passes bytes through in both directions. tonic still adds and removes the frame prefix.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsBytes;

impl Codec for AsBytes {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(message.len());
        to.put(message);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}

impl Decoder for AsBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}
