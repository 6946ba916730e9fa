//! The commits that wait for a lane, and which of them form the next batch.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use platform_engine::store::{Commit, Committed, StoreError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    commit::{Homes, is_open},
    schema::{self, Org},
};

/// A commit, and where to send its outcome.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) commit: Commit,
    /// The time of the call.
    pub(crate) since: Instant,
    pub(crate) reply: Reply,
    /// Its place among the waiting commits.
    pub(crate) place: OwnedSemaphorePermit,
}

pub(crate) type Reply = oneshot::Sender<Result<Committed, StoreError>>;

/// The most commits that wait for each lane. Further callers wait for room.
pub(crate) const WAITING: usize = 1_024;
/// The maximum number of records that the commits of a batch put and delete, unless the first has more.
const MOST_RECORDS: usize = 2_000;
/// The maximum number of bytes in the records of a batch, unless those of the first are longer.
const MOST_BYTES: usize = 8 << 20;
/// The maximum number of organizations in the commits of a batch, counted once for each commit, unless the first has
/// more. A batch with more locks than the server's table has room for would exclude all others.
const MOST_ORGS: usize = 800;
/// While so many commits run and wait, or did so lately, a batch begins when this many wait, or when the first of them has
/// waited for the time of a batch, or for an eighth of it while no batch runs.
const ENOUGH: usize = 16;
/// The longest time for which commits wait for others.
const LONGEST: Duration = Duration::from_millis(20);

/// Commits by organization. The commits of an organization are in one batch at a time, because another batch would wait
/// for the organization's lock.
#[derive(Debug)]
pub(crate) struct Queue {
    lanes: usize,
    /// The maximum number of commits of a batch.
    group: usize,
    /// Whether a batch has commits of one organization alone.
    distributed: bool,
    waiting: HashMap<Org, VecDeque<Request>>,
    /// The organizations with waiting commits that are in no batch, the longest waiting one first.
    ready: VecDeque<Org>,
    /// The number of commits of these organizations.
    commits: usize,
    /// The organizations of the batches that run.
    busy: HashSet<Org>,
    /// The number of batches that run, and that of their commits.
    running: usize,
    in_batches: usize,
    /// The number of commits that ran and waited at a time. It falls by an eighth with each batch: the callers of a batch
    /// that has ended are likely to return.
    level: usize,
    /// The time at which the last batch ended.
    ended: Option<Instant>,
    /// The time that batches took to commit, as a moving average.
    took: Duration,
    /// The time of the next call of [`Queue::wake`].
    alarm: Option<Instant>,
}

/// The commits of a batch.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) commits: Vec<Commit>,
    pub(crate) replies: Vec<Reply>,
    /// The organizations that no other batch may have before [`Queue::end`].
    pub(crate) orgs: Vec<Org>,
    /// The time of the first call.
    pub(crate) since: Instant,
}

impl Queue {
    pub(crate) fn new(lanes: usize, group: usize, distributed: bool) -> Self {
        Self {
            lanes: lanes.max(1),
            group: group.max(1),
            distributed,
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            commits: 0,
            busy: HashSet::new(),
            running: 0,
            in_batches: 0,
            level: 0,
            ended: None,
            took: Duration::ZERO,
            alarm: None,
        }
    }

    pub(crate) fn add(&mut self, request: Request) {
        let homes = Homes::of(&request.commit);
        let org = homes.written.first().or(homes.read.first()).copied().unwrap_or_else(schema::installation);
        let is_busy = self.busy.contains(&org);
        let own = self.waiting.entry(org).or_default();
        if !is_busy {
            self.commits += 1;
            if own.is_empty() {
                self.ready.push_back(org);
            }
        }
        own.push_back(request);
    }

    /// Removes the commits of the next batch, if one may begin. The caller calls [`Queue::end`] after the batch.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<Taken> {
        if self.running >= self.lanes || self.ready.is_empty() || self.is_early(now) {
            return None;
        }
        self.running += 1;
        self.level = (self.level - self.level.div_ceil(8)).max(self.in_batches + self.commits);
        let mut taken = Taken { commits: Vec::new(), replies: Vec::new(), orgs: Vec::new(), since: now };
        let (mut records, mut bytes, mut orgs) = (0_usize, 0_usize, 0_usize);
        while let Some(org) = self.ready.front().copied() {
            if self.distributed && !taken.orgs.is_empty() {
                break;
            }
            let own = self.waiting.entry(org).or_default();
            self.commits = self.commits.saturating_sub(own.len());
            let before = taken.commits.len();
            while let Some(Request { commit, .. }) = own.front() {
                records += commit.put.len() + commit.delete.len() + commit.require.len();
                bytes += commit.put.iter().map(|put| put.body.len() + put.private.len()).sum::<usize>();
                let homes = Homes::of(commit);
                orgs += homes.written.union(&homes.read).count();
                let is_long = records > MOST_RECORDS || bytes > MOST_BYTES || orgs > MOST_ORGS;
                let is_full = taken.commits.len() >= self.group || is_long;
                if !taken.commits.is_empty() && (is_full || is_open(commit)) {
                    break;
                }
                let Some(Request { commit, since, reply, place }) = own.pop_front() else { break };
                drop(place);
                taken.since = taken.since.min(since);
                taken.commits.push(commit);
                taken.replies.push(reply);
            }
            let is_rest = !own.is_empty();
            if taken.commits.len() == before {
                self.commits += own.len();
                break;
            }
            self.ready.pop_front();
            self.busy.insert(org);
            taken.orgs.push(org);
            if is_rest {
                break;
            }
            self.waiting.remove(&org);
        }
        self.in_batches += taken.commits.len();
        Some(taken)
    }

    /// Returns whether too few commits wait for another batch: each costs the server the more, the fewer share a batch,
    /// and several stores use the same server. A commit does not wait where so few commits come that enough of them will
    /// not be together.
    fn is_early(&self, now: Instant) -> bool {
        let is_busy = self.level.max(self.in_batches + self.commits) >= ENOUGH;
        let may_wait = is_busy && !self.distributed && self.commits < ENOUGH;
        may_wait && self.due().is_some_and(|due| now < due)
    }

    /// Returns the time at which a batch begins although few commits wait: soon when no other runs, since the callers of
    /// the last one return at once if they do.
    fn due(&self) -> Option<Instant> {
        let first = self.waiting.get(self.ready.front()?)?.front()?;
        let took = self.took.min(LONGEST);
        if self.running > 0 { Some(first.since + took) } else { Some(self.ended? + took / 8) }
    }

    /// Returns the time at which the caller calls [`Queue::begin`] again, after [`Queue::wake`]; `None` if nothing waits
    /// for that, or another caller does it.
    pub(crate) fn alarm(&mut self) -> Option<Instant> {
        let is_earlier = |due: &Instant| self.alarm.is_none_or(|alarm| *due < alarm);
        let due = self.due().filter(|due| self.running < self.lanes && is_earlier(due))?;
        self.alarm = Some(due);
        Some(due)
    }

    pub(crate) const fn wake(&mut self) {
        self.alarm = None;
    }

    /// Ends a batch of these organizations and this many commits. `took` is the time that it took to commit.
    pub(crate) fn end(&mut self, now: Instant, orgs: &[Org], commits: usize, took: Duration) {
        self.ended = Some(now);
        self.running = self.running.saturating_sub(1);
        self.in_batches = self.in_batches.saturating_sub(commits);
        self.took = (self.took * 7 + took.min(2 * LONGEST)) / 8;
        for org in orgs {
            self.busy.remove(org);
            if let Some(own) = self.waiting.get(org) {
                self.commits += own.len();
                self.ready.push_back(*org);
            }
        }
    }

    /// Drops the commits that wait, whose callers then fail.
    pub(crate) fn close(&mut self) {
        self.waiting.clear();
        self.ready.clear();
        self.busy.clear();
        (self.commits, self.running, self.in_batches, self.level) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use platform_engine::{
        store::{Delete, Epoch, Require},
        uid::Uid,
    };
    use tokio::sync::Semaphore;

    use super::*;

    fn raise(org: &str) -> Commit {
        Commit { raise: vec![Epoch::new("grants", Uid::opaque(org))], ..Commit::default() }
    }

    fn request(commit: Commit) -> Request {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Request { commit, since: *START, reply: oneshot::channel().0, place }
    }

    fn queue(lanes: usize, group: usize, distributed: bool, waiting: &[&str]) -> Queue {
        let mut queue = Queue { took: TOOK, ..Queue::new(lanes, group, distributed) };
        waiting.iter().for_each(|org| queue.add(request(raise(org))));
        queue
    }

    /// The time of all calls.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    const TOOK: Duration = Duration::from_secs(1);

    /// Returns the number of commits of the next batch.
    fn next(queue: &mut Queue) -> Option<usize> {
        queue.begin(*START).map(|taken| taken.commits.len())
    }

    #[test]
    fn a_batch_has_what_waits_of_all_organizations() {
        let mut queue = queue(4, 256, false, &["a", "b", "a", "c"]);
        let taken = queue.begin(*START).unwrap();
        assert_eq!((taken.commits.len(), taken.orgs.len()), (4, 3));
        assert!(queue.begin(*START).is_none());
    }

    #[test]
    fn commits_of_an_organization_wait_for_its_batch() {
        let mut queue = queue(4, 256, false, &["a"]);
        let taken = queue.begin(*START).unwrap();
        (0..ENOUGH).for_each(|_| queue.add(request(raise("a"))));
        assert_eq!(next(&mut queue), None);
        (0..ENOUGH).for_each(|_| queue.add(request(raise("b"))));
        assert_eq!(next(&mut queue), Some(ENOUGH));
        queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        assert_eq!(next(&mut queue), Some(ENOUGH));
    }

    #[test]
    fn no_more_batches_run_than_there_are_lanes() {
        let mut queue = queue(2, 1, false, &["a", "b", "c"]);
        (0..2 * ENOUGH).for_each(|_| queue.add(request(raise("d"))));
        let first = queue.begin(*START).unwrap();
        assert_eq!(next(&mut queue), Some(1));
        assert_eq!(next(&mut queue), None);
        queue.end(*START, &first.orgs, first.commits.len(), TOOK);
        assert_eq!(next(&mut queue), Some(1));
    }

    #[test]
    fn few_commits_wait_for_others_only_while_many_run() {
        let mut queue = queue(4, 256, false, &["a"]);
        let first = queue.begin(*START).unwrap();
        queue.add(request(raise("b")));
        assert_eq!(next(&mut queue), Some(1));
        (0..ENOUGH).for_each(|number| queue.add(request(raise(&format!("{number}")))));
        assert_eq!(next(&mut queue), Some(ENOUGH));
        queue.add(request(raise("c")));
        assert_eq!(next(&mut queue), None);
        let due = queue.alarm().unwrap();
        assert!(queue.alarm().is_none());
        assert_eq!(queue.begin(due).unwrap().commits.len(), 1);
        queue.end(*START, &first.orgs, first.commits.len(), TOOK);
        assert_eq!(next(&mut queue), None);
    }

    #[test]
    fn the_callers_of_a_batch_that_has_ended_have_time_to_return() {
        let mut queue = queue(4, 256, false, &["a"; ENOUGH]);
        let taken = queue.begin(*START).unwrap();
        queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        queue.add(request(raise("a")));
        assert_eq!(next(&mut queue), None);
        let due = queue.alarm().unwrap();
        assert_eq!(due - *START, LONGEST / 8);
        let taken = queue.begin(due).unwrap();
        queue.wake();
        // They did not return.
        queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        queue.add(request(raise("a")));
        assert_eq!(next(&mut queue), Some(1));
    }

    #[test]
    fn an_alarm_is_set_again_when_the_commits_that_wait_may_begin_earlier() {
        let mut queue = queue(4, 256, false, &["a"; ENOUGH]);
        let taken = queue.begin(*START).unwrap();
        queue.add(request(raise("b")));
        assert_eq!(queue.alarm(), Some(*START + LONGEST));
        queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        assert_eq!((next(&mut queue), queue.alarm()), (None, Some(*START + LONGEST / 8)));
        assert_eq!(queue.alarm(), None);
    }

    #[test]
    fn a_batch_has_no_more_organizations_than_the_server_can_lock() {
        let orgs: Vec<String> = (0..2 * MOST_ORGS).map(|number| number.to_string()).collect();
        let orgs: Vec<&str> = orgs.iter().map(String::as_str).collect();
        let mut queue = queue(4, 10_000, false, &orgs);
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some(MOST_ORGS), Some(MOST_ORGS), None]);
    }

    #[test]
    fn a_full_batch_leaves_the_rest_in_order() {
        let mut queue = queue(1, 2, false, &["a", "a", "a", "b"]);
        let taken = queue.begin(*START).unwrap();
        assert_eq!((taken.commits.len(), taken.orgs.len()), (2, 1));
        queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        // The rest of `a` has waited no longer than `b`.
        let taken = queue.begin(*START).unwrap();
        assert_eq!((taken.commits.len(), taken.orgs.len()), (2, 2));
        queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        assert_eq!(next(&mut queue), None);
    }

    #[test]
    fn a_commit_that_depends_on_unknown_records_is_the_first_of_its_batch() {
        let open = Commit { delete: vec![Delete::Below(Uid::opaque("b"), vec!["Repo"])], ..Commit::default() };
        let none = Require::NoneBelow(Uid::opaque("b"), vec!["Repo"]);
        let mut queue = queue(1, 256, false, &["a"]);
        queue.add(request(open));
        queue.add(request(Commit { require: vec![none], ..Commit::default() }));
        queue.add(request(raise("b")));
        for (commits, is_open) in [(1, false), (1, true), (2, true)] {
            let taken = queue.begin(*START).unwrap();
            assert_eq!((taken.commits.len(), super::is_open(&taken.commits[0])), (commits, is_open));
            queue.end(*START, &taken.orgs, taken.commits.len(), TOOK);
        }
    }

    #[test]
    fn a_batch_of_a_distributed_database_has_one_organization_and_begins_at_once() {
        let mut queue = queue(3, 256, true, &["a", "b", "a", "c", "d"]);
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some(2), Some(1), Some(1)]);
        assert_eq!(next(&mut queue), None);
    }
}
