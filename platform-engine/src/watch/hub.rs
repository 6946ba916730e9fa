//! The state that the watches of a process share: the tails of the logs, which organizations have one, and wake-ups.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use event_listener::{Event, EventListener};
use parking_lot::Mutex;

use super::{
    is_watchable,
    lease::{self, Lease},
    tail::Tail,
};
use crate::{
    error::Result,
    kind::Kind,
    store::{Epoch, KindName, Store},
    timestamp::Timestamp,
    uid::Uid,
};

/// The maximum number of organizations of which is known whether they are watched. Of others it is assumed that they
/// never were, which a commit finds out. Our choice.
const MAX_STATES: usize = 10_000;

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
    tails: Mutex<HashMap<Uid, Weak<Tail>>>,
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
        Self { kinds, states: Mutex::default(), tails: Mutex::default(), access: Arc::default() }
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
            let tail = self.tails.lock().get(organization).and_then(Weak::upgrade);
            if let Some(tail) = tail {
                tail.wake();
            }
        }
    }

    /// Wakes all watches.
    pub(crate) fn wake_all(&self) {
        let tails: Vec<_> = self.tails.lock().values().filter_map(Weak::upgrade).collect();
        for tail in tails {
            tail.wake();
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

    /// Returns the tail of the log of an organization, which begins now if it has none, and its lease.
    pub(crate) async fn open(
        &self,
        store: &dyn Store,
        organization: &Uid,
        now: Timestamp,
    ) -> Result<(Arc<Tail>, Lease)> {
        let lease = lease::ensure(store, organization, now).await?;
        let mut tails = self.tails.lock();
        if let Some(tail) = tails.get(organization).and_then(Weak::upgrade) {
            return Ok((tail, lease));
        }
        // Those of organizations that nobody watches any longer.
        tails.retain(|_, tail| tail.strong_count() > 0);
        let tail = Arc::new(Tail::new(organization.clone(), &lease));
        tails.insert(organization.clone(), Arc::downgrade(&tail));
        Ok((tail, lease))
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
