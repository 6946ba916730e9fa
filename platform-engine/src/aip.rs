//! Rules of the AIPs as small pure functions, which depend on no store and no kind of resource.

pub mod field_mask;
pub mod filter;
pub mod order_by;
pub mod page_token;
pub mod read_mask;
