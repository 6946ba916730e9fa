//! Delivers an event again by its id, as long as it is stored.

use platform_engine::{
    error::{Error, Result},
    uid::Uid,
    write::Write,
};

use super::{Outbox, SIZES_PAGE, by_sequence};
use crate::resources::events::{DeadLetter, DeliveryStatus, dead_letter::MAX_DEAD};

impl Outbox<'_> {
    /// Returns the write that delivers an event of a subscription again that is still stored: a dead letter becomes a
    /// pending event again, after all others, and for a pending event, a pause or a wait for the next attempt ends. Events
    /// are delivered in order, so those before a pending event come first. Returns `None` if the event is not stored. The
    /// write is stale if the event is delivered or deleted concurrently.
    ///
    /// Reads the dead letters of the subscription and, unless the event is among them, its pending events, page by page.
    /// Neither has an index of event ids: each change would pay for it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn redelivery(self, subscription: &Uid, event_id: &str) -> Result<Option<Write>> {
        let dead = self.0.store().list(&by_sequence::<DeadLetter>(subscription, MAX_DEAD)).await?;
        for item in dead.items {
            let dead: DeadLetter = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            if dead.event_id == event_id {
                return DeadLetter::redelivery(self.0, &dead.uid).await;
            }
        }
        let mut last = None;
        loop {
            let waiting = self.peek(subscription, last, SIZES_PAGE).await?;
            if waiting.events.iter().any(|pending| pending.event.id == event_id) {
                // Without a status no attempt was made yet, so nothing delays the event.
                let write = DeliveryStatus::resumption(self.0, subscription).await?;
                return Ok(Some(write.unwrap_or_default()));
            }
            if waiting.last.is_none() {
                return Ok(None);
            }
            last = waiting.last;
        }
    }
}
