//! The writer thread: group commit. It takes the commits that are queued, applies one after another, makes them durable
//! with one sync, and then acknowledges all of them.
//!
//! Each commit is a batch of its own, so readers can see a commit before the group is durable. If the sync fails, no
//! commit of the group is acknowledged, not even a rejection: it may rest on a commit that is lost.

mod lists;
mod plan;

use std::sync::mpsc;

use platform_engine::store::{Commit, Committed, Put, StoreError};
use tokio::sync::oneshot;

use self::{lists::Lists, plan::Plan};
pub(crate) use self::{
    lists::{Membership, Step},
    plan::entries,
};
use crate::{
    error::{catch, corrupt, reason},
    schema::Header,
    store::Shared,
};

/// A queued commit and the channel for its result.
pub(crate) struct Request {
    pub(crate) commit: Commit,
    pub(crate) reply: oneshot::Sender<Result<Committed, StoreError>>,
}

/// The maximum number of commits that share a sync.
const GROUP: usize = 256;

/// Writes commits until the queue is closed.
pub(crate) fn run(shared: &Shared, mut writer: Writer, requests: &mpsc::Receiver<Request>) {
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
        StoreError::Unavailable(why) => StoreError::Unavailable(reason(why.to_string())),
        other => StoreError::Unavailable(reason(other.to_string())),
    }
}

/// The state of the writer thread.
pub(crate) struct Writer {
    header: Header,
    lists: Lists,
    keep_free_bytes: u64,
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
        Ok(Self { header, lists, keep_free_bytes })
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

    /// Applies commits in order, syncs, and returns their results. Each commit sees the changes of those before it; a
    /// rejected commit does not affect the others.
    fn write(&mut self, shared: &Shared, commits: &[Commit]) -> Vec<Result<Committed, StoreError>> {
        let before = self.header.sequence;
        let results: Vec<_> = commits.iter().map(|commit| self.apply(shared, commit)).collect();
        if self.header.sequence == before {
            return results;
        }
        match shared.sync(self.header) {
            Ok(()) => results,
            // Conflicts are replaced too: they may be due to a commit of the group that is not durable.
            Err(error) => results.iter().map(|_| Err(clone_error(&error))).collect(),
        }
    }

    fn apply(&mut self, shared: &Shared, commit: &Commit) -> Result<Committed, StoreError> {
        if let Some(error) = shared.refuses_commits() {
            return Err(error);
        }
        // Planning only reads, so a panic leaves nothing torn; but the store is damaged, so accept no further commits.
        let plan = catch(|| Plan::make(&shared.db, &self.header, &self.lists, commit));
        let plan = plan.unwrap_or_else(|panic| {
            shared.stop::<()>(Err(panic.clone()), false);
            Err(corrupt(panic))
        })?;
        let Plan { header, batch, lists } = plan;
        shared.apply(batch, header.sequence)?;
        // The writer's state changes only after the batch was applied.
        self.header = header;
        self.lists.adopt(lists);
        Ok(Committed { sequence: header.sequence })
    }
}
