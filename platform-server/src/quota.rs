//! `platform-server quota`: sets, removes and prints the limits of an organization, over the API of a running server or
//! in the store of a stopped one.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use anyhow::Result;
use platform_core::resources::iam::Group;
use serde_json::{Map, Value, json};

use crate::{
    cli::{Quota, QuotaCommand},
    config::Config,
    direct::{Direct, Open},
    installation::known_url,
    running::{bearer, get, send},
};

pub(crate) fn run(config: &Config, quota: &Quota) -> Result<ExitCode> {
    let (action, organization, body) = match &quota.command {
        QuotaCommand::Set { organization, kind, limit } => {
            ("SetResourceLimit", organization, json!({ "kind": kind, "limit": limit }))
        }
        QuotaCommand::Unset { organization, kind } => ("RemoveResourceLimit", organization, json!({ "kind": kind })),
        QuotaCommand::List { organization } => ("ListResourceLimits", organization, json!({})),
    };
    let is_list = matches!(quota.command, QuotaCommand::List { .. });
    let api = quota.at.url();
    let reply = match api {
        Some(url) => {
            let (first, rest) = action.split_at_checked(1).unwrap_or_default();
            let url = format!("{url}/iam/v2/groups/{organization}:{}{rest}", first.to_lowercase());
            let token = bearer(config, quota.at.token.as_ref())?;
            if is_list { get(&quota.at, &url, &token)? } else { send(&quota.at, &url, &token, &body)? }
        }
        None => {
            let otherwise = format!("use --api {}", known_url(config));
            let direct = Direct::open(config, Open::Existing, &otherwise)?;
            let mut request = Map::from_iter([("groupUid".to_owned(), json!(organization))]);
            request.extend(body.as_object().cloned().unwrap_or_default());
            direct.run::<Group>(action, &request)?
        }
    };
    if is_list {
        for limit in reply.get("limits").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| limit.get(name).and_then(Value::as_str).unwrap_or_default();
            let most = limit.get("limit").and_then(Value::as_i64).unwrap_or_default();
            writeln!(stdout(), "{}\t{most}\t{}", text("kind"), text("count"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
