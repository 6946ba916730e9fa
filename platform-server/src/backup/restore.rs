//! `platform-server restore` and `platform-server backup verify`.
//!
//! A restored installation is a new generation: it has new keys that sign tokens and page tokens, so that none is
//! accepted that was issued before, and its sequences are greater than all that may have been used since the backup. The
//! keys that seal the secrets in the store are kept.

use std::{
    fs::{self, File},
    io::{Read, Write, stderr, stdin, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use platform_engine::{
    store::{Commit, Delete, Key, Put, Store},
    uid::Uid,
};
use platform_keys::{Algorithm, Bootstrap, Directory, KeyRing};
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};

use super::{
    archive::{self, Form, Manifest},
    create_directory,
};
use crate::{
    Kinds, check,
    cli::Restore,
    config::{self, Config},
    installation::{DOCUMENTS, block_on, sealed_files},
    stores::store_name,
    transfer::{self, Progress, progress},
};

/// How the names of temporary directories begin.
const TEMPORARY: &str = ".platform-restore-";
/// The distance between the sequences of two generations: more than the commits that an installation makes between a
/// backup and its restoration. Our choice.
const GENERATION: u64 = 1 << 32;

/// The work while a backup is read.
const UNPACKED: &str = "unpacked";

/// Restores a backup into an empty data directory.
pub(crate) fn restore(config: &Config, restore: &Restore) -> Result<ExitCode> {
    let kind = match &config.store {
        config::Store::Sqlite(None) => &config.store,
        #[cfg(feature = "sled")]
        config::Store::Sled(None) => &config.store,
        store if store.is_shared() => bail!(super::DATABASE),
        config::Store::Memory => bail!("a memory store exists only inside its server process: choose another --store"),
        _ => {
            bail!("the store is restored in the data directory: leave out the path in --store, and move it afterwards")
        }
    };
    if config.blobs.is_some() {
        bail!("blobs are restored in the data directory: leave out --blobs, and move them afterwards");
    }
    let directory = &config.data_dir;
    let is_new = !directory.exists();
    for interrupted in reject_contents(directory)? {
        fs::remove_dir_all(&interrupted).with_context(|| format!("cannot remove {}", interrupted.display()))?;
    }
    create_directory(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let restored = input(&restore.from).and_then(|input| fill(directory, input, kind, restore, config));
    if restored.is_err() && is_new {
        drop(fs::remove_dir(directory));
    }
    let manifest = restored.with_context(|| format!("cannot restore {}", restore.from.display()))?;
    let (time, sequence) = (manifest.time, manifest.sequence);
    writeln!(stdout(), "{}: the backup of {time}, sequence {sequence}", directory.display())?;
    let (mut out, at) = (stderr(), config.data_dir_option());
    if directory.join(archive::KEYS).exists() {
        writeln!(
            out,
            "all access tokens and page tokens of before are invalid: `platform-server env{at}` prints a new token"
        )?;
    } else {
        writeln!(
            out,
            "the backup has no keys: no server starts until `platform-server keys import{at}` gives it those of the \
             installation, or `serve --recreate-missing` creates new ones, without which the secrets in the store are lost"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rejects a directory that has something other than the temporary directories of restorations, which are returned.
fn reject_contents(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut temporary = Vec::new();
    if !directory.exists() {
        return Ok(temporary);
    }
    let failed = || format!("cannot read {}", directory.display());
    for entry in fs::read_dir(directory).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name();
        match name.to_string_lossy() {
            // Every ext4 file system has one.
            name if name == "lost+found" => {}
            name if name.starts_with(TEMPORARY) => temporary.push(entry.path()),
            name => bail!(
                "{} is not empty, it has {name}: choose another directory with --data-dir, or move its contents away",
                directory.display()
            ),
        }
    }
    Ok(temporary)
}

/// Opens a backup. A bar shows how much of it was read; the length of standard input is unknown.
fn input(path: &Path) -> Result<(Box<dyn Read>, ProgressBar)> {
    if path.as_os_str() == "-" {
        let bar = progress(UNPACKED, Progress::Bytes(None))?;
        return Ok((Box::new(bar.wrap_read(stdin().lock())), bar));
    }
    let failed = || format!("cannot open {}", path.display());
    let file = File::open(path).with_context(failed)?;
    let bar = progress(UNPACKED, Progress::Bytes(Some(file.metadata().with_context(failed)?.len())))?;
    Ok((Box::new(bar.wrap_read(file)), bar))
}

/// Restores into a temporary directory in the data directory, and then moves everything to its place. A server refuses a
/// directory with a store and without keys, so these are moved last.
fn fill(
    directory: &Path,
    input: (Box<dyn Read>, ProgressBar),
    kind: &config::Store,
    restore: &Restore,
    config: &Config,
) -> Result<Manifest> {
    let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(directory)?;
    let from = temporary.path();
    let (manifest, findings) = prepare(from, input, (kind, config.kinds), restore.keys.as_deref())?;
    for finding in &findings {
        writeln!(stderr(), "{finding}")?;
    }
    if !findings.is_empty() && !restore.accept_damage {
        bail!(
            "the backup is damaged, {} findings: restore another one, or pass --accept-damage to restore it as it is",
            findings.len()
        );
    }
    if let Some(sealed) = sealed_files(config, from)? {
        block_on(async { Ok(sealed.reseal(&DOCUMENTS).await?) })?;
    }
    archive::sync_all(from).context("cannot write the restored files")?;
    // A server may have been started on the directory since the check.
    reject_contents(directory)?;
    let store = store_name(kind);
    for name in [format!("{store}.blobs"), store.to_owned(), archive::BOOTSTRAP.to_owned(), archive::KEYS.to_owned()] {
        let from = from.join(&name);
        if from.exists() {
            fs::rename(from, directory.join(&name)).with_context(|| format!("cannot move {name} to its place"))?;
        }
    }
    File::open(directory)?.sync_all()?;
    Ok(manifest)
}

/// Makes a data directory of a backup: unpacks it, opens the store, begins a new generation, and checks the store and
/// the blobs. `restore` and `backup verify` both do this, so that they agree on what is damaged. Returns the findings.
fn prepare(
    directory: &Path,
    (input, bar): (Box<dyn Read>, ProgressBar),
    (kind, kinds): (&config::Store, Kinds),
    keys: Option<&Path>,
) -> Result<(Manifest, Vec<String>)> {
    let manifest = archive::unpack(input, Some(directory));
    bar.finish_and_clear();
    let manifest = manifest?;
    let store = directory.join(store_name(kind));
    let blobs = directory.join(format!("{}.blobs", store_name(kind)));
    let unpacked = directory.join(archive::BLOBS);
    if unpacked.exists() {
        fs::rename(unpacked, &blobs)?;
    }
    if let Some(keys) = keys {
        let mut contents = zeroize::Zeroizing::new(Vec::new());
        let read = File::open(keys).and_then(|file| file.take(1 << 20).read_to_end(&mut contents));
        read.with_context(|| format!("cannot read {}", keys.display()))?;
        let own = directory.join(archive::KEYS);
        if own.exists() {
            bail!("the backup has keys: leave out --keys");
        }
        transfer::create_secret(&own)?.write_all(&contents)?;
    }
    block_on(async {
        let documents = Arc::new(Directory::new(directory));
        let uids = Bootstrap::load(&*documents).await?.context("the backup has no bootstrap.json")?;
        if directory.join(archive::KEYS).exists() {
            let ring = KeyRing::new(documents, Algorithm::Rs256, Arc::new(SystemClock), Arc::new(SystemEntropy));
            ring.renew().await.context("cannot create new keys")?;
        }
        let from = directory.join(manifest.store.entry());
        let opened: Box<dyn Store> = match (manifest.store, kind) {
            (Form::Sqlite, config::Store::Sqlite(_)) => {
                fs::rename(&from, &store)?;
                Box::new(SqliteStore::open(&store)?)
            }
            (Form::Sqlite, _) => bail!(
                "the backup is of a SQLite store: restore it without --store; `export` and `import store` move it to \
                 another store"
            ),
            #[cfg(feature = "sled")]
            (Form::Export, config::Store::Sled(_)) => Box::new(platform_store_sled::SledStore::open(&store)?),
            (Form::Export, _) => Box::new(SqliteStore::builder().bulk_load(true).open(&store)?),
        };
        if manifest.store == Form::Export {
            // Verified while it is read: what was written is deleted with the temporary directory if that fails.
            let file = File::open(&from)?;
            let bar = progress("imported", Progress::Bytes(Some(file.metadata()?.len())))?;
            let read = bar.wrap_read(file);
            let read = transfer::read_into(kinds, &*opened, read, "store.ndjson of the backup", false).await;
            bar.finish_and_clear();
            read?;
            fs::remove_file(&from)?;
        }
        begin_generation(&*opened, &uids.organization, manifest.sequence).await
    })?;
    let bar = progress("checking the restored store", Progress::Nothing)?;
    let findings = check::findings(kind, &store, Some(blobs), kinds);
    bar.finish_and_clear();
    Ok((manifest, findings?))
}

/// Makes all later sequences greater than any that was used since the backup.
async fn begin_generation(store: &dyn Store, organization: &Uid, sequence: u64) -> Result<()> {
    // No kind of resource: only its revision matters.
    let key = Key::new("Generation", organization.clone());
    let put = Put {
        key: key.clone(),
        sort: Vec::new(),
        filter: Vec::new(),
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 0,
        body: "{}".into(),
        private: "".into(),
        queue: false,
        revision: Some(sequence.saturating_add(GENERATION)),
    };
    store.commit(Commit { put: vec![put], ..Commit::default() }).await?;
    store.commit(Commit { delete: vec![Delete::Key(key)], ..Commit::default() }).await?;
    Ok(())
}

/// Verifies a backup: its checksums, that it can be restored, and that the check finds nothing in the restored store.
pub(super) fn verify(path: &Path, kinds: Kinds) -> Result<ExitCode> {
    let temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
    let kind = config::Store::Sqlite(None);
    let prepared = input(path).and_then(|input| prepare(temporary.path(), input, (&kind, kinds), None));
    let (manifest, findings) = prepared.with_context(|| path.display().to_string())?;
    for finding in &findings {
        writeln!(stdout(), "{finding}")?;
    }
    let (time, sequence, release) = (manifest.time, manifest.sequence, &manifest.release);
    let keys = if manifest.keys { "with" } else { "without" };
    let what = format!("a backup of {time}, sequence {sequence}, release {release}, {keys} keys");
    if findings.is_empty() {
        writeln!(stdout(), "{}: {what}, intact", path.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(stderr(), "{}: {what}, damaged: {} findings", path.display(), findings.len())?;
    Ok(ExitCode::FAILURE)
}
