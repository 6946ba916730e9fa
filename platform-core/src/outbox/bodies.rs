//! Event data that several subscriptions share: read together with the events that refer to it, and deleted after the
//! last of them.

use platform_engine::{
    error::{Error, Result},
    event::{BodyRef, Event},
    kind::Resource,
    store::{Conflict, Key, KeyValue, Position, Query, Scope, Store, StoreError},
    uid::Uid,
};

use super::{Outbox, READ_BYTES};
use crate::resources::events::{DeadLetter, EventBody, PendingEvent, event_body};

/// The maximum number of bodies that one commit deletes, and the number of records that are read at once.
const BATCH: usize = 50;

/// Returns the length of the longest prefix of `events` whose shared data is within [`READ_BYTES`]; at least 1.
pub(super) fn within_bytes(events: &[PendingEvent]) -> usize {
    let mut bytes = 0;
    let fits = events.iter().take_while(|pending| {
        bytes += pending.event.event_body.as_ref().map_or(0, |body| body.len as usize);
        bytes <= READ_BYTES
    });
    fits.count().max(1)
}

impl Outbox<'_> {
    /// Fills in the shared data of events. Omits an event that was removed since it was read, because its data may have
    /// been deleted with it.
    pub(super) async fn with_data(self, events: Vec<PendingEvent>) -> Result<Vec<PendingEvent>> {
        let shared = events.iter().filter_map(|pending| Some((pending, pending.event.event_body.as_ref()?)));
        // Reads the events again, so that events and data are from one snapshot.
        let keys = shared.flat_map(|(pending, body)| {
            [Key::new(PendingEvent::KIND.name, pending.uid.clone()), Key::new(EventBody::KIND.name, body.uid.clone())]
        });
        let keys: Vec<_> = keys.collect();
        if keys.is_empty() {
            return Ok(events);
        }
        let mut records = self.0.store().get(&keys, &[]).await?.records.into_iter();
        let mut found = Vec::with_capacity(events.len());
        for mut pending in events {
            if let Some(body) = &pending.event.event_body {
                let (event, data) = (records.next().flatten(), records.next().flatten());
                if event.is_none() {
                    continue;
                }
                let data = data.ok_or_else(|| Error::internal(format!("the event body {} is missing", body.uid)))?;
                pending.event.data = String::from_utf8(data.private.into()).map_err(Error::internal)?;
            }
            found.push(pending);
        }
        Ok(found)
    }

    /// Deletes shared data that no event refers to, among the next `limit` records of shared data after `after`, in the
    /// order of their uids. Such data is left over from a crash, a deleted subscription, or evicted dead letters.
    ///
    /// Returns the last uid that was checked, or `None` at the end.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete_orphaned_bodies(self, after: Option<&Uid>, limit: usize) -> Result<Option<Uid>> {
        let after = after.map(|uid| Position { value: KeyValue::default(), uid: uid.clone() });
        let query = Query { after, limit, ..Query::new(EventBody::KIND.name, Scope::All) };
        let page = self.0.store().list(&query).await?;
        self.delete_unused(page.items.into_iter().map(|item| item.uid()).collect()).await?;
        Ok(page.next.map(|next| next.uid))
    }

    /// Deletes the bodies that no event refers to.
    ///
    /// This takes commits of its own. A body can be deleted only when nothing refers to it, so a commit that recorded
    /// outcomes and also deleted the body would fail for every subscription except the last that refers to it.
    pub(super) async fn delete_unused(self, mut bodies: Vec<Uid>) -> Result<()> {
        while !bodies.is_empty() {
            let (commit, requirements) = event_body::delete_unused(bodies.get(..BATCH).unwrap_or(&bodies));
            let deleted = commit.delete.len();
            match self.0.store().commit(commit).await {
                Ok(_) => drop(bodies.drain(..deleted)),
                Err(StoreError::Conflict(Conflict::Require(index))) if index / requirements < deleted => {
                    drop(bodies.remove(index / requirements));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns the pending events and dead letters that refer to missing data, with the uid of the data. There are none
/// unless the store is damaged. Nothing may be written during the check.
///
/// # Errors
/// Those of the store, and INTERNAL for a record that cannot be read.
pub async fn lost_bodies(store: &dyn Store) -> Result<Vec<(Key, Uid)>> {
    let mut lost = Vec::new();
    for kind in [PendingEvent::KIND.name, DeadLetter::KIND.name] {
        let mut after = None;
        loop {
            let query = Query { after, limit: BATCH, ..event_body::referring(kind) };
            let page = store.list(&query).await?;
            let keys: Vec<_> = page.items.into_iter().map(|item| Key::new(kind, item.uid())).collect();
            let mut references = Vec::new();
            for record in store.get(&keys, &[]).await?.records.into_iter().flatten() {
                let event = if kind == DeadLetter::KIND.name {
                    serde_json::from_slice::<Event>(&record.private)
                } else {
                    serde_json::from_slice::<PendingEvent>(&record.body).map(|pending| pending.event)
                };
                if let Some(BodyRef { uid, .. }) = event.map_err(Error::internal)?.event_body {
                    references.push((record.key, uid));
                }
            }
            for (key, uid) in references {
                let body = Key::new(EventBody::KIND.name, uid.clone());
                // One at a time because each may be large.
                if store.get(&[body], &[]).await?.records.iter().all(Option::is_none) {
                    lost.push((key, uid));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(lost)
}
