//! Writes the advisories of a platform in the forms that scanners read: OSV records, the security database of Alpine and
//! Wolfi, and OpenVEX. `platform-server export advisories` and `GET /feeds/` use this crate; embedders can too.
//!
//! [`Feed`] takes advisories one by one and writes a feed. It does not access a platform, and uses little memory for any
//! number of advisories. [`source`] reads the advisories of a group. The limits of each format are in
//! `docs/how-to/feeds.md`.
//!
//! ```
//! use platform_core::resources::vulnerabilities::Advisory;
//! use platform_engine::timestamp::Timestamp;
//! use platform_feeds::{Document, Feed, Format, Options};
//!
//! let advisory: Advisory = serde_json::from_str(
//!     r#"{"advisoryId": "CGA-3gfc-9462-mc8m", "artifactName": "openssl", "aliases": ["CVE-2022-4203"], "events": [
//!         {"createTime": "2023-02-07T16:50:00Z", "reviewState": "REVIEW_STATE_APPROVED",
//!          "fixed": {"fixedVersion": "3.1.0-r0"}}]}"#,
//! )?;
//! let now = Timestamp::EPOCH;
//! let (format, namespace, document) = (Format::Secdb, "wolfi".to_owned(), Document::default());
//! let mut feed = Feed::new(Options { format, namespace, document, now });
//! feed.add(&advisory)?;
//! let mut written = Vec::new();
//! feed.write(&mut written)?;
//! assert_eq!(
//!     String::from_utf8(written)?,
//!     "{\"packages\":[\n{\"pkg\":{\"name\":\"openssl\",\"secfixes\":{\"3.1.0-r0\":[\"CVE-2022-4203\"]}}}\n]}\n",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod feed;
mod finding;
mod openvex;
mod osv;
mod secdb;
mod sorted;
pub mod source;
mod zip;

pub use feed::{Feed, Format, Options, Summary, UnknownFormat};
pub use finding::LeftOut;
pub use openvex::Document;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
