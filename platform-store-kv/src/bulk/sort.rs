//! Sorting of more entries than should be in memory: sorted runs in temporary files, which are merged.
//!
//! In a run, each key is stored as the length of the prefix that it shares with the key before it, and the rest.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
};

use platform_engine::store::StoreError;

use crate::error::unavailable;

/// The number of bytes of entries in memory.
const MAX_BYTES: usize = 24 << 20;

/// Collects entries, each a key and a number.
///
/// They are sorted in memory, or, when there are many, in files without a name in the directory of the store.
#[derive(Debug)]
pub(super) struct Sorter {
    directory: PathBuf,
    max_bytes: usize,
    bytes: Vec<u8>,
    entries: Vec<Place>,
    runs: Vec<File>,
}

/// An entry in memory.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The first bytes of the key, which decide most comparisons.
    prefix: u128,
    start: usize,
    len: u16,
    number: u64,
}

impl Place {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.start..self.start + usize::from(self.len)).unwrap_or_default()
    }
}

impl Sorter {
    pub(super) fn new(directory: &Path) -> Self {
        let directory = directory.to_owned();
        Self { directory, max_bytes: MAX_BYTES, bytes: Vec::new(), entries: Vec::new(), runs: Vec::new() }
    }

    pub(super) fn push(&mut self, key: &[u8], number: u64) -> Result<(), StoreError> {
        if self.bytes.len() + key.len() > self.max_bytes && !self.entries.is_empty() {
            self.spill().map_err(failed)?;
        }
        let mut prefix = [0; 16];
        prefix.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        let len = u16::try_from(key.len()).map_err(|_| unavailable("a key is too long to be sorted"))?;
        let place = Place { prefix: u128::from_be_bytes(prefix), start: self.bytes.len(), len, number };
        self.bytes.extend(key);
        self.entries.push(place);
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| a.key(bytes).cmp(b.key(bytes))));
    }

    /// Writes the entries in memory to a file.
    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let mut file = BufWriter::with_capacity(1 << 16, tempfile::tempfile_in(&self.directory)?);
        let mut previous: &[u8] = &[];
        for place in &self.entries {
            let key = place.key(&self.bytes);
            let shared = previous.iter().zip(key).take_while(|(a, b)| a == b).count();
            let rest = key.get(shared..).unwrap_or_default();
            for len in [shared, rest.len()] {
                // Fits, because the length of the key does.
                file.write_all(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes())?;
            }
            file.write_all(&place.number.to_le_bytes())?;
            file.write_all(rest)?;
            previous = key;
        }
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        self.runs.push(file);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    /// Returns all entries in the order of their keys.
    pub(super) fn finish(mut self) -> Result<SortedEntries, StoreError> {
        self.sort();
        let memory = Memory { bytes: self.bytes, entries: self.entries.into_iter() };
        let mut sources = vec![Source::Memory(memory)];
        let run = |file| Run { file: BufReader::with_capacity(1 << 16, file), previous: Vec::new() };
        sources.extend(self.runs.into_iter().map(run).map(Source::Run));
        let mut sorted = SortedEntries { sources, heads: BinaryHeap::new() };
        for source in 0..sorted.sources.len() {
            sorted.advance(source, Vec::new())?;
        }
        Ok(sorted)
    }
}

/// A sorted sequence of entries.
#[derive(Debug)]
enum Source {
    Memory(Memory),
    Run(Run),
}

#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    entries: std::vec::IntoIter<Place>,
}

/// A sorted run in a file.
#[derive(Debug)]
struct Run {
    file: BufReader<File>,
    /// The last key that was read.
    previous: Vec<u8>,
}

impl Run {
    /// Reads a length; `None` at the end of the file.
    fn len(&mut self) -> io::Result<Option<usize>> {
        let mut len = [0; 2];
        match self.file.read_exact(&mut len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            other => other.map(|()| Some(usize::from(u16::from_le_bytes(len)))),
        }
    }

    /// Reads the next key into the buffer, which is empty, and returns its number.
    fn next(&mut self, key: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let (Some(shared), Some(rest)) = (self.len()?, self.len()?) else { return Ok(None) };
        let mut number = [0; 8];
        self.file.read_exact(&mut number)?;
        self.previous.truncate(shared);
        self.previous.resize(shared + rest, 0);
        self.file.read_exact(self.previous.get_mut(shared..).unwrap_or_default())?;
        key.extend_from_slice(&self.previous);
        Ok(Some(u64::from_le_bytes(number)))
    }
}

impl Source {
    /// Reads the next key into the buffer, and returns its number.
    fn next(&mut self, key: &mut Vec<u8>) -> io::Result<Option<u64>> {
        key.clear();
        match self {
            Self::Memory(Memory { bytes, entries }) => Ok(entries.next().map(|place| {
                key.extend(place.key(bytes));
                place.number
            })),
            Self::Run(run) => run.next(key),
        }
    }
}

/// All entries in the order of their keys.
#[derive(Debug)]
pub(super) struct SortedEntries {
    sources: Vec<Source>,
    /// The next entry of each source.
    heads: BinaryHeap<Reverse<(Vec<u8>, u64, usize)>>,
}

impl SortedEntries {
    fn advance(&mut self, source: usize, mut key: Vec<u8>) -> Result<(), StoreError> {
        let Some(from) = self.sources.get_mut(source) else { return Ok(()) };
        if let Some(number) = from.next(&mut key).map_err(failed)? {
            self.heads.push(Reverse((key, number, source)));
        }
        Ok(())
    }

    /// Returns the next key, without taking it.
    pub(super) fn peek(&self) -> Option<&[u8]> {
        self.heads.peek().map(|Reverse((key, ..))| key.as_slice())
    }

    /// Takes the next entry.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        let Some(Reverse((key, number, source))) = self.heads.pop() else { return Ok(None) };
        self.advance(source, Vec::with_capacity(key.len()))?;
        Ok(Some((key, number)))
    }
}

fn failed(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::Full(error.into()),
        _ => StoreError::Unavailable(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_in_memory_and_in_files() {
        let directory = tempfile::tempdir().unwrap();
        for max_bytes in [usize::MAX, 1_000, 1] {
            let mut sorter = Sorter { max_bytes, ..Sorter::new(directory.path()) };
            let keys: Vec<Vec<u8>> = (0..2_000_u64).map(|i| vec![b'a'; (i * 37 % 41) as usize]).collect();
            for (number, key) in (0..).zip(&keys) {
                let key = [&**key, &u64::to_be_bytes(number * 7_919 % 2_000)].concat();
                sorter.push(&key, number).unwrap();
            }
            let mut expected: Vec<_> = (0..)
                .zip(keys)
                .map(|(number, key)| ([&*key, &u64::to_be_bytes(number * 7_919 % 2_000)].concat(), number))
                .collect();
            expected.sort();
            let mut sorted = sorter.finish().unwrap();
            for entry in expected {
                assert_eq!(sorted.peek(), Some(&*entry.0));
                assert_eq!(sorted.next().unwrap(), Some(entry));
            }
            assert_eq!(sorted.next().unwrap(), None);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
