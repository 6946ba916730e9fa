//! Tests of several dispatchers over one store, and of crashes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use platform_core::outbox::Outbox;
use platform_core::resources::events::Subscription;
use platform_engine::store::{Store, memory::MemoryStore};
use platform_events::DeliveryResult;

use crate::common::{Scripted, World, respond};

#[tokio::test(start_paused = true)]
async fn two_dispatchers_share_the_work_without_duplicates() {
    let world = World::new().await;
    let mut groups = Vec::new();
    for n in 0..30 {
        let group = world.group().await;
        world.subscribe(&group, &format!("https://sink{n}.test/")).await;
        groups.push(group);
    }
    // Each attempt takes a while, so that both dispatchers work concurrently. The sink panics when it is given two
    // events of a subscription at once.
    let (one, two) = (Scripted::slow(), Scripted::slow());
    let first = world.deliver(&one, |options| (options.name, options.lanes) = ("one".to_owned(), 10));
    let second = world.deliver(&two, |options| (options.name, options.lanes) = ("two".to_owned(), 10));
    let mut expected = 0;
    for _ in 0..5 {
        for group in &groups {
            expected += world.repos(group, 2).await.len();
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    while one.count() + two.count() < expected {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    first.stop().await;
    second.stop().await;
    assert_eq!(one.count() + two.count(), expected, "no event is delivered twice");
    let ids: HashSet<_> = [&one, &two].into_iter().flat_map(|sink| sink.ids()).collect();
    assert_eq!(ids.len(), expected);
    assert!(one.count() > 0 && two.count() > 0, "both deliver: {} and {}", one.count(), two.count());
}

#[tokio::test(start_paused = true)]
async fn another_dispatcher_takes_over_after_a_crash_when_the_lease_expires() {
    let world = World::new().await;
    world.subscribe(&world.org, "https://a.test/").await;
    let sink = Scripted::new(|_, _, _| (Duration::from_millis(20), DeliveryResult::Status(200)));
    let crashed = world.deliver(&sink, |options| options.name = "one".to_owned());
    let expected = world.repos(&world.org, 100).await;
    sink.wait_for("https://a.test/", 30).await;
    drop(crashed);
    let before = sink.taken("https://a.test/").len();
    let start = tokio::time::Instant::now();
    let _second = world.deliver(&sink, |options| options.name = "two".to_owned());
    sink.wait_for("https://a.test/", before + 1).await;
    assert!(start.elapsed() > Duration::from_secs(15), "the lease is respected: {:?}", start.elapsed());
    while sink.taken("https://a.test/").last() != expected.last() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // At least once, in order, and duplicates with the same id.
    let (mut subjects, mut ids) = (Vec::new(), HashSet::new());
    for (subject, id) in &sink.taken.lock()["https://a.test/"] {
        if ids.insert(id.clone()) {
            subjects.push(subject.clone());
        }
    }
    assert_eq!(subjects, expected);
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_that_restarts_with_its_name_continues_at_once() {
    let world = World::new().await;
    world.subscribe(&world.org, "https://a.test/").await;
    let sink = Scripted::new(|_, _, attempt| respond(if attempt == 1 { 503 } else { 200 }));
    drop(world.deliver(&sink, |_| {}));
    world.repos(&world.org, 10).await;
    let crashed = world.deliver(&sink, |_| {});
    sink.wait_for("https://a.test/", 3).await;
    drop(crashed);
    let start = tokio::time::Instant::now();
    let sink = Scripted::accepting();
    let _again = world.deliver(&Arc::clone(&sink), |_| {});
    sink.wait_for("https://a.test/", 7).await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_waits_for_a_permit_longer_than_its_lease_delivers_nothing_twice() {
    let world = World::new().await;
    let (busy, waiting) = (world.group().await, world.group().await);
    world.subscribe(&busy, "https://busy.test/").await;
    world.subscribe(&waiting, "https://waiting.test/").await;
    let expected = world.repos(&busy, 150).await.len() + world.repos(&waiting, 150).await.len();
    let sink = Scripted::new(|_, _, _| (Duration::from_millis(900), DeliveryResult::Status(200)));
    // With one lane, the batches of one subscription outlast the lease of the other, which waits for its permit.
    let first = world.deliver(&sink, |options| (options.name, options.lanes) = ("one".to_owned(), 1));
    sink.wait_for("https://waiting.test/", 1).await;
    let second = world.deliver(&sink, |options| options.name = "two".to_owned());
    while sink.ids().iter().collect::<HashSet<_>>().len() < expected {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    first.stop().await;
    second.stop().await;
    assert_eq!(sink.count(), expected, "no event is delivered twice");
}

#[tokio::test(start_paused = true)]
async fn unreferenced_event_data_is_deleted_at_the_start_and_periodically() {
    let world = World::new().await;
    let repo = world.repos(&world.org, 1).await.remove(0);
    let sink = Scripted::accepting();
    let mut delivering = None;
    for _ in 0..2 {
        let group = world.org.clone();
        let deleted =
            [world.subscribe(&group, "https://a.test/").await, world.subscribe(&group, "https://b.test/").await];
        if delivering.is_some() {
            // Leases held by another dispatcher keep this one from delivering while the subscriptions are deleted.
            Outbox::of(&world.platform).acquire_lease(&deleted[0], "another", 60_000).await.unwrap();
            Outbox::of(&world.platform).acquire_lease(&deleted[1], "another", 60_000).await.unwrap();
        }
        world.grow(&repo).await;
        for subscription in &deleted {
            world.platform.delete::<Subscription>(&world.operator, subscription).await.unwrap();
        }
        assert_eq!(world.count("EventBody").await, 1);
        delivering.get_or_insert_with(|| world.deliver(&sink, |_| {}));
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(world.count("EventBody").await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn shared_data_counts_in_full_for_each_subscription() {
    let world = World::new().await;
    let repo = world.repos(&world.org, 1).await.remove(0);
    let a = world.subscribe(&world.org, "https://a.test/").await;
    let b = world.subscribe(&world.org, "https://b.test/").await;
    for _ in 0..20 {
        world.grow(&repo).await;
    }
    let (all, _) = Outbox::of(&world.platform).pending_bytes(&b, None).await.unwrap();
    assert!(all > 20 * 6_000, "{all}");
    let bound = all / 4;
    let sink = Scripted::new(|_, _, _| respond(503));
    let _delivering = world.deliver(&sink, |options| options.policy.backlog_bytes = bound);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for subscription in [&a, &b] {
        let (left, _) = Outbox::of(&world.platform).pending_bytes(subscription, None).await.unwrap();
        assert!(left <= bound, "{left}");
    }
    let dead = world.dead().await.len() as u64;
    assert!((30..=34).contains(&dead), "{dead}");
    assert_eq!(world.count("EventBody").await, 20, "dead letters still refer to it");
}

/// A dispatcher whose clock is ahead takes leases that have not expired. The one that loses them notices it when it settles
/// what it has delivered, and stops: only these events are delivered twice.
#[tokio::test(start_paused = true)]
async fn a_lease_that_a_dispatcher_with_another_clock_took_is_fenced() {
    for skew in [3_600_000, -3_600_000] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let world = World::over(Arc::clone(&store)).await;
        let skewed = World::skewed(store, skew).await;
        let subscription = world.subscribe(&world.org, "https://a.test/").await;
        let sinks = [Scripted::slow(), Scripted::slow()];
        let deliver = |world: &World, sink: &Arc<Scripted>, name: &str| {
            world.deliver(sink, |options| {
                (options.name, options.sweep) = (name.to_owned(), Duration::from_millis(700));
            })
        };
        // The clock that is behind is that of the first holder.
        let (first, second) = if skew > 0 { (&world, &skewed) } else { (&skewed, &world) };
        let _first = deliver(first, &sinks[0], "one");
        let expected = world.repos(&world.org, 40).await;
        sinks[0].wait_for("https://a.test/", 1).await;
        let _second = deliver(second, &sinks[1], "two");
        while world.waiting(&subscription).await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let taken = sinks.each_ref().map(|sink| sink.taken("https://a.test/"));
        let twice = taken[0].len() + taken[1].len() - expected.len();
        assert!((1..=2).contains(&twice), "{twice} events were delivered twice");
        let all: HashSet<_> = taken.iter().flatten().cloned().collect();
        assert_eq!(all, expected.iter().cloned().collect());
        for taken in &taken {
            let start = expected.iter().position(|subject| Some(subject) == taken.first()).unwrap();
            assert_eq!(*taken, expected[start..start + taken.len()], "in order");
        }
        assert_eq!(world.status(&subscription).await.delivered, 40, "each event is settled once");
    }
}
