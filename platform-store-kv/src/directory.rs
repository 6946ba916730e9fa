//! The directory of a store over a [`Backend`](crate::Backend): what every opener needs of the rules 9, 10 and 13, whatever
//! its library does.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use platform_engine::store::StoreError;

/// The file with the name of the format.
const FORMAT: &str = "format";

/// The error of a directory that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The store is already open, in this process or in another.
    #[error("cannot open the store at {path:?}: {owner} has it open; stop that process, or use another directory")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that has the store open, such as `process 4711`, or `another process` if it is unknown.
        owner: String,
    },
    /// The directory has something else.
    #[error("{path:?} is not a store, as it has no file `{FORMAT}`: use a new or empty directory, or that of a store")]
    NotAStore {
        /// The directory.
        path: PathBuf,
    },
    /// The store has another format.
    #[error(
        "the store at {path:?} has the format `{found}`, and this version reads `{known}`: \
         export it with the version that wrote it, and import the file with this one"
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// The format of the store.
        found: String,
        /// The format of this version.
        known: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {path:?}: {source}; a store needs a writable directory on a disk with free space")]
    File {
        /// The operation, such as `open`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The files of an empty store cannot be written.
    #[error("cannot create a store at {path:?}: {source}")]
    Create {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: StoreError,
    },
}

/// The directory of a store, locked until this is dropped.
///
/// Next to a directory `store` are the file `store.lock`, which is locked, and, during the creation, `store.creating`.
///
/// A library is opened in it after this, and closed before this is dropped: declare it as an earlier field.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Locks a directory, and creates a store in it if it is missing or empty.
    ///
    /// `create` writes the files of an empty store to the directory that it gets, and closes them. They are synced and
    /// renamed afterwards, so that a process that is killed, or a power cut, leaves a whole store or none.
    ///
    /// `format` is the name of the library with the version of its format, such as `redb 3`. It is stored in the file
    /// `format`, and a store of another one is refused. The lock is not waited for. On Unix, files and directories are
    /// created for their owner alone.
    ///
    /// # Errors
    /// [`DirectoryError`], with the path, the problem and its remedy.
    pub fn open(
        path: &Path,
        format: &str,
        create: impl FnOnce(&Path) -> Result<(), StoreError>,
    ) -> Result<Self, DirectoryError> {
        let path = absolute(path)?;
        let directory = Self { lock: lock(&path)?, path };
        if is_missing_or_empty(&directory.path)? {
            directory.create(format, create)?;
        }
        directory.check(format)?;
        Ok(directory)
    }

    /// Returns its path, which is absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn create(&self, format: &str, create: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), DirectoryError> {
        let unfinished = with_suffix(&self.path, ".creating");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(refused("remove", &unfinished))?;
        }
        owner_only().create(&unfinished).map_err(refused("create", &unfinished))?;
        create(&unfinished).map_err(|source| DirectoryError::Create { path: self.path.clone(), source })?;
        let file = unfinished.join(FORMAT);
        fs::write(&file, format).map_err(refused("write", &file))?;
        sync_all(&unfinished)?;
        // It is empty.
        if self.path.exists() {
            fs::remove_dir(&self.path).map_err(refused("remove", &self.path))?;
        }
        fs::rename(&unfinished, &self.path).map_err(refused("create", &self.path))?;
        self.path.parent().map_or(Ok(()), sync)
    }

    fn check(&self, format: &str) -> Result<(), DirectoryError> {
        let (file, path) = (self.path.join(FORMAT), self.path.clone());
        match fs::read_to_string(&file) {
            Ok(found) if found == format => Ok(()),
            Ok(found) => Err(DirectoryError::Format { path, found, known: format.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DirectoryError::NotAStore { path }),
            Err(error) => Err(refused("read", &file)(error)),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A closed file stays locked while a child process that is just being started has its handle.
        let _ = self.lock.unlock();
    }
}

/// Returns the canonical path of a directory, so that all paths to it share one lock. Creates its parent, because a
/// directory that is missing has no canonical path.
fn absolute(path: &Path) -> Result<PathBuf, DirectoryError> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let path = std::path::absolute(path).map_err(refused("find", path))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused("create", &path)(io::ErrorKind::InvalidFilename.into()));
    };
    fs::create_dir_all(parent).map_err(refused("create", parent))?;
    Ok(fs::canonicalize(parent).map_err(refused("find", parent))?.join(name))
}

/// Locks the file next to the directory, and writes the number of the process to it.
fn lock(path: &Path) -> Result<File, DirectoryError> {
    let file = with_suffix(path, ".lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    // Every user who can read the file can lock it, and so keep the store from being opened.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut lock = options.open(&file).map_err(refused("lock", &file))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let is_known = lock.read_to_string(&mut owner).is_ok() && !owner.is_empty();
            let owner = if is_known { format!("process {owner}") } else { "another process".to_owned() };
            return Err(DirectoryError::InUse { path: path.to_owned(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(refused("lock", &file)(error)),
    }
    let written = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    written.map_err(refused("write", &file))?;
    Ok(lock)
}

fn owner_only() -> fs::DirBuilder {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "elsewhere it has the permissions of its parent"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn is_missing_or_empty(path: &Path) -> Result<bool, DirectoryError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(refused("read", path)(error)),
    }
}

fn sync_all(path: &Path) -> Result<(), DirectoryError> {
    for entry in fs::read_dir(path).map_err(refused("read", path))? {
        let entry = entry.map_err(refused("read", path))?.path();
        if entry.is_dir() { sync_all(&entry)? } else { sync(&entry)? }
    }
    sync(path)
}

/// Makes the content of a file, or the names in a directory, durable.
///
/// # Errors
/// [`DirectoryError::File`].
pub fn sync(path: &Path) -> Result<(), DirectoryError> {
    // On other systems, a directory cannot be opened as a file, and its names need no sync.
    if path.is_dir() && !cfg!(unix) {
        return Ok(());
    }
    // Windows syncs only files that are opened for writing.
    let file = if path.is_dir() { File::open(path) } else { OpenOptions::new().write(true).open(path) };
    file.and_then(|file| file.sync_all()).map_err(refused("sync", path))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Converts an error of the file system.
fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DirectoryError {
    move |source| DirectoryError::File { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<Directory, DirectoryError> {
        Directory::open(path, "map 1", |path| {
            fs::write(path.join("data"), "empty").unwrap();
            Ok(())
        })
    }

    #[test]
    fn a_store_is_created_once() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("parent/store");
        let directory = open(&path).unwrap();
        assert_eq!(directory.path(), path.canonicalize().unwrap());
        fs::write(path.join("data"), "full").unwrap();
        drop(directory);
        drop(open(&path).unwrap());
        assert_eq!(fs::read_to_string(path.join("data")).unwrap(), "full");
    }

    #[test]
    fn a_directory_that_is_open_is_refused_under_each_of_its_paths_and_the_error_names_the_process() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let directory = open(&path).unwrap();
        for other in [path.clone(), home.path().join("./store"), home.path().join("store/../store")] {
            let error = open(&other).unwrap_err().to_string();
            assert!(error.contains(&format!("process {} has it open", std::process::id())), "{error}");
        }
        drop(directory);
        open(&path).unwrap();
    }

    #[test]
    fn an_interrupted_creation_is_done_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let failed = Directory::open(&path, "map 1", |path| {
            fs::write(path.join("half"), "").unwrap();
            Err(crate::unavailable("interrupted"))
        });
        assert!(failed.is_err() && !path.exists());
        drop(open(&path).unwrap());
        assert!(path.join("data").exists() && !path.join("half").exists());
    }

    #[test]
    fn another_format_and_other_files_are_refused_and_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        drop(open(&path).unwrap());
        let other = Directory::open(&path, "map 2", |_| Ok(())).unwrap_err().to_string();
        assert!(other.contains("has the format `map 1`, and this version reads `map 2`"), "{other}");
        fs::remove_file(path.join(FORMAT)).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("is not a store"), "{error}");
        assert!(path.join("data").exists());
    }
}
