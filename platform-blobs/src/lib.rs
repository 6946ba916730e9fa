//! Blobs in a directory.
//!
//! A blob is the file `<parent>/<digest>`: the hash of the uid of the parent that it belongs to, and the SHA-256 of its
//! content, both in hexadecimal digits. New blobs are written to `<digest>.tmp`, synced, and renamed.
//!
//! # Guarantees
//! - A blob is durable when [`put`](BlobStore::put) returns, and when [`renew`](BlobStore::renew) returns `true`.
//! - A blob that can be read has the content that was put: each [`get`](BlobStore::get) computes the digest.
//! - After a crash or a power cut, each blob is there entirely or not at all. [`BlobDirectory::open`] deletes
//!   incomplete files.
//! - One process has the directory open at a time, or any number of processes that share it
//!   ([`BlobDirectory::open_shared`]).
//!
//! The time of a blob is the modification time of its file. After a power cut it may be an earlier one, which matters
//! only for blobs that no resource names.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use platform_engine::{
    blob::{BlobId, BlobStore, corrupt},
    store::StoreError,
    timestamp::Timestamp,
};

/// The end of the names of incomplete files.
const INCOMPLETE: &str = ".tmp";

/// The file that is locked while the directory is open.
const LOCK: &str = "lock";

/// The file that is locked while a process that shares the directory writes, renews or deletes a blob.
const WRITING: &str = "writing";

/// Blobs in a directory, locked until this is dropped.
#[derive(Debug)]
pub struct BlobDirectory {
    root: PathBuf,
    lock: File,
    /// Held while a blob is written, renewed or deleted. A file that is locked then, if the directory is shared.
    writing: Mutex<Option<File>>,
}

/// The lock of [`BlobDirectory::writing`].
struct Turn<'a>(MutexGuard<'a, Option<File>>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = &*self.0 {
            let _ = file.unlock();
        }
    }
}

/// The reason why a directory cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the directory open without sharing it, or this process a second time.
    #[error("the blob directory {path} is open in another process", path = .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be created, locked or read.
    #[error("cannot open the blob directory {path}: {source}", path = .path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl BlobDirectory {
    /// Opens a directory, and creates it if it does not exist. Its parent must exist.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when it is already open, and [`OpenError::Io`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let root = path.into();
        let failed = |source| OpenError::Io { path: root.clone(), source };
        create(&root).map_err(failed)?;
        let lock = File::create(root.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: root }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        remove_incomplete(&root).map_err(failed)?;
        Ok(Self { root, lock, writing: Mutex::new(None) })
    }

    /// Opens a directory that several processes use at a time, for servers that share a store: on one machine, or on a
    /// file system that all machines have mounted and whose locks work between them. Creates it if it does not exist.
    ///
    /// Writes of all processes take turns.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when a process has opened it without sharing it, and [`OpenError::Io`].
    pub fn open_shared(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let root = path.into();
        let failed = |source| OpenError::Io { path: root.clone(), source };
        create(&root).map_err(failed)?;
        let lock = File::create(root.join(LOCK)).map_err(failed)?;
        match lock.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: root }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let writing = File::create(root.join(WRITING)).map_err(failed)?;
        let directory = Self { root, lock, writing: Mutex::new(Some(writing)) };
        let cleaned = {
            // Nobody writes now, so an incomplete file was left by a crash.
            let turn = directory.turn();
            turn.and_then(|_turn| remove_incomplete(&directory.root))
        };
        cleaned.map_err(|source| OpenError::Io { path: directory.root.clone(), source })?;
        Ok(directory)
    }

    /// Waits until nobody else writes.
    fn turn(&self) -> io::Result<Turn<'_>> {
        let turn = Turn(self.writing.lock());
        if let Some(file) = &*turn.0 {
            file.lock()?;
        }
        Ok(turn)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    fn file(&self, id: &BlobId) -> PathBuf {
        let (parent, digest) = id.parts();
        self.root.join(parent).join(digest)
    }

    fn write(&self, id: &BlobId, content: &[u8], now: Timestamp) -> io::Result<()> {
        let (parent, digest) = id.parts();
        let directory = self.root.join(parent);
        if !directory.is_dir() {
            fs::create_dir(&directory)?;
            // A later put must not find a directory that is not durable.
            sync(&self.root).inspect_err(|_| drop(fs::remove_dir(&directory)))?;
        }
        let incomplete = directory.join(format!("{digest}{INCOMPLETE}"));
        let file = directory.join(digest);
        let write = || {
            let mut new = File::create(&incomplete)?;
            new.write_all(content)?;
            new.set_modified(system_time(now))?;
            new.sync_all()?;
            fs::rename(&incomplete, &file)?;
            // Not acknowledged without the sync, so a failure removes the file: a later put must not find it.
            sync(&directory).inspect_err(|_| drop(fs::remove_file(&file)))
        };
        write().inspect_err(|_| drop(fs::remove_file(&incomplete)))
    }

    /// Makes the entry of an existing blob durable, and sets its time.
    fn renew_file(&self, path: &Path, file: &File, now: Timestamp) -> io::Result<()> {
        let now = system_time(now);
        if file.metadata()?.modified()? < now {
            file.set_modified(now)?;
        }
        path.parent().map_or(Ok(()), sync)
    }
}

impl Drop for BlobDirectory {
    fn drop(&mut self) {
        // Closing the file is not enough while a child process that is just being started has the inherited handle.
        let _ = self.lock.unlock();
    }
}

impl BlobStore for BlobDirectory {
    fn put(&self, id: &BlobId, content: &[u8], now: Timestamp) -> Result<bool, StoreError> {
        let _turn = self.turn().map_err(failed)?;
        let path = self.file(id);
        // A damaged or unreadable file is replaced.
        if let Ok(Some(_)) = self.get(id)
            && let Ok(file) = File::open(&path)
        {
            self.renew_file(&path, &file, now).map_err(failed)?;
            return Ok(false);
        }
        self.write(id, content, now).map_err(failed)?;
        Ok(true)
    }

    fn get(&self, id: &BlobId) -> Result<Option<Bytes>, StoreError> {
        match fs::read(self.file(id)) {
            Ok(content) if id.matches(&content) => Ok(Some(content.into())),
            Ok(_) => Err(corrupt(id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn renew(&self, id: &BlobId, now: Timestamp) -> Result<bool, StoreError> {
        let _turn = self.turn().map_err(failed)?;
        let path = self.file(id);
        match File::open(&path) {
            Ok(file) => self.renew_file(&path, &file, now).map(|()| true).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn delete(&self, id: &BlobId, before: Timestamp) -> Result<bool, StoreError> {
        let _turn = self.turn().map_err(failed)?;
        let path = self.file(id);
        let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
        match modified {
            Ok(modified) if modified < system_time(before) => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        }
        fs::remove_file(&path).map_err(failed)?;
        if let Some(directory) = path.parent() {
            // Fails while it has other blobs.
            let _ = fs::remove_dir(directory);
        }
        Ok(true)
    }

    fn list(&self) -> Result<Vec<BlobId>, StoreError> {
        let list = || {
            let mut found = Vec::new();
            for directory in parents(&self.root)? {
                let Some(name) = directory.file_name().and_then(|name| name.to_str()) else { continue };
                let blobs = match fs::read_dir(&directory) {
                    // Its last blob was deleted in the meantime.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    blobs => blobs?,
                };
                for blob in blobs {
                    found.extend(blob?.file_name().to_str().and_then(|digest| BlobId::parse(name, digest)));
                }
            }
            Ok(found)
        };
        list().map_err(failed)
    }
}

/// Removes the files that a crash left incomplete.
fn remove_incomplete(root: &Path) -> io::Result<()> {
    for directory in parents(root)? {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| name.ends_with(INCOMPLETE)) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    // A crash may have come between the creation of a parent's directory and the sync.
    sync(root)
}

/// Returns the directories of parents.
fn parents(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            parents.push(entry.path());
        }
    }
    Ok(parents)
}

/// Creates a directory that only its owner can read, unless it exists, and makes it durable.
fn create(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        // The sync may have failed when it was created.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync(Path::new(".")),
        Some(parent) => sync(parent),
        None => Ok(()),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn system_time(at: Timestamp) -> SystemTime {
    let millis = Duration::from_millis(u64::try_from(at.millis()).unwrap_or_default());
    SystemTime::UNIX_EPOCH.checked_add(millis).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn failed(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(error.into()),
        _ => StoreError::Unavailable(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_directory_can_be_opened_while_a_child_process_has_the_inherited_handle() {
        let home = tempfile::tempdir().unwrap();
        for open in [BlobDirectory::open, BlobDirectory::open_shared] {
            let blobs = open(home.path().join("blobs")).unwrap();
            // As in a child process between fork and exec.
            let _inherited = blobs.lock.try_clone().unwrap();
            assert!(matches!(BlobDirectory::open(blobs.path()), Err(OpenError::InUse { .. })));
            drop(blobs);
            drop(BlobDirectory::open(home.path().join("blobs")).unwrap());
        }
    }
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
