//! The context of one operation: the caller, their grants, and reads and commits on their behalf.
//!
//! Every read and commit made through it is checked against the epochs that the caller's grants were read at: those of
//! the identity, and those of the organizations that the operation has asked about so far. When one of them has
//! changed, the operation fails with a private error, and the platform resolves the grants again and retries the
//! operation. So every grant and every revocation that was acknowledged before the operation began takes effect.
//!
//! A context does not change while an operation runs, except that its basis grows. A part of an operation that has to see
//! something else, the state after its write or events of another version, gets a context of its own that shares the
//! basis. Rejected: setting it on the context of the operation, because every hook that runs later would see it too.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    access::{
        AsOf, Caller, Capabilities, Capability, CapabilitySet, Grants, Narrowing, Nodes, RegistrationId, topmost,
    },
    error::{Code, Error, Result},
    event::{Audience, Draft, Event, Recorded},
    kind::{Kind, Registered, Roots, Verb},
    options::RequestOptions,
    platform::Platform,
    scope::Scopes,
    store::{Epoch, Key, Page, Put, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::{self, Uid},
    write::{Deferred, Write},
};

mod commit;
mod denial;
mod not_empty;
mod reads;

/// The maximum number of attempts of an operation while the data that it depends on keeps changing.
///
/// Of any number of concurrent writers of one resource, at least one commits in each round, so this suffices for as
/// many writers.
pub const MAX_ATTEMPTS: usize = 256;

/// Repeats an operation while its result is [stale](Error::is_stale), up to [`MAX_ATTEMPTS`] times.
///
/// # Errors
/// Those of the operation, and ABORTED after the last attempt.
pub async fn retry<T, F: Future<Output = Result<T>>>(mut operation: impl FnMut() -> F) -> Result<T> {
    for _ in 0..MAX_ATTEMPTS {
        match operation().await {
            Err(error) if error.is_stale() => {}
            done => return done,
        }
    }
    Err(Error::busy())
}

/// The caller of an operation, their grants, and the platform.
#[derive(Debug)]
pub struct Context<'a> {
    platform: &'a Platform,
    /// `None` for an operation that needs no caller. Its grants are empty.
    caller: Option<&'a Caller>,
    grants: Arc<Grants>,
    options: &'a RequestOptions,
    basis: Shared<'a>,
    /// The conversion of the operation's events into those of another version of the API.
    conversion: Option<EventConversion>,
    /// The records of a write that is not committed yet, which reads return in place of the stored ones.
    pending: Vec<Record>,
    /// Where the operation leaves its write, if it does not commit it itself.
    deferred: Option<Arc<Deferred>>,
}

/// The basis of an operation: its own, or that of the context from which this one was made.
#[derive(Debug)]
enum Shared<'a> {
    Own(Mutex<Basis>),
    Of(&'a Mutex<Basis>),
}

/// Converts an event into the form of another version of the API.
type EventConversion = fn(&Capabilities, &mut Draft);

/// The epochs that the access decisions of an operation depend on so far.
///
/// The basis starts with the epochs of the identity, and an organization's epoch is added when the operation first asks
/// for capabilities there. A change of grants in any other organization does not make the operation retry.
#[derive(Debug)]
struct Basis {
    /// The indices in [`Grants::organizations`] of the organizations that the operation asked about.
    places: Vec<usize>,
    /// The epochs of the identity and of these organizations.
    as_of: AsOf,
    /// Whether a read or commit has shown that these epochs have not changed. Reset when the basis grows, because the
    /// added epoch has not been compared yet.
    confirmed: bool,
}

/// A list over more scopes than this depends on all organizations of its caller, because growing the basis by one
/// organization at a time takes quadratic time.
const MANY_PLACES: usize = 8;

impl<'a> Context<'a> {
    pub(crate) fn new(
        platform: &'a Platform,
        caller: Option<&'a Caller>,
        grants: Arc<Grants>,
        options: &'a RequestOptions,
    ) -> Self {
        let basis = Basis { places: Vec::new(), as_of: grants.as_of(&[]), confirmed: false };
        let basis = Shared::Own(Mutex::new(basis));
        Self { platform, caller, grants, options, basis, conversion: None, pending: Vec::new(), deferred: None }
    }

    /// Returns the same operation as it is after this write: reads of records return its puts, with revision 0.
    ///
    /// A reply is rendered so before the commit, because the event of the commit contains it.
    pub(crate) fn after<'v>(&'v self, write: &Write) -> Context<'v> {
        let record = |put: &Put| Record {
            key: put.key.clone(),
            revision: 0,
            rendering: put.rendering,
            body: put.body.clone(),
            private: put.private.clone(),
        };
        Context { pending: write.puts().map(record).collect(), ..self.view() }
    }

    /// Returns the same operation, with its events in the form of another version of the API.
    pub(crate) fn converting<'v>(&'v self, convert: EventConversion) -> Context<'v> {
        Context { conversion: Some(convert), ..self.view() }
    }

    /// Returns a part of the same operation that is about another resource.
    pub(crate) fn part<'v>(&'v self) -> Context<'v> {
        Context { options: self.options.of_part(), ..self.view() }
    }

    fn view<'v>(&'v self) -> Context<'v> {
        Context {
            platform: self.platform,
            caller: self.caller,
            grants: Arc::clone(&self.grants),
            options: self.options,
            basis: Shared::Of(self.basis()),
            conversion: self.conversion,
            pending: self.pending.clone(),
            deferred: self.deferred.clone(),
        }
    }

    fn basis(&self) -> &Mutex<Basis> {
        match &self.basis {
            Shared::Own(basis) => basis,
            Shared::Of(basis) => basis,
        }
    }

    /// Returns the context of an operation without a caller, which has no grants that could become stale.
    pub(crate) fn without_caller(platform: &'a Platform, options: &'a RequestOptions) -> Self {
        Self::new(platform, None, Arc::new(Grants::none()), options)
    }

    /// Returns the options of the request.
    pub fn options(&self) -> &'a RequestOptions {
        self.options
    }

    /// Returns the platform.
    pub fn platform(&self) -> &'a Platform {
        self.platform
    }

    /// Returns the caller; `None` in an operation that needs no caller, such as a public action or an open list.
    pub fn caller(&self) -> Option<&'a Caller> {
        self.caller
    }

    /// Returns the caller of an operation that needs one.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a caller.
    pub fn demand_caller(&self) -> Result<&'a Caller> {
        self.caller.ok_or_else(Error::missing_token)
    }

    /// Returns the caller of a method about the caller itself that needs no capability. A narrowed token, which allows
    /// only the capabilities that it names, does not allow such a method.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a caller, PERMISSION_DENIED for a narrowed token.
    pub fn demand_caller_itself(&self) -> Result<&'a Caller> {
        let caller = self.demand_caller()?;
        if caller.narrowing.is_none() { Ok(caller) } else { Err(Error::denied()) }
    }

    fn narrowing(&self) -> Option<&'a Narrowing> {
        self.caller.and_then(|caller| caller.narrowing.as_deref())
    }

    /// Returns the grants of the caller's identity, without the narrowing of the token. The operation then depends on
    /// all of them.
    pub fn grants(&self) -> &Grants {
        self.depend_on_all();
        &self.grants
    }

    pub(crate) fn shared_grants(&self) -> Arc<Grants> {
        self.depend_on_all();
        Arc::clone(&self.grants)
    }

    /// Returns whether the caller is the installation's operator, with a token that is not narrowed.
    pub fn is_operator(&self) -> bool {
        self.grants.operator && self.narrowing().is_none()
    }

    /// Returns the id of the person's registration that the caller acts as; `None` for an identity of a group and for a
    /// registration without an id.
    pub fn registration(&self) -> Option<RegistrationId> {
        self.grants.registration()
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.platform.now()
    }

    /// Returns the capabilities that the caller holds at a uid, within the narrowing of the token.
    pub fn held_at(&self, uid: &str) -> CapabilitySet {
        self.depend_on(uid);
        self.held(uid)
    }

    fn held(&self, uid: &str) -> CapabilitySet {
        let held = self.grants.at(uid);
        match self.narrowing() {
            None => held,
            Some(narrowing) => held.intersection(narrowing.at(uid)),
        }
    }

    /// Returns whether the caller holds all of these capabilities at the uid.
    pub fn allows(&self, uid: &str, capabilities: &[Capability]) -> bool {
        self.held_at(uid).contains_all(capabilities)
    }

    /// Returns where the caller holds all of these capabilities.
    pub fn nodes(&self, capabilities: &[Capability]) -> Nodes {
        self.depend_on_all();
        self.topmost(capabilities)
    }

    fn topmost(&self, capabilities: &[Capability]) -> Nodes {
        match self.narrowing() {
            None => self.grants.nodes(capabilities),
            Some(narrowing) => {
                // The intersection of grants and narrowing changes only at groups that one of them names, so the
                // topmost groups are among these.
                let groups = self.grants.groups().chain(narrowing.groups());
                Nodes::Below(topmost(groups, |group| self.held(group).contains_all(capabilities)))
            }
        }
    }

    /// Makes the rest of the operation depend on the grants in the organization of a uid. Without a binding there, the
    /// epochs of the identity suffice, because every new binding raises the identity's epoch.
    fn depend_on(&self, uid: &str) {
        let Some(place) = self.grants.place_of(uid::root(uid)) else { return };
        let mut basis = self.basis().lock();
        if !basis.places.contains(&place) {
            basis.places.push(place);
            basis.as_of = self.grants.as_of(&basis.places);
            basis.confirmed = false;
        }
    }

    /// Makes the rest of the operation depend on all grants.
    fn depend_on_all(&self) {
        let all = self.grants.as_of_all();
        let mut basis = self.basis().lock();
        // The basis is a subset of all epochs, so it is complete if both have the same number of epochs.
        if basis.as_of.epochs.len() < all.epochs.len() {
            basis.places = (0..self.grants.organizations().len()).collect();
            basis.as_of = all;
            basis.confirmed = false;
        }
    }

    /// Checks that the caller holds all of these capabilities at the uid.
    ///
    /// # Errors
    /// PERMISSION_DENIED otherwise, the same whether or not the resource exists.
    pub fn demand(&self, uid: &str, capabilities: &[Capability]) -> Result<()> {
        if self.allows(uid, capabilities) { Ok(()) } else { Err(self.denied(uid, capabilities.iter().copied())) }
    }

    /// Checks that the caller may call this method for the uid, whether or not the resource exists (`docs/api.md`,
    /// Access).
    pub(crate) fn demand_method(&self, kind: &Kind, verb: Verb, uid: &Uid) -> Result<()> {
        let Some(method) = kind.method(verb) else { return Err(Error::denied()) };
        // Resources without a parent group have rules of their own, by the kind's table.
        let by_root = uid.is_root()
            && match kind.roots {
                Roots::Granted => false,
                Roots::Shared => verb == Verb::Get && !self.nodes(method.capabilities).is_empty(),
                Roots::Personal => {
                    self.is_operator()
                        || (verb == Verb::Get && self.own_root(method.capabilities).is_some_and(|own| own == uid))
                }
            };
        if by_root { Ok(()) } else { self.demand(uid, method.capabilities) }
    }

    /// Returns the uid of the caller's own resource without a parent group, which a person may read without a role. A
    /// narrowed token must name the capabilities that others need for that; otherwise, `None`.
    pub fn own_root(&self, capabilities: &[Capability]) -> Option<&'a Uid> {
        let is_allowed = self.narrowing().is_none_or(|narrowing| narrowing.allows_somewhere(capabilities));
        self.caller.map(|caller| &caller.identity).filter(|identity| is_allowed && identity.is_root())
    }

    /// Returns the scopes in which the caller may list a kind. Use only their intersection with `places`: this call
    /// makes the operation depend on the grants in `places`, and grants elsewhere may be stale.
    pub fn visible(&self, kind: &Kind, capabilities: &[Capability], places: &Scopes) -> Scopes {
        let anywhere = |place: &Scope| matches!(place, Scope::All | Scope::Roots);
        let places = places.as_slice();
        // A grant at any group makes shared roots visible, so their visibility depends on all grants.
        if kind.roots == Roots::Shared || places.len() > MANY_PLACES || places.iter().any(anywhere) {
            self.depend_on_all();
        }
        for place in places.iter().take(MANY_PLACES) {
            if let Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) = place {
                self.depend_on(uid);
            }
        }
        let Nodes::Below(nodes) = self.topmost(capabilities) else { return Scopes::all() };
        let roots = match kind.roots {
            Roots::Granted => None,
            Roots::Shared => (!nodes.is_empty()).then_some(Scope::Roots),
            Roots::Personal if self.is_operator() => Some(Scope::Roots),
            // A person sees their own identity. An identity in a group is listed like the group's other resources.
            Roots::Personal => self.own_root(capabilities).cloned().map(Scope::Exact),
        };
        Scopes::disjoint(nodes.iter().cloned().map(Scope::Subtree).chain(roots))
    }

    /// Returns whether the pending write puts this key.
    pub(crate) fn is_pending(&self, key: &Key) -> bool {
        self.pending.iter().any(|record| record.key == *key)
    }

    /// Returns the records of these keys, in the order of the keys; `None` for each that does not exist.
    ///
    /// # Errors
    /// [`Error::stale`] when the grants that this operation depends on have changed, and those of the store.
    pub async fn records(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        let as_of = self.as_of();
        let read = self.platform.store().get(keys, &as_of.epochs).await?;
        self.check_current(&as_of, &read.epochs)?;
        let mut records = read.records;
        for pending in &self.pending {
            let of_key = keys.iter().zip(&mut records).filter(|(key, _)| **key == pending.key);
            of_key.for_each(|(_, record)| *record = Some(pending.clone()));
        }
        Ok(records)
    }

    /// Reads the records of these keys and, in the same state of the store, the grants of other callers: each current
    /// for the organization that it is paired with, `None` for an identity that no longer exists. The narrowing of
    /// tokens is ignored.
    ///
    /// # Errors
    /// As [`Context::records`], and ABORTED when the grants of the other callers keep changing.
    pub async fn records_and_grants(
        &self,
        keys: &[Key],
        callers: &[(Caller, Uid)],
    ) -> Result<(Vec<Option<Record>>, Vec<Option<Arc<Grants>>>)> {
        let own = self.as_of();
        for _ in 0..MAX_ATTEMPTS {
            let (mut all, mut bases) = (Vec::new(), Vec::new());
            for (caller, organization) in callers {
                let grants = match self.platform.grants_of(caller).await {
                    Ok(grants) => Some(grants),
                    Err(error) if error.code() == Code::Unauthenticated => None,
                    Err(error) => return Err(error),
                };
                let places = |grants: &Arc<Grants>| Vec::from_iter(grants.place_of(organization));
                bases.push(grants.as_ref().map(|grants| grants.as_of(&places(grants))).unwrap_or_default());
                all.push(grants);
            }
            // One read returns the records and the epochs of all grants, so that everything is of one state. Cached
            // grants whose epochs have changed are dropped and resolved in the next round.
            let epochs: Vec<_> =
                std::iter::once(&own).chain(&bases).flat_map(|basis| basis.epochs.iter().cloned()).collect();
            let read = self.platform.store().get(keys, &epochs).await?;
            // The values are in the order of the epochs: those of this operation, then those of each caller.
            let (found, mut rest) = read.epochs.split_at_checked(own.values.len()).unwrap_or_default();
            self.check_current(&own, found)?;
            let mut current = true;
            for ((caller, _), basis) in callers.iter().zip(&bases) {
                let (found, left) = rest.split_at_checked(basis.values.len()).unwrap_or_default();
                rest = left;
                if *found != *basis.values {
                    self.platform.forget(caller);
                    current = false;
                }
            }
            if current {
                return Ok((read.records, all));
            }
        }
        Err(Error::busy())
    }

    /// Returns one record; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn record(&self, kind: &Kind, uid: &Uid) -> Result<Option<Record>> {
        let records = self.records(&[Key::new(kind.name, uid.clone())]).await?;
        Ok(records.into_iter().next().flatten())
    }

    /// Returns a page of records. The epochs of the query are replaced by those of the operation. Access is not
    /// checked.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn page(&self, query: Query) -> Result<Page> {
        let as_of = self.as_of();
        let query = Query { epochs: Arc::clone(&as_of.epochs), ..query };
        let page = self.platform.store().list(&query).await?;
        self.check_current(&as_of, &page.epochs)?;
        Ok(page)
    }

    /// Returns the values of these epochs, in their order. Later reads are at least as new.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn epochs(&self, epochs: &[Epoch]) -> Result<Vec<u64>> {
        let as_of = self.as_of();
        let all: Vec<_> = as_of.epochs.iter().chain(epochs).cloned().collect();
        let read = self.platform.store().get(&[], &all).await?;
        let (own, values) = read.epochs.split_at_checked(as_of.values.len()).unwrap_or_default();
        self.check_current(&as_of, own)?;
        Ok(values.to_vec())
    }

    /// Requires that these epochs keep the values that they have now until the commit, so that what is read afterwards
    /// is still so then.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn require_epochs(&self, write: &mut Write, epochs: Vec<Epoch>) -> Result<()> {
        let values = self.epochs(&epochs).await?;
        epochs.into_iter().zip(values).for_each(|(epoch, value)| write.require_or_retry(Require::Epoch(epoch, value)));
        Ok(())
    }

    /// Adds an event to the write of its change, for each subscription that matches. `draft` is called only when a
    /// subscription or a stream may match. `about` is the resource that changed, or another of its organization.
    ///
    /// Standard methods record their events by the kind's table.
    ///
    /// # Errors
    /// Those of the store and of `draft`.
    pub async fn record_event(
        &self,
        write: &mut Write,
        about: &Uid,
        draft: impl FnOnce() -> Result<Draft>,
    ) -> Result<()> {
        let platform = self.platform;
        let subscribers = platform.subscribers(about.root()).await?;
        if let Some(subscribers) = &subscribers {
            // Required even if there are no subscriptions: one that is created before the commit raises the epoch, and
            // the operation is retried.
            write.require_subscribers(subscribers);
        }
        let has_subscribers = subscribers.as_ref().is_some_and(|subscribers| !subscribers.all().is_empty());
        if !has_subscribers && !platform.streams().any() {
            return Ok(());
        }
        // Only the draft has the group and the audience, by which subscriptions and streams match.
        let mut draft = draft()?;
        if let Some(convert) = self.conversion {
            convert(platform.capabilities(), &mut draft);
        }
        if let Some(version) = self.caller.and_then(|caller| caller.version) {
            draft.in_version(version);
        }
        // A subscription that is deleted with the resource does not receive the event.
        let is_deleted = |uid: &Uid| draft.verb == Some(Verb::Delete) && uid.is_at_or_below(about);
        let subscriptions: Vec<Uid> = match (&subscribers, draft.audience) {
            (Some(subscribers), Audience::Customer) => {
                subscribers.of_group(&draft.group).filter(|uid| !is_deleted(uid)).cloned().collect()
            }
            _ => Vec::new(),
        };
        if subscriptions.is_empty() && !platform.streams().wants(&draft.group) {
            return Ok(());
        }
        let event = self.event_of(draft)?;
        if let Some(log) = platform.event_log().filter(|_| !subscriptions.is_empty()) {
            log.record(platform.entropy(), self.now(), write, &event, &subscriptions)?;
        }
        write.recorded.push(Recorded { event, subscriptions });
        Ok(())
    }

    /// Returns the event of a draft, made by the caller now.
    ///
    /// # Errors
    /// INTERNAL when the body cannot be written as JSON.
    pub fn event_of(&self, draft: Draft) -> Result<Event> {
        let (settings, entropy) = (self.platform.settings(), self.platform.entropy());
        let (prefix, url) = (settings.event_type_prefix.as_str(), settings.public_url.as_str());
        draft.finish(entropy, self.now(), prefix, url, self.caller.map(|caller| &caller.identity))
    }

    /// Adds the event of a standard method, if the kind's table names one. `reply` is the resource as the method
    /// returns it, `None` for a delete.
    ///
    /// # Errors
    /// As [`Context::record_event`].
    pub async fn record_method_event(
        &self,
        write: &mut Write,
        registered: &Registered,
        verb: Verb,
        uid: &Uid,
        reply: Option<&Bytes>,
    ) -> Result<()> {
        match registered.kind.method(verb).and_then(|method| method.event) {
            Some(ty) => {
                self.record_event(write, uid, || {
                    let mut draft = Draft::of_method(registered.kind, verb, ty, uid, reply)?;
                    (registered.customize_event)(&mut draft);
                    Ok(draft)
                })
                .await
            }
            None => Ok(()),
        }
    }

    /// Returns whether a read or commit has shown that the grants that the operation depends on are current.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.basis().lock().confirmed
    }

    /// Checks that the grants that the operation depends on are current.
    ///
    /// # Errors
    /// [`Error::stale`] when they are not.
    pub(crate) async fn confirm(&self) -> Result<()> {
        self.records(&[]).await.map(drop)
    }

    /// Returns the epochs that the operation depends on so far.
    pub(crate) fn basis_epochs(&self) -> Arc<[Epoch]> {
        self.as_of().epochs
    }

    fn as_of(&self) -> AsOf {
        self.basis().lock().as_of.clone()
    }

    /// Checks that these epochs, as a store has just returned them, have the values of `as_of`.
    fn check_current(&self, as_of: &AsOf, epochs: &[u64]) -> Result<()> {
        if *epochs != *as_of.values {
            return Err(Error::stale());
        }
        self.confirmed(as_of);
        Ok(())
    }

    /// Marks the basis as confirmed, unless it has grown since `as_of` was taken from it.
    fn confirmed(&self, as_of: &AsOf) {
        let mut basis = self.basis().lock();
        // The basis only grows, so equal lengths mean equal epochs.
        basis.confirmed |= basis.as_of.epochs.len() == as_of.epochs.len();
    }
}
