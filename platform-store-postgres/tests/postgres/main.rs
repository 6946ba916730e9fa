//! Tests of the additions of the PostgreSQL store to the contract. Without a server, they print a line that begins with NOT RUN.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod common;

mod bounds;
mod citus;
mod faults;
mod filtered;
mod gone;
mod plans;
mod session;
mod several;
mod spread;
