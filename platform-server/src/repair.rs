//! `platform-server repair-owner`: gives an organization an owner, over the API of a running server or in the store of
//! a stopped one.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use anyhow::Result;
use platform_core::resources::iam::Group;
use serde_json::{Map, Value, json};

use crate::{
    cli::RepairOwner,
    config::Config,
    direct::{Direct, Open},
    installation::known_url,
    running::{bearer, send},
};

pub(crate) fn run(config: &Config, repair: &RepairOwner) -> Result<ExitCode> {
    let (organization, identity) = (&repair.organization, &repair.identity);
    let api = repair.at.url();
    let reply = match api {
        Some(url) => {
            let url = format!("{url}/iam/v2/groups/{organization}:repairOwner");
            send(&repair.at, &url, &bearer(config, repair.at.token.as_ref())?, &json!({ "identityUid": identity }))?
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
