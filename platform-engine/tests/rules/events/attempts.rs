//! Attempts in the delivery log, test events, and the redelivery of an event by its id.

use std::time::Duration;

use platform_core::outbox::{Attempt, Exchange, Outbox, Settled};

use super::*;

/// Settles an event after an attempt.
fn attempted(world: &World, lease: &mut platform_core::outbox::Lease, pending: PendingEvent, outcome: Outcome) {
    let mut exchange = Exchange::default();
    exchange.sent("ce-id", &pending.event.id);
    exchange.sent("authorization", "Bearer hush");
    exchange.received("server", "nginx");
    exchange.received_body(b"try again");
    let attempt = Attempt::new(world.platform.now(), Duration::from_millis(12), exchange);
    let settled = vec![Settled { pending, outcome, attempt }];
    assert!(block_on(Outbox::of(&world.platform).record_outcomes(lease, settled, LEASE)).unwrap());
}

/// Returns the rows of the delivery log, with the fields that lists leave out.
fn rows(world: &World) -> Vec<Value> {
    let listed = world.walk(&world.operator, "Delivery", &[("order_by", "createTime")]);
    assert!(listed.iter().all(|row| row.get("request").is_none() && row.get("response").is_none()), "{listed:?}");
    listed.iter().map(|row| world.get(&world.operator, "Delivery", text(row, "uid")).unwrap()).collect()
}

fn send_test(world: &World, caller: &Caller, subscription: &Uid) -> platform_engine::error::Result<String> {
    let reply = world.run(Some(caller), "SendTestEvent", json!({ "uid": subscription }))?;
    Ok(text(&reply, "eventId").to_owned())
}

fn redeliver(world: &World, subscription: &Uid, event: &str) -> platform_engine::error::Result<Value> {
    world.run(Some(&world.operator), "RedeliverEvent", json!({ "uid": subscription, "eventId": event }))
}

#[test]
fn the_log_shows_what_the_last_attempt_sent_and_received_without_secrets() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    world.repo(&world.org);
    let mut lease = lease(&world, &subscription, "one");
    let pending = pending_events(&world, &subscription).remove(0);
    let at = world.platform.now().plus_millis(1000);
    attempted(&world, &mut lease, pending.clone(), Outcome::Retry(failure(503), at));
    let row = rows(&world).remove(0);
    assert_eq!((text(&row, "duration"), text(&row, "attemptTime")), ("0.012s", &*world.platform.now().to_string()));
    assert_eq!(row["request"]["headers"], json!({ "authorization": "(removed)", "ce-id": pending.event.id }));
    assert_eq!(row["request"]["body"], json!(pending.event.data));
    assert_eq!(row["response"]["headers"], json!({ "server": "nginx" }));
    assert_eq!((&row["response"]["body"], &row["response"]["truncated"]), (&json!("try again"), &json!(false)));
    // The next attempt at the event takes the place of the row.
    assert!(settle(&world, &mut lease, vec![(pending, Outcome::Delivered(204))]));
    let row = rows(&world).remove(0);
    assert!(row.get("response").is_none() && row["attempts"] == 2, "{row}");
    // Those who may not list the subscription's deliveries see none of it.
    let stranger = world.member("owner", &world.organization());
    assert_eq!(code(world.get(&stranger, "Delivery", text(&row, "uid"))), Code::PermissionDenied);
}

#[test]
fn the_log_takes_no_commit_of_its_own() {
    let (store, calls) = platform_testkit::CountingStore::in_memory();
    let world = World::over(store);
    let subscription = subscribe(&world, &world.org);
    (0..100).for_each(|_| drop(world.repo(&world.org)));
    let mut lease = lease(&world, &subscription, "one");
    let events = pending_events(&world, &subscription);
    let before = calls.commits();
    assert!(settle(&world, &mut lease, events.into_iter().map(|event| (event, Outcome::Delivered(200))).collect()));
    assert_eq!(calls.commits() - before, 1, "100 events are settled and logged by one commit");
}

#[test]
fn a_test_event_goes_to_its_subscription_alone_by_the_path_of_all_events() {
    let world = World::new();
    let (subscription, other) = (subscribe(&world, &world.org), subscribe(&world, &world.org));
    let viewer = world.holder(&world.org, &["subscriptions.list"]);
    assert_eq!(code(send_test(&world, &viewer, &subscription)), Code::PermissionDenied);
    let missing = Uid::opaque(format!("{}/0000000000000000", world.org));
    assert_eq!(code(send_test(&world, &world.operator, &missing)), Code::NotFound);
    let editor = world.holder(&world.org, &["subscriptions.update"]);
    world.repo(&world.org);
    let id = send_test(&world, &editor, &subscription).unwrap();
    // It comes after the events before it.
    let pending = pending_events(&world, &subscription).pop().unwrap();
    assert_eq!((&*pending.event.id, &*pending.event.ty), (&*id, "dev.chainguard.api.events.subscription.test.v1"));
    assert_eq!((&*pending.event.subject, &*pending.event.group), (&*subscription, &*world.org));
    let data: Value = serde_json::from_str(&pending.event.data).unwrap();
    assert_eq!(data, json!({ "actor": { "subject": editor.identity }, "body": { "uid": subscription } }));
    let others = pending_events(&world, &other);
    assert!(others.iter().all(|pending| pending.event.id != id) && !others.is_empty());
}

#[test]
fn a_test_event_is_logged_however_many_events_are_acknowledged_with_it() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let id = send_test(&world, &world.operator, &subscription).unwrap();
    (0..50).for_each(|_| drop(world.repo(&world.org)));
    let mut lease = lease(&world, &subscription, "one");
    let events = pending_events(&world, &subscription);
    assert!(settle(&world, &mut lease, events.into_iter().map(|event| (event, Outcome::Delivered(200))).collect()));
    let found = world.list(&world.operator, "Delivery", &[("event_id", &id)]).unwrap();
    assert_eq!((found.total, text(&found.items[0], "state")), (1, "DELIVERED"));
}

#[test]
fn an_event_that_is_still_stored_is_delivered_again_by_its_id() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    (0..3).for_each(|_| drop(world.repo(&world.org)));
    let mut held = lease(&world, &subscription, "one");
    let events = pending_events(&world, &subscription);
    let [dead, failing, waiting] = &events[..] else { panic!("three events") };
    // A dead letter becomes pending again, after the others.
    let outcome = Outcome::Dead(DeadReason::Rejected, Some(failure(400)));
    assert!(settle(&world, &mut held, vec![(dead.clone(), outcome)]));
    redeliver(&world, &subscription, &dead.event.id).unwrap();
    let ids = || pending_events(&world, &subscription).into_iter().map(|one| one.event.id).collect::<Vec<_>>();
    assert_eq!(ids(), [&failing.event.id, &waiting.event.id, &dead.event.id].map(Clone::clone));
    // The wait for the next attempt at a pending event ends, and so does a pause, also for an event behind another.
    let at = world.platform.now().plus_millis(1_000_000);
    for (id, outcome) in
        [(&failing.event.id, Outcome::Retry(failure(503), at)), (&waiting.event.id, Outcome::Pause(failure(410)))]
    {
        assert!(settle(&world, &mut held, vec![(failing.clone(), outcome)]));
        redeliver(&world, &subscription, id).unwrap();
        let status = world.get(&world.operator, "DeliveryStatus", &subscription).unwrap();
        assert!(status["mode"] == "ACTIVE" && status.get("nextAttemptTime").is_none(), "{status}");
        held = lease(&world, &subscription, "one");
    }
    // Nothing delays an event before the first attempt.
    let fresh = subscribe(&world, &world.org);
    world.repo(&world.org);
    redeliver(&world, &fresh, &pending_events(&world, &fresh)[0].event.id).unwrap();
    // A delivered event is not stored, and neither is one of another subscription.
    assert!(settle(&world, &mut held, vec![(failing.clone(), Outcome::Delivered(200))]));
    for (subscription, id) in [(&subscription, &failing.event.id), (&fresh, &waiting.event.id)] {
        let error = redeliver(&world, subscription, id).unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(error.message().contains("neither pending nor a dead letter"), "{error:?}");
    }
    let missing = Uid::opaque(format!("{}/0000000000000000", world.org));
    assert_eq!(code(redeliver(&world, &missing, "x")), Code::NotFound);
    let empty = world.run(Some(&world.operator), "RedeliverEvent", json!({ "uid": subscription }));
    assert_eq!(violated_fields(empty), ["eventId"]);
    let viewer = world.holder(&world.org, &["subscriptions.list"]);
    let request = json!({ "uid": subscription, "eventId": waiting.event.id });
    assert_eq!(code(world.run(Some(&viewer), "RedeliverEvent", request)), Code::PermissionDenied);
}

#[test]
fn the_backlog_counts_the_events_that_wait_and_says_since_when() {
    let world = World::new();
    let viewer = world.holder(&world.org, &["subscriptions.list"]);
    let subscription = subscribe(&world, &world.org);
    let backlog = || world.run(Some(&viewer), "GetBacklog", json!({ "uid": subscription })).unwrap();
    assert_eq!(backlog(), json!({ "waiting": "0" }));
    let since = world.platform.now();
    (0..3).for_each(|_| drop(world.repo(&world.org)));
    assert_eq!(backlog(), json!({ "waiting": "3", "since": since }));
    let mut held = lease(&world, &subscription, "one");
    let events = pending_events(&world, &subscription);
    assert!(settle(&world, &mut held, events.into_iter().map(|event| (event, Outcome::Delivered(200))).collect()));
    assert_eq!(backlog(), json!({ "waiting": "0" }));
    let missing = json!({ "uid": format!("{}/0000000000000000", world.org) });
    assert_eq!(code(world.run(Some(&viewer), "GetBacklog", missing)), Code::NotFound);
    let stranger = world.member("owner", &world.organization());
    let denied = world.run(Some(&stranger), "GetBacklog", json!({ "uid": subscription }));
    assert_eq!(code(denied), Code::PermissionDenied);
}
