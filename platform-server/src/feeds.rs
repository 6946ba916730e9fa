//! `platform-server export advisories`: the feeds for scanners of a store.

use std::{
    fs::File,
    io::{self, BufWriter, Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result};
use platform_feeds::{Document, Feed, Options, Summary, source};
use tempfile::NamedTempFile;

use crate::{
    cli::ExportAdvisories,
    config::Config,
    direct::{Direct, Open, describe},
    installation::known_url,
    transfer::{Progress, progress},
};

/// Writes a feed of the advisories at and below a group, as the operator.
pub(crate) fn export(config: &Config, export: &ExportAdvisories) -> Result<ExitCode> {
    let url = known_url(config);
    let id = format!("{url}{}", export.format.path(&export.of, &export.namespace));
    let direct = Direct::open(config, Open::Existing, &format!("read {id} with a token"))?;
    let (platform, operator, group) = (&direct.platform, &direct.operator, &export.of);
    let state = direct.runtime.block_on(source::state(platform, operator, group));
    let state = state.map_err(|error| anyhow::Error::msg(describe(&error)))?;
    let document = Document { id, author: platform.settings().service_domain.clone(), version: state.version };
    let namespace = export.namespace.clone();
    let mut feed = Feed::new(Options { format: export.format, namespace, document, now: platform.now() });
    let bar = progress("read", Progress::Records)?;
    let mut after = None;
    loop {
        let (advisories, next) = direct.runtime.block_on(source::page(platform, operator, group, after.take()))?;
        bar.inc(advisories.len() as u64);
        advisories.iter().try_for_each(|advisory| feed.add(advisory)).context("cannot write temporary files")?;
        after = next;
        if after.is_none() {
            break;
        }
    }
    bar.set_message("wrote");
    let written = match export.file() {
        None => written(feed, stdout()).context("cannot write to standard output").map(|(_, summary)| summary),
        Some(path) => replace(path, feed).with_context(|| format!("cannot write {}", path.display())),
    };
    bar.finish_and_clear();
    report(&written?)?;
    Ok(ExitCode::SUCCESS)
}

fn written<W: Write>(feed: Feed, out: W) -> io::Result<(W, Summary)> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let summary = feed.write(&mut out)?;
    Ok((out.into_inner()?, summary))
}

/// Writes a feed to a new file beside an old one, which it then replaces: a reader never sees a part of a feed.
fn replace(path: &Path, feed: Feed) -> io::Result<Summary> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut options = tempfile::Builder::new();
    // As other new files: the feed is for a server of files, or for scanners of other users.
    #[cfg(unix)]
    options.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let (file, summary): (NamedTempFile<File>, _) = written(feed, options.tempfile_in(folder)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(summary)
}

fn report(summary: &Summary) -> io::Result<()> {
    let mut out = stderr();
    writeln!(out, "read {} advisories, wrote {} entries", summary.advisories, summary.written)?;
    for (left_out, count) in &summary.left_out {
        writeln!(out, "left out {count}: {}", left_out.reason())?;
    }
    Ok(())
}
