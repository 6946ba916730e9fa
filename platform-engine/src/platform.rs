//! The platform: what an embedder builds once and every transport calls.

use std::{any::Any, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    BoxFuture,
    access::{Authority, Caller, Grants},
    aip::page_token::PageKeys,
    clock::Clock,
    context::{Context, MAX_ATTEMPTS},
    entropy::Entropy,
    error::{Error, Result},
    event::EventLog,
    kind::{Action, Authorization, Kind, Registered, Resource, Verb, sent, typed},
    offload::Offload,
    request::ListRequest,
    seal::SealKeys,
    store::Store,
    timestamp::Timestamp,
    uid::Uid,
    verbs::{self, Once},
};

pub use crate::verbs::list::ListReply;

mod builder;
mod events;
mod grants_cache;
mod put;
mod response_cache;

use builder::Data;
pub use builder::{Builder, Settings};
use events::Events;
use grants_cache::{GrantsCache, Holder};
pub use put::{PutReply, Refused};
pub use response_cache::{Rendered, ResponseCache};

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
    page_keys: ArcSwap<PageKeys>,
    seal_keys: ArcSwap<SealKeys>,
    authority: Arc<dyn Authority>,
    event_log: Option<Arc<dyn EventLog>>,
    grants: GrantsCache,
    events: Events,
    data: Data,
    offload: Arc<dyn Offload>,
    settings: Settings,
}

impl Platform {
    /// Begins a platform over a store, with the time and randomness that it shall use.
    pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
        Builder::new(store, Arc::new(clock), Arc::new(entropy))
    }

    /// Returns all kinds, in the order in which they were added.
    pub fn registered(&self) -> &[Registered] {
        &self.kinds
    }

    /// Returns the tables of all kinds.
    pub fn kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.kinds.iter().map(|registered| registered.kind)
    }

    /// Returns the kind that resources of a kind hang in, `None` where they hang in nothing.
    ///
    /// # Errors
    /// INTERNAL when the platform was not given that kind.
    pub fn parent_kind(&self, kind: &Kind) -> Result<Option<&'static Kind>> {
        let Some(name) = kind.parent.kind() else { return Ok(None) };
        let found = self.kinds().find(|kind| kind.name == name);
        found.map(Some).ok_or_else(|| Error::internal(format!("the kind {name} was not given to the platform")))
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

    /// Lists resources of a kind: [`Platform::list`] with the type erased.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `page_token`; never PERMISSION_DENIED: a list has what the caller may see. NOT_FOUND for what
    /// the list is of, where it is of something.
    pub async fn list_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        request: &ListRequest,
    ) -> Result<ListReply> {
        let done = match registered.kind.method(Verb::List).is_some_and(|list| list.open) {
            true => {
                verbs::list::list(&Context::new(self, &nobody(), Arc::new(Grants::none())), registered, request).await
            }
            false => self.with_caller(caller, |cx| Box::pin(verbs::list::list(cx, registered, request))).await,
        };
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Gets a resource: [`Platform::get`] with the type erased.
    ///
    /// # Errors
    /// As [`Platform::get`].
    pub async fn get_erased(&self, caller: &Caller, registered: &Registered, uid: &str) -> Result<Bytes> {
        let done = self.with_caller(caller, |cx| Box::pin(verbs::get::get(cx, registered, uid))).await;
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Creates a resource: [`Platform::create`] with the type erased. The body is the resource's JSON in any form
    /// that proto3 JSON allows.
    ///
    /// # Errors
    /// As [`Platform::create`].
    pub async fn create_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        parent: &str,
        body: &Map<String, Value>,
    ) -> Result<Bytes> {
        let once = Once::default();
        let done =
            self.with_caller(caller, |cx| Box::pin(verbs::create::create(cx, registered, parent, body, &once))).await;
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Updates a resource: [`Platform::update`] with the type erased. Without a mask, the fields that the body has
    /// are set.
    ///
    /// # Errors
    /// As [`Platform::update`].
    pub async fn update_erased(
        &self,
        caller: &Caller,
        registered: &Registered,
        uid: &str,
        body: &Map<String, Value>,
        mask: Option<&str>,
    ) -> Result<Bytes> {
        let once = Once::default();
        let update =
            self.with_caller(caller, |cx| Box::pin(verbs::update::update(cx, registered, uid, body, mask, &once)));
        let done = update.await;
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Deletes a resource: [`Platform::delete`] with the type erased.
    ///
    /// # Errors
    /// As [`Platform::delete`].
    pub async fn delete_erased(&self, caller: &Caller, registered: &Registered, uid: &str) -> Result<()> {
        let done = self.with_caller(caller, |cx| Box::pin(verbs::delete::delete(cx, registered, uid))).await;
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Runs an action of a kind's service. `caller` may be none for an action that needs no token.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a caller where one is needed, and what the action says.
    pub async fn run(
        &self,
        caller: Option<&Caller>,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<Value> {
        match self.run_rendered(caller, kind, action, request).await? {
            Answer::Value(value) => Ok(value),
            Answer::Rendered(rendered) => serde_json::from_slice(&rendered.body).map_err(Error::internal),
        }
    }

    /// Runs an action as [`Platform::run`], and returns what it answers as it is: some answers are kept ready.
    ///
    /// # Errors
    /// As [`Platform::run`].
    pub async fn run_rendered(
        &self,
        caller: Option<&Caller>,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<Answer> {
        let done = match (caller, action.authorization) {
            (_, Authorization::Public) => {
                answer(&Context::new(self, &nobody(), Arc::new(Grants::none())), action, request).await
            }
            (None, _) => Err(Error::unauthenticated("A bearer token is needed")),
            (Some(caller), _) => self.with_caller(caller, |cx| Box::pin(answer(cx, action, request))).await,
        };
        done.map_err(|error| error.of_domain(kind.domain.0))
    }

    /// Refuses a caller who may not use a standard method at this uid, which for a create is the parent's: for
    /// transports, before they read the rest of a request.
    ///
    /// Grants in memory are enough to pass, without a read of the store: the method itself decides again.
    ///
    /// # Errors
    /// PERMISSION_DENIED, as the method would return; INVALID_ARGUMENT for a malformed uid.
    pub async fn admit(&self, caller: &Caller, registered: &Registered, verb: Verb, uid: &str) -> Result<()> {
        let kind = registered.kind;
        let cx = Context::new(self, caller, self.grants_of(caller).await?);
        if verbs::demand(&cx, registered, verb, uid).await.is_ok() {
            return Ok(());
        }
        let done = self.with_caller(caller, |cx| Box::pin(verbs::demand(cx, registered, verb, uid))).await;
        done.map_err(|error| error.of_domain(kind.domain.0))
    }

    /// Refuses a caller who may not run an action, as [`Platform::admit`] does, by the part of its request that is
    /// known before its body is read. An action whose uid is in the body is admitted.
    ///
    /// # Errors
    /// PERMISSION_DENIED, as the action would return; INVALID_ARGUMENT for a malformed uid.
    pub async fn admit_action(
        &self,
        caller: &Caller,
        kind: &Kind,
        action: &'static Action,
        request: &Map<String, Value>,
    ) -> Result<()> {
        if let Authorization::At(field, _) = action.authorization
            && verbs::action::sent(action, field, request).is_none()
        {
            return Ok(());
        }
        let cx = Context::new(self, caller, self.grants_of(caller).await?);
        if verbs::action::demand(&cx, action, request).is_ok() {
            return Ok(());
        }
        let done = self.with_caller(caller, |cx| Box::pin(async { verbs::action::demand(cx, action, request) })).await;
        done.map_err(|error| error.of_domain(kind.domain.0))
    }

    /// Lists resources of a kind that the caller may see, a page of them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `page_token`.
    pub async fn list<R: Resource>(&self, caller: &Caller, request: &ListRequest) -> Result<List<R>> {
        let reply = self.list_erased(caller, self.registered_of::<R>()?, request).await?;
        let resources = reply.items.iter().map(|body| serde_json::from_slice(body).map_err(Error::internal));
        Ok(List {
            resources: resources.collect::<Result<_>>()?,
            next_page_token: reply.next_page_token,
            total_count: reply.total_count,
        })
    }

    /// Gets a resource by its uid.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what is no uid, PERMISSION_DENIED when the caller lacks a capability there, NOT_FOUND.
    pub async fn get<R: Resource>(&self, caller: &Caller, uid: &str) -> Result<R> {
        let body = self.get_erased(caller, self.registered_of::<R>()?, uid).await?;
        serde_json::from_slice(&body).map_err(Error::internal)
    }

    /// Creates a resource below a parent, which for a kind that needs none is empty.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT with all violations, NOT_FOUND for the parent, ALREADY_EXISTS.
    pub async fn create<R: Resource>(&self, caller: &Caller, parent: &str, resource: &R) -> Result<R> {
        let body = sent(resource)?;
        let body = self.create_erased(caller, self.registered_of::<R>()?, parent, &body).await?;
        serde_json::from_slice(&body).map_err(Error::internal)
    }

    /// Sets the fields of a resource that the mask names (`docs/api.md`, Updates).
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT with all violations, NOT_FOUND.
    pub async fn update<R: Resource>(&self, caller: &Caller, uid: &str, resource: &R, mask: &str) -> Result<R> {
        let body = sent(resource)?;
        let body = self.update_erased(caller, self.registered_of::<R>()?, uid, &body, Some(mask)).await?;
        typed(serde_json::from_slice(&body).map_err(Error::internal)?)
    }

    /// Deletes a resource, with what goes with it.
    ///
    /// # Errors
    /// PERMISSION_DENIED, NOT_FOUND, FAILED_PRECONDITION when something stands in the way.
    pub async fn delete<R: Resource>(&self, caller: &Caller, uid: &str) -> Result<()> {
        self.delete_erased(caller, self.registered_of::<R>()?, uid).await
    }

    fn registered_of<R: Resource>(&self) -> Result<&Registered> {
        let found = self.kinds.iter().find(|registered| std::ptr::eq(registered.kind, R::KIND));
        let found = found.or_else(|| self.kinds.iter().find(|registered| registered.kind.name == R::KIND.name));
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
        self.authority.grants(self.store(), caller, operator).await
    }

    pub(crate) fn forget(&self, caller: &Caller) {
        self.grants.remove(&Holder::of(caller));
    }
}

/// What an action answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A JSON object.
    Value(Value),
    /// The bytes of one.
    Rendered(Rendered),
}

/// Runs an action, and takes what it left in its context rather than return it.
async fn answer(cx: &Context<'_>, action: &'static Action, request: &Map<String, Value>) -> Result<Answer> {
    let value = verbs::action::run(cx, action, request).await?;
    Ok(cx.take_rendered().map_or(Answer::Value(value), Answer::Rendered))
}

/// Returns the caller of what is open to all.
fn nobody() -> Caller {
    Caller::new(Uid::default())
}

/// A page of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<R> {
    /// The resources, in order.
    pub resources: Vec<R>,
    /// The token of the next page; none when this is the last.
    pub next_page_token: Option<String>,
    /// How many match on all pages, of those that the caller may see.
    pub total_count: u64,
}
