//! The audit log: who has changed what, which tokens were issued, and which requests were denied.
//!
//! A layer around the whole service gives each request [`Notes`]. While the request is handled, the authenticator, the
//! token service and the store of the server add what they know: the caller, the tokens that are issued, the records that
//! a commit changes. The layer writes the entry when the answer is known, before it is sent.

mod file;
mod service;
mod store;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use axum::http::{Request, Response, Uri};
use metrics::{counter, describe_counter};
use parking_lot::Mutex;
use platform_core::{
    access::{Caller, Credential},
    clock::Clock,
    error::Code,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_http::{Called, Origin, SystemClock};
use serde::Serialize;

use self::file::Rotated;
pub(crate) use self::{
    service::{Authenticated, IssuedBy},
    store::Audited as AuditedStore,
};
use crate::config::AuditOptions;

/// The maximum length of a path in an entry, in bytes. Our choice.
const MAX_PATH: usize = 1024;
/// The maximum number of records that an entry names. Our choice.
const MAX_RECORDS: usize = 20;

const FAILURES: &str = "platform_audit_failures_total";

/// Registers the descriptions of the metrics.
pub(crate) fn describe() {
    describe_counter!(FAILURES, "Entries of the audit log that could not be written");
}

tokio::task_local! {
    /// Of the request that this task handles.
    static NOTES: RefCell<Notes>;
}

/// What is known of a request while it is handled.
#[derive(Debug, Default)]
struct Notes {
    caller: Option<(Uid, Option<Arc<Credential>>)>,
    /// Why a sign-in has failed, which the response does not say.
    failed: Option<Code>,
    issued: Option<Issued>,
    changed: Vec<Changed>,
    /// The number of further records.
    more: usize,
}

/// Adds to the notes of the current request. Does nothing in tasks that handle none.
fn note(add: impl FnOnce(&mut Notes)) {
    // An error says that there is no request.
    let _ = NOTES.try_with(|notes| {
        if let Ok(mut notes) = notes.try_borrow_mut() {
            add(&mut notes);
        }
    });
}

impl Notes {
    fn add_caller(&mut self, caller: &Caller) {
        self.caller = Some((caller.identity.clone(), caller.credential.clone()));
    }

    fn add_changed(&mut self, changed: Changed) {
        match self.changed.len() < MAX_RECORDS {
            // A commit that met a conflict is repeated.
            true if self.changed.contains(&changed) => {}
            true => self.changed.push(changed),
            false => self.more += 1,
        }
    }
}

/// Records that a commit has changed.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Changed {
    /// One that was created or updated: its kind and uid.
    Put(&'static str, Uid),
    /// One that was deleted: its kind and uid.
    Deleted(&'static str, Uid),
    /// All below this uid, which were deleted.
    DeletedBelow(Uid),
}

/// The event that an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Event {
    /// A write, successful or not.
    Write,
    /// An upstream token was exchanged for a token of this server.
    Exchange,
    /// A refresh token was exchanged for the next tokens.
    Refresh,
    /// A person has signed in with a browser.
    SignIn,
    /// The request had no valid token, or its caller lacks a capability.
    Denied,
}

/// A token that was issued.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    #[serde(skip)]
    event: Event,
    /// The identity that the token is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// The id of the token, its claim `jti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The upstream token that was exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<Upstream>,
}

/// An upstream token: the claims that identify it.
#[derive(Debug, Serialize)]
struct Upstream {
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
}

/// A line of the log.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    time: Timestamp,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    transport: &'static str,
    method: &'a str,
    /// The HTTP method and the path.
    request: String,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    /// The id of the caller's token, its claim `jti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<&'a Issued>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changed: &'a [Changed],
    /// The number of records that were changed besides those.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_changed: Option<usize>,
}

/// The audit log of a server.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Mutex<Rotated>,
    /// The names of the methods that write, for gRPC.
    writes: BTreeSet<String>,
    /// Whether the last entry could not be written.
    has_failed: AtomicBool,
}

impl AuditLog {
    /// Opens the configured log, if there is one. `writes` has the names of the methods that write.
    pub(crate) fn open(options: &AuditOptions, writes: BTreeSet<String>) -> Result<Option<Arc<Self>>> {
        let Some(path) = &options.audit_log else { return Ok(None) };
        let file = Rotated::open(path, options.audit_log_size, options.audit_log_keep.get())?;
        Ok(Some(Arc::new(Self { file: Mutex::new(file), writes, has_failed: AtomicBool::new(false) })))
    }

    /// Writes the entry of a request, if it is one for the log.
    fn finish<B>(&self, head: &Head, notes: &Notes, response: &Response<B>) {
        let (method, code) = Called::of(response);
        let code = code.or(notes.failed);
        let is_denied = matches!(code, Some(Code::Unauthenticated | Code::PermissionDenied));
        let is_write = match method.transport() {
            "grpc" => self.writes.contains(method.name()),
            // A client without a token could fill the log with requests that a rate limit rejects.
            _ => !head.method.is_safe() && (notes.caller.is_some() || code != Some(Code::ResourceExhausted)),
        };
        let event = match &notes.issued {
            _ if is_denied => Event::Denied,
            Some(issued) => issued.event,
            None if is_write || !notes.changed.is_empty() => Event::Write,
            None => return,
        };
        let path = head.uri.path();
        let caller = notes.caller.as_ref();
        let entry = Entry {
            time: SystemClock.now(),
            event,
            request_id: response.headers().get("x-request-id").and_then(|id| id.to_str().ok()),
            transport: method.transport(),
            method: method.name(),
            request: format!("{} {}", head.method, path.get(..MAX_PATH).unwrap_or(path)),
            code: code.map_or("OK", Code::reason),
            address: head.address.clone(),
            identity: caller.map(|(identity, _)| identity.as_str()),
            token: caller.and_then(|(_, credential)| credential.as_ref()?.id.as_deref()),
            issued: notes.issued.as_ref(),
            changed: &notes.changed,
            more_changed: Some(notes.more).filter(|more| *more > 0),
        };
        self.write(&entry);
    }

    /// Writes an entry. The request has been handled, so a failure is only reported.
    fn write(&self, entry: &Entry<'_>) {
        let written = serde_json::to_vec(entry).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.file.lock().write(&line)
        });
        let had_failed = self.has_failed.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Err(error) => {
                counter!(FAILURES).increment(1);
                if !had_failed {
                    tracing::error!(%error, "entries of the audit log cannot be written and are lost");
                }
            }
            Ok(()) if had_failed => tracing::warn!("entries of the audit log are written again"),
            Ok(()) => {}
        }
    }
}

/// What an entry has of the request itself.
struct Head {
    method: axum::http::Method,
    uri: Uri,
    address: Option<String>,
}

/// A service whose requests are written to the audit log, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Audited<S> {
    service: S,
    log: Option<Arc<AuditLog>>,
}

impl<S> Audited<S> {
    pub(crate) const fn new(service: S, log: Option<Arc<AuditLog>>) -> Self {
        Self { service, log }
    }
}

impl<S, B, R> tower::Service<Request<B>> for Audited<S>
where
    S: tower::Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send + 'static>,
    R: 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future =
        futures_util::future::Either<S::Future, platform_core::BoxFuture<'static, Result<Response<R>, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(log) = self.log.clone() else {
            return futures_util::future::Either::Left(self.service.call(request));
        };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let head = Head { method, uri, address: Origin::address(request.extensions()).map(|one| one.to_string()) };
        let answer = self.service.call(request);
        let audited = NOTES.scope(RefCell::default(), async move {
            let response = answer.await?;
            // Before the answer is sent: a client that has received it can rely on the entry.
            NOTES.with(|notes| {
                if let Ok(notes) = notes.try_borrow() {
                    log.finish(&head, &notes, &response);
                }
            });
            Ok(response)
        });
        futures_util::future::Either::Right(Box::pin(audited))
    }
}
