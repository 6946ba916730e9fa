//! The quotas that the commits of a platform require.

use super::Platform;
use crate::{
    error::{Error, Result},
    kind::Kind,
    store::Require,
    uid::Uid,
    write::Write,
};

impl Platform {
    /// Returns the kinds for which organizations can have a quota, in the order in which the platform was given them.
    pub fn kinds_with_quotas(&self) -> impl Iterator<Item = &'static Kind> {
        self.kinds().filter(|kind| self.quotas.counts(kind.name))
    }

    /// Adds to a write the requirements that its creates do not exceed the quotas of their organizations.
    pub(crate) async fn require_quotas(&self, write: &mut Write) -> Result<()> {
        if !self.quotas.has_source() {
            return Ok(());
        }
        for (organization, kinds) in write.creates(|kind| self.quotas.counts(kind)) {
            let Some(quotas) = self.quotas.of(self.store(), &organization).await? else { continue };
            write.require_quotas(&quotas);
            for kind in kinds {
                let (Some(most), Some(table)) = (quotas.of(kind), self.kinds().find(|table| table.name == kind)) else {
                    continue;
                };
                let exceeded = Error::quota_exceeded(table, &organization, most);
                write.require_or_fail(Require::AtMost(kind, organization.clone(), most), exceeded);
            }
        }
        Ok(())
    }

    /// Invalidates what is known about an organization for writes: its subscriptions and quotas, and whether its changes
    /// are logged.
    pub(crate) fn forget_organization(&self, organization: &Uid) {
        self.events.forget_subscribers(organization);
        self.quotas.forget(organization);
        self.hub.forget(organization);
    }
}
