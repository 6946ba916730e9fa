//! `platform-server compact`: gives unused space back to the file system.

use std::{
    io::{Write, stdout},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use indicatif::BinaryBytes;
use platform_store_sqlite::SqliteStore;

use crate::{
    config::{Config, Store},
    stores::{is_in_use, store_path},
};

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let path = match &config.store {
        Store::Sqlite(_) => store_path(config).context("the store has no file")?,
        #[cfg(feature = "sled")]
        Store::Sled(_) => bail!(
            "sled cannot give space back: `export` and `import store` write the records to a new data directory, which \
             has only what they need"
        ),
        #[cfg(feature = "postgres")]
        Store::Postgres(_) => bail!(
            "PostgreSQL does this itself: autovacuum makes the space of deleted rows usable again, and `VACUUM FULL` gives \
             it back to the file system while it locks each table"
        ),
        Store::Memory => bail!("a memory store exists only inside its server process: nothing to compact"),
    };
    if !path.exists() {
        bail!("no store at {}: choose another with --data-dir or --store", path.display());
    }
    let store = SqliteStore::open(&path).map_err(anyhow::Error::new).map_err(|error| {
        if is_in_use(&error) {
            error.context("the store is open in another process: stop the server first")
        } else {
            error
        }
    })?;
    let space = store.space()?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let needed = space.total.saturating_sub(space.unused);
    let free = fs4::available_space(directory).context("cannot determine the free space of the disk")?;
    let size = |bytes: u64| BinaryBytes(bytes);
    if free < needed {
        bail!(
            "the disk of {} has {} free, and the new file needs up to {}: make space first; nothing was changed",
            path.display(),
            size(free),
            size(needed)
        );
    }
    let after = store.compact()?;
    writeln!(
        stdout(),
        "{}: {} before, {} after, {} given back",
        path.display(),
        size(space.total),
        size(after),
        size(space.total.saturating_sub(after))
    )?;
    Ok(ExitCode::SUCCESS)
}
