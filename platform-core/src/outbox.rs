//! The outbox: what was recorded for subscriptions, handed to whoever delivers it.
//!
//! Core sends nothing anywhere. A dispatcher takes the lease of a subscription, which one at a time can hold, reads what
//! waits in the order of its commits, and settles what became of it: each settlement is one commit that requires the
//! lease as it was read, so that a dispatcher whose lease went to another changes nothing any more. What is not
//! settled is delivered again by whoever comes next, with the same id.

use std::collections::HashSet;

use bytes::Bytes;

use crate::{
    error::{Error, Result},
    event::{Event, Watch},
    kind::Resource,
    platform::Platform,
    resources::events::{
        DeadLetter, DeadReason, Delivery, DeliveryState, DeliveryStatus, Mode, PendingEvent, Subscription, dead_letter,
        delivery, event_body,
    },
    store::{Delete, Item, Key, KeyValue, Order, OrderBy, Page, Position, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

mod bodies;

pub use bodies::lost_bodies;

/// The deliveries of one commit that are logged at most, but for those that failed; our choice, so that a busy
/// subscription costs little more for its log.
const MOST_LOGGED: usize = 10;

/// How many events are weighed at once.
const WEIGHED: usize = 1000;

/// The most bytes of events that are read at once, and the most of shared data, but for a single one that is longer.
/// Our choice.
const READ_BYTES: usize = 4 << 20;

/// What waits to be delivered, and what became of it.
#[derive(Debug, Clone, Copy)]
pub struct Outbox<'a>(&'a Platform);

/// The right to deliver a subscription's events, until it is over or settled by another.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The subscription, as it was created.
    pub subscription: Subscription,
    /// How its deliveries stand.
    pub status: DeliveryStatus,
    revision: u64,
}

/// The result of acquiring a lease.
#[derive(Debug, Clone)]
pub enum LeaseResult<T> {
    /// The lease is acquired or renewed.
    Acquired(T),
    /// Another dispatcher holds it, at most until this time unless it renews it.
    HeldByOther(Timestamp),
    /// The subscription has been deleted.
    SubscriptionDeleted,
}

/// What waits for a subscription.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// The first, in the order of their commits.
    pub events: Vec<PendingEvent>,
    /// Where the last of them is.
    pub last: Option<Position>,
    /// How many wait in all.
    pub total: u64,
}

/// What became of an event that was tried.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The sink acknowledged it, with this HTTP status or 0.
    Delivered(u16),
    /// It failed, and is tried again at this time.
    Retry(Failure, Timestamp),
    /// The sink is gone: the event waits, with all that follow, until the subscription is resumed.
    Pause(Failure),
    /// It is given up.
    Dead(DeadReason, Option<Failure>),
}

/// Why a try failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// The HTTP status of the answer; 0 when there was none.
    pub status: u16,
    /// For people, and in no more than a line.
    pub error: String,
}

impl<'a> Outbox<'a> {
    /// Returns the outbox of a platform.
    pub const fn of(platform: &'a Platform) -> Self {
        Self(platform)
    }
}

impl Outbox<'_> {
    /// Begins to hear for which subscriptions something was recorded by this process.
    pub fn watch(self) -> Watch {
        self.0.watch_subscriptions()
    }

    /// Returns subscriptions for which something waits, by their uids, from behind one on; at most so many.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subscriptions(self, after: Option<&Uid>, limit: usize) -> Result<Vec<Uid>> {
        // Behind all that waits for it: no digit of a segment comes after `f`.
        let behind = |uid: &Uid| Position { value: KeyValue::default(), uid: Uid::opaque(format!("{uid}/g")) };
        let mut found: Vec<Uid> = Vec::new();
        while found.len() < limit {
            let all = Query { limit: 1, ..Query::new(PendingEvent::KIND.name, Scope::All) };
            let page = self.0.store().list(&Query { after: found.last().or(after).map(behind), ..all }).await?;
            match page.items.into_iter().next().and_then(|item| item.uid.parent()) {
                Some(subscription) => found.push(subscription),
                None => break,
            }
        }
        Ok(found)
    }

    /// Takes the lease of a subscription for so many milliseconds, or prolongs it for who holds it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn take(self, subscription: &Uid, holder: &str, millis: i64) -> Result<LeaseResult<Lease>> {
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
        let (status, require) = match status {
            Some(status) => {
                let require = Require::Revision(status_key, status.revision);
                (serde_json::from_slice(&status.body).map_err(Error::internal)?, require)
            }
            None => {
                let new = DeliveryStatus { uid: record.key.uid, create_time: Some(now), ..DeliveryStatus::default() };
                (new, Require::Absent(status_key))
            }
        };
        let DeliveryStatus { holder: before, lease_expire_time, .. } = &status;
        if let Some(until) = lease_expire_time.filter(|until| *until > now && before != holder) {
            return Ok(LeaseResult::HeldByOther(until));
        }
        let mut lease = Lease { subscription, status, revision: 0 };
        lease.status.holder = holder.to_owned();
        let mut write = Write::default();
        write.require_or_retry(Require::Exists(key));
        write.require_or_retry(require);
        Ok(match self.put(write, &mut lease, millis).await? {
            true => LeaseResult::Acquired(lease),
            // Another was first.
            false => LeaseResult::HeldByOther(now),
        })
    }

    /// Tells whether a lease is as it was read: neither another's, nor was its subscription resumed or deleted.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn holds(self, lease: &Lease) -> Result<bool> {
        let key = Key::new(DeliveryStatus::KIND.name, lease.status.uid.clone());
        let read = self.0.store().get(&[key], &[]).await?;
        Ok(read.records.into_iter().flatten().any(|record| record.revision == lease.revision))
    }

    /// Lets go of a lease, so that nobody need wait for its end.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn release(self, lease: &mut Lease) -> Result<()> {
        let mut write = Write::default();
        write.require_or_retry(lease.still());
        lease.status.holder = String::new();
        self.put(write, lease, 0).await.map(drop)
    }

    /// Returns the first that wait for a subscription, or the first behind a place, in the order of their commits, and
    /// how many wait in all. There may be fewer than the limit where they have more than 4 MiB. One that was settled
    /// or deleted meanwhile may be left out.
    ///
    /// # Errors
    /// Those of the store, and INTERNAL when the data of an event is lost.
    pub async fn waiting(self, subscription: &Uid, after: Option<Position>, limit: usize) -> Result<Waiting> {
        let page = self.page(subscription, after, limit).await?;
        let mut waiting = Waiting::read(&page)?;
        waiting.events.truncate(bodies::within_bytes(&waiting.events));
        waiting.last = page.items.get(..waiting.events.len()).and_then(last_of);
        waiting.events = self.with_data(waiting.events).await?;
        Ok(waiting)
    }

    /// Returns what [`waiting`](Self::waiting) does, without the data that several subscriptions share: to see, weigh or
    /// give up events, and not to deliver them.
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

    /// Returns how many bytes wait for a subscription behind a place ([`Event::weight`]), and where the last is.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn weigh(self, subscription: &Uid, after: Option<Position>) -> Result<(u64, Option<Position>)> {
        let (mut weight, mut last) = (0_u64, after);
        loop {
            let waiting = self.peek(subscription, last.clone(), WEIGHED).await?;
            let some = waiting.events.iter().map(|pending| pending.event.weight());
            weight = some.fold(weight, u64::saturating_add);
            match waiting.last {
                Some(place) => last = Some(place),
                None => return Ok((weight, last)),
            }
        }
    }

    /// Writes what became of events that were tried, in their order, and prolongs the lease, all in one commit. `false`
    /// when the lease is another's by now, or the subscription is gone: then nothing was written.
    ///
    /// Data that these were the last to refer to is deleted afterwards, or by a [`sweep`](Self::sweep) if that fails.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn settle(self, lease: &mut Lease, outcomes: Vec<(PendingEvent, Outcome)>, millis: i64) -> Result<bool> {
        let now = self.0.now();
        let mut write = Write::default();
        write.require_or_retry(lease.still());
        let dead = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Dead(..)));
        let dead: Vec<u64> = dead.map(|(pending, _)| pending.event.weight()).collect();
        // What may have no reference any more.
        let mut released = self.make_room(&lease.subscription.uid, &dead, &mut write).await?;
        let quiet = outcomes.len().saturating_sub(MOST_LOGGED);
        let mut logged = HashSet::new();
        // Later ones first, since of two rows at one place of the log the later counts.
        let mut rows = Vec::new();
        for (place, (pending, outcome)) in outcomes.into_iter().enumerate() {
            let status = &mut lease.status;
            let attempts = if status.event_id == pending.event.id { status.attempts } else { 0 };
            let is_quiet = place < quiet && attempts == 0 && matches!(outcome, Outcome::Delivered(_));
            if attempts == 0 && !is_quiet {
                status.logged += 1;
            }
            let tried = |failure: &Option<Failure>| attempts + i32::from(failure.is_some());
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
            let key = Key::new(PendingEvent::KIND.name, pending.uid.clone());
            match outcome {
                Outcome::Delivered(code) => {
                    write.delete(Delete::Key(key));
                    released.extend(pending.event.event_body.map(|body| body.uid));
                    status.delivered += 1;
                    status.delivered_time = Some(now);
                    status.over(None);
                    status.http_status = i32::from(code);
                    (row.state, row.attempts, row.http_status) =
                        (DeliveryState::Delivered, attempts + 1, i32::from(code));
                }
                Outcome::Retry(failure, at) => {
                    status.failed(&pending.event, &failure, attempts + 1, now);
                    status.next_attempt_time = Some(at);
                    (row.state, row.attempts, row.next_attempt_time) =
                        (DeliveryState::Retrying, attempts + 1, Some(at));
                    row.failed(failure);
                }
                Outcome::Pause(failure) => {
                    status.failed(&pending.event, &failure, attempts + 1, now);
                    (status.mode, status.next_attempt_time) = (Mode::Paused, None);
                    (row.state, row.attempts) = (DeliveryState::Retrying, attempts + 1);
                    row.failed(failure);
                }
                Outcome::Dead(reason, failure) => {
                    if pending.event.event_body.is_some() {
                        // The reference moves, and does not begin.
                        write.require_or_retry(Require::Exists(key.clone()));
                    }
                    write.delete(Delete::Key(key));
                    status.dead += 1;
                    status.overflowed += i64::from(reason == DeadReason::BacklogFull);
                    (row.state, row.attempts) = (DeliveryState::Dead, tried(&failure));
                    let failure = failure.unwrap_or_else(|| status.last_failure(&pending.event));
                    bury(&mut write, pending, reason, &failure, row.attempts, now)?;
                    match reason {
                        DeadReason::Rejected => status.over(Some(&failure)),
                        _ => status.next(),
                    }
                    row.failed(failure);
                }
            }
            if !is_quiet {
                rows.push(row);
            }
        }
        for row in rows.into_iter().rev().filter(|row| logged.insert(row.uid.clone())) {
            write.put(&row.uid, &row, Bytes::new())?;
        }
        let done = self.put(write, lease, millis).await?;
        if done {
            // It is settled whether or not this succeeds.
            drop(self.delete_unused(released).await);
        }
        Ok(done)
    }

    /// Puts a dead letter's event behind those that wait, with the id that it has; `false` when there is none.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn redeliver(self, dead: &Uid) -> Result<bool> {
        let key = Key::new(DeadLetter::KIND.name, dead.clone());
        let record = self.0.store().get(std::slice::from_ref(&key), &[]).await?.records.into_iter().next().flatten();
        let (Some(record), Some(subscription)) = (record, dead.parent()) else { return Ok(false) };
        let event: Event = serde_json::from_slice(&record.private).map_err(Error::internal)?;
        let uid = subscription.new_child(self.0.entropy());
        let pending = PendingEvent { uid, event, create_time: Some(self.0.now()) };
        let mut write = Write::default();
        write.require_or_retry(Require::Revision(key.clone(), record.revision));
        write.require_or_retry(Require::Exists(Key::new(Subscription::KIND.name, subscription.clone())));
        write.delete(Delete::Key(key));
        write.put_in_queue(&pending.uid, &pending, Bytes::new())?;
        event_body::refer(&mut write, pending.event.event_body.as_ref());
        let done = self.commit(write).await?.is_some();
        self.0.wake(&[subscription]);
        Ok(done)
    }

    /// Lets a subscription go on that was paused, or that waits for its next try; `false` when nothing was ever tried.
    ///
    /// # Errors
    /// ABORTED when it is being changed over and over, and those of the store.
    pub async fn resume(self, subscription: &Uid) -> Result<bool> {
        let key = Key::new(DeliveryStatus::KIND.name, subscription.clone());
        for _ in 0..crate::context::MAX_ATTEMPTS {
            let read = self.0.store().get(std::slice::from_ref(&key), &[]).await?;
            let Some(record) = read.records.into_iter().next().flatten() else { return Ok(false) };
            let mut status: DeliveryStatus = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            (status.mode, status.next_attempt_time, status.failures) = (Mode::Active, None, 0);
            // Whoever holds the lease reads it again.
            (status.holder, status.lease_expire_time) = (String::new(), None);
            let mut write = Write::default();
            write.require_or_retry(Require::Revision(key.clone(), record.revision));
            write.put(subscription, &status, Bytes::new())?;
            if self.commit(write).await?.is_some() {
                self.0.wake(std::slice::from_ref(subscription));
                return Ok(true);
            }
        }
        Err(Error::busy())
    }

    /// Deletes the oldest dead letters when more would be there than are kept. Returns shared data that these referred
    /// to, as far as they were read.
    async fn make_room(self, subscription: &Uid, weights: &[u64], write: &mut Write) -> Result<Vec<Uid>> {
        let new = weights.len();
        if new == 0 {
            return Ok(Vec::new());
        }
        if weights.iter().any(|weight| *weight > dead_letter::LARGE) {
            return self.make_room_for_large(subscription, weights, write).await;
        }
        let oldest = self.0.store().list(&by_sequence::<DeadLetter>(subscription, new)).await?;
        let after = usize::try_from(oldest.total.unwrap_or_default()).unwrap_or(usize::MAX).saturating_add(new);
        let surplus = after.saturating_sub(dead_letter::MAX_DEAD);
        for item in oldest.items.into_iter().take(surplus) {
            write.delete(Delete::Key(Key::new(DeadLetter::KIND.name, item.uid)));
        }
        Ok(Vec::new())
    }

    /// Deletes the oldest dead letters when more would be there than are kept, in number or in bytes.
    async fn make_room_for_large(self, subscription: &Uid, weights: &[u64], write: &mut Write) -> Result<Vec<Uid>> {
        let order = Order { by: OrderBy::Sequence, descending: true };
        let all = Query { order, ..by_sequence::<DeadLetter>(subscription, dead_letter::MAX_DEAD) };
        let standing = self.0.store().list(&all).await?.items;
        let mut left = dead_letter::MAX_DEAD.saturating_sub(weights.len());
        let mut bytes = weights.iter().fold(0, |sum: u64, weight| sum.saturating_add(*weight));
        let keys: Vec<_> = standing.into_iter().map(|item| Key::new(DeadLetter::KIND.name, item.uid)).collect();
        let mut released = Vec::new();
        // The latest first, a few at a time, since each may be long.
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

    /// Writes a lease's status and what goes with it; `false` when it is another's.
    async fn put(self, mut write: Write, lease: &mut Lease, millis: i64) -> Result<bool> {
        let now = self.0.now();
        let status = &mut lease.status;
        status.update_time = status.update_time.max(Some(now));
        status.lease_expire_time = (millis > 0).then(|| now.plus_millis(millis));
        write.put(&status.uid.clone(), status, Bytes::new())?;
        let sequence = self.commit(write).await?;
        lease.revision = sequence.unwrap_or(lease.revision);
        Ok(sequence.is_some())
    }

    /// Commits; none when a requirement does not hold.
    async fn commit(self, write: Write) -> Result<Option<u64>> {
        match self.0.without_caller(async |cx| cx.commit(write).await).await {
            Ok(sequence) => Ok(Some(sequence)),
            Err(error) if error.is_stale() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Waiting {
    /// Reads a page as it is stored.
    fn read(page: &Page) -> Result<Self> {
        let events = page.items.iter().map(|item| serde_json::from_slice(&item.body).map_err(Error::internal));
        let total = page.total.unwrap_or_default();
        Ok(Self { events: events.collect::<Result<_>>()?, last: last_of(&page.items), total })
    }
}

impl Lease {
    /// Tells whether the lease stands for at least so many milliseconds more.
    pub fn stands(&self, now: Timestamp, millis: i64) -> bool {
        self.status.lease_expire_time.is_some_and(|until| until >= now.plus_millis(millis))
    }

    /// How often an event was tried.
    pub fn attempts(&self, event: &Event) -> i32 {
        if self.status.event_id == event.id { self.status.attempts } else { 0 }
    }

    fn still(&self) -> Require {
        Require::Revision(Key::new(DeliveryStatus::KIND.name, self.status.uid.clone()), self.revision)
    }
}

impl DeliveryStatus {
    fn failed(&mut self, event: &Event, failure: &Failure, attempts: i32, now: Timestamp) {
        self.event_id.clone_from(&event.id);
        self.attempts = attempts;
        self.failures += 1;
        self.failing_since = self.failing_since.or(Some(now));
        (self.http_status, self.error) = (i32::from(failure.status), failure.error.clone());
    }

    /// The sink answers: what follows is tried at once.
    fn over(&mut self, refused: Option<&Failure>) {
        self.next();
        (self.failures, self.failing_since, self.next_attempt_time) = (0, None, None);
        self.error = refused.map(|failure| failure.error.clone()).unwrap_or_default();
    }

    /// What was tried is tried no more.
    fn next(&mut self) {
        self.event_id.clear();
        self.attempts = 0;
    }

    fn last_failure(&self, event: &Event) -> Failure {
        match self.event_id == event.id {
            true => Failure { status: u16::try_from(self.http_status).unwrap_or_default(), error: self.error.clone() },
            false => Failure::default(),
        }
    }
}

impl Delivery {
    fn failed(&mut self, failure: Failure) {
        (self.http_status, self.error) = (i32::from(failure.status), failure.error);
    }
}

/// Writes a dead letter, which refers to shared data as the event does.
fn bury(
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
    write.put(&dead.uid, &dead, private.into())?;
    event_body::refer(write, event.event_body.as_ref());
    Ok(())
}

/// Returns where the last of these is, by sequence.
fn last_of(items: &[Item]) -> Option<Position> {
    let last = items.last()?;
    Some(Position { value: KeyValue::integer(last.revision.cast_signed()), uid: last.uid.clone() })
}

/// Returns the query for the first of what hangs on a subscription, in the order of commits, with the total.
fn by_sequence<R: Resource>(subscription: &Uid, limit: usize) -> Query {
    let order = Order { by: OrderBy::Sequence, descending: false };
    let limit = limit.max(1);
    Query { order, limit, count: true, ..Query::new(R::KIND.name, Scope::Children(subscription.clone())) }
}
