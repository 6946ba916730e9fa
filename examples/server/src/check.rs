//! `platform-server check`: verifies the store.

use std::{
    fmt::Display,
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
    installation::{blob_path, block_on, store_path},
    shared,
};

const UNFINISHED: &str = "the check could not be completed";

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    if config.store.is_shared() {
        return check_shared(config);
    }
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
    report(&findings, &path.display())
}

/// Checks a database, which servers may be using.
fn check_shared(config: &Config) -> Result<ExitCode> {
    let findings = block_on(async {
        let shared = shared::open(config).await?.context("not a database")?;
        let found = shared.check().await?;
        // The records of a damaged store cannot be trusted.
        if found.is_empty() { lost_data(config, &*shared.store()).await } else { Ok(found) }
    })?;
    for finding in &findings {
        writeln!(stdout(), "{finding}")?;
    }
    report(&findings, &config.store)
}

fn report(findings: &[String], path: &dyn Display) -> Result<ExitCode> {
    let count = findings.len();
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
        #[cfg(feature = "postgres")]
        Store::Postgres(_) => return Ok(Vec::new()),
        Store::Memory => return Ok(Vec::new()),
    };
    // The records of a damaged store cannot be trusted, so they are searched for lost data only in an undamaged one.
    if found.is_empty() { block_on(lost_data(config, &*store)) } else { Ok(found) }
}

/// Returns the pending events and dead letters whose shared data is missing from the store, and the resources whose
/// blobs are missing or damaged.
async fn lost_data(config: &Config, store: &dyn store::Store) -> Result<Vec<String>> {
    let lost = outbox::lost_bodies(store).await.context(UNFINISHED)?;
    let line = |(key, data): &(store::Key, _)| {
        let store::Key { kind, uid } = key;
        format!("the data {data} of the {kind} {uid} is missing; restore a backup, or delete the subscription")
    };
    let blobs: Box<dyn BlobStore> = match blob_path(config) {
        // A missing directory has no blobs, and is not created.
        Some(path) if path.exists() && config.store.is_shared() => Box::new(BlobDirectory::open_shared(path)?),
        Some(path) if path.exists() => Box::new(BlobDirectory::open(path)?),
        _ => Box::new(MemoryBlobs::default()),
    };
    let damaged = blob::damaged(store, KINDS.iter().map(|registered| registered.kind), &*blobs);
    let damaged = damaged.await.context(UNFINISHED)?;
    let damage = |(named, damage): &(blob::Named, Damage)| {
        let state = if *damage == Damage::Missing { "is missing" } else { "does not match its digest" };
        let blob::Named { kind, uid, field, id } = named;
        format!("the blob {id} of the {kind} {uid}, {field}, {state}; restore a backup, or import it again")
    };
    Ok(lost.iter().map(line).chain(damaged.iter().map(damage)).collect())
}
