//! The suite of a [`Backend`] of `platform-store-kv`: cases for each of its fourteen rules, which show the author of a
//! store over another library what is wrong before a whole store does.
//!
//! The complete test file of a backend is
//!
//! ```no_run
//! # mod own {
//! # use platform_engine::store::StoreError;
//! # use platform_store_kv::backend::*;
//! # #[derive(Debug)]
//! # pub struct Own;
//! # #[derive(Debug)]
//! # pub struct OwnSnapshot;
//! # impl Own { pub fn open(_: &std::path::Path) -> Result<Self, StoreError> { Ok(Self) } }
//! # impl Backend for Own {
//! #     const MAX_KEY: usize = KEY_LEN;
//! #     const MAX_VALUE: usize = NODE_LEN;
//! #     type Snapshot = OwnSnapshot;
//! #     fn snapshot(&self) -> Result<OwnSnapshot, StoreError> { Ok(OwnSnapshot) }
//! #     fn write<'b>(&self, _: impl Iterator<Item = Change<'b>>, _: bool) -> Result<(), StoreError> { Ok(()) }
//! # }
//! # impl Snapshot for OwnSnapshot {
//! #     fn get<T>(&self, _: Space, _: &[u8], _: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> { Ok(None) }
//! #     fn range(
//! #         &self,
//! #         _: KeyRange<'_>,
//! #         _: impl FnMut(&[u8], &[u8]) -> std::ops::ControlFlow<()>,
//! #     ) -> Result<(), StoreError> { Ok(()) }
//! # }
//! # }
//! # use own::Own;
//! use platform_testkit::backend::{self, BackendSuite};
//!
//! fn main() -> std::process::ExitCode {
//!     backend::main(BackendSuite::new(|directory| Own::open(&directory.join("store"))))
//! }
//! ```
//!
//! with `harness = false` under its `[[test]]`. Some cases need other processes: the program starts itself again. Some
//! need a fault that only the author can make, such as [`BackendSuite::failing_writes`]: without it, they are printed as
//! not checked.
//!
//! It is a feature of this crate, not of `platform-store-kv`, so that the engine depends on no test harness; it shares the
//! form of [`conformance`](crate::conformance), which the whole store is tested with.

mod child;
mod fixture;
mod numbered;

mod batch;
mod creation;
mod deletes;
mod durability;
mod failed_write;
mod format;
mod group;
mod keys;
mod model;
mod one_process;
mod open;
mod ranges;
mod read_errors;
mod short_snapshots;
mod snapshot;
mod threads;

use std::{
    any::Any,
    env, fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
};

use libtest_mimic::{Arguments, Failed, Trial};
use platform_engine::store::Cause;
use platform_store_kv::Backend;

use self::fixture::Fixture;
use crate::not_run;

/// Runs the cases of the suite as a test program, each under its name, with the usual command line.
pub fn main<B: Backend>(suite: BackendSuite<B>) -> ExitCode {
    if suite.run_child() {
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let suite = Arc::new(suite);
    let trials = suite.trials();
    if !arguments.list {
        for rule in rules::<B>().iter().filter(|rule| suite.lacks(rule)) {
            let (number, group, hook) = (rule.number, rule.group, rule.hook.map_or("", Hook::name));
            not_run(&format!("{group}, for rule {number} of `Backend`"), &format!("a call of `BackendSuite::{hook}`"));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The configuration of a run: how to open the backend, faults of it, and excluded cases.
pub struct BackendSuite<B: Backend> {
    open: Box<Open<B>>,
    command: Box<Start>,
    failing_writes: Option<Box<Fault<B>>>,
    failing_reads: Option<Box<Fault<B>>>,
    other_format: Option<Box<Change>>,
    exclusions: Vec<(&'static str, &'static str)>,
    kills: u64,
    /// The seed and the number of random batches.
    random: (u64, usize),
}

type Open<B> = dyn Fn(&Path) -> Result<B, Cause> + Send + Sync;
type Fault<B> = dyn Fn(&B) + Send + Sync;
type Start = dyn Fn() -> Result<Command, Cause> + Send + Sync;
type Change = dyn Fn(&Path) + Send + Sync;

impl<B: Backend> BackendSuite<B> {
    /// Creates a suite for the backends that `open` opens.
    ///
    /// `open` gets a directory that only one case uses: an empty one at first, and later that of the same backend, in this
    /// process or in another. The backend is dropped before, unless the case is about a second opener.
    pub fn new<E: Into<Cause>>(open: impl Fn(&Path) -> Result<B, E> + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(move |directory| open(directory).map_err(Into::into)),
            command: Box::new(|| Ok(Command::new(env::current_exe()?))),
            failing_writes: None,
            failing_reads: None,
            other_format: None,
            exclusions: Vec::new(),
            kills: 10,
            random: (1, 400),
        }
    }

    /// Sets how to start this program again, for cases with several processes. The started program calls
    /// [`BackendSuite::run_child`].
    ///
    /// The default is this program without arguments, which is right for a program that calls [`main`] alone.
    #[must_use]
    pub fn command(mut self, command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        self.command = Box::new(move || Ok(command()));
        self
    }

    /// Sets a function that makes all writes of an opened backend fail, as a broken disk does: from inside of the library,
    /// not before it. A backend that is opened later writes again.
    #[must_use]
    pub fn failing_writes(mut self, fail: impl Fn(&B) + Send + Sync + 'static) -> Self {
        self.failing_writes = Some(Box::new(fail));
        self
    }

    /// As [`BackendSuite::failing_writes`], for reads. Data in the memory of the library can still be read.
    #[must_use]
    pub fn failing_reads(mut self, fail: impl Fn(&B) + Send + Sync + 'static) -> Self {
        self.failing_reads = Some(Box::new(fail));
        self
    }

    /// Sets a function that changes the files of a backend, which is not open, as if a version of the library with another
    /// format had written them.
    #[must_use]
    pub fn other_format(mut self, change: impl Fn(&Path) + Send + Sync + 'static) -> Self {
        self.other_format = Some(Box::new(change));
        self
    }

    /// Excludes a group of cases (`deletes`) or one case. The reason is printed with each excluded case.
    #[must_use]
    pub fn without(mut self, cases: &'static str, reason: &'static str) -> Self {
        self.exclusions.push((cases, reason));
        self
    }

    /// Sets the seed and the number of the random batches. The default is 400 batches from seed 1.
    #[must_use]
    pub fn random(mut self, seed: u64, batches: usize) -> Self {
        self.random = (seed, batches);
        self
    }

    /// Sets how many processes are killed in each case that kills processes; 10 by default.
    #[must_use]
    pub fn kills(mut self, kills: u64) -> Self {
        self.kills = kills;
        self
    }

    /// Sets the number of kills, the seed and the number of random batches to those of the variables
    /// `PLATFORM_BACKEND_KILLS`, `PLATFORM_SEED` and `PLATFORM_BACKEND_BATCHES`, if they are set to numbers. Tests pass
    /// `|name| std::env::var(name).ok()`.
    #[must_use]
    pub fn with_variables(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
        let kills = number("PLATFORM_BACKEND_KILLS").unwrap_or(self.kills);
        let seed = number("PLATFORM_SEED").unwrap_or(self.random.0);
        let batches = number("PLATFORM_BACKEND_BATCHES").map_or(self.random.1, |batches| batches as usize);
        self.kills(kills).random(seed, batches)
    }

    /// Returns the names of all cases, in the order of the rules.
    pub fn names() -> Vec<String> {
        let of_rule = |rule: &Rule<B>| rule.cases.iter().map(|case| name(rule, case)).collect::<Vec<_>>();
        rules::<B>().iter().flat_map(of_rule).collect()
    }

    /// Runs a group of cases or one case, and returns the names of those that fail with the reasons. Cases that are excluded
    /// or not checked do not fail.
    pub fn failures(&self, cases: &str) -> Vec<(String, String)> {
        let mut failures = Vec::new();
        for rule in rules::<B>().iter().filter(|rule| !self.lacks(rule)) {
            for case in &rule.cases {
                let name = name(rule, case);
                if matches(&name, cases) && self.exclusion(&name).is_none() {
                    failures.extend(self.run(case).err().map(|error| (name, error)));
                }
            }
        }
        failures
    }

    /// Does what a case has started this process for, and returns true; returns false in any other process.
    pub fn run_child(&self) -> bool {
        child::run(self)
    }

    fn trials(self: &Arc<Self>) -> Vec<Trial> {
        for (cases, _) in &self.exclusions {
            assert!(Self::names().iter().any(|name| matches(name, cases)), "unknown case `{cases}`");
        }
        let of_rule = |rule: &Rule<B>| rule.cases.iter().map(|case| self.trial(rule, *case)).collect::<Vec<_>>();
        rules().iter().flat_map(of_rule).collect()
    }

    fn trial(self: &Arc<Self>, rule: &Rule<B>, case: Case<B>) -> Trial {
        let name = name(rule, &case);
        let ignored = if let Some(reason) = self.exclusion(&name) {
            Some(format!("excluded: {reason}"))
        } else if self.lacks(rule) {
            Some(format!("NOT CHECKED without `BackendSuite::{}`", rule.hook.map_or("", Hook::name)))
        } else {
            None
        };
        if let Some(why) = ignored {
            return Trial::test(name, || Ok(())).with_kind(why).with_ignored_flag(true);
        }
        let suite = Arc::clone(self);
        let kind = if rule.number == 0 { "all rules".to_owned() } else { format!("rule {}", rule.number) };
        Trial::test(name, move || suite.run(&case).map_err(Failed::from)).with_kind(kind)
    }

    /// Runs a case in a directory of its own.
    fn run(&self, case: &Case<B>) -> Result<(), String> {
        let fixture = Fixture::new(self)?;
        let panicked = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
            Ok(text) => Err(format!("the backend panicked: {text}")),
            Err(panic) => Err(format!("the backend panicked: {}", panic.downcast_ref::<&str>().unwrap_or(&""))),
        };
        catch_unwind(AssertUnwindSafe(|| (case.run)(&fixture))).unwrap_or_else(panicked)
    }

    fn exclusion(&self, name: &str) -> Option<&'static str> {
        self.exclusions.iter().find(|(cases, _)| matches(name, cases)).map(|(_, reason)| *reason)
    }

    /// Returns whether the author has not supplied the fault that the cases of a rule need.
    fn lacks(&self, rule: &Rule<B>) -> bool {
        rule.hook.is_some_and(|hook| match hook {
            Hook::FailingWrites => self.failing_writes.is_none(),
            Hook::FailingReads => self.failing_reads.is_none(),
            Hook::OtherFormat => self.other_format.is_none(),
        })
    }
}

impl<B: Backend> fmt::Debug for BackendSuite<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendSuite").field("exclusions", &self.exclusions).finish_non_exhaustive()
    }
}

/// Returns the name of a case with that of its group.
fn name<B: Backend>(rule: &Rule<B>, case: &Case<B>) -> String {
    format!("{}::{}", rule.group, case.name)
}

fn matches(name: &str, cases: &str) -> bool {
    name.strip_prefix(cases).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The functions that the author of a backend supplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    FailingWrites,
    FailingReads,
    OtherFormat,
}

impl Hook {
    const fn name(self) -> &'static str {
        match self {
            Self::FailingWrites => "failing_writes",
            Self::FailingReads => "failing_reads",
            Self::OtherFormat => "other_format",
        }
    }
}

/// The result of a case: the text says what the backend did and what the rule asks for.
type Outcome = Result<(), String>;

/// A named test of a backend.
struct Case<B: Backend> {
    name: &'static str,
    run: fn(&Fixture<'_, B>) -> Outcome,
}

impl<B: Backend> Clone for Case<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Case<B> {}

/// Lists functions as cases under their own names.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::backend::Case { name: stringify!($case), run: $case }),*]
    };
}
use cases;

/// The cases of a rule of [`Backend`].
struct Rule<B: Backend> {
    /// Its number there; 0 for all of them.
    number: u8,
    group: &'static str,
    /// The needs of the cases.
    hook: Option<Hook>,
    cases: Vec<Case<B>>,
}

fn rules<B: Backend>() -> Vec<Rule<B>> {
    let rule = |number, group, cases| Rule { number, group, hook: None, cases };
    vec![
        rule(1, "snapshot", snapshot::cases()),
        rule(2, "open", open::cases()),
        Rule { hook: Some(Hook::FailingReads), ..rule(2, "read_errors", read_errors::cases()) },
        rule(3, "keys", keys::cases()),
        rule(4, "ranges", ranges::cases()),
        rule(5, "batch", batch::cases()),
        rule(6, "durability", durability::cases()),
        rule(7, "group", group::cases()),
        Rule { hook: Some(Hook::FailingWrites), ..rule(8, "failed_write", failed_write::cases()) },
        rule(9, "one_process", one_process::cases()),
        rule(10, "creation", creation::cases()),
        rule(11, "short_snapshots", short_snapshots::cases()),
        rule(12, "threads", threads::cases()),
        Rule { hook: Some(Hook::OtherFormat), ..rule(13, "format", format::cases()) },
        rule(14, "deletes", deletes::cases()),
        rule(0, "model", model::cases()),
    ]
}
