//! Reads of resources, with pauses.

use super::Context;
use crate::{
    error::Result,
    kind::{Resource, stored},
    offload::Pace,
    store::{Key, Query},
    uid::Uid,
};

impl<'a> Context<'a> {
    /// Returns the pace of long work that begins now.
    pub fn pace(&self) -> Pace<'a> {
        Pace::new(self.platform.offload())
    }

    /// Returns these resources as they are stored, in the order of the uids; `None` for each that does not exist.
    /// Access is not checked.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn read_all<R: Resource>(&self, uids: impl IntoIterator<Item = Uid>) -> Result<Vec<Option<R>>> {
        let keys: Vec<_> = uids.into_iter().map(|uid| Key::new(R::KIND.name, uid)).collect();
        let records = self.records(&keys).await?;
        let (mut all, mut pace) = (Vec::with_capacity(records.len()), self.pace());
        for record in records {
            if let Some(record) = &record {
                pace.step(record.body.len()).await;
            }
            all.push(record.map(|record| stored(&record.body)).transpose()?);
        }
        Ok(all)
    }

    /// Returns one resource as it is stored; `None` if it does not exist. Access is not checked.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn read<R: Resource>(&self, uid: &Uid) -> Result<Option<R>> {
        Ok(self.read_all([uid.clone()]).await?.pop().flatten())
    }

    /// Returns the first page of a query: resources as they are stored. Access is not checked.
    ///
    /// # Errors
    /// As [`Context::records`].
    pub async fn find<R: Resource>(&self, query: Query) -> Result<Vec<R>> {
        let (page, mut pace) = (self.page(query).await?, self.pace());
        let mut all = Vec::with_capacity(page.items.len());
        for item in &page.items {
            all.push(stored(&item.body)?);
            pace.step(item.body.len()).await;
        }
        Ok(all)
    }
}
