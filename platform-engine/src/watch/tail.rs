//! The end of the change log of an organization, as far as this process has read it, which its watches share.
//!
//! One watch reads for all ([`Subscription::lead`]), and wakes those that a record concerns. The others do nothing for a
//! commit, so that many watches of one group cost the writers of another no more than one watch. Each watch that waits for
//! changes also waits for its turn to read: when the one that reads has gone, the next one does it, and no runtime is needed
//! to start a task.
//!
//! Rejected: a read by each watch, with which the server spent up to 1.9 times the processor time on a create when 2,000
//! watches of another group were open (benches/FIGURES.md, Watches).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use event_listener::{Event, EventListener};
use parking_lot::Mutex;

use super::{
    lease::{self, Lease},
    log::{self, Change, Entry},
};
use crate::{
    error::{Error, Result},
    scope::Scopes,
    store::{Epoch, KindName, Scope, Store},
    timestamp::Timestamp,
    uid::Uid,
};

/// The number of records, and their bytes, that a process keeps of each log that is watched. A watch that is farther
/// back is ended. Our choice.
const MAX_SHARED: usize = 1024;
const MAX_SHARED_BYTES: usize = 8 << 20;

/// The number of records and bytes that are read at once.
pub(crate) const PAGE: usize = 200;
pub(crate) const PAGE_BYTES: usize = 1 << 20;

/// The length of the periods in each of which a log is read at a pace at most once, in milliseconds. Our choice, for a delay
/// of at most 5 ms.
const PERIOD_MILLIS: i64 = 5;

/// The interval at which a log is read without a wake-up, because a message between servers can be lost, in milliseconds.
const POLL_MILLIS: i64 = 2_000;

/// The time between two sweeps of a log by a process, in milliseconds.
const SWEEP_MILLIS: i64 = 60_000;

/// The end of the log of an organization, as far as it is read.
#[derive(Debug)]
pub(crate) struct Tail {
    organization: Uid,
    /// How often it was woken.
    wakes: AtomicU64,
    /// Notified at each wake-up.
    woken: Event,
    shared: Mutex<Shared>,
    /// Held by the watch that reads for all, from before it waits for a wake-up: the period of its last read, since 1970.
    leading: async_lock::Mutex<i64>,
    /// Held during a read.
    reading: async_lock::Mutex<()>,
    polled: AtomicI64,
    swept: AtomicI64,
    renew_at: AtomicI64,
}

#[derive(Debug)]
struct Shared {
    since: u64,
    trimmed_as_of: u64,
    /// All records after this sequence and up to `end` are here.
    start: u64,
    end: u64,
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// The number of wake-ups that the reads so far have answered.
    answered: u64,
    readers: BTreeMap<u64, Reader>,
    last_reader: u64,
    /// The readers by the uids of their scopes.
    by_uid: HashMap<Uid, BTreeSet<u64>>,
}

/// A watch of the log.
#[derive(Debug)]
struct Reader {
    interest: Arc<Interest>,
    /// The sequence after which records may concern it that it has not read; `None` if there are none up to the end.
    unread: Option<u64>,
    /// Notified when there are.
    concerned: Arc<Event>,
}

/// The changes that concern a watch.
#[derive(Debug)]
pub(crate) struct Interest {
    pub(crate) kind: KindName,
    pub(crate) scopes: Scopes,
    /// The epochs that the access of its caller depends on.
    pub(crate) epochs: Arc<[Epoch]>,
}

impl Interest {
    /// Returns whether a change is in the list that is watched, as far as its filters do not exclude it.
    pub(crate) fn shows(&self, change: &Change) -> bool {
        change.kind == self.kind && self.scopes.contain(&change.uid)
    }

    /// Returns whether the access depends on one of these epochs, as text.
    pub(crate) fn depends_on(&self, raised: &[String]) -> bool {
        !raised.is_empty() && self.epochs.iter().any(|epoch| raised.contains(&epoch.to_string()))
    }
}

/// A place among the watches of a log, until it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    tail: Arc<Tail>,
    reader: u64,
    concerned: Arc<Event>,
}

/// What a watch finds at its position.
#[derive(Debug)]
pub(crate) enum Found {
    /// Records, in order.
    Entries(Vec<Arc<Entry>>),
    /// No record yet that concerns it, up to this sequence.
    Nothing(u64),
    /// The records after the position are no longer shared.
    Behind,
    /// The log was started again since the position.
    Restarted,
}

impl Subscription {
    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// Returns a listener for the next record that concerns the watch.
    pub(crate) fn listen(&self) -> EventListener {
        self.concerned.listen()
    }

    /// Returns up to a page of what is read of the log after a position.
    pub(crate) fn read(&self, (since, after): (u64, u64)) -> Found {
        let mut shared = self.tail.shared.lock();
        let (start, end) = (shared.start, shared.end);
        if shared.since != since {
            return Found::Restarted;
        }
        let Some(reader) = shared.readers.get_mut(&self.reader) else { return Found::Behind };
        let after = after.max(reader.unread.unwrap_or(end));
        if after >= end {
            reader.unread = None;
            return Found::Nothing(after);
        }
        if after < start {
            return Found::Behind;
        }
        let first = shared.entries.partition_point(|entry| entry.sequence <= after);
        // A watch whose client reads slowly keeps the records that it has been given.
        let mut bytes = 0_usize;
        let fits = |entry: &&Arc<Entry>| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(entry.bytes);
            is_first || bytes <= PAGE_BYTES
        };
        Found::Entries(shared.entries.iter().skip(first).take(PAGE).take_while(fits).cloned().collect())
    }

    /// Waits until no other watch of the log does this, and then reads on for all whenever the log has grown, until a record
    /// concerns this one. `sleep` waits for the rest of a period in which the log was read already.
    ///
    /// Cancel safe, if `sleep` is.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn lead<S: Future<Output = ()>>(
        &self,
        store: &dyn Store,
        now: impl Fn() -> Timestamp,
        sleep: impl Fn(Duration) -> S,
    ) -> Result<()> {
        let tail = &self.tail;
        let mut last_period = tail.leading.lock().await;
        loop {
            let woken = tail.woken.listen();
            if !tail.has_grown() {
                woken.await;
            }
            let (rest, period) = until_next_read(*last_period, now());
            if !rest.is_zero() {
                sleep(rest).await;
            }
            *last_period = period;
            // Boxed, because most watches wait for their turn and need no room for it.
            Box::pin(tail.read_on(store)).await?;
            if tail.shared.lock().has_unread(self.reader) {
                return Ok(());
            }
        }
    }

    /// Returns the sequence up to which no record concerns the watch that it has not read, if it has read all that do.
    pub(crate) fn passed(&self, since: u64) -> Option<u64> {
        let shared = self.tail.shared.lock();
        (!shared.has_unread(self.reader) && shared.since == since).then_some(shared.end)
    }

    /// Replaces what concerns the watch, with the same scopes.
    pub(crate) fn set_interest(&self, interest: &Arc<Interest>) {
        if let Some(reader) = self.tail.shared.lock().readers.get_mut(&self.reader) {
            reader.interest = Arc::clone(interest);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut shared = self.tail.shared.lock();
        let Some(reader) = shared.readers.remove(&self.reader) else { return };
        for uid in uids(&reader.interest.scopes) {
            if let Some(readers) = shared.by_uid.get_mut(uid) {
                readers.remove(&self.reader);
                if readers.is_empty() {
                    shared.by_uid.remove(uid);
                }
            }
        }
    }
}

impl Tail {
    pub(crate) fn new(organization: Uid, lease: &Lease) -> Self {
        let shared = Shared {
            since: lease.since,
            trimmed_as_of: lease.trimmed_as_of,
            start: lease.end,
            end: lease.end,
            entries: VecDeque::new(),
            bytes: 0,
            answered: 0,
            readers: BTreeMap::new(),
            last_reader: 0,
            by_uid: HashMap::new(),
        };
        Self {
            organization,
            // The log may have grown since the lease was read.
            wakes: AtomicU64::new(1),
            woken: Event::new(),
            shared: Mutex::new(shared),
            leading: async_lock::Mutex::new(i64::MIN),
            reading: async_lock::Mutex::new(()),
            polled: AtomicI64::new(i64::MIN),
            swept: AtomicI64::new(i64::MIN),
            renew_at: AtomicI64::new(lease.renew_at().millis()),
        }
    }

    pub(crate) fn organization(&self) -> &Uid {
        &self.organization
    }

    /// Adds a watch, which has read nothing yet.
    pub(crate) fn subscribe(self: &Arc<Self>, interest: &Arc<Interest>) -> Subscription {
        let concerned = Arc::new(Event::new());
        let mut shared = self.shared.lock();
        shared.last_reader += 1;
        let reader = shared.last_reader;
        for uid in uids(&interest.scopes) {
            shared.by_uid.entry(uid.clone()).or_default().insert(reader);
        }
        let unread = Some(0);
        let of_reader = Reader { interest: Arc::clone(interest), unread, concerned: Arc::clone(&concerned) };
        shared.readers.insert(reader, of_reader);
        drop(shared);
        Subscription { tail: Arc::clone(self), reader, concerned }
    }

    /// Says that the log may have grown.
    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.woken.notify(usize::MAX);
    }

    fn has_grown(&self) -> bool {
        self.shared.lock().answered < self.wakes.load(Ordering::SeqCst)
    }

    /// Reads the rest of the log, if it has grown.
    async fn read_on(&self, store: &dyn Store) -> Result<()> {
        let _reading = self.reading.lock().await;
        let mut has_more = self.has_grown();
        while has_more {
            let wakes = self.wakes.load(Ordering::SeqCst);
            let (mut since, mut trimmed_as_of, mut end) = {
                let shared = self.shared.lock();
                (shared.since, shared.trimmed_as_of, shared.end)
            };
            let epochs = [log::watched(&self.organization), lease::trimmed_epoch(&self.organization)];
            let page = store.list(&log::after(&self.organization, end, PAGE, PAGE_BYTES, &epochs)).await?;
            let [now_since, now_trimmed] = *page.epochs.as_slice() else {
                return Err(Error::internal("a store that returns other epochs"));
            };
            let mut restart = false;
            if (now_since, now_trimmed) != (since, trimmed_as_of) {
                let (lease, _) = lease::read(store, &self.organization).await?;
                let first = lease.map_or(u64::MAX, |lease| lease.first);
                // The deleted records had not been read here.
                restart = now_since != since || end < first;
                (since, trimmed_as_of) = (now_since, now_trimmed);
                end = if restart { lease.map_or(now_since, |lease| lease.end) } else { end };
            }
            let items = if restart { &[][..] } else { page.items.as_slice() };
            let entries = items.iter().map(|item| Entry::parse(item).map(Arc::new)).collect::<Result<Vec<_>>>()?;
            has_more = page.next.is_some() || restart;
            let mut shared = self.shared.lock();
            (shared.since, shared.trimmed_as_of) = (since, trimmed_as_of);
            if restart {
                shared.restart(end);
            }
            for entry in entries {
                shared.push(entry);
            }
            if !has_more {
                shared.answered = wakes;
            }
        }
        Ok(())
    }

    /// Does the work that needs no wake-up: looks for records whose messages were lost, renews the lease, and deletes old
    /// records.
    pub(crate) async fn tick(&self, store: &dyn Store, now: Timestamp) -> Result<()> {
        let millis = now.millis();
        // The first watch that sees that it is due does it for all.
        let is_due = |last: &AtomicI64, interval: i64| {
            let before = last.load(Ordering::SeqCst);
            let is_due = millis.saturating_sub(before) >= interval || millis < before;
            is_due && last.compare_exchange(before, millis, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if is_due(&self.polled, POLL_MILLIS) {
            self.wake();
            // The task of the watch whose turn it is may not run.
            self.read_on(store).await?;
        }
        let renew_at = self.renew_at.load(Ordering::SeqCst);
        if millis >= renew_at {
            let lease = lease::ensure(store, &self.organization, now).await?;
            self.renew_at.store(lease.renew_at().millis(), Ordering::SeqCst);
        }
        if is_due(&self.swept, SWEEP_MILLIS) {
            // Records that cannot be deleted now are deleted later.
            drop(lease::sweep(store, &self.organization, now).await);
        }
        Ok(())
    }
}

impl Shared {
    /// Returns whether records may concern a watch that it has not read.
    fn has_unread(&self, reader: u64) -> bool {
        self.readers.get(&reader).is_none_or(|reader| reader.unread.is_some())
    }

    fn push(&mut self, entry: Arc<Entry>) {
        self.tell(&entry);
        self.end = entry.sequence;
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.entries.push_back(entry);
        while self.entries.len() > MAX_SHARED || self.bytes > MAX_SHARED_BYTES {
            let Some(first) = self.entries.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(first.bytes);
            self.start = first.sequence;
        }
    }

    /// Wakes the watches that the next record concerns.
    fn tell(&mut self, entry: &Entry) {
        let end = self.end;
        if entry.overflowed || !entry.raised.is_empty() {
            let concerned = self.readers.values_mut();
            let concerned = concerned.filter(|reader| entry.overflowed || reader.interest.depends_on(&entry.raised));
            concerned.for_each(|reader| reader.wake(end));
        }
        for change in &entry.changes {
            for id in change.uid.ancestry().filter_map(|uid| self.by_uid.get(uid)).flatten() {
                if let Some(reader) = self.readers.get_mut(id)
                    && reader.interest.shows(change)
                {
                    reader.wake(end);
                }
            }
        }
    }

    /// Forgets all records, and goes on after a sequence.
    fn restart(&mut self, end: u64) {
        (self.start, self.end, self.bytes) = (end, end, 0);
        self.entries.clear();
        self.readers.values_mut().for_each(|reader| reader.wake(0));
    }
}

impl Reader {
    /// Tells it that records after a sequence may concern it.
    fn wake(&mut self, after: u64) {
        if self.unread.is_none() {
            self.unread = Some(after);
            self.concerned.notify(usize::MAX);
        }
    }
}

/// Returns the uids of the scopes of a watch, each of which has one.
fn uids(scopes: &Scopes) -> impl Iterator<Item = &Uid> {
    scopes.as_slice().iter().filter_map(|scope| match scope {
        Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => Some(uid),
        Scope::All | Scope::Roots => None,
    })
}

/// Returns how long to wait for a period without a read, and that period. All logs have the same periods, and the first
/// change after an idle one is read at once.
fn until_next_read(last: i64, now: Timestamp) -> (Duration, i64) {
    let (period, elapsed) = (now.millis().div_euclid(PERIOD_MILLIS), now.millis().rem_euclid(PERIOD_MILLIS));
    if last == period {
        (Duration::from_millis((PERIOD_MILLIS - elapsed).unsigned_abs()), period + 1)
    } else {
        (Duration::ZERO, period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_once_in_a_period_and_at_once_after_an_idle_one() {
        let mut last = i64::MIN;
        // The times of the attempts, in milliseconds within periods of 5 ms, and when each may read.
        for (attempt, reads) in [(12_i64, 12_i64), (12, 15), (15, 20), (21, 25), (31, 31), (34, 35), (38, 40), (50, 50)]
        {
            let (rest, period) = until_next_read(last, Timestamp::from_millis(attempt));
            assert_eq!(rest.as_millis(), u128::from((reads - attempt).unsigned_abs()), "at {attempt}");
            last = period;
        }
    }
}
