//! sled as a backend of the engine: batches, one after another, each durable before anyone sees it.
//!
//! sled assumes that everything it has written is durable, and depends on this in two ways. Each segment of its log
//! starts with a header, which contains a position up to which the log is durable (the stable position); if the segment of
//! the last stable position is missing, sled recovers nothing at all. And sled overwrites segments that it no longer needs
//! according to the header that it wrote last. Neither causes damage if no segment is started before the header of the
//! previous one is synced. The store ensures this as follows:
//!
//! - Only the writer's thread, which also syncs, writes. sled's own thread, which flushes and cleans up, is not started.
//!   sled delays splits and merges of its tree's nodes until one of their keys is looked up; the writer looks up the
//!   keys of each batch, so that reads cause no writes.
//! - The exception is a thread of sled that removes free segments from the end of the log and syncs it. If that sync
//!   fails, sled reports it at some later write, but the store's own handle to the log reports it at the next sync
//!   (`fsync(2)`; Linux since 4.13).
//! - After each batch, the log is synced.
//! - A batch may be longer than a segment. All headers within it contain a stable position before the batch, so they cause
//!   no damage. But the last of them is then far behind the end of the log, and the next long batch could overwrite the
//!   segment of its position. So a long batch is preceded by padding that starts a new segment.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use platform_engine::store::StoreError;
use platform_store_kv::{
    backend::{Backend, Change, KEY_LEN},
    unavailable,
};
use sled::IVec;

use crate::{
    directory::Directory,
    error::{catch, corrupt, from_sled},
    layout::{self, MAX_PIECES, PIECE_LEN, Value},
    snapshot::{Replaced, SledSnapshot, Version},
};

/// The length of a segment of sled's log.
const SEGMENT_LEN: usize = 512 * 1024;
/// The greatest number of bytes that a batch may add to the log and not be a long one. It is only half a segment because
/// it is compared with an estimate.
const MAX_SHORT: usize = SEGMENT_LEN / 2;
/// The length of the values that fill up a segment.
const PADDING_LEN: usize = 4 * 1024;
/// The number of syncs while a segment is filled up.
const FILL_STEPS: usize = 8;
/// The number of bytes that an entry adds to sled's log in addition to its key and value: mostly its share of the pages
/// that are rewritten.
const ENTRY_OVERHEAD: usize = 1024;

/// A directory with a sled database, opened by [`Builder::open_backend`](crate::Builder::open_backend).
pub struct SledBackend {
    shared: Arc<Shared>,
    keep_free_bytes: u64,
    /// The number of the last batch.
    batch: AtomicU64,
}

/// The state that the writer and the readers share.
pub(crate) struct Shared {
    /// Dropped before the directory, which holds the lock. That panics if sled's last sync fails, which loses no
    /// acknowledged commit.
    db: sled::Db,
    current: ArcSwap<Version>,
    stopped: RwLock<Option<Stop>>,
    directory: Directory,
}

/// The reason why the store accepts no more commits until it is opened again.
#[derive(Debug, Clone)]
struct Stop {
    why: String,
    full: bool,
    by_panic: bool,
}

/// The changes of a batch.
#[derive(Default)]
struct Entries {
    batch: sled::Batch,
    keys: Vec<Vec<u8>>,
    /// The estimated number of bytes that the batch adds to sled's log.
    log_bytes: usize,
}

impl Entries {
    /// Adds a write; `None` removes the key.
    fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.log_bytes += ENTRY_OVERHEAD + key.len() + value.as_ref().map_or(0, Vec::len);
        match value {
            Some(value) => self.batch.insert(key.as_slice(), value),
            None => self.batch.remove(key.as_slice()),
        }
        self.keys.push(key);
    }
}

impl SledBackend {
    /// Takes an opened database whose last batch had this number.
    pub(crate) fn new(db: sled::Db, directory: Directory, batch: u64, keep_free_bytes: u64) -> Self {
        let (current, stopped) = (ArcSwap::default(), RwLock::default());
        let shared = Arc::new(Shared { db, current, stopped, directory });
        Self { shared, keep_free_bytes, batch: AtomicU64::new(batch) }
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.shared.directory
    }

    /// Returns the error for further commits if the store is stopped. Nothing of a commit rejected with it was written.
    pub(crate) fn refuses_commits(&self) -> Result<(), StoreError> {
        self.shared.stopped.read().as_ref().map_or(Ok(()), |stop| {
            let why = stop.why.clone().into();
            Err(if stop.full { StoreError::Full(why) } else { StoreError::Unavailable(why) })
        })
    }

    /// Returns the reason why the store must be opened again, if any. It is not [`StoreError::Full`], even if the disk was
    /// full: free space does not help.
    pub(crate) fn health(&self) -> Result<(), StoreError> {
        let stopped = self.shared.stopped.read();
        stopped.as_ref().map_or(Ok(()), |stop| Err(unavailable(stop.why.clone())))
    }

    /// Fails with [`StoreError::Full`] if a batch could fill the disk, while there is still some free space.
    ///
    /// After a write failed on a full disk, sled never writes again, and does not even open. So some space is reserved
    /// for sled, to finish its pending writes and to open again: `keep_free_bytes`, a sixteenth of the log, and twice
    /// the size of the batch.
    fn check_free_space(&self, entries: &Entries) -> Result<(), StoreError> {
        let Ok((log, available)) = self.shared.directory.log_size_and_free_space() else { return Ok(()) };
        let needed = self.keep_free_bytes.saturating_add(log / 16).saturating_add(2 * entries.log_bytes as u64);
        if available < needed {
            let why = format!("{available} bytes are free on the disk, but commits need {needed} free bytes");
            return Err(StoreError::Full(why.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
impl SledBackend {
    /// Continues as after a write with this outcome.
    pub(crate) fn fail(&self, outcome: Result<sled::Result<()>, String>) {
        assert!(self.shared.written(outcome).is_err());
    }
}

impl Backend for SledBackend {
    const MAX_KEY: usize = KEY_LEN;
    const MAX_VALUE: usize = MAX_PIECES * PIECE_LEN;

    type Snapshot = SledSnapshot;

    fn snapshot(&self) -> Result<SledSnapshot, StoreError> {
        Ok(SledSnapshot::new(Arc::clone(&self.shared), self.shared.current.load_full()))
    }

    /// Every batch is durable.
    fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, _sync: bool) -> Result<(), StoreError> {
        self.refuses_commits()?;
        let shared = &*self.shared;
        let (mut entries, mut replaced) = (Entries::default(), Replaced::new());
        for Change { space, key, value } in batch {
            let entry = layout::entry(space, key);
            let before = shared.value(&entry)?;
            let stored = value.map(layout::store);
            let (head, pieces) = stored.map_or((None, None), |(head, pieces)| (Some(head), Some(pieces)));
            let kept = pieces.as_ref().map_or(0, ExactSizeIterator::len);
            for (number, part) in pieces.into_iter().flatten().enumerate() {
                entries.set(layout::piece(&entry, number), Some(part.to_vec()));
            }
            for number in kept..before.as_ref().map_or(0, Value::pieces) {
                entries.set(layout::piece(&entry, number), None);
            }
            entries.set(entry.clone(), head);
            replaced.insert(entry.into(), before);
        }
        let number = self.batch.load(Ordering::Relaxed) + 1;
        entries.set(layout::HEADER.to_vec(), Some(layout::header(number)));
        self.check_free_space(&entries)?;
        let next = shared.current.load().end(replaced).ok_or_else(|| corrupt("a batch was written twice"))?;
        if entries.log_bytes > MAX_SHORT {
            shared.apply_long(entries, number)?;
        } else {
            shared.apply(entries.batch)?;
            shared.rebalance(&entries.keys)?;
            shared.sync(number)?;
        }
        self.batch.store(number, Ordering::Relaxed);
        shared.current.store(next);
        Ok(())
    }

    /// Checks that the tree has nothing else, and the pieces of each value.
    fn check(&self, mut report: impl FnMut(String)) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        let shared = &*self.shared;
        let mut all = shared.tree().iter();
        while let Some(entry) = shared.read(|| all.next())? {
            let (key, _) = entry.map_err(from_sled)?;
            let entry = layout::entry_of_piece(&key);
            let is_used = match entry {
                Some(entry) => {
                    let value = snapshot.value(entry)?;
                    // A batch may have written it in the meantime.
                    value.is_some_and(|value| value.pieces() > 0) || !snapshot.replaced(Replaced::is_empty)?
                }
                None => layout::is_entry(&key) || [layout::HEADER, layout::PADDING].contains(&&*key),
            };
            if !is_used {
                report(format!("the entry \"{}\" of the tree belongs to nothing", key.escape_ascii()));
            }
        }
        Ok(())
    }
}

impl Shared {
    pub(crate) fn tree(&self) -> &sled::Tree {
        &self.db
    }

    /// Reads from sled. After a panic, the store accepts no more commits.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> T) -> Result<T, StoreError> {
        catch(read).map_err(|panic| {
            self.stop::<()>(Err(panic.clone()));
            corrupt(panic)
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        self.read(|| self.db.get(key))?.map_err(from_sled)
    }

    /// Returns the value of an entry in the tree.
    pub(crate) fn value(&self, entry: &[u8]) -> Result<Option<Value>, StoreError> {
        self.get(entry)?.map(|stored| self.joined(entry, stored)).transpose()
    }

    /// Returns the value of an entry that is stored so, with its pieces.
    pub(crate) fn joined(&self, entry: &[u8], stored: IVec) -> Result<Value, StoreError> {
        Value::read(entry, stored, |key| self.get(key))
    }

    /// Applies and syncs a batch that may be longer than a segment of the log.
    fn apply_long(&self, entries: Entries, number: u64) -> Result<(), StoreError> {
        self.fill_segment(number.saturating_sub(1))?;
        self.apply(entries.batch.clone())?;
        self.sync(number)?;
        // The splits and merges may be longer than a segment too, so perform them in a batch. Applying the same batch
        // again changes nothing else. The batch is already durable: if this fails, the store is stopped.
        let rebalance = || {
            self.fill_segment(number)?;
            self.apply(entries.batch)?;
            self.sync(number)
        };
        let _ = rebalance();
        Ok(())
    }

    fn apply(&self, batch: sled::Batch) -> Result<(), StoreError> {
        self.written(catch(|| self.db.apply_batch(batch))).map(drop)
    }

    /// Makes sled split and merge the nodes with these keys that have become too large or too small. sled does this
    /// when a key is looked up; without this function, reads would write.
    fn rebalance(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        self.written(catch(|| keys.iter().try_for_each(|key| self.db.get(key).map(drop))))
    }

    /// Writes padding until sled's log starts a new segment, and makes it durable.
    ///
    /// sled writes the node with the padding again now and then, and with it a node from a segment that it wants to free;
    /// after the opening there are many of these. So what is written between two syncs is several times the padding.
    fn fill_segment(&self, number: u64) -> Result<(), StoreError> {
        for _step in 0..FILL_STEPS {
            let filled = catch(|| {
                for fill in 0..=SEGMENT_LEN / FILL_STEPS / PADDING_LEN {
                    // The values differ because sled does not write a value that is already stored.
                    self.db.insert(layout::PADDING, vec![fill as u8; PADDING_LEN])?;
                }
                self.db.remove(layout::PADDING)
            });
            self.written(filled)?;
            self.sync(number)?;
        }
        Ok(())
    }

    /// Makes all batches durable, up to the one with this number, and then records that in the mark.
    fn sync(&self, number: u64) -> Result<(), StoreError> {
        self.written(catch(|| self.db.flush()))?;
        let synced = self.directory.sync_log().and_then(|()| self.directory.write_mark(number));
        // After a failed fsync it is unknown which data is on disk, and a second fsync can succeed without writing the
        // lost data: so stop.
        self.written(Ok(synced.map_err(sled::Error::Io)))
    }

    /// Stops the store after a failed write.
    fn written<T>(&self, outcome: Result<sled::Result<T>, String>) -> Result<T, StoreError> {
        match outcome {
            Ok(Ok(written)) => Ok(written),
            failed => {
                self.directory.note_unsynced();
                Err(self.stop(failed))
            }
        }
    }

    /// Stops the store after a failed write, or a panic of a read: rejects commits from now on. Reads go on, as the values
    /// that the failed batch has replaced stay published.
    fn stop<T>(&self, failed: Result<sled::Result<T>, String>) -> StoreError {
        let (why, full, by_panic) = match failed {
            Ok(Err(sled::Error::Io(error))) => (error.to_string(), error.kind() == io::ErrorKind::StorageFull, false),
            Ok(Err(error)) => (error.to_string(), false, false),
            Ok(Ok(_)) => (String::new(), false, false),
            Err(panic) => (panic, false, true),
        };
        let why = format!("a write failed, and it is unknown how much of it is on disk ({why}); restart the server");
        let error = StoreError::Unknown(why.clone().into());
        *self.stopped.write() = Some(Stop { why, full, by_panic });
        error
    }
}

impl fmt::Debug for SledBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SledBackend").field("path", &self.directory().path()).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // If this sync fails, no acknowledged commit is lost: the mark only falls behind.
        let _ = self.directory.sync_mark();
        if self.stopped.read().as_ref().is_some_and(|stop| stop.by_panic) {
            // Closing sled would wait forever for a thread that panicked. Leak it; the process has to be restarted.
            std::mem::forget(self.db.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use platform_engine::store::{Commit, Key, Store as _};
    use pollster::block_on;

    use super::*;
    use crate::SledStore;

    type Outcome = Result<sled::Result<()>, String>;

    fn io(kind: io::ErrorKind) -> Outcome {
        Ok(Err(sled::Error::Io(kind.into())))
    }

    #[test]
    fn after_a_failed_write_or_a_panic_a_store_refuses_commits_until_it_is_opened_again() {
        let outcomes: [(fn() -> Outcome, bool); 3] = [
            (|| io(io::ErrorKind::StorageFull), true),
            (|| io(io::ErrorKind::Other), false),
            (|| Err("a panic".to_owned()), false),
        ];
        for (outcome, is_full) in outcomes {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("store");
            let store = SledStore::open(&path).unwrap();
            block_on(store.commit(Commit::default())).unwrap();
            store.kv().unwrap().backend().fail(outcome());
            assert!(path.join("unsynced").exists(), "the next opening writes the log again");
            // Nothing of the commit was written, so its outcome is not unknown.
            let refused = block_on(store.commit(Commit::default())).unwrap_err();
            assert_eq!(matches!(refused, StoreError::Full(_)), is_full, "{refused}");
            assert!(is_full || matches!(refused, StoreError::Unavailable(_)), "{refused}");
            assert!(store.check().is_err());
            assert!(matches!(store.health(), Err(StoreError::Unavailable(_))), "free space does not help");
            let key = Key::new("Thing", platform_engine::uid::Uid::opaque("a"));
            assert!(block_on(store.get(&[key], &[])).unwrap().records[0].is_none(), "reads go on");
            let batch = [Change { space: platform_store_kv::backend::Space::Nodes, key: b"a", value: None }];
            let refused = store.kv().unwrap().backend().write(batch.into_iter(), true).unwrap_err();
            assert_eq!(matches!(refused, StoreError::Full(_)), is_full, "{refused}");
            let by_panic = outcome().is_err();
            drop(store);
            assert_eq!(SledStore::open(&path).is_err(), by_panic, "after a panic, only in another process");
        }
    }
}
