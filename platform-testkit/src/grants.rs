//! Grants that tests give while a platform runs.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use platform_engine::{
    access::{Authority, Caller, Capabilities, Capability, FixedGrants, Grants},
    error::Result,
    store::Store,
    uid::Uid,
};

/// Grants that a test gives while the platform runs, each to a new caller. Clones share them.
///
/// ```
/// use platform_engine::{access::Capability, uid::Uid};
/// use platform_testkit::TestGrants;
///
/// const LIST: Capability = Capability::new(1_000_000, "CAP_NOTES_LIST", "notes.list");
///
/// let (grants, group) = (TestGrants::new(), Uid::from_digest([1; 20]));
/// let reader = grants.holder(&group, &[LIST]);
/// assert_ne!(reader, grants.holder(&group, &[LIST]));
/// ```
#[derive(Debug, Clone, Default)]
pub struct TestGrants(Arc<Mutex<(u64, FixedGrants)>>);

impl TestGrants {
    /// Returns no grants: only the operator may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a new caller who holds exactly these capabilities, at this group and everywhere below it.
    pub fn holder(&self, group: &Uid, capabilities: &[Capability]) -> Caller {
        let mut held = self.0.lock();
        let (count, grants) = &mut *held;
        *count += 1;
        let identity = Uid::opaque(format!("{count:040x}"));
        *grants = std::mem::take(grants).grant(identity.clone(), group.clone(), capabilities.iter().copied().collect());
        Caller::new(identity)
    }
}

#[async_trait]
impl Authority for TestGrants {
    async fn grants(&self, store: &dyn Store, known: &Capabilities, caller: &Caller, operator: bool) -> Result<Grants> {
        let grants = self.0.lock().1.clone();
        grants.grants(store, known, caller, operator).await
    }
}
