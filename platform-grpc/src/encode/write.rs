//! Protobuf's wire format, as far as the contract needs it.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Bytes of messages in the making.
///
/// A message's fields may be written in any order and are put into that of their numbers when it ends. Nothing is
/// allocated for a message but room for its bytes.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The number of each field of the messages that are open, and where it begins.
    begun: Vec<(u32, usize)>,
    sorted: Vec<u8>,
}

/// A message that is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    begun: usize,
    start: usize,
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Begins a message, behind its key and length where it has them.
    pub(crate) fn open(&self) -> Open {
        Open { begun: self.begun.len(), start: self.bytes.len() }
    }

    /// Ends a message, whose fields are then in the order of their numbers.
    pub(crate) fn close(&mut self, open: Open) {
        let Self { bytes, begun, sorted } = self;
        let fields = begun.get_mut(open.begun..).unwrap_or_default();
        if !fields.is_sorted_by_key(|(number, _)| *number) {
            let mut end = bytes.len();
            // From where each field begins, and back, to how long it is.
            for (_, start) in fields.iter_mut().rev() {
                let length = end - *start;
                end = *start;
                *start = length;
            }
            let mut at = open.start;
            let mut places: Vec<(u32, usize, usize)> = Vec::with_capacity(fields.len());
            for (number, length) in fields.iter() {
                places.push((*number, at, *length));
                at += length;
            }
            places.sort_by_key(|(number, ..)| *number);
            sorted.clear();
            for (_, start, length) in places {
                sorted.extend_from_slice(bytes.get(start..start + length).unwrap_or_default());
            }
            bytes.truncate(open.start);
            bytes.extend_from_slice(sorted);
        }
        begun.truncate(open.begun);
    }

    /// Begins a field of the message that was opened last.
    pub(crate) fn field(&mut self, number: u32) {
        self.begun.push((number, self.bytes.len()));
    }

    pub(crate) fn key(&mut self, number: u32, wire: WireType) {
        encode_key(number, wire, &mut self.bytes);
    }

    pub(crate) fn varint(&mut self, value: u64) {
        encode_varint(value, &mut self.bytes);
    }

    /// Writes a length and bytes.
    pub(crate) fn delimited(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Leaves room for a length of one byte; returns where what it is of begins.
    pub(crate) fn length(&mut self) -> usize {
        self.bytes.push(0);
        self.bytes.len()
    }

    /// Writes the length of all from here, and moves it where the length takes more than a byte.
    pub(crate) fn end_length(&mut self, start: usize) {
        let length = self.bytes.len().saturating_sub(start);
        let more = encoded_len_varint(length as u64).saturating_sub(1);
        if more > 0 {
            self.bytes.resize(self.bytes.len() + more, 0);
            self.bytes.copy_within(start..start + length, start + more);
        }
        let mut place = self.bytes.get_mut(start.saturating_sub(1)..).unwrap_or_default();
        encode_varint(length as u64, &mut place);
    }

    /// Returns how many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was written from here.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}
