//! A watch: a position in the logs of its organizations, and the access of its caller.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    future::Future,
    ops::Deref,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use event_listener::EventListener;

use super::{
    Changed, Closing, MAX_ORGANIZATIONS, WatchEvent, What,
    hub::Dependence,
    is_watchable, lease,
    log::{self, Change, ChangeType, Entry},
    tail::{Found, Interest, PAGE, PAGE_BYTES, Subscription},
    token::{self, Place, Token},
};
use crate::{
    access::Caller,
    error::{Code, Error, Result},
    kind::{Kind, Registered},
    platform::Platform,
    request::{FILTER, ListRequest},
    scope::Scopes,
    store::{Item, Scope},
    timestamp::Timestamp,
    uid::Uid,
    verbs::watch::{self as verb, Shown},
};

/// A request to watch a list.
#[derive(Debug, Clone)]
pub struct WatchRequest {
    /// The list. Its order, its page size, `skip` and its page token are not used.
    pub list: ListRequest,
    /// Whether events have only the uid and the tag of a resource.
    pub names: bool,
    /// Whether the watch begins with all resources of the list, as `added`, and a bookmark that ends them.
    pub initial_state: bool,
    /// Where to resume; `None` to begin with the present.
    pub resume: Option<ResumeFrom>,
}

/// Where a watch resumes.
#[derive(Debug, Clone)]
pub enum ResumeFrom {
    /// A token that the client can replace when it is too old: that is an error.
    Token(String),
    /// The id of the last event of a client that reconnects by itself, which an error would not stop. If it is too old,
    /// the watch begins with [`What::Expired`].
    LastEventId(String),
}

/// An organization of a watch.
#[derive(Debug)]
struct Source {
    subscription: Subscription,
    place: Place,
    /// Whether the watch has reached the records that the watches of the process share.
    is_live: bool,
}

/// The state that is being sent.
#[derive(Debug)]
struct Sending {
    /// The last resource that was sent; empty before the first.
    after: Uid,
}

/// What a watch has found.
enum Read {
    /// Events, the end of the watch, or changes that it does not show.
    Something,
    /// Nothing. One of these is notified when there may be something.
    Nothing(Vec<EventListener>),
}

/// A watch of a list. It reads when [`Watcher::next`] is called, and never otherwise.
///
/// Events are in the order of the commits of each organization. Each change since the token is reported exactly once;
/// with the state, a resource that changes while the state is sent may be reported as it is after the change, and then
/// not again for it.
#[derive(Debug)]
pub struct Watcher<P> {
    platform: P,
    caller: Caller,
    registered: Registered,
    list: ListRequest,
    names: bool,
    /// The scopes are those that the caller saw when the watch began.
    interest: Arc<Interest>,
    /// The hash of the list, for tokens.
    hash: u64,
    sources: Vec<Source>,
    /// The source that is read first, so that none keeps the others from being read.
    turn: usize,
    sending: Option<Sending>,
    /// The resources that the state showed as they were after a commit that the log has yet to report, with its sequence.
    ahead: HashMap<Uid, u64>,
    queue: VecDeque<WatchEvent>,
    dependence: Dependence,
    /// How often epochs of watches had been raised when the access was last checked.
    checked: Option<u64>,
    /// The token of the last event that was returned.
    sent: String,
    has_ended: bool,
}

impl Platform {
    /// Deletes the records of the logs of changes that are no longer needed. A server calls it at intervals of seconds to minutes: a
    /// log that nobody watches any longer is written until then. Its work is bounded, and it may leave a rest.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn sweep_change_logs(&self) -> Result<()> {
        let mut last = None;
        loop {
            let some = lease::organizations(self.store(), last.as_ref(), PAGE).await?;
            for organization in &some {
                lease::sweep(self.store(), organization, self.now()).await?;
            }
            match some.into_iter().next_back() {
                Some(uid) => last = Some(uid),
                None => return Ok(()),
            }
        }
    }
}

impl<P: Deref<Target = Platform>> Watcher<P> {
    /// Begins to watch a list of a platform, which is a reference to one or an [`Arc`]. [`Watcher::next`] returns its
    /// changes.
    ///
    /// # Errors
    /// PERMISSION_DENIED when the list has nothing that the caller could see, whatever is created later; INVALID_ARGUMENT
    /// for a list of more than [`MAX_ORGANIZATIONS`] organizations or of resources in none, for a parameter that filters
    /// by a value that is not shown, and for a malformed token; OUT_OF_RANGE for a token that is too old; NOT_FOUND for
    /// the resource that the list belongs to; UNIMPLEMENTED for a list that [cannot be watched](is_watchable); and those of the store.
    pub async fn open(platform: P, caller: &Caller, registered: &Registered, request: WatchRequest) -> Result<Self> {
        let opened = Self::opened(platform, caller, registered, request).await;
        opened.map_err(|error| error.of_domain(registered.kind.domain.name))
    }

    async fn opened(platform: P, caller: &Caller, registered: &Registered, request: WatchRequest) -> Result<Self> {
        let WatchRequest { list, names, initial_state, resume } = request;
        let kind = registered.kind;
        check_filters(kind, &list)?;
        let interest = Arc::new(interest(&platform, caller, registered, &list).await?);
        let token = match &resume {
            None => None,
            Some(ResumeFrom::LastEventId(text)) => Token::parse(text),
            Some(ResumeFrom::Token(text)) => {
                let rule = "is not a token of a watch: omit it, and list again";
                Some(Token::parse(text).ok_or_else(|| Error::invalid_field("resumeToken", rule))?)
            }
        };
        // Registered before the logs are opened; the access is checked again before the first event.
        let dependence = platform.hub().depends_on(Arc::clone(&interest.epochs));
        let scopes = &interest.scopes;
        let hash = token::hash(kind.name, list.binding.bytes(), scopes.as_slice());
        let (mut sources, mut places) = (Vec::new(), Vec::new());
        for organization in organizations(scopes)? {
            let (tail, lease) = platform.hub().open(platform.store(), &organization, platform.now()).await?;
            let resumed = token.as_ref().and_then(|token| token.places.get(sources.len())).copied();
            let is_known =
                |place: &Place| place.since == lease.since && place.after >= lease.first && place.after <= lease.end;
            places.extend(resumed.filter(is_known));
            let place = Place { since: lease.since, after: lease.end, skip: 0 };
            sources.push(Source { subscription: tail.subscribe(&interest), place, is_live: false });
        }
        let is_of_list = |token: &Token| token.list == hash && token.places.len() == sources.len();
        let resumed = token.filter(|token| is_of_list(token) && places.len() == sources.len());
        let is_expired = resume.is_some() && resumed.is_none();
        if is_expired && matches!(resume, Some(ResumeFrom::Token(_))) {
            let message = "The changes since this token are no longer known: list again, and watch without a token";
            return Err(Error::new(Code::OutOfRange, message));
        }
        let sending = match resumed {
            Some(token) => {
                sources.iter_mut().zip(places).for_each(|(source, place)| source.place = place);
                token.state.map(|after| Sending { after })
            }
            None => initial_state.then(|| Sending { after: Uid::default() }),
        };
        let mut watcher = Self {
            platform,
            caller: caller.clone(),
            registered: *registered,
            list,
            names,
            interest,
            hash,
            sources,
            turn: 0,
            sending,
            ahead: HashMap::new(),
            queue: VecDeque::new(),
            dependence,
            checked: None,
            sent: String::new(),
            has_ended: false,
        };
        watcher.sent = watcher.position();
        if is_expired {
            watcher.push(What::Expired);
        } else if watcher.sending.is_none() {
            watcher.push(What::Bookmark { ends_state: false });
        }
        Ok(watcher)
    }

    /// Waits for the next event; `None` after [`What::Closing`]. An error ends the watch with such an event.
    ///
    /// One watch of an organization reads for the others of the process, so poll the future until it is ready, or drop it.
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.next_paced(|_| std::future::ready(())).await
    }

    /// Waits for the next event, as [`Watcher::next`] does, and reads the changes of an organization at most once in 5 ms: it
    /// waits for the rest of that time with `sleep`. Commits do not wake a watch meanwhile, so that a server that is written
    /// all the time spends little on its watches.
    ///
    /// Cancel safe, if `sleep` is.
    pub async fn next_paced<S: Future<Output = ()>>(&mut self, sleep: impl Fn(Duration) -> S) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                self.sent.clone_from(&event.token);
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            let advanced = match self.advance().await {
                Ok(Read::Something) => Ok(()),
                Ok(Read::Nothing(listeners)) => self.wait(listeners, &sleep).await,
                Err(error) => Err(error),
            };
            if let Err(error) = advanced {
                self.close(Closing::because(&error));
            }
        }
    }

    /// Waits until one of the listeners is notified, or until this watch has read on in one of its logs for all.
    async fn wait<S: Future<Output = ()>>(
        &self,
        mut listeners: Vec<EventListener>,
        sleep: &impl Fn(Duration) -> S,
    ) -> Result<()> {
        let (store, now) = (self.platform.store(), || self.now());
        let subscriptions = self.sources.iter().map(|source| &source.subscription);
        let mut leads: Vec<_> = subscriptions.map(|one| Box::pin(one.lead(store, now, sleep))).collect();
        std::future::poll_fn(|cx| {
            if listeners.iter_mut().any(|listener| Pin::new(listener).poll(cx).is_ready()) {
                return Poll::Ready(Ok(()));
            }
            let led = leads.iter_mut().map(|lead| lead.as_mut().poll(cx)).find(Poll::is_ready);
            led.unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Does the work that no change triggers; call it every few seconds. Checks the caller's access, which other servers may
    /// have changed, and looks for changes whose messages were lost. Errors end the watch.
    pub async fn tick(&mut self) {
        self.checked = None;
        let (store, now) = (self.platform.store(), self.platform.now());
        for source in &self.sources {
            if let Err(error) = source.subscription.tail().tick(store, now).await {
                let closing = Closing::because(&error);
                return self.close(closing);
            }
        }
    }

    /// Returns an event without a change, whose token is newer than that of the last event if other lists have changed
    /// since.
    pub fn bookmark(&mut self) -> WatchEvent {
        if self.queue.is_empty() && !self.has_ended {
            for source in &mut self.sources {
                source.pass(source.subscription.passed(source.place.since));
            }
            self.sent = self.position();
        }
        WatchEvent { what: What::Bookmark { ends_state: false }, token: self.sent.clone() }
    }

    /// Ends the watch: the next event is [`What::Closing`]. It can be resumed after the last event that was returned.
    pub fn close(&mut self, closing: Closing) {
        if !self.has_ended {
            self.has_ended = true;
            self.queue.clear();
            self.queue.push_back(WatchEvent { what: What::Closing(closing), token: self.sent.clone() });
        }
    }

    /// Returns the kind that is watched.
    pub const fn kind(&self) -> &'static Kind {
        self.registered.kind
    }

    /// Returns the current time of the platform.
    pub fn now(&self) -> Timestamp {
        self.platform.now()
    }

    fn token(&self) -> Token {
        Token {
            list: self.hash,
            places: self.sources.iter().map(|source| source.place).collect(),
            state: self.sending.as_ref().map(|sending| sending.after.clone()),
        }
    }

    fn position(&self) -> String {
        self.token().text()
    }

    fn push(&mut self, what: What) {
        let token = self.position();
        self.queue.push_back(WatchEvent { what, token });
    }

    /// Adds events to the queue.
    async fn advance(&mut self) -> Result<Read> {
        // Before anything is read, so that later changes wake the watch.
        let listeners = self.sources.iter().map(|source| source.subscription.listen());
        let listeners: Vec<_> = listeners.chain([self.dependence.listen()]).collect();
        // A watch waits most of the time, and has no room for the rest then: long values are boxed.
        Box::pin(self.check_access()).await?;
        if self.has_ended {
            return Ok(Read::Something);
        }
        if self.sending.is_some() {
            Box::pin(self.send_state()).await?;
            return Ok(Read::Something);
        }
        for turn in 0..self.sources.len() {
            let index = (self.turn + turn) % self.sources.len();
            if Box::pin(self.advance_in(index)).await? {
                self.turn = index + 1;
                return Ok(Read::Something);
            }
        }
        Ok(Read::Nothing(listeners))
    }

    /// Reads on in the log of an organization. Returns whether there was anything.
    async fn advance_in(&mut self, index: usize) -> Result<bool> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(false) };
        let place = source.place;
        match source.subscription.read((place.since, place.after)) {
            Found::Nothing(end) => {
                source.is_live = true;
                source.pass(Some(end));
                Ok(false)
            }
            Found::Entries(entries) => {
                source.is_live = true;
                self.deliver(index, &entries).await?;
                Ok(true)
            }
            Found::Behind if source.is_live => {
                let message = "The client has read too slowly: resume from the last event";
                self.close(Closing::retryable(Code::ResourceExhausted, message));
                Ok(true)
            }
            Found::Behind => {
                let (store, organization) = (self.platform.store(), source.subscription.tail().organization().clone());
                let epochs = [log::watched(&organization), lease::trimmed_epoch(&organization)];
                let query = log::after(&organization, place.after, PAGE, PAGE_BYTES, &epochs);
                let page = store.list(&query).await?;
                let (lease, _) = lease::read(store, &organization).await?;
                // The lease was read after the page, so nothing that it says is kept is missing in the page.
                match lease.filter(|lease| lease.since == place.since && place.after >= lease.first) {
                    Some(_) => {
                        let entries = page.items.iter().map(|item| Entry::parse(item).map(Arc::new));
                        self.deliver(index, &entries.collect::<Result<Vec<_>>>()?).await?;
                    }
                    None => self.restart(index).await?,
                }
                Ok(true)
            }
            Found::Restarted => {
                self.restart(index).await?;
                Ok(true)
            }
        }
    }

    /// Goes on from the present in an organization whose log no longer has the next changes.
    async fn restart(&mut self, index: usize) -> Result<()> {
        let Some(source) = self.sources.get(index) else { return Ok(()) };
        let organization = source.subscription.tail().organization().clone();
        let (_, lease) = self.platform.hub().open(self.platform.store(), &organization, self.platform.now()).await?;
        if let Some(source) = self.sources.get_mut(index) {
            source.place = Place { since: lease.since, after: lease.end, skip: 0 };
        }
        self.push(What::Expired);
        Ok(())
    }

    /// Adds the events of records of a log to the queue.
    async fn deliver(&mut self, index: usize, entries: &[Arc<Entry>]) -> Result<()> {
        for entry in entries {
            let Some(place) = self.sources.get(index).map(|source| source.place) else { return Ok(()) };
            if self.interest.depends_on(&entry.raised) {
                // The caller must not see after the commit what it has revoked.
                self.checked = None;
                self.check_access().await?;
                if self.has_ended {
                    return Ok(());
                }
            }
            let is_shown = |change: &Change| {
                let is_ahead = self.ahead.get(&change.uid).is_some_and(|known| *known >= entry.sequence);
                !is_ahead && self.interest.shows(change)
            };
            let changes = entry.changes.iter().enumerate().skip(place.skip);
            let changes: Vec<_> = changes.filter(|(_, change)| is_shown(change)).collect();
            let mut whats = Vec::with_capacity(changes.len());
            for (number, change) in changes {
                whats.push((number, self.what(entry.sequence, change).await?));
            }
            // Nothing is awaited from here on, so that the position and the queue change together.
            let last = entry.changes.len();
            for (number, what) in whats {
                if let Some(source) = self.sources.get_mut(index) {
                    let after = number + 1;
                    source.place = if after == last {
                        Place { after: entry.sequence, skip: 0, ..place }
                    } else {
                        Place { skip: after, ..place }
                    };
                }
                self.push(what);
            }
            if let Some(source) = self.sources.get_mut(index) {
                source.place = Place { after: entry.sequence, skip: 0, ..place };
            }
            if entry.overflowed {
                self.push(What::Expired);
            }
        }
        Ok(())
    }

    /// Returns a change as this watch reports it.
    async fn what(&self, sequence: u64, change: &Change) -> Result<What> {
        let gone = || What::Deleted(Changed { uid: change.uid.clone(), resource: None, tag: None });
        let Some(body) = change.body.clone().filter(|_| change.ty != ChangeType::Deleted) else { return Ok(gone()) };
        let item = Item::new(change.uid.clone(), sequence, change.rendering, body, false);
        let shown = self.shown(&[item]).await?.pop().flatten();
        // It may have been in the list before: for its reader, it is gone.
        let Some(shown) = shown else { return Ok(gone()) };
        let changed = self.changed(change.uid.clone(), shown);
        Ok(if change.ty == ChangeType::Added { What::Added(changed) } else { What::Modified(changed) })
    }

    fn changed(&self, uid: Uid, Shown { body, tag }: Shown) -> Changed {
        Changed { uid, resource: Some(body).filter(|_| !self.names), tag }
    }

    /// Returns stored resources as the list shows them, `None` for each that its filters exclude.
    async fn shown(&self, items: &[Item]) -> Result<Vec<Option<Shown>>> {
        if let Some(shown) = verb::shown_as_stored(&self.registered, &self.list, items) {
            return Ok(shown);
        }
        let (registered, list) = (&self.registered, &self.list);
        self.platform.with_caller(&self.caller, |cx| Box::pin(verb::shown(cx, registered, list, items))).await
    }

    /// Adds a page of the state to the queue.
    async fn send_state(&mut self) -> Result<()> {
        let Some(sending) = &self.sending else { return Ok(()) };
        let (registered, list, scopes, after) = (&self.registered, &self.list, &self.interest.scopes, &sending.after);
        let page = self
            .platform
            .with_caller(&self.caller, |cx| Box::pin(verb::state_page(cx, registered, list, scopes.as_slice(), after)));
        let (items, is_last) = page.await?;
        for (uid, revision, shown) in items {
            let position =
                self.sources.iter().find(|source| source.subscription.tail().organization().as_str() == uid.root());
            if position.is_some_and(|source| revision > source.place.after) {
                self.ahead.insert(uid.clone(), revision);
            }
            self.sending = Some(Sending { after: uid.clone() });
            if let Some(shown) = shown {
                let changed = self.changed(uid, shown);
                self.push(What::Added(changed));
            }
        }
        if is_last {
            self.sending = None;
            self.push(What::Bookmark { ends_state: true });
        }
        Ok(())
    }

    /// Ends the watch if its caller's access is not the same as when it began.
    async fn check_access(&mut self) -> Result<()> {
        let raised = self.dependence.raised();
        if self.checked == Some(raised) {
            return Ok(());
        }
        let interest = Arc::new(interest(&self.platform, &self.caller, &self.registered, &self.list).await?);
        if interest.scopes != self.interest.scopes {
            let message = "What you may see has changed: resume, and list again";
            self.close(Closing::retryable(Code::Aborted, message));
            return Ok(());
        }
        self.dependence = self.platform.hub().depends_on(Arc::clone(&interest.epochs));
        self.sources.iter().for_each(|source| source.subscription.set_interest(&interest));
        self.interest = interest;
        self.checked = Some(raised);
        Ok(())
    }
}

impl Source {
    /// Goes on after a sequence up to which nothing concerns the watch that it has not read.
    fn pass(&mut self, sequence: Option<u64>) {
        if let Some(after) = sequence.filter(|sequence| *sequence > self.place.after) {
            self.place = Place { after, skip: 0, ..self.place };
        }
    }
}

/// Returns the changes that concern a watch of the part of a list that a caller may see now.
async fn interest(
    platform: &Platform,
    caller: &Caller,
    registered: &Registered,
    list: &ListRequest,
) -> Result<Interest> {
    let (scopes, epochs) = platform.with_caller(caller, |cx| Box::pin(verb::visible(cx, registered, list))).await?;
    if scopes.is_empty() {
        return Err(Error::denied());
    }
    Ok(Interest { kind: registered.kind.name, scopes, epochs })
}

/// Returns the organizations of these scopes, in order.
fn organizations(scopes: &Scopes) -> Result<BTreeSet<Uid>> {
    let mut organizations = BTreeSet::new();
    for scope in scopes.as_slice() {
        match scope {
            Scope::Subtree(uid) | Scope::Children(uid) | Scope::Exact(uid) => {
                organizations.insert(Uid::opaque(uid.root().to_owned()));
            }
            Scope::All | Scope::Roots => organizations.clear(),
        }
        if organizations.is_empty() || organizations.len() > MAX_ORGANIZATIONS {
            let rule = format!(
                "must name a resource: a watch is of 1 to {MAX_ORGANIZATIONS} organizations, and without this parameter of \
                 all resources that you may see, even those in no organization"
            );
            return Err(Error::invalid_field("uidp.descendants_of", rule));
        }
    }
    Ok(organizations)
}

/// Rejects a list whose filters cannot be evaluated from the records of the log.
fn check_filters(kind: &Kind, list: &ListRequest) -> Result<()> {
    if !is_watchable(kind) {
        return Err(Error::new(Code::Unimplemented, "This list cannot be watched"));
    }
    let private = kind.keys.iter().filter(|key| key.is_of_private()).map(|key| key.name);
    for key in private {
        if list.filters.iter().any(|filter| filter.keys().contains(&key)) {
            return Err(Error::invalid_field(FILTER.name, "a watch cannot filter by values that are not shown"));
        }
    }
    Ok(())
}
