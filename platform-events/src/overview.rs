//! An operator's view of the outbox, across all organizations: backlogs, dead letters, and redelivery.

use platform_core::{
    outbox::Outbox,
    resources::events::{DeadLetter, DeliveryStatus, Subscription},
};
use platform_engine::{
    error::{Error, Result},
    kind::Resource,
    platform::Platform,
    store::{Key, KeyValue, Position, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::Serialize;

/// The pending events of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Backlog {
    /// The subscription's uid.
    pub subscription: Uid,
    /// The URL that its events are sent to.
    pub sink: String,
    /// The number of pending events.
    pub waiting: u64,
    /// The id and the type of the oldest pending event.
    pub first: Option<[String; 2]>,
    /// The time at which the oldest pending event was recorded.
    pub since: Option<Timestamp>,
    /// The delivery status; None before the first attempt.
    pub status: Option<DeliveryStatus>,
}

/// Returns the backlogs of at most `limit` subscriptions with pending events, ordered by uid, starting after `after`.
///
/// # Errors
/// The errors of the store.
pub async fn pending(platform: &Platform, after: Option<&Uid>, limit: usize) -> Result<Vec<Backlog>> {
    let mut all = Vec::new();
    for subscription in Outbox::of(platform).subscriptions(after, limit).await? {
        let waiting = Outbox::of(platform).peek(&subscription, None, 1).await?;
        let keys = [Subscription::KIND, DeliveryStatus::KIND].map(|kind| Key::new(kind.name, subscription.clone()));
        let mut records = platform.store().get(&keys, &[]).await?.records.into_iter();
        let (known, status) = (records.next().flatten(), records.next().flatten());
        let known: Option<Subscription> = known.map(|record| parse(&record.body)).transpose()?;
        let first = waiting.events.into_iter().next();
        all.push(Backlog {
            subscription,
            sink: known.map(|known| known.sink).unwrap_or_default(),
            waiting: waiting.total,
            since: first.as_ref().and_then(|first| first.create_time),
            first: first.map(|first| [first.event.id, first.event.ty]),
            status: status.map(|record| parse(&record.body)).transpose()?,
        });
    }
    Ok(all)
}

/// The maximum total size of the dead letters returned at once, in bytes. A single larger one is returned alone.
const PAGE_BYTES: usize = 4 << 20;

/// Returns at most `limit` dead letters, ordered by uid, starting after `after`, and no more than 4 MiB of them. An
/// empty result means that there are no more.
///
/// # Errors
/// The errors of the store.
pub async fn dead(platform: &Platform, after: Option<&Uid>, limit: usize) -> Result<Vec<DeadLetter>> {
    let after = after.map(|uid| Position { value: KeyValue::default(), uid: uid.clone() });
    let query = Query { after, limit, bytes: PAGE_BYTES, ..Query::new(DeadLetter::KIND.name, Scope::All) };
    platform.store().list(&query).await?.items.iter().map(|item| parse(&item.body)).collect()
}

/// Queues dead letters for delivery again, after the pending events, and returns their number. `below` is the uid of a
/// subscription or a group and selects the dead letters at or below it; without it, all are queued.
///
/// # Errors
/// The errors of the store. Dead letters that were queued before the error remain queued.
pub async fn redeliver(platform: &Platform, below: Option<&Uid>) -> Result<u64> {
    let (mut count, mut last) = (0, None);
    loop {
        let page = dead(platform, last.as_ref(), 100).await?;
        let Some(end) = page.last().map(|letter| letter.uid.clone()) else { return Ok(count) };
        for letter in page.iter().filter(|letter| below.is_none_or(|below| letter.uid.is_at_or_below(below))) {
            count += u64::from(DeadLetter::redeliver(platform, &letter.uid).await?);
        }
        last = Some(end);
    }
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(Error::internal)
}
