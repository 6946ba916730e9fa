//! Subscriptions to events, and attempts to deliver them.

#![allow(dead_code, reason = "each of the test programs uses its part")]

use platform_core::{
    outbox::{Failure, Lease, LeaseResult, Outbox, Outcome},
    resources::events::{DeadReason, PendingEvent},
};
use platform_engine::uid::Uid;
use serde_json::json;

use crate::common::{World, block_on, uid_of};

/// The duration of leases in these tests, in milliseconds.
pub(crate) const LEASE: i64 = 30_000;

/// Subscribes to the events of a group.
pub(crate) fn subscribe(world: &World, group: &str) -> Uid {
    let body = json!({ "sink": "https://receiver.test/" });
    uid_of(&world.create(&world.operator, "Subscription", group, body).unwrap())
}

/// Returns the pending events of a subscription.
pub(crate) fn pending_events(world: &World, subscription: &Uid) -> Vec<PendingEvent> {
    block_on(Outbox::of(&world.platform).waiting(subscription, None, 1000)).unwrap().events
}

/// Returns the types, without their prefix, and the subjects of the pending events of a subscription.
pub(crate) fn pending_summaries(world: &World, subscription: &Uid) -> Vec<(String, String)> {
    let short = |ty: &str| ty.strip_prefix("dev.chainguard.api.").unwrap_or(ty).to_owned();
    pending_events(world, subscription)
        .into_iter()
        .map(|pending| (short(&pending.event.ty), pending.event.subject))
        .collect()
}

#[track_caller]
pub(crate) fn lease(world: &World, subscription: &Uid, holder: &str) -> Lease {
    match block_on(Outbox::of(&world.platform).acquire_lease(subscription, holder, LEASE)).unwrap() {
        LeaseResult::Acquired(lease) => lease,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub(crate) fn settle(world: &World, lease: &mut Lease, outcomes: Vec<(PendingEvent, Outcome)>) -> bool {
    let outcomes = outcomes.into_iter().map(Into::into).collect();
    block_on(Outbox::of(&world.platform).record_outcomes(lease, outcomes, LEASE)).unwrap()
}

pub(crate) fn failure(status: u16) -> Failure {
    Failure { status, error: format!("the answer's status was {status}") }
}

/// Subscribes to a group and records a delivery attempt of one of its events; returns the uid of the row in the
/// delivery log, or of the dead letter.
pub(crate) fn attempted_delivery(world: &World, group: &Uid, dead: Option<DeadReason>) -> Uid {
    let subscription = subscribe(world, group);
    world.repo(group);
    let pending = pending_events(world, &subscription).remove(0);
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
