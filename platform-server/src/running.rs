//! A running server, which an operator's command calls.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::{
    Agent,
    config::ConfigBuilder,
    http,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem},
    typestate::AgentScope,
};

use crate::{
    cli::At,
    config::Config,
    installation::{Installation, block_on},
};

/// Lifetime of the token of a command, longer than any import takes.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The time in which a server must respond.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

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
pub(crate) fn send(at: &At, url: &str, token: &str, body: &Value) -> Result<Value> {
    let request = agent(at, Some(TIMEOUT))?.post(url).header("authorization", &format!("Bearer {token}"));
    read(url, request.header("content-type", "application/json").send(body.to_string()))
}

/// Asks a running server for something that can take long, and returns its JSON response.
pub(crate) fn send_and_wait(at: &At, url: &str, token: &str) -> Result<Value> {
    let request = agent(at, None)?.post(url).header("authorization", &format!("Bearer {token}"));
    read(url, request.send_empty())
}

/// Gets JSON from a running server.
pub(crate) fn get(at: &At, url: &str, token: &str) -> Result<Value> {
    read(url, agent(at, Some(TIMEOUT))?.get(url).header("authorization", &format!("Bearer {token}")).call())
}

fn agent(at: &At, timeout: Option<Duration>) -> Result<Agent> {
    Ok(client(at)?.timeout_recv_response(timeout).build().into())
}

/// Returns the configuration of a client for a running server, whose certificate is verified by the public authorities or
/// by those of `--ca-file` only. Redirects are not followed, as they could lead a token to another server.
///
/// All commands use it, because ureq panics at the first https URL if no provider of TLS is chosen.
pub(crate) fn client(at: &At) -> Result<ConfigBuilder<AgentScope>> {
    let roots = at.ca_file.as_deref().map_or(Ok(RootCerts::WebPki), authorities)?;
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .root_certs(roots);
    Ok(Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .tls_config(tls.build())
        .timeout_connect(Some(Duration::from_secs(10))))
}

/// Returns whether a request without a response fails again however often it is repeated.
pub(crate) fn is_lasting(error: &ureq::Error) -> bool {
    use ureq::Error;
    match error {
        Error::Io(error) => {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
            matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
        }
        Error::ConnectionFailed | Error::HostNotFound | Error::Timeout(_) | Error::Protocol(_) => false,
        _ => true,
    }
}

/// Returns the certificates of a PEM file.
fn authorities(path: &Path) -> Result<RootCerts> {
    let pem = fs::read(path).with_context(|| format!("cannot read --ca-file {}", path.display()))?;
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.with_context(|| format!("--ca-file {}", path.display()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        bail!("--ca-file {} has no certificate: it must be a PEM file", path.display());
    }
    Ok(RootCerts::new_with_certs(&certificates))
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
