//! The engine's tests, over the memory store: each file is a topic, each test a rule of `docs/api.md`.
//!
//! One binary for all of them, so that what they share is compiled and linked once.

mod common;
mod sample;
mod snapshot;

mod kinds;
mod live_grants;
mod registry_of_kinds;
mod surface;
