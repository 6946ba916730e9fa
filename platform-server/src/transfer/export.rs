//! `platform-server export`.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use platform_engine::{
    kind::Registered,
    store::{Item, Key, Order, OrderBy, Position, Query, Record, Scope, Store},
};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    BATCH, BATCH_BYTES, NeedSecrets, Progress, count_blobs,
    format::{Header, Writer},
    progress,
};
use crate::{
    Kinds,
    cli::Export,
    config::Config,
    installation::{Installation, block_on},
    stores::{Purpose, blob_path, reject_memory},
};

/// The advice when the store changes during an export.
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
        let bar = progress("exported", Progress::Records)?;
        let done = match export.file() {
            None => write_stopped(config.kinds, &*store, &header, stdout(), &bar).await.map(|(_, done)| done),
            Some(path) => write_file(config.kinds, &*store, &header, path, &bar).await,
        };
        bar.finish_and_clear();
        let (total, need_secrets) = done?;
        Ok((total, need_secrets, count_blobs(config.kinds, &*store, None).await?.0))
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
async fn write_file(
    kinds: Kinds,
    store: &dyn Store,
    header: &Header,
    path: &Path,
    bar: &ProgressBar,
) -> Result<(u64, NeedSecrets)> {
    let file = create_secret(path)?;
    let done = match write_stopped(kinds, store, header, file, bar).await {
        Ok((file, done)) => file.sync_all().with_context(|| format!("cannot write {}", path.display())).map(|()| done),
        Err(error) => Err(error),
    };
    if done.is_err() {
        drop(std::fs::remove_file(path));
    }
    done
}

/// Writes the export of a store that must not change, and returns the number of its records and those that need new
/// secrets.
pub(super) async fn write_stopped<W: Write + Send + 'static>(
    kinds: Kinds,
    store: &dyn Store,
    header: &Header,
    out: W,
    bar: &ProgressBar,
) -> Result<(W, (u64, NeedSecrets))> {
    let (out, written) = write(kinds, store, header, out, bar).await?;
    // Only a stopped server's store is the same throughout: what has changed is compared once more.
    for registered in kinds.stored() {
        let name = registered.kind.name;
        let order = Order { by: OrderBy::Sequence, descending: true };
        let last = store.list(&Query { order, limit: 1, count: true, ..Query::new(name, Scope::All) }).await?;
        let revision = last.items.first().map(|item| item.revision);
        let (counted, newest) = written.kinds.get(name).copied().unwrap_or_default();
        if last.total != Some(counted) || revision.unwrap_or(0) != newest {
            bail!(CHANGED);
        }
    }
    Ok((out, (written.total(), written.need_secrets)))
}

/// The contents of an export.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The number of records and the greatest revision, by kind.
    kinds: BTreeMap<&'static str, (u64, u64)>,
    need_secrets: NeedSecrets,
}

impl Written {
    fn total(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    /// Returns the greatest revision of a record.
    pub(crate) fn newest(&self) -> u64 {
        self.kinds.values().map(|(_, newest)| *newest).max().unwrap_or(0)
    }
}

/// The number of pages that are read before those that were read are written.
const PAGES: usize = 4;

/// A message from the reader of a store to the writer of its export.
enum Message {
    Page(&'static Registered, Vec<Record>),
    /// All records were sent. Without it, the export is not complete.
    End,
}

/// Writes an export of a store, which must not change: some changes are noticed and reported. One thread reads, while
/// another one formats, hashes and writes.
pub(crate) async fn write<W: Write + Send + 'static>(
    kinds: Kinds,
    store: &dyn Store,
    header: &Header,
    out: W,
    bar: &ProgressBar,
) -> Result<(W, Written)> {
    let (sender, receiver) = mpsc::channel(PAGES);
    let header = header.clone();
    let writing = spawn_blocking(move || write_pages(receiver, &header, out));
    let read = read_pages(kinds, store, &sender, bar).await;
    drop(sender);
    let written = writing.await.context("the export was interrupted")?;
    read?;
    written
}

/// Sends all records of a store; ends early if the writer has failed.
async fn read_pages(kinds: Kinds, store: &dyn Store, pages: &mpsc::Sender<Message>, bar: &ProgressBar) -> Result<()> {
    for registered in kinds.by_name() {
        let mut after = None;
        loop {
            let (records, next) = page(store, registered.kind.name, after.take()).await?;
            bar.inc(records.len() as u64);
            if pages.send(Message::Page(registered, records)).await.is_err() {
                return Ok(());
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    // If the writer has failed, its error is returned.
    drop(pages.send(Message::End).await);
    Ok(())
}

/// Returns the next records of a kind in the order of their uids, with their private parts, and the position after which
/// others follow. Reads only the records that may have a private part: a second read of each record would take longer
/// than the list.
async fn page(
    store: &dyn Store,
    kind: &'static str,
    after: Option<Position>,
) -> Result<(Vec<Record>, Option<Position>)> {
    let query = Query { after, limit: BATCH, bytes: BATCH_BYTES, ..Query::new(kind, Scope::All) };
    let page = store.list(&query).await?;
    let private = page.items.iter().filter(|item| item.may_have_private);
    let keys: Vec<_> = private.map(|item| Key::new(kind, item.uid())).collect();
    let read = if keys.is_empty() { Vec::new() } else { store.get(&keys, &[]).await?.records };
    let mut read = read.into_iter();
    let record = |item: Item| {
        let key = Key::new(kind, item.uid());
        let Item { revision, rendering, body, may_have_private, .. } = item;
        if may_have_private {
            read.next().flatten().filter(|record| record.revision == revision).context(CHANGED)
        } else {
            Ok(Record { key, revision, rendering, body, private: "".into() })
        }
    };
    Ok((page.items.into_iter().map(record).collect::<Result<_>>()?, page.next))
}

/// Writes the records that are received.
fn write_pages<W: Write>(mut pages: mpsc::Receiver<Message>, header: &Header, out: W) -> Result<(W, Written)> {
    let mut writer = Writer::new(out, header)?;
    let mut written = Written::default();
    loop {
        match pages.blocking_recv().context("the export was interrupted")? {
            Message::End => break,
            Message::Page(registered, records) => {
                let (count, newest) = written.kinds.entry(registered.kind.name).or_default();
                for record in &records {
                    (*count, *newest) = (*count + 1, record.revision.max(*newest));
                    writer.add(registered, record, header.private)?;
                }
            }
        }
    }
    let (out, need_secrets) = writer.finish()?;
    Ok((out, Written { need_secrets, ..written }))
}
