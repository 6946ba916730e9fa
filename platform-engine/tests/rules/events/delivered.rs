//! The outbox: leases, outcomes of deliveries, the delivery log and dead letters.

use platform_core::outbox::Outbox;
use platform_testkit::CountingStore;

use super::*;

fn delivery_status(world: &World, subscription: &Uid) -> Value {
    world.get(&world.operator, "DeliveryStatus", subscription).unwrap()
}

fn log(world: &World) -> Vec<Value> {
    world.walk(&world.operator, "Delivery", &[("order_by", "createTime")])
}

#[test]
fn a_delivered_event_is_deleted_and_logged() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let repo = world.repo(&world.org);
    let mut lease = lease(&world, &subscription, "one");
    let pending = pending_events(&world, &subscription).remove(0);
    let id = pending.event.id.clone();
    assert!(settle(&world, &mut lease, vec![(pending, Outcome::Delivered(204))]));
    assert_eq!(pending_summaries(&world, &subscription), []);
    let rows = log(&world);
    assert_eq!(rows.len(), 1);
    assert_eq!((text(&rows[0], "eventId"), text(&rows[0], "eventSubject")), (&*id, &*repo));
    assert_eq!(
        (text(&rows[0], "state"), &rows[0]["attempts"], &rows[0]["httpStatus"]),
        ("DELIVERED", &json!(1), &json!(204))
    );
    assert_eq!(delivery_status(&world, &subscription)["delivered"], "1");
}

#[test]
fn one_holder_at_a_time_has_the_lease_of_a_subscription_until_it_expires_or_is_released() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    world.repo(&world.org);
    let outbox = Outbox::of(&world.platform);
    lease(&world, &subscription, "one");
    let other = || block_on(outbox.acquire_lease(&subscription, "two", LEASE)).unwrap();
    assert!(matches!(other(), LeaseResult::HeldByOther(until) if until == world.platform.now().plus_millis(LEASE)));
    // The holder renews it.
    world.clock.advance(LEASE - 1);
    let mut first = lease(&world, &subscription, "one");
    world.clock.advance(LEASE - 1);
    assert!(matches!(other(), LeaseResult::HeldByOther(_)));
    world.clock.advance(1);
    let LeaseResult::Acquired(mut second) = other() else { panic!("the lease expired") };
    let pending = pending_events(&world, &subscription).remove(0);
    let outcome = vec![(pending, Outcome::Delivered(200))];
    assert!(!settle(&world, &mut first, outcome.clone()), "another holder has the lease");
    assert_eq!(pending_summaries(&world, &subscription).len(), 1);
    assert!(settle(&world, &mut second, outcome));
    block_on(outbox.release(&mut second)).unwrap();
    lease(&world, &subscription, "one");
    world.delete(&world.operator, "Subscription", &subscription).unwrap();
    assert!(matches!(
        block_on(outbox.acquire_lease(&subscription, "one", LEASE)).unwrap(),
        LeaseResult::SubscriptionDeleted
    ));
    assert!(!settle(&world, &mut second, Vec::new()));
}

#[test]
fn a_failed_event_stays_pending_with_its_attempts_and_later_events_wait_for_it() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    world.repo(&world.org);
    world.repo(&world.org);
    let mut lease = lease(&world, &subscription, "one");
    let first = pending_events(&world, &subscription).remove(0);
    for attempt in 1..=3 {
        world.clock.advance(1000);
        let at = world.platform.now().plus_millis(1000);
        assert!(settle(&world, &mut lease, vec![(first.clone(), Outcome::Retry(failure(503), at))]));
        assert_eq!((lease.attempts(&first.event), lease.status.next_attempt_time), (attempt, Some(at)));
    }
    assert_eq!(pending_events(&world, &subscription)[0], first, "the order is unchanged");
    let rows = log(&world);
    assert_eq!((rows.len(), text(&rows[0], "state"), &rows[0]["attempts"]), (1, "RETRYING", &json!(3)));
    let failing_since = text(&delivery_status(&world, &subscription), "failingSince").to_owned();
    assert_eq!(failing_since, world.platform.now().plus_millis(-2000).to_string());
    assert!(settle(&world, &mut lease, vec![(first, Outcome::Delivered(200))]));
    let status = delivery_status(&world, &subscription);
    assert!(status.get("failingSince").is_none() && status.get("error").is_none(), "{status}");
    let rows = log(&world);
    assert_eq!((rows.len(), text(&rows[0], "state"), &rows[0]["attempts"]), (1, "DELIVERED", &json!(4)));
}

#[test]
fn an_abandoned_event_becomes_a_dead_letter_that_can_be_redelivered_with_the_same_id() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    world.repo(&world.org);
    let mut lease = lease(&world, &subscription, "one");
    let pending = pending_events(&world, &subscription).remove(0);
    let dead = Outcome::Dead(DeadReason::Rejected, Some(failure(400)));
    assert!(settle(&world, &mut lease, vec![(pending.clone(), dead)]));
    assert_eq!(pending_summaries(&world, &subscription), []);
    let letter = world.get(&world.operator, "DeadLetter", &pending.uid).unwrap();
    assert_eq!((text(&letter, "reason"), text(&letter, "eventId")), ("REJECTED", &*pending.event.id));
    assert!(!letter.to_string().contains("repo 0"), "a dead letter does not show its event: {letter}");

    world.repo(&world.org);
    let request = json!({ "uid": pending.uid });
    let viewer = world.holder(&world.org, &["subscriptions.list"]);
    assert_eq!(code(world.run(Some(&viewer), "RedeliverDeadLetter", request.clone())), Code::PermissionDenied);
    world.run(Some(&world.operator), "RedeliverDeadLetter", request.clone()).unwrap();
    let last = pending_events(&world, &subscription).pop().unwrap();
    assert_eq!(last.event, pending.event);
    assert_eq!(code(world.run(Some(&world.operator), "RedeliverDeadLetter", request)), Code::NotFound);
}

#[test]
fn a_paused_subscription_retains_pending_events_until_it_is_resumed() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    world.repo(&world.org);
    let mut held = lease(&world, &subscription, "one");
    let pending = pending_events(&world, &subscription).remove(0);
    assert!(settle(&world, &mut held, vec![(pending, Outcome::Pause(failure(410)))]));
    let status = delivery_status(&world, &subscription);
    assert_eq!(text(&status, "mode"), "PAUSED");
    assert_eq!((&status["attempts"], &status["httpStatus"]), (&json!(1), &json!(410)));
    let row = log(&world).remove(0);
    assert_eq!((text(&row, "state"), &row["attempts"], &row["httpStatus"]), ("RETRYING", &json!(1), &json!(410)));
    world.repo(&world.org);
    assert_eq!(pending_summaries(&world, &subscription).len(), 2);
    world.run(Some(&world.operator), "ResumeDelivery", json!({ "uid": subscription })).unwrap();
    assert_eq!(text(&delivery_status(&world, &subscription), "mode"), "ACTIVE");
    assert!(!settle(&world, &mut held, Vec::new()), "the holder of the lease must read the state again");
    lease(&world, &subscription, "two");
}

#[test]
fn the_log_and_the_dead_letters_of_a_subscription_are_bounded() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let mut lease = lease(&world, &subscription, "one");
    for round in 0..12 {
        for _ in 0..100 {
            world.repo(&world.org);
        }
        let events = pending_events(&world, &subscription);
        let outcome = |pending: PendingEvent| match round {
            0 => (pending, Outcome::Delivered(200)),
            _ => (pending, Outcome::Dead(DeadReason::BacklogFull, None)),
        };
        assert!(settle(&world, &mut lease, events.into_iter().map(outcome).collect()));
        if round == 0 {
            assert_eq!(log(&world).len(), 10, "of many events delivered at once only the last are logged");
        }
    }
    assert_eq!(log(&world).len(), 100);
    assert_eq!(world.list(&world.operator, "DeadLetter", &[]).unwrap().total, 1000);
    let status = delivery_status(&world, &subscription);
    assert_eq!(
        (&status["dead"], &status["overflowed"], &status["delivered"]),
        (&json!("1100"), &json!("1100"), &json!("100"))
    );
}

#[test]
fn only_subscriptions_with_pending_events_are_listed_for_delivery() {
    let world = World::new();
    let groups = [world.group(&world.org), world.group(&world.org), world.group(&world.org)];
    let subscriptions: Vec<_> = groups.iter().map(|group| subscribe(&world, group)).collect();
    for group in &groups[..2] {
        (0..3).for_each(|_| drop(world.repo(group)));
    }
    let outbox = Outbox::of(&world.platform);
    let mut expected = subscriptions[..2].to_vec();
    expected.sort();
    assert_eq!(block_on(outbox.subscriptions(None, 10)).unwrap(), expected);
    assert_eq!(block_on(outbox.subscriptions(None, 1)).unwrap(), expected[..1]);
    assert_eq!(block_on(outbox.subscriptions(Some(&expected[0]), 10)).unwrap(), expected[1..]);
}

#[test]
fn finding_the_subscriptions_with_pending_events_needs_few_reads() {
    let (store, calls) = CountingStore::in_memory();
    let world = World::over(store);
    let mut expected = Vec::new();
    for number in 0..300 {
        let group = world.group(&world.org);
        expected.push(subscribe(&world, &group));
        let events = if number % 50 == 0 { 40 } else { 1 };
        (0..events).for_each(|_| drop(world.repo(&group)));
    }
    expected.sort();
    let outbox = Outbox::of(&world.platform);
    let before = calls.reads();
    assert_eq!(block_on(outbox.subscriptions(None, 1000)).unwrap(), expected);
    let reads = calls.reads() - before;
    assert!(reads <= 60, "{reads} reads for 300 subscriptions");
}

#[test]
fn a_large_dead_letter_counts_like_a_small_one_and_several_evict_all_before_them() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let mut lease = lease(&world, &subscription, "test");
    let mut settle_dead = |count: usize, bytes: usize| {
        (0..count).for_each(|_| drop(world.repo(&world.org)));
        let dead = |mut pending: PendingEvent| {
            pending.event.data = "x".repeat(bytes);
            (pending, Outcome::Dead(DeadReason::BacklogFull, None))
        };
        let events = pending_events(&world, &subscription);
        assert!(settle(&world, &mut lease, events.into_iter().map(dead).collect()));
    };
    let uids = || -> Vec<String> {
        let letters = world.walk(&world.operator, "DeadLetter", &[("order_by", "uid"), ("page_size", "200")]);
        letters.iter().map(|letter| text(letter, "uid").to_owned()).collect()
    };
    (0..10).for_each(|_| settle_dead(100, 10));
    let small = uids();
    assert_eq!(small.len(), 1000);
    settle_dead(1, 1 << 20);
    let mixed = uids();
    assert_eq!((mixed.len(), small.iter().filter(|uid| !mixed.contains(uid)).count()), (1000, 1));
    settle_dead(15, 1 << 20);
    let large = uids();
    assert_eq!((large.len(), large.iter().filter(|uid| mixed.contains(uid)).count()), (15, 0));
}

#[test]
fn large_dead_letters_of_a_subscription_are_bounded_in_bytes() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let mut lease = lease(&world, &subscription, "test");
    let dead_letter = |lease: &mut _, bytes: usize| {
        world.repo(&world.org);
        let mut pending = pending_events(&world, &subscription).remove(0);
        pending.event.data = "x".repeat(bytes);
        let dead = Outcome::Dead(DeadReason::Rejected, Some(failure(400)));
        assert!(settle(&world, lease, vec![(pending.clone(), dead)]));
        pending.uid.to_string()
    };
    let dead_letters = || world.walk(&world.operator, "DeadLetter", &[("order_by", "uid")]);
    let small: Vec<_> = (0..20).map(|_| dead_letter(&mut lease, 100)).collect();
    let large: Vec<_> = (0..20).map(|_| dead_letter(&mut lease, 1 << 20)).collect();
    let retained: Vec<_> = dead_letters().iter().map(|letter| text(letter, "uid").to_owned()).collect();
    assert_eq!(retained.len(), 15, "the number of letters that fit into 16 MiB with their overhead");
    assert!(retained.iter().all(|uid| large[5..].contains(uid)), "the latest are retained");
    let last = dead_letter(&mut lease, 100);
    assert!(!small.contains(&last));
    assert_eq!(dead_letters().len(), 16, "a small one does not evict a large one");
}
