//! What every store must do, as named cases that any store can run.
//!
//! A store's whole test file is
//!
//! ```no_run
//! # use platform_engine::store::memory::MemoryStore;
//! use platform_engine::store::{StoreError, conformance::{self, Suite}};
//!
//! fn main() -> std::process::ExitCode {
//!     let suite = Suite::new(async |_directory| Ok::<_, StoreError>(MemoryStore::new()));
//!     conformance::main(suite.without("reopen", "nothing outlives the process"))
//! }
//! ```
//!
//! with `harness = false` under its `[[test]]`. A case that the store cannot pass is left out by name, with the
//! reason, which the run prints. Every case sees its store as core does, through `Arc<dyn Store>`.
//!
//! The groups bear the names that the contract of [`Store`] gives them. Cases are private functions in a
//! table for each group, so that one left out of its table is a warning of the compiler.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests, though they are compiled into the library"
)]

mod fixture;
mod records;

mod atomic;
mod bytes;
mod concurrency;
mod cursor;
mod delete;
mod epoch;
mod filter;
mod get;
mod health;
mod large;
mod many;
mod model;
mod order;
mod reopen;
mod require;
mod scope;
mod sequence;
mod total;
mod unique;
mod values;

use std::{path::PathBuf, pin::Pin, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Failed, Trial};

use self::fixture::Fixture;
use super::{Cause, Store};

/// Runs the suite's cases as a test program does, each under its name, with the usual command line.
pub fn main(suite: Suite) -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, Arc::new(suite).trials()).exit_code()
}

/// How the cases come by a store, and which of them it is excused from.
pub struct Suite {
    open: Box<Open>,
    block_on: Box<BlockOn>,
    exclusions: Vec<Exclusion>,
    /// The seed and the number of the random operations.
    random: (u64, usize),
}

type Open = dyn Fn(PathBuf) -> LocalFuture<'static, Result<Arc<dyn Store>, Cause>> + Send + Sync;
type BlockOn = dyn Fn(LocalFuture<'_, ()>) + Send + Sync;

/// A future that stays on the thread that made it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Cases that a store is excused from, and why.
#[derive(Debug)]
struct Exclusion {
    cases: &'static str,
    reason: &'static str,
}

impl Suite {
    /// Makes a suite for the stores that the function opens.
    ///
    /// It is given a directory of the case's own, empty at first and deleted when the case has ended, and opens the
    /// store that is kept there: an empty one the first time, and later the same again. A store that is kept
    /// elsewhere can take the directory's name for a name that nobody else uses. The store is closed, that is
    /// dropped, before the same directory is opened again.
    pub fn new<F, Opening, S, E>(open: F) -> Self
    where
        F: Fn(PathBuf) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<S, E>> + 'static,
        S: Store,
        E: Into<Cause>,
    {
        let open = move |directory| -> LocalFuture<'static, Result<Arc<dyn Store>, Cause>> {
            let opening = open(directory);
            Box::pin(async { opening.await.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(Into::into) })
        };
        let block_on = |case: LocalFuture<'_, ()>| pollster::block_on(case);
        Self { open: Box::new(open), block_on: Box::new(block_on), exclusions: Vec::new(), random: (1, 10_000) }
    }

    /// Has the cases run by this function, which several threads call at once; for a store that needs a runtime.
    /// Without it, `pollster` runs them.
    #[must_use]
    pub fn block_on(mut self, block_on: impl Fn(LocalFuture<'_, ()>) + Send + Sync + 'static) -> Self {
        self.block_on = Box::new(block_on);
        self
    }

    /// Leaves out a group of cases (`reopen`) or one case (`reopen::an_empty_store_can_be_reopened`), for a reason
    /// that is printed with each.
    #[must_use]
    pub fn without(mut self, cases: &'static str, reason: &'static str) -> Self {
        self.exclusions.push(Exclusion { cases, reason });
        self
    }

    /// Has the random operations drawn from this seed, and so many of them; by default 10,000 from the seed 1.
    #[must_use]
    pub fn random(mut self, seed: u64, operations: usize) -> Self {
        self.random = (seed, operations);
        self
    }

    fn trials(self: Arc<Self>) -> Vec<Trial> {
        let cases = GROUPS.iter().flat_map(|(group, cases)| cases.iter().map(move |case| (*group, case)));
        let known: Vec<(String, &Case)> =
            cases.map(|(group, case)| (format!("{group}::{}", case.name), case)).collect();
        for Exclusion { cases, .. } in &self.exclusions {
            assert!(known.iter().any(|(name, _)| matches(name, cases)), "no case is named `{cases}`");
        }
        known.into_iter().map(|(name, case)| self.clone().trial(name, case)).collect()
    }

    fn trial(self: Arc<Self>, name: String, case: &'static Case) -> Trial {
        if let Some(exclusion) = self.exclusion(&name) {
            let why = format!("excluded: {}", exclusion.reason);
            return Trial::test(name, || Ok(())).with_kind(why).with_ignored_flag(true);
        }
        Trial::test(name, move || {
            self.run(async |suite: &Arc<Self>| (case.run)(&mut Fixture::create(suite.clone()).await).await);
            Ok::<(), Failed>(())
        })
    }

    fn exclusion(&self, name: &str) -> Option<&Exclusion> {
        self.exclusions.iter().find(|exclusion| matches(name, exclusion.cases))
    }

    fn run<T>(self: &Arc<Self>, work: impl AsyncFnOnce(&Arc<Self>) -> T) -> T {
        let mut result = None;
        (self.block_on)(Box::pin(async { result = Some(work(self).await) }));
        result.expect("`block_on` returned before the future was done")
    }
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suite").field("exclusions", &self.exclusions).finish_non_exhaustive()
    }
}

fn matches(name: &str, cases: &str) -> bool {
    name.strip_prefix(cases).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// A named test of a store.
struct Case {
    name: &'static str,
    run: for<'a> fn(&'a mut Fixture) -> LocalFuture<'a, ()>,
}

/// Lists functions as cases under their own names.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        &[$(super::Case { name: stringify!($case), run: |fixture| Box::pin($case(fixture)) }),*]
    };
}
use cases;

/// Every case, by the group that the contract names.
const GROUPS: &[(&str, &[Case])] = &[
    ("get", get::CASES),
    ("atomic", atomic::CASES),
    ("require", require::CASES),
    ("delete", delete::CASES),
    ("unique", unique::CASES),
    ("epoch", epoch::CASES),
    ("sequence", sequence::CASES),
    ("order", order::CASES),
    ("cursor", cursor::CASES),
    ("scope", scope::CASES),
    ("filter", filter::CASES),
    ("total", total::CASES),
    ("bytes", bytes::CASES),
    ("values", values::CASES),
    ("many", many::CASES),
    ("large", large::CASES),
    ("reopen", reopen::CASES),
    ("concurrency", concurrency::CASES),
    ("health", health::CASES),
    ("model", model::CASES),
];
