//! A kind of resource of your own: [`ticket::Ticket`].

pub mod ticket;

/// The protobuf descriptors of the kind, as `cargo run -p own-kind -- proto` writes them.
pub const DESCRIPTORS: &[u8] = include_bytes!("../proto/descriptors.binpb");
