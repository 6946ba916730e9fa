//! Small documents of the installation, such as keys, which all servers share.

use std::sync::Arc;

use bytes::Bytes;
use platform_engine::store::StoreError;

use crate::{error::Failure, schema, shared::Shared};

/// The documents of an installation, by name. They are not part of the platform's records: no list or commit sees them.
#[derive(Debug, Clone)]
pub struct Documents {
    shared: Arc<Shared>,
}

pub(crate) const READ: &str = "SELECT d.bytes, d.revision FROM document d WHERE d.org = $1 AND d.name = $2";
pub(crate) const CREATE: &str =
    "INSERT INTO document (org, name, revision, bytes) VALUES ($1, $2, 1, $3) ON CONFLICT (org, name) DO NOTHING";
pub(crate) const REPLACE: &str = "UPDATE document SET bytes = $3, revision = revision + 1 \
     WHERE org = $1 AND name = $2 AND revision = $4";

impl Documents {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns a document and its revision; `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn read(&self, name: &str) -> Result<Option<(Bytes, u64)>, StoreError> {
        let mut attempts = self.shared.database.attempts();
        loop {
            let connection = attempts.reader().await?;
            let read = async {
                let rows = connection.query(READ, &[&schema::installation(), &name]).await?;
                let Some(row) = rows.first() else { return Ok(None) };
                let revision: i64 = row.try_get(1)?;
                Ok::<_, Failure>(Some((Bytes::copy_from_slice(row.try_get(0)?), revision.cast_unsigned())))
            };
            match read.await {
                Ok(document) => return Ok(document),
                Err(failure) => {
                    connection.close();
                    attempts.pause(failure).await?;
                }
            }
        }
    }

    /// Writes a document if it has the expected revision, or, with revision 0, if it does not exist; returns whether it
    /// was written. Of concurrent writes that expect the same revision, one succeeds.
    ///
    /// Revisions begin at 1 and rise by 1. A written document is durable.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if the connection broke, so that the document may have been written: read it again.
    /// [`StoreError::Unavailable`] or [`StoreError::Full`] if it was not.
    pub async fn write(&self, name: &str, expected: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        let connection = self.shared.database.attempts().writer().await?;
        let org = schema::installation();
        let written = match i64::try_from(expected) {
            Ok(0) => connection.execute(CREATE, &[&org, &name, &bytes]).await,
            Ok(revision) => connection.execute(REPLACE, &[&org, &name, &bytes, &revision]).await,
            Err(_) => return Ok(false),
        };
        match written {
            Ok(rows) => Ok(rows == 1),
            Err(Failure::Lost(cause) | Failure::Node(cause) | Failure::Late(cause)) => {
                connection.close();
                Err(StoreError::Unknown(cause))
            }
            Err(other) => Err(other.into()),
        }
    }
}
