//! Checks that platforms which share data are linearizable, by their histories: several platforms run random operations
//! at the same time, and every result must be possible at some moment between the begin and the end of its operation.
//!
//! The moments of an organization are its commits. Each store call of the platforms is recorded, so the states of an
//! organization are known from the sequences of its commits, and the check is a replay, not a search: a read must
//! return the content of one of the states between the last commit that was acknowledged before the read began and the
//! last commit that began before the read ended. The same holds for a rejection, and a write must have been allowed in
//! the state before its commit. After an acknowledged revocation, nothing is therefore allowed by it.
//!
//! Access is decided by a model of its own, from the rows of the organization and those of the caller, who is an
//! organization, too. The states of the two must be possible at one moment: both before or both after each commit to
//! both.
//!
//! A commit of unknown outcome ([`StoreError::Unknown`](platform_engine::store::StoreError::Unknown)) may have been applied. Each
//! commit raises an epoch of its own, by which the check learns at the end of the round whether it was, and when.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a check that does not hold panics"
)]

mod changes;
mod check;
mod model;
mod operations;
mod planted;
mod recorder;
mod world;

use std::sync::Arc;

pub use planted::{Bug, PlantedStore};
use platform_engine::store::Store;

use self::{check::Checker, recorder::Recorder, world::World};

/// The parameters of a history.
#[derive(Debug, Clone, Copy)]
pub struct History {
    /// The number of operations of all threads together.
    pub operations: usize,
    /// The seed of the random operations. The interleaving of the threads is not determined by it.
    pub seed: u64,
    /// The number of threads of each platform.
    pub threads: usize,
}

/// The contents of a history, so that a test can assert that it was not vacuous.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// The operations that succeeded.
    pub allowed: usize,
    /// The operations that were rejected because the caller lacked a capability.
    pub denied: usize,
    /// The commits.
    pub commits: usize,
    /// The operations during which the organization changed.
    pub concurrent: usize,
    /// The registrations of persons, who were deleted before or were registered already.
    pub registrations: usize,
    /// The invites that were redeemed.
    pub redeemed: usize,
    /// The operations that failed because the store was not available.
    pub unavailable: usize,
    /// The commits of unknown outcome.
    pub unknown: usize,
}

impl Summary {
    /// Asserts that the operations of a history were of all sorts and that all of them reached the store. The fewest of
    /// each sort are in proportion to the number of operations; `concurrent` is the number that must be exceeded if there
    /// are 4,000.
    ///
    /// # Panics
    /// Otherwise.
    pub fn assert_varied(&self, history: &History, concurrent: usize) {
        let least = |of_4_000: usize| of_4_000 * history.operations / 4_000;
        assert!(self.allowed > least(500) && self.denied > least(100) && self.commits > least(500), "{self:?}");
        assert!(self.registrations > least(50) && self.redeemed > least(10), "{self:?}");
        assert!(self.concurrent > least(concurrent) && self.unavailable == 0, "{self:?}");
    }
}

/// The number of operations that are checked together. The threads wait for each other between two rounds, so that the
/// memory of a run does not depend on its length. Each round has new persons and a new organization, besides those of
/// the round before.
const ROUND: usize = 1_000;

impl Default for History {
    /// 4,000 operations of two threads for each platform.
    fn default() -> Self {
        Self { operations: 4_000, seed: 1, threads: 2 }
    }
}

impl History {
    /// Returns a history with the number of operations and the seed of these variables, `PLATFORM_HISTORY` and
    /// `PLATFORM_SEED`, if they are set to numbers. Tests pass `|name| std::env::var(name).ok()`.
    #[must_use]
    pub fn with_variables(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let operations = variable("PLATFORM_HISTORY").and_then(|text| text.parse().ok());
        let seed = variable("PLATFORM_SEED").and_then(|text| text.parse().ok());
        Self { operations: operations.unwrap_or(self.operations), seed: seed.unwrap_or(self.seed), ..self }
    }

    /// Runs the operations on one platform for each of the stores, which must be connected to the same, empty data.
    ///
    /// # Errors
    /// The first operation whose result was not possible, with the states that it was compared with; and a text when
    /// the organizations for the operations cannot be created.
    ///
    /// # Panics
    /// Without a store.
    pub fn run(self, stores: Vec<Arc<dyn Store>>) -> Result<Summary, String> {
        let recorder = Arc::new(Recorder::default());
        let store = stores.first().cloned().expect("a store");
        let mut world = World::new(stores, &recorder)?;
        let mut checker = Checker::new(world.rules());
        let mut summary = Summary::default();
        let mut left = self.operations;
        let mut round = self.seed;
        while left > 0 {
            let count = left.min(ROUND);
            left -= count;
            world.renew()?;
            let operations = world.run(count, self.threads, round);
            let (commits, unknown) = recorder.take(&*store)?;
            summary.unknown += unknown;
            checker.check(&world.compared(), &operations, &commits, &mut summary)?;
            round = round.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        Ok(summary)
    }
}
