//! The state that the watches of a process share: the ends of the logs, which organizations have one, and wake-ups.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use event_listener::{Event, EventListener};
use parking_lot::Mutex;

use super::{
    is_watchable,
    lease::{self, Lease},
    log::{self, Entry},
};
use crate::{
    error::{Error, Result},
    kind::Kind,
    store::{Epoch, KindName, Store},
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

/// The maximum number of organizations of which is known whether they are watched. Of others it is assumed that they
/// never were, which a commit finds out. Our choice.
const MAX_STATES: usize = 10_000;

/// The interval at which a log is read without a wake-up, because a message between servers can be lost, in milliseconds.
const POLL_MILLIS: i64 = 2_000;

/// The time between two sweeps of a log by a process, in milliseconds.
const SWEEP_MILLIS: i64 = 60_000;

/// Whether an organization has a log, as of the value of the epoch `watched`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub(crate) as_of: u64,
    pub(crate) is_watched: bool,
}

/// The state, and the lineage of the store that it was read in; `None` if it must be read.
type Known = Option<(u64, State)>;

/// The state that the watches of a process share.
#[derive(Debug)]
pub(crate) struct Hub {
    kinds: HashSet<KindName>,
    states: Mutex<HashMap<Uid, Known>>,
    logs: Mutex<HashMap<Uid, Weak<Log>>>,
    access: Arc<Access>,
}

/// The epochs that the access of watches depends on.
#[derive(Debug, Default)]
pub(crate) struct Access {
    watches: AtomicUsize,
    /// How often an epoch of a watch was raised.
    raised: AtomicU64,
    epochs: Mutex<HashMap<Epoch, usize>>,
    event: Event,
}

impl Hub {
    /// Creates the hub of a platform with these kinds.
    pub(crate) fn new(kinds: impl Iterator<Item = &'static Kind>) -> Self {
        let kinds = kinds.filter(|kind| is_watchable(kind)).map(|kind| kind.name).collect();
        Self { kinds, states: Mutex::default(), logs: Mutex::default(), access: Arc::default() }
    }

    /// Returns whether watches show the changes of a kind.
    pub(crate) fn shows(&self, kind: KindName) -> bool {
        self.kinds.contains(kind)
    }

    /// Returns whether an organization has a log. It may be stale: a commit must require the epoch.
    pub(crate) async fn state(&self, store: &dyn Store, organization: &Uid) -> Result<State> {
        let lineage = store.lineage();
        match self.states.lock().get(organization) {
            None => return Ok(State::default()),
            Some(Some((of, state))) if *of == lineage => return Ok(*state),
            Some(_) => {}
        }
        let (lease, as_of) = lease::read(store, organization).await?;
        let state = State { as_of, is_watched: lease.is_some() };
        if as_of == 0 {
            self.states.lock().remove(organization);
        } else {
            self.insert(organization, Some((lineage, state)));
        }
        Ok(state)
    }

    /// Forgets whether an organization has a log.
    pub(crate) fn forget(&self, organization: &Uid) {
        self.insert(organization, None);
    }

    fn insert(&self, organization: &Uid, known: Known) {
        let mut states = self.states.lock();
        if states.len() >= MAX_STATES && !states.contains_key(organization) {
            states.clear();
        }
        states.insert(organization.clone(), known);
    }

    /// Wakes the watches of these organizations.
    pub(crate) fn wake<'u>(&self, organizations: impl IntoIterator<Item = &'u Uid>) {
        for organization in organizations {
            let log = self.logs.lock().get(organization).and_then(Weak::upgrade);
            if let Some(log) = log {
                log.wake();
            }
        }
    }

    /// Wakes all watches.
    pub(crate) fn wake_all(&self) {
        let logs: Vec<_> = self.logs.lock().values().filter_map(Weak::upgrade).collect();
        for log in logs {
            log.wake();
        }
    }

    /// Wakes the watches whose access depends on one of these epochs.
    pub(crate) fn raised(&self, epochs: &[Epoch]) {
        if self.access.watches.load(Ordering::SeqCst) == 0 || epochs.is_empty() {
            return;
        }
        let known = self.access.epochs.lock();
        if epochs.iter().any(|epoch| known.contains_key(epoch)) {
            drop(known);
            self.access.raised.fetch_add(1, Ordering::SeqCst);
            self.access.event.notify(usize::MAX);
        }
    }

    /// Registers the epochs that the access of a watch depends on.
    pub(crate) fn depends_on(&self, epochs: Arc<[Epoch]>) -> Dependence {
        self.access.watches.fetch_add(1, Ordering::SeqCst);
        let mut known = self.access.epochs.lock();
        for epoch in &*epochs {
            *known.entry(epoch.clone()).or_default() += 1;
        }
        drop(known);
        Dependence { access: Arc::clone(&self.access), epochs }
    }

    /// Returns the log of an organization, which begins now if it has none, and its lease.
    pub(crate) async fn open(
        &self,
        store: &dyn Store,
        organization: &Uid,
        now: Timestamp,
    ) -> Result<(Arc<Log>, Lease)> {
        let lease = lease::ensure(store, organization, now).await?;
        let mut logs = self.logs.lock();
        if let Some(log) = logs.get(organization).and_then(Weak::upgrade) {
            return Ok((log, lease));
        }
        // Those of organizations that nobody watches any longer.
        logs.retain(|_, log| log.strong_count() > 0);
        let log = Arc::new(Log::new(organization.clone(), &lease));
        logs.insert(organization.clone(), Arc::downgrade(&log));
        Ok((log, lease))
    }
}

/// The epochs that the access of a watch depends on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Dependence {
    access: Arc<Access>,
    epochs: Arc<[Epoch]>,
}

impl Dependence {
    /// Returns how often epochs of watches were raised by this process, and a listener for the next time.
    pub(crate) fn listen(&self) -> EventListener {
        self.access.event.listen()
    }

    /// Returns how often epochs of watches were raised by this process.
    pub(crate) fn raised(&self) -> u64 {
        self.access.raised.load(Ordering::SeqCst)
    }

    /// Returns whether one of the epochs is among these, as text.
    pub(crate) fn is_among(&self, raised: &[String]) -> bool {
        !raised.is_empty() && self.epochs.iter().any(|epoch| raised.contains(&epoch.to_string()))
    }
}

impl Drop for Dependence {
    fn drop(&mut self) {
        self.access.watches.fetch_sub(1, Ordering::SeqCst);
        let mut known = self.access.epochs.lock();
        for epoch in &*self.epochs {
            if let Some(count) = known.get_mut(epoch) {
                *count -= 1;
                if *count == 0 {
                    known.remove(epoch);
                }
            }
        }
    }
}

/// The end of the log of an organization, as far as it is read.
#[derive(Debug)]
pub(crate) struct Log {
    organization: Uid,
    /// How often it was woken.
    wakes: AtomicU64,
    event: Event,
    shared: Mutex<Shared>,
    /// Held by the watch that reads on.
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
}

/// The entries that a watch finds at its position.
#[derive(Debug)]
pub(crate) enum Found {
    /// Records, in order.
    Entries(Vec<Arc<Entry>>),
    /// No record yet.
    Nothing,
    /// The records after the position are no longer shared.
    Behind,
    /// The log was started again since the position.
    Restarted,
}

impl Log {
    fn new(organization: Uid, lease: &Lease) -> Self {
        let shared = Shared {
            since: lease.since,
            trimmed_as_of: lease.trimmed_as_of,
            start: lease.end,
            end: lease.end,
            entries: VecDeque::new(),
            bytes: 0,
            answered: 0,
        };
        Self {
            organization,
            // The log may have grown since the lease was read.
            wakes: AtomicU64::new(1),
            event: Event::new(),
            shared: Mutex::new(shared),
            reading: async_lock::Mutex::new(()),
            polled: AtomicI64::new(i64::MIN),
            swept: AtomicI64::new(i64::MIN),
            renew_at: AtomicI64::new(lease.renew_at().millis()),
        }
    }

    pub(crate) fn organization(&self) -> &Uid {
        &self.organization
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.event.notify(usize::MAX);
    }

    /// Returns a listener for the next wake-up.
    pub(crate) fn listen(&self) -> EventListener {
        self.event.listen()
    }

    /// Returns up to a page of the log after a position, after reading the end of the log if it may have grown.
    pub(crate) async fn read(&self, store: &dyn Store, (since, after): (u64, u64)) -> Result<Found> {
        if self.has_grown() {
            // One watch reads for all.
            let _reading = self.reading.lock().await;
            if self.has_grown() {
                self.read_on(store).await?;
            }
        }
        let shared = self.shared.lock();
        if shared.since != since {
            return Ok(Found::Restarted);
        }
        if after < shared.start {
            return Ok(Found::Behind);
        }
        let first = shared.entries.partition_point(|entry| entry.sequence <= after);
        // A watch whose client reads slowly keeps the records that it has been given.
        let mut bytes = 0_usize;
        let fits = |entry: &&Arc<Entry>| {
            let is_first = bytes == 0;
            bytes = bytes.saturating_add(entry.bytes);
            is_first || bytes <= PAGE_BYTES
        };
        let entries: Vec<_> = shared.entries.iter().skip(first).take(PAGE).take_while(fits).cloned().collect();
        Ok(if entries.is_empty() { Found::Nothing } else { Found::Entries(entries) })
    }

    fn has_grown(&self) -> bool {
        self.shared.lock().answered < self.wakes.load(Ordering::SeqCst)
    }

    async fn read_on(&self, store: &dyn Store) -> Result<()> {
        loop {
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
            let is_last = page.next.is_none() && !restart;
            let mut shared = self.shared.lock();
            (shared.since, shared.trimmed_as_of) = (since, trimmed_as_of);
            if restart {
                (shared.start, shared.end, shared.bytes) = (end, end, 0);
                shared.entries.clear();
            }
            for entry in entries {
                shared.push(entry);
            }
            if is_last {
                shared.answered = wakes;
                return Ok(());
            }
        }
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
    fn push(&mut self, entry: Arc<Entry>) {
        self.end = entry.sequence;
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.entries.push_back(entry);
        while self.entries.len() > MAX_SHARED || self.bytes > MAX_SHARED_BYTES {
            let Some(first) = self.entries.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(first.bytes);
            self.start = first.sequence;
        }
    }
}
