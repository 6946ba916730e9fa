//! `platform-server migrate`: changes a store to the layout of this release, and the records of a program's own kinds to
//! their tables.

use std::{
    fmt::Display,
    io::{Write, stdout},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use platform_engine::shape;
#[cfg(feature = "sled")]
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::{
    config::{Config, Store},
    installation::{Installation, block_on},
    stores::{Purpose, reject_memory, store_path},
    transfer::{Progress, progress, reject_unfinished},
};

pub(crate) fn run(config: &Config, dry_run: bool) -> Result<ExitCode> {
    let path = store_path(config);
    if let Some(path) = &path
        && !path.exists()
    {
        bail!("no store at {}: choose another with --data-dir or --store", path.display());
    }
    match &config.store {
        #[cfg(feature = "postgres")]
        Store::Postgres(url) => {
            let (found, steps) = crate::installation::block_on(crate::postgres::migrate(url, config, dry_run))?;
            let known = u32::try_from(platform_store_postgres::PostgresStore::LAYOUT)?;
            print(url, (found, known), &steps, dry_run)?;
        }
        Store::Sqlite(_) => {
            let path = path.context("the store has no file")?;
            SqliteStore::verify_layout(&path)?;
            print(&path.display(), (SqliteStore::LAYOUT, SqliteStore::LAYOUT), &[] as &[&str], dry_run)?;
        }
        #[cfg(feature = "sled")]
        Store::Sled(_) => {
            let path = path.context("the store has no directory")?;
            // Only a store of this layout can be opened.
            drop(SledStore::open(&path)?);
            print(&path.display(), (SledStore::LAYOUT, SledStore::LAYOUT), &[] as &[&str], dry_run)?;
        }
        Store::Memory => bail!("a memory store exists only inside its server process: nothing to migrate"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Rewrites the records of the program's own kinds whose tables need it, and those of all kinds that lack a search index.
pub(crate) fn kinds(config: &Config, dry_run: bool) -> Result<ExitCode> {
    reject_memory(config, "nothing to migrate")?;
    block_on(async {
        let installation = Installation::open_existing(config).await?;
        reject_unfinished(&*installation.documents).await?;
        let store = installation.store(config, Purpose::Serve)?;
        let mut out = stdout();
        if config.kinds.own().is_empty() {
            writeln!(out, "this program has no kinds of its own")?;
        }
        for registered in config.kinds.stored() {
            let kind = registered.kind.name;
            let is_own = config.kinds.own().iter().any(|own| own.kind.name == kind);
            let reasons = if is_own {
                shape::outdated(&*store, registered).await?
            } else {
                shape::unsearched(&*store, registered).await?
            };
            if reasons.is_empty() {
                if is_own {
                    writeln!(out, "{kind}: up to date")?;
                }
                continue;
            }
            for reason in &reasons {
                writeln!(out, "{reason}")?;
            }
            let bar = progress(if dry_run { "checked" } else { "checked or rewritten" }, Progress::Records)?;
            let done = shape::rewrite(&*store, registered, dry_run, &mut |records| bar.set_position(records)).await;
            bar.finish_and_clear();
            let done = done.with_context(|| format!("{kind}: cannot rewrite the stored resources"))?;
            match (dry_run, done.resumed) {
                (true, _) => writeln!(out, "{kind}: would rewrite {} resources", done.records)?,
                (false, 0) => writeln!(out, "{kind}: rewrote {} resources", done.records)?,
                (false, resumed) => {
                    writeln!(out, "{kind}: rewrote {} resources, {resumed} of them before", done.records)?;
                }
            }
        }
        // Stores the shapes of the kinds that need no rewrite.
        if dry_run { Ok(()) } else { Ok(shape::adopt(&*store, config.kinds.own()).await?) }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was found and what was done or would be.
fn print(store: &dyn Display, (found, known): (u32, u32), steps: &[impl Display], dry_run: bool) -> Result<()> {
    let mut out = stdout();
    match found {
        found if found == known => writeln!(out, "{store} has layout {found}, that of this release")?,
        0 => writeln!(out, "{store} is empty; this release has layout {known}")?,
        found => writeln!(out, "{store} has layout {found}; this release has layout {known}")?,
    }
    let done = if dry_run { "would run" } else { "done" };
    Ok(steps.iter().try_for_each(|step| writeln!(out, "{done}: {step}"))?)
}
