//! Writes that are committed after their operation has returned.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Context;
use crate::{
    error::{Error, Result},
    etag::UNCOMMITTED,
    write::Write,
};

/// The place where an operation leaves its write, so that its reply can be part of the commit
/// ([`idempotency`](crate::idempotency)).
#[derive(Debug)]
pub(crate) struct Deferred {
    write: Mutex<Option<Write>>,
    /// Whether the write is only checked, for the error that the operation makes of a conflict.
    is_check: bool,
}

impl Deferred {
    pub(crate) fn new(is_check: bool) -> Arc<Self> {
        Arc::new(Self { write: Mutex::new(None), is_check })
    }

    /// Keeps the write of an operation, and returns the revision that its reply has until the commit.
    ///
    /// # Errors
    /// INTERNAL for a second write. Of a check, those of the commit, and [`Error::stale`] if there is none any longer.
    pub(super) async fn take_over(&self, cx: &Context<'_>, write: Write) -> Result<u64> {
        if self.is_check {
            cx.apply(write, true).await?;
            return Err(Error::stale());
        }
        match self.write.lock().replace(write) {
            None => Ok(UNCOMMITTED),
            Some(_) => Err(Error::internal("a method that takes an idempotency key commits twice")),
        }
    }
}

impl Context<'_> {
    /// Returns the context with the place where the operation leaves its write; `None` to let it commit itself.
    pub(crate) fn deferring(self, deferred: Option<Arc<Deferred>>) -> Self {
        Self { deferred, ..self }
    }

    /// Returns the write that the operation has left; an empty one if it changes nothing.
    pub(crate) fn take_deferred(&self) -> Write {
        self.deferred.as_ref().and_then(|deferred| deferred.write.lock().take()).unwrap_or_default()
    }

    /// Returns whether the write of the operation is in the store after [`Context::commit`]. If it is not, because it is a
    /// preview or deferred, reads do not see it.
    pub(crate) fn applies(&self) -> bool {
        self.deferred.is_none() && !self.options.validate_only
    }
}
