//! A cache of the quotas of organizations, and the kinds that can have one.

use std::{collections::HashSet, fmt, sync::Arc};

use quick_cache::{Weighter, sync::Cache};

use crate::{
    error::Result,
    kind::{Kind, Parent},
    quota::{QuotaSource, Quotas},
    store::{KindName, Store},
    uid::Uid,
};

/// The capacity of the cache: approximately, in bytes, and as the number of typical organizations.
const CACHE_BYTES: u64 = 8 << 20;
const CACHE_ENTRIES: usize = 10_000;

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Uid, (u64, Arc<Quotas>)> for Weight {
    fn weight(&self, organization: &Uid, (_, quotas): &(u64, Arc<Quotas>)) -> u64 {
        (organization.len() + quotas.bytes()) as u64
    }
}

/// The source of quotas, what it returned last for each organization, and the kinds that can have a quota.
pub(super) struct QuotaCache {
    source: Option<Arc<dyn QuotaSource>>,
    /// Each with the lineage of the store before it was read.
    quotas: Cache<Uid, (u64, Arc<Quotas>), Weight>,
    kinds: HashSet<KindName>,
}

impl fmt::Debug for QuotaCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaCache").field("quotas", &self.quotas.len()).finish_non_exhaustive()
    }
}

impl QuotaCache {
    pub(super) fn new(source: Option<Arc<dyn QuotaSource>>, kinds: impl Iterator<Item = &'static Kind>) -> Self {
        let kinds = kinds.filter(|kind| has_quota(kind)).map(|kind| kind.name).collect();
        Self { source, quotas: Cache::with_weighter(CACHE_ENTRIES, CACHE_BYTES, Weight), kinds }
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
        self.quotas.remove(organization);
    }

    /// Returns the quotas of an organization, from the cache or the source; `None` without a source.
    pub(super) async fn of(&self, store: &dyn Store, organization: &Uid) -> Result<Option<Arc<Quotas>>> {
        let Some(source) = &self.source else { return Ok(None) };
        let lineage = store.lineage();
        if let Some((_, quotas)) = self.quotas.get(organization).filter(|cached| cached.0 == lineage) {
            return Ok(Some(quotas));
        }
        // A concurrent change may make the entry stale before it is inserted. The next commit that requires its epoch
        // then fails and removes it.
        let quotas = Arc::new(source.quotas(store, organization).await?);
        self.quotas.insert(organization.clone(), (lineage, Arc::clone(&quotas)));
        Ok(Some(quotas))
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
