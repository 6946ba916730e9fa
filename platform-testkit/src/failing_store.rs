//! A store that fails the calls that a test selects.

use parking_lot::Mutex;
use platform_engine::store::StoreError;

use super::watched_store::{Call, Watch, WatchedStore};

/// A store that fails the calls that a test selects with [`Failures::add`].
///
/// ```
/// use platform_engine::store::{Commit, Store, StoreError};
/// use platform_testkit::{Call, FailingStore};
///
/// # pollster::block_on(async {
/// let (store, failures) = FailingStore::in_memory();
/// failures.add(Call::Commit, 1, StoreError::Unavailable("the disk is gone".into()));
/// store.commit(Commit::default()).await?;
/// assert!(matches!(store.commit(Commit::default()).await, Err(StoreError::Unavailable(_))));
/// store.commit(Commit::default()).await?;
/// # Ok::<(), StoreError>(())
/// # }).unwrap();
/// ```
pub type FailingStore = WatchedStore<Failures>;

/// The failures that a [`FailingStore`] will have.
#[derive(Debug, Default)]
pub struct Failures(Mutex<Vec<Failure>>);

#[derive(Debug)]
struct Failure {
    call: Call,
    /// The number of such calls that succeed before this one fails.
    after: usize,
    error: StoreError,
}

impl Failures {
    /// Lets one call fail, after this number of such calls.
    pub fn add(&self, call: Call, after: usize, error: StoreError) {
        self.0.lock().push(Failure { call, after, error });
    }
}

impl Watch for Failures {
    fn before(&self, call: Call) -> Result<(), StoreError> {
        let mut failures = self.0.lock();
        if let Some(at) = failures.iter().position(|failure| failure.call == call && failure.after == 0) {
            return Err(failures.remove(at).error);
        }
        failures.iter_mut().filter(|failure| failure.call == call).for_each(|failure| failure.after -= 1);
        Ok(())
    }
}
