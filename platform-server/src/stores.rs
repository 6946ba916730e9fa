//! The stores of records and of blobs that a configuration names: where they are, and how they are opened.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use platform_blobs::BlobDirectory;
use platform_engine::{
    blob::{BlobStore, MemoryBlobs},
    store::{Store, memory::MemoryStore},
};
#[cfg(feature = "sled")]
use platform_store_sled::{DirectoryError, OpenError as SledError, SledStore};
use platform_store_sqlite::{OpenError as SqliteError, SqliteStore};
use platform_system::Pool;

use crate::{
    config::{self, Config},
    metrics::Timed,
};

/// Default names of the stores in the data directory.
pub(crate) const SQLITE_STORE: &str = "platform.sqlite";
pub(crate) const SLED_STORE: &str = "platform.sled";

/// Default name of the directory of the blobs of a store that several servers share.
const SHARED_BLOBS: &str = "blobs";

/// A store in a form in which it can be copied while it is used.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Sqlite(Arc<SqliteStore>),
    Memory(MemoryStore),
    #[cfg(feature = "sled")]
    Sled(Arc<SledStore>),
    /// A database.
    Shared,
}

/// Measures the calls of a store if the server serves metrics.
pub(crate) fn measured(config: &Config, store: Arc<dyn Store>) -> Arc<dyn Store> {
    // Without metrics, nothing is measured: this applies to the recorder of a server.
    if config.observe.is_measured() || config.observe.is_traced() { Timed::around(store) } else { store }
}

/// The purpose that a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reads and writes of any kind.
    Serve,
    /// Writes of many records by a command that lists few: a store on disk may build its indexes at the end.
    Load,
}

/// Opens the store of one process.
pub(crate) fn open(config: &Config, purpose: Purpose) -> Result<(Arc<dyn Store>, Origin)> {
    let path = store_path(config);
    if let Some(path) = &path
        && let Some(directory) = path.parent()
        && !directory.as_os_str().is_empty()
        && !directory.is_dir()
    {
        // Creating the directory would hide a mistyped path.
        bail!("cannot create a store at {}: directory {} does not exist", path.display(), directory.display());
    }
    Ok(match (&config.store, path) {
        (config::Store::Sqlite(_), Some(path)) => {
            let builder = SqliteStore::builder().cache_size(config.cache_size());
            let store = Arc::new(builder.bulk_load(purpose == Purpose::Load).open(path)?);
            (Arc::clone(&store) as _, Origin::Sqlite(store))
        }
        #[cfg(feature = "sled")]
        (config::Store::Sled(_), Some(path)) => {
            let builder = SledStore::builder();
            let builder = config.cache_size.map_or(builder.clone(), |bytes| builder.cache_bytes(bytes));
            let store = Arc::new(builder.open(path)?);
            (Arc::clone(&store) as _, Origin::Sled(store))
        }
        _ => {
            let store = MemoryStore::pausing(Pool::default());
            (Arc::new(store.clone()) as _, Origin::Memory(store))
        }
    })
}

/// Opens the directory of the blobs. The store must be open, so that no other process uses both.
pub(crate) fn open_blobs(config: &Config) -> Result<Arc<dyn BlobStore>> {
    Ok(match blob_path(config) {
        Some(path) if config.store.is_shared() => {
            if config.blobs.is_none() {
                let create = fs::create_dir_all(&config.data_dir);
                create.with_context(|| format!("cannot create {}", config.data_dir.display()))?;
            }
            Arc::new(BlobDirectory::open_shared(path)?)
        }
        Some(path) => Arc::new(BlobDirectory::open(path)?),
        None => Arc::new(MemoryBlobs::default()),
    })
}

/// Returns the directory of the blobs, by default next to the store, or in the data directory if several servers share
/// the store; `None` for memory.
pub(crate) fn blob_path(config: &Config) -> Option<PathBuf> {
    let next_to = |store: PathBuf| {
        let mut path = store.into_os_string();
        path.push(".blobs");
        path.into()
    };
    let default = || {
        if config.store.is_shared() {
            Some(config.data_dir.join(SHARED_BLOBS))
        } else {
            store_path(config).map(next_to)
        }
    };
    config.blobs.clone().or_else(default)
}

/// Returns the file or directory of the configured store, by default in the data directory, or `None` for memory and
/// databases.
pub(crate) fn store_path(config: &Config) -> Option<PathBuf> {
    match &config.store {
        config::Store::Sqlite(path) => Some(path.clone().unwrap_or_else(|| config.data_dir.join(SQLITE_STORE))),
        #[cfg(feature = "sled")]
        config::Store::Sled(path) => Some(path.clone().unwrap_or_else(|| config.data_dir.join(SLED_STORE))),
        #[cfg(feature = "postgres")]
        config::Store::Postgres(_) => None,
        config::Store::Memory => None,
    }
}

/// Returns the name of a store in the data directory; that of SQLite for other stores.
pub(crate) const fn store_name(store: &config::Store) -> &'static str {
    match store {
        #[cfg(feature = "sled")]
        config::Store::Sled(_) => SLED_STORE,
        _ => SQLITE_STORE,
    }
}

/// Returns whether a path is a non-empty file or directory: an empty one is not a store yet.
pub(crate) fn has_contents(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()),
        Ok(metadata) => metadata.len() > 0,
        Err(_) => false,
    }
}

/// Rejects the memory store, which no other process can open. `otherwise` is the advice for a running server.
pub(crate) fn reject_memory(config: &Config, otherwise: &str) -> Result<()> {
    if config.store == config::Store::Memory {
        bail!("a memory store exists only inside its server process: {otherwise}");
    }
    Ok(())
}

/// Returns whether a store cannot be opened because another process has it open.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    #[cfg(feature = "sled")]
    if matches!(error.downcast_ref(), Some(SledError::Directory(DirectoryError::InUse { .. }))) {
        return true;
    }
    matches!(error.downcast_ref(), Some(SqliteError::InUse { .. }))
}
