//! Several dispatchers over one store, and what ends without a word.

use std::{collections::HashSet, sync::Arc, time::Duration};

use platform_core::resources::events::Subscription;
use platform_events::Answer;

use crate::common::{Scripted, World, at_once};

#[tokio::test(start_paused = true)]
async fn two_dispatchers_share_the_work_and_deliver_nothing_twice() {
    let world = World::new().await;
    let mut groups = Vec::new();
    for n in 0..30 {
        let group = world.group().await;
        world.subscribe(&group, &format!("https://sink{n}.test/")).await;
        groups.push(group);
    }
    // Each takes its time, so that both are at work at once; the sink refuses to be handed two events at a time.
    let by = |name: &str| Scripted::named(name);
    let (one, two) = (by("one"), by("two"));
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
    assert_eq!(one.count() + two.count(), expected, "nothing came twice");
    let ids: HashSet<_> = [&one, &two].into_iter().flat_map(|sink| sink.ids()).collect();
    assert_eq!(ids.len(), expected);
    assert!(one.count() > 0 && two.count() > 0, "both worked: {} and {}", one.count(), two.count());
}

#[tokio::test(start_paused = true)]
async fn what_a_dispatcher_leaves_that_ends_without_a_word_another_delivers_when_its_lease_is_over() {
    let world = World::new().await;
    world.subscribe(&world.org, "https://a.test/").await;
    let sink = Scripted::new(|_, _, _| (Duration::from_millis(20), Answer::Status(200)));
    let crashed = world.deliver(&sink, |options| options.name = "one".to_owned());
    let expected = world.repos(&world.org, 100).await;
    sink.has("https://a.test/", 30).await;
    drop(crashed);
    let before = sink.taken("https://a.test/").len();
    let begun = tokio::time::Instant::now();
    let _second = world.deliver(&sink, |options| options.name = "two".to_owned());
    sink.has("https://a.test/", before + 1).await;
    assert!(begun.elapsed() > Duration::from_secs(15), "the lease was held: {:?}", begun.elapsed());
    while sink.taken("https://a.test/").last() != expected.last() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // At least once, in order, and again with the id that they had.
    let (mut subjects, mut ids) = (Vec::new(), HashSet::new());
    for (subject, id) in &sink.taken.lock()["https://a.test/"] {
        if ids.insert(id.clone()) {
            subjects.push(subject.clone());
        }
    }
    assert_eq!(subjects, expected);
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_with_its_name_goes_on_at_once() {
    let world = World::new().await;
    world.subscribe(&world.org, "https://a.test/").await;
    let sink = Scripted::new(|_, _, attempt| at_once(if attempt == 1 { 503 } else { 200 }));
    drop(world.deliver(&sink, |_| {}));
    world.repos(&world.org, 10).await;
    let crashed = world.deliver(&sink, |_| {});
    sink.has("https://a.test/", 3).await;
    drop(crashed);
    let begun = tokio::time::Instant::now();
    let sink = Scripted::good();
    let _again = world.deliver(&Arc::clone(&sink), |_| {});
    sink.has("https://a.test/", 7).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_waited_for_its_turn_longer_than_its_lease_delivers_nothing_that_is_anothers_by_now() {
    let world = World::new().await;
    let (busy, waits) = (world.group().await, world.group().await);
    world.subscribe(&busy, "https://busy.test/").await;
    world.subscribe(&waits, "https://waits.test/").await;
    let expected = world.repos(&busy, 150).await.len() + world.repos(&waits, 150).await.len();
    let sink = Scripted::new(|_, _, _| (Duration::from_millis(900), Answer::Status(200)));
    // The turns of one grow longer than a lease, and the other waits for its own meanwhile.
    let first = world.deliver(&sink, |options| (options.name, options.lanes) = ("one".to_owned(), 1));
    sink.has("https://waits.test/", 1).await;
    let second = world.deliver(&sink, |options| options.name = "two".to_owned());
    while sink.ids().iter().collect::<HashSet<_>>().len() < expected {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    first.stop().await;
    second.stop().await;
    assert_eq!(sink.count(), expected, "nothing came twice");
}

#[tokio::test(start_paused = true)]
async fn data_that_nothing_refers_to_is_deleted_when_a_dispatcher_begins_and_later() {
    let world = World::new().await;
    let repo = world.repos(&world.org, 1).await.remove(0);
    let sink = Scripted::good();
    let mut delivering = None;
    for _ in 0..2 {
        let group = world.org.clone();
        let gone = [world.subscribe(&group, "https://a.test/").await, world.subscribe(&group, "https://b.test/").await];
        if delivering.is_some() {
            // What waits is left to itself while its subscriptions are deleted.
            world.platform.outbox().take(&gone[0], "another", 60_000).await.unwrap();
            world.platform.outbox().take(&gone[1], "another", 60_000).await.unwrap();
        }
        world.grow(&repo).await;
        for subscription in &gone {
            world.platform.delete::<Subscription>(&world.operator, subscription).await.unwrap();
        }
        assert_eq!(world.count("EventBody").await, 1);
        delivering.get_or_insert_with(|| world.deliver(&sink, |_| {}));
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(world.count("EventBody").await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn shared_data_counts_in_full_at_each_subscription() {
    let world = World::new().await;
    let repo = world.repos(&world.org, 1).await.remove(0);
    let a = world.subscribe(&world.org, "https://a.test/").await;
    let b = world.subscribe(&world.org, "https://b.test/").await;
    for _ in 0..20 {
        world.grow(&repo).await;
    }
    let (all, _) = world.platform.outbox().weigh(&b, None).await.unwrap();
    assert!(all > 20 * 6_000, "{all}");
    let bound = all / 4;
    let sink = Scripted::new(|_, _, _| at_once(503));
    let _delivering = world.deliver(&sink, |options| options.policy.backlog_bytes = bound);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for subscription in [&a, &b] {
        let (left, _) = world.platform.outbox().weigh(subscription, None).await.unwrap();
        assert!(left <= bound, "{left}");
    }
    let dead = world.dead().await.len() as u64;
    assert!((30..=34).contains(&dead), "{dead}");
    assert_eq!(world.count("EventBody").await, 20, "of what is given up dead letters have it");
}
