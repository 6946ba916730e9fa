//! Feeds for scanners: `GET /feeds/{format}?group=UID` (`docs/how-to/feeds.md`).
//!
//! This is our extension of the contract. A feed has all advisories at and below a group, of any number: they are read page
//! by page, sorted in temporary files and sent while they are written. Whether a feed has changed costs the same for any
//! number of advisories.

mod openapi;

use std::{
    io::{self, BufWriter, Write},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{
    HeaderValue, Method, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY, X_CONTENT_TYPE_OPTIONS},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use platform_core::resources::vulnerabilities::Advisory;
use platform_engine::{
    access::Caller,
    error::{Code, Error, Result},
    platform::Platform,
    request_scope::RequestScope,
    store::Position,
    uid::Uid,
};
use platform_feeds::{Document, Feed, Format, Options, UnknownFormat, source};
use platform_http::{
    BoxError, Origin, Reply, ReplyBody, StreamPermit,
    mount::{self, Body, Call, Mount, Refusal},
    preconditions,
};
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, timeout_at},
};

use crate::busy::{at_most, blocking};

const PREFIX: &str = "/feeds/";

/// The maximum number of feeds that are made at once. Our choice: each needs a thread, and some megabytes of memory.
const MAX_FEEDS: usize = 4;

/// The number of bytes that are handed over at once, and how many such parts wait for the client. Our choice.
const PART: usize = 64 << 10;
const WAITING: usize = 4;

/// Feeds of the advisories of a platform, at `/feeds/`.
#[derive(Debug, Clone)]
pub struct Feeds {
    platform: Arc<Platform>,
    /// The URL by which clients reach the server, of which the ids of OpenVEX documents are made.
    url: String,
    permits: Arc<Semaphore>,
}

impl Feeds {
    /// Returns the feeds of a platform. `url` is that of the server, without a slash at its end.
    pub fn new(platform: Arc<Platform>, url: impl Into<String>) -> Self {
        Self { platform, url: url.into(), permits: Arc::new(Semaphore::new(MAX_FEEDS)) }
    }
}

#[async_trait]
impl Mount for Feeds {
    fn name(&self) -> &'static str {
        "Feeds"
    }

    fn domain(&self) -> &'static str {
        "vulnerabilities"
    }

    fn has(&self, path: &str) -> bool {
        path.starts_with(PREFIX)
    }

    async fn answer(&self, call: Call<'_>, _: Body<'_>) -> Result<Reply, Refusal> {
        let format = call.path.strip_prefix(PREFIX).unwrap_or_default();
        let format: Format = format.parse().map_err(unknown)?;
        if let Some(reply) = call.check_method(&[Method::GET])? {
            return Ok(reply);
        }
        let caller = call.caller().await?;
        let Parameters { group, namespace } = Parameters::parse(call.query)?;
        let known = preconditions(&call.head.headers)?.if_none_match;
        let state = source::state(&self.platform, &caller, &group).await?;
        if let Some(etag) = known.and_then(|tags| tags.find(&state.etag)) {
            let mut reply = Reply::default();
            *reply.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(with_headers(reply, &etag));
        }
        let etag = state.etag;
        let body = if call.head.method == Method::HEAD {
            // The length of a feed is not known before it is made.
            BodyExt::boxed_unsync(StreamBody::new(stream::empty()))
        } else {
            let document = Document {
                id: format!("{}{}", self.url, format.path(&group, &namespace)),
                author: self.platform.settings().service_domain.clone(),
                version: state.version,
            };
            let options = Options { format, namespace, document, now: self.platform.now() };
            self.body(&call, caller, group, options).await?
        };
        let mut reply = Reply::new(ReplyBody::Stream(body));
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
        reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Ok(with_headers(reply, &etag))
    }

    fn openapi(&self) -> Value {
        openapi::part()
    }
}

fn with_headers(mut reply: Reply, etag: &str) -> Reply {
    let headers = reply.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    reply
}

/// The parameters of a request.
#[derive(Debug)]
struct Parameters {
    group: Uid,
    namespace: String,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self> {
        let (mut group, mut namespace) = (None, None);
        for (key, value) in mount::pairs(query)? {
            let known = match key.as_str() {
                "group" => &mut group,
                "namespace" => &mut namespace,
                _ => return Err(Error::invalid_field(key, "unknown parameter")),
            };
            if known.replace(value).is_some() {
                return Err(Error::invalid_field(key, "is specified more than once"));
            }
        }
        let group = group.ok_or_else(|| Error::invalid_field("group", "is required"))?;
        let group = Uid::parse(&group).map_err(|rule| Error::invalid_field("group", rule.to_string()))?;
        Ok(Self { group, namespace: namespace.unwrap_or_default() })
    }
}

type Pages = (Vec<Advisory>, Option<Position>);

impl Feeds {
    /// Returns the body of a feed, which a thread makes while it is sent. The first page is read before, so that an error
    /// of the request is answered as one.
    async fn body(
        &self,
        call: &Call<'_>,
        caller: Caller,
        group: Uid,
        options: Options,
    ) -> Result<UnsyncBoxBody<Bytes, BoxError>> {
        let permits = Arc::clone(&self.permits).try_acquire_owned();
        let permits = (permits.map_err(|_| at_most("feeds", MAX_FEEDS))?, call.origin.long_list()?);
        let first = source::page(&self.platform, &caller, &group, None).await?;
        let (parts, received) = mpsc::channel(WAITING);
        let making = Making {
            platform: Arc::clone(&self.platform),
            caller,
            group,
            origin: call.origin.clone(),
            deadline: Instant::now() + call.limits.long_list_time,
            parts: parts.clone(),
            _permits: permits,
        };
        let scope = RequestScope::current();
        let task = tokio::spawn(async move {
            let made = blocking(scope, move || making.run(options, first)).await;
            // After an error, the client sees an aborted reply.
            if let Err(error) = made.and_then(|made| made) {
                let _ = parts.send(Err(error.into())).await;
            }
        });
        let parts = stream::unfold((received, task), async |(mut received, task)| {
            Some((received.recv().await?.map(Frame::data), (received, task)))
        });
        Ok(BodyExt::boxed_unsync(StreamBody::new(parts.fuse())))
    }
}

/// A feed that is being made.
struct Making {
    platform: Arc<Platform>,
    caller: Caller,
    group: Uid,
    origin: Origin,
    deadline: Instant,
    parts: mpsc::Sender<Result<Bytes, BoxError>>,
    _permits: (OwnedSemaphorePermit, StreamPermit),
}

impl Making {
    /// Reads the advisories after the first page, and sends the feed. Blocks its thread.
    fn run(self, options: Options, first: Pages) -> Result<()> {
        let mut feed = Feed::new(options);
        let (mut advisories, mut after) = first;
        loop {
            advisories.iter().try_for_each(|advisory| feed.add(advisory)).map_err(Error::internal)?;
            // Nobody waits for the feed any longer.
            if self.parts.is_closed() {
                return Ok(());
            }
            if after.is_none() {
                break;
            }
            let page = source::page(&self.platform, &self.caller, &self.group, after);
            let page = Handle::current().block_on(timeout_at(self.deadline, page));
            (advisories, after) = page.unwrap_or_else(|_| Err(slow()))?;
        }
        let mut out = BufWriter::with_capacity(PART, &self);
        feed.write(&mut out).and_then(|_| out.flush()).map_err(Error::internal)
    }
}

impl Write for &Making {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.origin.reply(bytes.len()).map_err(io::Error::other)?;
        let sent = self.parts.send(Ok(Bytes::copy_from_slice(bytes)));
        match Handle::current().block_on(timeout_at(self.deadline, sent)) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::Error::other(slow())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unknown(format: UnknownFormat) -> Error {
    Error::new(Code::NotFound, format!("Not found: the format of a feed {format}"))
}

fn slow() -> Error {
    Error::new(Code::DeadlineExceeded, "the feed took too long")
}
