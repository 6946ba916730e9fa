//! Endpoints of Platform API v2 that are not kinds: the token services, browser sign-in, SCIM, bulk import and feeds for
//! scanners.
//!
//! [`Tokens`], [`BrowserSignIn`], [`Scim`] and [`Feeds`] are mounted in the REST API. [`Import`] is a tower service of its own,
//! because its bodies and replies are streams without a maximum length. With the feature `grpc`, [`Tokens`] can be
//! mounted in the gRPC API too.
//!
//! ```
//! # use std::sync::Arc;
//! # use platform_engine::{access::Authenticator, platform::Platform};
//! # use platform_core::tokens::TokenService;
//! use platform_http::{Limits, Rest};
//! use platform_services::{Import, Scim, Tokens, openapi::INFO};
//!
//! # fn routes(
//! #     platform: Arc<Platform>,
//! #     authenticator: Arc<dyn Authenticator>,
//! #     service: Arc<dyn TokenService>,
//! # ) -> Result<axum::Router, Box<dyn std::error::Error>> {
//! let limits = Limits::default();
//! let import = Import::all(Arc::clone(&platform), Arc::clone(&authenticator), limits.clone());
//! let rest = Rest::new(platform, authenticator, limits)?.mount(Tokens::new(service)).mount(Scim);
//! let routes = axum::Router::new().route_service("/import/{kind}", import.clone());
//! # Ok(
//! routes.fallback_service(rest.with_openapi(move |rest| rest.openapi(INFO).with(import.openapi())))
//! # )
//! # }
//! ```

#[cfg(feature = "grpc")]
mod grpc;
mod sign_in;
mod tokens;

mod scim;

mod busy;
mod feeds;
mod import;

pub mod openapi;

pub use feeds::Feeds;
pub use import::{BLOB_GRACE_MILLIS, Import, ImportReply};
pub use scim::Scim;
pub use sign_in::BrowserSignIn;
pub use tokens::Tokens;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
