//! The compiled descriptor set of the `.proto` files in `proto/`.
//!
//! The files themselves are for readers and for clients that generate code. The server needs only `contract.binpb`,
//! their descriptor set, which is compiled in advance so that startup is fast. It contains the packages of `v2beta1`
//! too. A test checks that it matches the files.

use prost_reflect::{DescriptorError, DescriptorPool};

/// The descriptors of the contract: an encoded `google.protobuf.FileDescriptorSet` that includes its imports.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("contract.binpb");

/// The equivalent versions that a package name may end with (`docs/api.md`, Paths).
pub(crate) const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// The common prefix of all packages of the contract.
pub(crate) const PACKAGE: &str = "chainguard.platform";

/// Decodes the descriptors of the contract.
///
/// # Errors
/// Never with the descriptors that are compiled in, as a test proves.
pub fn descriptors() -> Result<DescriptorPool, DescriptorError> {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
}
