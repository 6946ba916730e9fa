//! A store that counts its calls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use platform_engine::store::StoreError;

use super::watched_store::{Call, Watch, WatchedStore};

/// A store that counts its calls.
pub type CountingStore = WatchedStore<Calls>;

/// The number of calls of a [`CountingStore`].
#[derive(Debug, Default)]
pub struct Calls {
    reads: AtomicUsize,
    commits: AtomicUsize,
    lineage: AtomicU64,
}

impl Calls {
    /// Returns the number of gets and lists so far.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns the number of commits so far, including failed ones.
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Changes the [lineage](platform_engine::store::Store::lineage) of the store, as a failover does.
    pub fn fail_over(&self) {
        self.lineage.fetch_add(1, Ordering::SeqCst);
    }
}

impl Watch for Calls {
    fn before(&self, call: Call) -> Result<(), StoreError> {
        let counter = if call == Call::Commit { &self.commits } else { &self.reads };
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn lineage(&self) -> u64 {
        self.lineage.load(Ordering::SeqCst)
    }
}
