//! The store's directory: made whole or not at all, held by one store at a time, and with a mark in it of how far
//! the store got.

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
    schema::{self, Header},
};

/// A store's directory, held against others until this is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// sled's log, opened once more: sled hands its writes to the system but does not see to it that they last.
    log: File,
    mark: File,
    /// Held open and thereby locked.
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing would do, but for a process that is just being started by this one and still has the file.
        let _ = self.lock.unlock();
    }
}

impl Directory {
    /// Locks the directory, makes the store in it if there is none, and opens it.
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<(Self, sled::Db), OpenError> {
        let path = &absolute(path)?;
        let lock = lock(path)?;
        if is_missing_or_empty(path)? {
            create(path, cache_bytes)?;
        }
        if !path.join("conf").is_file() || !path.join("db").is_file() {
            return Err(OpenError::NotAStore { path: path.clone(), reason: "it has other files than a store's" });
        }
        remove_half_made_snapshots(path)?;
        let db = open_sled(path, cache_bytes)?;
        // sled has renamed a snapshot into place.
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

    /// Returns when all that sled has written to its log will outlast a power cut.
    pub(crate) fn sync_log(&self) -> io::Result<()> {
        self.log.sync_data()
    }

    /// Returns how many bytes the log has, and how many there is room for besides.
    pub(crate) fn room(&self) -> io::Result<(u64, u64)> {
        Ok((self.log.metadata()?.len(), fs4::available_space(&self.path)?))
    }

    /// Notes how far the store got, after that has been synced.
    ///
    /// A damaged tail of sled's log looks to sled like a write that a crash cut short, and it goes on without. The
    /// mark tells. It is not synced with each commit, so that after a power cut it may lag behind but never be
    /// ahead.
    pub(crate) fn write_mark(&self, header: Header) -> io::Result<()> {
        let mut mark = &self.mark;
        mark.seek(SeekFrom::Start(0))?;
        mark.write_all(&encode_mark(header))
    }

    pub(crate) fn sync_mark(&self) -> io::Result<()> {
        self.mark.sync_all()
    }

    /// Returns the sequence and digest of the mark, `None` when there is none that can be read.
    pub(crate) fn read_mark(&self) -> Option<(u64, u64)> {
        let mut bytes = Vec::new();
        let mut mark = &self.mark;
        mark.read_to_end(&mut bytes).ok()?;
        let (payload, _) = schema::unseal(b"mark", &bytes).ok()?;
        let (sequence, digest) = payload.split_first_chunk()?;
        Some((u64::from_le_bytes(*sequence), u64::from_le_bytes(*digest.first_chunk()?)))
    }
}

fn encode_mark(header: Header) -> Vec<u8> {
    let payload: Vec<u8> = [header.sequence, header.digest].into_iter().flat_map(u64::to_le_bytes).collect();
    schema::seal(b"mark", &payload)
}

/// Returns the path under which every opener knows the directory, so that they meet at one lock.
fn absolute(path: &Path) -> Result<PathBuf, OpenError> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let path = std::path::absolute(path).map_err(refused("find", path))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(OpenError::NotAStore { path, reason: "a store's directory needs a name" });
    };
    fs::create_dir_all(parent).map_err(refused("create", parent))?;
    Ok(fs::canonicalize(parent).map_err(refused("find", parent))?.join(name))
}

/// Takes the lock beside the directory. sled has one of its own in it, but takes it too late: after it has created
/// its files, and it says no more than that it could not have it.
fn lock(path: &Path) -> Result<File, OpenError> {
    let lock = beside(path, ".lock");
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&lock);
    let mut file = file.map_err(refused("lock", &lock))?;
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

/// What a store holds is its owner's alone.
#[cfg(unix)]
fn owner_only() -> fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Elsewhere permissions are those of the directory above.
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

/// Makes a store beside the directory and moves it there when nothing of it can be lost any more.
///
/// sled writes `conf` in two steps and syncs nothing of what it creates, and it never opens a directory again in
/// which it was interrupted.
fn create(path: &Path, cache_bytes: u64) -> Result<(), OpenError> {
    let unfinished = beside(path, ".creating");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(refused("remove", &unfinished))?;
    }
    owner_only().create(&unfinished).map_err(refused("create", &unfinished))?;
    let db = open_sled(&unfinished, cache_bytes)?;
    let header = Header::default();
    let key = schema::header_key();
    // sled panics when it cannot sync its log while it is closed.
    let written = catch(|| {
        let flushed = db.insert(&key, schema::seal(&key, &header.encode())).and_then(|_| db.flush());
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
    fs::write(&mark, encode_mark(header)).map_err(refused("write", &mark))?;
    sync_all(&unfinished)?;
    if path.exists() {
        fs::remove_dir(path).map_err(refused("remove", path))?;
    }
    fs::rename(&unfinished, path).map_err(refused("create", path))?;
    path.parent().map_or(Ok(()), sync)
}

/// Opens sled, which may have to wait until a store that this process just dropped has let go of its files.
fn open_sled(path: &Path, cache_bytes: u64) -> Result<sled::Db, OpenError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let config = sled::Config::new().path(path).cache_capacity(cache_bytes);
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

/// Removes what a crash left of a snapshot in the making, which sled would take for the latest and refuse. The one
/// before it is still there.
fn remove_half_made_snapshots(path: &Path) -> Result<(), OpenError> {
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
    // Elsewhere directories cannot be opened as files, and are not lost either.
    if path.is_dir() && !cfg!(unix) {
        return Ok(());
    }
    File::open(path).and_then(|file| file.sync_all()).map_err(refused("sync", path))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::File { action, path: path.to_owned(), source }
}
