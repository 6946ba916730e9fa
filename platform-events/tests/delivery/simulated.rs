//! Tests of retries, dead letters, pauses, limits and fairness, over days of tokio's paused clock.

use std::time::Duration;

use platform_core::outbox::Outbox;
use platform_core::resources::events::{DeadLetter, DeadReason, DeliveryStatus, Mode};
use platform_events::DeliveryResult;
use tokio::time::Instant;

use crate::common::{Scripted, World, respond};

const A: &str = "https://a.test/";
const B: &str = "https://b.test/";
const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test(start_paused = true)]
async fn pending_and_new_events_are_delivered_in_order_and_deleted() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    let mut expected = world.repos(&world.org, 250).await;
    let sink = Scripted::accepting();
    let delivering = world.deliver(&sink, |_| {});
    sink.wait_for(A, 250).await;
    expected.extend(world.repos(&world.org, 10).await);
    sink.wait_for(A, 260).await;
    delivering.stop().await;
    assert_eq!(sink.taken(A), expected);
    assert_eq!(world.waiting(&subscription).await, 0);
    let status = world.status(&subscription).await;
    assert_eq!((status.delivered, status.dead, status.holder.as_str()), (260, 0, ""), "the lease was released");
}

#[tokio::test(start_paused = true)]
async fn a_trickle_of_events_is_delivered_at_once_and_settled_in_a_batch() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    let sink = Scripted::accepting();
    let delivering = world.deliver(&sink, |_| {});
    for number in 1..=4 {
        let created = Instant::now();
        world.repos(&world.org, 1).await;
        sink.wait_for(A, number).await;
        assert!(created.elapsed() < Duration::from_millis(5), "{:?}", created.elapsed());
        assert_eq!(world.waiting(&subscription).await, number as u64, "nothing is settled yet");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((world.waiting(&subscription).await, world.status(&subscription).await.delivered), (0, 4));
    delivering.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_is_retried_with_backoff_and_blocks_later_events() {
    let world = World::new().await;
    world.subscribe(&world.org, A).await;
    let expected = world.repos(&world.org, 3).await;
    // Down for an hour: first no response, then retryable and other failures, then 5xx.
    let start = Instant::now();
    let sink = Scripted::new(move |_, _, attempt| match attempt {
        _ if start.elapsed() > Duration::from_secs(3600) => respond(204),
        1 => (Duration::ZERO, DeliveryResult::Failed("connection refused".to_owned())),
        2 => respond(408),
        3 => respond(425),
        4 => respond(429),
        5 => respond(301),
        _ => respond(503),
    });
    let _delivering = world.deliver(&sink, |_| {});
    sink.wait_for(A, 3).await;
    assert_eq!(sink.taken(A), expected);
    let times = sink.times.lock()[A].clone();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((8..20).contains(&gaps.len()), "{gaps:?}");
    for (n, gap) in gaps[..gaps.len() - 2].iter().enumerate() {
        let min = Duration::from_millis(500 << n).min(Duration::from_secs(1800));
        assert!(*gap >= min && *gap <= min * 2 + Duration::from_millis(1200), "{n}: {gap:?}");
    }
    assert!(gaps[gaps.len() - 2..].iter().all(|gap| *gap < Duration::from_millis(100)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_is_not_before_the_time_that_the_sink_asks_for_within_an_hour() {
    let world = World::new().await;
    world.subscribe(&world.org, A).await;
    world.repos(&world.org, 1).await;
    let later = |status, seconds| (Duration::ZERO, DeliveryResult::Later(status, Duration::from_secs(seconds)));
    let sink = Scripted::new(move |_, _, attempt| match attempt {
        1 => later(429, 25),
        2 => later(503, 90),
        3 => later(503, 0),
        4 => later(429, 1_000_000_000),
        5 => later(500, 5),
        _ => respond(200),
    });
    let _delivering = world.deliver(&sink, |_| {});
    sink.wait_for(A, 1).await;
    let times = sink.times.lock()[A].clone();
    let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    // With the backoff alone, they were at most 1, 2, 4, 8 and 16 seconds.
    let wanted = [25..28, 90..93, 2..6, 3600..3603, 8..18];
    assert!(gaps.iter().zip(&wanted).all(|(gap, wanted)| wanted.contains(gap)), "{gaps:?}");
    assert_eq!(gaps.len(), wanted.len());
}

#[tokio::test(start_paused = true)]
async fn a_success_with_a_time_is_a_success() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    world.repos(&world.org, 2).await;
    let sink = Scripted::new(|_, _, _| (Duration::ZERO, DeliveryResult::Later(204, Duration::from_secs(25))));
    let delivering = world.deliver(&sink, |_| {});
    tokio::time::sleep(Duration::from_secs(60)).await;
    delivering.stop().await;
    let status = world.status(&subscription).await;
    assert_eq!((status.delivered, status.failures, world.waiting(&subscription).await), (2, 0, 0));
    assert_eq!(sink.times.lock()[A].len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_given_up_after_three_days_and_the_next_one_has_its_own_deadline() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    let first = world.repos(&world.org, 1).await;
    let sink = Scripted::new(|_, _, _| respond(500));
    let _delivering = world.deliver(&sink, |_| {});
    tokio::time::sleep(2 * DAY).await;
    world.repos(&world.org, 1).await;
    tokio::time::sleep(DAY - Duration::from_secs(3600)).await;
    assert_eq!(world.dead().await.len(), 0);
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    let dead = world.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0].event_subject, dead[0].reason, dead[0].http_status), (&first[0], DeadReason::Expired, 500));
    assert!(dead[0].attempts > 70 && dead[0].attempts < 170, "{}", dead[0].attempts);
    tokio::time::sleep(DAY).await;
    assert_eq!(world.waiting(&subscription).await, 1);
    tokio::time::sleep(DAY).await;
    assert_eq!((world.dead().await.len(), world.waiting(&subscription).await), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_old_event_is_not_given_up_at_its_first_failure() {
    let world = World::new().await;
    world.subscribe(&world.org, A).await;
    world.repos(&world.org, 1).await;
    tokio::time::sleep(4 * DAY).await;
    let sink = Scripted::new(|_, _, attempt| respond(if attempt < 3 { 503 } else { 200 }));
    let _delivering = world.deliver(&sink, |_| {});
    sink.wait_for(A, 1).await;
    assert_eq!(world.dead().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_is_attempted_five_times_and_then_unblocks_later_events() {
    let world = World::new().await;
    world.subscribe(&world.org, A).await;
    let repos = world.repos(&world.org, 20).await;
    let poison = repos[7].clone();
    let is_poison = poison.clone();
    let sink = Scripted::new(move |_, event, _| respond(if event.subject == is_poison { 400 } else { 200 }));
    let start = Instant::now();
    let _delivering = world.deliver(&sink, |_| {});
    sink.wait_for(A, 19).await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let expected: Vec<_> = repos.into_iter().filter(|repo| *repo != poison).collect();
    assert_eq!((sink.taken(A), sink.tries(A)), (expected, 19 + 5));
    let dead = world.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!((&dead[0].event_subject, dead[0].reason, dead[0].attempts), (&poison, DeadReason::Rejected, 5));
}

#[tokio::test(start_paused = true)]
async fn a_410_response_pauses_a_subscription_until_it_is_resumed() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    let mut expected = world.repos(&world.org, 1).await;
    let sink = Scripted::new(|_, _, attempt| respond(if attempt == 1 { 410 } else { 200 }));
    let _delivering = world.deliver(&sink, |_| {});
    tokio::time::sleep(5 * DAY).await;
    expected.extend(world.repos(&world.org, 1).await);
    tokio::time::sleep(DAY).await;
    assert_eq!(sink.tries(A), 1);
    assert_eq!((world.status(&subscription).await.mode, world.waiting(&subscription).await), (Mode::Paused, 2));
    assert!(DeliveryStatus::resume(&world.platform, &subscription).await.unwrap());
    sink.wait_for(A, 1).await;
    // The second event's first attempt was then answered with 410.
    tokio::time::sleep(DAY).await;
    assert!(DeliveryStatus::resume(&world.platform, &subscription).await.unwrap());
    sink.wait_for(A, 2).await;
    assert_eq!(sink.taken(A), expected);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_events_become_dead_letters_when_a_backlog_has_too_many() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    let start = Instant::now();
    let sink = Scripted::new(move |_, _, _| respond(if start.elapsed() < DAY { 503 } else { 200 }));
    let _delivering = world.deliver(&sink, |options| options.policy.backlog = 50);
    let repos = world.repos(&world.org, 120).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.waiting(&subscription).await, 50);
    let dead = world.dead().await;
    assert!(dead.len() == 70 && dead.iter().all(|dead| dead.reason == DeadReason::BacklogFull), "{}", dead.len());
    assert_eq!(world.status(&subscription).await.overflowed, 70);
    sink.wait_for(A, 50).await;
    assert_eq!(sink.taken(A), repos[70..]);
    for (n, letter) in dead.iter().enumerate() {
        assert!(DeadLetter::redeliver(&world.platform, &letter.uid).await.unwrap());
        sink.wait_for(A, 50 + n + 1).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((world.dead().await.len(), world.waiting(&subscription).await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_events_become_dead_letters_when_a_backlog_is_too_large() {
    let world = World::new().await;
    let subscription = world.subscribe(&world.org, A).await;
    let start = Instant::now();
    let sink = Scripted::new(move |_, _, _| respond(if start.elapsed() < DAY { 503 } else { 200 }));
    let repos = world.repos(&world.org, 120).await;
    let (all, _) = Outbox::of(&world.platform).pending_bytes(&subscription, None).await.unwrap();
    let one = all / 120;
    let _delivering = world.deliver(&sink, |options| options.policy.backlog_bytes = one * 50 + one / 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waiting = world.waiting(&subscription).await;
    assert!((48..=52).contains(&waiting), "{waiting}");
    assert!(Outbox::of(&world.platform).pending_bytes(&subscription, None).await.unwrap().0 <= one * 50 + one / 2);
    let dead = world.dead().await;
    assert!(dead.len() as u64 == 120 - waiting && dead.iter().all(|dead| dead.reason == DeadReason::BacklogFull));
    let more = world.repos(&world.org, 30).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(Outbox::of(&world.platform).pending_bytes(&subscription, None).await.unwrap().0 <= one * 50 + one / 2);
    sink.wait_for(A, 40).await;
    let (taken, all) = (sink.taken(A), [repos, more].concat());
    assert_eq!(taken, all[all.len() - taken.len()..], "the newest events are delivered in order");
}

#[tokio::test(start_paused = true)]
async fn the_subscriptions_of_an_organization_share_its_backlog_limit_at_all_levels() {
    let world = World::new().await;
    let group = world.group().await;
    let quiet = world.organization().await;
    let mut subscriptions = Vec::new();
    for n in 0..4 {
        let at = if n % 2 == 0 { &world.org } else { &group };
        subscriptions.push(world.subscribe(at, &format!("https://dead{n}.test/")).await);
    }
    let other = world.subscribe(&quiet, B).await;
    let sink = Scripted::new(|_, _, _| respond(503));
    let bound = 100 * 1024;
    let _delivering = world.deliver(&sink, |options| options.policy.organization_bytes = bound);
    world.repos(&group, 60).await;
    world.repos(&quiet, 50).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let mut bytes = 0;
    for subscription in &subscriptions {
        let own = Outbox::of(&world.platform).pending_bytes(subscription, None).await.unwrap().0;
        assert!(own > bound / 8, "each keeps its share: {own}");
        bytes += own;
    }
    assert!(bytes <= bound, "{bytes}");
    assert_eq!(world.waiting(&other).await, 50, "another organization has its own limit");
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_dead_sink_does_not_delay_others() {
    let world = World::new().await;
    let mut groups = Vec::new();
    for n in 0..40 {
        let group = world.group().await;
        let host = if n % 2 == 0 { "dead" } else { "slow" };
        world.subscribe(&group, &format!("https://{host}{n}.test/")).await;
        world.repos(&group, 3).await;
        groups.push(group);
    }
    let group = world.group().await;
    world.subscribe(&group, B).await;
    let sink = Scripted::new(|sink, _, _| match sink {
        B => respond(200),
        _ if sink.contains("slow") => (Duration::from_secs(8), DeliveryResult::Status(200)),
        _ => (Duration::from_secs(60), DeliveryResult::Status(200)),
    });
    // Fewer troubled lanes than there are bad sinks, and enough other lanes for the first attempts of all of them.
    let _delivering = world.deliver(&sink, |options| (options.lanes, options.troubled_lanes) = (90, 4));
    for _ in 0..50 {
        let start = Instant::now();
        let count = sink.taken(B).len() + 1;
        world.repos(&group, 1).await;
        sink.wait_for(B, count).await;
        assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(sink.taken.lock().keys().any(|sink| sink.contains("slow")), "slow sinks are served too");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_retried_after_the_sink_panics() {
    let world = World::new().await;
    world.subscribe(&world.org, A).await;
    let expected = world.repos(&world.org, 2).await;
    let sink = Scripted::new(|_, _, attempt| if attempt == 1 { panic!("intended by the test") } else { respond(200) });
    let _delivering = world.deliver(&sink, |_| {});
    sink.wait_for(A, 2).await;
    assert_eq!(sink.taken(A), expected);
}

#[tokio::test(start_paused = true)]
async fn one_slow_host_of_many_organizations_does_not_delay_others() {
    let world = World::new().await;
    let quiet = world.organization().await;
    world.subscribe(&quiet, B).await;
    let mut organizations = Vec::new();
    for n in 0..40 {
        let organization = world.organization().await;
        world.subscribe(&organization, &format!("https://slow.test/{n}")).await;
        world.repos(&organization, 3).await;
        organizations.push(organization);
    }
    // Just fast enough not to count as slow.
    let sink = Scripted::new(|sink, _, _| match sink {
        B => respond(200),
        _ => (Duration::from_millis(900), DeliveryResult::Status(200)),
    });
    let _delivering = world.deliver(&sink, |options| (options.lanes, options.troubled_lanes) = (32, 8));
    tokio::time::sleep(Duration::from_millis(450)).await;
    let busy = || sink.in_progress.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(busy(), 16, "one host has half of the lanes");
    for count in 1..=20 {
        let start = Instant::now();
        world.repos(&quiet, 1).await;
        sink.wait_for(B, count).await;
        assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
        for organization in &organizations {
            world.repos(organization, 1).await;
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(busy() <= 16, "{}", busy());
    }
}

#[tokio::test(start_paused = true)]
async fn an_organization_with_more_slow_sinks_than_lanes_does_not_delay_others() {
    let world = World::new().await;
    let quiet = world.organization().await;
    world.subscribe(&quiet, B).await;
    // The maximum number of subscriptions of a group, in several groups.
    for group in 0..3 {
        let group = match group {
            0 => world.org.clone(),
            _ => world.group().await,
        };
        for n in 0..40 {
            world.subscribe(&group, &format!("https://slow{n}.{group}.test/")).await;
        }
        world.repos(&group, 3).await;
    }
    // Healthy, and just fast enough not to count as slow.
    let sink = Scripted::new(|sink, _, _| match sink {
        B => respond(200),
        _ => (Duration::from_millis(900), DeliveryResult::Status(200)),
    });
    let _delivering = world.deliver(&sink, |options| (options.lanes, options.troubled_lanes) = (64, 16));
    tokio::time::sleep(Duration::from_millis(450)).await;
    let busy = || sink.in_progress.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(busy(), 32, "one organization has half of the lanes");
    for count in 1..=20 {
        let start = Instant::now();
        world.repos(&quiet, 1).await;
        sink.wait_for(B, count).await;
        assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
        world.repos(&world.org, 2).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(busy() <= 32, "{}", busy());
    }
}
