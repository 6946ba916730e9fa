//! Backups: `platform-server backup` and `restore`, the endpoint of a running server, and scheduled backups.
//!
//! A backup has two steps. [`Backups::copy`] makes a copy of the store in a temporary directory, while the store is used;
//! the copy is one state of the store. Then [`Copy::write`] writes the archive, as slowly as its receiver reads it.

mod archive;
mod command;
mod operator;
mod restore;
mod schedule;

pub(crate) use self::{command::run, operator::routes, restore::restore, schedule::start as start_schedule};

use std::{
    fs::{self, DirBuilder},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use platform_engine::{
    blob::{BlobStore, MemoryBlobs},
    clock::Clock,
    store::{Store, memory::MemoryStore},
};
use platform_keys::{Bootstrap, Documents};
use platform_store_sqlite::SqliteStore;
use platform_system::SystemClock;
use tempfile::TempDir;
use tokio::{runtime::Handle, sync::Mutex, task::spawn_blocking};
use zeroize::Zeroizing;

use self::archive::{Contents, Form, Manifest};
use crate::{
    Kinds, check,
    config::Config,
    installation::Installation,
    stores::{Origin, Purpose, blob_path, open_blobs, store_path},
    transfer::{self, Header},
};

/// How the names of temporary directories begin.
const TEMPORARY: &str = ".platform-backup-";

/// The alternative for a database.
pub(crate) const DATABASE: &str = "a PostgreSQL store is backed up with PostgreSQL's own tools: `pg_dump` writes one \
     consistent file, and continuous archiving (PITR) also keeps what was written since; see docs/how-to/postgresql.md";

/// An installation of which backups are made, one at a time.
#[derive(Debug)]
pub(crate) struct Backups {
    pub(crate) kinds: Kinds,
    pub(crate) origin: Origin,
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) blobs: Arc<dyn BlobStore>,
    /// Where temporary copies are made: on the disk of the store.
    pub(crate) directory: PathBuf,
    pub(crate) progress: Arc<Progress>,
    /// Held while a backup or a check is made, and while unused blobs are deleted.
    pub(crate) turn: Arc<Mutex<()>>,
}

/// The progress of the copy of the store, in pages; 0 of 0 while none is made or the number is not known.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) copied: AtomicU64,
    pub(crate) pages: AtomicU64,
}

impl Progress {
    fn set(&self, copied: u64, pages: u64) {
        self.copied.store(copied, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Relaxed);
    }
}

impl Backups {
    /// Returns the backups of an installation that is used.
    pub(crate) fn new(
        config: &Config,
        documents: &Arc<dyn Documents>,
        origin: Origin,
        blobs: Arc<dyn BlobStore>,
    ) -> Self {
        let store = store_path(config).and_then(|path| path.parent().map(Path::to_owned));
        let directory = store.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| config.data_dir.clone());
        let (kinds, documents) = (config.kinds, Arc::clone(documents));
        Self { kinds, origin, documents, blobs, directory, progress: Arc::default(), turn: Arc::default() }
    }

    /// Opens the store of a stopped server.
    pub(crate) fn open(config: &Config, installation: &Installation) -> Result<Self> {
        let (_, origin) = installation.opened(config, Purpose::Serve)?;
        let blobs: Arc<dyn BlobStore> = match blob_path(config) {
            Some(path) if path.exists() => open_blobs(config)?,
            // A missing directory has no blobs, and is not created.
            _ => Arc::new(MemoryBlobs::default()),
        };
        Ok(Self::new(config, &installation.documents, origin, blobs))
    }

    /// Makes a copy of the store in a temporary directory. Must be called within a tokio runtime.
    pub(crate) async fn copy(&self, with_keys: bool) -> Result<Copy> {
        let time = SystemClock.now();
        let read = async |name| self.documents.read(name).await;
        let bootstrap = read("bootstrap").await?.context("the installation has no bootstrap.json")?.contents;
        let directory = self.temporary()?;
        let (form, sequence) = match &self.origin {
            Origin::Shared => bail!(DATABASE),
            Origin::Sqlite(store) => {
                let copied = self.copy_file(store, directory.path().join(Form::Sqlite.entry())).await?;
                (Form::Sqlite, copied)
            }
            Origin::Memory(store) => {
                let copy = MemoryStore::new();
                copy.restore(&store.snapshot());
                (Form::Export, self.export(Box::new(copy), 0, &bootstrap, directory.path()).await?)
            }
            #[cfg(feature = "sled")]
            Origin::Sled(store) => {
                let (frozen, sequence) = store.freeze()?;
                (Form::Export, self.export(frozen, sequence, &bootstrap, directory.path()).await?)
            }
        };
        // Read after the store was copied, so that they include those with which the secrets in the copy are sealed.
        let keys =
            if with_keys { Some(read("keys").await?.context("the installation has no keys")?.contents) } else { None };
        let manifest = Manifest::new(form, sequence, time, with_keys);
        Ok(Copy { directory, manifest, bootstrap, keys, blobs: Arc::clone(&self.blobs) })
    }

    /// Checks a copy of a SQLite store, and the blobs that it names, and returns each inconsistency. Must be called
    /// within a tokio runtime.
    pub(crate) async fn check(&self) -> Result<Vec<String>> {
        let Origin::Sqlite(store) = &self.origin else { bail!(check::ONLY_STOPPED) };
        let directory = self.temporary()?;
        let path = directory.path().join(Form::Sqlite.entry());
        self.copy_file(store, path.clone()).await?;
        let (blobs, kinds) = (Arc::clone(&self.blobs), self.kinds);
        let check = move || {
            let _directory = directory;
            check::findings_of_copy(&path, &blobs, kinds).context("in a copy of the store")
        };
        spawn_blocking(check).await.context("the check was interrupted")?
    }

    /// Writes an export, and returns the sequence of its last commit: `sequence`, or the greatest revision of a record.
    async fn export(&self, store: Box<dyn Store>, sequence: u64, bootstrap: &[u8], directory: &Path) -> Result<u64> {
        let uids: Bootstrap = serde_json::from_slice(bootstrap).context("bootstrap.json is not valid")?;
        let header = Header::new(uids.organization, uids.operator, Some(Vec::new()));
        let path = directory.join(Form::Export.entry());
        let (runtime, kinds) = (Handle::current(), self.kinds);
        let write = move || {
            let file = transfer::create_secret(&path)?;
            let bar = ProgressBar::hidden();
            let (_, written) = runtime.block_on(transfer::write(kinds, &*store, &header, file, &bar))?;
            Ok(sequence.max(written.newest()))
        };
        spawn_blocking(write).await.context("the export was interrupted")?
    }

    fn temporary(&self) -> Result<TempDir> {
        let directory = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(&self.directory);
        directory.with_context(|| format!("cannot write to {}", self.directory.display()))
    }

    /// Copies the file of a SQLite store, and returns the sequence of its last commit.
    async fn copy_file(&self, store: &SqliteStore, to: PathBuf) -> Result<u64> {
        let progress = Arc::clone(&self.progress);
        let copied = store.back_up(to, move |copied, pages| progress.set(copied, pages)).await;
        self.progress.set(0, 0);
        copied.context("cannot copy the store")
    }
}

/// A copy of an installation, of which the blobs are still to be read.
#[derive(Debug)]
pub(crate) struct Copy {
    directory: TempDir,
    pub(crate) manifest: Manifest,
    bootstrap: Zeroizing<Vec<u8>>,
    keys: Option<Zeroizing<Vec<u8>>>,
    blobs: Arc<dyn BlobStore>,
}

impl Copy {
    /// Writes the archive. Blocks.
    pub(crate) fn write<W: Write>(self, out: W) -> Result<W> {
        let store = self.directory.path().join(self.manifest.store.entry());
        let contents = Contents { store: &store, bootstrap: &self.bootstrap, keys: self.keys };
        archive::write(out, &self.manifest, &contents, &*self.blobs)
    }
}

/// Creates a directory, and its parents, which only its owner can read.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Removes the temporary copies that a killed process left. No other process may be making a backup.
pub(crate) fn remove_temporary(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(TEMPORARY)) {
            continue;
        }
        let path = entry.path();
        // Copies are directories, and archives are files.
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::warn!(path = %path.display(), %error, "cannot remove a temporary copy");
        }
    }
}
