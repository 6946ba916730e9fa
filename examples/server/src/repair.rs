//! `platform-server repair-owner`: gives an organization an owner, over the API of a running server or in the store of
//! a stopped one.

use std::{
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use platform_core::resources::iam::Group;
use serde_json::{Map, Value, json};
use ureq::http;

use crate::{
    cli::RepairOwner,
    config::Config,
    import::{Direct, Open, bearer},
    installation::known_url,
};

pub(crate) fn run(config: &Config, repair: &RepairOwner) -> Result<ExitCode> {
    let (organization, identity) = (&repair.organization, &repair.identity);
    let api = repair.at.url();
    let reply = match api {
        Some(url) => {
            let url = format!("{url}/iam/v2/groups/{organization}:repairOwner");
            send(&url, &bearer(config, repair.at.token.as_ref())?, &json!({ "identityUid": identity }))?
        }
        None => {
            let otherwise = format!("repair the organization with --api {}", known_url(config));
            let direct = Direct::open(config, Open::Existing, &otherwise)?;
            let request = [("groupUid", organization), ("identityUid", identity)];
            let request = request.map(|(name, uid)| (name.to_owned(), json!(uid)));
            direct.run::<Group>("RepairOwner", &Map::from_iter(request))?
        }
    };
    let binding = reply.pointer("/roleBinding/uid").and_then(Value::as_str).unwrap_or_default();
    writeln!(stdout(), "{identity} now owns {organization} through the role binding {binding}")?;
    Ok(ExitCode::SUCCESS)
}

/// The time in which a server must respond.
const TIMEOUT: Duration = Duration::from_secs(60);

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
