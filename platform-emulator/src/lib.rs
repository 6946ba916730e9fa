//! An emulator of Platform API v2 for tests: the whole API in memory, over REST and gRPC, with reset, seeds, snapshots, a
//! clock, faults, a log of requests and a coverage report.
//!
//! [`Server::start`] starts it in process, on a free port. Each [`Tenant`] is a platform of its own, so that tests run
//! in parallel; the token of a request names its tenant.
//!
//! ```
//! use std::time::Duration;
//!
//! use platform_emulator::{Fault, Preset, Server};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let server = Server::start()?;
//! let tenant = server.create_tenant("").await?;
//! tenant.seed_preset(Preset::Small).await?;
//! tenant.snapshot("seeded")?;
//! let (url, token) = (tenant.url(), tenant.token()?); // for the client under test
//! # let _ = (url, token);
//!
//! tenant.inject(Fault { delay: Duration::from_millis(200), ..Fault::of("ReposService.*") })?;
//! tenant.advance(Duration::from_secs(24 * 3600));
//! // … calls of the client under test …
//! assert!(tenant.requests("ReposService.*").is_empty());
//! tenant.restore("seeded")?;
//! assert_eq!(server.coverage()?.called, 0);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! `platform-server dev` serves the same emulator as a program, for tests in other languages. Endpoints under
//! `/_emulator` do what the methods of [`Emulator`] and [`Tenant`] do.
//!
//! Everything is lost when the emulator stops. Everybody who can connect to it may control it, so it listens on this
//! machine alone by default.

mod server;

mod emulator;
mod tenant;

mod clock;
mod console;
mod coverage;
mod faults;
mod requests;
mod seed;
mod service;
mod upstream;

mod admin;
mod aws;
mod input;

use std::error::Error as StdError;

pub use self::{
    clock::EmulatorClock,
    coverage::{Calls, Coverage},
    emulator::{DEFAULT_TENANT, Emulator, TENANT_HEADER},
    faults::Fault,
    requests::LoggedRequest,
    seed::{Preset, Seeded},
    server::Server,
    tenant::{ORGANIZATION, Tenant},
    upstream::{UPSTREAM_ISSUER, Upstream},
};

/// The reason why an emulator, or a tenant of one, cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the emulator: {0}")]
pub struct StartError(#[source] Box<dyn StdError + Send + Sync>);

impl StartError {
    pub(crate) fn of(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
