//! The platform: what an embedder builds once and every transport calls.

use std::{collections::HashSet, fmt::Debug, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    BoxFuture,
    access::{Caller, Grants, resolve},
    aip::page_token::PageKeys,
    clock::Clock,
    cx::{ATTEMPTS, Cx},
    entropy::Entropy,
    error::{Error, Result},
    kind::{Action, Kind, Needs, Registered, Resource, Verb, sent, typed},
    offload::{Inline, Offload},
    request::ListRequest,
    resources::{KINDS, iam::TermsDocument},
    seal::SealKeys,
    store::Store,
    timestamp::Timestamp,
    uid::Uid,
    verbs::{self, Once},
};

pub use crate::verbs::list::ListReply;

mod bootstrap;
mod directory;
mod events;
mod kept;
mod outbox;
mod presented;
mod put;
mod remembered;
mod sign_ins;

pub use bootstrap::Bootstrap;
use events::Events;
pub(crate) use kept::Kept;
pub use kept::Rendered;
pub use outbox::{Failure, Lease, Outbox, Outcome, Settled, Waiting, lost_bodies};
pub use put::{PutReply, Refused};
use remembered::{Holder, Remembered};
pub use sign_ins::Person;

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
    grants: Remembered,
    documents: Kept,
    events: Events,
    offload: Arc<dyn Offload>,
    settings: Settings,
}

/// What an installation decides for itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The suffix of error domains and resource types, such as `example.com`.
    pub service_domain: String,
    /// The URL by which clients reach the server, which URLs in replies begin with.
    pub public_url: String,
    /// Who has the operator's powers (`docs/api.md`, The operator).
    pub operators: HashSet<Uid>,
    /// Whether every registered person may create organisations, or the operator alone.
    pub open_organisations: bool,
    /// Mail domains that tell nothing of an organisation, for LookupGroup.
    pub shared_mail_domains: HashSet<String>,
    /// The groups whose advisories, at or below them, everybody may read as documents.
    pub public_advisory_groups: HashSet<Uid>,
    /// The documents that groups can accept.
    pub terms: Vec<TermsDocument>,
    /// What the types of events begin with, in front of a point and the name in the kind's table.
    pub event_type_prefix: String,
    /// Whether sinks may be `http` URLs, which anybody on the way can read.
    pub allow_http_sinks: bool,
    /// What else the URL of a new subscription's sink must keep to, for whoever delivers: refuses what it would never
    /// connect to, with a rule as a phrase. By default nothing.
    pub check_sink: fn(&str) -> std::result::Result<(), String>,
    /// The size of the cache of identities' grants, approximately, in bytes.
    pub cached_grants_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let shared = ["gmail.com", "outlook.com", "hotmail.com", "yahoo.com", "icloud.com", "proton.me", "gmx.net"];
        Self {
            service_domain: "platform.local".to_owned(),
            public_url: String::new(),
            operators: HashSet::new(),
            open_organisations: false,
            shared_mail_domains: shared.map(str::to_owned).into(),
            public_advisory_groups: HashSet::new(),
            terms: TermsDocument::published(),
            event_type_prefix: "dev.chainguard.api".to_owned(),
            allow_http_sinks: false,
            check_sink: |_| Ok(()),
            cached_grants_bytes: 64 << 20,
        }
    }
}

/// Puts a [`Platform`] together.
#[derive(Debug)]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    kinds: Vec<Registered>,
    page_keys: Option<PageKeys>,
    seal_keys: Option<SealKeys>,
    offload: Arc<dyn Offload>,
    settings: Settings,
}

impl Builder {
    /// Adds a kind of the embedder's own to those of the contract.
    #[must_use]
    pub fn kind<R: Resource>(mut self) -> Self {
        self.kinds.push(Registered::of::<R>());
        self
    }

    /// Sets the keys of page tokens. Without this they are drawn anew, so that tokens end with the process.
    #[must_use]
    pub fn page_keys(mut self, keys: PageKeys) -> Self {
        self.page_keys = Some(keys);
        self
    }

    /// Sets the keys that secrets are sealed by in the store. Without this they are drawn anew, so that what was
    /// sealed can no longer be read when the process ends.
    #[must_use]
    pub fn seal_keys(mut self, keys: SealKeys) -> Self {
        self.seal_keys = Some(keys);
        self
    }

    /// Sets where work that keeps a processor busy is done. By default the calling thread does it.
    #[must_use]
    pub fn offload(mut self, offload: impl Offload) -> Self {
        self.offload = Arc::new(offload);
        self
    }

    /// Sets what the installation decides for itself.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Returns the platform.
    pub fn build(self) -> Platform {
        let draw = || {
            let mut key = [0; 32];
            self.entropy.fill(&mut key);
            [(1, key)]
        };
        let page_keys = self.page_keys.unwrap_or_else(|| PageKeys::new(draw()));
        let seal_keys = self.seal_keys.unwrap_or_else(|| SealKeys::new(draw()));
        Platform {
            grants: Remembered::new(self.settings.cached_grants_bytes),
            store: self.store,
            clock: self.clock,
            entropy: self.entropy,
            kinds: self.kinds,
            documents: Kept::default(),
            events: Events::default(),
            page_keys: ArcSwap::from_pointee(page_keys),
            seal_keys: ArcSwap::from_pointee(seal_keys),
            offload: self.offload,
            settings: self.settings,
        }
    }
}

impl Platform {
    /// Begins a platform over a store, with the time and randomness that it shall use.
    pub fn builder(store: Arc<dyn Store>, clock: impl Clock, entropy: impl Entropy) -> Builder {
        Builder {
            store,
            clock: Arc::new(clock),
            entropy: Arc::new(entropy),
            kinds: KINDS.to_vec(),
            page_keys: None,
            seal_keys: None,
            offload: Arc::new(Inline),
            settings: Settings::default(),
        }
    }

    /// Returns all kinds: those of the contract, then the embedder's.
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
    pub(crate) fn parent_kind(&self, kind: &Kind) -> Result<Option<&'static Kind>> {
        let Some(name) = kind.parent.kind() else { return Ok(None) };
        let found = self.kinds().find(|kind| kind.name == name);
        found.map(Some).ok_or_else(|| Error::internal(format!("the kind {name} was not given to the platform")))
    }

    /// Returns what the installation decided for itself.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns where work that keeps a processor busy is done.
    pub(crate) fn offload(&self) -> &dyn Offload {
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

    pub(crate) fn seal_keys(&self) -> arc_swap::Guard<Arc<SealKeys>> {
        self.seal_keys.load()
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
            true => verbs::list::list(&Cx::new(self, &nobody(), Arc::new(Grants::none())), registered, request).await,
            false => self.settle(caller, |cx| Box::pin(verbs::list::list(cx, registered, request))).await,
        };
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Gets a resource: [`Platform::get`] with the type erased.
    ///
    /// # Errors
    /// As [`Platform::get`].
    pub async fn get_erased(&self, caller: &Caller, registered: &Registered, uid: &str) -> Result<Bytes> {
        let done = self.settle(caller, |cx| Box::pin(verbs::get::get(cx, registered, uid))).await;
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
        let done = self.settle(caller, |cx| Box::pin(verbs::create::create(cx, registered, parent, body, &once))).await;
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
        let update = self.settle(caller, |cx| Box::pin(verbs::update::update(cx, registered, uid, body, mask, &once)));
        let done = update.await;
        done.map_err(|error| error.of_domain(registered.kind.domain.0))
    }

    /// Deletes a resource: [`Platform::delete`] with the type erased.
    ///
    /// # Errors
    /// As [`Platform::delete`].
    pub async fn delete_erased(&self, caller: &Caller, registered: &Registered, uid: &str) -> Result<()> {
        let done = self.settle(caller, |cx| Box::pin(verbs::delete::delete(cx, registered, uid))).await;
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
        let done = match (caller, action.needs) {
            (_, Needs::Nothing) => answer(&Cx::new(self, &nobody(), Arc::new(Grants::none())), action, request).await,
            (None, _) => Err(Error::unauthenticated("A bearer token is needed")),
            (Some(caller), _) => self.settle(caller, |cx| Box::pin(answer(cx, action, request))).await,
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
        let cx = Cx::new(self, caller, self.grants_of(caller).await?);
        if verbs::demand(&cx, kind, verb, uid).await.is_ok() {
            return Ok(());
        }
        let done = self.settle(caller, |cx| Box::pin(verbs::demand(cx, kind, verb, uid))).await;
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
        if let Needs::At(field, _) = action.needs
            && verbs::action::sent(action, field, request).is_none()
        {
            return Ok(());
        }
        let cx = Cx::new(self, caller, self.grants_of(caller).await?);
        if verbs::action::demand(&cx, action, request).is_ok() {
            return Ok(());
        }
        let done = self.settle(caller, |cx| Box::pin(async { verbs::action::demand(cx, action, request) })).await;
        done.map_err(|error| error.of_domain(kind.domain.0))
    }

    /// Returns the public documents of advisories as they were last made.
    pub(crate) fn documents(&self) -> &Kept {
        &self.documents
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

    /// Does an operation with the caller's grants, and again for as long as they turn out to have changed meanwhile.
    pub(crate) async fn settle<'a, T>(
        &'a self,
        caller: &'a Caller,
        operation: impl for<'c> Fn(&'c Cx<'a>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS {
            let cx = Cx::new(self, caller, self.grants_of(caller).await?);
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
        let operator = self.settings.operators.contains(&caller.identity);
        let grants = Arc::new(resolve(self.store(), caller, operator).await?);
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
        self.settle(caller, |cx| {
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
        self.settle(caller, |cx| Box::pin(async move { if cx.is_operator() { Ok(()) } else { Err(Error::denied()) } }))
            .await
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
async fn answer(cx: &Cx<'_>, action: &'static Action, request: &Map<String, Value>) -> Result<Answer> {
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
