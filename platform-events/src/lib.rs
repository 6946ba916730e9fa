//! Delivers what the platform recorded: each subscription's events in their order, at least once, whatever fails.
//!
//! `platform-core` writes an event in the commit of its change and sends nothing anywhere. A [`Dispatcher`] hands what
//! waits to a [`Sink`]: the [`Webhook`] posts it to the subscription's URL as a CloudEvent with a token of the
//! installation's issuer, an embedder's own does what it likes.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use platform_core::platform::Platform;
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
//! What it promises (`docs/api.md`, Events):
//!
//! - **In order.** The next event of a subscription is not tried before this one is acknowledged or given up.
//! - **At least once.** What was acknowledged is deleted within 50 ms, or after the try at hand, in one commit for many;
//!   a crash in between sends it again, with the same id.
//! - **One slow or dead sink delays no other.** Each subscription is a lane of its own; lanes whose sink is slow or
//!   failing take their turns among themselves.
//! - **Once.** Large data that several subscriptions share is stored once, and deleted after the last of them; what a
//!   crash or a deleted subscription leaves of it, a dispatcher deletes when it begins and at each [`Options::sweep`].
//! - **Bounded.** Lanes that are not at work keep a uid and a time. [`Options::lanes`] work at once.
//! - **One at a time.** A lane works under a lease of its subscription, so that any number of dispatchers share the
//!   work over one store.
//!
//! Metrics go to whatever recorder the process has (the crate `metrics`): [`metrics::describe`] names them.

mod backlogs;
mod dispatcher;
mod lane;

pub mod policy;
mod sink;
mod turns;
mod webhook;

pub mod metrics;
pub mod overview;

pub use dispatcher::{Dispatcher, Options};
pub use policy::Policy;
pub use sink::{Answer, Sink};
pub use webhook::{Webhook, WebhookOptions, check_public_sink};
