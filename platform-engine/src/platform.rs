//! The platform: what an embedder builds once and every transport calls.

use std::{
    any::{Any, TypeId},
    borrow::Cow,
    sync::Arc,
};

use arc_swap::ArcSwap;

use crate::{
    BoxFuture,
    access::{Authority, Caller, Capabilities, Grants},
    aip::page_token::PageKeys,
    clock::Clock,
    context::{Context, MAX_ATTEMPTS},
    entropy::Entropy,
    error::{Error, Result},
    event::{EventLog, Publisher},
    kind::{Kind, Registered, Resource},
    offload::Offload,
    seal::SealKeys,
    store::Store,
    timestamp::Timestamp,
    uid::Uid,
};

pub use crate::verbs::ListReply;

mod builder;
mod check;
mod events;
mod grants_cache;
mod methods;
mod put;
mod response_cache;
mod settings;

pub use builder::{BuildError, Builder};
pub use check::Invalid;
use grants_cache::{GrantsCache, Holder};
pub use methods::{Answer, List};
pub use put::{PutReply, Refused};
pub use response_cache::{Rendered, ResponseCache};
use settings::Data;
pub use settings::Settings;

/// A resource API over a store.
///
/// One value serves any number of callers at once. Every method acts as a caller and refuses what that caller may
/// not do; what transports need is here with types erased, and what embedders use is typed by kind.
#[derive(Debug)]
pub struct Platform {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    kinds: Vec<Registered>,
    capabilities: Arc<Capabilities>,
    descriptors: Vec<Cow<'static, [u8]>>,
    page_keys: ArcSwap<PageKeys>,
    seal_keys: ArcSwap<SealKeys>,
    authority: Arc<dyn Authority>,
    event_log: Option<Arc<dyn EventLog>>,
    grants: GrantsCache,
    events: Publisher,
    data: Data,
    offload: Arc<dyn Offload>,
    settings: Settings,
}

impl Platform {
    /// Returns all kinds, in the order in which they were added.
    pub fn registered(&self) -> &[Registered] {
        &self.kinds
    }

    /// Returns the tables of all kinds.
    pub fn kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.kinds.iter().map(|registered| registered.kind)
    }

    /// Returns the kind of a kind's parents, `None` for a kind at the top of the hierarchy.
    pub fn parent_kind(&self, kind: &Kind) -> Option<&'static Kind> {
        let name = kind.parent.kind()?;
        self.kinds().find(|kind| kind.name == name)
    }

    /// Returns the capabilities of the platform: those that the builder was given, and those that its kinds require.
    pub fn capabilities(&self) -> &Arc<Capabilities> {
        &self.capabilities
    }

    /// Returns the protobuf descriptor sets that the builder was given, each encoded as a
    /// `google.protobuf.FileDescriptorSet`.
    pub fn descriptors(&self) -> impl Iterator<Item = &[u8]> {
        self.descriptors.iter().map(|set| &**set)
    }

    /// Returns what the installation decided for itself.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the value of this type that the builder was given.
    pub fn data<T: Any>(&self) -> Option<&T> {
        self.data.get()
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns where work that keeps a processor busy is done.
    pub fn offload(&self) -> &dyn Offload {
        &*self.offload
    }

    /// Returns the time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the source of randomness.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }

    /// Replaces the keys of page tokens, after a rotation.
    pub fn set_page_keys(&self, keys: PageKeys) {
        self.page_keys.store(Arc::new(keys));
    }

    /// Replaces the keys that secrets are sealed by, after a rotation. Those of before must be among them for as long
    /// as there is a secret that they sealed.
    pub fn set_seal_keys(&self, keys: SealKeys) {
        self.seal_keys.store(Arc::new(keys));
    }

    /// Returns the keys that secrets are sealed by.
    pub fn seal_keys(&self) -> Arc<SealKeys> {
        self.seal_keys.load_full()
    }

    pub(crate) fn page_keys(&self) -> arc_swap::Guard<Arc<PageKeys>> {
        self.page_keys.load()
    }

    pub(super) fn registered_of<R: Resource>(&self) -> Result<&Registered> {
        let found = self.kinds.iter().find(|registered| (registered.type_id)() == TypeId::of::<R>());
        found.ok_or_else(|| Error::internal(format!("the kind {} was not given to the platform", R::KIND.name)))
    }

    /// Runs an operation of the embedder's, regardless of who calls: with no caller, no grants and no checks of access.
    ///
    /// # Errors
    /// Those of the operation. One that [is stale](Error::is_stale) may be retried.
    pub async fn without_caller<T>(&self, operation: impl AsyncFnOnce(&Context<'_>) -> Result<T>) -> Result<T> {
        operation(&Context::new(self, &nobody(), Arc::new(Grants::none()))).await
    }

    /// Runs an operation with the caller's grants, and retries it while they or what it read have changed meanwhile.
    ///
    /// # Errors
    /// Those of the operation, UNAUTHENTICATED when there is no such identity, and ABORTED after [`MAX_ATTEMPTS`].
    pub async fn with_caller<'a, T>(
        &'a self,
        caller: &'a Caller,
        operation: impl for<'c> Fn(&'c Context<'a>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        for _ in 0..MAX_ATTEMPTS {
            let cx = Context::new(self, caller, self.grants_of(caller).await?);
            let done = operation(&cx).await;
            // What was answered without a look at the store may rest on grants that have changed since.
            let still = if cx.is_confirmed() { Ok(()) } else { cx.confirm().await };
            match (done, still) {
                (Err(error), _) | (_, Err(error)) if error.is_stale() => {
                    self.forget(caller);
                }
                (_, Err(error)) => return Err(error),
                (done, Ok(())) => return done,
            }
        }
        Err(Error::busy())
    }

    /// Returns what an identity holds by what is bound; [`Platform::grants_of`] for one without a sign-in.
    ///
    /// # Errors
    /// As [`Platform::grants_of`].
    pub async fn grants(&self, identity: &Uid) -> Result<Arc<Grants>> {
        self.grants_of(&Caller::new(identity.clone())).await
    }

    /// Returns what a caller's identity holds, and their sign-in gives, as it was last read: from memory, or from the
    /// store when it is not there. What a token narrows it to is not looked at.
    ///
    /// What has changed since is noticed by whoever reads or commits with it, as every operation does, and not here:
    /// decide by it what to show, and leave it to the operation to refuse.
    ///
    /// # Errors
    /// UNAUTHENTICATED when there is no such identity or its sign-in has ended, and those of the store.
    pub async fn grants_of(&self, caller: &Caller) -> Result<Arc<Grants>> {
        let holder = Holder::of(caller);
        // The cached grants may be those of an earlier registration of the person.
        if let Some(grants) = self.grants.get(&holder).filter(|grants| grants.are_of(caller.acts_as)) {
            return Ok(grants);
        }
        let grants = Arc::new(self.read_grants(caller).await?);
        if !grants.are_of(caller.acts_as) {
            return Err(Error::unauthenticated("The token's identity does not exist"));
        }
        self.grants.insert(holder, Arc::clone(&grants));
        Ok(grants)
    }

    /// Returns what a caller's identity holds and their sign-in gives, as it stands now.
    ///
    /// # Errors
    /// As [`Platform::grants_of`].
    pub async fn current_grants(&self, caller: &Caller) -> Result<Arc<Grants>> {
        self.with_caller(caller, |cx| {
            Box::pin(async move {
                cx.confirm().await?;
                Ok(cx.shared_grants())
            })
        })
        .await
    }

    /// Refuses a caller that is not currently the installation's operator, or whose token is narrowed.
    ///
    /// # Errors
    /// PERMISSION_DENIED, and as [`Platform::grants_of`].
    pub async fn demand_operator(&self, caller: &Caller) -> Result<()> {
        self.with_caller(caller, |cx| {
            Box::pin(async move { if cx.is_operator() { Ok(()) } else { Err(Error::denied()) } })
        })
        .await
    }

    /// Reads what a caller's identity holds from the store, past the cache.
    ///
    /// # Errors
    /// As [`Platform::grants_of`].
    pub async fn read_grants(&self, caller: &Caller) -> Result<Grants> {
        let operator = self.settings.operators.contains(&caller.identity);
        self.authority.grants(self.store(), &self.capabilities, caller, operator).await
    }

    pub(crate) fn forget(&self, caller: &Caller) {
        self.grants.remove(&Holder::of(caller));
    }
}

/// Returns the caller of what is open to all.
pub(super) fn nobody() -> Caller {
    Caller::new(Uid::default())
}
