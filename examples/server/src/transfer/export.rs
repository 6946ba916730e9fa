//! `platform-server export`.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{BufWriter, Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use platform_core::{
    kind::Registered,
    store::{Key, Order, OrderBy, Query, Record, Scope, Store},
};

use super::{
    BATCH, BATCH_BYTES, NeedSecrets, count_blobs,
    format::{Header, Writer},
    kinds, progress,
};
use crate::{
    cli::Export,
    config::Config,
    import::reject_memory,
    installation::{Installation, Purpose, blob_path, block_on},
};

/// What to do when the store changes during an export.
const CHANGED: &str = "the store changed during the export: stop all servers, and export again";

/// Writes the store of a stopped server to a file or to standard output.
pub(crate) fn export(config: &Config, export: &Export) -> Result<ExitCode> {
    reject_memory(config, "export another store")?;
    let (total, need_secrets, blobs) = block_on(async {
        let installation = Installation::open_existing(config).await?;
        super::reject_unfinished(&*installation.documents).await?;
        let store = installation.store(config, Purpose::Serve)?;
        let seal_keys = installation.keys.sealing().iter().map(|key| key.id().to_owned()).collect();
        let bootstrap = &installation.bootstrap;
        let header = Header::new(
            bootstrap.organization.clone(),
            bootstrap.operator.clone(),
            Some(seal_keys).filter(|_| export.with_private),
        );
        let bar = progress("exported", None)?;
        let done = match export.file() {
            None => write(&*store, &header, stdout().lock(), &bar).await.map(|(_, done)| done),
            Some(path) => write_file(&*store, &header, path, &bar).await,
        };
        bar.finish_and_clear();
        let (total, need_secrets) = done?;
        Ok((total, need_secrets, count_blobs(&*store, None).await?.0))
    })?;
    let mut out = stderr();
    writeln!(out, "exported {total} records")?;
    if !need_secrets.lines().is_empty() {
        writeln!(out, "secrets were left out (--with-private keeps them); after the import:{}", need_secrets.lines())?;
    }
    if export.with_private {
        writeln!(out, "the secrets stay sealed with the keys of this installation: move them with `keys export`")?;
    }
    if let (1.., Some(path)) = (blobs, blob_path(config)) {
        writeln!(out, "{blobs} blobs are not part of the export: copy the directory {} too", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates a file that only its owner can read.
///
/// # Errors
/// Fails if the file exists.
pub(crate) fn create_secret(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Writes an export to a new file, which is deleted if it cannot be completed.
async fn write_file(store: &dyn Store, header: &Header, path: &Path, bar: &ProgressBar) -> Result<(u64, NeedSecrets)> {
    let file = create_secret(path)?;
    let done = match write(store, header, file, bar).await {
        Ok((file, done)) => file.sync_all().with_context(|| format!("cannot write {}", path.display())).map(|()| done),
        Err(error) => Err(error),
    };
    if done.is_err() {
        drop(std::fs::remove_file(path));
    }
    done
}

/// Writes an export, and returns the number of its records and those that need new secrets.
pub(super) async fn write<W: Write>(
    store: &dyn Store,
    header: &Header,
    out: W,
    bar: &ProgressBar,
) -> Result<(W, (u64, NeedSecrets))> {
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, out), header)?;
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for registered in kinds() {
        let mut after = None;
        loop {
            let (records, next) = page(store, registered, after.take()).await?;
            bar.inc(records.len() as u64);
            for record in records {
                let newest = newest.entry(registered.kind.name).or_default();
                *newest = record.revision.max(*newest);
                writer.add(registered, record, header.private)?;
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    // Only a stopped server's store is the same throughout: what has changed is compared once more.
    for registered in kinds() {
        let name = registered.kind.name;
        let order = Order { by: OrderBy::Sequence, descending: true };
        let last = store.list(&Query { order, limit: 1, count: true, ..Query::new(name, Scope::All) }).await?;
        let revision = last.items.first().map(|item| item.revision);
        let counted = writer.records.get(name).copied().unwrap_or(0);
        if last.total != Some(counted) || revision != newest.get(name).copied() {
            bail!(CHANGED);
        }
    }
    let total = writer.records.values().sum();
    let (out, need_secrets) = writer.finish()?;
    let out = out.into_inner().map_err(std::io::IntoInnerError::into_error).context("cannot write the export")?;
    Ok((out, (total, need_secrets)))
}

/// Returns records of a kind in the order of their uids, and the position after which the next ones begin.
async fn page(
    store: &dyn Store,
    registered: &Registered,
    after: Option<platform_core::store::Position>,
) -> Result<(Vec<Record>, Option<platform_core::store::Position>)> {
    let kind = registered.kind.name;
    let query = Query { after, limit: BATCH, bytes: BATCH_BYTES, ..Query::new(kind, Scope::All) };
    let page = store.list(&query).await?;
    let keys: Vec<_> = page.items.iter().map(|item| Key::new(kind, item.uid.clone())).collect();
    let read = store.get(&keys, &[]).await?;
    let records: Option<Vec<_>> = read.records.into_iter().collect();
    let records = records.context(CHANGED)?;
    if page.items.iter().zip(&records).any(|(item, record)| item.revision != record.revision) {
        bail!(CHANGED);
    }
    Ok((records, page.next))
}
