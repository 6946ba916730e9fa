//! The explanation of a denial, as far as its caller may see it (`docs/api.md`, Denials).

use super::{Caller, CapabilitySet};
use crate::uid::Uid;

/// A denial that an [`Authority`](super::Authority) is asked to explain.
#[derive(Debug)]
#[non_exhaustive]
pub struct Denied<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The uid that access was decided for, which need not exist.
    pub place: &'a Uid,
    /// The capabilities that the caller does not hold there.
    pub missing: CapabilitySet,
    /// The capabilities that the caller holds at the place and at each of its ancestors, the nearest first.
    pub held: Vec<(Uid, CapabilitySet)>,
}

/// How a denied caller could get access.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// The names of roles that contain all of the missing capabilities, those with the fewest others first.
    pub roles: Vec<String>,
    /// The role bindings that the caller has at the place and above it: the name of the role, and the group.
    pub bindings: Vec<(String, Uid)>,
    /// The names of the groups at the place and above it, from the top; empty for one that the caller may not see.
    /// Resources that are not groups have none, so that there may be fewer than the place has segments.
    pub names: Vec<String>,
}
