//! Lanes: each runs one batch at a time, which commits many commits in one transaction (group commit).

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use metrics::histogram;
use parking_lot::Mutex;
use platform_engine::store::{Commit, Committed, Conflict, StoreError};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use crate::{
    batch::{
        Attempt, BEGIN, Batch, COMMIT, ROLLBACK, all_of, pipeline,
        statements::{FIND_BATCH, READ_HEADS},
    },
    blocks,
    changes::Delta,
    connection::{Connection, Params},
    error::{Failure, unavailable},
    filtered::{self, Sample},
    queue::{Queue, Reply, Request, Taken, WAITING},
    registry,
    schema::{List, Org},
    shared::{Shared, random},
};

/// The number of batches of a store after which it deletes old rows of `batch`.
const PRUNE: u32 = 1_024;
/// The time for which the row of a batch is kept, in microseconds: ten minutes. It is only read within seconds.
const KEPT: i64 = 600_000_000;

/// The time to wait for a batch that the server still works on.
const FIND: Duration = Duration::from_secs(8);

pub(crate) const PRUNE_BATCHES: &str = "DELETE FROM batch b USING (SELECT o.org, o.id FROM batch o \
     WHERE o.at < (extract(epoch FROM now()) * 1000000)::int8 - $1 ORDER BY o.at LIMIT 4096) o \
     WHERE b.org = o.org AND b.id = o.id";
/// As [`PRUNE_BATCHES`], on all nodes, where a subquery with a limit would collect its rows on one.
pub(crate) const PRUNE_EVERYWHERE: &str =
    "DELETE FROM batch b WHERE b.at < (extract(epoch FROM now()) * 1000000)::int8 - $1";

/// The lanes of a store: the batches that run at the same time, and the commits that wait for them.
#[derive(Debug)]
pub(crate) struct Lanes {
    shared: Arc<Shared>,
    queue: Mutex<Queue>,
    /// The places of waiting commits.
    room: Arc<Semaphore>,
    /// The runtime in which the store was opened, which may outlive that of a call.
    runtime: Handle,
    upkeep: Mutex<Upkeep>,
}

/// The conditions for lanes to do more than commit.
#[derive(Debug, Default)]
struct Upkeep {
    /// The number of batches.
    batches: u32,
    /// The number of records that were put since one of them was considered.
    puts: usize,
    /// The last failure that was logged, so that it is not logged with each batch.
    reported: String,
}

impl Lanes {
    pub(crate) fn new(shared: Arc<Shared>, lanes: usize, group: usize) -> Self {
        let distributed = shared.database.is_distributed();
        Self {
            shared,
            queue: Mutex::new(Queue::new(lanes, group, distributed)),
            room: Arc::new(Semaphore::new(lanes.clamp(1, 1_024) * WAITING)),
            runtime: Handle::current(),
            upkeep: Mutex::default(),
        }
    }

    /// Commits in a batch with others.
    pub(crate) async fn commit(self: &Arc<Self>, commit: Commit) -> Result<Committed, StoreError> {
        let since = Instant::now();
        let place = tokio::time::timeout(self.shared.database.retry(), self.room.clone().acquire_owned()).await;
        let place = place.map_err(|_| unavailable("too many commits are waiting"))?;
        let place = place.map_err(|_| unavailable("the store is closed"))?;
        let (reply, outcome) = oneshot::channel();
        self.queue.lock().add(Request { commit, since, reply, place });
        self.start();
        outcome.await.map_err(|_| StoreError::Unknown("the lane of the commit has stopped".into()))?
    }

    /// Begins the batches that may begin.
    fn start(self: &Arc<Self>) {
        loop {
            let (taken, alarm) = {
                let mut queue = self.queue.lock();
                let taken = queue.begin(Instant::now());
                let alarm = if taken.is_none() { queue.alarm() } else { None };
                (taken, alarm)
            };
            if let Some(alarm) = alarm {
                let lanes = self.clone();
                self.runtime.spawn(async move {
                    tokio::time::sleep_until(alarm.into()).await;
                    lanes.queue.lock().wake();
                    lanes.start();
                });
            }
            if taken.is_none() {
                return;
            }
            self.runtime.spawn(Running { lanes: self.clone(), taken }.run());
        }
    }

    /// Does what batches leave to do. Lists stay correct without it: the next batch that changes them tries again.
    async fn maintain(&self, commits: &[Commit], lists: Vec<(List, Delta)>) {
        for (list, delta) in lists {
            let (kept, what) = if delta.filtered {
                (filtered::reconsider(&self.shared, list).await, "cannot drop a list of a filter value")
            } else {
                (blocks::maintain(&self.shared, list, &delta).await, "cannot divide or drop counted blocks")
            };
            self.report(kept, what);
        }
        let (samples, is_due) = {
            let mut upkeep = self.upkeep.lock();
            upkeep.batches = upkeep.batches.wrapping_add(1);
            (samples(commits, &mut upkeep.puts), upkeep.batches % PRUNE == 16)
        };
        for sample in samples {
            let kept = filtered::consider(&self.shared, &sample).await;
            self.report(kept, "cannot keep the list of a filter value");
        }
        if is_due {
            self.report(self.shared.prune().await, "cannot delete the rows of old batches");
        }
    }

    fn report(&self, result: Result<(), Failure>, what: &str) {
        let Err(failure) = result else { return };
        let error = StoreError::from(failure).to_string();
        let mut upkeep = self.upkeep.lock();
        if error != upkeep.reported {
            tracing::warn!(error, "{what}");
            upkeep.reported = error;
        }
    }
}

/// A lane that is in use: its batch, and then those that may begin when it ends.
struct Running {
    lanes: Arc<Lanes>,
    taken: Option<Taken>,
}

impl Running {
    async fn run(mut self) {
        while let Some(taken) = &mut self.taken {
            let (commits, replies) = (std::mem::take(&mut taken.commits), std::mem::take(&mut taken.replies));
            histogram!("platform_store_group_commits").record(commits.len() as f64);
            let began = Instant::now();
            let lists = self.lanes.shared.commit(&commits, replies, taken.since).await;
            let took = began.elapsed();
            self.lanes.maintain(&commits, lists).await;
            let next = {
                let mut queue = self.lanes.queue.lock();
                let now = Instant::now();
                queue.end(now, &taken.orgs, commits.len(), took);
                queue.begin(now)
            };
            self.taken = next;
            self.lanes.start();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only when the runtime is shut down: nothing commits what waits.
        if self.taken.is_some() {
            self.lanes.queue.lock().close();
        }
    }
}

/// Of this many records that are put, the lists of one's filter values are considered.
const SAMPLED: usize = 64;
/// The most records of a batch whose lists are considered.
const MOST_SAMPLES: usize = 4;

/// Returns the records of a batch whose filter values may have long lists. `puts` is the number of records since the last
/// one. The commits need not have succeeded.
fn samples(commits: &[Commit], puts: &mut usize) -> Vec<Sample> {
    let mut samples = Vec::new();
    for sample in commits.iter().flat_map(|commit| &commit.put).filter(|put| !put.filter.is_empty() && !put.queue) {
        *puts += 1;
        if *puts >= SAMPLED && samples.len() < MOST_SAMPLES {
            *puts = 0;
            samples.extend(Sample::of(sample));
        }
    }
    samples
}

/// Returns the time in microseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 2)
}

/// Returns the failure of a batch that may have been committed.
fn unknown(failure: Failure) -> Failure {
    let cause = match failure {
        Failure::Lost(cause) | Failure::Node(cause) | Failure::Late(cause) => cause,
        other => StoreError::from(other).into(),
    };
    StoreError::Unknown(cause).into()
}

/// Returns whether a failure of a batch is one of each of its commits.
const fn is_of_all(failure: &Failure) -> bool {
    let other = matches!(failure, Failure::Other(StoreError::Unknown(_) | StoreError::Full(_)));
    other || matches!(failure, Failure::Lost(_) | Failure::Node(_) | Failure::Late(_))
}

impl Shared {
    /// Commits a batch and replies to its callers. Returns the lists whose blocks have to be changed.
    /// `since` is the time of the first call.
    async fn commit(&self, commits: &[Commit], replies: Vec<Reply>, since: Instant) -> Vec<(List, Delta)> {
        let send = |reply: Reply, outcome: Result<i64, Conflict>| {
            let outcome = outcome.map(|sequence| Committed { sequence: sequence.cast_unsigned() });
            // The caller may have been canceled.
            drop(reply.send(outcome.map_err(StoreError::Conflict)));
        };
        match self.batch(commits, since).await {
            Ok((outcomes, lists)) => {
                self.health.set(Ok(&outcomes));
                replies.into_iter().zip(outcomes).for_each(|(reply, outcome)| send(reply, outcome));
                lists
            }
            // Each commit of its own would wait for the database again.
            Err(failure) if commits.len() == 1 || is_of_all(&failure) => {
                self.health.set(Err(&failure));
                let error = StoreError::from(failure);
                let kind = match error {
                    StoreError::Unknown(_) => StoreError::Unknown,
                    StoreError::Full(_) => StoreError::Full,
                    _ => StoreError::Unavailable,
                };
                let text = error.to_string();
                let mut error = Some(error);
                for reply in replies {
                    drop(reply.send(Err(error.take().unwrap_or_else(|| kind(text.clone().into())))));
                }
                Vec::new()
            }
            Err(_) => {
                // One of the commits may be the cause: the others must not fail with it.
                let mut lists = Vec::new();
                for (commit, reply) in commits.iter().zip(replies) {
                    match self.batch(std::slice::from_ref(commit), since).await {
                        Ok((outcomes, changed)) => {
                            self.health.set(Ok(&outcomes));
                            lists.extend(changed);
                            outcomes.into_iter().zip([reply]).for_each(|(outcome, reply)| send(reply, outcome));
                        }
                        Err(failure) => {
                            self.health.set(Err(&failure));
                            drop(reply.send(Err(failure.into())));
                        }
                    }
                }
                lists
            }
        }
    }

    async fn batch(
        &self,
        commits: &[Commit],
        since: Instant,
    ) -> Result<(Vec<Result<i64, Conflict>>, Vec<(List, Delta)>), Failure> {
        let mut batch = Batch::new(commits, random()?);
        let mut attempts = self.database.attempts_since(since);
        let mut failed_on_node = false;
        loop {
            let connection = attempts.writer().await?;
            match batch.attempt(&connection, self.salt, now()).await {
                Attempt::Done(outcomes, lists, is_spread) => {
                    if is_spread && connection.is_distributed() {
                        self.wait_until_visible(connection, &batch, &outcomes).await?;
                    }
                    return Ok((outcomes, lists));
                }
                Attempt::Unregistered => {
                    let puts = commits.iter().flat_map(|commit| &commit.put);
                    // It may write every record of a kind.
                    let connection = connection.unlimited();
                    match registry::register(&connection, self.salt, puts).await {
                        Ok(()) => self.slots.store(Arc::new(registry::load(&connection).await?)),
                        Err(failure) => {
                            connection.close();
                            attempts.pause(failure).await?;
                        }
                    }
                }
                // Another organization took a unique key between the check and the write. With the exclusive gate,
                // nobody can.
                Attempt::Failed(Failure::Taken) if !batch.homes.everywhere => batch.homes.everywhere = true,
                // The second time, the node is gone, and the lane is needed for organizations on other nodes. The first
                // time, the server may have had an old connection to it.
                Attempt::Failed(failure @ Failure::Node(_)) if failed_on_node => return Err(failure),
                Attempt::Failed(failure) => {
                    failed_on_node = matches!(failure, Failure::Node(_));
                    if matches!(failure, Failure::Lost(_)) {
                        connection.close();
                    }
                    attempts.pause(failure).await?;
                }
                Attempt::Unknown(failure, outcomes) => {
                    connection.close();
                    match self.is_committed(&batch).await {
                        Ok(true) => {
                            if self.database.is_distributed() {
                                let connection = attempts.writer().await.map_err(unknown)?;
                                self.wait_until_visible(connection, &batch, &outcomes).await?;
                            }
                            return Ok((outcomes, Vec::new()));
                        }
                        // Nothing was written. The cause may break the next connection too.
                        Ok(false) => attempts.pause(failure).await?,
                        Err(_) => return Err(unknown(failure)),
                    }
                }
            }
        }
    }

    /// Returns whether a batch whose connection broke was committed: whether its row exists. Takes the locks of the
    /// batch first, for which it waits if the server still works on it.
    pub(crate) async fn is_committed(&self, batch: &Batch<'_>) -> Result<bool, Failure> {
        let mut attempts = self.database.attempts();
        loop {
            let connection = attempts.writer().await?.within(FIND);
            let find = async {
                let params: Params = vec![Box::new(batch.org()), Box::new(batch.id)];
                let calls = [(BEGIN, Vec::new()), batch.lock(self.salt), (FIND_BATCH, params)];
                let rows = all_of(pipeline(&connection, &calls).await?)?;
                let row = rows.last().and_then(|rows| rows.first());
                let is_found = row.map_or(Ok(0), |row| row.try_get::<_, i64>(0))? != 0;
                connection.execute(if is_found { COMMIT } else { ROLLBACK }, &[]).await?;
                Ok(is_found)
            };
            let failure = match find.await {
                Ok(is_found) => return Ok(is_found),
                Err(failure) => failure,
            };
            connection.close();
            attempts.pause(failure).await?;
        }
    }

    /// Waits until each organization shows a batch in a distributed database: Citus acknowledges a commit of several
    /// nodes when it is certain, and a node that fails at that moment shows it when it has recovered.
    async fn wait_until_visible(
        &self,
        connection: Connection,
        batch: &Batch<'_>,
        outcomes: &[Result<i64, Conflict>],
    ) -> Result<(), Failure> {
        let mut attempts = self.database.attempts();
        let orgs: Vec<Org> = batch.homes.written.iter().copied().collect();
        let is_visible = async || {
            let rows = connection.query(READ_HEADS, &[&orgs]).await?;
            let heads = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
            let heads = heads.collect::<Result<BTreeMap<Org, i64>, tokio_postgres::Error>>()?;
            let head = |org: &Org| heads.get(org).copied().unwrap_or(0);
            let mut written = batch
                .each
                .iter()
                .zip(outcomes)
                .filter_map(|(homes, outcome)| Some((&homes.written, *outcome.as_ref().ok()?)));
            Ok::<_, Failure>(written.all(|(orgs, sequence)| orgs.iter().all(|org| head(org) >= sequence)))
        };
        loop {
            let failure = match is_visible().await {
                Ok(true) => return Ok(()),
                Ok(false) => Failure::Node("a node does not show the commit yet".into()),
                // The coordinator answers, but not the node.
                Err(failure) => failure,
            };
            attempts.pause(failure).await.map_err(unknown)?;
        }
    }

    async fn prune(&self) -> Result<(), Failure> {
        let connection = self.database.attempts().writer().await?.unlimited();
        let prune = if connection.is_distributed() { PRUNE_EVERYWHERE } else { PRUNE_BATCHES };
        connection.execute(prune, &[&KEPT]).await?;
        Ok(())
    }
}
