//! Files that are written atomically and are accessible only to their owner.
//!
//! A process that is killed during a write leaves at most a `.new-…` file, which is never read.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use super::DataDirError;

/// The maximum length of a file, in bytes; our choice: 1 MiB.
const MAX_FILE: u64 = 1024 * 1024;

/// Reads a file, or creates it with the result of `make` when it does not exist.
///
/// When several processes create the file concurrently, all return the contents of the first. The returned contents
/// survive a power failure. A missing directory is created for its owner alone.
pub(super) fn read_or_create<T: Serialize + DeserializeOwned>(
    path: &Path,
    make: impl FnOnce() -> Result<T, DataDirError>,
) -> Result<T, DataDirError> {
    if let Some(contents) = read(path)? {
        return Ok(contents);
    }
    let contents = make()?;
    if create(path, &encode(&contents, path)?)? {
        Ok(contents)
    } else {
        read(path)?.ok_or_else(|| failed("read", path)(io::ErrorKind::NotFound.into()))
    }
}

/// Creates a file; returns `false` if it exists, because another process was first. Either way, the file survives a
/// power failure. A missing directory is created for its owner alone.
pub(super) fn create(path: &Path, contents: &[u8]) -> Result<bool, DataDirError> {
    create_directory(directory(path))?;
    match write_temporary(path, contents)?.persist_noclobber(path) {
        Ok(_) => sync_directory(path).map(|()| true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => sync_directory(path).map(|()| false),
        Err(error) => Err(failed("create", path)(error.error)),
    }
}

/// Reads a file; returns `None` when it does not exist.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DataDirError> {
    read_bytes(path)?.map(|json| decode(&json, path)).transpose()
}

/// Reads a file as it is; returns `None` when it does not exist.
pub(super) fn read_bytes(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, DataDirError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path)(error)),
    };
    check_owner_only(path, &file.metadata().map_err(failed("read", path))?)?;
    let mut json = Zeroizing::new(Vec::new());
    file.take(MAX_FILE).read_to_end(&mut json).map_err(failed("read", path))?;
    Ok(Some(json))
}

/// Parses the contents of a file.
pub(super) fn decode<T: DeserializeOwned>(json: &[u8], path: &Path) -> Result<T, DataDirError> {
    // Drops serde_json's message: it may quote the input, which may be a secret.
    serde_json::from_slice(json).map_err(|_| match json.trim_ascii_start().first() {
        Some(b'{') => malformed(path, "it is not a valid file of this version"),
        _ => malformed(path, "it is encrypted and needs the key-encryption key, or it is damaged"),
    })
}

/// Returns the contents of a file.
pub(super) fn encode(contents: &impl Serialize, path: &Path) -> Result<Zeroizing<Vec<u8>>, DataDirError> {
    let json = serde_json::to_vec_pretty(contents).map(Zeroizing::new);
    let mut json = json.map_err(io::Error::from).map_err(failed("write", path))?;
    json.push(b'\n');
    Ok(json)
}

/// Replaces the contents of a file with the result of `update`, under an exclusive lock between processes.
///
/// # Errors
/// As [`read`]; a missing file is an error too.
pub(super) fn update<T: Serialize + DeserializeOwned>(
    path: &Path,
    update: impl FnOnce(T) -> Result<T, DataDirError>,
) -> Result<T, DataDirError> {
    let _lock = lock(path)?;
    let before = read(path)?.ok_or_else(|| failed("read", path)(io::ErrorKind::NotFound.into()))?;
    let after = update(before)?;
    replace(path, &encode(&after, path)?)?;
    Ok(after)
}

/// Replaces the contents of a file if it still `is_unchanged`, under the lock of [`update`]; returns whether it was.
pub(super) fn replace_if(
    path: &Path,
    is_unchanged: impl FnOnce(&[u8]) -> bool,
    contents: &[u8],
) -> Result<bool, DataDirError> {
    let _lock = lock(path)?;
    let is_unchanged = read_bytes(path)?.is_some_and(|before| is_unchanged(&before));
    if is_unchanged {
        replace(path, contents)?;
    }
    Ok(is_unchanged)
}

/// Locks the updates of a file, until the returned file is closed.
fn lock(path: &Path) -> Result<File, DataDirError> {
    // Locks a separate file, since the file itself is replaced.
    let lock = path.with_extension("lock");
    let lock_file =
        owner_only(OpenOptions::new().write(true).create(true)).open(&lock).map_err(failed("open", &lock))?;
    lock_file.lock().map_err(failed("lock", &lock))?;
    Ok(lock_file)
}

fn replace(path: &Path, contents: &[u8]) -> Result<(), DataDirError> {
    write_temporary(path, contents)?.persist(path).map_err(|error| failed("replace", path)(error.error))?;
    sync_directory(path)
}

pub(super) fn malformed(path: &Path, reason: &'static str) -> DataDirError {
    DataDirError::Malformed { path: path.to_owned(), reason }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    move |source| DataDirError::Io { action, path: path.to_owned(), source }
}

/// Writes and syncs a temporary file in the same directory, which only its owner can read and which is deleted on drop
/// unless it is renamed.
fn write_temporary(path: &Path, contents: &[u8]) -> Result<NamedTempFile, DataDirError> {
    let file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory(path)).map_err(failed("create", path))?;
    let write = |mut file: &File| {
        file.write_all(contents)?;
        file.sync_all()
    };
    write(file.as_file()).map_err(failed("write", path))?;
    Ok(file)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a directory and its missing ancestors, and syncs each before anything is created in it.
fn create_directory(path: &Path) -> Result<(), DataDirError> {
    if path.is_dir() {
        return Ok(());
    }
    create_directory(directory(path))?;
    match directory_builder().create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("create", path)(error)),
        _ => sync_directory(path),
    }
}

#[cfg(unix)]
fn directory_builder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn directory_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Syncs the directory of a path, so that a created or renamed entry survives a power failure.
#[cfg(unix)]
fn sync_directory(path: &Path) -> Result<(), DataDirError> {
    let directory = directory(path);
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("sync", directory))
}

/// Does nothing: only Unix can sync a directory.
#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> Result<(), DataDirError> {
    Ok(())
}

#[cfg(unix)]
fn check_owner_only(path: &Path, metadata: &fs::Metadata) -> Result<(), DataDirError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(DataDirError::Exposed { path: path.to_owned(), mode }) }
}

/// Accepts every file: other systems take permissions from the directory.
#[cfg(not(unix))]
fn check_owner_only(_path: &Path, _metadata: &fs::Metadata) -> Result<(), DataDirError> {
    Ok(())
}

#[cfg(unix)]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
