//! The resources that the applies of a set have created, in a file of this machine.

use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    config::{directory, replace},
    failure::{Exit, Failure, Result},
};

/// The longest name of a set.
const MAX_NAME: usize = 64;

/// A resource that an apply has created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) kind: String,
    pub(super) uid: String,
    /// The path of names at the create, for people.
    pub(super) name: String,
}

/// The resources of a set at one server, in the order of their creates. Every change is written at once, after the
/// server has acknowledged it: if the machine fails in between, a resource is missing here, and is never deleted.
#[derive(Debug)]
pub(super) struct Inventory {
    path: PathBuf,
    entries: Vec<Entry>,
    /// Held until the end, so that two applies of one set do not overwrite each other's file.
    _lock: File,
}

impl Inventory {
    /// Opens the file of a set; a set that has no file is empty.
    ///
    /// # Errors
    /// If the name is not one of a file, or another process uses the set.
    pub(super) fn open(server: &str, set: &str, to: Option<&str>) -> Result<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if set.is_empty() || set.len() > MAX_NAME || set.starts_with('.') || !set.chars().all(is_plain) {
            let rule = format!("must have 1 to {MAX_NAME} letters, digits and ._-, and not begin with a dot");
            return Err(Failure::usage(format!("--set: {rule}")));
        }
        let base = to.filter(|to| !to.is_empty()).map_or_else(
            || Ok(directory("XDG_STATE_HOME", ".local/state")?.join("sets")),
            |to| Ok::<_, Failure>(PathBuf::from(to)),
        )?;
        // The same set of another server has other resources.
        let digest = hex::encode(Sha256::digest(server));
        let directory = base.join(digest.get(..16).unwrap_or_default());
        let failed = |error: std::io::Error| Failure::file(directory.display(), error);
        fs::create_dir_all(&directory).map_err(failed)?;
        let lock = File::create(directory.join(format!("{set}.lock"))).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(Exit::Failed, format!("another process applies the set {set}")));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let path = directory.join(format!("{set}.json"));
        let entries = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| Failure::file(path.display(), error))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Failure::file(path.display(), error)),
        };
        Ok(Self { path, entries, _lock: lock })
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn add(&mut self, entry: Entry) -> Result<()> {
        self.entries.push(entry);
        self.write()
    }

    pub(super) fn remove(&mut self, uid: &str) -> Result<()> {
        self.entries.retain(|entry| entry.uid != uid);
        self.write()
    }

    fn write(&self) -> Result<()> {
        let text =
            serde_json::to_vec_pretty(&self.entries).map_err(|error| Failure::file(self.path.display(), error))?;
        replace(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_one_of_one_server_and_used_by_one_process_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().to_str();
        let entry = Entry { kind: "Repo".to_owned(), uid: "a/b".to_owned(), name: "acme/nginx".to_owned() };
        let mut set = Inventory::open("http://a", "web", to).unwrap();
        set.add(entry.clone()).unwrap();
        assert!(Inventory::open("http://a", "web", to).is_err());
        drop(set);
        assert_eq!(Inventory::open("http://a", "web", to).unwrap().entries(), [entry]);
        assert_eq!(Inventory::open("http://b", "web", to).unwrap().entries(), []);
        for name in ["", "../up", ".hidden", "a/b"] {
            assert!(Inventory::open("http://a", name, to).is_err(), "{name}");
        }
    }
}
