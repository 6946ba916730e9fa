//! Reads public data into [`platform_core`]: what `platform-server import` is made of, and open to embedders.
//!
//! Each format has a function that takes bytes and returns what they say, as the platform's own structs, beside what
//! of them is refused and why: [`advisories::document`], [`osv::json`] and [`osv::yaml`], [`artifacts::line`],
//! [`image::layout`] with [`image::sbom`]. They know no file, no store and no network, and do not panic whatever they
//! are given. [`source`] opens files, folders and archives with bounds on all that they could blow up to; [`run`]
//! brings both together, and hands what was read in lots to a [`Sink`].
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
pub mod image;
pub mod osv;
mod yaml;

pub mod source;

mod run;

pub use parsed::{Parsed, Placed, Refusal};
pub use run::{Done, Lot, Options, Sink, Summary, Watcher, What, run};
