//! `platform-server check`: verifies the store.

use std::{
    io::{Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use platform_blobs::BlobDirectory;
use platform_core::{
    blob::{self, BlobStore, Damage, MemoryBlobs},
    outbox,
    resources::KINDS,
    store,
};
#[cfg(feature = "sled")]
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::{
    config::{Config, Store},
    installation::{blob_path, store_path},
};

const UNFINISHED: &str = "the check could not be completed";

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let Some(path) = store_path(config) else {
        bail!("a memory store exists only inside its server process: nothing to check");
    };
    if !path.exists() {
        bail!("no store at {}: choose another with --data-dir or --store", path.display());
    }
    let findings = findings(config, &path)?;
    for finding in &findings {
        writeln!(stdout(), "{finding}")?;
    }
    let (count, path) = (findings.len(), path.display());
    let noun = if count == 1 { "finding" } else { "findings" };
    match count {
        0 => writeln!(stderr(), "no damage found in {path}")?,
        _ => writeln!(stderr(), "{path} is damaged: {count} {noun}")?,
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns each inconsistency with the advice on it.
fn findings(config: &Config, path: &Path) -> Result<Vec<String>> {
    let line = |what: &str, advice: &str| format!("{what}; {advice}");
    let (found, store): (Vec<_>, Box<dyn store::Store>) = match &config.store {
        Store::Sqlite(_) => {
            let store = SqliteStore::open(path)?;
            let found = store.check().context(UNFINISHED)?;
            (found.iter().map(|finding| line(&finding.what, finding.advice)).collect(), Box::new(store))
        }
        #[cfg(feature = "sled")]
        Store::Sled(_) => {
            let store = SledStore::open(path)?;
            let found = store.check().context(UNFINISHED)?;
            (found.iter().map(|finding| line(&finding.what, finding.advice)).collect(), Box::new(store))
        }
        Store::Memory => return Ok(Vec::new()),
    };
    // The records of a damaged store cannot be trusted, so they are searched for lost data only in an undamaged one.
    if found.is_empty() { lost_data(config, &*store) } else { Ok(found) }
}

/// Returns the pending events and dead letters whose shared data is missing from the store, and the resources whose
/// blobs are missing or damaged.
fn lost_data(config: &Config, store: &dyn store::Store) -> Result<Vec<String>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
    let lost = runtime.block_on(outbox::lost_bodies(store)).context(UNFINISHED)?;
    let line = |(key, data): &(store::Key, _)| {
        let store::Key { kind, uid } = key;
        format!("the data {data} of the {kind} {uid} is missing; restore a backup, or delete the subscription")
    };
    let blobs: Box<dyn BlobStore> = match blob_path(config) {
        // A missing directory has no blobs, and is not created.
        Some(path) if path.exists() => Box::new(BlobDirectory::open(path)?),
        _ => Box::new(MemoryBlobs::default()),
    };
    let damaged = blob::damaged(store, KINDS.iter().map(|registered| registered.kind), &*blobs);
    let damaged = runtime.block_on(damaged).context(UNFINISHED)?;
    let damage = |(named, damage): &(blob::Named, Damage)| {
        let state = if *damage == Damage::Missing { "is missing" } else { "does not match its digest" };
        let blob::Named { kind, uid, field, id } = named;
        format!("the blob {id} of the {kind} {uid}, {field}, {state}; restore a backup, or import it again")
    };
    Ok(lost.iter().map(line).chain(damaged.iter().map(damage)).collect())
}
