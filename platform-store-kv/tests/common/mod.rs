//! A backend in memory, as small as it can be: a batch replaces the map, and a snapshot is the map before.

#![allow(dead_code, reason = "each test uses a part")]

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use platform_engine::store::StoreError;
use platform_store_kv::{
    Backend, KvOptions, KvStore, Memory,
    backend::{Change, KEY_LEN, KeyRange, Snapshot, Space},
};
use rpds::RedBlackTreeMapSync;

type Map = RedBlackTreeMapSync<(Space, Vec<u8>), Vec<u8>>;

/// The content outlives the backend, as a file does: it is found by its directory.
static FILES: Mutex<BTreeMap<PathBuf, Arc<ArcSwap<Map>>>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
pub(crate) struct MapBackend {
    map: Arc<ArcSwap<Map>>,
    /// The error of the next writes.
    pub(crate) fault: Arc<Mutex<Option<Fault>>>,
    /// Where the writes wait, if they do.
    gate: Mutex<Option<Waits>>,
    /// What to notify when no commits are waiting.
    pub(crate) idle: Mutex<Option<Sender<()>>>,
}

/// When each write waits, where it sends the number of its records before, and what it waits for.
type Waits = (When, Sender<usize>, Receiver<()>);

/// When a write waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before its changes can be read.
    Before,
    /// When its changes can be read, but it has not returned.
    After,
}

/// Lets writes through one by one.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The number of records of each write that has begun.
    pub(crate) begun: Receiver<usize>,
    /// Lets a write go on. Dropped, it lets all go on.
    pub(crate) permits: Sender<()>,
}

/// The effect of a planted write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It writes nothing, as on a full disk.
    Full,
    /// Its outcome is unknown.
    Broken,
    /// It writes nothing if it has more records than this, as on a disk that is nearly full.
    FullAbove(usize),
    /// A transaction cannot begin.
    Unreadable,
}

#[derive(Debug)]
pub(crate) struct MapSnapshot(Arc<Map>);

impl MapBackend {
    pub(crate) fn open(directory: PathBuf) -> Self {
        let map = Arc::clone(FILES.lock().entry(directory).or_default());
        Self { map, fault: Arc::default(), gate: Mutex::default(), idle: Mutex::default() }
    }

    /// Makes the writes wait from now on.
    pub(crate) fn gate(&self, when: When) -> Gate {
        let ((begins, begun), (permits, waits)) = (channel(), channel());
        *self.gate.lock() = Some((when, begins, waits));
        Gate { begun, permits }
    }

    fn wait(&self, now: When, records: usize) {
        if let Some((when, begins, waits)) = &*self.gate.lock()
            && *when == now
        {
            // An error means that the test no longer waits.
            let _ = begins.send(records).map(|()| waits.recv());
        }
    }

    /// Returns the number of keys in a space.
    pub(crate) fn count(&self, space: Space) -> usize {
        self.map.load().keys().filter(|(of, _)| *of == space).count()
    }

    /// Copies the content as a crash would leave it.
    pub(crate) fn copy_to(&self, directory: PathBuf) {
        FILES.lock().entry(directory).or_default().store(self.map.load_full());
    }
}

impl Backend for MapBackend {
    const MAX_KEY: usize = KEY_LEN;
    const MAX_VALUE: usize = usize::MAX;
    type Snapshot = MapSnapshot;

    fn snapshot(&self) -> Result<MapSnapshot, StoreError> {
        if *self.fault.lock() == Some(Fault::Unreadable) {
            return Err(StoreError::Unavailable("a read failed".into()));
        }
        Ok(MapSnapshot(self.map.load_full()))
    }

    fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, _: bool) -> Result<(), StoreError> {
        let batch: Vec<_> = batch.collect();
        let records = batch.iter().filter(|change| change.space == Space::Records && change.value.is_some()).count();
        self.wait(When::Before, records);
        match *self.fault.lock() {
            Some(Fault::Full) => return Err(StoreError::Full("no space".into())),
            Some(Fault::FullAbove(most)) if records > most => return Err(StoreError::Full("no space".into())),
            Some(Fault::Broken) => return Err(StoreError::Unavailable("a write failed".into())),
            _ => {}
        }
        let mut map = Map::clone(&self.map.load());
        for Change { space, key, value } in batch {
            let key = (space, key.to_vec());
            match value {
                Some(value) => map.insert_mut(key, value.to_vec()),
                None => drop(map.remove_mut(&key)),
            }
        }
        self.map.store(Arc::new(map));
        self.wait(When::After, records);
        Ok(())
    }

    fn when_idle(&self) {
        if let Some(idle) = &*self.idle.lock() {
            let _ = idle.send(());
        }
    }
}

impl Snapshot for MapSnapshot {
    fn get<T>(&self, space: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.0.get(&(space, key.to_vec())).map(|value| use_value(value)))
    }

    fn range(
        &self,
        KeyRange { space, from, to, descending }: KeyRange<'_>,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let from = Bound::Included((space, from.to_vec()));
        let to = to.map(|to| (space, to.to_vec()));
        let mut range =
            self.0.range((from, to.map_or(Bound::Unbounded, Bound::Excluded))).filter(|((s, _), _)| *s == space);
        let mut take = |((_, key), value): (&(Space, Vec<u8>), &Vec<u8>)| take(key, value);
        let _ = if descending { range.rev().try_for_each(&mut take) } else { range.try_for_each(&mut take) };
        Ok(())
    }
}

/// Opens a store with these sizes of the cache of rows and of the delta.
pub(crate) fn open(directory: PathBuf, rows: u64, delta: u64) -> Result<KvStore<MapBackend>, StoreError> {
    let memory = Memory { rows, delta, nodes: 64 };
    let options = KvOptions { memory, ..KvOptions::new("map", directory.clone()) };
    KvStore::open(MapBackend::open(directory), options)
}
