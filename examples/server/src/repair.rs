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

use crate::{
    cli::RepairOwner,
    config::Config,
    import::{Direct, Open, bearer},
    installation::known_url,
};

pub(crate) fn run(config: &Config, repair: &RepairOwner) -> Result<ExitCode> {
    let (organization, identity) = (&repair.organization, &repair.identity);
    let api = repair.at.api.as_deref().map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty());
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

/// Sends JSON to a running server and returns its JSON response.
pub(crate) fn send(url: &str, token: &str, body: &Value) -> Result<Value> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_recv_response(Some(Duration::from_secs(60)));
    let agent: ureq::Agent = config.build().into();
    let sent = agent
        .post(url)
        .header("authorization", &format!("Bearer {token}"))
        .header("content-type", "application/json")
        .send(body.to_string());
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
