//! Into a running server, over its `/import/` paths.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use platform_core::kind::Imported;
use platform_import::{Done, Sink};
use serde::Deserialize;
use serde_json::Value;
use ureq::http::StatusCode;

/// The most resources of a request. The server acknowledges as many at once, so that a request is one batch.
const BATCH: usize = 100;

/// The most bytes of a request, but for a single resource that is larger.
const BATCH_BYTES: usize = 1 << 20;

/// How long a server that is busy or started anew is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait before asking again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Writes by requests of a batch each. What is not acknowledged is sent again, which changes nothing where it was
/// written all the same.
pub(super) struct Remote {
    agent: ureq::Agent,
    url: String,
    token: String,
}

impl Remote {
    pub(super) fn new(url: &str, token: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(PATIENCE));
        Self { agent: config.build().into(), url: url.to_owned(), token: token.to_owned() }
    }

    /// Sends a batch until it is acknowledged.
    fn send(&self, url: &str, lines: &[u8]) -> Result<String> {
        let (begun, mut pause) = (Instant::now(), PAUSE.0);
        loop {
            let failure = match self.send_once(url, lines) {
                Ok((StatusCode::OK, text)) => return Ok(text),
                Ok((status, text)) if !is_passing(status) => bail!("{} answers {}", self.url, refusal(status, &text)),
                Ok((status, text)) => anyhow!("{} answers {}", self.url, refusal(status, &text)),
                Err(error) => anyhow!(error).context(format!("{} does not answer", self.url)),
            };
            if begun.elapsed() > PATIENCE {
                return Err(failure);
            }
            sleep(pause);
            pause = PAUSE.1.min(pause * 2);
        }
    }

    fn send_once(&self, url: &str, lines: &[u8]) -> Result<(StatusCode, String), ureq::Error> {
        let request = self.agent.post(url).header("authorization", format!("Bearer {}", self.token));
        let mut answer = request.header("content-type", "application/x-ndjson").send(lines)?;
        Ok((answer.status(), answer.body_mut().read_to_string()?))
    }
}

impl Sink for Remote {
    type Error = anyhow::Error;

    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done> {
        let url = format!("{}/import/{}?parent={}", self.url, R::KIND.plural, parent);
        let mut done = Done::default();
        let (mut lines, mut sent) = (Vec::new(), 0);
        let mut resources = resources.iter().enumerate().peekable();
        while let Some((index, resource)) = resources.next() {
            serde_json::to_writer(&mut lines, resource)?;
            lines.push(b'\n');
            let next = index + 1;
            if next - sent >= BATCH || lines.len() >= BATCH_BYTES || resources.peek().is_none() {
                acknowledged(&self.send(&url, &lines)?, sent, &mut done)?;
                sent = next;
                lines.clear();
            }
        }
        Ok(done)
    }
}

/// Adds what the server says became of a request, whose first resource is this one of all.
fn acknowledged(text: &str, first: usize, done: &mut Done) -> Result<()> {
    for line in text.lines() {
        let batch: Batch = serde_json::from_str(line).context("what the server acknowledges is not understood")?;
        if let Some(error) = batch.error {
            bail!("the server stopped: {}", message(&error));
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

/// Tells whether the same request may be answered otherwise in a while.
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::CONFLICT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

fn refusal(status: StatusCode, text: &str) -> String {
    let error: Option<Value> = serde_json::from_str(text).ok();
    match error.as_ref().map(message).filter(|message| !message.is_empty()) {
        Some(message) => format!("{}: {message}", status.as_u16()),
        None => status.to_string(),
    }
}

/// Returns the rules that an error names, or else its message.
fn message(error: &Value) -> String {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let violations = details.filter_map(|detail| detail.get("fieldViolations")?.as_array()).flatten();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let rules: Vec<_> = violations.map(|one| format!("{}: {}", text(one, "field"), text(one, "description"))).collect();
    if rules.is_empty() { text(error, "message") } else { rules.join("; ") }
}
