//! Tests of several processes over one store that notify each other of events.

use std::{collections::HashSet, sync::Arc, time::Duration};

use platform_engine::store::memory::MemoryStore;
use platform_events::{DeliveryResult, Wakeups};
use tokio::{task::JoinSet, time::Instant};

use crate::common::{Scripted, World};

/// Two platforms over one store, and the tasks that carry their messages.
struct Pair {
    worlds: [World; 2],
    wakeups: [Arc<Wakeups>; 2],
    _carriers: JoinSet<()>,
}

impl Pair {
    /// `carries` is whether messages arrive.
    async fn new(carries: bool) -> Self {
        let store = Arc::new(MemoryStore::new());
        let wakeups = ["one", "two"].map(|name| Arc::new(Wakeups::new(name)));
        let [one, two] = &wakeups;
        let worlds =
            [World::waking(store.clone(), Some(one.clone())).await, World::waking(store, Some(two.clone())).await];
        worlds[1].number_from(1_000_000);
        let mut carriers = JoinSet::new();
        for from in wakeups.clone() {
            let to: Vec<_> =
                wakeups.iter().cloned().zip(worlds.iter().map(|world| Arc::clone(&world.platform))).collect();
            carriers.spawn(async move {
                loop {
                    let message = from.next().await;
                    // As the database does, to all processes and so to the sender too.
                    for (wakeups, platform) in to.iter().filter(|_| carries) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        wakeups.received(platform, &message).await.unwrap();
                    }
                }
            });
        }
        Self { worlds, wakeups, _carriers: carriers }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_another_process_records_is_delivered_without_the_sweep() {
    let pair = Pair::new(true).await;
    let [recording, delivering] = &pair.worlds;
    recording.subscribe(&recording.org, "https://a.test/").await;
    let sink = Scripted::accepting();
    // Only the second process delivers, and its sweep is a day away.
    let _delivering = delivering.deliver(&sink, |options| options.sweep = Duration::from_secs(24 * 3600));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for count in 1..=3 {
        let start = Instant::now();
        recording.repos(&recording.org, 1).await;
        sink.wait_for("https://a.test/", count).await;
        assert!(start.elapsed() <= Duration::from_millis(100), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(pair.wakeups[0].take(), None, "every message was carried");
}

#[tokio::test(start_paused = true)]
async fn an_event_for_a_lane_of_another_process_reaches_that_lane() {
    let pair = Pair::new(true).await;
    let [one, two] = &pair.worlds;
    one.subscribe(&one.org, "https://a.test/").await;
    let sink = Scripted::accepting();
    let deliver = |world: &World, name: &str| {
        world.deliver(&sink, |options| {
            (options.name, options.sweep) = (name.to_owned(), Duration::from_secs(24 * 3600));
        })
    };
    let _second = deliver(two, "two");
    two.repos(&two.org, 1).await;
    sink.wait_for("https://a.test/", 1).await;
    // The second process holds the lease of the subscription; the first records further events.
    let _first = deliver(one, "one");
    for count in 2..=20 {
        let start = Instant::now();
        one.repos(&one.org, 1).await;
        sink.wait_for("https://a.test/", count).await;
        assert!(start.elapsed() <= Duration::from_millis(100), "event {count}: {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(sink.ids().iter().collect::<HashSet<_>>().len(), sink.count(), "no event is delivered twice");
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_delays_an_event_until_the_sweep() {
    let pair = Pair::new(false).await;
    let [recording, delivering] = &pair.worlds;
    recording.subscribe(&recording.org, "https://a.test/").await;
    let sink = Scripted::accepting();
    let _delivering = delivering.deliver(&sink, |_| {});
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    recording.repos(&recording.org, 1).await;
    sink.wait_for("https://a.test/", 1).await;
    // This is how a test of the messages would fail without them.
    assert!((1..=10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn after_missed_messages_all_subscriptions_with_pending_events_are_woken() {
    let pair = Pair::new(false).await;
    let [recording, delivering] = &pair.worlds;
    let sink = Scripted::accepting();
    let _delivering = delivering.deliver(&sink, |options| options.sweep = Duration::from_secs(24 * 3600));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..250 {
        let group = recording.group().await;
        recording.subscribe(&group, &format!("https://sink{n}.test/")).await;
        recording.repos(&group, 1).await;
    }
    assert_eq!(sink.count(), 0);
    Wakeups::missed(&delivering.platform).await.unwrap();
    while sink.count() < 250 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_hands_its_lanes_to_another_at_once() {
    let pair = Pair::new(true).await;
    let [one, two] = &pair.worlds;
    one.subscribe(&one.org, "https://a.test/").await;
    let sink = Scripted::new(|_, _, _| (Duration::from_millis(400), DeliveryResult::Status(200)));
    let deliver = |world: &World, name: &str| {
        world.deliver(&sink, |options| {
            (options.name, options.sweep) = (name.to_owned(), Duration::from_secs(24 * 3600));
        })
    };
    let first = deliver(one, "one");
    let expected = one.repos(&one.org, 30).await;
    sink.wait_for("https://a.test/", 3).await;
    let _second = deliver(two, "two");
    tokio::time::sleep(Duration::from_secs(2)).await;
    first.stop().await;
    let (start, before) = (Instant::now(), sink.count());
    sink.wait_for("https://a.test/", before + 1).await;
    assert!(start.elapsed() < Duration::from_secs(3), "the lease would have lasted longer: {:?}", start.elapsed());
    sink.wait_for("https://a.test/", 30).await;
    assert_eq!(sink.taken("https://a.test/"), expected, "in order, none twice");
}

#[tokio::test(start_paused = true)]
async fn when_one_of_two_processes_is_killed_no_event_is_lost_and_the_order_stays() {
    let pair = Pair::new(true).await;
    let [one, two] = &pair.worlds;
    let mut groups = Vec::new();
    for n in 0..6 {
        let group = one.group().await;
        one.subscribe(&group, &format!("https://sink{n}.test/")).await;
        groups.push(group);
    }
    let sink = Scripted::new(|_, _, _| (Duration::from_millis(50), DeliveryResult::Status(200)));
    let deliver = |world: &World, name: &str| world.deliver(&sink, |options| options.name = name.to_owned());
    let mut first = deliver(one, "one 0");
    let _second = deliver(two, "two");
    let mut expected = vec![Vec::new(); groups.len()];
    for round in 1..=5 {
        for (group, expected) in groups.iter().zip(&mut expected) {
            expected.extend(one.repos(group, 3).await);
            expected.extend(two.repos(group, 3).await);
        }
        // Dropping a dispatcher ends it in the middle of its attempts, and its leases remain. It starts again under
        // another name, as a process that is killed and restarted does.
        drop(first);
        first = deliver(one, &format!("one {round}"));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    for (n, expected) in expected.iter().enumerate() {
        let name = format!("https://sink{n}.test/");
        while sink.taken(&name).last() != expected.last() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut seen = HashSet::new();
        let taken = sink.taken.lock()[&name].clone();
        let once: Vec<_> = taken.into_iter().filter(|(_, id)| seen.insert(id.clone())).collect();
        assert_eq!(once.into_iter().map(|(subject, _)| subject).collect::<Vec<_>>(), *expected, "{name}");
    }
}

/// The mistake that names of dispatchers prevent: with one name, each takes the lease of the other as its own.
#[tokio::test(start_paused = true)]
async fn two_dispatchers_of_one_name_deliver_events_twice() {
    let pair = Pair::new(true).await;
    let [one, two] = &pair.worlds;
    one.subscribe(&one.org, "https://a.test/").await;
    let (first_sink, second_sink) = (Scripted::slow(), Scripted::slow());
    let _first = one.deliver(&first_sink, |options| options.name = "server".to_owned());
    let _second = two.deliver(&second_sink, |options| options.name = "server".to_owned());
    let expected = one.repos(&one.org, 30).await;
    let delivered = || [&first_sink, &second_sink].into_iter().flat_map(|sink| sink.ids()).collect::<Vec<_>>();
    while delivered().iter().collect::<HashSet<_>>().len() < expected.len() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(delivered().len() > expected.len(), "each event was delivered once");
}
