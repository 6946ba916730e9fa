//! Where the records of an export come from.

use std::ops::Deref;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use platform_core::store::{Key, Position, Query, Record, Scope, Store};

use super::{BATCH, BATCH_BYTES};

/// What to do when the store changes during an export.
pub(super) const CHANGED: &str = "the store changed during the export: stop all servers, and export again";

/// One state of a store.
#[async_trait]
pub(crate) trait Source: Send + Sync {
    /// Returns the next records of a kind in the order of their uids, and the position after which others follow.
    async fn page(&self, kind: &'static str, after: Option<Position>) -> Result<(Vec<Record>, Option<Position>)>;
}

/// A store that does not change, because no server uses it. Some changes are noticed and reported.
pub(crate) struct Stopped<S>(pub(crate) S);

#[async_trait]
impl<S: Deref<Target: Store> + Send + Sync> Source for Stopped<S> {
    async fn page(&self, kind: &'static str, after: Option<Position>) -> Result<(Vec<Record>, Option<Position>)> {
        let query = Query { after, limit: BATCH, bytes: BATCH_BYTES, ..Query::new(kind, Scope::All) };
        let page = self.0.list(&query).await?;
        let keys: Vec<_> = page.items.iter().map(|item| Key::new(kind, item.uid.clone())).collect();
        let read = self.0.get(&keys, &[]).await?;
        let records: Option<Vec<_>> = read.records.into_iter().collect();
        let records = records.context(CHANGED)?;
        if page.items.iter().zip(&records).any(|(item, record)| item.revision != record.revision) {
            bail!(CHANGED);
        }
        Ok((records, page.next))
    }
}
