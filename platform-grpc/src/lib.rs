//! gRPC for [`platform_core`]: one tower service over the kind tables, driven by the descriptors of the contract.
//!
//! [`Grpc`] answers every method of the `.proto` files in `proto/` that a kind of the platform has, in the packages of
//! `v2` and of `v2beta1`, with the same verbs, the same access and the same errors as REST. It stands
//! [beside](Grpc::beside) REST on one port:
//!
//! ```no_run
//! # use std::{future::pending, sync::Arc};
//! # use platform_core::{access::Authenticator, platform::Platform};
//! use platform_grpc::Grpc;
//! use platform_http::{Layers, Limits, Rest, serve};
//!
//! # async fn run(platform: Arc<Platform>, authenticator: Arc<dyn Authenticator>) -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::default();
//! let rest = Rest::new(Arc::clone(&platform), Arc::clone(&authenticator), limits.clone())?;
//! let grpc = Grpc::new(platform, authenticator, limits.clone())?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! serve(listener, Layers::default().around(grpc.beside(rest)), &limits, pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Requests become JSON through messages that descriptors describe, and what is stored as JSON is written as protobuf
//! without a tree between. This crate alone knows protobuf; it knows no kind by name and no token format. The `.proto`
//! files are a contract: tests compare them with the kind tables, and with what was on the wire before.

mod service;

mod beside;
mod methods;
mod standard;
mod tokens;

mod codec;
mod deadline;
mod decode;
mod encode;
mod frame;
mod kept;
pub mod status;

pub mod contract;

pub use beside::Beside;
pub use codec::AsBytes;
pub use encode::BadField;
pub use methods::BadContract;
pub use service::Grpc;
