//! The entries of sled's tree. The first byte of a key is the type of the entry.
//!
//! | First byte | Key | Value |
//! |---|---|---|
//! | `h` | | the header: number of the last batch, checksum |
//! | `0` to `9` | a key of the space with this number, escaped | 0 and the value, or 1 and the number of its pieces |
//! | `p` | the key of an entry, number of the piece | a piece of a long value |
//! | `x` | | padding of sled's log, which a crash may leave; it has no meaning |
//!
//! There is one tree because sled writes batches atomically only within a tree. The contents of the spaces are the engine's:
//! see `platform_store_kv`, which also has the checksums of its values.
//!
//! Long values are split because sled keeps some 17 values in a node of its tree, writes the whole node now and then, and
//! gives one that is longer than 128 KiB a file of its own (a blob), which it does not sync. With values of up to 4 KiB, and
//! the long keys of the engine at values of a few bytes, no node gets so long.

use std::{borrow::Cow, sync::Arc};

use platform_engine::store::StoreError;
use platform_store_kv::backend::Space;
use sled::IVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::error::corrupt;

/// The version of this layout. A store with another version is not opened.
pub(crate) const VERSION: u32 = 2;
/// The format of a store's directory, with the version of the layout.
pub(crate) const FORMAT: &str = "sled 0.34, layout 2";

pub(crate) const HEADER: &[u8] = b"h";
pub(crate) const PADDING: &[u8] = b"x";
const PIECE: u8 = b'p';
/// The first byte of the keys of the first space.
const SPACES: u8 = b'0';

/// The length of a piece: that of a node of the engine's trees, which so has no more than one.
pub(crate) const PIECE_LEN: usize = 4_096;
/// The greatest number of pieces of a value, which two bytes of less than 128 can number.
pub(crate) const MAX_PIECES: usize = 1 << 14;

// ---- keys ----

/// Returns the key of an entry.
///
/// Bytes of 254 and 255 are escaped, so that no key has a byte of 255, because of a bug in sled's reverse iteration: it
/// seeks the predecessor of a key by decrementing the last byte and appending four bytes of 255. If a key is greater than
/// the result and still less than the original key, the iteration loops until it panics.
pub(crate) fn entry(space: Space, key: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(key.len() + 8);
    entry.push(SPACES + space.number());
    for byte in key {
        match byte {
            254 => entry.extend([254, 1]),
            255 => entry.extend([254, 2]),
            other => entry.push(*other),
        }
    }
    entry
}

/// Returns the key that follows all entries of a space.
pub(crate) fn end(space: Space) -> Vec<u8> {
    vec![SPACES + space.number() + 1]
}

/// Returns the key in its space of an entry.
pub(crate) fn key(entry: &[u8]) -> Result<Cow<'_, [u8]>, StoreError> {
    let escaped = entry.get(1..).unwrap_or_default();
    if !escaped.contains(&254) {
        return Ok(Cow::Borrowed(escaped));
    }
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            254 => match bytes.next() {
                Some(1) => 254,
                Some(2) => 255,
                _ => return Err(malformed(entry)),
            },
            other => *other,
        });
    }
    Ok(Cow::Owned(key))
}

/// Returns the key of a piece, numbered from 0.
pub(crate) fn piece(entry: &[u8], number: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(entry.len() + 3);
    key.push(PIECE);
    key.extend_from_slice(entry);
    key.extend([(number >> 7) as u8 & 127, number as u8 & 127]);
    key
}

/// Returns the entry that a piece belongs to.
pub(crate) fn entry_of_piece(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[PIECE])?.split_last_chunk::<2>().map(|(entry, _)| entry)
}

/// Returns whether a key is that of an entry.
pub(crate) fn is_entry(key: &[u8]) -> bool {
    key.first().is_some_and(|first| (SPACES..SPACES + Space::ALL.len() as u8).contains(first))
}

// ---- values ----

/// A value of a space.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// It follows the first byte.
    Whole(IVec),
    Joined(Arc<[u8]>),
}

impl Value {
    /// Returns the value that is stored in this way.
    pub(crate) fn read(
        entry: &[u8],
        stored: IVec,
        get: impl Fn(&[u8]) -> Result<Option<IVec>, StoreError>,
    ) -> Result<Self, StoreError> {
        match pieces(&stored) {
            Some(0) => Ok(Self::Whole(stored)),
            Some(count) => {
                let mut value = Vec::with_capacity(count * PIECE_LEN);
                for number in 0..count {
                    let part = get(&piece(entry, number))?;
                    value.extend_from_slice(&part.ok_or_else(|| malformed(entry))?);
                }
                Ok(Self::Joined(value.into()))
            }
            None => Err(malformed(entry)),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(stored) => stored.get(1..).unwrap_or_default(),
            Self::Joined(value) => value,
        }
    }

    /// Returns the number of its pieces.
    pub(crate) fn pieces(&self) -> usize {
        match self {
            Self::Whole(_) => 0,
            Self::Joined(value) => value.len().div_ceil(PIECE_LEN),
        }
    }
}

/// Returns the number of pieces of a stored value, 0 if it is not split; `None` if it is malformed.
pub(crate) fn pieces(stored: &[u8]) -> Option<usize> {
    match stored.split_first()? {
        (0, _) => Some(0),
        (1, count) => usize::try_from(u32::from_le_bytes(count.try_into().ok()?)).ok().filter(|n| *n <= MAX_PIECES),
        _ => None,
    }
}

/// Returns how a value is stored, and its pieces.
pub(crate) fn store(value: &[u8]) -> (Vec<u8>, impl ExactSizeIterator<Item = &[u8]>) {
    let is_whole = value.len() <= PIECE_LEN;
    let pieces = if is_whole { [].chunks(PIECE_LEN) } else { value.chunks(PIECE_LEN) };
    let stored = if is_whole {
        [&[0], value].concat()
    } else {
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        [&[1][..], &count.to_le_bytes()].concat()
    };
    (stored, pieces)
}

pub(crate) fn malformed(entry: &[u8]) -> StoreError {
    corrupt(format!("the entry \"{}\" is malformed", entry.escape_ascii()))
}

// ---- the header ----

/// Returns the header of a store after a batch.
pub(crate) fn header(batch: u64) -> Vec<u8> {
    seal(HEADER, &batch.to_le_bytes())
}

/// Returns the number of the last batch.
pub(crate) fn read_header(stored: &[u8]) -> Option<u64> {
    unseal(HEADER, stored)?.try_into().ok().map(u64::from_le_bytes)
}

/// Appends a checksum to a value, which covers its key too.
pub(crate) fn seal(key: &[u8], payload: &[u8]) -> Vec<u8> {
    [payload, &xxh3_64_with_seed(payload, xxh3_64(key)).to_le_bytes()].concat()
}

/// Returns a value without its checksum, if that is right.
pub(crate) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (payload, sum) = stored.split_last_chunk()?;
    (xxh3_64_with_seed(payload, xxh3_64(key)) == u64::from_le_bytes(*sum)).then_some(payload)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_sort_like_their_keys_and_have_no_byte_of_255(
            keys in proptest::collection::vec(proptest::collection::vec(prop_oneof![250..=255_u8, 0..3_u8], 0..6), 2),
        ) {
            let entries: Vec<_> = keys.iter().map(|key| entry(Space::Entries, key)).collect();
            prop_assert_eq!(keys[0].cmp(&keys[1]), entries[0].cmp(&entries[1]));
            for (raw, stored) in keys.iter().zip(&entries) {
                prop_assert!(!stored.contains(&255));
                prop_assert_eq!(&*key(stored).unwrap(), raw.as_slice());
                prop_assert!(entry(Space::Entries, &[]) <= *stored && *stored < end(Space::Entries));
            }
        }

        #[test]
        fn a_value_of_any_length_is_read_back(len in prop_oneof![0..3_usize, PIECE_LEN - 1..PIECE_LEN + 2, 0..40_000_usize]) {
            let value: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
            let entry = entry(Space::Records, b"key");
            let (stored, parts) = store(&value);
            let parts: BTreeMap<_, _> = parts.enumerate().map(|(at, part)| (piece(&entry, at), IVec::from(part))).collect();
            let read = Value::read(&entry, stored.into(), |key| Ok(parts.get(key).cloned())).unwrap();
            prop_assert_eq!(read.bytes(), value.as_slice());
            prop_assert_eq!(read.pieces(), parts.len());
        }
    }

    #[test]
    fn the_key_of_a_piece_belongs_to_one_entry() {
        let (short, long) = (entry(Space::Records, b"a"), entry(Space::Records, b"ab"));
        let pieces = [&short, &long].map(|entry| [0, 127, 128, MAX_PIECES - 1].map(|number| piece(entry, number)));
        let all: std::collections::BTreeSet<_> = pieces.as_flattened().iter().collect();
        assert_eq!(all.len(), 8);
        assert!(pieces[0].iter().all(|key| entry_of_piece(key) == Some(&short[..]) && !key.contains(&255)));
        assert!(pieces[1].iter().all(|key| entry_of_piece(key) == Some(&long[..])));
    }

    #[test]
    fn a_header_has_a_checksum_and_the_format_the_version() {
        assert_eq!(read_header(&header(7)), Some(7));
        assert_eq!(read_header(&header(7)[1..]), None);
        assert!(FORMAT.ends_with(&format!("layout {VERSION}")));
    }
}
