//! The contract: `.proto` files, kind tables and the wire, each beside the others.

mod snapshot;

mod describe;

mod compile;
mod tables;
mod wire;
