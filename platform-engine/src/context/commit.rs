//! Commits, and previews of them.

use std::sync::Arc;

use super::Context;
use crate::{
    error::{Error, Result},
    request_scope::RequestScope,
    store::{Require, StoreError},
    write::{Deferred, Failed, Write},
};

impl Context<'_> {
    /// Commits a write if the grants that this operation depends on are still current, publishes its events, and
    /// returns the sequence of the commit. Depending on its table, a resource that references a deleted one
    /// ([`Field::references`](crate::kind::Field::references)) is deleted by the same commit, or its field is cleared.
    ///
    /// A [preview](crate::options::RequestOptions::validate_only) commits nothing: it fails with the same errors, and returns 0.
    /// With an [idempotency key](crate::idempotency), the write is committed after the operation has returned.
    ///
    /// Commit last. If the commit changes the caller's own grants, later reads in this context are stale, and the
    /// operation would be retried although it is committed.
    ///
    /// # Errors
    /// [`Error::stale`] when the grants have changed. Otherwise, the error that was given to the write for the first
    /// requirement that does not hold; ALREADY_EXISTS when another resource has a unique value; FAILED_PRECONDITION
    /// when a reference restricts a delete; INVALID_ARGUMENT when a referenced resource does not exist;
    /// RESOURCE_EXHAUSTED when an organization would have more resources of a kind than its [quota](crate::quota); and
    /// those of the store.
    pub async fn commit(&self, mut write: Write) -> Result<u64> {
        self.platform.dependents().complete(self.platform.store(), self.now(), &mut write).await?;
        self.platform.require_quotas(&mut write).await?;
        match &self.deferred {
            None => self.apply(write, self.options.validate_only).await,
            Some(deferred) if deferred.is_check => {
                self.apply(write, true).await?;
                // The conflict is gone.
                Err(Error::stale())
            }
            Some(deferred) => deferred.keep(write),
        }
    }

    /// Returns the context with the place where the operation leaves its write; `None` to let it commit itself.
    pub(crate) fn deferring(self, deferred: Option<Arc<Deferred>>) -> Self {
        Self { deferred, ..self }
    }

    /// Returns the write that the operation has left.
    pub(crate) fn take_deferred(&self) -> Write {
        self.deferred.as_ref().map(|deferred| deferred.take()).unwrap_or_default()
    }

    /// Returns whether the write of the operation is in the store after [`Context::commit`]. If it is not, because it is a
    /// preview or deferred, reads do not see it.
    pub(crate) fn applies(&self) -> bool {
        self.deferred.is_none() && !self.options.validate_only
    }

    /// Commits a write that is complete, or only checks that it could be committed, as [`Context::commit`] does.
    pub(crate) async fn apply(&self, mut write: Write, is_preview: bool) -> Result<u64> {
        let logged = self.platform.log_changes(&mut write).await?;
        let raised = write.raises().to_vec();
        // The epochs are checked first: a caller whose grants were revoked must not learn of other conflicts.
        let mut whole = Write::default();
        let as_of = self.as_of();
        for (epoch, value) in as_of.epochs.iter().zip(&*as_of.values) {
            whole.require_or_retry(Require::Epoch(epoch.clone(), *value));
        }
        whole.append(write);
        let recorded = std::mem::take(&mut whole.recorded);
        let wakes = std::mem::take(&mut whole.wakes);
        let (mut commit, meaning) = whole.into_parts();
        let passed = is_preview.then(|| commit.make_preview());
        if passed.is_none() {
            RequestScope::begin_change();
        }
        match self.platform.store().commit(commit).await {
            Ok(committed) => {
                self.confirmed(&as_of);
                self.platform.publish(committed.sequence, recorded);
                self.platform.wake(&wakes);
                self.platform.changed(&logged, &raised);
                Ok(committed.sequence)
            }
            Err(StoreError::Conflict(conflict)) if passed == Some(conflict) => {
                self.confirmed(&as_of);
                Ok(0)
            }
            Err(error) => Err(match meaning.of(error) {
                Failed::With(error) => error,
                Failed::NotEmpty(failed) => self.not_empty(&failed).await?,
                Failed::Cached(organization) => {
                    self.platform.forget_organization(&organization);
                    Error::stale()
                }
                Failed::Taken(rival) => {
                    // The store reports the key and not its owner. When the lookup fails, the error names no resource.
                    let other = match rival.query() {
                        Some(query) => self.page(query).await.ok().and_then(|page| rival.find(page.items)),
                        None => None,
                    };
                    rival.error(other.as_ref())
                }
            }),
        }
    }

    /// Rejects a preview of a method that has not been made for it: its effects are not one commit, or its reply has a
    /// secret.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `validateOnly`.
    pub(crate) fn reject_preview(&self) -> Result<()> {
        if self.options.validate_only {
            Err(Error::invalid_field("validateOnly", "this method has no preview"))
        } else {
            Ok(())
        }
    }
}
