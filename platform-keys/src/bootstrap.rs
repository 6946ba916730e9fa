//! The uids of the root organization and of the operator.

use std::path::Path;

use platform_engine::{entropy::Entropy, uid::Uid};
use serde::{Deserialize, Serialize};

use super::{
    DataDirError,
    documents::{self, Documents},
    files::{malformed, read, read_or_create},
};

const FILE: &str = "bootstrap.json";
const DOCUMENT: &str = "bootstrap";

/// The uids that a server assigns to its first organization and to its operator, independent of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    version: u32,
    /// The root organization.
    pub organization: Uid,
    /// The operator's identity. Our choice: a uid of one segment, because an identity below a group reaches no further
    /// than that group, and the operator manages all groups.
    pub operator: Uid,
}

impl Bootstrap {
    /// Generates both uids.
    pub fn draw(entropy: &dyn Entropy) -> Self {
        Self::new(Uid::new_root(entropy), Uid::new_root(entropy))
    }

    /// Creates a bootstrap with these uids.
    pub fn new(organization: Uid, operator: Uid) -> Self {
        Self { version: 1, organization, operator }
    }

    /// Reads `bootstrap.json` in this directory, or creates it with the result of `make` when it does not exist.
    ///
    /// Processes that start concurrently agree on the result. The file has mode 0600 and survives a power failure. A
    /// missing directory is created.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub fn read_or_create(data_dir: &Path, make: impl FnOnce() -> Self) -> Result<Self, DataDirError> {
        let path = data_dir.join(FILE);
        read_or_create(&path, || Ok(make())).and_then(|bootstrap: Self| bootstrap.validated(&path))
    }

    /// Reads `bootstrap.json` in this directory; returns `None` when it does not exist.
    ///
    /// # Errors
    /// As [`Bootstrap::read_or_create`].
    pub fn read(data_dir: &Path) -> Result<Option<Self>, DataDirError> {
        let path = data_dir.join(FILE);
        read::<Self>(&path)?.map(|bootstrap| bootstrap.validated(&path)).transpose()
    }

    /// Reads the document `bootstrap`, or creates it with the result of `make` when it does not exist. The first of
    /// several processes that do so concurrently wins.
    ///
    /// # Errors
    /// [`DataDirError`].
    pub async fn load_or_create(documents: &dyn Documents, make: impl FnOnce() -> Self) -> Result<Self, DataDirError> {
        let (bootstrap, _): (Self, _) = documents::load_or_create(documents, DOCUMENT, || Ok(make())).await?;
        bootstrap.validated(&documents.place(DOCUMENT))
    }

    /// Reads the document `bootstrap`; returns `None` when it does not exist.
    ///
    /// # Errors
    /// As [`Bootstrap::load_or_create`].
    pub async fn load(documents: &dyn Documents) -> Result<Option<Self>, DataDirError> {
        let found: Option<(Self, _)> = documents::load(documents, DOCUMENT).await?;
        found.map(|(bootstrap, _)| bootstrap.validated(&documents.place(DOCUMENT))).transpose()
    }

    fn validated(self, path: &Path) -> Result<Self, DataDirError> {
        let is_uid = |uid: &Uid| Uid::parse(uid).is_ok();
        match &self {
            Self { version: 1, organization, operator }
                if is_uid(organization) && organization.is_root() && is_uid(operator) =>
            {
                Ok(self)
            }
            Self { version: 1, .. } => {
                Err(malformed(path, "it must have the uids of an organization and of an operator"))
            }
            _ => Err(malformed(path, "unsupported version")),
        }
    }
}
