//! A backend with a file, as small as it can be: a log of batches, which a map in memory is made from. With a [`Fault`] it
//! breaks one rule.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    ops::{Bound, ControlFlow},
    path::{Path, PathBuf},
    process, slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use platform_engine::store::StoreError;
use platform_store_kv::{
    Backend,
    backend::{Change, KEY_LEN, KeyRange, NODE_LEN, Snapshot, Space},
    directory::{Directory, DirectoryError},
    unavailable,
};
use platform_testkit::backend::BackendSuite;
use rpds::RedBlackTreeMapSync;
use xxhash_rust::xxh3::xxh3_64;

type Map = RedBlackTreeMapSync<(Space, Vec<u8>), Vec<u8>>;

/// The fault of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "only one of the tests plants faults")]
pub(crate) enum Fault {
    /// Ranges are of the state when they are read, not of the snapshot.
    LiveRange,
    /// A snapshot is older than the last batch.
    StaleSnapshot,
    /// A snapshot ends with its backend, and its ranges end there without an error.
    ClosedWithBackend,
    /// A range whose library fails ends without an error.
    ErrorIsEnd,
    /// A key whose library fails is missing.
    ErrorIsMissing,
    /// Keys have 255 bytes.
    KeyCutOff,
    /// A value without bytes deletes its key.
    EmptyValueDeletes,
    /// A descending range begins with its second key.
    DescendingOffByOne,
    /// The upper bound of a range is a part of it.
    InclusiveUpperBound,
    /// The lower bound of a range is not part of it.
    ExclusiveLowerBound,
    /// A range from the empty key is empty.
    EmptyBound,
    /// A range goes on although the caller has had enough.
    IgnoredBreak,
    /// All spaces have the same keys.
    SharedSpaces,
    /// A space in which nothing was written is an error.
    MissingSpace,
    /// The delete of a key that does not exist is an error.
    DeleteOfMissing,
    /// A process that is killed while it writes a batch leaves a part of it.
    HalfBatch,
    /// A synced write returns before anything is written.
    NoSync,
    /// A sync writes the last batch, and not those before it.
    OnlyLastSynced,
    /// A batch is shown before it is written.
    ShownBeforeWritten,
    /// A failed write is reported as a success.
    FailureIsSuccess,
    /// A write that fails in the middle says that the disk is full, as if nothing was written.
    FullAfterPart,
    /// The backend can be opened several times.
    NoLock,
    /// A second opener waits for the first.
    WaitsForLock,
    /// A store is created where it will be.
    CreatedInPlace,
    /// Every snapshot keeps something.
    SnapshotsKept,
    /// There is one snapshot at a time.
    OneSnapshot,
    /// Nothing else is read during a range.
    NoReadInRange,
    /// Files of every format are opened.
    AnyFormat,
    /// Descending ranges have deleted keys.
    DeletedInDescending,
    /// Deletes are not written to the file.
    DeletesForgotten,
}

/// The value of a deleted key with [`Fault::DeletedInDescending`].
const DELETED: &[u8] = b"\0deleted";
/// The content of a log that is complete.
const HEADER: &[u8] = b"log of batches\n";

#[derive(Debug)]
pub(crate) struct LogBackend(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fault: Option<Fault>,
    map: ArcSwap<Map>,
    /// The spaces with keys, for [`Fault::MissingSpace`].
    written: Mutex<BTreeSet<Space>>,
    log: Mutex<Log>,
    is_closed: AtomicBool,
    snapshots: AtomicUsize,
    ranges: AtomicUsize,
    failing_writes: AtomicBool,
    failing_reads: AtomicBool,
    path: PathBuf,
    /// Dropped last.
    _directory: Option<Directory>,
}

#[derive(Debug)]
struct Log {
    file: File,
    /// The batches that are not written to the file, because they have no sync.
    pending: Vec<u8>,
    /// For [`Fault::StaleSnapshot`].
    before: Arc<Map>,
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.file.write_all(&self.pending);
    }
}

#[derive(Debug)]
pub(crate) struct LogSnapshot {
    map: Arc<Map>,
    shared: Arc<Shared>,
}

/// Returns the suite for the backend with a fault, or without one.
pub(crate) fn suite(fault: Option<Fault>) -> BackendSuite<LogBackend> {
    let other = |directory: &Path| fs::write(directory.join("store/format"), "log 2").unwrap();
    BackendSuite::new(move |directory: &Path| LogBackend::open(&directory.join("store"), fault))
        .failing_writes(|backend: &LogBackend| backend.0.failing_writes.store(true, Ordering::Release))
        .failing_reads(|backend: &LogBackend| backend.0.failing_reads.store(true, Ordering::Release))
        .other_format(other)
}

fn io_error(error: io::Error) -> StoreError {
    unavailable(error.to_string())
}

/// Returns whether this process is one that a case has started: a fault that needs a kill at one moment ends it then.
fn is_child() -> bool {
    env::var_os("PLATFORM_BACKEND_ROLE").is_some()
}

fn create(path: &Path) -> Result<(), StoreError> {
    fs::write(path.join("log"), HEADER).map_err(io_error)
}

fn create_in_place(path: &Path) -> Result<(), StoreError> {
    if !path.exists() {
        fs::create_dir_all(path).map_err(io_error)?;
        fs::write(path.join("log"), "").map_err(io_error)?;
        if is_child() {
            process::abort();
        }
        create(path)?;
    }
    Ok(())
}

fn cannot_open(error: DirectoryError) -> StoreError {
    StoreError::Unavailable(error.into())
}

impl LogBackend {
    pub(crate) fn open(path: &Path, fault: Option<Fault>) -> Result<Self, StoreError> {
        let directory = match fault {
            Some(Fault::NoLock | Fault::CreatedInPlace) => {
                create_in_place(path)?;
                None
            }
            Some(Fault::WaitsForLock) => loop {
                match Directory::open(path, "log 1", create) {
                    Err(DirectoryError::InUse { .. }) => thread::yield_now(),
                    opened => break Some(opened.map_err(cannot_open)?),
                }
            },
            Some(Fault::AnyFormat) => {
                let format = fs::read_to_string(path.join("format")).unwrap_or_else(|_| "log 1".to_owned());
                Some(Directory::open(path, &format, create).map_err(cannot_open)?)
            }
            _ => Some(Directory::open(path, "log 1", create).map_err(cannot_open)?),
        };
        let bytes = fs::read(path.join("log")).map_err(io_error)?;
        let Some(mut rest) = bytes.strip_prefix(HEADER) else { return Err(unavailable("the log is incomplete")) };
        let mut map = Map::default();
        while let Some((record, after)) = split_record(rest) {
            rest = after;
            apply(&mut map, record, fault);
        }
        let file = OpenOptions::new().append(true).open(path.join("log")).map_err(io_error)?;
        // Half of a record, of a batch that was not acknowledged.
        file.set_len((bytes.len() - rest.len()) as u64).map_err(io_error)?;
        let map = Arc::new(map);
        let written = map.keys().map(|(space, _)| *space).collect();
        Ok(Self(Arc::new(Shared {
            fault,
            map: ArcSwap::new(Arc::clone(&map)),
            written: Mutex::new(written),
            log: Mutex::new(Log { file, pending: Vec::new(), before: map }),
            is_closed: AtomicBool::new(false),
            snapshots: AtomicUsize::new(0),
            ranges: AtomicUsize::new(0),
            failing_writes: AtomicBool::new(false),
            failing_reads: AtomicBool::new(false),
            path: path.to_owned(),
            _directory: directory,
        })))
    }
}

impl Drop for LogBackend {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
    }
}

/// Encodes changes: a length, a checksum, and for each change its space, its key, whether it has a value, and that.
fn record(changes: &[Change<'_>]) -> Vec<u8> {
    let mut content = Vec::new();
    for Change { space, key, value } in changes {
        content.push(space.number());
        for bytes in [*key, &[u8::from(value.is_some())], value.unwrap_or_default()] {
            content.extend((bytes.len() as u32).to_le_bytes());
            content.extend(bytes);
        }
    }
    [&(content.len() as u64).to_le_bytes(), &xxh3_64(&content).to_le_bytes(), content.as_slice()].concat()
}

/// Splits off the content of a record that is complete.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (content, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
    (xxh3_64(content) == u64::from_le_bytes(*sum)).then_some((content, rest))
}

fn apply(map: &mut Map, mut content: &[u8], fault: Option<Fault>) {
    let mut bytes = |len: usize| {
        let (bytes, rest) = content.split_at_checked(len)?;
        content = rest;
        Some(bytes)
    };
    while let Some(space) = bytes(1) {
        let space = Space::ALL[usize::from(space[0])];
        let mut part = || {
            let len = u32::from_le_bytes(bytes(4).unwrap().try_into().unwrap());
            bytes(len as usize).unwrap()
        };
        let (key, has_value, value) = (part(), part() == [1], part());
        set(map, Change { space, key, value: has_value.then_some(value) }, fault);
    }
}

fn place(space: Space, key: &[u8], fault: Option<Fault>) -> (Space, Vec<u8>) {
    match fault {
        Some(Fault::SharedSpaces) => (Space::State, key.to_vec()),
        Some(Fault::KeyCutOff) => (space, key[..key.len().min(255)].to_vec()),
        _ => (space, key.to_vec()),
    }
}

fn set(map: &mut Map, Change { space, key, value }: Change<'_>, fault: Option<Fault>) {
    let key = place(space, key, fault);
    match value {
        Some(b"") if fault == Some(Fault::EmptyValueDeletes) => drop(map.remove_mut(&key)),
        Some(value) => map.insert_mut(key, value.to_vec()),
        None if fault == Some(Fault::DeletedInDescending) && map.contains_key(&key) => {
            map.insert_mut(key, DELETED.into());
        }
        None => drop(map.remove_mut(&key)),
    }
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn is_unreadable(&self) -> bool {
        self.failing_reads.load(Ordering::Acquire)
            || (self.has(Fault::ClosedWithBackend) && self.is_closed.load(Ordering::Acquire))
    }

    /// Returns the error of reads of a library that cannot be read.
    fn read_error(&self, space: Space) -> Result<(), StoreError> {
        if self.has(Fault::MissingSpace) && !self.written.lock().contains(&space) {
            return Err(unavailable(format!("there is no table {}", space.name())));
        }
        if self.is_unreadable() { Err(unavailable("an I/O error")) } else { Ok(()) }
    }
}

impl Backend for LogBackend {
    const MAX_KEY: usize = KEY_LEN;
    const MAX_VALUE: usize = 100 * NODE_LEN;
    type Snapshot = LogSnapshot;

    fn snapshot(&self) -> Result<LogSnapshot, StoreError> {
        let shared = Arc::clone(&self.0);
        if shared.snapshots.fetch_add(1, Ordering::AcqRel) > 0 && shared.has(Fault::OneSnapshot) {
            shared.snapshots.fetch_sub(1, Ordering::AcqRel);
            return Err(unavailable("another snapshot is open"));
        }
        if shared.has(Fault::SnapshotsKept) {
            let kept = OpenOptions::new().append(true).create(true).open(shared.path.join("kept"));
            kept.and_then(|mut file| file.write_all(&[0; 32 << 10])).map_err(io_error)?;
        }
        let map = if shared.has(Fault::StaleSnapshot) {
            Arc::clone(&shared.log.lock().before)
        } else {
            shared.map.load_full()
        };
        Ok(LogSnapshot { map, shared })
    }

    fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, sync: bool) -> Result<(), StoreError> {
        let shared = &*self.0;
        let batch: Vec<_> = batch.collect();
        let mut log = shared.log.lock();
        let before = shared.map.load_full();
        let mut map = Map::clone(&before);
        for change in &batch {
            let is_missing = change.value.is_none() && !map.contains_key(&(change.space, change.key.to_vec()));
            if is_missing && shared.has(Fault::DeleteOfMissing) {
                return Err(unavailable("the key does not exist"));
            }
            set(&mut map, *change, shared.fault);
        }
        shared.written.lock().extend(batch.iter().map(|change| change.space));
        log.before = before;
        if shared.has(Fault::ShownBeforeWritten) {
            shared.map.store(Arc::new(map.clone()));
            (0..20_000).for_each(|_| thread::yield_now());
        }
        if shared.failing_writes.load(Ordering::Acquire) {
            match shared.fault {
                Some(Fault::FailureIsSuccess) => return Ok(()),
                Some(Fault::FullAfterPart) => {
                    let written = log.file.write_all(&record(&batch[..batch.len() / 2]));
                    return written.map_err(io_error).and(Err(StoreError::Full("no space".into())));
                }
                _ => return Err(unavailable("an I/O error")),
            }
        }
        match shared.fault {
            Some(Fault::HalfBatch) => {
                for (at, change) in batch.iter().enumerate() {
                    log.file.write_all(&record(slice::from_ref(change))).map_err(io_error)?;
                    if is_child() && map.size() > 100 && at == batch.len() / 2 {
                        process::abort();
                    }
                }
            }
            Some(Fault::DeletesForgotten) => {
                let puts: Vec<_> = batch.iter().copied().filter(|change| change.value.is_some()).collect();
                log.pending.extend(record(&puts));
            }
            Some(Fault::OnlyLastSynced) if sync => log.pending = record(&batch),
            _ => log.pending.extend(record(&batch)),
        }
        if sync && !shared.has(Fault::NoSync) {
            let pending = std::mem::take(&mut log.pending);
            log.file.write_all(&pending).and_then(|()| log.file.sync_data()).map_err(io_error)?;
        }
        shared.map.store(Arc::new(map));
        Ok(())
    }
}

impl Drop for LogSnapshot {
    fn drop(&mut self) {
        self.shared.snapshots.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Snapshot for LogSnapshot {
    fn get<T>(&self, space: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        let shared = &*self.shared;
        if shared.has(Fault::NoReadInRange) && shared.ranges.load(Ordering::Acquire) > 0 {
            return Err(unavailable("a range is being read"));
        }
        if shared.has(Fault::ErrorIsMissing) && shared.is_unreadable() {
            return Ok(None);
        }
        shared.read_error(space)?;
        let found = self.map.get(&place(space, key, shared.fault)).filter(|value| *value != DELETED);
        Ok(found.map(|value| use_value(value)))
    }

    fn range(
        &self,
        KeyRange { space, from, to, descending }: KeyRange<'_>,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let shared = &*self.shared;
        if from.is_empty() && !descending && shared.has(Fault::EmptyBound) {
            return Ok(());
        }
        let map = if shared.has(Fault::LiveRange) { shared.map.load_full() } else { Arc::clone(&self.map) };
        let space = place(space, b"", shared.fault).0;
        let (from, to) = ((space, from.to_vec()), to.map(|to| (space, to.to_vec())));
        let from = if shared.has(Fault::ExclusiveLowerBound) { Bound::Excluded(from) } else { Bound::Included(from) };
        let to = to.map_or(Bound::Unbounded, |to| {
            if shared.has(Fault::InclusiveUpperBound) { Bound::Included(to) } else { Bound::Excluded(to) }
        });
        let range = map.range((from, to)).filter(|((of, _), _)| *of == space);
        let mut keys: Vec<_> = range.filter(|(_, value)| descending || *value != DELETED).collect();
        if descending {
            keys.reverse();
        }
        let skip = usize::from(descending && shared.has(Fault::DescendingOffByOne));
        shared.read_error(space).or_else(|error| self.end(error))?;
        shared.ranges.fetch_add(1, Ordering::AcqRel);
        let mut result = Ok(());
        for ((_, key), value) in keys.into_iter().skip(skip) {
            if shared.is_unreadable() {
                result = self.end(unavailable("an I/O error"));
                break;
            }
            if take(key, value).is_break() && !shared.has(Fault::IgnoredBreak) {
                break;
            }
        }
        shared.ranges.fetch_sub(1, Ordering::AcqRel);
        result
    }
}

impl LogSnapshot {
    /// Returns the result of a range that an error ends.
    fn end(&self, error: StoreError) -> Result<(), StoreError> {
        let is_hidden = self.shared.has(Fault::ErrorIsEnd) || self.shared.has(Fault::ClosedWithBackend);
        if is_hidden { Ok(()) } else { Err(error) }
    }
}
