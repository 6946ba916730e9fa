//! A cache of the quotas of organizations, and the kinds that can have one.

use std::{collections::HashSet, sync::Arc};

use crate::{
    cache::OrganizationCache,
    error::Result,
    kind::{Kind, Parent},
    quota::{QuotaSource, Quotas},
    store::{KindName, Store},
    uid::Uid,
};

/// The approximate capacity of the cache, in bytes, and the size of a typical organization.
const CACHE_BYTES: u64 = 8 << 20;
const TYPICAL_BYTES: u64 = 800;

/// The source of quotas, what it returned last for each organization, and the kinds that can have a quota.
#[derive(Debug)]
pub(super) struct QuotaCache {
    source: Option<Arc<dyn QuotaSource>>,
    quotas: OrganizationCache<Quotas>,
    kinds: HashSet<KindName>,
}

impl QuotaCache {
    pub(super) fn new(source: Option<Arc<dyn QuotaSource>>, kinds: impl Iterator<Item = &'static Kind>) -> Self {
        let kinds = kinds.filter(|kind| has_quota(kind)).map(|kind| kind.name).collect();
        let bytes_of =
            |organization: &Uid, (_, quotas): &(u64, Arc<Quotas>)| (organization.len() + quotas.bytes()) as u64;
        Self { source, quotas: OrganizationCache::new(CACHE_BYTES, TYPICAL_BYTES, bytes_of), kinds }
    }

    /// Returns whether there is a source, and so whether anything can have a quota.
    pub(super) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Returns whether organizations can have a quota for a kind.
    pub(super) fn counts(&self, kind: KindName) -> bool {
        self.kinds.contains(kind)
    }

    /// Invalidates the quotas of an organization.
    pub(super) fn forget(&self, organization: &Uid) {
        self.quotas.forget(organization);
    }

    /// Returns the quotas of an organization, from the cache or the source; `None` without a source.
    pub(super) async fn of(&self, store: &dyn Store, organization: &Uid) -> Result<Option<Arc<Quotas>>> {
        let Some(source) = &self.source else { return Ok(None) };
        self.quotas.get_or_read(store, organization, source.quotas(store, organization)).await.map(Some)
    }
}

/// Returns whether organizations can have a quota for a kind: its resources are created, in groups or in resources that
/// are in groups, and are not records of the platform itself.
fn has_quota(kind: &Kind) -> bool {
    let is_in_group = match kind.parent {
        Parent::Group | Parent::GroupOrNone => true,
        Parent::Of(parent) | Parent::Sole(parent) => is_in_group(parent),
        Parent::None | Parent::Singleton(..) => false,
    };
    is_in_group && !kind.queue && !kind.unlimited && !kind.is_service
}

fn is_in_group(kind: &Kind) -> bool {
    match kind.parent {
        Parent::Group | Parent::GroupOrNone => true,
        Parent::Of(parent) | Parent::Sole(parent) | Parent::Singleton(parent, _) => is_in_group(parent),
        Parent::None => false,
    }
}
