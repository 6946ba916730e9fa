//! The limits of organizations: the maximum number of resources of a kind at or below one (`docs/api.md`, Quotas).
//!
//! They are part of the organization's [`Group`], whose actions set them. The platform enforces them as quotas.

use async_trait::async_trait;
use platform_engine::{
    error::{Error, Result},
    kind::Resource,
    quota::{QuotaSource, Quotas},
    store::{Key, Store},
    uid::Uid,
};

use super::{super::events::subscription::subscriptions_epoch, Group};

/// Reads the limits of organizations. They change under the epoch of the organization's subscriptions, which every write
/// with an event requires anyway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceLimits;

#[async_trait]
impl QuotaSource for ResourceLimits {
    async fn quotas(&self, store: &dyn Store, organization: &str) -> Result<Quotas> {
        let (uid, epoch) = (Uid::opaque(organization), subscriptions_epoch(organization));
        let read = store.get(&[Key::new(Group::KIND.name, uid.clone())], std::slice::from_ref(&epoch)).await?;
        let group: Option<Group> = match read.records.into_iter().next().flatten() {
            Some(record) => serde_json::from_slice(&record.body).map_err(Error::internal)?,
            None => None,
        };
        let limits = group.map(|group| group.resource_limits).unwrap_or_default();
        let limits = limits.into_iter().map(|(kind, limit)| (kind, u64::try_from(limit).unwrap_or_default()));
        Ok(Quotas::new(uid, epoch, read.epochs.first().copied().unwrap_or_default(), limits))
    }
}
