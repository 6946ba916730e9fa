//! How commits are written: one thread takes what has come in, applies commit after commit, makes them last by one
//! sync, and answers all.

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
    error::{catch, corrupt, from_sled, reason},
    schema::{self, Header},
    store::{Builder, Shared},
};

/// A commit, and who waits for it.
pub(crate) struct Request {
    pub(crate) commit: Commit,
    pub(crate) reply: oneshot::Sender<Result<Committed, StoreError>>,
}

/// The most commits that wait for one sync.
const GROUP: usize = 256;

/// Writes what comes in, until nobody can send any more.
pub(crate) fn run(shared: &Shared, mut writer: Writer, requests: &mpsc::Receiver<Request>) {
    while let Ok(first) = requests.recv() {
        let group: Vec<Request> = std::iter::once(first).chain(requests.try_iter()).take(GROUP).collect();
        let refused = shared.refuses_commits().or_else(|| {
            let full = writer.no_room(shared, &group);
            shared.set_full(full.as_ref().and_then(std::error::Error::source).map(ToString::to_string));
            full
        });
        let (commits, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|Request { commit, reply }| (commit, reply)).unzip();
        let results = match refused {
            None => writer.write(shared, &commits),
            Some(error) => commits.iter().map(|_| Err(same(&error))).collect(),
        };
        for (reply, result) in replies.into_iter().zip(results) {
            // Whoever asked may have gone away; the commit stands all the same.
            let _ = reply.send(result);
        }
    }
}

/// Returns the error for each commit of a group that failed together.
fn same(error: &StoreError) -> StoreError {
    match error {
        StoreError::Full(why) => StoreError::Full(reason(why.to_string())),
        StoreError::Unavailable(why) => StoreError::Unavailable(reason(why.to_string())),
        other => StoreError::Unavailable(reason(other.to_string())),
    }
}

/// What the writing thread knows of the store without reading it.
pub(crate) struct Writer {
    header: Header,
    lists: Lists,
    keep_free_bytes: u64,
}

impl Writer {
    /// Reads what the writer must know.
    pub(crate) fn new(db: &sled::Db, header: Header, settings: &Builder) -> Result<Self, StoreError> {
        let lists = Lists::load(db, settings.promote_above)?;
        Ok(Self { header, lists, keep_free_bytes: settings.keep_free_bytes })
    }

    /// Refuses a group while there still is room.
    ///
    /// sled never writes again once a write of its failed for want of room, and does not even open. So the last of
    /// the room is left to it: to write what is on its way, and to open again.
    fn no_room(&self, shared: &Shared, group: &[Request]) -> Option<StoreError> {
        let len = |put: &Put| (put.body.len() + put.private.len() + 4096) as u64;
        let len: u64 = group.iter().flat_map(|request| &request.commit.put).map(len).sum();
        let (log, available) = shared.directory.room().ok()?;
        let needed = self.keep_free_bytes.saturating_add(log / 16).saturating_add(2 * len);
        let why = || format!("{available} bytes are free on the disk, and {needed} must be before anything is written");
        (available < needed).then(|| StoreError::Full(reason(why())))
    }

    /// Applies commits in order and returns when all that were applied will last. One that is refused leaves the
    /// others alone; each sees what those before it did.
    fn write(&mut self, shared: &Shared, commits: &[Commit]) -> Vec<Result<Committed, StoreError>> {
        let before = self.header.sequence;
        let results: Vec<_> = commits.iter().map(|commit| self.apply(shared, commit)).collect();
        if self.header.sequence == before {
            return results;
        }
        match shared.sync(self.header) {
            Ok(()) => results,
            // Those that were refused were refused for what may not have happened.
            Err(error) => results.iter().map(|_| Err(same(&error))).collect(),
        }
    }

    fn apply(&mut self, shared: &Shared, commit: &Commit) -> Result<Committed, StoreError> {
        if let Some(error) = shared.refuses_commits() {
            return Err(error);
        }
        let plan = catch(|| Plan::make(&shared.db, &self.header, &self.lists, commit));
        let plan = plan.unwrap_or_else(|panic| {
            shared.stop::<()>(Err(panic.clone()), false);
            Err(corrupt(panic))
        })?;
        let Plan { header, batch, lists } = plan;
        shared.apply(batch, header.sequence)?;
        self.header = header;
        self.lists.adopt(lists);
        Ok(Committed { sequence: header.sequence })
    }
}

/// Returns what is stored under a key, without its checksum.
fn read(db: &sled::Db, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let stored = db.get(key).map_err(from_sled)?;
    stored.map(|stored| Ok(schema::unseal(key, &stored)?.0.to_vec())).transpose()
}
