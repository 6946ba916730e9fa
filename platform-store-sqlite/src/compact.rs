//! Compaction: gives the space of deleted records back to the file system.
//!
//! SQLite keeps the pages of deleted rows in the file and uses them again. `VACUUM INTO` writes the content to a new file
//! without them, which then replaces the old one in one step. So a crash leaves one of the two, and the disk needs space
//! for the content once, where `VACUUM` needs it twice.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};

use crate::{
    error::OpenError,
    file::{open_error, owner_only, refused, sync_directory},
};

/// The space that a store takes on disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// The size of the database: of its file after the next checkpoint.
    pub total: u64,
    /// The part of it that has no content. New records use it again.
    pub unused: u64,
}

impl Space {
    pub(crate) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |name: &str| {
            connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
        };
        let (size, pages, unused) = (number("page_size")?, number("page_count")?, number("freelist_count")?);
        Ok(Self { total: pages.saturating_mul(size), unused: unused.saturating_mul(size) })
    }
}

/// Returns the name of the new file, which an interrupted compaction leaves.
pub(crate) fn new_file(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-compact");
    name.into()
}

/// Replaces a file by one with the same content. The caller has its lock, and it must not have a WAL. Returns the new
/// size.
pub(crate) fn compact(path: &Path) -> Result<u64, OpenError> {
    let new = new_file(path);
    let replaced = write(path, &new).and_then(|()| fs::rename(&new, path).map_err(refused(path)));
    if replaced.is_err() {
        drop(fs::remove_file(&new));
    }
    replaced?;
    sync_directory(path)?;
    fs::metadata(path).map(|file| file.len()).map_err(refused(path))
}

fn write(path: &Path, new: &Path) -> Result<(), OpenError> {
    let other = |cause: &str| OpenError::Other { path: path.to_owned(), cause: cause.into() };
    let name = new.to_str().ok_or_else(|| other("SQLite needs a path in UTF-8"))?;
    // SQLite writes to an empty file that exists, which keeps its mode.
    owner_only(OpenOptions::new().create(true).truncate(true).write(true)).open(new).map_err(refused(path))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| open_error(path, error))?;
    connection.execute("VACUUM INTO ?", [name]).map_err(|error| open_error(path, error))?;
    connection.close().map_err(|(_, error)| open_error(path, error))?;
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    if Path::new(&wal).exists() {
        // A WAL belongs to its file: to another one it would do damage.
        return Err(other("its WAL is in use"));
    }
    File::open(new).and_then(|file| file.sync_all()).map_err(refused(path))
}
