//! Resources in a hierarchy of groups: lists with cursors, field masks, structured errors and access control, over
//! a small [`store::Store`] trait.

pub mod clock;
pub mod entropy;
pub mod store;
pub mod timestamp;
pub mod uid;
