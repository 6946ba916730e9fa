//! The store's directory: created atomically, locked by one store at a time, with a mark that records the last synced
//! batch.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use platform_engine::store::StoreError;
use platform_store_kv::{
    directory::{self, DirectoryError},
    unavailable,
};

use crate::{
    error::{OpenError, catch, from_sled},
    layout,
};

/// A store's directory, locked until this is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    /// A second handle to sled's log, for syncing it: sled writes, but does not sync.
    log: File,
    mark: File,
    directory: directory::Directory,
}

impl Directory {
    /// Locks the directory, creates a store in it if there is none, and opens sled.
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<(Self, sled::Db), OpenError> {
        let create = |new: &Path| create(new, cache_bytes);
        let directory = directory::Directory::open(path, layout::FORMAT, create).map_err(|error| match error {
            // Layout 1 had no file with the format.
            DirectoryError::NotAStore { path } if path.join("mark").exists() => {
                let (found, known) = ("sled 0.34, layout 1".to_owned(), layout::FORMAT.to_owned());
                DirectoryError::Format { path, found, known }
            }
            other => other,
        })?;
        let path = directory.path();
        remove_incomplete_snapshots(path)?;
        write_log_again(path).map_err(refused("write the log in", path))?;
        let db = open_with_snapshot(path, cache_bytes).inspect_err(|_| note_unsynced(path))?;
        let file = |name, options: &mut OpenOptions| {
            let path = path.join(name);
            options.read(true).open(&path).map_err(refused("open", &path))
        };
        let log = file("db", &mut OpenOptions::new())?;
        let mark = file("mark", OpenOptions::new().write(true).create(true).truncate(false))?;
        Ok((Self { log, mark, directory }, db))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes everything that sled has written to its log durable.
    pub(crate) fn sync_log(&self) -> io::Result<()> {
        self.log.sync_data()
    }

    /// Notes that a sync failed; see [`write_log_again`].
    pub(crate) fn note_unsynced(&self) {
        note_unsynced(self.path());
    }

    /// Returns the size of the log and the free space on its disk, in bytes.
    pub(crate) fn log_size_and_free_space(&self) -> io::Result<(u64, u64)> {
        Ok((self.log.metadata()?.len(), fs4::available_space(self.path())?))
    }

    /// Records the last batch in the mark. Must be called after the log was synced.
    ///
    /// sled takes a damaged tail of its log for a write that a crash cut short, and drops it silently; the mark detects
    /// this. It is not synced with each batch, so after a power cut it may be behind the log, but never ahead of it.
    pub(crate) fn write_mark(&self, batch: u64) -> io::Result<()> {
        let mut mark = &self.mark;
        mark.seek(SeekFrom::Start(0))?;
        mark.write_all(&encode_mark(batch))
    }

    pub(crate) fn sync_mark(&self) -> io::Result<()> {
        self.mark.sync_all()
    }

    /// Returns the last batch of the mark; `None` if there is no valid one. (A crash can tear it.)
    pub(crate) fn read_mark(&self) -> Option<u64> {
        let mut bytes = Vec::new();
        let mut mark = &self.mark;
        mark.read_to_end(&mut bytes).ok()?;
        layout::unseal(MARK, &bytes)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// The name of the mark.
const MARK: &[u8] = b"mark";

fn encode_mark(batch: u64) -> Vec<u8> {
    layout::seal(MARK, &batch.to_le_bytes())
}

/// Creates a store in an empty directory, which is renamed when it is completely durable.
///
/// A creation in place would not survive a crash: sled writes `conf` in two steps, syncs none of the files that it
/// creates, and cannot open a directory in which it was interrupted.
fn create(path: &Path, cache_bytes: u64) -> Result<(), StoreError> {
    let db = open_sled(path, cache_bytes).map_err(|error| StoreError::Unavailable(error.into()))?;
    // sled panics if it cannot sync its log when it is closed.
    let written = catch(|| {
        let flushed = db.insert(layout::HEADER, layout::header(0)).and_then(|_| db.flush());
        drop(db);
        flushed
    });
    written.map_err(unavailable)?.map_err(from_sled)?;
    fs::write(path.join("mark"), encode_mark(0)).map_err(|error| StoreError::Unavailable(error.into()))
}

/// The file that notes that a sync failed.
const UNSYNCED: &str = "unsynced";

/// It does not matter whether the file survives a power cut, since the cache of the system does not.
fn note_unsynced(path: &Path) {
    // Without the file, the store has the guarantees of other programs on a failing disk.
    let _ = File::create(path.join(UNSYNCED));
}

/// Writes the log again if a sync failed since it was last opened, and syncs it.
///
/// After a failed sync, the system's cache can have data that is not on the disk and that it does not write any more.
/// sled would read it, and write a snapshot and new segments that depend on it. Written again, it becomes durable with the
/// next sync.
fn write_log_again(path: &Path) -> io::Result<()> {
    let noted = path.join(UNSYNCED);
    if !noted.exists() {
        return Ok(());
    }
    let mut log = OpenOptions::new().read(true).write(true).open(path.join("db"))?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        log.seek(SeekFrom::Start(at))?;
        let len = log.read(&mut buffer)?;
        let Some(read) = buffer.get(..len).filter(|read| !read.is_empty()) else { break };
        log.seek(SeekFrom::Start(at))?;
        log.write_all(read)?;
        at += len as u64;
    }
    log.sync_all()?;
    fs::remove_file(noted)
}

/// Opens sled, and makes its snapshot durable before it frees segments.
///
/// sled writes a snapshot when it opens, renames it, and then clears the segments of its log without data that the
/// snapshot needs. It does not sync the directory in between. If a power cut undoes the rename, sled reads the log from
/// the previous snapshot on, and recovers nothing if the segment of the last stable position was cleared.
///
/// So sled is opened twice. The first time it fails between the two steps, where it removes the blobs of unfinished
/// writes: it cannot remove one that is a directory. The second time there is nothing to add to the snapshot.
fn open_with_snapshot(path: &Path, cache_bytes: u64) -> Result<sled::Db, OpenError> {
    let obstacle = path.join("blobs").join(i64::MAX.to_string());
    fs::create_dir_all(&obstacle).map_err(refused("create", &obstacle))?;
    // The error of this differs between systems.
    let expected = fs::remove_file(&obstacle).err().map(|error| error.kind());
    let opened = open_sled(path, cache_bytes);
    fs::remove_dir(&obstacle).map_err(refused("remove", &obstacle))?;
    match opened {
        Err(OpenError::Directory(DirectoryError::File { source, .. })) if Some(source.kind()) == expected => {}
        // Without any data in its log, sled does not look for blobs.
        other => return other,
    }
    directory::sync(path)?;
    open_sled(path, cache_bytes)
}

/// Opens sled. Retries for up to 3 seconds, because a store that this process has just dropped may not have released
/// sled's lock yet.
fn open_sled(path: &Path, cache_bytes: u64) -> Result<sled::Db, OpenError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        // Only batches may write: see `crate::backend`.
        let config = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None);
        match catch(|| config.open()) {
            Ok(Ok(db)) => return Ok(db),
            Ok(Err(sled::Error::Io(error))) if error.to_string().contains("could not acquire lock") => {
                if attempts == 300 {
                    let owner = "another process".to_owned();
                    return Err(DirectoryError::InUse { path: path.to_owned(), owner }.into());
                }
                thread::sleep(Duration::from_millis(10));
            }
            Ok(Err(sled::Error::Io(source))) => return Err(refused("open", path)(source).into()),
            Ok(Err(error)) => return Err(OpenError::Damaged { path: path.to_owned(), reason: error.to_string() }),
            Err(panic) => return Err(OpenError::Damaged { path: path.to_owned(), reason: panic }),
        }
    }
}

/// Removes incomplete snapshots that a crash left. sled would take such a file for the latest snapshot and fail to
/// open; the previous snapshot still exists.
fn remove_incomplete_snapshots(path: &Path) -> Result<(), DirectoryError> {
    for entry in fs::read_dir(path).map_err(refused("read", path))? {
        let file = entry.map_err(refused("read", path))?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(&file).map_err(refused("remove", &file))?;
        }
    }
    Ok(())
}

/// Converts an error of the file system.
fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DirectoryError {
    move |source| DirectoryError::File { action, path: path.to_owned(), source }
}
