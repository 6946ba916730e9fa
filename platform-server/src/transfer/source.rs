//! Where the records of an export come from.

use std::ops::Deref;

use anyhow::{Context, Result};
use async_trait::async_trait;
use platform_engine::store::{Item, Key, Position, Query, Record, Scope, Store, StoreError};

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
        let records = records(&*self.0, kind, page.items).await?.into_iter();
        let records = records.map(|(_, record)| record.context(CHANGED)).collect::<Result<_>>()?;
        Ok((records, page.next))
    }
}

/// Returns the records of a list with their private parts; `None` for a record that has changed since. Reads only the
/// records that may have one: a second read of each record would take longer than the list.
pub(crate) async fn records<S: Store + ?Sized>(
    store: &S,
    kind: &'static str,
    items: Vec<Item>,
) -> Result<Vec<(Key, Option<Record>)>, StoreError> {
    let private = items.iter().filter(|item| item.may_have_private);
    let keys: Vec<_> = private.map(|item| Key::new(kind, item.uid())).collect();
    let read = if keys.is_empty() { Vec::new() } else { store.get(&keys, &[]).await?.records };
    let mut read = read.into_iter();
    let record = |item: Item| {
        let key = Key::new(kind, item.uid());
        let Item { revision, rendering, body, may_have_private, .. } = item;
        let record = if may_have_private {
            read.next().flatten().filter(|record| record.revision == revision)
        } else {
            Some(Record { key: key.clone(), revision, rendering, body, private: "".into() })
        };
        (key, record)
    };
    Ok(items.into_iter().map(record).collect())
}
