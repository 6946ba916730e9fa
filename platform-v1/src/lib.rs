//! Version 1 of the API: its services over the kinds of [`platform_core`], and the kinds that it alone has.
//!
//! [`builder`] returns a builder of a platform with both versions; [`add_to`] adds version 1 to one that has the kinds of
//! `platform-core`. A program that serves only version 2, or kinds of its own, does not need this crate.
//!
//! The messages of version 1 are [conversions](platform_engine::conversion), which stay in the engine because any
//! version of any kind can be one: [`services`] has their tables, and the few methods that need code. Access, rules,
//! events and storage are those of the kinds.

use std::sync::Arc;

use platform_engine::{clock::Clock, entropy::Entropy, platform::Builder, store::Store};

mod end_of_life;
mod findings;
pub mod resources;
pub mod sbom;
pub mod services;

use crate::{findings::Findings, resources::KINDS, services::SERVICES};

/// Returns the builder of [`platform_core::builder`], with version 1.
pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
    add_to(platform_core::builder(store, clock, entropy))
}

/// Adds version 1 to a platform that has all kinds of [`platform_core`].
pub fn add_to(builder: Builder) -> Builder {
    builder.kinds(KINDS).kinds(SERVICES).data(Findings::default()).data(services::advisory::PublicDocuments::default())
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
