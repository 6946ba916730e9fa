//! Events (`docs/api.md`, Events): what a change records, for whom, and what the outbox does with it.

use platform_core::{
    access::Caller,
    error::Code,
    outbox::{Failure, Lease, LeaseResult, Outbox, Outcome},
    resources::events::{DeadReason, PendingEvent},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{World, block_on, code, refused_fields, text, uid_of};

mod bodies;
mod delivered;
mod recorded;
mod streams;

/// How long leases are in these tests, in milliseconds.
pub(crate) const LEASE: i64 = 30_000;

/// Subscribes to the events of a group.
pub(crate) fn subscribe(world: &World, group: &str) -> Uid {
    let body = json!({ "sink": "https://receiver.test/" });
    uid_of(&world.create(&world.operator, "Subscription", group, body).unwrap())
}

/// Returns what waits for a subscription.
pub(crate) fn waiting(world: &World, subscription: &Uid) -> Vec<PendingEvent> {
    block_on(Outbox::of(&world.platform).waiting(subscription, None, 1000)).unwrap().events
}

/// Returns the types and subjects of what waits, without the prefix.
pub(crate) fn told(world: &World, subscription: &Uid) -> Vec<(String, String)> {
    let short = |ty: &str| ty.strip_prefix("dev.chainguard.api.").unwrap_or(ty).to_owned();
    waiting(world, subscription).into_iter().map(|pending| (short(&pending.event.ty), pending.event.subject)).collect()
}

#[track_caller]
pub(crate) fn lease(world: &World, subscription: &Uid, holder: &str) -> Lease {
    match block_on(Outbox::of(&world.platform).acquire_lease(subscription, holder, LEASE)).unwrap() {
        LeaseResult::Acquired(lease) => lease,
        other => panic!("a lease, not {other:?}"),
    }
}

pub(crate) fn settle(world: &World, lease: &mut Lease, outcomes: Vec<(PendingEvent, Outcome)>) -> bool {
    block_on(Outbox::of(&world.platform).record_outcomes(lease, outcomes, LEASE)).unwrap()
}

pub(crate) fn failure(status: u16) -> Failure {
    Failure { status, error: format!("the answer's status was {status}") }
}

/// Subscribes to a group, and tries an event of it without success; returns the uid of its row in the log, or of its
/// dead letter.
pub(crate) fn tried(world: &World, group: &Uid, dead: Option<DeadReason>) -> Uid {
    let subscription = subscribe(world, group);
    world.repo(group);
    let pending = waiting(world, &subscription).remove(0);
    let mut lease = lease(world, &subscription, "test");
    let outcome = match dead {
        Some(reason) => Outcome::Dead(reason, Some(failure(400))),
        None if world.serial() % 4 < 2 => Outcome::Delivered(200),
        None => Outcome::Retry(failure(503), world.platform.now().plus_millis(1000)),
    };
    assert!(settle(world, &mut lease, vec![(pending.clone(), outcome)]));
    match dead {
        Some(_) => pending.uid,
        None => Uid::opaque(format!("{subscription}/{:016x}", 1)),
    }
}
