//! The resources of Platform API v2, built on [`platform_engine`].
//!
//! [`builder`] returns a builder of a platform with all kinds of resources, [`builder_of`] one with a selection. The
//! module [`resources`] has a struct for each kind, and [`iam`] decides which capabilities a caller has.
//!
//! ```
//! use std::sync::Arc;
//!
//! use platform_core::{prelude::*, resources::registry::Repo};
//! use platform_engine::store::memory::MemoryStore;
//! # use platform_testkit::{SeededEntropy, TestClock};
//! # use platform_engine::timestamp::Timestamp;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (clock, entropy) = (TestClock::at(Timestamp::EPOCH), SeededEntropy::new(1));
//! let platform = platform_core::builder(Arc::new(MemoryStore::new()), clock, entropy).ephemeral_keys().build()?;
//! # pollster::block_on(async {
//! // The first resources: an organization, and an operator who may do everything.
//! let me = Uid::parse("00000000000000000000000000000000000000aa")?;
//! let organization = Uid::parse("00000000000000000000000000000000000000bb")?;
//! let first = Bootstrap { organization: organization.clone(), organization_name: "mine".into(), operator: me.clone() };
//! Iam::of(&platform).bootstrap(&first).await?;
//!
//! let caller = Caller::new(me);
//! let repo = Repo { name: "nginx".into(), ..Repo::default() };
//! let repo = platform.create(&caller, &organization, &repo).await?;
//! let found = ListRequest::of::<Repo>().filter("name", "nginx").build()?;
//! assert_eq!(platform.list::<Repo>(&caller, &found).await?.resources[0].uid, repo.uid);
//! # Ok(())
//! # })
//! # }
//! ```

use std::sync::Arc;

pub mod capabilities;
pub mod event_log;
pub mod iam;
pub mod outbox;
pub mod pattern;
pub mod prelude;
pub mod proto;
pub mod resources;
pub mod tokens;

use platform_engine::{
    clock::Clock,
    entropy::Entropy,
    kind::Registered,
    platform::{Builder, Platform},
    store::Store,
};

use crate::{
    event_log::PendingEvents,
    iam::RoleBindings,
    resources::{
        KINDS,
        advisory::PublicAdvisories,
        events::SinkPolicy,
        iam::{GroupSettings, ResourceLimits, StaticKeyPolicy, Terms},
    },
};

/// Returns a builder of a platform over a store, with all kinds of Platform API v2, role bindings as the source of grants,
/// and events for subscriptions. The platform takes the time from `clock` and random bytes from `entropy`. The crate
/// `platform-v1` adds version 1 of the API.
pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
    builder_of(KINDS, store, clock, entropy)
}

/// Returns a builder of a platform with a selection of [`KINDS`].
///
/// The selection must include the kinds of [`resources::iam`], because callers are identities with role bindings, and
/// the kinds of [`resources::events`], because every change records its events.
pub fn builder_of(kinds: &[Registered], store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
    Platform::builder(store, clock, entropy)
        .kinds(kinds)
        .capabilities(capabilities::all())
        .descriptors(proto::FILE_DESCRIPTOR_SET)
        .roles(resources::iam::role::built_in_names())
        .authority(RoleBindings)
        .event_log(PendingEvents)
        .quotas(ResourceLimits)
        .data(GroupSettings::default())
        .data(Terms::default())
        .data(SinkPolicy::default())
        .data(StaticKeyPolicy::default())
        .data(PublicAdvisories::default())
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
