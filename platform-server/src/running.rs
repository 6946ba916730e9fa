//! A running server, which an operator's command calls.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::http;

use crate::{
    config::Config,
    installation::{Installation, block_on},
};

/// Lifetime of the token of a command, longer than any import takes.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The time in which a server must respond.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the given token for a running server, or else issues one to the operator of the data directory.
pub(crate) fn bearer(config: &Config, token: Option<&String>) -> Result<String> {
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        return Ok(token.clone());
    }
    let installation = block_on(Installation::open_existing(config))
        .context("cannot issue a token: set the data directory of the server with --data-dir, or pass --token")?;
    installation.token(&installation.issuer_url(config)?, &installation.bootstrap.operator, TTL)
}

/// Sends JSON to a running server and returns its JSON response.
pub(crate) fn send(url: &str, token: &str, body: &Value) -> Result<Value> {
    let request = agent(Some(TIMEOUT)).post(url).header("authorization", &format!("Bearer {token}"));
    read(url, request.header("content-type", "application/json").send(body.to_string()))
}

/// Asks a running server for something that can take long, and returns its JSON response.
pub(crate) fn send_and_wait(url: &str, token: &str) -> Result<Value> {
    let request = agent(None).post(url).header("authorization", &format!("Bearer {token}"));
    read(url, request.send_empty())
}

/// Gets JSON from a running server.
pub(crate) fn get(url: &str, token: &str) -> Result<Value> {
    read(url, agent(Some(TIMEOUT)).get(url).header("authorization", &format!("Bearer {token}")).call())
}

fn agent(timeout: Option<Duration>) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_recv_response(timeout);
    config.build().into()
}

/// Returns the JSON of a response.
fn read(url: &str, sent: Result<http::Response<ureq::Body>, ureq::Error>) -> Result<Value> {
    let mut response = sent.with_context(|| format!("no response from {url}"))?;
    let status = response.status();
    let text = response.body_mut().read_to_string().context("lost the connection to the server")?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    if !status.is_success() {
        bail!(
            "the server returned {}: {}",
            status.as_u16(),
            value.get("message").and_then(Value::as_str).unwrap_or(&text)
        );
    }
    Ok(value)
}
