//! Rules of the AIPs as small pure functions, which know no store and no kind.

pub mod field_mask;
pub mod order_by;
pub mod page_token;
