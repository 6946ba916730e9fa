//! What an operator sees of the outbox, of all organisations, and does about it.

use platform_core::{
    error::{Error, Result},
    kind::Resource,
    outbox::Outbox,
    platform::Platform,
    resources::events::{DeadLetter, DeliveryStatus, Subscription},
    store::{Key, KeyValue, Position, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::Serialize;

/// What waits for a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backlog {
    /// The subscription's uid.
    pub subscription: Uid,
    /// Where its events go.
    pub sink: String,
    /// How many wait.
    pub waiting: u64,
    /// The id and type of the first.
    pub first: Option<[String; 2]>,
    /// When the first was recorded.
    pub since: Option<Timestamp>,
    /// How its deliveries stand; none before the first try.
    pub status: Option<DeliveryStatus>,
}

/// Returns what waits, a subscription each in the order of their uids, from behind one on; at most so many.
///
/// # Errors
/// Those of the store.
pub async fn pending(platform: &Platform, after: Option<&Uid>, limit: usize) -> Result<Vec<Backlog>> {
    let mut all = Vec::new();
    for subscription in Outbox::of(platform).subscriptions(after, limit).await? {
        let waiting = Outbox::of(platform).peek(&subscription, None, 1).await?;
        let keys = [Subscription::KIND, DeliveryStatus::KIND].map(|kind| Key::new(kind.name, subscription.clone()));
        let mut records = platform.store().get(&keys, &[]).await?.records.into_iter();
        let (known, status) = (records.next().flatten(), records.next().flatten());
        let known: Option<Subscription> = known.map(|record| read(&record.body)).transpose()?;
        let first = waiting.events.into_iter().next();
        all.push(Backlog {
            subscription,
            sink: known.map(|known| known.sink).unwrap_or_default(),
            waiting: waiting.total,
            since: first.as_ref().and_then(|first| first.create_time),
            first: first.map(|first| [first.event.id, first.event.ty]),
            status: status.map(|record| read(&record.body)).transpose()?,
        });
    }
    Ok(all)
}

/// The most bytes of the dead letters that are returned at once, if they are several.
const PAGE_BYTES: usize = 4 << 20;

/// Returns dead letters in the order of their uids, from behind one on; at most so many, and no more than 4 MiB of them.
/// After the last there are none.
///
/// # Errors
/// Those of the store.
pub async fn dead(platform: &Platform, after: Option<&Uid>, limit: usize) -> Result<Vec<DeadLetter>> {
    let after = after.map(|uid| Position { value: KeyValue::default(), uid: uid.clone() });
    let query = Query { after, limit, bytes: PAGE_BYTES, ..Query::new(DeadLetter::KIND.name, Scope::All) };
    platform.store().list(&query).await?.items.iter().map(|item| read(&item.body)).collect()
}

/// Puts every dead letter at or below a uid, which may be a subscription's or a group's, behind what waits; without
/// one, every dead letter there is. Returns how many.
///
/// # Errors
/// Those of the store; what was put back before stays so.
pub async fn redeliver(platform: &Platform, below: Option<&Uid>) -> Result<u64> {
    let (mut count, mut last) = (0, None);
    loop {
        let page = dead(platform, last.as_ref(), 100).await?;
        let Some(end) = page.last().map(|letter| letter.uid.clone()) else { return Ok(count) };
        for letter in page.iter().filter(|letter| below.is_none_or(|below| letter.uid.is_at_or_below(below))) {
            count += u64::from(Outbox::of(platform).redeliver(&letter.uid).await?);
        }
        last = Some(end);
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(Error::internal)
}
