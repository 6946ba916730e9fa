//! Data that several subscriptions share: read with the events that refer to it, and deleted after the last of them.

use super::{Outbox, READ_BYTES};
use crate::{
    error::{Error, Result},
    event::{BodyRef, Event},
    kind::Resource,
    resources::events::{DeadLetter, EventBody, PendingEvent, event_body},
    store::{Conflict, Key, KeyValue, Position, Query, Scope, Store, StoreError},
    uid::Uid,
};

/// How many bodies one commit deletes at most, and how many records are read at once.
const BATCH: usize = 50;

/// Returns how many of these, from the first on, have no more shared data than is read at once. The first always counts.
pub(super) fn within_bytes(events: &[PendingEvent]) -> usize {
    let mut bytes = 0;
    let fits = events.iter().take_while(|pending| {
        bytes += pending.event.event_body.as_ref().map_or(0, |body| body.len as usize);
        bytes <= READ_BYTES
    });
    fits.count().max(1)
}

impl Outbox<'_> {
    /// Reads the shared data of events. Leaves out an event that was settled or deleted since it was read, with which
    /// its data may have gone.
    pub(super) async fn with_data(self, events: Vec<PendingEvent>) -> Result<Vec<PendingEvent>> {
        let shared = events.iter().filter_map(|pending| Some((pending, pending.event.event_body.as_ref()?)));
        // The events once more, so that both are of one state.
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
                let (waits, data) = (records.next().flatten(), records.next().flatten());
                if waits.is_none() {
                    continue;
                }
                let data = data.ok_or_else(|| Error::internal(format!("the data {} of an event is lost", body.uid)))?;
                pending.event.data = String::from_utf8(data.private.into()).map_err(Error::internal)?;
            }
            found.push(pending);
        }
        Ok(found)
    }

    /// Looks at the next so many records of shared data, in the order of their uids from behind one on, and deletes those
    /// that no event refers to: left by a crash, by a deleted subscription, or by dead letters that made room for others.
    /// Returns the last that it looked at; none at the end.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn sweep(self, after: Option<&Uid>, limit: usize) -> Result<Option<Uid>> {
        let after = after.map(|uid| Position { value: KeyValue::default(), uid: uid.clone() });
        let query = Query { after, limit, ..Query::new(EventBody::KIND.name, Scope::All) };
        let page = self.0.store().list(&query).await?;
        self.delete_unused(page.items.into_iter().map(|item| item.uid).collect()).await?;
        Ok(page.next.map(|next| next.uid))
    }

    /// Deletes those of these records of shared data that nothing refers to. A commit of its own for each few: a
    /// settlement that required it would fail for each subscription but the last.
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

/// Returns what refers to data that is lost, with the uid of the data: pending events and dead letters. There are none
/// unless the store is damaged. Nothing may be written meanwhile.
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
            let keys: Vec<_> = page.items.into_iter().map(|item| Key::new(kind, item.uid)).collect();
            let mut references = Vec::new();
            for record in store.get(&keys, &[]).await?.records.into_iter().flatten() {
                let event = match kind == DeadLetter::KIND.name {
                    true => serde_json::from_slice::<Event>(&record.private),
                    false => serde_json::from_slice::<PendingEvent>(&record.body).map(|pending| pending.event),
                };
                if let Some(BodyRef { uid, .. }) = event.map_err(Error::internal)?.event_body {
                    references.push((record.key, uid));
                }
            }
            for (key, uid) in references {
                let body = Key::new(EventBody::KIND.name, uid.clone());
                // One at a time, since each may be long.
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
