//! Delivers the events that the platform records: those of each subscription in order and at least once.
//!
//! `platform-core` writes an event in the commit of its change and does not send it. A [`Dispatcher`] passes pending
//! events to a [`Sink`]. The [`Webhook`] sink posts them to the subscription's URL as CloudEvents, with a token of the
//! installation's issuer; embedders may implement their own.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use platform_engine::platform::Platform;
//! # use platform_oidc::Issuer;
//! use platform_events::{Dispatcher, Options, Webhook, WebhookOptions};
//!
//! # async fn run(platform: Arc<Platform>, issuer: Arc<Issuer>) -> Result<(), Box<dyn std::error::Error>> {
//! let webhook = Webhook::new(issuer, WebhookOptions::default())?;
//! Dispatcher::new(platform, Arc::new(webhook), Options::default()).run(std::future::pending()).await;
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees (`docs/api.md`, Events):
//!
//! - **In order.** The next event of a subscription is not attempted before the current one is acknowledged or given
//!   up.
//! - **At least once.** Acknowledged events are deleted in batches, within 50 ms or after the current attempt. A crash
//!   before the deletion sends them again, with the same id.
//! - **Isolation.** A slow or dead sink does not delay any other: each subscription has its own lane, and lanes whose
//!   sinks are slow or failing share a separate limit.
//! - **Shared data.** Large data of an event for several subscriptions is stored once, and deleted after the last
//!   delivery. Data left by a crash or a deleted subscription is deleted when a dispatcher starts and at each
//!   [`Options::sweep`].
//! - **Bounded memory.** A lane that is not running takes a uid and a time. At most [`Options::lanes`] run at once, and
//!   at most [`Options::troubled_lanes`] for sinks that are slow or failing.
//! - **One dispatcher at a time.** A lane runs under a lease of its subscription, so any number of dispatchers can
//!   share the work over one store. [`Wakeups`] notify the others of an event at once; without them, a dispatcher finds
//!   the events of other processes at its next sweep.
//!
//! Metrics go to the process's recorder of the crate `metrics`; [`metrics::describe`] lists them.

mod backlogs;
mod dispatcher;
mod lane;

mod permits;
pub mod policy;
mod sink;
mod webhook;

pub mod metrics;
pub mod overview;
pub mod wake;

pub use dispatcher::{Dispatcher, Options};
pub use policy::Policy;
pub use sink::{DeliveryResult, Sink};
pub use wake::Wakeups;
pub use webhook::{Webhook, WebhookOptions, check_public_sink};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
