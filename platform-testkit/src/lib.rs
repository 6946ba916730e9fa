//! Test support for kinds, stores and transports.
//!
//! [`conformance`] is the suite that every store passes, and [`KindSuite`] the one of every kind. `backend` is the suite of
//! the key-value libraries below the list engine. `history` checks that platforms over the same data are linearizable, and
//! `postgres` starts a private cluster. The other types replace what
//! a server passes to a platform, with a deterministic clock and source of randomness, and stores that pause, count and
//! fail:
//!
//! ```
//! use std::sync::Arc;
//!
//! use platform_engine::{platform::Platform, store::memory::MemoryStore, timestamp::Timestamp};
//! use platform_testkit::{SeededEntropy, TestClock, TestGrants};
//!
//! let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
//! let grants = TestGrants::new();
//! let platform = Platform::builder(Arc::new(MemoryStore::new()), clock.clone(), SeededEntropy::new(1))
//!     .authority(grants.clone())
//!     .ephemeral_keys()
//!     .build()?;
//! clock.advance(1000);
//! assert_eq!(platform.now().to_string(), "2026-01-01T00:00:01.000Z");
//! # Ok::<(), platform_engine::platform::BuildError>(())
//! ```

#![allow(clippy::panic, clippy::expect_used, clippy::indexing_slicing, reason = "a check that does not hold panics")]

#[cfg(feature = "backend")]
pub mod backend;
pub mod conformance;
#[cfg(feature = "history")]
pub mod history;
pub mod model;
#[cfg(feature = "postgres")]
pub mod postgres;

mod authenticator;
mod clock;
mod counting_store;
mod entropy;
mod failing_store;
mod gated_store;
mod grants;
mod kind_suite;
mod not_run;
mod on_drop;
mod rng;
mod watched_store;

pub use authenticator::UidIsToken;
pub use clock::TestClock;
pub use counting_store::{Calls, CountingStore};
pub use entropy::SeededEntropy;
pub use failing_store::{FailingStore, Failures};
pub use gated_store::{Gate, GatedStore};
pub use grants::TestGrants;
pub use kind_suite::{Check, KindSuite, Pair};
pub use not_run::not_run;
pub use rng::Rng;
pub use watched_store::{Call, Watch, WatchedStore};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
