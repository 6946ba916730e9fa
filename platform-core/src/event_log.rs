//! Stores each event as one pending event per subscription.

use async_trait::async_trait;
use bytes::Bytes;
use platform_engine::{
    entropy::Entropy,
    error::Result,
    event::{Event, EventLog, Subscribers},
    kind::Resource,
    store::{Query, Scope, Store},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

use crate::resources::events::{EventBody, PendingEvent, Subscription, subscription::subscriptions_epoch};

/// Event data of more bytes than this is stored once and shared by all subscriptions that receive the event; shorter
/// data is copied into each pending event. Our choice: for most events a further record would cost more than the
/// copies.
const SHARED_ABOVE: usize = 4 << 10;

/// Stores events as [`PendingEvent`]s whose parents are the receiving [`Subscription`]s.
/// [`Outbox`](crate::outbox::Outbox) reads them.
#[derive(Debug, Clone, Copy, Default)]
pub struct PendingEvents;

#[async_trait]
impl EventLog for PendingEvents {
    async fn subscribers(&self, store: &dyn Store, organization: &str) -> Result<Subscribers> {
        let epoch = subscriptions_epoch(organization);
        let all = Query::new(Subscription::KIND.name, Scope::Subtree(Uid::opaque(organization)));
        let page = store.list(&Query { epochs: [epoch.clone()].into(), ..all }).await?;
        let as_of = page.epochs.first().copied().unwrap_or_default();
        let subscriptions = page.items.into_iter().map(|item| item.uid()).collect();
        Ok(Subscribers::new(Uid::opaque(organization), epoch, as_of, subscriptions))
    }

    fn record(
        &self,
        entropy: &dyn Entropy,
        now: Timestamp,
        write: &mut Write,
        event: &Event,
        subscriptions: &[Uid],
    ) -> Result<()> {
        let shared = match subscriptions {
            [first, _, ..] if event.data.len() > SHARED_ABOVE => {
                let organization = Uid::opaque(first.root());
                let body = EventBody { uid: organization.new_time_ordered_child(now, entropy), create_time: Some(now) };
                let event_body = Some(body.record(write, &event.data)?);
                Some(Event { data: String::new(), event_body, ..event.clone() })
            }
            _ => None,
        };
        let event = shared.as_ref().unwrap_or(event);
        for subscription in subscriptions {
            let uid = subscription.new_time_ordered_child(now, entropy);
            let pending = PendingEvent { uid, event: event.clone(), create_time: Some(now) };
            write.put_in_queue(&pending.uid, &pending, Bytes::new())?;
        }
        Ok(())
    }
}
