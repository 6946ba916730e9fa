//! Writes that are committed after their operation has returned.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Write;
use crate::{
    error::{Error, Result},
    etag::UNCOMMITTED,
};

/// The place where an operation leaves its write, so that its reply can be part of the commit
/// ([`idempotency`](crate::idempotency)).
#[derive(Debug)]
pub(crate) struct Deferred {
    write: Mutex<Option<Write>>,
    /// Whether the write is only checked, for the error that the operation makes of a conflict.
    pub(crate) is_check: bool,
}

impl Deferred {
    pub(crate) fn new(is_check: bool) -> Arc<Self> {
        Arc::new(Self { write: Mutex::new(None), is_check })
    }

    /// Keeps the write of an operation, and returns the revision that its reply has until the commit.
    ///
    /// # Errors
    /// INTERNAL for a second write.
    pub(crate) fn keep(&self, write: Write) -> Result<u64> {
        match self.write.lock().replace(write) {
            None => Ok(UNCOMMITTED),
            Some(_) => Err(Error::internal("a method that takes an idempotency key commits twice")),
        }
    }

    /// Returns the write; an empty one of an operation that changes nothing.
    pub(crate) fn take(&self) -> Write {
        self.write.lock().take().unwrap_or_default()
    }
}
