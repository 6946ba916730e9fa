//! A store that records the commits of all platforms, with the times at which they began and ended.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use futures_lite::future::block_on;
use parking_lot::Mutex;

use platform_engine::{
    store::{Commit, Committed, Delete, Epoch, Key, Page, Query, Read, Store, StoreError},
    uid::Uid,
};

thread_local! {
    /// The number of the operation that this thread runs.
    static OPERATION: Cell<u64> = const { Cell::new(0) };
}

/// The commits of a history, and its clock.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    clock: AtomicU64,
    commits: Mutex<Vec<Recorded>>,
    failed: Mutex<Vec<Failed>>,
}

/// A successful commit.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    /// The operation that made it.
    pub(super) operation: u64,
    pub(super) begin: u64,
    /// `u64::MAX` if the commit was found to be successful later.
    pub(super) end: u64,
    pub(super) sequence: u64,
    pub(super) commit: Arc<Commit>,
}

/// A commit that failed and may have been applied: its mark shows it.
#[derive(Debug)]
struct Failed {
    recorded: Recorded,
    mark: Epoch,
    error: StoreError,
}

impl Recorder {
    /// Returns the current time: a number that rises with each call.
    pub(super) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes the commits of this thread belong to an operation.
    pub(super) fn begin(operation: u64) {
        OPERATION.set(operation);
    }

    /// Takes the commits since the last call, those of unknown outcome included if the store has them. Returns the
    /// number of commits of unknown outcome as well.
    ///
    /// # Errors
    /// A commit that was applied, although the store reported that nothing was written.
    pub(super) fn take(&self, store: &dyn Store) -> Result<(Vec<Recorded>, usize), String> {
        let mut commits = std::mem::take(&mut *self.commits.lock());
        let mut unknown = 0;
        for Failed { recorded, mark, error } in std::mem::take(&mut *self.failed.lock()) {
            let read = block_on(store.get(&[], std::slice::from_ref(&mark)));
            let sequence = read.map_err(|error| format!("the store does not answer: {error}"))?.epochs[0];
            let is_unknown = matches!(error, StoreError::Unknown(_));
            unknown += usize::from(is_unknown);
            match (sequence, is_unknown) {
                (0, _) => {}
                (_, true) => commits.push(Recorded { sequence, ..recorded }),
                (_, false) => return Err(format!("a commit was applied that failed with {error}: {recorded:#?}")),
            }
        }
        Ok((commits, unknown))
    }
}

/// A store whose commits are recorded.
#[derive(Debug)]
pub(super) struct RecordingStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) recorder: Arc<Recorder>,
}

/// Returns the epoch that shows whether a commit was applied: the commit raises it, and no other commit does.
fn mark(commit: &Commit, serial: u64) -> Option<Epoch> {
    let put = commit.put.first().map(|put| put.key.uid.root());
    let raised = commit.raise.first().map(Epoch::organization);
    let deleted = commit.delete.first().and_then(|delete| match delete {
        Delete::Key(key) => Some(key.uid.root()),
        Delete::Below(uid, _) => Some(uid.root()),
        Delete::With(..) => None,
    });
    let organization = put.or(raised).or(deleted).filter(|organization| !organization.is_empty())?;
    Some(Epoch::new("history", Uid::opaque(format!("{organization}/{serial:016x}"))))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for RecordingStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }

    async fn commit(&self, mut commit: Commit) -> Result<Committed, StoreError> {
        let begin = self.recorder.now();
        let mark = mark(&commit, begin);
        commit.raise.extend(mark.clone());
        let operation = OPERATION.get();
        let done = self.store.commit(commit.clone()).await;
        let recorded = Recorded { operation, begin, end: u64::MAX, sequence: 0, commit: Arc::new(commit) };
        match done {
            Ok(committed) => {
                let (end, sequence) = (self.recorder.now(), committed.sequence);
                self.recorder.commits.lock().push(Recorded { end, sequence, ..recorded });
                Ok(committed)
            }
            Err(error @ StoreError::Conflict(_)) => Err(error),
            Err(error) => {
                if let Some(mark) = mark {
                    let copy = match &error {
                        StoreError::Unknown(cause) => StoreError::Unknown(cause.to_string().into()),
                        other => StoreError::Unavailable(other.to_string().into()),
                    };
                    self.recorder.failed.lock().push(Failed { recorded, mark, error: copy });
                }
                Err(error)
            }
        }
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}
