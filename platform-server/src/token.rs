//! `platform-server token`: issues an access token for an identity, and revokes tokens over the API of a running server
//! or in the store of a stopped one.

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use anyhow::Result;
use platform_core::resources::iam::Identity;
use serde_json::{Map, Value, json};

use crate::{
    cli::{RevokeTokens, Token, TokenCommand},
    config::Config,
    direct::{Direct, Open},
    installation::{Installation, block_on, known_url},
    running::{bearer, send},
};

pub(crate) fn run(config: &Config, token: &Token) -> Result<ExitCode> {
    if let Some(TokenCommand::Revoke(tokens)) = &token.command {
        return revoke(config, tokens);
    }
    let installation = block_on(Installation::open_existing(config))?;
    let identity = token.identity.as_ref().unwrap_or(&installation.bootstrap.operator);
    let token = installation.token(&installation.issuer_url(config)?, identity, token.ttl)?;
    writeln!(stdout(), "{token}")?;
    Ok(ExitCode::SUCCESS)
}

fn revoke(config: &Config, tokens: &RevokeTokens) -> Result<ExitCode> {
    let identity = &tokens.identity;
    let only = [("tokenId", tokens.id.as_ref().map(|id| json!(id))), ("beforeTime", tokens.before.map(|at| json!(at)))];
    let mut request: Map<String, Value> =
        only.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let reply = match tokens.at.url() {
        Some(url) => {
            let url = format!("{url}/iam/v2/identities/{identity}:revokeTokens");
            send(&tokens.at, &url, &bearer(config, tokens.at.token.as_ref())?, &request.into())?
        }
        None => {
            let otherwise = format!("revoke the tokens with --api {}", known_url(config));
            let direct = Direct::open(config, Open::Existing, &otherwise)?;
            request.insert("identityUid".to_owned(), json!(identity));
            direct.run::<Identity>("RevokeTokens", &request)?
        }
    };
    let number = reply.get("endedSignIns").and_then(Value::as_u64).unwrap_or_default();
    let what = match (&tokens.id, tokens.before) {
        (Some(id), _) => format!("The token {id} of {identity} is revoked"),
        (None, Some(before)) => format!("The tokens of {identity} until {before} are revoked"),
        (None, None) => format!("The tokens of {identity} so far are revoked; sign-ins ended: {number}"),
    };
    writeln!(stdout(), "{what}")?;
    Ok(ExitCode::SUCCESS)
}
