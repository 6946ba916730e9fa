//! The contract: what the `.proto` files come to.
//!
//! The files themselves are for readers and for clients that generate code. What a server needs of them is compiled
//! beforehand, so that it starts at once: `contract.binpb` is their descriptor set, the packages of `/v2beta1` with
//! them, and a test compares the two.

use prost_reflect::{DescriptorError, DescriptorPool};

/// The descriptors of the contract: an encoded `google.protobuf.FileDescriptorSet` with its imports.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("contract.binpb");

/// The versions that a package may end with; they mean the same (`docs/api.md`, Paths).
pub(crate) const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// The package that all of the contract begins with.
pub(crate) const PACKAGE: &str = "chainguard.platform";

/// Returns the descriptors of the contract, to look things up in.
///
/// # Errors
/// None with the descriptors that are compiled in, as a test shows.
pub fn descriptors() -> Result<DescriptorPool, DescriptorError> {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
}
