//! Tests of recording events during concurrent changes of subscriptions, on every store.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use platform_core::{
    outbox::{Outbox, lost_bodies},
    resources::{
        events::{DeadLetter, Delivery, DeliveryState, Subscription},
        registry::Repo,
    },
};
use platform_engine::{
    kind::Resource,
    store::{Key, Query, Scope, Store, memory::MemoryStore},
    uid::Uid,
};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::common::{Scripted, World, respond};

fn stores(dir: &std::path::Path) -> Vec<Arc<dyn Store>> {
    vec![
        Arc::new(MemoryStore::new()),
        Arc::new(SqliteStore::open(dir.join("events.db")).unwrap()),
        Arc::new(SledStore::open(dir.join("events.sled")).unwrap()),
    ]
}

async fn revision(store: &dyn Store, kind: &'static str, uid: &str) -> u64 {
    let key = Key::new(kind, Uid::opaque(uid));
    store.get(&[key], &[]).await.unwrap().records[0].as_ref().unwrap().revision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_subscription_receives_exactly_the_changes_committed_after_it() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let world = Arc::new(World::over(Arc::clone(&store)).await);
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let world = Arc::clone(&world);
                tokio::spawn(async move { world.repos(&world.org, 30).await })
            })
            .collect();
        let mut subscriptions = Vec::new();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            subscriptions.push(world.subscribe(&world.org, "https://a.test/").await);
        }
        let deleted = subscriptions.remove(0);
        world.platform.delete::<Subscription>(&world.operator, &deleted).await.unwrap();
        let mut repos = Vec::new();
        for writer in writers {
            repos.extend(writer.await.unwrap());
        }
        for subscription in &subscriptions {
            let since = revision(&*store, Subscription::KIND.name, subscription).await;
            let mut expected = BTreeSet::new();
            for repo in &repos {
                let at = revision(&*store, Repo::KIND.name, repo).await;
                if at > since {
                    expected.insert((at, repo.clone()));
                }
            }
            let waiting = Outbox::of(&world.platform).waiting(subscription, None, 10_000).await.unwrap().events;
            let received = waiting.into_iter().map(|pending| pending.event);
            let received: Vec<_> =
                received.filter(|event| event.ty.contains("repo")).map(|event| event.subject).collect();
            let expected: Vec<_> = expected.into_iter().map(|(_, repo)| repo).collect();
            assert_eq!(received, expected, "{store:?}: each once, in commit order");
        }
        let below = Query { count: true, ..Query::new("PendingEvent", Scope::Children(deleted)) };
        assert_eq!(store.list(&below).await.unwrap().total, Some(0), "a deleted subscription has no pending events");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_committed_during_delivery_arrive_in_commit_order_and_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let world = Arc::new(World::over(Arc::clone(&store)).await);
        let subscription = world.subscribe(&world.org, "https://a.test/").await;
        let sink = Scripted::accepting();
        let delivering = world.deliver(&sink, |_| {});
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let world = Arc::clone(&world);
                tokio::spawn(async move { world.repos(&world.org, 50).await })
            })
            .collect();
        let mut expected = Vec::new();
        for writer in writers {
            for repo in writer.await.unwrap() {
                expected.push((revision(&*store, Repo::KIND.name, &repo).await, repo));
            }
        }
        sink.wait_for("https://a.test/", 200).await;
        delivering.stop().await;
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, repo)| repo).collect();
        assert_eq!(sink.taken("https://a.test/"), expected, "{store:?}");
        assert_eq!(world.waiting(&subscription).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_data_is_available_to_each_sink_and_deleted_after_the_last() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let world = Arc::new(World::over(Arc::clone(&store)).await);
        let repos = world.repos(&world.org, 4).await;
        let good: Vec<_> = (0..4).map(|n| format!("https://good{n}.test/")).collect();
        for sink in good.iter().map(String::as_str).chain(["https://bad.test/"]) {
            world.subscribe(&world.org, sink).await;
        }
        // One sink rejects each event once, so that all of them become dead letters.
        let complete = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&complete);
        let sink = Scripted::new(move |sink, event, attempt| {
            let is_complete = event.body::<Repo>().is_some_and(|repo| repo.aliases.len() == 100);
            counted.fetch_add(usize::from(is_complete), Ordering::SeqCst);
            respond(if sink.contains("bad") && attempt == 1 { 400 } else { 200 })
        });
        let delivering = world.deliver(&sink, |options| options.policy.refusals = 1);
        let writers: Vec<_> = repos
            .into_iter()
            .map(|repo| {
                let world = Arc::clone(&world);
                tokio::spawn(async move {
                    for _ in 0..10 {
                        world.grow(&repo).await;
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
            assert_eq!(lost_bodies(&*store).await.unwrap(), [], "{store:?}");
        }
        for (n, name) in good.iter().enumerate() {
            // Includes the events of the subscriptions created after it.
            sink.wait_for(name, 40 + 4 - n).await;
        }
        while world.dead().await.len() < 40 {
            assert_eq!(lost_bodies(&*store).await.unwrap(), [], "{store:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        delivering.stop().await;
        assert_eq!((world.count("PendingEvent").await, world.count("EventBody").await), (0, 40), "{store:?}");
        let delivering = world.deliver(&sink, |_| {});
        for letter in world.dead().await {
            assert!(DeadLetter::redeliver(&world.platform, &letter.uid).await.unwrap());
        }
        sink.wait_for("https://bad.test/", 40).await;
        delivering.stop().await;
        assert_eq!(complete.load(Ordering::SeqCst), 4 * 40 + 2 * 40, "{store:?}");
        assert_eq!((world.count("DeadLetter").await, world.count("EventBody").await), (0, 0), "{store:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_event_is_delivered_and_a_dead_letter_redelivered_by_its_id() {
    let dir = tempfile::tempdir().unwrap();
    for store in stores(dir.path()) {
        let world = World::over(Arc::clone(&store)).await;
        let subscription = world.subscribe(&world.org, "https://a.test/").await;
        let sink = Scripted::new(|_, _, attempt| respond(if attempt == 1 { 400 } else { 200 }));
        let delivering = world.deliver(&sink, |options| options.policy.refusals = 1);
        let run = async |action: usize, request: serde_json::Value| {
            let request = request.as_object().unwrap().clone();
            let subscriptions = world.platform.registered().iter().find(|one| one.kind.name == "Subscription");
            let action = &subscriptions.unwrap().actions[action];
            world.platform.run(Some(&world.operator), Subscription::KIND, action, &request).await.unwrap()
        };
        let sent = run(0, serde_json::json!({ "uid": subscription })).await;
        while world.dead().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run(1, serde_json::json!({ "uid": subscription, "eventId": sent["eventId"] })).await;
        sink.wait_for("https://a.test/", 1).await;
        delivering.stop().await;
        assert_eq!(sink.ids(), [sent["eventId"].as_str().unwrap()], "{store:?}");
        let row: Delivery = world.platform.get(&world.operator, &format!("{subscription}/{:016x}", 2)).await.unwrap();
        assert_eq!((row.state, row.event_id.as_str()), (DeliveryState::Delivered, sink.ids()[0].as_str()), "{store:?}");
        let request = row.request.unwrap();
        assert_eq!((request.body.contains(subscription.as_str()), request.truncated), (true, false), "{store:?}");
    }
}
