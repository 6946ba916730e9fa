//! States of the tree that later batches do not change, which sled does not have.
//!
//! Before a batch is applied, the writer publishes the earlier value of each of its keys, in the version of the tree that
//! the batch ends. A snapshot begins with a version. It reads a key from the tree first, and then looks for it in the
//! batches since its version; the earliest one that has the key has the value. In the other order, a batch could be
//! published and applied between the two.
//!
//! Versions form a list from the oldest to the newest. Only snapshots refer to older ones, and each snapshot collects the
//! values of the batches that it has passed, so that a later read looks into one map.
//!
//! Rejected: a lock between reads and batches, which the writer waits for while the store is checked or a long list is
//! read; sled has no other means.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    ops::{Bound, ControlFlow},
    sync::{Arc, OnceLock},
};

use platform_engine::store::StoreError;
use platform_store_kv::{
    backend::{KeyRange, Snapshot, Space},
    unavailable,
};
use sled::IVec;

use crate::{
    backend::Shared,
    error::{corrupt, from_sled},
    layout::{self, Value},
};

/// The earlier values of entries, `None` for those that did not exist.
pub(crate) type Replaced = BTreeMap<IVec, Option<Value>>;

/// The greatest size of the values that a snapshot collects, in bytes. Beyond it, the read is given up rather than the memory of
/// the process.
const MAX_REPLACED: usize = 512 << 20;
/// An estimate of the memory of a collected entry in addition to its key and value.
const OVERHEAD: usize = 100;

/// The tree between two batches.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// The values that the next batch replaces, and the version after it.
    next: OnceLock<(Replaced, Arc<Self>)>,
}

impl Version {
    /// Publishes the values that a batch will replace, and returns the version after it. Without one, another batch was
    /// published, and this one must not be applied.
    pub(crate) fn end(&self, replaced: Replaced) -> Option<Arc<Self>> {
        let next = Arc::new(Self::default());
        self.next.set((replaced, Arc::clone(&next))).ok().map(|()| next)
    }
}

impl Drop for Version {
    /// Drops the versions after it one after another: a list of them is too long for recursion if a snapshot was old.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some((_, version)) = next {
            next = Arc::into_inner(version).and_then(|mut version| version.next.take());
        }
    }
}

/// The tree as it was in one version.
pub struct SledSnapshot {
    shared: Arc<Shared>,
    since: RefCell<Since>,
}

/// The values that batches have replaced since a snapshot began, up to a version.
struct Since {
    version: Arc<Version>,
    replaced: Replaced,
    bytes: usize,
}

impl fmt::Debug for SledSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledSnapshot").finish_non_exhaustive()
    }
}

impl SledSnapshot {
    pub(crate) fn new(shared: Arc<Shared>, version: Arc<Version>) -> Self {
        Self { shared, since: RefCell::new(Since { version, replaced: Replaced::new(), bytes: 0 }) }
    }

    /// Calls the function with the values that the published batches have replaced.
    pub(crate) fn replaced<T>(&self, look_up: impl FnOnce(&Replaced) -> T) -> Result<T, StoreError> {
        let mut since = self.since.try_borrow_mut().map_err(|_| unavailable("a snapshot is being read"))?;
        let since = &mut *since;
        while let Some((replaced, next)) = since.version.next.get() {
            for (entry, value) in replaced {
                if !since.replaced.contains_key(entry) {
                    since.bytes += OVERHEAD + entry.len() + value.as_ref().map_or(0, |value| value.bytes().len());
                    since.replaced.insert(entry.clone(), value.clone());
                }
            }
            since.version = Arc::clone(next);
        }
        if since.bytes > MAX_REPLACED {
            return Err(unavailable(format!(
                "the store changes too fast: {MAX_REPLACED} bytes were replaced since this read began"
            )));
        }
        Ok(look_up(&since.replaced))
    }

    /// Returns the value of an entry.
    pub(crate) fn value(&self, entry: &[u8]) -> Result<Option<Value>, StoreError> {
        // An error may be due to a batch that is being applied.
        let stored = self.shared.value(entry);
        match self.replaced(|replaced| replaced.get(entry).cloned())? {
            Some(earlier) => Ok(earlier),
            None => stored,
        }
    }

    /// Calls the function with the entries of this version in a range of the tree: those that were changed since, and
    /// the only one that is still there, unless it was changed since it was read.
    fn each(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        read: Option<(&IVec, Result<Value, StoreError>)>,
        descending: bool,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let copy = |(entry, value): (&IVec, &Option<Value>)| (entry.clone(), value.clone());
        let mut found: Replaced = self.replaced(|replaced| replaced.range::<[u8], _>(range).map(copy).collect())?;
        if let Some((entry, value)) = read
            && !found.contains_key(entry)
        {
            found.insert(entry.clone(), Some(value?));
        }
        let mut found = found.into_iter();
        while let Some((entry, value)) = if descending { found.next_back() } else { found.next() } {
            if let Some(value) = value
                && take(&layout::key(&entry)?, value.bytes()).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Snapshot for SledSnapshot {
    fn get<T>(&self, space: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.value(&layout::entry(space, key))?.map(|value| use_value(value.bytes())))
    }

    fn range(
        &self,
        KeyRange { space, from, to, descending }: KeyRange<'_>,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let from = layout::entry(space, from);
        let to = to.map_or_else(|| layout::end(space), |to| layout::entry(space, to));
        let mut tree = self.shared.tree().range(from.as_slice()..to.as_slice());
        let mut last: Option<IVec> = None;
        loop {
            let next = self.shared.read(|| if descending { tree.next_back() } else { tree.next() })?;
            let next = next.transpose().map_err(from_sled)?;
            let read = next.as_ref().map(|(entry, stored)| (entry, self.shared.joined(entry, stored.clone())));
            let (near, far) = (last.as_deref(), read.as_ref().map(|(entry, _)| &***entry));
            let is_ordered = near.zip(far).is_none_or(|(near, far)| if descending { far < near } else { near < far });
            if !is_ordered {
                return Err(corrupt("the keys of a node are not in order"));
            }
            let passed = if descending {
                (
                    far.map_or(Bound::Included(&*from), Bound::Included),
                    near.map_or(Bound::Excluded(&*to), Bound::Excluded),
                )
            } else {
                (
                    near.map_or(Bound::Included(&*from), Bound::Excluded),
                    far.map_or(Bound::Excluded(&*to), Bound::Included),
                )
            };
            if self.each(passed, read, descending, &mut take)?.is_break() {
                return Ok(());
            }
            let Some((entry, _)) = next else { return Ok(()) };
            last = Some(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use platform_store_kv::backend::{Backend, Change};
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::{backend::SledBackend, directory::Directory};

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    fn open(directory: &std::path::Path) -> SledBackend {
        let (directory, db) = Directory::open(directory, 1 << 20).unwrap();
        SledBackend::new(db, directory, 0, 0)
    }

    fn write(backend: &SledBackend, batch: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        let change = |(key, value): (&'_ Vec<u8>, &'_ Option<Vec<u8>>)| (key.clone(), value.clone());
        let batch: Vec<_> = batch.iter().map(change).collect();
        let batch = batch.iter().map(|(key, value)| Change { space: Space::Entries, key, value: value.as_deref() });
        backend.write(batch, true).unwrap();
    }

    /// Returns up to this many entries of a range.
    fn range(
        snapshot: &SledSnapshot,
        from: &[u8],
        to: Option<&[u8]>,
        descending: bool,
        most: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let range = KeyRange { space: Space::Entries, from, to, descending };
        let take = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        snapshot.range(range, take).unwrap();
        found
    }

    /// The work between reads.
    #[derive(Debug, Clone)]
    enum Step {
        Write(Vec<(u8, Option<u16>)>),
        Open,
        Close(prop::sample::Index),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn a_snapshot_keeps_its_version_whatever_is_written_later(
            steps in vec(
                prop_oneof![
                    vec((0..40_u8, option::weighted(0.6, prop_oneof![0..20_u16, 4_000..13_000_u16])), 1..12).prop_map(Step::Write),
                    Just(Step::Open),
                    any::<prop::sample::Index>().prop_map(Step::Close),
                ],
                1..24,
            ),
            (from, to, descending, most) in (0..40_u8, option::of(0..41_u8), any::<bool>(), 1..50_usize),
        ) {
            let home = tempfile::tempdir().unwrap();
            let backend = open(&home.path().join("store"));
            let mut now = Map::new();
            let mut snapshots: Vec<(SledSnapshot, Map)> = Vec::new();
            // Keys of several lengths, with the bytes that are escaped.
            let key = |number: u8| [&[250 + number / 8][..], &vec![254; usize::from(number % 8)]].concat();
            for (round, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(changes) => {
                        let value = |len: u16| vec![round as u8; usize::from(len)];
                        let batch = changes.into_iter().map(|(number, len)| (key(number), len.map(value))).collect();
                        write(&backend, &batch);
                        for (key, value) in batch {
                            match value {
                                Some(value) => drop(now.insert(key, value)),
                                None => drop(now.remove(&key)),
                            }
                        }
                    }
                    Step::Open => snapshots.push((backend.snapshot().unwrap(), now.clone())),
                    Step::Close(_) if snapshots.is_empty() => {}
                    Step::Close(at) => drop(snapshots.remove(at.index(snapshots.len()))),
                }
                let (from, to) = (key(from), to.map(key).filter(|to| *to > key(from)));
                for (snapshot, then) in &snapshots {
                    let mut wanted: Vec<_> = then.clone().into_iter().collect();
                    wanted.retain(|(key, _)| *key >= from && to.as_ref().is_none_or(|to| key < to));
                    if descending {
                        wanted.reverse();
                    }
                    wanted.truncate(most);
                    prop_assert_eq!(range(snapshot, &from, to.as_deref(), descending, most), wanted);
                    for number in 0..40 {
                        let value = snapshot.get(Space::Entries, &key(number), <[u8]>::to_vec).unwrap();
                        prop_assert_eq!(value.as_ref(), then.get(&key(number)));
                    }
                }
            }
            let mut problems = Vec::new();
            backend.check(|problem| problems.push(problem)).unwrap();
            prop_assert_eq!(problems, Vec::<String>::new());
        }
    }

    #[test]
    fn readers_see_each_batch_as_a_whole_while_another_is_written() {
        let home = tempfile::tempdir().unwrap();
        let backend = open(&home.path().join("store"));
        let key = |number: u64| number.to_be_bytes().to_vec();
        let batch = |round: u64| {
            // All keys get the round, and a third of them comes and goes. Long values are in pieces.
            let value = |number: u64| vec![round as u8; if number.is_multiple_of(10) { 9_000 } else { 3 }];
            (0..120).map(|number| (key(number), (!(number + round).is_multiple_of(3)).then(|| value(number)))).collect()
        };
        write(&backend, &batch(0));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (1..60).for_each(|round| write(&backend, &batch(round))));
            while !writer.is_finished() {
                let snapshot = backend.snapshot().unwrap();
                for descending in [false, true] {
                    let found = range(&snapshot, &[], None, descending, usize::MAX);
                    let round = u64::from(found[0].1[0]);
                    assert!(found.iter().all(|(_, value)| value.iter().all(|byte| u64::from(*byte) == round)));
                    let wanted = batch(round).into_iter().filter_map(|(key, value)| Some((key, value?)));
                    let mut wanted: Vec<_> = wanted.collect();
                    if descending {
                        wanted.reverse();
                    }
                    assert_eq!(found, wanted);
                }
            }
        });
    }

    #[test]
    fn a_snapshot_that_would_collect_too_much_fails() {
        let home = tempfile::tempdir().unwrap();
        let backend = open(&home.path().join("store"));
        let put = |key: u8, len: usize| write(&backend, &[(vec![key], Some(vec![key; len]))].into());
        put(1, 1_000);
        put(2, 1_000);
        let snapshot = backend.snapshot().unwrap();
        let get = || snapshot.get(Space::Entries, &[9], |_| ());
        snapshot.since.borrow_mut().bytes = MAX_REPLACED - 1_500;
        put(1, 1);
        assert_eq!(get().unwrap(), None);
        put(1, 1);
        assert_eq!(get().unwrap(), None, "it has collected the entry already");
        put(2, 1);
        assert!(matches!(get(), Err(StoreError::Unavailable(why)) if why.to_string().contains("too fast")));
    }

    #[test]
    fn a_long_list_of_versions_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let backend = open(&home.path().join("store"));
        let snapshot = backend.snapshot().unwrap();
        let mut version = Arc::clone(&snapshot.since.borrow().version);
        for _ in 0..1_000_000 {
            version = version.end(Replaced::new()).unwrap();
        }
        drop(snapshot);
    }
}
