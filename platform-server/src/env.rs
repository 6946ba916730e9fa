//! `platform-server env`: prints the variables that the curl examples of the documentation use.

use std::{
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;

use crate::{
    config::Config,
    installation::{Installation, block_on},
    shell::word,
};

/// Lifetime of the printed token.
const TTL: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let installation = block_on(Installation::open_existing(config))?;
    let url = installation.issuer_url(config)?;
    let bootstrap = &installation.bootstrap;
    let token = installation.token(&url, &bootstrap.operator, TTL)?;
    for (name, value) in [("API", url.as_str()), ("ORG_ID", &bootstrap.organization), ("TOKEN", &token)] {
        writeln!(stdout(), "export {name}={}", word(value))?;
    }
    Ok(ExitCode::SUCCESS)
}
