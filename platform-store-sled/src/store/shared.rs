//! The state that calls read and the writer changes, and the gate between them.

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
    error::{catch, corrupt, from_sled, reason},
    schema::Header,
};

/// What the store's threads and callers have in common. sled comes first and is dropped first, the lock last.
pub(crate) struct Shared {
    pub(crate) db: sled::Db,
    /// Held for reading while one state is read, and for writing while a commit is applied. sled has no snapshots,
    /// and a reader that goes from entry to entry would see half of a batch.
    gate: RwLock<()>,
    /// Of the last commit that was applied.
    sequence: AtomicU64,
    stopped: RwLock<Option<Stop>>,
    /// Why the last commit found no room, if it did not.
    full: RwLock<Option<String>>,
    pub(crate) directory: Directory,
}

/// Why the store does no more than it must.
#[derive(Debug, Clone)]
struct Stop {
    why: String,
    full: bool,
    by_panic: bool,
    /// What is in memory may be half a commit.
    torn: bool,
}

impl Shared {
    pub(super) fn new(db: sled::Db, directory: Directory, sequence: u64) -> Self {
        let (gate, stopped, full) = (RwLock::new(()), RwLock::default(), RwLock::default());
        Self { db, gate, sequence: AtomicU64::new(sequence), stopped, full, directory }
    }

    /// Applies a commit's writes, so that readers see all or none.
    pub(crate) fn apply(&self, batch: sled::Batch, sequence: u64) -> Result<(), StoreError> {
        let _gate = self.gate.write();
        let applied = catch(|| self.db.apply_batch(batch));
        if let Ok(Ok(())) = applied {
            self.sequence.store(sequence, Ordering::Release);
            return Ok(());
        }
        Err(self.stop(applied, true))
    }

    /// Returns when all that was applied outlasts a power cut.
    pub(crate) fn sync(&self, header: Header) -> Result<(), StoreError> {
        let flushed = catch(|| self.db.flush());
        let Ok(Ok(_)) = flushed else { return Err(self.stop(flushed, false)) };
        let synced = self.directory.sync_log().and_then(|()| self.directory.write_mark(header));
        // After a failed fsync nobody knows what was written, and a second one would lie.
        synced.map_err(|error| self.stop::<()>(Ok(Err(sled::Error::Io(error))), false))
    }

    /// Refuses commits from now on, and reads too when what is in memory is torn.
    pub(crate) fn stop<T>(&self, failed: Result<Result<T, sled::Error>, String>, torn: bool) -> StoreError {
        let (why, full, by_panic) = match failed {
            Ok(Err(sled::Error::Io(error))) => (error.to_string(), error.kind() == io::ErrorKind::StorageFull, false),
            Ok(Err(error)) => (error.to_string(), false, false),
            Ok(Ok(_)) => (String::new(), false, false),
            Err(panic) => (panic, false, true),
        };
        let why = format!("a write failed, and it is not known how much of it is on disk ({why}); restart the server");
        let error = StoreError::Unavailable(reason(why.clone()));
        *self.stopped.write() = Some(Stop { why, full, by_panic, torn });
        error
    }

    /// Returns why nothing is written any more, if that is so. Nothing of a commit so refused was written.
    pub(crate) fn refuses_commits(&self) -> Option<StoreError> {
        self.stopped.read().as_ref().map(|stop| {
            let why = reason(stop.why.clone());
            if stop.full { StoreError::Full(why) } else { StoreError::Unavailable(why) }
        })
    }

    /// Remembers whether the last commit found room.
    pub(crate) fn set_full(&self, why: Option<String>) {
        *self.full.write() = why;
    }

    /// Returns what is wrong with writing, if anything is.
    pub(crate) fn health(&self) -> Result<(), StoreError> {
        if let Some(stop) = self.stopped.read().as_ref() {
            // Also when room was what was missing: it takes another opening of the store to go on.
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

    /// Answers within about a page's time, or returns `None`.
    pub(super) fn read_briefly<T>(
        &self,
        work: impl Fn(&mut View<'_>) -> Result<T, Halt>,
    ) -> Option<Result<T, StoreError>> {
        let gate = self.gate.try_read_for(Duration::from_millis(1))?;
        match self.read(gate, Pace::Brief, work) {
            Ok(answer) => Some(Ok(answer)),
            Err(Halt::Failed(error)) => Some(Err(error)),
            Err(Halt::Long | Halt::Changed) => None,
        }
    }

    /// Answers, however long that takes. The first attempts let commits through now and then, and begin again when
    /// one of them changed the store; the last one keeps them waiting.
    pub(super) fn read_patiently<T>(&self, work: impl Fn(&mut View<'_>) -> Result<T, Halt>) -> Result<T, StoreError> {
        for pace in [Pace::Yielding, Pace::Yielding, Pace::Yielding, Pace::Steady] {
            match self.read(self.gate.read(), pace, &work) {
                Ok(answer) => return Ok(answer),
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::Long | Halt::Changed) => {}
            }
        }
        Err(StoreError::Unavailable(reason("a read was interrupted though nothing could interrupt it")))
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

/// Why a read did not come to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It takes longer than its thread has time for.
    Long,
    /// The store changed while the read let a commit through.
    Changed,
    /// It cannot be answered.
    Failed(StoreError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// How much a read may ask of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// It ends before it is long.
    Brief,
    /// It lets commits through.
    Yielding,
    /// It keeps commits waiting.
    Steady,
}

/// How many entries are read in a millisecond or two.
const STRETCH: u32 = 1024;

/// One state of the store, between two commits.
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

    /// Returns what is stored under the key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        self.shared.db.get(key).map_err(from_sled)
    }

    /// Counts an entry that was read, and sees to it that nobody waits too long for this read.
    pub(crate) fn step(&mut self) -> Result<(), Halt> {
        self.steps += 1;
        if self.steps < STRETCH {
            return Ok(());
        }
        self.steps = 0;
        match self.pace {
            Pace::Steady => return Ok(()),
            Pace::Brief => return Err(Halt::Long),
            Pace::Yielding => RwLockReadGuard::bump(&mut self.gate),
        }
        let unchanged = self.shared.sequence.load(Ordering::Acquire) == self.sequence;
        if unchanged { Ok(()) } else { Err(Halt::Changed) }
    }
}
