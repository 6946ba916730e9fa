//! The state that readers and the writer share, and the gate that separates them.
//!
//! Lock order: the gate first, then `stopped` or `full`, which are held for a moment only. No thread waits for the gate
//! while it holds one of the others.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::{RwLock, RwLockReadGuard};
use platform_engine::store::StoreError;
use sled::IVec;

use super::directory::Directory;
use crate::{
    entries::Entries,
    error::{catch, corrupt, from_sled, reason},
    schema::{self, Header},
};

/// The length of a segment of sled's log.
pub(crate) const SEGMENT_LEN: usize = 512 * 1024;

/// The length of the values that fill up a segment.
const PADDING_LEN: usize = 4 * 1024;

/// The state shared by the store's threads and callers. Fields are dropped in this order: sled before the directory,
/// which holds the lock.
pub(crate) struct Shared {
    pub(crate) db: sled::Db,
    /// Held for reading during a read, and for writing while a batch is applied. sled has no snapshots: a reader that
    /// goes from entry to entry would see half of a batch.
    gate: RwLock<()>,
    /// The sequence of the last commit that was applied. Changes only while the gate is held for writing.
    sequence: AtomicU64,
    stopped: RwLock<Option<Stop>>,
    /// The error message of the last group, if it was rejected for lack of disk space.
    full: RwLock<Option<String>>,
    pub(crate) directory: Directory,
}

/// The reason why the store accepts no more commits until it is opened again.
#[derive(Debug, Clone)]
struct Stop {
    why: String,
    full: bool,
    by_panic: bool,
    /// Whether sled may have applied half of a batch in memory. Then reads fail too.
    torn: bool,
}

impl Shared {
    pub(super) fn new(db: sled::Db, directory: Directory, sequence: u64) -> Self {
        let (gate, stopped, full) = (RwLock::new(()), RwLock::default(), RwLock::default());
        Self { db, gate, sequence: AtomicU64::new(sequence), stopped, full, directory }
    }

    /// Applies a commit's entries. Readers see either all of them or none.
    pub(crate) fn apply(&self, entries: Entries, header: Header) -> Result<(), StoreError> {
        let _gate = self.gate.write();
        self.write(entries.batch, header)?;
        self.rebalance(&entries.keys)
    }

    /// Applies the entries of a commit that may be longer than a segment of the log, and makes them durable.
    pub(crate) fn apply_long(&self, entries: Entries, before: Header, header: Header) -> Result<(), StoreError> {
        self.fill_segment(before)?;
        let _gate = self.gate.write();
        self.write(entries.batch.clone(), header)?;
        self.sync(header)?;
        // The splits and merges may be longer than a segment too, so perform them in a batch. Applying the same batch
        // again changes nothing else.
        let rebalance = || {
            self.fill_segment(header)?;
            self.write(entries.batch, header)?;
            self.sync(header)
        };
        // The commit is already durable. If this fails, the store is stopped.
        let _ = rebalance();
        Ok(())
    }

    fn write(&self, batch: sled::Batch, header: Header) -> Result<(), StoreError> {
        let applied = catch(|| self.db.apply_batch(batch));
        // Stop before the gate opens: the batch may be applied in part.
        let Ok(Ok(())) = applied else { return Err(self.stop(applied, true)) };
        // While the gate is held, so that a read that yields it notices the change: see `View::step`.
        self.sequence.store(header.sequence, Ordering::Release);
        Ok(())
    }

    /// Makes sled split and merge the nodes with these keys that have become too large or too small. sled does this
    /// when a key is looked up; without this function, reads would write.
    fn rebalance(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        let rebalanced = catch(|| keys.iter().try_for_each(|key| self.db.get(key).map(drop)));
        let Ok(Ok(())) = rebalanced else { return Err(self.stop(rebalanced, false)) };
        Ok(())
    }

    /// Writes padding until sled's log starts a new segment, and makes it durable.
    fn fill_segment(&self, header: Header) -> Result<(), StoreError> {
        let key = schema::padding_key();
        for _half in 0..2 {
            let filled = catch(|| {
                for number in 0..=SEGMENT_LEN / 2 / PADDING_LEN {
                    // The values differ because sled does not write a value that is already stored.
                    self.db.insert(&key, vec![number as u8; PADDING_LEN])?;
                }
                self.db.remove(&key)
            });
            let Ok(Ok(_)) = filled else { return Err(self.stop(filled, false)) };
            self.sync(header)?;
        }
        Ok(())
    }

    /// Makes all applied commits durable, and then records that in the mark.
    pub(crate) fn sync(&self, header: Header) -> Result<(), StoreError> {
        let flushed = catch(|| self.db.flush());
        let Ok(Ok(_)) = flushed else { return Err(self.stop(flushed, false)) };
        let synced = self.directory.sync_log().and_then(|()| self.directory.write_mark(header));
        // After a failed fsync it is unknown which data is on disk, and a second fsync can succeed without writing the
        // lost data: so stop.
        synced.map_err(|error| self.stop::<()>(Ok(Err(sled::Error::Io(error))), false))
    }

    /// Stops the store after a failed write: rejects commits from now on, and, if `torn`, reads too.
    pub(crate) fn stop<T>(&self, failed: Result<Result<T, sled::Error>, String>, torn: bool) -> StoreError {
        let (why, full, by_panic) = match failed {
            Ok(Err(sled::Error::Io(error))) => (error.to_string(), error.kind() == io::ErrorKind::StorageFull, false),
            Ok(Err(error)) => (error.to_string(), false, false),
            Ok(Ok(_)) => (String::new(), false, false),
            Err(panic) => (panic, false, true),
        };
        let why = format!("a write failed, and it is unknown how much of it is on disk ({why}); restart the server");
        let error = StoreError::Unknown(reason(why.clone()));
        *self.stopped.write() = Some(Stop { why, full, by_panic, torn });
        error
    }

    /// Returns the error for further commits if the store is stopped. Nothing of a commit rejected with it was written.
    pub(crate) fn refuses_commits(&self) -> Option<StoreError> {
        self.stopped.read().as_ref().map(|stop| {
            let why = reason(stop.why.clone());
            if stop.full { StoreError::Full(why) } else { StoreError::Unavailable(why) }
        })
    }

    /// Records whether the last group was rejected for lack of disk space.
    pub(crate) fn set_full(&self, why: Option<String>) {
        *self.full.write() = why;
    }

    /// Returns the error that a commit would probably get.
    pub(crate) fn health(&self) -> Result<(), StoreError> {
        if let Some(stop) = self.stopped.read().as_ref() {
            // Not `Full`, even if the disk was full: free space does not help, the store must be opened again.
            return Err(StoreError::Unavailable(reason(stop.why.clone())));
        }
        match self.full.read().as_ref() {
            Some(why) => Err(StoreError::Full(reason(why.clone()))),
            None => Ok(()),
        }
    }

    pub(super) fn is_stopped_by_panic(&self) -> bool {
        self.stopped.read().as_ref().is_some_and(|stop| stop.by_panic)
    }

    fn refuses_reads(&self) -> Option<StoreError> {
        let stopped = self.stopped.read();
        stopped.as_ref().filter(|stop| stop.torn).map(|stop| StoreError::Unavailable(reason(stop.why.clone())))
    }

    /// Reads on the caller's thread; returns `None` if the writer holds the gate for more than 1 ms or if the read is
    /// longer than a usual page.
    pub(super) fn try_read<T>(&self, work: impl Fn(&mut View<'_>) -> Result<T, Halt>) -> Option<Result<T, StoreError>> {
        let gate = self.gate.try_read_for(Duration::from_millis(1))?;
        match self.read(gate, Pace::Bounded, work) {
            Ok(answer) => Some(Ok(answer)),
            Err(Halt::Failed(error)) => Some(Err(error)),
            Err(Halt::TooLong | Halt::Changed) => None,
        }
    }

    /// Reads, however long it takes. The first three attempts regularly let commits through and are abandoned if one
    /// of them changed the store; the last attempt makes commits wait.
    pub(super) fn read_to_completion<T>(
        &self,
        work: impl Fn(&mut View<'_>) -> Result<T, Halt>,
    ) -> Result<T, StoreError> {
        for pace in [Pace::Yielding, Pace::Yielding, Pace::Yielding, Pace::Blocking] {
            match self.read(self.gate.read(), pace, &work) {
                Ok(answer) => return Ok(answer),
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::TooLong | Halt::Changed) => {}
            }
        }
        // A read with `Pace::Blocking` cannot be interrupted.
        Err(StoreError::Unavailable(reason("a read was interrupted unexpectedly")))
    }

    fn read<'a, T>(
        &'a self,
        gate: RwLockReadGuard<'a, ()>,
        pace: Pace,
        work: impl Fn(&mut View<'_>) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        if let Some(error) = self.refuses_reads() {
            return Err(Halt::Failed(error));
        }
        let sequence = self.sequence.load(Ordering::Acquire);
        let mut view = View { shared: self, gate, sequence, pace, steps: 0 };
        catch(|| work(&mut view)).unwrap_or_else(|panic| {
            self.stop::<()>(Err(panic.clone()), false);
            Err(Halt::Failed(corrupt(panic)))
        })
    }
}

/// The reason why a read ended without a result.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The read is too long for the caller's thread.
    TooLong,
    /// A commit that the read let through has changed the store.
    Changed,
    /// An error.
    Failed(StoreError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// The behavior of a read after each [`STEPS`] entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The read is abandoned.
    Bounded,
    /// The read lets waiting commits through, and is abandoned if there were any.
    Yielding,
    /// The read continues, and commits wait.
    Blocking,
}

/// The number of entries that a read examines in a millisecond or two.
const STEPS: u32 = 1024;

/// A consistent state of the store between two commits, guarded by the gate.
pub(crate) struct View<'a> {
    shared: &'a Shared,
    gate: RwLockReadGuard<'a, ()>,
    sequence: u64,
    pace: Pace,
    steps: u32,
}

impl View<'_> {
    pub(crate) fn db(&self) -> &sled::Db {
        &self.shared.db
    }

    /// Returns the stored value of a key, including its checksum.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        self.shared.db.get(key).map_err(from_sled)
    }

    /// Counts an examined entry. Must be called for each, so that a long read neither blocks its thread nor the writer
    /// for long.
    ///
    /// # Errors
    /// [`Halt::TooLong`] or [`Halt::Changed`] if the read has to be abandoned.
    pub(crate) fn step(&mut self) -> Result<(), Halt> {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        match self.pace {
            Pace::Blocking => return Ok(()),
            Pace::Bounded => return Err(Halt::TooLong),
            // Releases the gate to a waiting writer and acquires it again.
            Pace::Yielding => RwLockReadGuard::bump(&mut self.gate),
        }
        let unchanged = self.shared.sequence.load(Ordering::Acquire) == self.sequence;
        if unchanged { Ok(()) } else { Err(Halt::Changed) }
    }
}
