//! The records of events in the store: a pending event for each subscription.

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    entropy::Entropy,
    error::Result,
    event::{Event, EventLog, Subscribers},
    kind::Resource,
    resources::events::{EventBody, PendingEvent, Subscription, event_body},
    store::{Epoch, Query, Scope, Store},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

/// Data of more bytes is recorded once for all subscriptions that get it, and shorter data with each. Our choice: for
/// most events another record would cost more than the copies.
const SHARED_ABOVE: usize = 4 << 10;

/// Returns the epoch that every change of the subscriptions of an organization raises.
pub(crate) fn subscriptions_epoch(organization: &str) -> Epoch {
    format!("subscriptions/{organization}").into()
}

/// Stores events as [`PendingEvent`]s below the [`Subscription`]s that receive them, where [`Outbox`](crate::outbox::Outbox)
/// finds them.
#[derive(Debug, Clone, Copy, Default)]
pub struct PendingEvents;

#[async_trait]
impl EventLog for PendingEvents {
    async fn subscribers(&self, store: &dyn Store, organization: &str) -> Result<Subscribers> {
        let epoch = subscriptions_epoch(organization);
        let all = Query::new(Subscription::KIND.name, Scope::Subtree(Uid::opaque(organization)));
        let page = store.list(&Query { epochs: [epoch.clone()].into(), ..all }).await?;
        let as_of = page.epochs.first().copied().unwrap_or_default();
        let subscriptions = page.items.into_iter().map(|item| item.uid).collect();
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
        let mut event = event.clone();
        if let [first, _, ..] = subscriptions
            && event.data.len() > SHARED_ABOVE
        {
            let organization = Uid::opaque(first.root());
            let body = EventBody { uid: uid_below(&organization, now, entropy), create_time: Some(now) };
            event.event_body = Some(body.record(write, &event.data)?);
            event.data = String::new();
        }
        for subscription in subscriptions {
            let uid = uid_below(subscription, now, entropy);
            let pending = PendingEvent { uid, event: event.clone(), create_time: Some(now) };
            write.put_in_queue(&pending.uid, &pending, Bytes::new())?;
            event_body::refer(write, event.event_body.as_ref());
        }
        Ok(())
    }
}

/// Returns a uid below another for a record of now: after those of earlier milliseconds, so that indexes grow at their
/// ends, with 20 random bits for those of the same one.
fn uid_below(parent: &Uid, now: Timestamp, entropy: &dyn Entropy) -> Uid {
    let mut random = [0; 4];
    entropy.fill(&mut random);
    let segment = (now.millis().cast_unsigned() << 20) | u64::from(u32::from_be_bytes(random) >> 12);
    Uid::opaque(format!("{parent}/{segment:016x}"))
}
