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
    blob::BlobStore,
    clock::Clock,
    context::{Context, retry},
    entropy::Entropy,
    error::{Error, Result},
    event::{EventLog, Publisher},
    kind::{Kind, Registered, Resource},
    offload::Offload,
    options::RequestOptions,
    seal::SealKeys,
    store::{Store, switched::SwitchedStore},
    timestamp::Timestamp,
    uid::Uid,
    watch::hub::Hub,
    write::{Deferred, Dependents},
};

pub use crate::{etag::Reply, verbs::ListReply};

mod blobs;
mod builder;
mod check;
mod denial;
mod events;
mod grants_cache;
mod methods;
mod put;
mod quota_cache;
mod quotas;
mod repeats;
mod response_cache;
mod settings;
mod watches;

pub use builder::{BuildError, Builder};
pub use check::Invalid;
use grants_cache::{GrantsCache, Holder};
pub use methods::{ActionReply, List, Revised};
pub use put::{InvalidResource, PutReply};
use quota_cache::QuotaCache;
pub use response_cache::{Rendered, ResponseCache};
use settings::Data;
pub use settings::Settings;

/// A resource API over a store.
///
/// One value serves any number of concurrent callers. Methods act on behalf of a caller and check that caller's access.
/// Methods for embedders are typed by kind, and methods for transports are type-erased.
#[derive(Debug)]
pub struct Platform {
    store: Arc<dyn Store>,
    blobs: Arc<dyn BlobStore>,
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
    quotas: QuotaCache,
    events: Publisher,
    hub: Hub,
    data: Data,
    offload: Arc<dyn Offload>,
    settings: Settings,
    dependents: Dependents,
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

    /// Returns the settings of the installation.
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

    /// Returns whether the operator has switched writes off: whether the builder was given an
    /// [`Arc<SwitchedStore>`](SwitchedStore) as [data](Builder::data), and it refuses writes now.
    pub fn is_read_only(&self) -> bool {
        self.data::<Arc<SwitchedStore>>().is_some_and(|store| store.is_read_only())
    }

    /// Returns the blobs.
    pub fn blobs(&self) -> &Arc<dyn BlobStore> {
        &self.blobs
    }

    /// Returns the executor of CPU-bound work.
    pub fn offload(&self) -> &dyn Offload {
        &*self.offload
    }

    /// Returns the current time.
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

    /// Replaces the keys that seal secrets, after a rotation. The new keys must include each earlier key with which a
    /// secret in the store is sealed.
    pub fn set_seal_keys(&self, keys: SealKeys) {
        self.seal_keys.store(Arc::new(keys));
    }

    /// Returns the keys that seal secrets.
    pub fn seal_keys(&self) -> Arc<SealKeys> {
        self.seal_keys.load_full()
    }

    /// Returns the children and references of all kinds, which determine the effects of deletes.
    pub(crate) fn dependents(&self) -> &Dependents {
        &self.dependents
    }

    pub(crate) fn page_keys(&self) -> arc_swap::Guard<Arc<PageKeys>> {
        self.page_keys.load()
    }

    /// Returns a kind as it was given to the platform.
    pub(crate) fn registered_as(&self, kind: &Kind) -> Result<&Registered> {
        let found = self.kinds.iter().find(|registered| registered.kind.name == kind.name);
        found.ok_or_else(|| Error::internal(format!("the kind {} was not given to the platform", kind.name)))
    }

    pub(crate) fn registered_of<R: Resource>(&self) -> Result<&Registered> {
        let found = self.kinds.iter().find(|registered| (registered.type_id)() == TypeId::of::<R>());
        found.ok_or_else(|| Error::internal(format!("the kind {} was not given to the platform", R::KIND.name)))
    }

    /// Runs an operation of the embedder without a caller: access is not checked, and the operation is not retried.
    ///
    /// # Errors
    /// Those of the operation. One that [is stale](Error::is_stale) may be retried.
    pub async fn without_caller<T>(&self, operation: impl AsyncFnOnce(&Context<'_>) -> Result<T>) -> Result<T> {
        operation(&Context::without_caller(self, RequestOptions::none())).await
    }

    /// Runs an operation with the caller's grants, and retries it when the grants or the data that it has read change
    /// before it ends.
    ///
    /// # Errors
    /// Those of the operation, UNAUTHENTICATED when the identity does not exist, and ABORTED after
    /// [`MAX_ATTEMPTS`](crate::context::MAX_ATTEMPTS).
    pub async fn with_caller<'a, T>(
        &'a self,
        caller: &'a Caller,
        operation: impl for<'c> Fn(&'c Context<'a>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        self.with_options(caller, RequestOptions::none(), operation).await
    }

    /// Runs an operation as [`Platform::with_caller`] does, with the options of its request. An
    /// idempotency key has no effect: keys are for the methods of kinds.
    ///
    /// # Errors
    /// As [`Platform::with_caller`].
    pub async fn with_options<'a, T>(
        &'a self,
        caller: &'a Caller,
        options: &'a RequestOptions,
        operation: impl for<'c> Fn(&'c Context<'a>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        self.with_context(caller, options, || None, operation).await
    }

    /// Runs an operation as [`Platform::with_options`] does. An attempt whose write is deferred commits nothing itself.
    async fn with_context<'a, T>(
        &'a self,
        caller: &'a Caller,
        options: &'a RequestOptions,
        deferred: impl Fn() -> Option<Arc<Deferred>>,
        operation: impl for<'c> Fn(&'c Context<'a>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        retry(|| async {
            let cx = Context::new(self, Some(caller), self.grants_of(caller).await?, options).deferring(deferred());
            let done = operation(&cx).await;
            // A result that was not read from the store may depend on cached grants that are stale. A failure of the store
            // does not, and must not be replaced by another one: the caller has to know that a write may have been
            // applied, and the operation must then not be repeated.
            let is_lost = done.as_ref().is_err_and(Error::is_of_unreachable_store);
            let current = if is_lost || cx.is_confirmed() { Ok(()) } else { cx.confirm().await };
            let result = match (done, current) {
                (Err(error), _) if error.is_stale() => Err(error),
                (done, current) => current.and(done),
            };
            if result.as_ref().is_err_and(Error::is_stale) {
                // The grants may be the data that has changed: resolve them again.
                self.forget(caller);
            }
            match result {
                Err(error) if error.denial().is_some() => Err(self.explained(&cx, error).await),
                result => result,
            }
        })
        .await
    }

    /// Returns the grants of an identity without a sign-in, as [`Platform::grants_of`] does.
    ///
    /// # Errors
    /// As [`Platform::grants_of`].
    pub async fn grants(&self, identity: &Uid) -> Result<Arc<Grants>> {
        self.grants_of(&Caller::new(identity.clone())).await
    }

    /// Returns the grants of a caller's identity and sign-in, from the cache or the store. The narrowing of the token
    /// is ignored.
    ///
    /// The grants may be stale: only the reads and commits of an operation compare their epochs. Use them to decide
    /// what to show, and let the operation itself check access.
    ///
    /// # Errors
    /// UNAUTHENTICATED when the identity does not exist, its sign-in has ended or the caller's token was revoked, and
    /// those of the store.
    pub async fn grants_of(&self, caller: &Caller) -> Result<Arc<Grants>> {
        let holder = Holder::of(caller, self.store().lineage());
        // The cached grants may be of an earlier registration of the person, or older than the token.
        let is_valid = |grants: &Arc<Grants>| grants.are_of(caller.acts_as) && grants.admit(caller);
        if let Some(grants) = self.grants.get(&holder).filter(is_valid) {
            return Ok(grants);
        }
        let grants = Arc::new(self.read_grants(caller).await?);
        if !grants.are_of(caller.acts_as) {
            return Err(Error::unauthenticated("The token's identity does not exist"));
        }
        self.grants.insert(holder, Arc::clone(&grants));
        if grants.admit(caller) { Ok(grants) } else { Err(Error::revoked_token()) }
    }

    /// Returns how often grants were found in the cache since the platform was built, and how often they were resolved
    /// from the store and cached; for metrics.
    pub fn grants_counts(&self) -> (u64, u64) {
        self.grants.counts()
    }

    /// Returns the current grants of a caller's identity and sign-in, compared with the store.
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

    /// Checks that the caller is currently the installation's operator, with a token that is not narrowed.
    ///
    /// # Errors
    /// PERMISSION_DENIED otherwise, and as [`Platform::grants_of`].
    pub async fn demand_operator(&self, caller: &Caller) -> Result<()> {
        self.with_caller(caller, |cx| {
            Box::pin(async move { if cx.is_operator() { Ok(()) } else { Err(Error::denied()) } })
        })
        .await
    }

    /// Reads the grants of a caller's identity and sign-in from the store, bypassing the cache.
    ///
    /// # Errors
    /// As [`Platform::grants_of`].
    pub async fn read_grants(&self, caller: &Caller) -> Result<Grants> {
        let operator = self.settings.operators.contains(&caller.identity);
        self.authority.grants(self.store(), &self.capabilities, caller, operator).await
    }

    pub(crate) fn forget(&self, caller: &Caller) {
        self.grants.remove(&Holder::of(caller, self.store().lineage()));
    }
}
