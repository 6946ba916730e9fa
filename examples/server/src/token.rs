//! `platform-server token`: issues an access token for an identity.

use std::{
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use platform_core::uid::Uid;
use platform_oidc::AccessToken;

use crate::{
    cli::Token,
    config::Config,
    installation::{Installation, block_on},
};

pub(crate) fn run(config: &Config, token: &Token) -> Result<ExitCode> {
    let installation = block_on(Installation::open_existing(config))?;
    let identity = token.identity.as_ref().unwrap_or(&installation.bootstrap.operator);
    let token = issue(&installation, &installation.issuer_url(config)?, identity, token.ttl)?;
    writeln!(stdout(), "{token}")?;
    Ok(ExitCode::SUCCESS)
}

/// Issues a token with the URL of the server as issuer and audience.
pub(crate) fn issue(installation: &Installation, url: &str, identity: &Uid, ttl: Duration) -> Result<String> {
    let request = AccessToken { subject: identity, audiences: &[url], ttl, claims: serde_json::Map::new() };
    Ok(installation.issuer(url)?.access_token(&request)?.token)
}
