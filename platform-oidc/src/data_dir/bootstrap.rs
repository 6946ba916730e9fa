//! Who was there first: the root organisation and the operator.

use std::path::Path;

use platform_core::{entropy::Entropy, uid::Uid};
use serde::{Deserialize, Serialize};

use super::{
    DataDirError,
    files::{malformed, read, read_or_create},
};

const FILE: &str = "bootstrap.json";

/// The uids that a server gives to the first organisation and to its operator, whatever store stands under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    version: u32,
    /// The root organisation.
    pub organization: Uid,
    /// The identity that may do what only the operator may. Our choice: drawn as a uid of one segment, because an
    /// identity below a group reaches no further than that group, and the operator looks after all of them.
    pub operator: Uid,
}

impl Bootstrap {
    /// Draws both uids.
    pub fn draw(entropy: &dyn Entropy) -> Self {
        Self::new(Uid::new_root(entropy), Uid::new_root(entropy))
    }

    /// Names both uids.
    pub fn new(organization: Uid, operator: Uid) -> Self {
        Self { version: 1, organization, operator }
    }

    /// Returns what `bootstrap.json` in this directory says, after writing what `make` returns when there is none.
    ///
    /// Processes that start at once agree; the file is mode 0600 and survives a power cut. The directory is created
    /// when it is missing.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn read_or_create(data_dir: &Path, make: impl FnOnce() -> Self) -> Result<Self, DataDirError> {
        let path = data_dir.join(FILE);
        read_or_create(&path, || Ok(make())).and_then(|bootstrap: Self| bootstrap.checked(&path))
    }

    /// Returns what `bootstrap.json` in this directory says; none when there is no such file.
    ///
    /// # Errors
    /// As [`Bootstrap::read_or_create`].
    pub fn read(data_dir: &Path) -> Result<Option<Self>, DataDirError> {
        let path = data_dir.join(FILE);
        read::<Self>(&path)?.map(|bootstrap| bootstrap.checked(&path)).transpose()
    }

    fn checked(self, path: &Path) -> Result<Self, DataDirError> {
        let is_uid = |uid: &Uid| Uid::parse(uid).is_ok();
        match &self {
            Self { version: 1, organization, operator }
                if is_uid(organization) && organization.is_root() && is_uid(operator) =>
            {
                Ok(self)
            }
            Self { version: 1, .. } => Err(malformed(path, "it does not name an organization and an operator")),
            _ => Err(malformed(path, "another version wrote it")),
        }
    }
}
