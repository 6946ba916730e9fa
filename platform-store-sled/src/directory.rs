//! The store's directory: created atomically, locked by one store at a time, with a mark that records the last synced
//! batch.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::{
    error::{OpenError, catch},
    layout,
};

/// A store's directory, locked until this is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// A second handle to sled's log, for syncing it: sled writes, but does not sync.
    log: File,
    mark: File,
    /// The locked file.
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Unlock explicitly: closing the file is not enough while a child process that is just being started still has
        // the inherited handle.
        let _ = self.lock.unlock();
    }
}

impl Directory {
    /// Locks the directory, creates a store in it if there is none, and opens sled.
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<(Self, sled::Db), OpenError> {
        let path = &absolute(path)?;
        let lock = lock(path)?;
        if is_missing_or_empty(path)? {
            create(path, cache_bytes)?;
        }
        if !path.join("conf").is_file() || !path.join("db").is_file() {
            return Err(OpenError::NotAStore { path: path.clone(), reason: "it does not have the files of a store" });
        }
        remove_incomplete_snapshots(path)?;
        let db = open_sled(path, cache_bytes)?;
        // sled has renamed a snapshot without syncing the directory.
        sync(path)?;
        let file = |name, options: &mut OpenOptions| {
            let path = path.join(name);
            options.read(true).open(&path).map_err(refused("open", &path))
        };
        let log = file("db", &mut OpenOptions::new())?;
        let mark = file("mark", OpenOptions::new().write(true).create(true).truncate(false))?;
        Ok((Self { path: path.clone(), log, mark, lock }, db))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything that sled has written to its log durable.
    pub(crate) fn sync_log(&self) -> io::Result<()> {
        self.log.sync_data()
    }

    /// Returns the size of the log and the free space on its disk, in bytes.
    pub(crate) fn log_size_and_free_space(&self) -> io::Result<(u64, u64)> {
        Ok((self.log.metadata()?.len(), fs4::available_space(&self.path)?))
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

/// Returns the canonical path of the directory, so that all paths to it share one lock. Creates the parent directory,
/// because a missing directory has no canonical path.
fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let path = std::path::absolute(path).map_err(refused("find", path))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(OpenError::NotAStore { path, reason: "the path does not end with a name" });
    };
    fs::create_dir_all(parent).map_err(refused("create", parent))?;
    Ok(fs::canonicalize(parent).map_err(refused("find", parent))?.join(name))
}

/// Acquires the lock file next to the directory. sled has a lock of its own, but acquires it only after it has created
/// its files, and does not report the owner.
fn lock(path: &Path) -> Result<File, OpenError> {
    let lock = with_suffix(path, ".lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    // Whoever can read the file can lock it, and so keep the store from being opened.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&lock).map_err(refused("lock", &lock))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let known = file.read_to_string(&mut owner).is_ok() && !owner.is_empty();
            let owner = if known { format!("process {owner}") } else { "another process".to_owned() };
            return Err(OpenError::InUse { path: path.to_owned(), owner });
        }
        Err(TryLockError::Error(source)) => return Err(refused("lock", &lock)(source)),
    }
    let write = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    write.map_err(refused("write", &lock))?;
    Ok(file)
}

/// Restricts access to the directory to its owner.
#[cfg(unix)]
fn owner_only() -> fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// On other systems, the directory inherits the permissions of its parent.
#[cfg(not(unix))]
fn owner_only() -> fs::DirBuilder {
    fs::DirBuilder::new()
}

fn is_missing_or_empty(path: &Path) -> Result<bool, OpenError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(refused("read", path)(error)),
    }
}

/// Creates a store in a temporary directory and renames it when it is completely durable.
///
/// A creation in place would not survive a crash: sled writes `conf` in two steps, syncs none of the files that it
/// creates, and cannot open a directory in which it was interrupted.
fn create(path: &Path, cache_bytes: u64) -> Result<(), OpenError> {
    let unfinished = with_suffix(path, ".creating");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(refused("remove", &unfinished))?;
    }
    owner_only().create(&unfinished).map_err(refused("create", &unfinished))?;
    let db = open_sled(&unfinished, cache_bytes)?;
    // sled panics if it cannot sync its log when it is closed.
    let written = catch(|| {
        let flushed = db.insert(layout::HEADER, layout::header(0)).and_then(|_| db.flush());
        drop(db);
        flushed
    });
    let reason = match written {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(panic),
    };
    if let Some(reason) = reason {
        let source = io::Error::other(reason);
        return Err(OpenError::File { action: "write", path: unfinished, source });
    }
    let mark = unfinished.join("mark");
    fs::write(&mark, encode_mark(0)).map_err(refused("write", &mark))?;
    sync_all(&unfinished)?;
    // The directory is empty: see `is_missing_or_empty`.
    if path.exists() {
        fs::remove_dir(path).map_err(refused("remove", path))?;
    }
    fs::rename(&unfinished, path).map_err(refused("create", path))?;
    path.parent().map_or(Ok(()), sync)
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
                    return Err(OpenError::InUse { path: path.to_owned(), owner: "another process".to_owned() });
                }
                thread::sleep(Duration::from_millis(10));
            }
            Ok(Err(sled::Error::Io(source))) => return Err(refused("open", path)(source)),
            Ok(Err(error)) => return Err(OpenError::Damaged { path: path.to_owned(), reason: error.to_string() }),
            Err(panic) => return Err(OpenError::Damaged { path: path.to_owned(), reason: panic }),
        }
    }
}

/// Removes incomplete snapshots that a crash left. sled would take such a file for the latest snapshot and fail to
/// open; the previous snapshot still exists.
fn remove_incomplete_snapshots(path: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(path).map_err(refused("read", path))? {
        let file = entry.map_err(refused("read", path))?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(&file).map_err(refused("remove", &file))?;
        }
    }
    Ok(())
}

fn sync_all(path: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(path).map_err(refused("read", path))? {
        let entry = entry.map_err(refused("read", path))?.path();
        if entry.is_dir() { sync_all(&entry)? } else { sync(&entry)? }
    }
    sync(path)
}

fn sync(path: &Path) -> Result<(), OpenError> {
    let synced = if path.is_dir() { sync_directory(path) } else { File::open(path).and_then(|file| file.sync_all()) };
    synced.map_err(refused("sync", path))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    // On other systems, a directory cannot be opened as a file, and its names need no sync.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Converts an error of the file system.
fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::File { action, path: path.to_owned(), source }
}
