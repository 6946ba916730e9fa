//! An engine for resource APIs: kinds are tables, and lists with cursors, field masks, structured errors, access
//! control and events work for all of them, over a small [`store::Store`] trait.
//!
//! An embedder builds a [`platform::Platform`], and transports call it; the module [`kind`] declares kinds. The kinds
//! of Platform API v2 are in `platform-core`. This crate does no I/O and depends on no HTTP, gRPC, SQL or asynchronous
//! runtime. The store, the clock and the source of randomness are passed in, and it never reads the environment.

use std::{future::Future, pin::Pin};

pub mod access;
pub mod aip;
pub mod clock;
pub mod context;
pub mod duration;
pub mod entropy;
pub mod error;
pub mod event;
pub mod fields;
pub mod json;
pub mod kind;
pub mod offload;
pub mod platform;
pub mod request;
#[cfg(test)]
mod sample;
pub mod scope;
pub mod seal;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timestamp;
pub mod uid;
pub mod verbs;
pub mod write;

/// A boxed future: the return type of asynchronous function pointers in tables.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
