//! The contract: `.proto` files, kind tables and the wire, each beside the others.

mod snapshot;

mod compile;
