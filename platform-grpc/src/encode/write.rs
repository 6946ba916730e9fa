//! The subset of protobuf's wire format that the contract needs.

/// The wire types of the fields that are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WireType {
    Varint = 0,
    LengthDelimited = 2,
}

/// A buffer of messages under construction.
///
/// The fields of a message may be written in any order; closing the message sorts them by number. Nothing is allocated
/// per message except space for its bytes.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The field numbers of all open messages, each with the offset at which the field starts.
    starts: Vec<(u32, usize)>,
    sorted: Vec<u8>,
}

/// An open message: its first index in `starts`, and the offset at which its fields start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    starts: usize,
    start: usize,
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Opens a message. Its key and length, if it has them, must be written before.
    pub(crate) fn open(&self) -> Open {
        Open { starts: self.starts.len(), start: self.bytes.len() }
    }

    /// Closes a message and sorts its fields by number.
    pub(crate) fn close(&mut self, open: Open) {
        let Self { bytes, starts, sorted } = self;
        let fields = starts.get_mut(open.starts..).unwrap_or_default();
        if !fields.is_sorted_by_key(|(number, _)| *number) {
            let mut end = bytes.len();
            // Replaces the start of each field by its length, from the last field to the first.
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
        starts.truncate(open.starts);
    }

    /// Starts a field of the message that was opened last.
    pub(crate) fn field(&mut self, number: u32) {
        self.starts.push((number, self.bytes.len()));
    }

    pub(crate) fn key(&mut self, number: u32, wire: WireType) {
        self.varint(u64::from(number << 3 | wire as u32));
    }

    /// Writes a number in groups of seven bits, the lowest first. All but the last have the highest bit set.
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Writes a length and the bytes.
    pub(crate) fn delimited(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a message that is already encoded, without a length.
    pub(crate) fn append(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
    }

    /// Returns what was written since this offset.
    pub(crate) fn written(&self, since: usize) -> &[u8] {
        self.bytes.get(since..).unwrap_or_default()
    }

    /// Reserves one byte for a length, and returns the offset at which the content starts.
    pub(crate) fn length(&mut self) -> usize {
        self.bytes.push(0);
        self.bytes.len()
    }

    /// Writes the length of the content that starts at `start`, and moves the content when the length needs more than
    /// the one reserved byte.
    pub(crate) fn end_length(&mut self, start: usize) {
        let length = self.bytes.len().saturating_sub(start);
        let more = prost::length_delimiter_len(length).saturating_sub(1);
        if more > 0 {
            self.bytes.resize(self.bytes.len() + more, 0);
            self.bytes.copy_within(start..start + length, start + more);
        }
        let mut place = self.bytes.get_mut(start.saturating_sub(1)..).unwrap_or_default();
        let written = prost::encode_length_delimiter(length, &mut place);
        debug_assert!(written.is_ok(), "the place has the length of the delimiter");
    }

    /// Returns the number of bytes written.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Discards everything after the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}
