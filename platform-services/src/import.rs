//! Bulk import for operators: `POST` and `DELETE /import/{plural}` (`docs/api.md`, Importing over the API).
//!
//! This is our extension of the contract. It is a service of its own next to [`Rest`](platform_http::Rest), because
//! neither the body nor the response is held in memory as a whole. The body has one resource per line and no maximum
//! length. The service reads the body in batches of up to a hundred lines, and writes each batch before it reads the
//! next one, so an import uses little memory and does not block other requests. Each batch is acknowledged by a line of
//! the response once it is durable.

mod openapi;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderValue, Method, Request, Response, header::CONTENT_TYPE, request::Parts};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    libraries::{Artifact, ArtifactVersion},
    registry::Image,
    vulnerabilities::Advisory,
};
use platform_engine::{
    BoxFuture,
    access::{Authenticator, Caller},
    blob::BlobId,
    error::{Error, Result},
    json,
    kind::{Imported, Resource},
    platform::{Platform, PutReply},
    request_scope::RequestScope,
};
use platform_http::{
    BoxError, Limits, Reply,
    mount::{self, Refusal},
    operator,
};
#[cfg(feature = "v1")]
use platform_v1::resources::{
    BuildReport, Chart, PackageVersions, RawVulnerabilityReport, SyncStatus, VulnerabilityReport,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tower::Service;

use crate::busy::{at_most, blocking};

/// Maximum number of lines in a batch. Our choice: a batch is one commit and takes a few milliseconds, so other
/// requests do not wait long for their turn.
const BATCH_LINES: usize = 100;

/// Maximum size of a batch in bytes, not counting its last line.
const BATCH_BYTES: usize = 1 << 20;

/// Maximum size of a line in bytes.
const MAX_LINE: usize = 16 << 20;

/// Maximum number of JSON values in a line, including keys. Our choice: far more than an image with thousands of
/// packages has, and so few that a parsed line uses little more memory than its bytes.
const MAX_VALUES: usize = 100_000;

/// Maximum number of bytes of consecutive empty lines. Our choice.
const MAX_BLANK: usize = 1 << 20;

/// Maximum number of concurrent imports and removals. Our choice: each buffers a line or a batch in memory.
const MAX_IMPORTS: usize = 4;

/// Time for which a blob that no resource names is kept, in milliseconds: a day. Our choice, longer than any client
/// needs between the uploads of the blobs of an image and of the image.
pub const BLOB_GRACE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Response to an import: one line per batch, streamed as the batches are written.
pub type ImportReply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Bulk import service for the kinds that are added to it. Clones share their state.
#[derive(Debug, Clone)]
pub struct Import(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
    limits: Limits,
    kinds: Vec<(&'static str, Bulk)>,
    permits: Arc<Semaphore>,
}

/// Operations of a kind.
#[derive(Debug, Clone, Copy)]
struct Bulk {
    put: Put,
    remove: Remove,
}

/// Upserts the resources of some numbered lines under a parent.
type Put = fn(&Platform, &Caller, &str, Vec<(u64, Bytes)>, usize) -> Result<Written>;

/// Deletes all resources directly under a parent and returns their number.
type Remove = fn(&Platform, &Caller, &str) -> Result<u64>;

/// Result of a batch.
#[derive(Debug, Default)]
struct Written {
    created: u64,
    updated: u64,
    unchanged: u64,
    refused: Vec<(u64, Error)>,
}

impl Written {
    /// Adds the result of writing the resources of the lines with these numbers.
    fn add(&mut self, reply: PutReply, numbers: &[u64]) {
        (self.created, self.updated, self.unchanged) = (reply.created, reply.updated, reply.unchanged);
        let number = |index: u64| usize::try_from(index).ok().and_then(|index| numbers.get(index)).copied();
        let refused = reply.refused.into_iter();
        self.refused.extend(refused.map(|refused| (number(refused.index).unwrap_or_default(), refused.error)));
        self.refused.sort_by_key(|(line, _)| *line);
    }
}

impl Import {
    /// Returns the service without any kinds.
    pub fn new(platform: Arc<Platform>, authenticator: Arc<dyn Authenticator>, limits: Limits) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_IMPORTS));
        Self(Arc::new(Inner { platform, authenticator, limits, kinds: Vec::new(), permits }))
    }

    /// Returns the service with all kinds of the platform that can be imported: those of Platform API v2 and, with the
    /// feature `v1`, those of version 1.
    pub fn all(platform: Arc<Platform>, authenticator: Arc<dyn Authenticator>, limits: Limits) -> Self {
        let import = Self::new(platform, authenticator, limits)
            .known::<Advisory>()
            .known::<VulnerabilityMetadata>()
            .known::<Image>();
        #[cfg(feature = "v1")]
        let import = import.known::<Chart>();
        let import = import.blobs().known::<Artifact>().known::<ArtifactVersion>();
        #[cfg(feature = "v1")]
        let import = import
            .known::<PackageVersions>()
            .known::<VulnerabilityReport>()
            .known::<RawVulnerabilityReport>()
            .known::<BuildReport>()
            .known::<SyncStatus>();
        import
    }

    /// Adds a kind if the platform has it.
    fn known<R: Imported>(self) -> Self {
        let is_known = self.0.platform.kinds().any(|kind| kind.name == R::KIND.name);
        if is_known { self.kind::<R>() } else { self }
    }

    /// Adds a kind, whose resources are imported at `/import/{plural}`.
    #[must_use]
    pub fn kind<R: Imported>(mut self) -> Self {
        let bulk = Bulk { put: put::<R>, remove: remove::<R> };
        Arc::make_mut(&mut self.0).kinds.push((R::KIND.plural, bulk));
        self
    }

    /// Adds the blobs of images and charts, which are stored at `/import/blobs` before the resources that name them.
    #[must_use]
    pub fn blobs(mut self) -> Self {
        Arc::make_mut(&mut self.0).kinds.push(("blobs", Bulk { put: put_blobs, remove: collect_blobs }));
        self
    }

    /// Returns the part of the OpenAPI document for the kinds that were added, as
    /// [`OpenApi::with`](platform_http::openapi::OpenApi::with) takes it.
    pub fn openapi(&self) -> Value {
        let plurals: Vec<_> = self.0.kinds.iter().map(|(plural, _)| *plural).collect();
        openapi::part(&plurals)
    }
}

impl<B> Service<Request<B>> for Import
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = ImportReply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<ImportReply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        let (head, body) = request.into_parts();
        Box::pin(async move {
            let service_domain = inner.platform.settings().service_domain.clone();
            Ok(inner.answer(&head, body).await.unwrap_or_else(|refusal| {
                // The rest of the body may be of any length, so it is not drained.
                let mut reply = boxed(refusal.into_reply(&service_domain));
                mount::close(head.version, &mut reply);
                reply
            }))
        })
    }
}

impl Inner {
    async fn answer<B>(self: Arc<Self>, head: &Parts, body: B) -> Result<ImportReply, Refusal>
    where
        B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let (path, query) = mount::target(head, &self.limits)?;
        let plural = path.strip_prefix("/import/").unwrap_or_default();
        let (_, bulk) = *self.kinds.iter().find(|(name, _)| *name == plural).ok_or_else(Refusal::no_path)?;
        if let Some(options) = mount::check_method(&head.method, &[Method::DELETE, Method::POST])? {
            return Ok(boxed(options));
        }
        mount::reject_preconditions(head)?;
        let caller = operator(&self.platform, &*self.authenticator, head).await?;
        let parent: Arc<str> = mount::parameter("parent", query)?.unwrap_or_default().into();
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| at_most("imports", MAX_IMPORTS))?;
        if head.method == Method::DELETE {
            let remove = move || {
                // The work keeps the permit, because it goes on after the request is dropped.
                let _permit = permit;
                (bulk.remove)(&self.platform, &caller, &parent)
            };
            let removed = blocking(RequestScope::current(), remove).await??;
            return Ok(boxed(mount::json(json!({ "removed": removed }).to_string())));
        }
        let body = Box::pin(body);
        let lines = Lines { body, buffer: BytesMut::new(), number: 0, blank: 0, since: None, ended: false };
        let (permit, scope) = (Arc::new(permit), RequestScope::current());
        let mut batches = Batches { inner: self, put: bulk.put, caller, parent, lines, permit, scope };
        // An error that affects the whole import shows in the first batch, while the status can still be set.
        let first = batches.next().await?;
        let rest = first.is_some().then_some(batches);
        let first = stream::iter(first.map(|line| Ok(Frame::data(line))));
        let rest = stream::unfold(rest, async |batches| {
            let mut batches = batches?;
            let (line, next) = match batches.next().await {
                Ok(line) => (line?, Some(batches)),
                Err(refusal) => (batches.error_line(refusal), None),
            };
            Some((Ok(Frame::data(line)), next))
        });
        // Fused, because the body may be polled again after its end.
        let lines = first.chain(rest).fuse();
        let mut reply = Response::new(StreamBody::new(lines).boxed_unsync());
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        Ok(reply)
    }
}

/// Import in progress.
struct Batches<B> {
    inner: Arc<Inner>,
    put: Put,
    caller: Caller,
    parent: Arc<str>,
    lines: Lines<B>,
    permit: Arc<OwnedSemaphorePermit>,
    /// The scope of the request, which the body of its reply is not polled in.
    scope: Option<Arc<RequestScope>>,
}

impl<B> Batches<B>
where
    B: Body<Error: Into<BoxError>>,
{
    /// Writes the next batch and returns its acknowledgment, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let batch = self.lines.batch(&self.inner.limits).await?;
        if batch.is_empty() {
            return Ok(None);
        }
        let (inner, put) = (Arc::clone(&self.inner), self.put);
        let (caller, parent, permit) = (self.caller.clone(), Arc::clone(&self.parent), Arc::clone(&self.permit));
        let put = move || {
            // The work keeps the permit too, because it goes on after the request is dropped.
            let _permit = permit;
            put(&inner.platform, &caller, &parent, batch, inner.limits.depth)
        };
        let written = blocking(self.scope.clone(), put).await??;
        let service_domain = &self.inner.platform.settings().service_domain;
        let refused =
            written.refused.iter().map(|(line, error)| json!({ "line": line, "error": error.status(service_domain) }));
        Ok(Some(line(&json!({
            "through": self.lines.number,
            "created": written.created,
            "updated": written.updated,
            "unchanged": written.unchanged,
            "refused": refused.collect::<Vec<_>>(),
        }))))
    }

    /// Returns the last line of the response to an import that failed midway.
    fn error_line(&self, refusal: Refusal) -> Bytes {
        line(&json!({ "error": refusal.status(&self.inner.platform.settings().service_domain) }))
    }
}

/// Lines of a body.
struct Lines<B> {
    body: Pin<Box<B>>,
    buffer: BytesMut,
    /// Number of lines read so far.
    number: u64,
    /// Number of bytes of empty lines since the last non-empty line.
    blank: usize,
    /// Start of the wait for the next non-empty line.
    since: Option<Instant>,
    ended: bool,
}

impl<B> Lines<B>
where
    B: Body<Error: Into<BoxError>>,
{
    /// Returns the next non-empty lines with their numbers, which start at 1. Returns no lines at the end.
    async fn batch(&mut self, limits: &Limits) -> Result<Vec<(u64, Bytes)>, Refusal> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_LINES && bytes < BATCH_BYTES {
            let Some(line) = self.next(limits).await? else { break };
            if line.trim_ascii().is_empty() {
                self.blank = self.blank.saturating_add(line.len()).saturating_add(1);
                if self.blank > MAX_BLANK {
                    let rule = format!("follows more than {MAX_BLANK} bytes of empty lines");
                    return Err(Error::invalid_field(format!("line {}", self.number), rule).into());
                }
            } else {
                (self.blank, self.since) = (0, None);
                bytes += line.len();
                batch.push((self.number, line));
            }
        }
        Ok(batch)
    }

    async fn next(&mut self, limits: &Limits) -> Result<Option<Bytes>, Refusal> {
        let mut searched = 0;
        loop {
            let unseen = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = unseen.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + at);
                self.buffer.advance(1);
                self.number += 1;
                return Ok(Some(line.freeze()));
            }
            searched = self.buffer.len();
            if searched > MAX_LINE {
                let rule = format!("is longer than {MAX_LINE} bytes");
                return Err(Error::invalid_field(format!("line {}", self.number + 1), rule).into());
            }
            if self.ended {
                let rest = self.buffer.split().freeze();
                self.number += u64::from(!rest.is_empty());
                return Ok(Some(rest).filter(|rest| !rest.is_empty()));
            }
            self.read(limits).await?;
        }
    }

    /// Reads the next bytes of the body. Each MiB of a non-empty line must arrive within the body timeout.
    async fn read(&mut self, limits: &Limits) -> Result<(), Refusal> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let started_mib = u32::try_from(self.buffer.len() >> 20).unwrap_or(u32::MAX).saturating_add(1);
        let frame =
            tokio::time::timeout_at(since + limits.body_time.saturating_mul(started_mib), self.body.frame()).await;
        let frame = frame.map_err(|_| Refusal::deadline("The body took too long to arrive"))?;
        let incomplete = |error| Error::invalid_field("body", "is incomplete").because(error);
        match frame {
            None => self.ended = true,
            Some(frame) => {
                if let Ok(mut data) = frame.map_err(|error| incomplete(error.into()))?.into_data() {
                    while data.has_remaining() {
                        let chunk = data.chunk();
                        self.buffer.extend_from_slice(chunk);
                        let length = chunk.len();
                        data.advance(length);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Parses and writes a batch. Blocks its thread.
fn put<R: Imported>(
    platform: &Platform,
    caller: &Caller,
    parent: &str,
    lines: Vec<(u64, Bytes)>,
    depth: usize,
) -> Result<Written> {
    let mut written = Written::default();
    let (mut numbers, mut resources) = (Vec::new(), Vec::<R>::new());
    for (number, line) in lines {
        match parse_line(&line, depth) {
            Ok(resource) => {
                numbers.push(number);
                resources.push(resource);
            }
            Err(error) => written.refused.push((number, error.of_domain(R::KIND.domain.name))),
        }
    }
    let reply = Handle::current().block_on(platform.put(caller, parent, resources))?;
    written.add(reply, &numbers);
    Ok(written)
}

/// A line with a blob.
#[derive(Deserialize)]
struct BlobLine {
    digest: String,
    content: String,
}

impl BlobLine {
    /// Parses a line, and returns the content of the blob.
    fn parse(line: &[u8], depth: usize) -> Result<Bytes> {
        json::check_object(line, depth, MAX_VALUES, |key| ["digest", "content"].contains(&key))?;
        let blob: Self =
            serde_json::from_slice(line).map_err(|error| Error::invalid_field("line", error.to_string()))?;
        let content = STANDARD.decode(blob.content).map_err(|_| Error::invalid_field("content", "must be base64"))?;
        if BlobId::named("", &blob.digest) != Some(BlobId::of("", &content)) {
            return Err(Error::invalid_field("digest", "must be the digest of the content"));
        }
        Ok(content.into())
    }
}

/// Stores a batch of blobs of a repo. Blocks its thread.
fn put_blobs(
    platform: &Platform,
    caller: &Caller,
    repo: &str,
    lines: Vec<(u64, Bytes)>,
    depth: usize,
) -> Result<Written> {
    let mut written = Written::default();
    let (mut numbers, mut contents) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        match BlobLine::parse(&line, depth) {
            Ok(content) => {
                numbers.push(number);
                contents.push(content);
            }
            Err(error) => written.refused.push((number, error.of_domain(Image::KIND.domain.name))),
        }
    }
    let reply = Handle::current().block_on(platform.put_blobs::<Image>(caller, repo, contents))?;
    written.add(reply, &numbers);
    Ok(written)
}

/// Deletes the blobs of all repos that no resource names and that are older than the grace period.
fn collect_blobs(platform: &Platform, _: &Caller, parent: &str) -> Result<u64> {
    if !parent.is_empty() {
        return Err(Error::invalid_field("parent", "must be empty"));
    }
    Handle::current().block_on(platform.collect_blobs(BLOB_GRACE_MILLIS))
}

fn remove<R: Imported>(platform: &Platform, caller: &Caller, parent: &str) -> Result<u64> {
    Handle::current().block_on(platform.remove_all::<R>(caller, parent))
}

/// Parses a resource, including the fields that only imports can set.
fn parse_line<R: Imported>(line: &[u8], depth: usize) -> Result<R> {
    json::check_object(line, depth, MAX_VALUES, |key| R::KIND.field(key).is_some())?;
    serde_json::from_slice(line).map_err(|error| Error::invalid_field("line", error.to_string()))
}

fn line(value: &Value) -> Bytes {
    let mut line = value.to_string();
    line.push('\n');
    line.into()
}

fn boxed(reply: Reply) -> ImportReply {
    reply.map(|body| body.map_err(BoxError::from).boxed_unsync())
}
