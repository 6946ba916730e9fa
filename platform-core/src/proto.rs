//! The protobuf form of the contract.
//!
//! The `.proto` files in `proto/` are for readers and for clients that generate code. A server needs only their
//! descriptor set, which is compiled in advance so that it starts fast. It also contains the packages of `v2beta1`. A
//! test checks that it matches the files.

/// The descriptors of the contract: an encoded `google.protobuf.FileDescriptorSet` that includes its imports.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../proto/contract.binpb");
