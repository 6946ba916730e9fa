//! The resources of Platform API v2 over [`platform_engine`], whose modules are exported here too.
//!
//! [`builder`] begins a platform with all of them, [`builder_of`] one with some of them.

use std::sync::Arc;

pub use platform_engine::{
    BoxFuture, access, aip, clock, context, entropy, error, event, fields, json, kind, offload, platform, request,
    scope, seal, store, timestamp, uid, verbs, write,
};

pub mod event_log;
pub mod iam;
pub mod outbox;
pub mod pattern;
pub mod resources;
pub mod tokens;

use crate::{
    clock::Clock,
    entropy::Entropy,
    event_log::PendingEvents,
    iam::RoleBindings,
    kind::Registered,
    platform::{Builder, Platform},
    resources::{
        KINDS,
        advisory::PublicAdvisories,
        events::SinkPolicy,
        iam::{GroupSettings, Terms},
    },
    store::Store,
};

/// Begins a platform over a store, with all kinds of Platform API v2, the time and randomness that it shall use, grants by
/// role bindings, and events for subscriptions.
pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
    builder_of(KINDS, store, clock, entropy)
}

/// Begins a platform with some of [`KINDS`]. Its callers are identities with role bindings, so the kinds of
/// [`resources::iam`] must be among them; so must those of [`resources::events`].
pub fn builder_of(kinds: &[Registered], store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
    Platform::builder(store, clock, entropy)
        .kinds(kinds)
        .authority(RoleBindings)
        .event_log(PendingEvents)
        .data(GroupSettings::default())
        .data(Terms::default())
        .data(SinkPolicy::default())
        .data(PublicAdvisories::default())
}
