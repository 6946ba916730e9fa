//! Tests of the kinds over the memory store: one file per topic, one test per rule of `docs/api.md`. The rules that hold
//! for all kinds are tested in `platform-engine/tests/rules`.
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

use platform_core::{builder, resources::KINDS};
use platform_engine::kind::Registered;

/// The kinds that the fixtures are for, and the checks of all kinds.
fn all_kinds() -> impl Iterator<Item = &'static Registered> {
    KINDS.iter()
}

/// The contents of the table of the whole interface.
fn listed() -> impl Iterator<Item = &'static Registered> {
    KINDS.iter()
}

const OWN_FIXTURES: &[fixtures::Fixture] = &[];

mod common;
mod deliveries;
mod fixtures;
mod guarded;
mod requests;
mod sample;
mod snapshot;

mod access_matrix;
mod account_associations;
mod advisories;
mod documented;
mod explained_access;
mod external_group_role_mappings;
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
mod meanwhile;
mod owners;
mod patterns;
mod persons;
mod recorded_organizations;
mod registry;
mod role_bindings;
mod roles;
mod scim_tokens;
mod sign_ins;
mod single_checks;
mod surface;
mod terms;
