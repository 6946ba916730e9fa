//! .
use platform_engine::store::{StoreError, check::Finding};

use crate::writer::Shared;

pub(crate) async fn check(_shared: &Shared) -> Result<Vec<Finding>, StoreError> {
    Ok(Vec::new())
}
