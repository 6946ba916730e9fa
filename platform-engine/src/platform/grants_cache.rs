//! A cache of resolved grants, bounded in bytes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    access::{Caller, Grants, Session},
    cache::BytesCache,
    uid::Uid,
};

/// The key of the cache: an identity, its sign-in by an organization's own provider, if any, and the lineage of the
/// store before the grants were read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    lineage: u64,
    identity: Uid,
    session: Option<Arc<Session>>,
}

impl Holder {
    pub(super) fn of(caller: &Caller, lineage: u64) -> Self {
        Self { lineage, identity: caller.identity.clone(), session: caller.session.clone() }
    }
}

fn bytes_of(holder: &Holder, grants: &Arc<Grants>) -> u64 {
    let session = holder.session.as_ref().map_or(0, |session| session.bytes());
    (grants.bytes() + session + size_of::<Holder>()) as u64
}

/// The approximate size in bytes of the grants of an identity with a few bindings, to estimate the number of entries.
const TYPICAL_GRANTS: u64 = 4 << 10;

/// A cache of grants. Evicted grants are resolved again.
#[derive(Debug)]
pub(super) struct GrantsCache {
    cache: BytesCache<Holder, Arc<Grants>>,
    /// The numbers of grants that were found, and of those that were resolved.
    found: AtomicU64,
    resolved: AtomicU64,
}

impl GrantsCache {
    /// Returns an empty cache of at most this many bytes, approximately.
    pub(super) fn new(bytes: u64) -> Self {
        let cache = BytesCache::new(bytes, TYPICAL_GRANTS, bytes_of);
        Self { cache, found: AtomicU64::new(0), resolved: AtomicU64::new(0) }
    }

    pub(super) fn get(&self, holder: &Holder) -> Option<Arc<Grants>> {
        let found = self.cache.get(holder)?;
        self.found.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Returns how often grants were found in the cache, and how often they were added to it.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.found.load(Ordering::Relaxed), self.resolved.load(Ordering::Relaxed))
    }

    pub(super) fn insert(&self, holder: Holder, grants: Arc<Grants>) {
        self.resolved.fetch_add(1, Ordering::Relaxed);
        self.cache.insert(holder, grants);
    }

    pub(super) fn remove(&self, holder: &Holder) {
        self.cache.remove(holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        access::{AsOf, Capability, CapabilitySet},
        sample::{CREATE, LIST},
    };

    fn grants(groups: usize) -> Arc<Grants> {
        let group = |n: usize| Uid::opaque(format!("{:040x}/{n:016x}", 1));
        let all: CapabilitySet = [LIST, CREATE].into_iter().collect();
        let bound = (0..groups).map(|n| (group(n), all));
        Arc::new(Grants::new(Uid::from_digest([1; 20]), false, AsOf::default(), Vec::new(), bound))
    }

    fn holder(sign_in: usize) -> Holder {
        let groups = vec![format!("group {sign_in}"), "x".repeat(10_000)];
        let session = Some(Arc::new(Session { groups, ..Session::default() }));
        Holder { lineage: 0, identity: Uid::opaque("a"), session }
    }

    #[test]
    fn many_sign_ins_of_a_person_with_many_bindings_stay_within_the_capacity() {
        let cache = GrantsCache::new(64 << 20);
        for sign_in in 0..400 {
            cache.insert(holder(sign_in), grants(3_000));
            assert!(cache.cache.bytes() <= 64 << 20);
        }
        assert!(cache.cache.entries() > 10, "{}", cache.cache.entries());
        let (small, large) = (grants(1).bytes(), grants(3_000).bytes());
        assert!(small < 8 << 10, "{small}");
        assert!((200 << 10..2 << 20).contains(&large), "{large}");
    }

    #[test]
    fn the_memo_of_topmost_groups_stays_within_the_weight_of_the_grants() {
        let grants = grants(1_000);
        for bit in 0..=255 {
            let capability = Capability::of_contract(bit.into(), "CAP", "cap", bit);
            grants.nodes(&[capability]);
            grants.nodes(&[LIST, capability]);
            assert!(grants.remembered_nodes() * size_of::<Uid>() <= grants.bytes());
        }
        assert_eq!(grants.nodes(&[LIST]).scopes().as_slice().len(), 1_000);
    }
}
