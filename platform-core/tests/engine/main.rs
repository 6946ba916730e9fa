//! Tests of the engine over the memory store: one file per topic, one test per rule of `docs/api.md`.
//!
//! All tests are one binary, so that shared code is compiled and linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod common;
mod sample;
mod snapshot;

mod access_matrix;
mod account_associations;
mod advisories;
mod bounds;
mod custom_kinds;
mod documented;
mod epochs;
mod errors;
mod events;
mod explained_access;
mod external_group_role_mappings;
mod filters;
mod followers;
mod giving;
mod group_invites;
mod groups;
mod identities;
mod identity_providers;
mod integrations;
mod kind_tables;
mod kinds;
mod libraries;
mod lists;
mod live_grants;
mod oracle;
mod owners;
mod patterns;
mod persons;
mod put;
mod quotas;
mod races;
mod registry;
mod revocations;
mod role_bindings;
mod roles;
mod scim_tokens;
mod sign_ins;
mod surface;
mod terms;
mod tidy;
mod typed;
mod updates;
