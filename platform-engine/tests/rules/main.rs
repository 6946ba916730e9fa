//! The rules that hold for all kinds, tested with those of the contract over the memory store: one file per topic, one
//! test per rule of `docs/api.md`.
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

use platform_core::resources::KINDS;
use platform_engine::kind::Registered;
use platform_v1::builder;

/// The kinds that the rules are tested with.
fn all_kinds() -> impl Iterator<Item = &'static Registered> {
    KINDS.iter().chain(platform_v1::resources::KINDS)
}

use fixtures_of_version_1::FIXTURES as OWN_FIXTURES;

#[path = "../../../platform-core/tests/kinds/common.rs"]
mod common;
#[path = "../../../platform-core/tests/kinds/deliveries.rs"]
mod deliveries;
#[path = "../../../platform-core/tests/kinds/fixtures.rs"]
mod fixtures;
#[path = "../../../platform-v1/tests/kinds/fixtures_of_version_1.rs"]
mod fixtures_of_version_1;
#[path = "../../../platform-core/tests/kinds/guarded.rs"]
mod guarded;
#[path = "../../../platform-core/tests/kinds/requests.rs"]
mod requests;
#[path = "../../../platform-core/tests/kinds/sample.rs"]
mod sample;
#[path = "../../../platform-core/tests/kinds/snapshot.rs"]
mod snapshot;

mod bounds;
mod conditions;
mod custom_kinds;
mod epochs;
mod errors;
mod events;
mod filter_grammar;
mod filtered_lists;
mod filters;
mod in_force;
mod lists;
mod live_grants;
mod oracle;
mod own;
mod previews;
mod put;
mod quotas;
mod races;
mod repeats;
mod revocations;
mod times;
mod typed;
mod updates;
mod watches;
