//! `platform-server keys`: lists and rotates the keys of a data directory. Also reloads them in a running server.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use platform_core::platform::Platform;
use platform_http::{SystemClock, SystemEntropy};
use platform_oidc::{Algorithm, Issuer, Keys, KeysStamp};

use crate::{cli, config::Config, installation::Installation};

/// Interval at which a server checks for new keys.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(config: &Config, command: &cli::Keys) -> Result<ExitCode> {
    let current = Installation::open_existing(config)?.keys;
    let keys = match command {
        cli::Keys::List => current,
        cli::Keys::Rotate => {
            let keys = Keys::rotate(&config.data_dir, Algorithm::Rs256, &SystemClock, &SystemEntropy);
            Arc::new(keys.context("cannot rotate the keys")?)
        }
    };
    let mut out = stdout().lock();
    for (position, (key, created)) in keys.signing_keys().enumerate() {
        let (algorithm, kid) = (key.algorithm().name(), key.kid().unwrap_or_default());
        writeln!(out, "signing  {:<7}  {created}  {algorithm}  {kid}", state(position))?;
    }
    for (position, (key, created)) in keys.webhook_keys().enumerate() {
        let (algorithm, kid) = (key.algorithm().name(), key.kid().unwrap_or_default());
        writeln!(out, "webhook  {:<7}  {created}  {algorithm}  {kid}", state(position))?;
    }
    for (usage, keys) in [("page", keys.page_tokens()), ("seal", keys.sealing())] {
        for (position, key) in keys.iter().enumerate() {
            writeln!(out, "{usage:<7}  {:<7}  {}  {}", state(position), key.created(), key.id())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the state of a key by its position: the first of each use is the current one.
const fn state(position: usize) -> &'static str {
    if position == 0 { "in use" } else { "old" }
}

/// Spawns a task that switches the running server to the keys of its data directory whenever these change.
pub(crate) fn watch(data_dir: PathBuf, issuer: Arc<Issuer>, platform: Arc<Platform>, keys: Arc<Keys>) {
    tokio::spawn(async move {
        let mut current = keys.signing().kid().to_owned();
        // No stamp at first, so that a rotation since the start is detected.
        let (mut seen, mut reported) = (None, String::new());
        loop {
            tokio::time::sleep(INTERVAL).await;
            let dir = data_dir.clone();
            let read = tokio::task::spawn_blocking(move || read_if_new(&dir, seen)).await;
            let (stamp, read) = read.unwrap_or_else(|error| (None, Err(error.to_string())));
            seen = stamp;
            match read {
                Ok(Some(keys)) if keys.signing().kid() != current => {
                    keys.signing().kid().clone_into(&mut current);
                    platform.set_page_keys(keys.page_keys());
                    platform.set_seal_keys(keys.seal_keys());
                    issuer.replace_keys(Arc::new(keys));
                    reported.clear();
                    tracing::info!(kid = current, "switched to new keys");
                }
                // Logs each error once and not every second.
                Err(error) if error != reported => {
                    tracing::warn!(error, "cannot check for new keys");
                    reported = error;
                }
                Ok(_) => reported.clear(),
                Err(_) => {}
            }
        }
    });
}

/// Reads the keys unless their stamp is the one seen last, and returns the current stamp.
fn read_if_new(dir: &Path, seen: Option<KeysStamp>) -> (Option<KeysStamp>, Result<Option<Keys>, String>) {
    // Taken before the keys are read: a change in between has another stamp and is read again the next time.
    let stamp = Keys::stamp(dir);
    if stamp.is_some() && stamp == seen {
        return (seen, Ok(None));
    }
    match Keys::read(dir) {
        Ok(keys) => (stamp, Ok(keys)),
        Err(error) => (None, Err(error.to_string())),
    }
}
