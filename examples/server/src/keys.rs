//! `platform-server keys`: the keys of a data directory, shown and replaced; and a server that follows them.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use platform_core::{aip::page_token::PageKeys, platform::Platform, seal::SealKeys};
use platform_http::{SystemClock, SystemEntropy};
use platform_oidc::{Algorithm, Issuer, Keys, KeysStamp};

use crate::{
    cli,
    config::Config,
    installation::{Installation, numbered},
};

/// How often a server looks whether its keys were replaced.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(config: &Config, command: &cli::Keys) -> Result<ExitCode> {
    let standing = Installation::open_existing(config)?.keys;
    let keys = match command {
        cli::Keys::List => standing,
        cli::Keys::Rotate => {
            let keys = Keys::rotate(&config.data_dir, Algorithm::Rs256, &SystemClock, &SystemEntropy);
            Arc::new(keys.context("cannot rotate the keys")?)
        }
    };
    let mut out = stdout().lock();
    for (place, (key, created)) in keys.signing_keys().enumerate() {
        let (algorithm, kid) = (key.algorithm().name(), key.kid().unwrap_or_default());
        writeln!(out, "signing  {:<7}  {created}  {algorithm}  {kid}", state(place))?;
    }
    for (place, (key, created)) in keys.webhook_keys().enumerate() {
        let (algorithm, kid) = (key.algorithm().name(), key.kid().unwrap_or_default());
        writeln!(out, "webhook  {:<7}  {created}  {algorithm}  {kid}", state(place))?;
    }
    for (sort, keys) in [("page", keys.page_tokens()), ("seal", keys.sealing())] {
        for (place, key) in keys.iter().enumerate() {
            writeln!(out, "{sort:<7}  {:<7}  {}  {}", state(place), key.created(), key.id())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

const fn state(place: usize) -> &'static str {
    if place == 0 { "in use" } else { "known" }
}

/// Lets a server go over to the keys of its data directory whenever they were replaced.
pub(crate) fn follow(data_dir: PathBuf, issuer: Arc<Issuer>, platform: Arc<Platform>, keys: Arc<Keys>) {
    tokio::spawn(async move {
        let mut current = keys.signing().kid().to_owned();
        // None, so that what was replaced since the start is seen.
        let (mut seen, mut told) = (None, String::new());
        loop {
            tokio::time::sleep(INTERVAL).await;
            let dir = data_dir.clone();
            let read = tokio::task::spawn_blocking(move || read_if_new(&dir, seen)).await;
            let (stamp, read) = read.unwrap_or_else(|error| (None, Err(error.to_string())));
            seen = stamp;
            match read {
                Ok(Some(keys)) if keys.signing().kid() != current => {
                    keys.signing().kid().clone_into(&mut current);
                    platform.set_page_keys(PageKeys::new(keys.page_tokens().iter().map(numbered)));
                    platform.set_seal_keys(SealKeys::new(keys.sealing().iter().map(numbered)));
                    issuer.replace_keys(Arc::new(keys));
                    told.clear();
                    tracing::info!(kid = current, "went over to new keys");
                }
                // Said once, and not every second.
                Err(error) if error != told => {
                    tracing::warn!(error, "cannot look for new keys");
                    told = error;
                }
                Ok(_) => told.clear(),
                Err(_) => {}
            }
        }
    });
}

/// Reads the keys unless they are those that were seen last, and tells which they are now.
fn read_if_new(dir: &Path, seen: Option<KeysStamp>) -> (Option<KeysStamp>, Result<Option<Keys>, String>) {
    // Looked at first: what is written in between is read again the next time.
    let stamp = Keys::stamp(dir);
    if stamp.is_some() && stamp == seen {
        return (seen, Ok(None));
    }
    match Keys::read(dir) {
        Ok(keys) => (stamp, Ok(keys)),
        Err(error) => (None, Err(error.to_string())),
    }
}
