//! The encoding of a record: its revision, keys, body and private part, split into pieces if it is large.

use platform_engine::store::{KeyValue, Put, StoreError};
use sled::IVec;
use xxhash_rust::xxh3::xxh3_64;

use super::{Reader, SEAL_LEN, followed_by, piece_key, push_bytes, record_key, unseal};
use crate::error::corrupt;

/// The maximum length of a value; longer records are split. sled moves pages of more than 128 KiB to separate files
/// that it never syncs; with some twenty values in a page, this length keeps pages well below that.
const PIECE_LEN: usize = 3 * 1024;

/// A record as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    bytes: Bytes,
    /// The checksum of the value under the record's key.
    pub(crate) seal: u64,
    /// The number of its pieces; 0 if the record is stored whole under its key.
    pub(crate) pieces: u32,
}

#[derive(Debug, Clone)]
enum Bytes {
    /// The stored value: a tag byte, the record, and the checksum.
    Inline(IVec),
    /// The record, joined from its pieces.
    Joined(Vec<u8>),
}

const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;

impl Stored {
    /// Decodes the value under a record's key; `piece` returns the value under the key of a piece.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if a checksum does not match or a piece is missing.
    pub(crate) fn read(
        kind: &str,
        uid: &str,
        stored: IVec,
        mut piece: impl FnMut(&[u8]) -> Result<Option<IVec>, StoreError>,
    ) -> Result<Self, StoreError> {
        let key = record_key(kind, uid);
        let (payload, seal) = unseal(&key, &stored)?;
        let broken = || corrupt(format!("the record {kind} {uid} cannot be assembled"));
        match payload.split_first().ok_or_else(broken)? {
            (&WHOLE, _) => Ok(Self { bytes: Bytes::Inline(stored), seal, pieces: 0 }),
            (&IN_PIECES, rest) => {
                let mut reader = Reader(rest);
                let (pieces, hash) = reader.u32().zip(reader.u64()).ok_or_else(broken)?;
                let mut joined = Vec::new();
                for number in 0..pieces {
                    let key = piece_key(kind, uid, number);
                    let stored = piece(&key)?.ok_or_else(broken)?;
                    joined.extend_from_slice(unseal(&key, &stored)?.0);
                }
                // The seals of pieces do not show that all pieces are of the same version of the record.
                if xxh3_64(&joined) != hash {
                    return Err(broken());
                }
                Ok(Self { bytes: Bytes::Joined(joined), seal, pieces })
            }
            _ => Err(broken()),
        }
    }

    /// Returns the record's parts.
    pub(crate) fn row(&self) -> Result<Row<'_>, StoreError> {
        let payload = match &self.bytes {
            Bytes::Inline(stored) => stored.get(1..stored.len().saturating_sub(SEAL_LEN)).unwrap_or_default(),
            Bytes::Joined(joined) => joined,
        };
        Row::parse(payload).ok_or_else(|| corrupt("a record is malformed"))
    }

    /// Splits an encoded record into the value under its key and the pieces to store.
    pub(crate) fn split(payload: &[u8]) -> (Vec<u8>, Vec<&[u8]>) {
        if payload.len() <= PIECE_LEN {
            return (followed_by(vec![WHOLE], payload), Vec::new());
        }
        let pieces: Vec<&[u8]> = payload.chunks(PIECE_LEN).collect();
        let mut head = vec![IN_PIECES];
        head.extend(u32::try_from(pieces.len()).unwrap_or(u32::MAX).to_le_bytes());
        head.extend(xxh3_64(payload).to_le_bytes());
        (head, pieces)
    }
}

/// The parts of a record, borrowed from its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) revision: u64,
    pub(crate) rendering: u16,
    pub(crate) sort: Entries<'a>,
    pub(crate) filter: Entries<'a>,
    pub(crate) unique: Entries<'a>,
    pub(crate) body: &'a [u8],
    pub(crate) private: &'a [u8],
}

impl<'a> Row<'a> {
    /// Encodes a record that the commit with this sequence puts.
    pub(crate) fn encode(put: &Put, revision: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(put.body.len() + put.private.len() + 256);
        bytes.extend(revision.to_le_bytes());
        bytes.extend(put.rendering.to_le_bytes());
        let sort = put.sort.iter().map(|(name, value)| (*name, value));
        let filter = put.filter.iter().map(|(name, value)| (*name, value));
        let unique = put.unique.iter().map(|unique| (unique.space, &unique.value));
        push_bytes(&mut bytes, &Entries::encode(sort));
        push_bytes(&mut bytes, &Entries::encode(filter));
        push_bytes(&mut bytes, &Entries::encode(unique));
        push_bytes(&mut bytes, &put.body);
        push_bytes(&mut bytes, &put.private);
        bytes
    }

    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(Self {
            revision: reader.u64()?,
            rendering: reader.u16()?,
            sort: Entries(reader.bytes()?),
            filter: Entries(reader.bytes()?),
            unique: Entries(reader.bytes()?),
            body: reader.bytes()?,
            private: reader.bytes()?,
        })
    }

    /// Returns the record's value under a sort key; empty if it has none.
    pub(crate) fn sort_value(&self, name: &str) -> &'a [u8] {
        self.sort.iter().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
    }

    /// Returns the record's filter keys and values, sorted and without duplicates.
    pub(crate) fn filters(&self) -> Vec<(&'a str, &'a [u8])> {
        let mut filters: Vec<_> = self.filter.iter().collect();
        filters.sort_unstable();
        filters.dedup();
        filters
    }
}

/// Encoded names and values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// Iterates over the names and values in stored order. Ends early if the bytes are malformed.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let mut reader = Reader(self.0);
        std::iter::from_fn(move || {
            let name = std::str::from_utf8(reader.bytes()?).ok()?;
            Some((name, reader.bytes()?))
        })
    }

    fn encode<'b>(entries: impl Iterator<Item = (&'b str, &'b KeyValue)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in entries {
            push_bytes(&mut bytes, name.as_bytes());
            push_bytes(&mut bytes, value.as_bytes());
        }
        bytes
    }
}
