//! The interface to identities, roles and role bindings.

use std::{collections::HashMap, fmt::Debug};

use async_trait::async_trait;

use super::{AsOf, Caller, Capabilities, CapabilitySet, Denied, Explanation, Grants};
use crate::{
    error::{Error, Result},
    store::Store,
    uid::Uid,
};

/// Resolves the grants of callers.
///
/// The platform caches the grants that an authority returns. Every read and commit of an operation that depends on them
/// requires that their epochs still have the values in [`Grants`]. An authority whose grants can change must therefore
/// read the epochs before all other data or together with it, and each write that changes grants must raise one of the
/// epochs.
#[async_trait]
pub trait Authority: Debug + Send + Sync + 'static {
    /// Returns the grants of a caller's identity and sign-in, regardless of the narrowing of the caller's token.
    /// `known` contains the capabilities of the platform; `operator` is true for an operator of the installation.
    ///
    /// # Errors
    /// UNAUTHENTICATED when the identity does not exist or its sign-in has ended, and those of the store.
    async fn grants(&self, store: &dyn Store, known: &Capabilities, caller: &Caller, operator: bool) -> Result<Grants>;

    /// Explains a denial to a caller who may see the place; `None`, which is the default, leaves it unexplained.
    ///
    /// Called for each denied request, so what it reads must be bounded. It must not depend on whether the place exists,
    /// except for callers who may know that.
    ///
    /// # Errors
    /// Those of the store. The denial then remains unexplained.
    async fn explain(
        &self,
        _store: &dyn Store,
        _known: &Capabilities,
        _denied: &Denied<'_>,
    ) -> Result<Option<Explanation>> {
        Ok(None)
    }
}

/// Grants that are fixed when the platform is built: for services that control access elsewhere, and for tests.
#[derive(Debug, Clone, Default)]
pub struct FixedGrants(HashMap<Uid, Fixed>);

/// The grants of one identity.
#[derive(Debug, Clone, Default)]
struct Fixed {
    bound: Vec<(Uid, CapabilitySet)>,
    everywhere: CapabilitySet,
}

impl FixedGrants {
    /// Returns no grants: only the operators of the installation may do anything, and they may do everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives an identity these capabilities at a group and everywhere below it.
    #[must_use]
    pub fn grant(mut self, identity: Uid, group: Uid, capabilities: CapabilitySet) -> Self {
        self.0.entry(identity).or_default().bound.push((group, capabilities));
        self
    }

    /// Gives an identity these capabilities everywhere.
    #[must_use]
    pub fn grant_everywhere(mut self, identity: Uid, capabilities: CapabilitySet) -> Self {
        let held = &mut self.0.entry(identity).or_default().everywhere;
        *held = held.union(capabilities);
        self
    }
}

#[async_trait]
impl Authority for FixedGrants {
    async fn grants(
        &self,
        _store: &dyn Store,
        _known: &Capabilities,
        caller: &Caller,
        operator: bool,
    ) -> Result<Grants> {
        let fixed = self.0.get(&caller.identity);
        if fixed.is_none() && !operator {
            return Err(Error::unauthenticated("The token's identity does not exist"));
        }
        let Fixed { bound, everywhere } = fixed.cloned().unwrap_or_default();
        let everywhere = if operator { CapabilitySet::ALL } else { everywhere };
        let grants = Grants::new(caller.identity.clone(), operator, AsOf::default(), Vec::new(), bound);
        Ok(grants.everywhere(everywhere))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pollster::block_on;

    use super::*;
    use crate::{
        error::Code,
        platform::{Platform, Settings},
        sample::{CREATE, Fixed, LIST},
        store::memory::MemoryStore,
    };

    #[test]
    fn fixed_grants_apply_at_and_below_their_group_and_to_known_identities_only() {
        let [group, other, member, operator, stranger, reader] = [1, 2, 3, 4, 5, 6].map(|n| Uid::from_digest([n; 20]));
        let below = Uid::opaque(format!("{group}/0123456789abcdef"));
        let grants = FixedGrants::new()
            .grant(member.clone(), group.clone(), [LIST].into_iter().collect())
            .grant_everywhere(reader.clone(), [LIST].into_iter().collect());
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let store = Arc::new(MemoryStore::new());
        let platform = Platform::builder(store, Fixed, Fixed)
            .authority(grants)
            .settings(settings)
            .ephemeral_keys()
            .build()
            .unwrap();
        let demand = |identity: &Uid, uid: &Uid, capability| {
            let (caller, uid) = (Caller::new(identity.clone()), uid.clone());
            let done = block_on(platform.with_caller(&caller, |cx| {
                let uid = uid.clone();
                Box::pin(async move { cx.demand(&uid, &[capability]) })
            }));
            done.map_err(|error| error.code())
        };
        assert_eq!(demand(&member, &group, LIST), Ok(()));
        assert_eq!(demand(&member, &below, LIST), Ok(()));
        assert_eq!(demand(&member, &other, LIST), Err(Code::PermissionDenied));
        assert_eq!(demand(&member, &group, CREATE), Err(Code::PermissionDenied));
        assert_eq!(demand(&stranger, &group, LIST), Err(Code::Unauthenticated));
        assert_eq!(demand(&reader, &other, LIST), Ok(()));
        assert_eq!(demand(&reader, &other, CREATE), Err(Code::PermissionDenied));
        assert_eq!(demand(&operator, &other, CREATE), Ok(()));
        let [operator, member] = [operator, member].map(Caller::new);
        assert!(block_on(platform.demand_operator(&operator)).is_ok());
        assert!(block_on(platform.demand_operator(&member)).is_err());
    }
}
