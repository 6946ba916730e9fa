//! gRPC.

pub mod contract;
