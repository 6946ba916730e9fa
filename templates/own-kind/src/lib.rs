//! The kinds of this service.

pub mod {{plural}};

use platform_engine::kind::Registered;
use platform_server::Kinds;

/// The kinds, in addition to those of the API.
pub const KINDS: &[Registered] = &[Registered::of::<{{plural}}::{{kind}}>()];

/// Their protobuf descriptors, which `cargo run --bin proto` writes.
pub const DESCRIPTORS: &[u8] = include_bytes!("../proto/descriptors.binpb");

/// The kinds that the server serves.
pub const SERVED: Kinds = Kinds::with(KINDS).descriptors(DESCRIPTORS);
