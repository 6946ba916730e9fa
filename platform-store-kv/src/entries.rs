//! Changed index entries, in each state since the last fold.
//!
//! Each commit changes a few entries at random places, while readers use the states before it. A persistent map would
//! copy the path to each of them, which took a third of the writer's time. Here all states share one B-tree instead, and
//! an entry has a version for each state that changed it: usually one. A reader passes over the versions of later states.

use std::{borrow::Cow, collections::BTreeMap, iter, mem, ops::Bound, sync::Arc};

use parking_lot::RwLock;

/// An estimate of the memory of an entry in addition to its key, in bytes.
const OVERHEAD: usize = 150;
/// The number of entries that a reader copies at once. The writer waits in the meantime.
const CHUNK: usize = 32;

/// The entries in one state. States are numbered.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// The entries in all states.
    map: Arc<RwLock<Map>>,
    state: u64,
    bytes: u64,
}

type Map = BTreeMap<Box<[u8]>, Versions>;

/// A key and its record. A removed entry has none.
pub(crate) type Entry = (Box<[u8]>, Option<i64>);

/// A range of keys.
type Bounds<'a> = (Bound<Cow<'a, [u8]>>, Bound<Cow<'a, [u8]>>);

#[derive(Debug)]
struct Versions {
    last: Version,
    /// Those before, in ascending order.
    earlier: Vec<Version>,
}

/// The record of an entry from a state on.
#[derive(Debug, Clone, Copy)]
struct Version {
    since: u64,
    record: Option<i64>,
}

impl Versions {
    /// Returns the version in a state; `None` if the entry was changed only later.
    fn at(&self, state: u64) -> Option<Version> {
        let newest_first = iter::once(&self.last).chain(self.earlier.iter().rev());
        newest_first.copied().find(|version| version.since <= state)
    }
}

impl Entries {
    /// Returns the entries as they are now. Later changes do not affect them.
    pub(crate) fn snapshot(&mut self) -> Self {
        let snapshot = Self { map: Arc::clone(&self.map), ..*self };
        self.state += 1;
        snapshot
    }

    /// Returns a copy that shares nothing, and can be changed although there may be later states.
    pub(crate) fn copy(&self) -> Self {
        let map = self.map.read();
        let visible = map.iter().filter_map(|(key, versions)| Some((key.clone(), versions.at(self.state)?)));
        let map = visible.map(|(key, last)| (key, Versions { last, earlier: Vec::new() })).collect();
        Self { map: Arc::new(RwLock::new(map)), state: self.state + 1, bytes: self.bytes }
    }

    /// Returns the approximate memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.read().values().all(|versions| versions.at(self.state).is_none())
    }

    /// Returns the record of an entry; `None` if it was not changed, and `Some(None)` if it was removed.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<i64>> {
        Some(self.map.read().get(key)?.at(self.state)?.record)
    }

    /// Returns the entries from one key to another, which is exclusive, in ascending or descending order.
    pub(crate) fn range<'a>(
        &'a self,
        from: &'a [u8],
        to: &'a [u8],
        descending: bool,
    ) -> impl Iterator<Item = Entry> + use<'a> {
        let all: Bounds<'_> = (Bound::Included(from.into()), Bound::Excluded(to.into()));
        // The keys after the chunk. (A map panics if bounds are in the wrong order.)
        let (mut chunk, mut rest) = (Vec::new().into_iter(), (from < to).then_some(all));
        iter::from_fn(move || {
            loop {
                if let Some(entry) = chunk.next() {
                    return Some(entry);
                }
                let bounds = rest.take()?;
                let (entries, last) = self.chunk(&bounds, descending);
                let (from, to) = bounds;
                let last = last.map(|last| Bound::Excluded(Cow::Owned(last.into())));
                rest = last.map(|last| if descending { (from, last) } else { (last, to) });
                chunk = entries.into_iter();
            }
        })
    }

    /// Returns the first entries of a range, and the key after which it continues.
    fn chunk(&self, (from, to): &Bounds<'_>, descending: bool) -> (Vec<Entry>, Option<Box<[u8]>>) {
        let map = self.map.read();
        let mut range = map.range::<[u8], _>((from.as_ref().map(AsRef::as_ref), to.as_ref().map(AsRef::as_ref)));
        let (mut entries, mut read, mut last) = (Vec::new(), 0, None);
        while let Some((key, versions)) = if descending { range.next_back() } else { range.next() } {
            entries.extend(versions.at(self.state).map(|version| (key.clone(), version.record)));
            read += 1;
            if read == CHUNK {
                last = Some(key.clone());
                break;
            }
        }
        (entries, last)
    }

    /// Calls the function with each entry, in the order of their keys, until it returns an error.
    pub(crate) fn try_for_each<E>(&self, mut visit: impl FnMut(&[u8], Option<i64>) -> Result<(), E>) -> Result<(), E> {
        let map = self.map.read();
        let mut visible = map.iter().filter_map(|(key, versions)| Some((key, versions.at(self.state)?)));
        visible.try_for_each(|(key, version)| visit(key, version.record))
    }

    /// Sets the record of an entry; `None` removes it.
    ///
    /// Must be called for the latest state only: not for a snapshot, nor after one was copied.
    pub(crate) fn set(&mut self, key: Vec<u8>, record: Option<i64>) {
        let new = Version { since: self.state, record };
        let mut map = self.map.write();
        let Some(Versions { last, earlier }) = map.get_mut(&*key) else {
            self.bytes += (OVERHEAD + key.len()) as u64;
            map.insert(key.into(), Versions { last: new, earlier: Vec::new() });
            return;
        };
        let old = mem::replace(last, new);
        // A state without a later snapshot has one version.
        if old.since < new.since {
            earlier.push(old);
            self.bytes += size_of::<Version>() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    type Model = BTreeMap<Box<[u8]>, Option<i64>>;

    /// Compares what the entries return with the model, in both directions.
    fn assert_same(entries: &Entries, model: &Model, (from, to): (u8, u8)) {
        let (from, to) = ([from], [to]);
        let wanted = || model.iter().filter(|(key, _)| (&from[..]..&to[..]).contains(&&***key));
        let wanted = || wanted().map(|(key, record)| (key.clone(), *record));
        assert_eq!(entries.range(&from, &to, false).collect::<Vec<_>>(), wanted().collect::<Vec<_>>());
        let reversed: Vec<_> = entries.range(&from, &to, true).collect();
        assert_eq!(reversed, wanted().rev().collect::<Vec<_>>());
        for key in 0..=u8::MAX {
            assert_eq!(entries.get(&[key]), model.get(&[key][..]).copied());
        }
        let mut all = Model::new();
        let visited: Result<(), ()> = entries.try_for_each(|key, record| {
            all.insert(key.into(), record);
            Ok(())
        });
        assert_eq!((visited, &all), (Ok(()), model));
        assert_eq!(entries.is_empty(), model.is_empty());
    }

    proptest! {
        /// In each of several states, some entries are set. More keys than a chunk has entries.
        #[test]
        fn each_snapshot_has_the_entries_of_its_state(
            states in vec(vec((0..100_u8, proptest::option::of(0..5_i64)), 0..60), 1..6),
            range in (0..110_u8, 0..110_u8),
        ) {
            let (mut entries, mut model) = (Entries::default(), Model::new());
            let mut snapshots = vec![(entries.snapshot(), model.clone())];
            for state in states {
                for (key, record) in state {
                    entries.set(vec![key], record);
                    model.insert([key].into(), record);
                }
                assert_same(&entries, &model, range);
                snapshots.push((entries.snapshot(), model.clone()));
            }
            for (snapshot, model) in &snapshots {
                assert_same(snapshot, model, range);
                // A copy of any state can be changed, and that changes no other state.
                let (mut copy, mut model) = (snapshot.copy(), model.clone());
                assert_same(&copy, &model, range);
                copy.set(vec![7], None);
                model.insert([7].into(), None);
                assert_same(&copy, &model, range);
            }
            for (snapshot, model) in &snapshots {
                assert_same(snapshot, model, range);
            }
        }
    }

    #[test]
    fn versions_count_as_memory() {
        let mut entries = Entries::default();
        entries.set(vec![1], Some(1));
        let first = entries.bytes();
        entries.set(vec![1], Some(2));
        assert_eq!(entries.bytes(), first);
        drop(entries.snapshot());
        entries.set(vec![1], Some(3));
        assert!(entries.bytes() > first);
    }
}
