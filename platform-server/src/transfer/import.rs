//! `platform-server import store`.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom, Write, copy, stderr, stdin, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use platform_engine::store::{Commit, Put, Query, Scope, Store};
use platform_keys::{Bootstrap, Documents};

use super::{
    BATCH, BATCH_BYTES, NeedSecrets, Progress as Counted, count_blobs,
    format::{End, Header, Reader},
    progress,
    unfinished::Progress,
};
use crate::{
    Kinds,
    config::Config,
    installation::{Installation, block_on},
    stores::{Purpose, blob_path, open_blobs, reject_memory},
};

/// Writes a file into an empty store that no server has open.
pub(crate) fn import(config: &Config, path: &Path) -> Result<ExitCode> {
    reject_memory(config, "choose another store with --store")?;
    let (mut file, place) = open(path)?;
    let length = file.metadata().map(|metadata| metadata.len()).unwrap_or_default();
    let bar = progress("verified", Counted::Bytes(Some(length)))?;
    let verified = verify(config.kinds, bar.wrap_read(&mut file), &place);
    bar.finish_and_clear();
    let (header, end, need_secrets) = verified?;
    block_on(async {
        let uids = Bootstrap::new(header.organization.clone(), header.operator.clone());
        let installation = Installation::open_for_store(config, &uids, &header.seal_keys).await?;
        let documents = &*installation.documents;
        let store = installation.store(config, Purpose::Load)?;
        let is_continued = begin(config.kinds, documents, &*store, &end).await?;
        file.seek(SeekFrom::Start(0)).with_context(|| format!("cannot read {place}"))?;
        let bar = progress("imported", Counted::Bytes(Some(length)))?;
        let written = write(config.kinds, &*store, bar.wrap_read(&mut file), &place, is_continued).await;
        bar.finish_and_clear();
        written.and_then(|written| if written == end { Ok(()) } else { bail!("{place} changed during the import") })?;
        check_counts(config.kinds, &*store, &end).await?;
        Progress { sha256: end.sha256.clone(), is_complete: true }.write(documents).await?;
        report(config, &*store, &end, &need_secrets).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the file. Standard input, which can be read only once, is copied to a temporary file that has no name.
fn open(path: &Path) -> Result<(File, String)> {
    if path.as_os_str() != "-" {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        return Ok((file, path.display().to_string()));
    }
    let spool = || {
        let mut file = tempfile::tempfile()?;
        copy(&mut stdin().lock(), &mut file)?;
        file.seek(SeekFrom::Start(0))?;
        Ok::<_, std::io::Error>(file)
    };
    Ok((spool().context("cannot copy standard input to a temporary file")?, "standard input".to_owned()))
}

/// Reads the whole file, and returns its first and last line and the resources that need new secrets.
pub(super) fn verify(kinds: Kinds, input: impl Read, place: &str) -> Result<(Header, End, NeedSecrets)> {
    let mut reader = Reader::new(kinds, BufReader::with_capacity(1 << 20, input), place)?;
    let mut need_secrets = NeedSecrets::default();
    while let Some(entry) = reader.next()? {
        if entry.needs_secrets {
            need_secrets.add(entry.put.key.kind, &entry.put.key.uid);
        }
    }
    let end = reader.end.context("a file that ends has a last line")?;
    Ok((reader.header, end, need_secrets))
}

/// Records that the import of a file begins; returns whether it was begun before.
///
/// # Errors
/// Fails if the store is not empty, or if the import of another file was begun.
async fn begin(kinds: Kinds, documents: &dyn Documents, store: &dyn Store, end: &End) -> Result<bool> {
    if let Some((Progress { sha256, is_complete: false }, _)) = Progress::read(documents).await? {
        if sha256 != end.sha256 {
            bail!("the import of another file was begun: complete it, or begin with an empty store and data directory");
        }
        return Ok(true);
    }
    for registered in kinds.stored() {
        let kind = registered.kind.name;
        let found = store.list(&Query { limit: 1, ..Query::new(kind, Scope::All) }).await?;
        if let Some(item) = found.items.first() {
            bail!(
                "the store is not empty, it has the {kind} {}: choose an empty one with --store or --data-dir",
                item.uid()
            );
        }
    }
    Progress { sha256: end.sha256.clone(), is_complete: false }.write(documents).await?;
    Ok(false)
}

/// Writes all records of a file. Those that the store has already are skipped if the import `is_continued`.
pub(crate) async fn write(
    kinds: Kinds,
    store: &dyn Store,
    input: impl Read,
    place: &str,
    is_continued: bool,
) -> Result<End> {
    let mut reader = Reader::new(kinds, BufReader::with_capacity(1 << 20, input), place)?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(entry) = reader.next()? {
        let put = entry.put;
        bytes += put.body.len() + put.private.len();
        batch.push(put);
        if batch.len() >= BATCH || bytes >= BATCH_BYTES {
            commit(store, std::mem::take(&mut batch), is_continued).await?;
            bytes = 0;
        }
    }
    commit(store, batch, is_continued).await?;
    reader.end.context("a file that ends has a last line")
}

async fn commit(store: &dyn Store, mut put: Vec<Put>, is_continued: bool) -> Result<()> {
    if is_continued {
        let keys: Vec<_> = put.iter().map(|put| put.key.clone()).collect();
        let stored = store.get(&keys, &[]).await?.records;
        let is_same = |put: &Put, record: &platform_engine::store::Record| {
            (Some(record.revision), &record.body, &record.private) == (put.revision, &put.body, &put.private)
        };
        let mut missing = Vec::new();
        for (put, stored) in put.into_iter().zip(stored) {
            match stored {
                None => missing.push(put),
                Some(record) if is_same(&put, &record) => {}
                Some(_) => bail!("the store has another {} {}: begin with an empty one", put.key.kind, put.key.uid),
            }
        }
        put = missing;
    }
    if put.is_empty() {
        return Ok(());
    }
    store.commit(Commit { put, ..Commit::default() }).await.context("cannot write to the store")?;
    Ok(())
}

/// Checks that the store has the records of the file and no others.
async fn check_counts(kinds: Kinds, store: &dyn Store, end: &End) -> Result<()> {
    for registered in kinds.stored() {
        let kind = registered.kind.name;
        let query = Query { limit: 1, count: true, ..Query::new(kind, Scope::All) };
        let (found, expected) = (store.list(&query).await?.total, end.records.get(kind).copied().unwrap_or(0));
        if found != Some(expected) {
            bail!("the store has {} of the kind {kind}, and the file has {expected}", found.unwrap_or(0));
        }
    }
    Ok(())
}

async fn report(config: &Config, store: &dyn Store, end: &End, need_secrets: &NeedSecrets) -> Result<()> {
    writeln!(stdout(), "imported {} records", end.records.values().sum::<u64>())?;
    let mut out = stderr();
    if !need_secrets.lines().is_empty() {
        writeln!(out, "the export has no secrets:{}", need_secrets.lines())?;
    }
    let blobs = open_blobs(config)?;
    if let ((named, missing @ 1..), Some(path)) =
        (count_blobs(config.kinds, store, Some(&*blobs)).await?, blob_path(config))
    {
        writeln!(
            out,
            "{missing} of {named} blobs are missing: copy the directory of the blobs of the exported store to {}, and \
             run `platform-server check{}`",
            path.display(),
            config.data_dir_option()
        )?;
    }
    Ok(())
}
