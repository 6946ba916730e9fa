//! gRPC for [`platform_engine`]: one tower service over the tables of all kinds of resources, driven by protobuf
//! descriptors.
//!
//! [`Grpc`] serves every method of the platform's [descriptors](platform_engine::platform::Builder::descriptors) that
//! belongs to one of its kinds, with the same verbs, access rules and errors as REST. The descriptors of Platform API
//! v2 are in `platform-core`; [`proto`] writes those of your own kinds. [`or_else_http`](Grpc::or_else_http) serves
//! REST on the same port:
//!
//! ```no_run
//! # use std::{future::pending, sync::Arc};
//! # use platform_engine::{access::Authenticator, platform::Platform};
//! use platform_grpc::Grpc;
//! use platform_http::{Layers, Limits, Rest, serve};
//!
//! # async fn run(platform: Arc<Platform>, authenticator: Arc<dyn Authenticator>) -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::default();
//! let rest = Rest::new(Arc::clone(&platform), Arc::clone(&authenticator), limits.clone())?;
//! let grpc = Grpc::new(platform, authenticator, limits.clone())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! serve(listener, Layers::default().around(grpc.or_else_http(rest)), &limits, pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Requests are decoded to JSON by way of dynamic messages; stored JSON is encoded as protobuf in one pass, without an
//! intermediate tree. This is the only crate that knows protobuf. It does not know any kind by name, nor any token
//! format. The `.proto` files are a contract: tests compare them with the kind tables, and with all names and numbers
//! that were ever on the wire.

mod service;

mod metadata;
mod methods;
mod mount;
mod multiplex;
mod reflection_health;

mod batch;
mod codec;
mod deadline;
mod decode;
mod encode;
mod frame;
mod item_cache;
mod own;
mod parts;
#[cfg(feature = "proto")]
pub mod proto;
mod response_cache;
pub mod status;
mod watch;

pub use codec::AsBytes;
pub use encode::BadField;
pub use methods::BadContract;
pub use mount::Mount;
pub use multiplex::Multiplexed;
pub use service::Grpc;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
