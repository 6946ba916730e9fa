//! The document of the installation that says how far the import of a store is.

use anyhow::{Context, Result, bail};
use platform_keys::Documents;
use serde::{Deserialize, Serialize};

/// The document of an import in progress.
pub(crate) const DOCUMENT: &str = "import";

/// The number of times that the document is written when other processes write it at the same time.
const ATTEMPTS: usize = 8;

/// The last import into a store.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Progress {
    /// The checksum of the file.
    pub(super) sha256: String,
    /// Whether the store has all of its records.
    pub(super) is_complete: bool,
}

impl Progress {
    pub(super) async fn read(documents: &dyn Documents) -> Result<Option<(Self, u64)>> {
        let Some(document) = documents.read(DOCUMENT).await? else { return Ok(None) };
        let place = documents.place(DOCUMENT);
        let progress = serde_json::from_slice(&document.contents);
        let progress = progress.with_context(|| format!("{} is not valid in this release", place.display()))?;
        Ok(Some((progress, document.revision)))
    }

    pub(super) async fn write(&self, documents: &dyn Documents) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let revision = Self::read(documents).await?.map_or(0, |(_, revision)| revision);
            if documents.write(DOCUMENT, revision, &serde_json::to_vec(self)?).await? {
                return Ok(());
            }
        }
        bail!("other processes keep writing {}", documents.place(DOCUMENT).display())
    }
}

/// Rejects a store into which an import was begun and not completed.
pub(crate) async fn reject_unfinished(documents: &dyn Documents) -> Result<()> {
    match Progress::read(documents).await? {
        Some((Progress { is_complete: false, .. }, _)) => bail!(
            "the import of a store was not completed: run `platform-server import store` with the same file again, or \
             begin with an empty store and data directory"
        ),
        _ => Ok(()),
    }
}
