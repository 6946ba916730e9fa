//! The outbox: pending events of subscriptions, for a dispatcher to deliver.
//!
//! This crate sends nothing itself. A dispatcher acquires the lease of a subscription, which only one can hold at a
//! time, reads the pending events in commit order, and records the outcomes of its delivery attempts. Each batch of
//! outcomes is one commit that requires the lease to be unchanged since it was read, so a dispatcher that has lost its
//! lease can no longer change anything. Events without a recorded outcome are delivered again, with the same id, by the
//! next dispatcher that acquires the lease: delivery is at least once.

use std::collections::HashSet;

use bytes::Bytes;
use platform_engine::{
    error::{Error, Result},
    event::{Event, Watch},
    kind::Resource,
    platform::Platform,
    store::{Delete, Item, Key, KeyValue, Order, OrderBy, Page, Position, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::{CURRENT_RENDERING, Write},
};

use crate::resources::events::{
    DeadLetter, DeadReason, Delivery, DeliveryState, DeliveryStatus, Mode, PendingEvent, Subscription, dead_letter,
    delivery, is_test_event,
};

mod attempt;
mod bodies;
mod redeliver;

pub use attempt::{Attempt, Exchange, MAX_RECEIVED, MAX_SENT, Settled};
pub use bodies::lost_bodies;

/// The maximum number of successful deliveries that are logged per commit; failed ones are always logged. Our choice,
/// so that the log of a busy subscription costs little.
pub const MAX_LOGGED: usize = 10;

/// The number of events that are read at once to sum up their sizes.
const SIZES_PAGE: usize = 1000;

/// The maximum number of events that are read at once to find their subscriptions.
const MAX_SUBSCRIPTIONS_PAGE: usize = 128;

/// The maximum number of bytes of events that are read at once, and the maximum number of bytes of their shared data. A
/// single event may be larger. Our choice.
const READ_BYTES: usize = 4 << 20;

/// The pending events of all subscriptions and the outcomes of their delivery.
#[derive(Debug, Clone, Copy)]
pub struct Outbox<'a>(&'a Platform);

/// The exclusive right to deliver a subscription's events, until it expires or the subscription is resumed or deleted.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The subscription.
    pub subscription: Subscription,
    /// The delivery status of the subscription, which is also the record of the lease.
    pub status: DeliveryStatus,
    /// The record of the delivery status, with the revision that this lease was acquired or renewed with. Its body may
    /// be that of an earlier revision.
    stored: Record,
}

/// The result of acquiring a lease.
///
/// Exhaustive, because a dispatcher must handle every case.
#[derive(Debug, Clone)]
pub enum LeaseResult<T> {
    /// The lease is acquired or renewed.
    Acquired(T),
    /// Another dispatcher holds the lease until at most this time, unless it renews it.
    HeldByOther(Timestamp),
    /// The subscription has been deleted.
    SubscriptionDeleted,
}

/// A page of a subscription's pending events.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Waiting {
    /// The events, in commit order.
    pub events: Vec<PendingEvent>,
    /// The position of the last of them, to continue after.
    pub last: Option<Position>,
    /// The number of all pending events of the subscription.
    pub total: u64,
}

/// The outcome of a delivery attempt.
///
/// Exhaustive, because each case is stored in its own way.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The sink acknowledged the event with this HTTP status; 0 if the sink does not use HTTP.
    Delivered(u16),
    /// The attempt failed, and the next one is due at this time.
    Retry(Failure, Timestamp),
    /// The sink is gone: this event and all later ones remain pending until the subscription is resumed.
    Pause(Failure),
    /// The event is given up and becomes a dead letter.
    Dead(DeadReason, Option<Failure>),
}

/// The reason why a delivery attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// The HTTP status of the response; 0 if there was none.
    pub status: u16,
    /// A message for people, in one line.
    pub error: String,
}

impl<'a> Outbox<'a> {
    /// Returns the outbox of a platform.
    pub const fn of(platform: &'a Platform) -> Self {
        Self(platform)
    }
}

impl Outbox<'_> {
    /// Returns a watch that reports the subscriptions for which this process records events from now on.
    pub fn watch(self) -> Watch {
        self.0.watch_subscriptions()
    }

    /// Returns at most `limit` uids of subscriptions with pending events, in order, starting after the uid `after`.
    ///
    /// Needs few queries both if few events of many subscriptions are pending and if many of few are.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subscriptions(self, after: Option<&Uid>, limit: usize) -> Result<Vec<Uid>> {
        // A position after all pending events of the subscription: segments are hexadecimal, so they sort before `g`.
        let past_events_of = |uid: &Uid| Position { value: KeyValue::default(), uid: Uid::opaque(format!("{uid}/g")) };
        let mut found: Vec<Uid> = Vec::new();
        // A page that lists only subscriptions which were not found before is followed by one of twice the length; the
        // rest of the events of a subscription are skipped.
        let mut size = 1;
        while found.len() < limit {
            let all = Query { limit: size, bytes: READ_BYTES, ..Query::new(PendingEvent::KIND.name, Scope::All) };
            let page = self.0.store().list(&Query { after: found.last().or(after).map(past_events_of), ..all }).await?;
            let (read, before) = (page.items.len(), found.len());
            found.extend(page.items.into_iter().filter_map(|item| item.uid().parent()));
            found.dedup();
            if found.len() == before {
                break;
            }
            let is_all_new = found.len() - before == read;
            size = if is_all_new { (size * 2).min(MAX_SUBSCRIPTIONS_PAGE) } else { 1 };
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Acquires the lease of a subscription for this many milliseconds, or renews it if `holder` already holds it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn acquire_lease(self, subscription: &Uid, holder: &str, millis: i64) -> Result<LeaseResult<Lease>> {
        let (key, status_key) = (
            Key::new(Subscription::KIND.name, subscription.clone()),
            Key::new(DeliveryStatus::KIND.name, subscription.clone()),
        );
        let read = self.0.store().get(&[key.clone(), status_key.clone()], &[]).await?;
        let mut records = read.records.into_iter();
        let (Some(record), status) = (records.next().flatten(), records.next().flatten()) else {
            return Ok(LeaseResult::SubscriptionDeleted);
        };
        let subscription = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        let now = self.0.now();
        let (status, stored, require) = match status {
            Some(stored) => {
                let require = Require::Revision(status_key, stored.revision);
                (serde_json::from_slice(&stored.body).map_err(Error::internal)?, stored, require)
            }
            None => {
                let new = DeliveryStatus { uid: record.key.uid, create_time: Some(now), ..DeliveryStatus::default() };
                let (body, private) = (Bytes::from_static(b"{}"), Bytes::new());
                let stored =
                    Record { key: status_key.clone(), revision: 0, rendering: CURRENT_RENDERING, body, private };
                (new, stored, Require::Absent(status_key))
            }
        };
        let DeliveryStatus { holder: before, lease_expire_time, .. } = &status;
        if let Some(until) = lease_expire_time.filter(|until| *until > now && before != holder) {
            return Ok(LeaseResult::HeldByOther(until));
        }
        let mut lease = Lease { subscription, status, stored };
        lease.status.holder = holder.to_owned();
        let mut write = Write::default();
        write.require_or_retry(Require::Exists(key));
        write.require_or_retry(require);
        Ok(if self.commit_status(write, &mut lease, millis).await? {
            LeaseResult::Acquired(lease)
        } else {
            // Another dispatcher was faster, or the subscription was resumed or deleted: the caller can try again at
            // once.
            LeaseResult::HeldByOther(now)
        })
    }

    /// Returns whether a lease is still held: no other dispatcher acquired it, and its subscription was neither resumed
    /// nor deleted. The time at which it expires is not compared; see [`Lease::is_valid_for`].
    ///
    /// # Errors
    /// Those of the store.
    pub async fn still_holds(self, lease: &Lease) -> Result<bool> {
        let key = Key::new(DeliveryStatus::KIND.name, lease.status.uid.clone());
        let read = self.0.store().get(&[key], &[]).await?;
        Ok(read.records.into_iter().flatten().any(|record| record.revision == lease.stored.revision))
    }

    /// Releases a lease, so that another dispatcher can acquire it before it expires.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn release(self, lease: &mut Lease) -> Result<()> {
        let mut write = Write::default();
        write.require_or_retry(lease.require_unchanged());
        lease.status.holder = String::new();
        self.commit_status(write, lease, 0).await.map(drop)
    }

    /// Returns the first pending events of a subscription, or the first after a position, in commit order, and the
    /// number of all pending events.
    ///
    /// Returns fewer events than the limit if they have more than 4 MiB together. May omit an event that is removed
    /// concurrently.
    ///
    /// # Errors
    /// Those of the store, and INTERNAL when the data of an event is missing.
    pub async fn waiting(self, subscription: &Uid, after: Option<Position>, limit: usize) -> Result<Waiting> {
        let page = self.page(subscription, after, limit).await?;
        let mut waiting = Waiting::read(&page)?;
        waiting.events.truncate(bodies::within_bytes(&waiting.events));
        waiting.last = page.items.get(..waiting.events.len()).and_then(last_of);
        waiting.events = self.with_data(waiting.events).await?;
        Ok(waiting)
    }

    /// Returns the same as [`waiting`](Self::waiting), but without the data that several subscriptions share. Use it to
    /// inspect, count or give up events, not to deliver them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn peek(self, subscription: &Uid, after: Option<Position>, limit: usize) -> Result<Waiting> {
        Waiting::read(&self.page(subscription, after, limit).await?)
    }

    async fn page(self, subscription: &Uid, after: Option<Position>, limit: usize) -> Result<Page> {
        let query = Query { after, bytes: READ_BYTES, ..by_sequence::<PendingEvent>(subscription, limit) };
        Ok(self.0.store().list(&query).await?)
    }

    /// Returns the size in bytes ([`Event::weight`]) of a subscription's pending events after a position, and the
    /// position of the last of them.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn pending_bytes(self, subscription: &Uid, after: Option<Position>) -> Result<(u64, Option<Position>)> {
        let (mut bytes, mut last) = (0_u64, after);
        loop {
            let waiting = self.peek(subscription, last.clone(), SIZES_PAGE).await?;
            let sizes = waiting.events.iter().map(|pending| pending.event.weight());
            bytes = sizes.fold(bytes, u64::saturating_add);
            match waiting.last {
                Some(position) => last = Some(position),
                None => return Ok((bytes, last)),
            }
        }
    }

    /// Records the outcomes of delivery attempts, in their order, and renews the lease, all in one commit.
    ///
    /// Returns `false`, and writes nothing, if another dispatcher has acquired the lease, if the subscription was
    /// resumed or deleted, or if an event with shared data that becomes a dead letter is no longer pending.
    ///
    /// Shared data without a remaining reference is deleted afterwards, in another commit. If that fails,
    /// [`delete_orphaned_bodies`](Self::delete_orphaned_bodies) deletes it later.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn record_outcomes(self, lease: &mut Lease, outcomes: Vec<Settled>, millis: i64) -> Result<bool> {
        let now = self.0.now();
        let mut write = Write::default();
        write.require_or_retry(lease.require_unchanged());
        let dead = outcomes.iter().filter(|settled| matches!(settled.outcome, Outcome::Dead(..)));
        let dead: Vec<u64> = dead.map(|settled| settled.pending.event.weight()).collect();
        // Shared data that may have no reference after this commit.
        let mut released = self.evict_dead_letters(&lease.subscription.uid, &dead, &mut write).await?;
        let first_logged = outcomes.len().saturating_sub(MAX_LOGGED);
        let mut logged = HashSet::new();
        let mut rows = Vec::new();
        for (index, Settled { pending, outcome, attempt }) in outcomes.into_iter().enumerate() {
            let status = &mut lease.status;
            let attempts = if status.event_id == pending.event.id { status.attempts } else { 0 };
            // Whoever sends a test event waits for its row.
            let is_waited_for = attempts > 0 || is_test_event(&pending.event);
            let is_unlogged = index < first_logged && !is_waited_for && matches!(outcome, Outcome::Delivered(_));
            // Further attempts at an event overwrite its row.
            if attempts == 0 && !is_unlogged {
                status.logged += 1;
            }
            let mut row = Delivery {
                uid: Uid::opaque(format!("{}/{:016x}", status.uid, status.logged.rem_euclid(delivery::LOG_LEN))),
                event_id: pending.event.id.clone(),
                event_type: pending.event.ty.clone(),
                event_subject: pending.event.subject.clone(),
                event_time: pending.event.time,
                create_time: Some(now),
                update_time: Some(now),
                ..Delivery::default()
            };
            if !is_unlogged {
                attempt::show(&mut row, attempt, &pending.event.data);
            }
            let key = Key::new(PendingEvent::KIND.name, pending.uid.clone());
            match outcome {
                Outcome::Delivered(code) => {
                    write.delete(Delete::Key(key));
                    released.extend(pending.event.event_body.map(|body| body.uid));
                    status.delivered += 1;
                    status.delivered_time = Some(now);
                    status.sink_responded(None);
                    status.http_status = i32::from(code);
                    (row.state, row.attempts, row.http_status) =
                        (DeliveryState::Delivered, attempts + 1, i32::from(code));
                }
                Outcome::Retry(failure, at) => {
                    status.record_failure(&pending.event, &failure, attempts + 1, now);
                    status.next_attempt_time = Some(at);
                    (row.state, row.attempts, row.next_attempt_time) =
                        (DeliveryState::Retrying, attempts + 1, Some(at));
                    row.record_failure(failure);
                }
                Outcome::Pause(failure) => {
                    status.record_failure(&pending.event, &failure, attempts + 1, now);
                    (status.mode, status.next_attempt_time) = (Mode::Paused, None);
                    (row.state, row.attempts) = (DeliveryState::Retrying, attempts + 1);
                    row.record_failure(failure);
                }
                Outcome::Dead(reason, failure) => {
                    if pending.event.event_body.is_some() {
                        // The reference to the shared data moves to the dead letter. Without this requirement the
                        // commit could add a reference to data that was deleted with its last one.
                        write.require_or_retry(Require::Exists(key.clone()));
                    }
                    write.delete(Delete::Key(key));
                    status.dead += 1;
                    status.overflowed += i64::from(reason == DeadReason::BacklogFull);
                    (row.state, row.attempts) = (DeliveryState::Dead, attempts + i32::from(failure.is_some()));
                    let failure = failure.unwrap_or_else(|| status.last_failure(&pending.event));
                    write_dead_letter(&mut write, pending, reason, &failure, row.attempts, now)?;
                    match reason {
                        DeadReason::Rejected => status.sink_responded(Some(&failure)),
                        _ => status.next_event(),
                    }
                    row.record_failure(failure);
                }
            }
            if !is_unlogged {
                rows.push(row);
            }
        }
        // The log is a ring: when two rows have the same uid, only the later one is written.
        for row in rows.into_iter().rev().filter(|row| logged.insert(row.uid.clone())) {
            write.put(&row.uid, &row, Bytes::new())?;
        }
        let done = self.commit_status(write, lease, millis).await?;
        if done {
            // The outcomes are recorded whether or not this succeeds.
            drop(self.delete_unused(released).await);
        }
        Ok(done)
    }

    /// Deletes the oldest dead letters of a subscription, so that with new ones of these sizes their number does not
    /// exceed the limit; the limit of their bytes is enforced only if a new one is large. Returns the uids of shared
    /// data that deleted dead letters referred to, as far as they were read.
    async fn evict_dead_letters(self, subscription: &Uid, sizes: &[u64], write: &mut Write) -> Result<Vec<Uid>> {
        let new = sizes.len();
        if new == 0 {
            return Ok(Vec::new());
        }
        if sizes.iter().any(|size| *size > dead_letter::LARGE) {
            return self.evict_dead_letters_by_size(subscription, sizes, write).await;
        }
        let oldest = self.0.store().list(&by_sequence::<DeadLetter>(subscription, new)).await?;
        let after = usize::try_from(oldest.total.unwrap_or_default()).unwrap_or(usize::MAX).saturating_add(new);
        let surplus = after.saturating_sub(dead_letter::MAX_DEAD);
        for item in oldest.items.into_iter().take(surplus) {
            write.delete(Delete::Key(Key::new(DeadLetter::KIND.name, item.uid())));
        }
        Ok(Vec::new())
    }

    /// Deletes the oldest dead letters of a subscription, so that new ones of these sizes do not exceed the limits of
    /// their number and of their bytes.
    ///
    /// Reads the dead letters, so [`evict_dead_letters`](Self::evict_dead_letters) calls it only for large new ones.
    async fn evict_dead_letters_by_size(
        self,
        subscription: &Uid,
        sizes: &[u64],
        write: &mut Write,
    ) -> Result<Vec<Uid>> {
        let order = Order { by: OrderBy::Sequence, descending: true };
        let all = Query { order, ..by_sequence::<DeadLetter>(subscription, dead_letter::MAX_DEAD) };
        let stored = self.0.store().list(&all).await?.items;
        let mut left = dead_letter::MAX_DEAD.saturating_sub(sizes.len());
        let mut bytes = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
        let keys: Vec<_> = stored.into_iter().map(|item| Key::new(DeadLetter::KIND.name, item.uid())).collect();
        let mut released = Vec::new();
        // The latest first, and few at a time because each may be large.
        for keys in keys.chunks(8) {
            if left > 0 && bytes <= dead_letter::MAX_DEAD_BYTES {
                let read = self.0.store().get(keys, &[]).await?;
                for record in read.records.into_iter().flatten() {
                    let event: Event = serde_json::from_slice(&record.private).map_err(Error::internal)?;
                    bytes = bytes.saturating_add(event.weight());
                    if bytes <= dead_letter::MAX_DEAD_BYTES && left > 0 {
                        left -= 1;
                    } else {
                        write.delete(Delete::Key(record.key));
                        released.extend(event.event_body.map(|body| body.uid));
                    }
                }
            } else {
                keys.iter().for_each(|key| write.delete(Delete::Key(key.clone())));
            }
        }
        Ok(released)
    }

    /// Commits the status of a lease together with `write`, and sets the time until which the lease is valid. Returns
    /// `false` if a requirement does not hold.
    async fn commit_status(self, mut write: Write, lease: &mut Lease, millis: i64) -> Result<bool> {
        let now = self.0.now();
        let status = &mut lease.status;
        status.update_time = status.update_time.max(Some(now));
        status.lease_expire_time = (millis > 0).then(|| now.plus_millis(millis));
        write.replace(&lease.stored, status, Bytes::new())?;
        let sequence = self.commit(write).await?;
        lease.stored.revision = sequence.unwrap_or(lease.stored.revision);
        Ok(sequence.is_some())
    }

    /// Commits, and returns the sequence number of the commit, or `None` if a requirement does not hold.
    async fn commit(self, write: Write) -> Result<Option<u64>> {
        match self.0.without_caller(async |cx| cx.commit(write).await).await {
            Ok(sequence) => Ok(Some(sequence)),
            Err(error) if error.is_stale() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Waiting {
    /// Parses a page of stored events.
    fn read(page: &Page) -> Result<Self> {
        let events = page.items.iter().map(|item| serde_json::from_slice(&item.body).map_err(Error::internal));
        let total = page.total.unwrap_or_default();
        Ok(Self { events: events.collect::<Result<_>>()?, last: last_of(&page.items), total })
    }
}

impl Lease {
    /// Returns whether the lease is valid for at least this many milliseconds from `now`.
    pub fn is_valid_for(&self, now: Timestamp, millis: i64) -> bool {
        self.status.lease_expire_time.is_some_and(|until| until >= now.plus_millis(millis))
    }

    /// Returns the number of delivery attempts of an event.
    pub fn attempts(&self, event: &Event) -> i32 {
        if self.status.event_id == event.id { self.status.attempts } else { 0 }
    }

    /// Returns the requirement that the lease was not changed since it was acquired or renewed.
    fn require_unchanged(&self) -> Require {
        Require::Revision(self.stored.key.clone(), self.stored.revision)
    }
}

impl DeliveryStatus {
    fn record_failure(&mut self, event: &Event, failure: &Failure, attempts: i32, now: Timestamp) {
        self.event_id.clone_from(&event.id);
        self.attempts = attempts;
        self.failures += 1;
        self.failing_since = self.failing_since.or(Some(now));
        (self.http_status, self.error) = (i32::from(failure.status), failure.error.clone());
    }

    /// Records that the sink responded, either with an acknowledgement or with a rejection: the next event is attempted
    /// at once.
    fn sink_responded(&mut self, rejected: Option<&Failure>) {
        self.next_event();
        (self.failures, self.failing_since, self.next_attempt_time) = (0, None, None);
        self.error = rejected.map(|failure| failure.error.clone()).unwrap_or_default();
    }

    /// Forgets the event that was attempted last.
    fn next_event(&mut self) {
        self.event_id.clear();
        self.attempts = 0;
    }

    fn last_failure(&self, event: &Event) -> Failure {
        if self.event_id == event.id {
            Failure { status: u16::try_from(self.http_status).unwrap_or_default(), error: self.error.clone() }
        } else {
            Failure::default()
        }
    }
}

impl Delivery {
    fn record_failure(&mut self, failure: Failure) {
        (self.http_status, self.error) = (i32::from(failure.status), failure.error);
    }
}

/// Writes the dead letter of an event, with the event's reference to shared data.
fn write_dead_letter(
    write: &mut Write,
    pending: PendingEvent,
    reason: DeadReason,
    failure: &Failure,
    attempts: i32,
    now: Timestamp,
) -> Result<()> {
    let mut event = pending.event;
    let dead = DeadLetter {
        uid: pending.uid,
        event_id: event.id.clone(),
        event_type: event.ty.clone(),
        event_subject: event.subject.clone(),
        event_time: event.time,
        reason,
        attempts,
        http_status: i32::from(failure.status),
        error: failure.error.clone(),
        create_time: Some(now),
        update_time: Some(now),
    };
    if event.event_body.is_some() {
        event.data.clear();
    }
    let private = serde_json::to_vec(&event).map_err(Error::internal)?;
    write.put(&dead.uid, &dead, private.into())
}

/// Returns the position of the last item in commit order.
fn last_of(items: &[Item]) -> Option<Position> {
    let last = items.last()?;
    Some(Position { value: KeyValue::integer(last.revision.cast_signed()), uid: last.uid() })
}

/// Returns the query for the first resources of a kind that belong to a subscription, in commit order, with their
/// count.
fn by_sequence<R: Resource>(subscription: &Uid, limit: usize) -> Query {
    let order = Order { by: OrderBy::Sequence, descending: false };
    let limit = limit.max(1);
    Query { order, limit, count: true, ..Query::new(R::KIND.name, Scope::Children(subscription.clone())) }
}
