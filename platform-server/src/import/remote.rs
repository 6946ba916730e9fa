//! Import into a running server over its `/import/` paths.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use platform_core::resources::registry::Tag;
use platform_engine::{blob::BlobId, kind::Imported};
use platform_import::{Done, Sink};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::http::StatusCode;

use crate::{
    cli::At,
    running::{client, is_lasting},
};

/// Maximum number of resources in a request: the server's maximum in one commit, so that a request is one batch of the
/// server.
const BATCH: usize = 100;

/// Target size of a request in bytes: it is sent once it has reached this size.
const BATCH_BYTES: usize = 1 << 20;

/// The time for which a batch is retried while the server is overloaded or restarting, and the timeout of each attempt.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Delay before a retry: the first, and the maximum of the exponential backoff.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Type of a batch.
const NDJSON: &str = "application/x-ndjson";

/// Writes with one request per batch. A batch that is not acknowledged is sent again; this is safe because the server's
/// writes are idempotent: a resource that was written nevertheless counts as unchanged.
pub(super) struct Remote {
    agent: ureq::Agent,
    url: String,
    token: String,
}

impl Remote {
    pub(super) fn new(url: &str, at: &At, token: &str) -> Result<Self> {
        let agent = client(at)?.timeout_global(Some(RETRY_TIMEOUT)).build().into();
        Ok(Self { agent, url: url.to_owned(), token: token.to_owned() })
    }

    /// Sends a batch until it is acknowledged.
    fn send(&self, url: &str, lines: &[u8]) -> Result<String> {
        match self.call(url, Some((NDJSON, lines)))? {
            (StatusCode::OK, text) => Ok(text),
            (status, text) => bail!("{} returned {}", self.url, status_line(status, &text)),
        }
    }

    /// Sends a POST with a body, or a GET, with retries after transient failures.
    fn call(&self, url: &str, body: Option<(&str, &[u8])>) -> Result<(StatusCode, String)> {
        let (started, mut backoff) = (Instant::now(), BACKOFF.0);
        loop {
            let failure = match self.call_once(url, body) {
                Ok((status, text)) if !is_transient(status) => return Ok((status, text)),
                Ok((status, text)) => anyhow!("{} returned {}", self.url, status_line(status, &text)),
                Err(error) => {
                    let lasts = is_lasting(&error);
                    let failure = anyhow!(error).context(format!("no response from {}", self.url));
                    if lasts {
                        return Err(failure);
                    }
                    failure
                }
            };
            if started.elapsed() > RETRY_TIMEOUT {
                return Err(failure);
            }
            sleep(backoff);
            backoff = BACKOFF.1.min(backoff * 2);
        }
    }

    fn call_once(&self, url: &str, body: Option<(&str, &[u8])>) -> Result<(StatusCode, String), ureq::Error> {
        let token = format!("Bearer {}", self.token);
        let mut response = match body {
            Some((ty, body)) => {
                self.agent.post(url).header("authorization", token).header("content-type", ty).send(body)?
            }
            None => self.agent.get(url).header("authorization", token).call()?,
        };
        Ok((response.status(), response.body_mut().read_to_string()?))
    }
}

impl Sink for Remote {
    type Error = anyhow::Error;

    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done> {
        self.put_lines(R::KIND.plural, parent, resources.iter())
    }

    fn put_blobs(&mut self, repo: &str, contents: Vec<Vec<u8>>) -> Result<Done> {
        let line = |content: &Vec<u8>| {
            let (_, digest) = BlobId::of("", content).parts();
            json!({ "digest": format!("sha256:{digest}"), "content": STANDARD.encode(content) })
        };
        self.put_lines("blobs", repo, contents.iter().map(line))
    }

    fn put_tags(&mut self, repo: &str, tags: Vec<Tag>) -> Result<Done> {
        let mut done = Done::default();
        for (index, tag) in tags.iter().enumerate() {
            let before = self.digest_of(repo, &tag.name)?;
            let body = json!({ "name": tag.name, "digest": tag.digest }).to_string();
            let url = format!("{}/registry/v2/tags/{repo}", self.url);
            match self.call(&url, Some(("application/json", body.as_bytes())))? {
                (StatusCode::OK, _) => super::count_tag(&mut done, before.as_deref(), tag),
                (status @ (StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN), text) => {
                    let error: Value = serde_json::from_str(&text).unwrap_or_default();
                    let rule = message(&error);
                    done.refused.push((index, if rule.is_empty() { status.to_string() } else { rule }));
                }
                (status, text) => bail!("{} returned {}", self.url, status_line(status, &text)),
            }
        }
        Ok(done)
    }
}

impl Remote {
    /// Sends lines to an import path, in batches.
    fn put_lines(&self, plural: &str, parent: &str, lines: impl Iterator<Item = impl Serialize>) -> Result<Done> {
        let url = format!("{}/import/{plural}?parent={parent}", self.url);
        let mut done = Done::default();
        let (mut batch, mut sent) = (Vec::new(), 0);
        let mut lines = lines.enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            serde_json::to_writer(&mut batch, &line)?;
            batch.push(b'\n');
            let next = index + 1;
            if next - sent >= BATCH || batch.len() >= BATCH_BYTES || lines.peek().is_none() {
                add_acknowledged(&self.send(&url, &batch)?, sent, &mut done)?;
                sent = next;
                batch.clear();
            }
        }
        Ok(done)
    }

    /// Returns the digest that a tag has now, `None` if it does not exist or its name is invalid.
    fn digest_of(&self, repo: &str, name: &str) -> Result<Option<String>> {
        // Other names would have to be encoded, and the server rejects them.
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Ok(None);
        }
        match self.call(&format!("{}/registry/v2/tags?uidp.children_of={repo}&name={name}", self.url), None)? {
            (StatusCode::OK, text) => {
                let list: Value = serde_json::from_str(&text).context("cannot parse the response of the server")?;
                Ok(list.pointer("/tags/0/digest").and_then(Value::as_str).map(str::to_owned))
            }
            (status, text) => bail!("{} returned {}", self.url, status_line(status, &text)),
        }
    }
}

/// Adds the server's response to one request to the totals. `first` is the index, in the whole import, of the request's
/// first resource.
fn add_acknowledged(text: &str, first: usize, done: &mut Done) -> Result<()> {
    for line in text.lines() {
        let batch: Batch = serde_json::from_str(line).context("cannot parse the response of the server")?;
        if let Some(error) = batch.error {
            bail!("the server aborted the import: {}", message(&error));
        }
        done.created += batch.created;
        done.updated += batch.updated;
        done.unchanged += batch.unchanged;
        let refused = batch.refused.into_iter();
        done.refused.extend(refused.map(|refused| (first + refused.line.saturating_sub(1), message(&refused.error))));
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Batch {
    created: u64,
    updated: u64,
    unchanged: u64,
    refused: Vec<RefusedLine>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct RefusedLine {
    line: usize,
    error: Value,
}

/// Returns whether the same request may succeed later.
fn is_transient(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::CONFLICT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

fn status_line(status: StatusCode, text: &str) -> String {
    let error: Option<Value> = serde_json::from_str(text).ok();
    match error.as_ref().map(message).filter(|message| !message.is_empty()) {
        Some(message) => format!("{}: {message}", status.as_u16()),
        None => status.to_string(),
    }
}

/// Returns the field violations of an error, or its message if it has none.
fn message(error: &Value) -> String {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let violations = details.filter_map(|detail| detail.get("fieldViolations")?.as_array()).flatten();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let lines: Vec<_> = violations.map(|one| format!("{}: {}", text(one, "field"), text(one, "description"))).collect();
    if lines.is_empty() { text(error, "message") } else { lines.join("; ") }
}
