//! Imports public data into the kinds of [`platform_core`] and [`platform_v1`]. `platform-server import` uses this crate; embedders can too.
//!
//! Each format has a function that takes bytes and returns resources as the platform's own structs, together with the
//! rejected parts and the reasons: [`advisories::document`], [`osv::json`] and [`osv::yaml`], [`artifacts::line`],
//! [`versions::document`], [`scans::document`], [`builds::document`], [`image::layout`] with [`image::sbom`]. These
//! functions do not access files, a store or the network, and do not panic on any input. [`source`] opens files,
//! folders and archives, with limits on everything that could expand. [`run`] combines the two and passes the resources
//! to a [`Sink`] in batches: blobs before the resources that name them, and tags last.
//!
//! ```
//! let document = b"
//! schema-version: 2.0.2
//! package: {name: openssl}
//! advisories:
//!   - id: CGA-2222-3333-4444
//!     aliases: [CVE-2022-4203]
//!     events:
//!       - {timestamp: 2026-01-02T03:04:05Z, type: fixed, data: {fixed-version: 3.1.0-r0}}
//!       - {timestamp: yesterday, type: detection}
//! ";
//! let read = platform_import::advisories::document(document, "wolfi");
//! assert_eq!(read.refused[0].to_string(), "advisories[0].events[1].timestamp: must be an RFC 3339 timestamp, \
//!     such as 2026-01-02T03:04:05.678Z");
//! ```

mod parsed;

pub mod advisories;
pub mod artifacts;
pub mod builds;
pub mod image;
pub mod osv;
pub mod scans;
pub mod versions;
mod yaml;

pub mod source;

mod run;

pub use parsed::{Parsed, Placed, Refusal};
pub use run::{Batch, Dataset, Done, Options, Sink, Summary, Watcher, run};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
