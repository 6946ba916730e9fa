//! `platform-server keys`: lists and rotates the keys of an installation.

use std::{
    io::{Write, stdout},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result};
use platform_core::timestamp::Timestamp;

use crate::{
    cli,
    config::Config,
    installation::{Installation, block_on},
    settings,
};

pub(crate) fn run(config: &Config, command: &cli::Keys) -> Result<ExitCode> {
    let keys = block_on(async {
        let Installation { keys, ring, shared, .. } = Installation::open_existing(config).await?;
        match command {
            cli::Keys::List => Ok(keys),
            cli::Keys::Rotate => {
                let keys = ring.rotate().await.context("cannot rotate the keys")?;
                if let Some(shared) = shared {
                    // The keys are sealed with the first key-encryption key now, so the other documents must be too.
                    let reseal = shared.documents.reseal(&["bootstrap", settings::DOCUMENT]).await;
                    reseal.context("cannot seal the documents of the installation again")?;
                }
                Ok(Arc::new(keys))
            }
        }
    })?;
    let mut out = stdout().lock();
    for (usage, keys) in
        [("signing", keys.signing_keys().collect::<Vec<_>>()), ("webhook", keys.webhook_keys().collect())]
    {
        let in_use = keys.first().map(|(_, created)| *created);
        for (position, (key, created)) in keys.into_iter().enumerate() {
            let (algorithm, kid) = (key.algorithm().name(), key.kid().unwrap_or_default());
            writeln!(out, "{usage}  {:<7}  {created}  {algorithm}  {kid}", state(position, created, in_use))?;
        }
    }
    for (usage, keys) in [("page", keys.page_tokens()), ("seal", keys.sealing())] {
        let in_use = keys.first().map(|key| key.created());
        for (position, key) in keys.iter().enumerate() {
            let created = key.created();
            writeln!(out, "{usage:<7}  {:<7}  {created}  {}", state(position, created, in_use), key.id())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the state of a key: the first of each use is in use, and newer ones will be as soon as all servers have read
/// them.
fn state(position: usize, created: Timestamp, in_use: Option<Timestamp>) -> &'static str {
    match position {
        0 => "in use",
        _ if in_use.is_some_and(|in_use| created > in_use) => "next",
        _ => "old",
    }
}
