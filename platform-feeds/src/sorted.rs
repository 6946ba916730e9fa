//! Sorts the entries of a feed, of which there may be more than fit into memory: readers need the entries of a package
//! together, and a store returns advisories by their uids.
//!
//! An external merge sort: entries are sorted in memory up to a limit, and then written to a temporary file. The files
//! are merged while they are read.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Seek, Write},
    mem, vec,
};

use serde::{Deserialize, Serialize};

/// An entry of a feed. Entries are ordered by their keys; of several with the same key, the latest counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The value by which the format groups, and then one that is unique in a group.
    pub(crate) key: [String; 3],
    /// The time of the event that determines the state, in milliseconds.
    pub(crate) at: i64,
    /// The text that the format writes for the entry.
    pub(crate) value: String,
}

impl Entry {
    /// Returns about how much memory the entry takes, in bytes.
    fn size(&self) -> usize {
        self.key.iter().map(String::len).sum::<usize>() + self.value.len() + size_of::<Self>()
    }
}

/// Entries that are being collected.
#[derive(Debug)]
pub(crate) struct Sorter {
    entries: Vec<Entry>,
    bytes: usize,
    /// The size of the entries in memory, in bytes, above which they are written to a file.
    most: usize,
    runs: Vec<File>,
}

impl Sorter {
    /// Returns an empty sorter that keeps entries of about this many bytes in memory.
    pub(crate) const fn new(most: usize) -> Self {
        Self { entries: Vec::new(), bytes: 0, most, runs: Vec::new() }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be written.
    pub(crate) fn add(&mut self, entry: Entry) -> io::Result<()> {
        self.bytes += entry.size();
        self.entries.push(entry);
        if self.bytes > self.most {
            self.bytes = 0;
            self.entries.sort_unstable();
            let mut run = BufWriter::new(tempfile::tempfile()?);
            for entry in self.entries.drain(..) {
                serde_json::to_writer(&mut run, &entry)?;
                run.write_all(b"\n")?;
            }
            self.runs.push(run.into_inner()?);
        }
        Ok(())
    }

    /// Returns the entries in order, without those that a later entry with the same key replaces.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be read.
    pub(crate) fn finish(mut self) -> io::Result<Sorted> {
        self.entries.sort_unstable();
        let mut runs = vec![Run::Memory(mem::take(&mut self.entries).into_iter())];
        for mut run in self.runs {
            run.rewind()?;
            runs.push(Run::File(BufReader::new(run)));
        }
        let mut sorted = Sorted { runs, heads: BinaryHeap::new() };
        for at in 0..sorted.runs.len() {
            sorted.read(at)?;
        }
        Ok(sorted)
    }
}

/// Sorted entries.
#[derive(Debug)]
enum Run {
    Memory(vec::IntoIter<Entry>),
    File(BufReader<File>),
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Entry>> {
        match self {
            Self::Memory(entries) => Ok(entries.next()),
            Self::File(lines) => {
                let mut line = String::new();
                if lines.read_line(&mut line)? == 0 { Ok(None) } else { Ok(Some(serde_json::from_str(&line)?)) }
            }
        }
    }
}

/// The entries of a feed in order.
#[derive(Debug)]
pub(crate) struct Sorted {
    runs: Vec<Run>,
    /// The next entry of each run that has one, with the index of the run.
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl Sorted {
    fn read(&mut self, at: usize) -> io::Result<()> {
        let next = self.runs.get_mut(at).map(Run::next).transpose()?.flatten();
        self.heads.extend(next.map(|entry| Reverse((entry, at))));
        Ok(())
    }

    fn pop(&mut self) -> io::Result<Option<Entry>> {
        let Some(Reverse((entry, at))) = self.heads.pop() else { return Ok(None) };
        self.read(at)?;
        Ok(Some(entry))
    }

    /// Returns the next entry.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut next = self.pop()?;
        while let Some(entry) = &next
            && self.heads.peek().is_some_and(|Reverse((other, _))| other.key == entry.key)
        {
            next = self.pop()?;
        }
        Ok(next)
    }

    /// Returns the next entries whose keys begin alike, in order; none at the end.
    ///
    /// # Errors
    /// As [`Sorted::next`].
    pub(crate) fn next_group(&mut self) -> io::Result<Vec<Entry>> {
        let mut group: Vec<Entry> = self.next()?.into_iter().collect();
        while let (Some(last), Some(Reverse((other, _)))) = (group.last(), self.heads.peek())
            && last.key.first() == other.key.first()
        {
            group.extend(self.next()?);
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let entry = ("[ab]", "[ab\n\"]{0,2}", 0..3_i64, "[xyz]{0,8}").prop_map(|(group, name, at, value)| Entry {
            key: [group, name, String::new()],
            at,
            value,
        });
        prop::collection::vec(entry, 0..60)
    }

    proptest! {
        #[test]
        fn the_latest_entry_of_each_key_remains_in_order_wherever_the_others_are(added in entries(), most in 0..2000_usize) {
            let mut sorter = Sorter::new(most);
            let mut expected = std::collections::BTreeMap::new();
            for entry in &added {
                let latest = expected.entry(entry.key.clone()).or_insert_with(|| entry.clone());
                *latest = latest.clone().max(entry.clone());
                sorter.add(entry.clone()).unwrap();
            }
            let (mut sorted, mut found) = (sorter.finish().unwrap(), Vec::new());
            loop {
                let group = sorted.next_group().unwrap();
                if group.is_empty() {
                    break;
                }
                prop_assert!(group.iter().all(|entry| entry.key[0] == group[0].key[0]));
                found.push(group);
            }
            prop_assert!(found.windows(2).all(|groups| groups[0][0].key[0] < groups[1][0].key[0]));
            prop_assert_eq!(found.concat(), expected.into_values().collect::<Vec<_>>());
        }
    }
}
