//! The conformance suite of [`Store`]: named cases that every store must pass.
//!
//! The complete test file of a store is
//!
//! ```no_run
//! # use platform_engine::store::memory::MemoryStore;
//! use platform_engine::store::StoreError;
//! use platform_testkit::conformance::{self, Suite};
//!
//! fn main() -> std::process::ExitCode {
//!     let suite = Suite::new(async |_directory| Ok::<_, StoreError>(MemoryStore::new()));
//!     conformance::main(suite.without("reopen", "nothing outlives the process"))
//! }
//! ```
//!
//! with `harness = false` under its `[[test]]`. A case that the store cannot pass is excluded by name, with a reason
//! that the run prints. Cases use their store like the engine, through `Arc<dyn Store>`.
//!
//! The groups have the names that the contract of [`Store`] gives them. Cases are private functions in one table per
//! group, so that the compiler warns about a case that is missing in its table.

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
mod limit;
mod many;
mod model;
mod order;
mod reopen;
mod require;
mod restore;
mod scope;
mod search;
mod sequence;
mod total;
mod unique;
mod values;
mod watch;

#[cfg(test)]
mod planted;

use std::{path::PathBuf, pin::Pin, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Failed, Trial};
use platform_engine::store::{Cause, Store, StoreError, check::Finding};

use self::fixture::Fixture;

/// Runs the cases of the suite as a test program, each under its name, with the usual command line.
pub fn main(suite: Suite) -> ExitCode {
    run(Arc::new(suite).trials(""))
}

/// As [`main`], for a store with several configurations. The names of the cases begin with the name of the configuration:
/// `small_cache::order::…`.
pub fn main_of<const N: usize>(configurations: [(&'static str, Suite); N]) -> ExitCode {
    let trials = configurations.into_iter().map(|(name, suite)| Arc::new(suite).trials(&format!("{name}::")));
    run(trials.flatten().collect())
}

fn run(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The configuration of a run: how to open the store, and the excluded cases.
pub struct Suite {
    open: Box<Open>,
    block_on: Box<BlockOn>,
    exclusions: Vec<Exclusion>,
    /// The seed and the number of random operations.
    random: (u64, usize),
}

type Open = dyn Fn(PathBuf) -> LocalFuture<'static, Result<(Arc<dyn Store>, Box<Check>), Cause>> + Send + Sync;
/// Runs the check of an opened store.
type Check = dyn Fn() -> Result<Vec<Finding>, StoreError> + Send + Sync;
type BlockOn = dyn Fn(LocalFuture<'_, ()>) + Send + Sync;

/// A future that stays on the thread that created it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Excluded cases, and the reason.
#[derive(Debug)]
struct Exclusion {
    cases: &'static str,
    reason: &'static str,
}

impl Suite {
    /// Creates a suite for the stores that `open` opens.
    ///
    /// `open` receives a directory that only this case uses, which is initially empty and deleted when the case ends.
    /// It opens the store in that directory: an empty one at the first call, the same store at later calls. A store
    /// located elsewhere can use the directory's name as a unique name. The store is dropped before `open` is called
    /// with the same directory again.
    pub fn new<F, Opening, S, E>(open: F) -> Self
    where
        F: Fn(PathBuf) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<S, E>> + 'static,
        S: Store,
        E: Into<Cause>,
    {
        Self::checked(open, |_| Ok(Vec::new()))
    }

    /// As [`Suite::new`], for a store with a consistency check, which runs when a case closes its store. The case fails
    /// if the check finds anything.
    pub fn checked<F, Opening, S, E>(open: F, check: fn(&S) -> Result<Vec<Finding>, StoreError>) -> Self
    where
        F: Fn(PathBuf) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<S, E>> + 'static,
        S: Store,
        E: Into<Cause>,
    {
        let open = move |directory| -> LocalFuture<'static, _> {
            let opening = open(directory);
            Box::pin(async move {
                let store = Arc::new(opening.await.map_err(Into::into)?);
                let opened = Arc::downgrade(&store);
                let check = move || opened.upgrade().map_or(Ok(Vec::new()), |store| check(&store));
                Ok((store as Arc<dyn Store>, Box::new(check) as Box<Check>))
            })
        };
        let block_on = |case: LocalFuture<'_, ()>| pollster::block_on(case);
        Self { open: Box::new(open), block_on: Box::new(block_on), exclusions: Vec::new(), random: (1, 3_000) }
    }

    /// Sets the function that runs the cases, for a store that needs a runtime. Several threads call it concurrently.
    /// The default is `pollster::block_on`.
    #[must_use]
    pub fn block_on(mut self, block_on: impl Fn(LocalFuture<'_, ()>) + Send + Sync + 'static) -> Self {
        self.block_on = Box::new(block_on);
        self
    }

    /// Excludes a group of cases (`reopen`) or one case (`reopen::an_empty_store_can_be_reopened`). The reason is
    /// printed with each excluded case.
    #[must_use]
    pub fn without(mut self, cases: &'static str, reason: &'static str) -> Self {
        self.exclusions.push(Exclusion { cases, reason });
        self
    }

    /// Sets the seed and the number of random operations. The default is 3,000 operations from seed 1.
    #[must_use]
    pub fn random(mut self, seed: u64, operations: usize) -> Self {
        self.random = (seed, operations);
        self
    }

    /// Sets the seed and the number of random operations to those of the variables `PLATFORM_SEED` and
    /// `PLATFORM_OPERATIONS`, if they are set to numbers. Tests pass `|name| std::env::var(name).ok()`.
    #[must_use]
    pub fn with_variables(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
        let seed = number("PLATFORM_SEED").unwrap_or(self.random.0);
        let operations = number("PLATFORM_OPERATIONS").map_or(self.random.1, |operations| operations as usize);
        self.random(seed, operations)
    }

    /// Returns the cases as trials, whose names begin with the prefix.
    fn trials(self: Arc<Self>, prefix: &str) -> Vec<Trial> {
        let cases = GROUPS.iter().flat_map(|(group, cases)| cases.iter().map(move |case| (*group, case)));
        let known: Vec<(String, &Case)> =
            cases.map(|(group, case)| (format!("{group}::{}", case.name), case)).collect();
        for Exclusion { cases, .. } in &self.exclusions {
            assert!(known.iter().any(|(name, _)| matches(name, cases)), "unknown case `{cases}`");
        }
        known.into_iter().map(|(name, case)| self.clone().trial(prefix, &name, case)).collect()
    }

    fn trial(self: Arc<Self>, prefix: &str, name: &str, case: &'static Case) -> Trial {
        let full_name = format!("{prefix}{name}");
        if let Some(exclusion) = self.exclusion(name) {
            let why = format!("excluded: {}", exclusion.reason);
            return Trial::test(full_name, || Ok(())).with_kind(why).with_ignored_flag(true);
        }
        Trial::test(full_name, move || {
            self.run(async |suite: &Arc<Self>| {
                let mut fixture = Fixture::create(suite.clone()).await;
                (case.run)(&mut fixture).await;
                fixture.close();
            });
            Ok::<(), Failed>(())
        })
    }

    fn exclusion(&self, name: &str) -> Option<&Exclusion> {
        self.exclusions.iter().find(|exclusion| matches(name, exclusion.cases))
    }

    fn run<T>(self: &Arc<Self>, work: impl AsyncFnOnce(&Arc<Self>) -> T) -> T {
        let mut result = None;
        (self.block_on)(Box::pin(async { result = Some(work(self).await) }));
        result.expect("`block_on` returned before the future completed")
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

/// All cases, by the groups that the contract names.
const GROUPS: &[(&str, &[Case])] = &[
    ("get", get::CASES),
    ("atomic", atomic::CASES),
    ("require", require::CASES),
    ("limit", limit::CASES),
    ("delete", delete::CASES),
    ("unique", unique::CASES),
    ("epoch", epoch::CASES),
    ("sequence", sequence::CASES),
    ("order", order::CASES),
    ("cursor", cursor::CASES),
    ("scope", scope::CASES),
    ("filter", filter::CASES),
    ("search", search::CASES),
    ("total", total::CASES),
    ("bytes", bytes::CASES),
    ("values", values::CASES),
    ("many", many::CASES),
    ("large", large::CASES),
    ("reopen", reopen::CASES),
    ("restore", restore::CASES),
    ("concurrency", concurrency::CASES),
    ("health", health::CASES),
    ("model", model::CASES),
    ("watch", watch::CASES),
];
