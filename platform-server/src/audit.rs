//! The audit log: who has changed what, which tokens were issued, and which requests were denied.
//!
//! A layer around the whole service attaches a [`Record`] to the scope of each request. While the request is handled, the
//! authenticator, the token service and the store of the server add what they know: the caller, the tokens that are
//! issued, the records that a commit changes. The entry is written when the answer is known, before it is sent, and after
//! the last commit that the request handed to the store. Since the scope carries such a request to its end, neither a
//! client that goes away nor a request that takes too long changes anything without an entry.

mod entry;
mod file;
mod log;
mod service;
mod store;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::http::{Method, Request, Response, Uri};
use futures_util::{
    TryFutureExt,
    future::{Either, MapOk},
};
use http_body::{Body, Frame, SizeHint};
use metrics::describe_counter;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use platform_engine::{
    BoxFuture,
    access::{Caller, Credential},
    clock::Clock,
    error::Code,
    idempotency,
    request_scope::RequestScope,
    uid::Uid,
};
use platform_http::{ApiMethod, Called, Origin, mount::pairs};
use platform_system::SystemClock;

use self::{
    entry::{Changed, Entry, Event, Issued, Upstream},
    log::Part,
};
pub(crate) use self::{
    log::AuditLog,
    service::{Authenticated, IssuedBy},
    store::Audited as AuditedStore,
};

/// The maximum length of a path in an entry, in bytes. Our choice.
const MAX_PATH: usize = 1024;
/// The maximum number of records that an entry names. Our choice.
const MAX_RECORDS: usize = 20;

const FAILURES: &str = "platform_audit_failures_total";

/// Registers the descriptions of the metrics.
pub(crate) fn describe() {
    describe_counter!(FAILURES, "Entries of the audit log that could not be written");
}

/// The state of a request's entry until it is written.
#[derive(Debug)]
struct Record {
    log: Arc<AuditLog>,
    /// The names of the methods that write, for gRPC.
    writes: Arc<BTreeSet<String>>,
    head: Head,
    notes: Mutex<Notes>,
}

/// The part of an entry that is known when the request arrives.
#[derive(Debug)]
struct Head {
    method: Method,
    uri: Uri,
    address: Option<String>,
}

impl Head {
    /// Returns the group to which an import writes.
    fn group(&self) -> Option<String> {
        self.uri.path().strip_prefix("/import/")?;
        // Also of a request that is refused because of its other parameters.
        let pairs = pairs(self.uri.query().unwrap_or_default()).ok()?;
        pairs.into_iter().find(|(name, _)| name == "parent").map(|(_, parent)| parent)
    }
}

/// The facts about a request while it is handled.
#[derive(Debug, Default)]
struct Notes {
    caller: Option<(Uid, Option<Arc<Credential>>)>,
    /// Why a sign-in has failed, which the response does not say.
    failed: Option<Code>,
    issued: Option<Issued>,
    changed: Vec<Changed>,
    /// The number of further records.
    more: usize,
    /// The sequence of the last commit.
    sequence: Option<u64>,
    /// Whether the outcome of a commit is unknown.
    uncertain: bool,
    /// The number of commits that the store has not finished.
    open: usize,
    answer: Option<Answer>,
    has_entry: bool,
}

/// The answer to a request.
#[derive(Debug)]
struct Answer {
    method: Arc<ApiMethod>,
    code: Option<Code>,
    request_id: Option<String>,
    /// Whether the request has begun a change that was not made before.
    has_begun: bool,
    client_gone: bool,
    /// The resource whose credential the request had, if it had no caller.
    principal: Option<Uid>,
}

impl Answer {
    fn new<B>(response: &Response<B>) -> Self {
        let (method, code) = Called::of(response);
        let request_id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let scope = RequestScope::current();
        // A repetition has tried to commit, which its earlier request had done.
        let is_replayed = response.headers().contains_key(idempotency::REPLAYED);
        Self {
            method,
            code,
            request_id,
            has_begun: !is_replayed && scope.as_ref().is_some_and(|scope| scope.has_begun()),
            client_gone: scope.as_ref().is_some_and(|scope| scope.is_abandoned()),
            principal: scope.and_then(|scope| scope.principal().cloned()),
        }
    }
}

/// Returns the record of the current request; `None` in work that belongs to no request.
fn current() -> Option<Arc<Record>> {
    RequestScope::current()?.attached()
}

/// Adds to the notes of the current request, if there is one.
fn note(add: impl FnOnce(&mut Notes)) {
    if let Some(record) = current() {
        add(&mut record.notes.lock());
    }
}

impl Notes {
    fn add_caller(&mut self, caller: &Caller) {
        self.caller = Some((caller.identity.clone(), caller.credential.clone()));
    }

    fn add_changed(&mut self, changed: Changed) {
        if self.changed.len() >= MAX_RECORDS {
            self.more += 1;
        } else if !self.changed.contains(&changed) {
            self.changed.push(changed);
        }
    }
}

impl Record {
    /// Notes the answer, and writes the entry. If a commit of a request that took too long has not ended yet, the entry is
    /// written once it has.
    fn answer<B>(&self, response: &Response<B>) {
        let mut notes = self.notes.lock();
        notes.answer = Some(Answer::new(response));
        if notes.open == 0 {
            self.write(&mut notes);
        }
    }

    /// Writes an entry for changes that are not in one yet. A response may go on for as long as an import.
    fn write_changes(&self) {
        let mut notes = self.notes.lock();
        if notes.open == 0 && !notes.changed.is_empty() {
            self.write(&mut notes);
        }
    }

    /// Writes an entry for the notes, if they are of interest, and removes its changes from them.
    fn write(&self, notes: &mut Notes) {
        let answer = notes.answer.as_ref();
        let code = match answer {
            Some(answer) => answer.code.or(notes.failed),
            None => Some(Code::Unknown),
        };
        let Some((event, part)) = self.classify(notes, code) else { return };
        let path = self.head.uri.path();
        let caller = notes.caller.as_ref();
        let principal = answer.and_then(|answer| answer.principal.as_deref());
        let group = self.head.group();
        let entry = Entry {
            time: SystemClock.now(),
            event,
            request_id: answer.and_then(|answer| answer.request_id.as_deref()),
            transport: answer.map_or("rest", |answer| answer.method.transport()),
            method: answer.map_or("other", |answer| answer.method.name()),
            request: format!("{} {}", self.head.method, path.get(..MAX_PATH).unwrap_or(path)),
            group: group.as_deref(),
            code: code.map_or("OK", Code::reason),
            client_gone: answer.is_none_or(|answer| answer.client_gone),
            address: self.head.address.as_deref(),
            identity: caller.map(|(identity, _)| identity.as_str()).or(principal),
            token: caller.and_then(|(_, credential)| credential.as_ref()?.id.as_deref()),
            issued: notes.issued.as_ref(),
            changed: &notes.changed,
            more_changed: Some(notes.more).filter(|more| *more > 0),
            sequence: notes.sequence,
            uncertain: notes.uncertain,
        };
        self.log.write(part, &entry);
        notes.has_entry = true;
        notes.changed.clear();
        notes.more = 0;
    }

    /// Returns the event of a request, and the part of the log that its entry belongs to; `None` for requests that have no
    /// entry.
    fn classify(&self, notes: &Notes, code: Option<Code>) -> Option<(Event, Part)> {
        let has_changed = !notes.changed.is_empty();
        let answer = notes.answer.as_ref();
        let is_write = match answer {
            None => has_changed,
            Some(answer) if answer.method.transport() == "grpc" => self.writes.contains(answer.method.name()),
            // A client without a token could fill the log with requests that a rate limit rejects.
            Some(_) => !self.head.method.is_safe() && (notes.caller.is_some() || code != Some(Code::ResourceExhausted)),
        };
        let event = match &notes.issued {
            _ if matches!(code, Some(Code::Unauthenticated | Code::PermissionDenied)) => Event::Denied,
            Some(issued) => issued.event,
            None if is_write || has_changed => Event::Write,
            None => return None,
        };
        let has_succeeded = code.is_none() && answer.is_some_and(|answer| answer.has_begun);
        let part = if matches!(event, Event::Exchange | Event::Refresh | Event::SignIn)
            || (has_changed && notes.changed.iter().all(Changed::is_registration))
        {
            Part::SignIns
        } else if has_changed || has_succeeded {
            Part::Changes
        } else {
            Part::Failed
        };
        Some((event, part))
    }
}

impl Drop for Record {
    /// Nothing works on the request any more. Its entry is still missing if a commit ended after the answer, or if the
    /// process stops before there is an answer.
    fn drop(&mut self) {
        let mut notes = std::mem::take(self.notes.get_mut());
        if !notes.changed.is_empty() || (notes.answer.is_some() && !notes.has_entry) {
            self.write(&mut notes);
        }
    }
}

/// A service whose requests are written to the audit log, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Audited<S> {
    service: S,
    log: Option<(Arc<AuditLog>, Arc<BTreeSet<String>>)>,
}

impl<S> Audited<S> {
    /// Wraps a service. `writes` has the names of the methods that write.
    pub(crate) fn new(service: S, log: Option<Arc<AuditLog>>, writes: BTreeSet<String>) -> Self {
        Self { service, log: log.map(|log| (log, Arc::new(writes))) }
    }
}

/// The answer of a server without an audit log.
type Unaudited<F, R> = MapOk<F, fn(Response<R>) -> Response<AuditedBody<R>>>;

impl<S, B, R> tower::Service<Request<B>> for Audited<S>
where
    S: tower::Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send + 'static>,
    R: Body + 'static,
{
    type Response = Response<AuditedBody<R>>;
    type Error = Infallible;
    type Future = Either<Unaudited<S::Future, R>, BoxFuture<'static, Result<Self::Response, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some((log, writes)) = self.log.clone() else {
            let with_body: fn(_) -> _ = |response: Response<R>| response.map(|body| AuditedBody { body, record: None });
            return Either::Left(self.service.call(request).map_ok(with_body));
        };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let head = Head { method, uri, address: Origin::address(request.extensions()).map(|one| one.to_string()) };
        let record = Arc::new(Record { log, writes, head, notes: Mutex::default() });
        let answer = self.service.call(request);
        Either::Right(Box::pin(async move {
            if let Some(scope) = RequestScope::current() {
                scope.attach(record.clone());
            }
            let response = answer.await?;
            // Before the answer is sent: a client that has received it can rely on the entry.
            record.answer(&response);
            // Only a body of unknown length is made while it is sent.
            let record = response.body().size_hint().exact().is_none().then_some(record);
            Ok(response.map(|body| AuditedBody { body, record }))
        }))
    }
}

pin_project! {
    /// A body whose parts are sent after the entries of the changes that they acknowledge.
    pub(crate) struct AuditedBody<R> {
        #[pin]
        body: R,
        record: Option<Arc<Record>>,
    }
}

impl<R: Body> Body for AuditedBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        if let (Poll::Ready(_), Some(record)) = (&polled, this.record) {
            record.write_changes();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
