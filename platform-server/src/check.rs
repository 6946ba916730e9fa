//! `platform-server check`: verifies the store of a stopped server, a database, or a copy that a running server makes.

use std::{
    fmt::Display,
    io::{Write, stderr, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use platform_blobs::BlobDirectory;
use platform_core::outbox;
use platform_engine::{
    blob::{self, BlobStore, Damage, MemoryBlobs},
    store,
};
#[cfg(feature = "sled")]
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use serde_json::Value;

use crate::{
    Kinds,
    cli::At,
    config::{Config, Store},
    installation::{Installation, block_on},
    running::{bearer, send_and_wait},
    shared,
    stores::{blob_path, is_in_use, store_path},
};

const UNFINISHED: &str = "the check could not be completed";

/// The advice for a store that cannot be checked while it is used.
pub(crate) const ONLY_STOPPED: &str = "Only a SQLite store or a database can be checked while a server uses it: stop the \
     server first, or use `backup` and `backup verify`, which checks a copy of the records";

pub(crate) fn run(config: &Config, at: &At) -> Result<ExitCode> {
    if let Some(url) = at.url() {
        return remote(config, at, url);
    }
    if config.store.is_shared() {
        return check_shared(config);
    }
    let Some(path) = store_path(config) else {
        bail!("a memory store exists only inside its server process: nothing to check");
    };
    if !path.exists() {
        bail!("no store at {}: choose another with --data-dir or --store", path.display());
    }
    match findings(&config.store, &path, blob_path(config), config.kinds) {
        Err(error) if is_in_use(&error) => {
            if !matches!(config.store, Store::Sqlite(_)) {
                let why = format!("the store at {} is open in another process. {ONLY_STOPPED}", path.display());
                return Err(error.context(why));
            }
            let url = block_on(Installation::open_existing(config)).and_then(|open| open.issuer_url(config));
            remote(config, at, &url?)
        }
        findings => report(&findings?, &path.display()),
    }
}

/// Asks a running server to check a copy of its store.
fn remote(config: &Config, at: &At, url: &str) -> Result<ExitCode> {
    let token = bearer(config, at.token.as_ref())?;
    let reply = send_and_wait(at, &format!("{url}/operator/check"), &token)?;
    let found = reply.get("findings").and_then(Value::as_array).context("the server returned no findings")?;
    let findings: Vec<_> = found.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    report(&findings, &format!("the store of {url}"))
}

/// Checks a database, which servers may be using.
fn check_shared(config: &Config) -> Result<ExitCode> {
    let findings = block_on(async {
        let shared = shared::open(config).await?.context("not a database")?;
        let found = shared.check().await?;
        // The records of a damaged store cannot be trusted.
        let blobs = open_existing(blob_path(config), true)?;
        if found.is_empty() { lost_data(&*blobs, &*shared.store(), config.kinds).await } else { Ok(found) }
    })?;
    report(&findings, &config.store)
}

fn report(findings: &[String], path: &dyn Display) -> Result<ExitCode> {
    for finding in findings {
        writeln!(stdout(), "{finding}")?;
    }
    let count = findings.len();
    let noun = if count == 1 { "finding" } else { "findings" };
    match count {
        0 => writeln!(stderr(), "no damage found in {path}")?,
        _ => writeln!(stderr(), "{path} is damaged: {count} {noun}")?,
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns each inconsistency of a store that one process uses, and of its blobs, with the advice on it.
pub(crate) fn findings(kind: &Store, path: &Path, blobs: Option<PathBuf>, kinds: Kinds) -> Result<Vec<String>> {
    findings_with(kind, path, kinds, || open_existing(blobs, false))
}

/// Like [`findings`], with blobs that are opened after the store.
fn findings_with<B: AsRef<dyn BlobStore>>(
    kind: &Store,
    path: &Path,
    kinds: Kinds,
    blobs: impl FnOnce() -> Result<B>,
) -> Result<Vec<String>> {
    let line = |what: &str, advice: &str| format!("{what}; {advice}");
    let (found, store): (Vec<_>, Box<dyn store::Store>) = match kind {
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
    if found.is_empty() { block_on(lost_data(blobs()?.as_ref(), &*store, kinds)) } else { Ok(found) }
}

/// Returns each inconsistency of a copy of a SQLite store, and of the blobs, which a server may be using. Blocks.
pub(crate) fn findings_of_copy(path: &Path, blobs: &Arc<dyn BlobStore>, kinds: Kinds) -> Result<Vec<String>> {
    findings_with(&Store::Sqlite(None), path, kinds, || Ok(Arc::clone(blobs)))
}

/// Opens the blobs of a stopped server, or those of a database.
fn open_existing(path: Option<PathBuf>, is_shared: bool) -> Result<Box<dyn BlobStore>> {
    Ok(match path {
        // A missing directory has no blobs, and is not created.
        Some(path) if path.exists() && is_shared => Box::new(BlobDirectory::open_shared(path)?),
        Some(path) if path.exists() => Box::new(BlobDirectory::open(path)?),
        _ => Box::new(MemoryBlobs::default()),
    })
}

/// Returns the pending events and dead letters whose shared data is missing from the store, and the resources whose
/// blobs are missing or damaged.
async fn lost_data(blobs: &dyn BlobStore, store: &dyn store::Store, kinds: Kinds) -> Result<Vec<String>> {
    let lost = outbox::lost_bodies(store).await.context(UNFINISHED)?;
    let line = |(key, data): &(store::Key, _)| {
        let store::Key { kind, uid } = key;
        format!("the data {data} of the {kind} {uid} is missing; restore a backup, or delete the subscription")
    };
    let damaged = blob::damaged(store, kinds.stored().map(|registered| registered.kind), blobs);
    let damaged = damaged.await.context(UNFINISHED)?;
    let damage = |(named, damage): &(blob::Named, Damage)| {
        let state = if *damage == Damage::Missing { "is missing" } else { "does not match its digest" };
        let blob::Named { kind, uid, field, id } = named;
        format!("the blob {id} of the {kind} {uid}, {field}, {state}; restore a backup, or import it again")
    };
    Ok(lost.iter().map(line).chain(damaged.iter().map(damage)).collect())
}
