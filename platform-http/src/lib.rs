//! REST API for [`platform_engine`]: one tower service over the tables of all kinds of resources, and a listener with
//! limits on the resources that peers can use.
//!
//! [`Rest`] is the service, [`Layers`] is middleware for it and for an embedder's other routes, and [`serve`] is the
//! listener. Each can be used without the others. The paths of all kinds are derived from their tables (`docs/api.md`,
//! Paths), so a new kind needs no code here. Endpoints that are not kinds are a [`Mount`](mount::Mount): those of
//! Platform API v2 are in `platform-services`.
//!
//! ```no_run
//! # use std::{future::pending, sync::Arc};
//! # use platform_engine::{access::Authenticator, platform::Platform};
//! use axum::{Router, routing::get};
//! use platform_http::{Layers, Limits, Rest, serve};
//!
//! # async fn run(platform: Arc<Platform>, authenticator: Arc<dyn Authenticator>) -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::default();
//! let rest = Rest::new(platform, authenticator, limits.clone())?;
//! let app = Router::new().route("/healthz", get(async || "ok")).fallback_service(rest);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! serve(listener, Layers::default().around(app), &limits, pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! No other crate maps errors to HTTP statuses; see [`status`]. This crate does not name any kind, and it does not
//! parse tokens.

mod rest;

mod routes;
mod template;

pub mod mount;

mod event_stream;
mod long_list;
mod reply;
mod request;
mod site;
pub mod status;
mod watch_stream;

mod calls;
mod carrier;
mod layers;
mod limits;
mod listener;
#[cfg(feature = "tls")]
mod tls;

pub mod openapi;

#[cfg(feature = "docs")]
mod docs;

pub use calls::{ApiMethod, Called, describe as describe_requests};
pub use carrier::within;
#[cfg(feature = "docs")]
pub use docs::Docs;
pub use ipnet::IpNet;
pub use layers::{Layers, SlowRequests};
pub use limits::{
    Limits,
    admission::{Metered, Origin, OverBudget, ReplyBytes, ReplyCharge, Shares, StreamPermit},
    open_paths::{OpenPath, OpenPaths},
    rate::Rate,
};
pub use listener::{Listener, serve};
pub use reply::{Reply, ReplyBody, log_fault, oauth_description};
pub use request::{ReadError, bearer, idempotency_key, operator, preconditions, read_body, validate_only};
pub use rest::Rest;
pub use routes::BadRoute;
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use watch_stream::{Sent, WatchStream};

/// Boxed error type shared by HTTP libraries.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
