//! The writer thread: group commit. It takes the commits that are queued, applies one after another, makes them
//! durable, and then acknowledges all of them.
//!
//! Each commit is a batch of its own, so readers can see a commit before it is durable. If a sync fails, no commit that
//! depends on it is acknowledged, not even a rejection: it may rest on a commit that is lost.
//!
//! One sync for the whole group is not always safe. sled assumes that everything it has written is durable, and depends
//! on this in two ways. Each segment of its log starts with a header, which contains a position up to which the log is
//! durable (the stable position); if the segment of the last stable position is missing, sled recovers nothing at all.
//! And sled overwrites segments that it no longer needs according to the header that it wrote last. Neither causes
//! damage if no segment is started before the header of the previous one is synced. The store ensures this as follows:
//!
//! - Only the writer thread, which also syncs, writes. sled's own thread, which flushes and cleans up, is not started.
//!   sled delays splits and merges of its tree's nodes until one of their keys is looked up; the writer looks up the
//!   keys of each commit, so that reads cause no writes.
//! - Commits share a sync only while they add at most [`MAX_UNSYNCED`] bytes to the log.
//! - A single commit may be longer than a segment. All headers within it contain a stable position before the commit,
//!   so they cause no damage. But the last of them is then far behind the end of the log, and the next long commit
//!   could overwrite the segment of its position. So a long commit is preceded by padding that starts a new segment.

mod lists;
mod plan;

use crossbeam_channel::Receiver;
use futures_channel::oneshot;
use platform_engine::store::{Commit, Committed, Put, StoreError};

use self::{lists::Lists, plan::Plan};
pub(crate) use self::{
    lists::{Membership, Step},
    plan::entries,
};
use crate::{
    error::{catch, corrupt, reason},
    schema::Header,
    store::{SEGMENT_LEN, Shared},
};

/// A queued commit and the channel for its result.
pub(crate) struct Request {
    pub(crate) commit: Commit,
    pub(crate) reply: oneshot::Sender<Result<Committed, StoreError>>,
}

/// The maximum number of commits that are acknowledged together.
const GROUP: usize = 256;

/// The maximum number of bytes that commits may add to the log between two syncs. It is only half a segment because it
/// is compared with an estimate. A commit with more bytes may be longer than a segment.
const MAX_UNSYNCED: usize = SEGMENT_LEN / 2;

/// Writes commits until the queue is closed.
pub(crate) fn run(shared: &Shared, mut writer: Writer, requests: &Receiver<Request>) {
    while let Ok(first) = requests.recv() {
        let group: Vec<Request> = std::iter::once(first).chain(requests.try_iter()).take(GROUP).collect();
        let refused = shared.refuses_commits().or_else(|| {
            let full = writer.check_free_space(shared, &group);
            shared.set_full(full.as_ref().and_then(std::error::Error::source).map(ToString::to_string));
            full
        });
        let (commits, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|Request { commit, reply }| (commit, reply)).unzip();
        let results = match refused {
            None => writer.write(shared, &commits),
            Some(error) => commits.iter().map(|_| Err(clone_error(&error))).collect(),
        };
        for (reply, result) in replies.into_iter().zip(results) {
            // The send fails if the caller was canceled; the commit is done nevertheless.
            let _ = reply.send(result);
        }
    }
}

/// Copies the error of a group for one of its commits; errors are not `Clone`.
fn clone_error(error: &StoreError) -> StoreError {
    match error {
        StoreError::Full(why) => StoreError::Full(reason(why.to_string())),
        StoreError::Unknown(why) => StoreError::Unknown(reason(why.to_string())),
        StoreError::Unavailable(why) => StoreError::Unavailable(reason(why.to_string())),
        other => StoreError::Unavailable(reason(other.to_string())),
    }
}

/// The state of the writer thread.
pub(crate) struct Writer {
    header: Header,
    lists: Lists,
    keep_free_bytes: u64,
    /// The estimated number of bytes that were added to the log since the last sync.
    unsynced: usize,
}

impl Writer {
    /// Loads the writer's state from the store.
    pub(crate) fn new(
        db: &sled::Db,
        header: Header,
        promote_above: u32,
        keep_free_bytes: u64,
    ) -> Result<Self, StoreError> {
        let lists = Lists::load(db, promote_above)?;
        Ok(Self { header, lists, keep_free_bytes, unsynced: 0 })
    }

    /// Returns [`StoreError::Full`] if the group could fill the disk, while there is still some free space.
    ///
    /// After a write failed on a full disk, sled never writes again, and does not even open. So some space is reserved
    /// for sled, to finish its pending writes and to open again: `keep_free_bytes`, a sixteenth of the log, and twice
    /// the size of the group.
    fn check_free_space(&self, shared: &Shared, group: &[Request]) -> Option<StoreError> {
        let len = |put: &Put| (put.body.len() + put.private.len() + 4096) as u64;
        let len: u64 = group.iter().flat_map(|request| &request.commit.put).map(len).sum();
        let (log, available) = shared.directory.log_size_and_free_space().ok()?;
        let needed = self.keep_free_bytes.saturating_add(log / 16).saturating_add(2 * len);
        let why = || format!("{available} bytes are free on the disk, but commits need {needed} free bytes");
        (available < needed).then(|| StoreError::Full(reason(why())))
    }

    /// Applies commits in order, makes them durable, and returns their results. Each commit sees the changes of those
    /// before it; a rejected commit does not affect the others.
    fn write(&mut self, shared: &Shared, commits: &[Commit]) -> Vec<Result<Committed, StoreError>> {
        let mut results = Vec::with_capacity(commits.len());
        // The number of results that no later sync can change.
        let mut synced = 0;
        for commit in commits {
            let result = self.plan(shared, commit).and_then(|plan| {
                if self.unsynced > 0 && self.unsynced + plan.entries.log_bytes > MAX_UNSYNCED {
                    self.sync(shared, results.iter_mut().skip(synced));
                    synced = results.len();
                }
                self.apply(shared, plan)
            });
            results.push(result);
            if self.unsynced == 0 {
                synced = results.len();
            }
        }
        self.sync(shared, results.iter_mut().skip(synced));
        results
    }

    fn plan(&self, shared: &Shared, commit: &Commit) -> Result<Plan, StoreError> {
        if let Some(error) = shared.refuses_commits() {
            return Err(error);
        }
        // Planning only reads, so a panic leaves nothing torn; but the store is damaged, so accept no further commits.
        catch(|| Plan::make(&shared.db, &self.header, &self.lists, commit)).unwrap_or_else(|panic| {
            shared.stop::<()>(Err(panic.clone()), false);
            Err(corrupt(panic))
        })
    }

    fn apply(&mut self, shared: &Shared, plan: Plan) -> Result<Committed, StoreError> {
        // A sync may have failed since the commit was planned.
        if let Some(error) = shared.refuses_commits() {
            return Err(error);
        }
        let Plan { header, entries, lists } = plan;
        let log_bytes = entries.log_bytes;
        if log_bytes > MAX_UNSYNCED {
            shared.apply_long(entries, self.header, header)?;
        } else {
            shared.apply(entries, header)?;
            self.unsynced += log_bytes;
        }
        // The writer's state changes only after the batch was applied.
        self.header = header;
        self.lists.adopt(lists);
        Ok(Committed { sequence: header.sequence })
    }

    /// Makes all applied commits durable. If that fails, replaces their results with the error.
    fn sync<'a>(&mut self, shared: &Shared, results: impl Iterator<Item = &'a mut Result<Committed, StoreError>>) {
        if std::mem::take(&mut self.unsynced) == 0 {
            return;
        }
        if let Err(error) = shared.sync(self.header) {
            // Conflicts are replaced too: they may be due to a commit that is not durable.
            results.for_each(|result| *result = Err(clone_error(&error)));
        }
    }
}
