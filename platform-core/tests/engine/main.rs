//! The engine's tests, over the memory store: each file is a topic, each test a rule of `docs/api.md`.
//!
//! One binary for all of them, so that what they share is compiled and linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod common;
mod counted;
mod paused;
mod sample;
mod snapshot;

mod access_matrix;
mod account_associations;
mod advisories;
mod bounds;
mod documented;
mod epochs;
mod errors;
mod events;
mod external_group_role_mappings;
mod filters;
mod followers;
mod giving;
mod group_invites;
mod groups;
mod identities;
mod identity_providers;
mod integrations;
mod kinds;
mod libraries;
mod lists;
mod live_grants;
mod oracle;
mod own_kinds;
mod owners;
mod patterns;
mod persons;
mod put;
mod races;
mod registry;
mod registry_of_kinds;
mod role_bindings;
mod roles;
mod scim_tokens;
mod sign_ins;
mod surface;
mod terms;
mod tidy;
mod typed;
mod updates;
