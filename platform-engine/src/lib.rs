//! An engine for resource APIs: kinds are tables, and lists with cursors, field masks, structured errors, access
//! control and events work for all of them, over a small [`store::Store`] trait.
//!
//! A *kind* is a type of resource: a struct that implements [`kind::Resource`], with a table of its fields and methods.
//! A [`platform::Platform`] serves kinds from a store. It is called in process, as below, or by the transports
//! `platform-http` and `platform-grpc`, which need no code for a new kind.
//!
//! ```
//! use std::sync::Arc;
//!
//! use platform_engine::{
//!     access::{Caller, Capability},
//!     kind::{Domain, Field, Kind, Method, Resource},
//!     platform::{Platform, Settings},
//!     request::ListRequest,
//!     store::memory::MemoryStore,
//!     uid::Uid,
//! };
//! use serde::{Deserialize, Serialize};
//! # use platform_testkit::{SeededEntropy, TestClock};
//! # use platform_engine::timestamp::Timestamp;
//!
//! #[derive(Debug, Clone, Default, Serialize, Deserialize)]
//! #[serde(rename_all = "camelCase", default)]
//! struct City {
//!     uid: Uid,
//!     name: String,
//! }
//!
//! // Callers need a capability for each method.
//! const LIST: Capability = Capability::new(1_000_000, "CAP_CITIES_LIST", "cities.list");
//! const CREATE: Capability = Capability::new(1_000_001, "CAP_CITIES_CREATE", "cities.create");
//!
//! impl Resource for City {
//!     // Over REST, its path is `/maps/v1/cities`.
//!     const KIND: &'static Kind = &Kind::new("City", "cities", "CitiesService", Domain::new("maps", "example.maps"))
//!         .methods(&[Method::list(&[LIST]), Method::create(&[CREATE])])
//!         .fields(&[Field::UID, Field::string("name").required().sort(&["name"])]);
//!
//!     fn example() -> Self {
//!         Self { name: "Lisbon".to_owned(), ..Self::default() }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (clock, entropy) = (TestClock::at(Timestamp::EPOCH), SeededEntropy::new(1));
//! // Operators have all capabilities.
//! let me = Uid::parse("00000000000000000000000000000000000000aa")?;
//! let settings = Settings { operators: [me.clone()].into(), ..Settings::default() };
//! let platform = Platform::builder(Arc::new(MemoryStore::new()), clock, entropy)
//!     .kind::<City>()
//!     .settings(settings)
//!     .ephemeral_keys()
//!     .build()?;
//! # pollster::block_on(async {
//! let caller = Caller::new(me);
//! for name in ["Lisbon", "Porto"] {
//!     platform.create(&caller, "", &City { name: name.to_owned(), ..City::default() }).await?;
//! }
//! let request = ListRequest::of::<City>().order_by("name desc").page_size(1).build()?;
//! let page = platform.list::<City>(&caller, &request).await?;
//! assert_eq!((page.resources[0].name.as_str(), page.total_count), ("Porto", 2));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! The kinds of Platform API v2 are in `platform-core`. This crate does no I/O and depends on no HTTP, gRPC, SQL or
//! asynchronous runtime. The store, the clock and the source of randomness are passed in, and it never reads the
//! environment.

use std::{future::Future, pin::Pin};

pub mod access;
pub mod aip;
pub mod blob;
pub mod cache;
pub mod clock;
pub mod context;
pub mod conversion;
pub mod duration;
pub mod entropy;
pub mod error;
pub mod etag;
pub mod event;
pub mod fields;
pub mod idempotency;
pub mod json;
pub mod kind;
pub mod markdown;
pub mod offload;
pub mod options;
pub mod platform;
pub mod quota;
pub mod request;
pub mod request_scope;
mod restore;
#[cfg(test)]
mod sample;
pub mod scope;
pub mod seal;
pub mod shape;
pub mod store;
pub mod timestamp;
pub mod uid;
pub mod verbs;
pub mod watch;
pub mod write;

/// A boxed future: the return type of asynchronous function pointers in tables.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
