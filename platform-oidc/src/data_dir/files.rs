//! Files that are there whole or not at all, for their owner alone.
//!
//! A process that is killed while it writes leaves at most a `.new-…` file behind, which nobody reads.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};
use tempfile::NamedTempFile;

use super::DataDirError;

/// The longest file that is read, in bytes; our choice: 1 MiB.
const MAX_FILE: u64 = 1024 * 1024;

/// Returns the contents of a file, after creating it with `make` when there is none.
///
/// When several processes create it at once, all return what the first one wrote. What is returned survives a power
/// cut. The directory is created for its owner alone when it is missing.
pub(super) fn read_or_create<T: Serialize + DeserializeOwned>(
    path: &Path,
    make: impl FnOnce() -> Result<T, DataDirError>,
) -> Result<T, DataDirError> {
    if let Some(contents) = read(path)? {
        return Ok(contents);
    }
    create_directory(directory(path))?;
    let made = make()?;
    match write_beside(path, &made)?.persist_noclobber(path) {
        Ok(_) => sync_directory(path).map(|()| made),
        // Another process was first; its file may not be safe from a power cut yet, and ours will rely on it.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            sync_directory(path)?;
            read(path)?.ok_or_else(|| failed("read", path)(io::ErrorKind::NotFound.into()))
        }
        Err(error) => Err(failed("create", path)(error.error)),
    }
}

/// Returns the contents of a file, or `None` when there is none.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DataDirError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path)(error)),
    };
    check_owner_only(path, &file.metadata().map_err(failed("read", path))?)?;
    let mut json = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut json).map_err(failed("read", path))?;
    // serde_json's message is left out: it may quote what it met, and what it met may be a secret.
    serde_json::from_slice(&json).map(Some).map_err(|_| malformed(path, "it is not what this version writes"))
}

/// Replaces a file by what `change` makes of its contents; one process at a time.
///
/// # Errors
/// As [`read`]; a file that is not there is an error too.
pub(super) fn change<T: Serialize + DeserializeOwned>(
    path: &Path,
    change: impl FnOnce(T) -> Result<T, DataDirError>,
) -> Result<T, DataDirError> {
    // The lock has a file of its own, since the one it protects is replaced. It is let go when the file is closed.
    let lock = path.with_extension("lock");
    let holder = owner_only(OpenOptions::new().write(true).create(true)).open(&lock).map_err(failed("open", &lock))?;
    holder.lock().map_err(failed("lock", &lock))?;
    let before = read(path)?.ok_or_else(|| failed("read", path)(io::ErrorKind::NotFound.into()))?;
    let after = change(before)?;
    write_beside(path, &after)?.persist(path).map_err(|error| failed("replace", path)(error.error))?;
    sync_directory(path)?;
    Ok(after)
}

pub(super) fn malformed(path: &Path, reason: &'static str) -> DataDirError {
    DataDirError::Malformed { path: path.to_owned(), reason }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    move |source| DataDirError::Io { action, path: path.to_owned(), source }
}

/// Writes and syncs a nameless neighbour, which only its owner can read and which goes away unless it is renamed.
fn write_beside(path: &Path, contents: &impl Serialize) -> Result<NamedTempFile, DataDirError> {
    let json = serde_json::to_vec_pretty(contents).map_err(io::Error::from).map_err(failed("write", path))?;
    let file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory(path)).map_err(failed("create", path))?;
    let write = |mut file: &File| {
        file.write_all(&json)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write(file.as_file()).map_err(failed("write", path))?;
    Ok(file)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a directory and what is missing above it, each safe from a power cut before anything is put in it.
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

/// Makes sure that what happened to a name in its directory survives a power cut.
#[cfg(unix)]
fn sync_directory(path: &Path) -> Result<(), DataDirError> {
    let directory = directory(path);
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("sync", directory))
}

/// Elsewhere a directory cannot be synced.
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

/// Elsewhere permissions are the directory's.
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
