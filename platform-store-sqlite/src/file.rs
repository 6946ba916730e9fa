//! The file of a store: its lock, its mode, and its layout.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use platform_engine::store::StoreError;
use platform_store_kv::rows::{RowsMut, StateRow};
use rusqlite::{Connection, ErrorCode};

use crate::{
    error::{OpenError, store_error},
    rows::Sql,
    schema::{APPLICATION_ID, CREATE_UNINDEXED, SEARCHED, TABLES, UNINDEXED, VERSION},
};

/// Returns the path without symbolic links, so that all paths to a file share one lock. Creates the file if it does not
/// exist, because a missing file has no canonical path.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, OpenError> {
    if !path.exists() {
        // SQLite treats an empty file as a new database. The path may be a dangling link, which this follows.
        owner_only(OpenOptions::new().create(true).truncate(false).write(true)).open(path).map_err(refused(path))?;
        let path = path.canonicalize().map_err(refused(path))?;
        sync_directory(&path)?;
        return Ok(path);
    }
    path.canonicalize().map_err(refused(path))
}

/// Restricts access to a created file to its owner. SQLite gives the WAL and its index the mode of the database file.
#[cfg(unix)]
pub(crate) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

/// Restricts access to files that earlier versions, or other programs, have created for more users. Ignores errors: a
/// file of another owner stays as it is.
#[cfg(unix)]
pub(crate) fn restrict(path: &Path) {
    use std::{fs, os::unix::fs::PermissionsExt};
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let mode = fs::metadata(&name).map_or(0, |file| file.permissions().mode());
        if mode & 0o077 != 0 {
            // A file that its owner has made read-only stays so.
            drop(fs::set_permissions(&name, fs::Permissions::from_mode(mode & 0o700)));
        }
    }
}

#[cfg(not(unix))]
pub(crate) fn restrict(_path: &Path) {}

/// On other systems, files inherit the permissions of the directory.
#[cfg(not(unix))]
pub(crate) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Acquires the lock that makes a store exclusive.
pub(crate) fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let file = owner_only(OpenOptions::new().create(true).truncate(false).read(true).write(true)).open(name);
    let file = file.map_err(refused(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(OpenError::Other { path: path.to_owned(), cause: error.into() }),
    }
}

/// Makes the names of the store's files durable. SQLite syncs the directory too, but ignores errors, and the system
/// reports an error only once: so this sync has to come before the one of SQLite.
pub(crate) fn sync_directory(path: &Path) -> Result<(), OpenError> {
    // On other systems, a directory cannot be opened as a file.
    match path.parent() {
        Some(directory) if cfg!(unix) => {
            File::open(directory).and_then(|directory| directory.sync_all()).map_err(refused(path))
        }
        _ => Ok(()),
    }
}

/// Converts an error of the file system.
pub(crate) fn refused(path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::ReadOnly { path: path.to_owned() }
        }
        _ => OpenError::Other { path: path.to_owned(), cause: error.into() },
    }
}

/// Returns whether a file is empty, and not a store yet. Fails if it is anything but a store with the current layout.
///
/// There are no migrations: no release has written another layout.
pub(crate) fn is_new(path: &Path, connection: &Connection) -> Result<bool, OpenError> {
    let fail = |error| open_error(path, error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(fail);
    let (id, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    if number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(true);
    }
    if id != APPLICATION_ID {
        return Err(OpenError::NotAStore { path: path.to_owned() });
    }
    if version < 1 {
        return Err(OpenError::Unversioned { path: path.to_owned(), found: version });
    }
    let (path, found, known) = (path.to_owned(), version & !(UNINDEXED | SEARCHED), VERSION);
    match found.cmp(&known) {
        Ordering::Less => Err(OpenError::Older { path, found, known }),
        Ordering::Equal => Ok(false),
        Ordering::Greater => Err(OpenError::Newer { path, found, known }),
    }
}

/// Creates the tables of a new file, or verifies that an existing file is a store with the current layout.
pub(crate) fn prepare(path: &Path, sql: &Sql) -> Result<(), OpenError> {
    let connection = &sql.connection;
    let fail = |error| open_error(path, error);
    // SQLite opens a file that this process may not write for reading only.
    if connection.is_readonly("main").map_err(fail)? {
        return Err(OpenError::ReadOnly { path: path.to_owned() });
    }
    let is_new = is_new(path, connection)?;
    let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)).map_err(fail)?;
    if mode != "wal" {
        return Err(OpenError::NoWal { path: path.to_owned() });
    }
    // Create the tables atomically, so that a crash leaves either an empty file or a complete store.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(fail)?;
    // The first transaction has created the WAL file, which now exists until the store is closed. SQLite syncs its
    // name when it first syncs the WAL, but ignores an error.
    sync_directory(path)?;
    let other = |error: StoreError| OpenError::Other { path: path.to_owned(), cause: error.into() };
    if is_new {
        connection.execute_batch(TABLES).map_err(fail)?;
        connection.pragma_update(None, "user_version", VERSION).map_err(fail)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
        sql.set_state(StateRow::of_new_store()).map_err(other)?;
    }
    check_objects(connection).map_err(|error| match error {
        StoreError::Corrupt(cause) => OpenError::Damaged { path: path.to_owned(), cause },
        error => other(error),
    })?;
    connection.execute_batch("COMMIT").map_err(fail)
}

/// Checks that the file has the tables and indexes of a store and nothing else: a trigger would change what a commit
/// writes, and a table with other columns or constraints what it may write. Statistics of `ANALYZE` change no result.
fn check_objects(connection: &Connection) -> Result<(), StoreError> {
    // Builds before the first release have migrated files, and wrote other white space.
    let shortened = |sql: &str| sql.split_whitespace().collect::<String>();
    let statements = TABLES.split(';').chain([CREATE_UNINDEXED]).map(shortened);
    let mut missing: BTreeSet<String> = statements.filter(|statement| !statement.is_empty()).collect();
    let select = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema";
    let mut select = connection.prepare(select).map_err(store_error)?;
    let mut rows = select.query([]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let text = |column| row.get::<_, String>(column).map_err(store_error);
        let (object, name, sql) = (text(0)?, text(1)?, text(2)?);
        let is_internal = match object.as_str() {
            "index" => sql.is_empty() && name.starts_with("sqlite_autoindex_"),
            "table" => name.starts_with("sqlite_stat"),
            _ => false,
        };
        if !is_internal && !missing.remove(&shortened(&sql)) {
            return Err(StoreError::Corrupt(format!("the {object} `{name}` is not that of a store").into()));
        }
    }
    missing.remove(&shortened(CREATE_UNINDEXED));
    match missing.first() {
        None => Ok(()),
        Some(statement) => Err(StoreError::Corrupt(format!("`{statement}` is missing").into())),
    }
}

pub(crate) fn open_error(path: &Path, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => OpenError::ReadOnly { path },
        Some(ErrorCode::NotADatabase) => OpenError::NotAStore { path },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path, cause: error.into() },
        _ => OpenError::Other { path, cause: error.into() },
    }
}
