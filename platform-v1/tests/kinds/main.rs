//! Tests of the kinds that only version 1 has, and of the tables of its services. The tests of the kinds of `platform-core`
//! and these share their code.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

use fixtures_of_version_1::FIXTURES as OWN_FIXTURES;
use platform_engine::kind::Registered;
use platform_v1::{builder, resources::KINDS, services::SERVICES};

/// The kinds that the fixtures are for, and the checks of all kinds.
fn all_kinds() -> impl Iterator<Item = &'static Registered> {
    KINDS.iter()
}

/// The contents of the table of the whole interface.
fn listed() -> impl Iterator<Item = &'static Registered> {
    KINDS.iter().chain(SERVICES)
}

#[path = "../../../platform-core/tests/kinds/common.rs"]
mod common;
#[path = "../../../platform-core/tests/kinds/deliveries.rs"]
mod deliveries;
#[path = "../../../platform-core/tests/kinds/fixtures.rs"]
mod fixtures;
mod fixtures_of_version_1;
#[path = "../../../platform-core/tests/kinds/guarded.rs"]
mod guarded;
#[path = "../../../platform-core/tests/kinds/requests.rs"]
mod requests;
#[path = "../../../platform-core/tests/kinds/sample.rs"]
mod sample;
#[path = "../../../platform-core/tests/kinds/snapshot.rs"]
mod snapshot;

#[path = "../../../platform-core/tests/kinds/access_matrix.rs"]
mod access_matrix;
mod access_matrix_of_services;
#[path = "../../../platform-core/tests/kinds/kinds.rs"]
mod kinds;
#[path = "../../../platform-core/tests/kinds/surface.rs"]
mod surface;
mod tables;
