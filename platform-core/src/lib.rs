//! Resources in a hierarchy of groups: lists with cursors, field masks, structured errors and access control, over
//! a small [`store::Store`] trait.
//!
//! [`platform::Platform`] is what an embedder builds and a transport calls; [`kind`] is how kinds are declared, and
//! [`resources`] has those of Platform API v2. This crate does no I/O: it knows no HTTP, no gRPC, no SQL and no
//! asynchronous runtime, and it reads no environment, clock or randomness but what it is given.

use std::{future::Future, pin::Pin};

pub mod access;
pub mod aip;
pub mod clock;
pub mod cx;
pub mod entropy;
pub mod error;
pub mod event;
mod fields;
pub mod json;
pub mod kind;
pub mod offload;
pub mod pattern;
mod pause;
pub mod platform;
pub mod request;
pub mod resources;
pub mod scope;
pub mod seal;
pub mod store;
pub mod timestamp;
pub mod uid;
mod verbs;
pub mod write;

/// A boxed future, as functions in tables return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
