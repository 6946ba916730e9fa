//! Event data that several subscriptions share: recorded once, delivered to each, deleted with the last reference.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use platform_core::{
    outbox::{Outbox, lost_bodies},
    resources::events::DeadLetter,
};
use platform_engine::store::{
    Commit, Committed, Delete, Epoch, Key, Page, Put, Query, Read, Scope, Store, StoreError, memory::MemoryStore,
};
use platform_testkit::{Call, GatedStore, Rng};

use super::*;

/// A memory store that records puts and, while `fail_body_deletes` is set, rejects deletes of shared data.
#[derive(Debug, Default)]
struct ObservedStore {
    store: MemoryStore,
    puts: Arc<Mutex<Vec<Put>>>,
    fail_body_deletes: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Store for ObservedStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let is_body = |delete: &Delete| matches!(delete, Delete::Key(key) if key.kind == EVENT_BODY);
        if self.fail_body_deletes.load(Ordering::SeqCst) && commit.delete.iter().any(is_body) {
            return Err(StoreError::Unavailable("deletes of event bodies fail".into()));
        }
        let puts = commit.put.clone();
        let committed = self.store.commit(commit).await?;
        self.puts.lock().unwrap().extend(puts);
        Ok(committed)
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

const EVENT_BODY: &str = "EventBody";

/// Returns the size of records in bytes, including their keys.
fn bytes(puts: &[Put]) -> usize {
    let keys = |put: &Put| -> usize {
        put.filter.iter().chain(&put.sort).map(|(name, value)| name.len() + value.as_bytes().len()).sum()
    };
    puts.iter().map(|put| put.key.uid.len() + put.body.len() + put.private.len() + keys(put)).sum()
}

/// Returns a text of this length that no earlier change had.
fn long(world: &World, len: usize) -> String {
    let text = format!("{} ", world.serial());
    text.chars().chain("lorem ipsum \"dolor\" \u{fc}ber \\ ".chars().cycle()).take(len).collect()
}

/// Changes a readme to a new text of this length.
fn change(world: &World, repo: &Uid, len: usize) -> String {
    let content = long(world, len);
    world.update(&world.operator, "RepoReadme", repo, json!({ "content": content }), None).unwrap();
    content
}

/// Changes a repo to about this many bytes, up to 90,000.
fn grow(world: &World, repo: &Uid, len: usize) {
    let serial = world.serial();
    let filling = "a".repeat((len / 100).saturating_sub(20));
    let aliases: Vec<_> = (0..100).map(|n| format!("{serial:08}{n:03}{filling}:latest")).collect();
    world.update(&world.operator, "Repo", repo, json!({ "aliases": aliases }), None).unwrap();
}

/// Deletes all orphaned shared data; looks at three bodies at a time.
fn sweep(world: &World) {
    let mut last = None;
    loop {
        last = block_on(Outbox::of(&world.platform).delete_orphaned_bodies(last.as_ref(), 3)).unwrap();
        if last.is_none() {
            return;
        }
    }
}

fn assert_none_lost(world: &World) {
    assert_eq!(block_on(lost_bodies(world.platform.store())).unwrap(), []);
}

/// Leases a subscription, records the outcome of its first pending event and returns that event.
fn settle_first(world: &World, subscription: &Uid, outcome: Outcome) -> PendingEvent {
    let mut lease = lease(world, subscription, "test");
    let pending = pending_events(world, subscription).remove(0);
    assert!(settle(world, &mut lease, vec![(pending.clone(), outcome)]));
    pending
}

fn dead() -> Outcome {
    Outcome::Dead(DeadReason::Rejected, Some(failure(400)))
}

fn count(world: &World, kind: &'static str) -> u64 {
    let all = Query { count: true, limit: 1, ..Query::new(kind, Scope::All) };
    block_on(world.platform.store().list(&all)).unwrap().total.unwrap()
}

#[test]
fn data_of_a_large_change_is_recorded_once_for_all_subscriptions() {
    let store = ObservedStore::default();
    let puts = Arc::clone(&store.puts);
    let world = World::over(Arc::new(store));
    let repo = world.repo(&world.org);
    let subscriptions: Vec<_> = (0..100).map(|_| subscribe(&world, &world.org)).collect();
    puts.lock().unwrap().clear();
    let content = change(&world, &repo, 100_000);
    let puts = std::mem::take(&mut *puts.lock().unwrap());
    let recorded: Vec<_> =
        puts.into_iter().filter(|put| put.key.kind != "RepoReadme" && put.key.kind != "Repo").collect();
    // One copy of the data, and at most 2,000 bytes for each subscription.
    assert!((100_000..300_000).contains(&bytes(&recorded)), "{} bytes in {} records", bytes(&recorded), recorded.len());
    for subscription in subscriptions.iter().step_by(33) {
        let last = pending_events(&world, subscription).pop().unwrap();
        let data: Value = serde_json::from_str(&last.event.data).unwrap();
        assert_eq!(text(&data["body"], "content"), content);
        assert!(last.event.weight() > 100_000, "{}", last.event.weight());
    }
}

#[test]
fn data_of_a_small_change_is_recorded_with_each_subscription() {
    let store = ObservedStore::default();
    let puts = Arc::clone(&store.puts);
    let world = World::over(Arc::new(store));
    let subscriptions: Vec<_> = (0..3).map(|_| subscribe(&world, &world.org)).collect();
    puts.lock().unwrap().clear();
    world.repo(&world.org);
    let puts = std::mem::take(&mut *puts.lock().unwrap());
    let mut kinds: Vec<_> = puts.iter().map(|put| put.key.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["PendingEvent", "PendingEvent", "PendingEvent", "Repo"]);
    for put in puts.iter().filter(|put| put.key.kind == "PendingEvent") {
        assert!(put.filter.is_empty() && put.sort.is_empty() && put.private.is_empty(), "{put:?}");
        let fields: Value = serde_json::from_slice(&put.body).unwrap();
        let fields: Vec<_> = fields["event"].as_object().unwrap().keys().cloned().collect();
        let expected = ["id", "type", "source", "subject", "time", "group", "extensions", "data"];
        assert_eq!(fields, expected);
    }
    assert_eq!(pending_events(&world, &subscriptions[0]).len(), 3);
    assert_eq!(count(&world, "PendingEvent"), 3 + 2 + 1);
}

#[test]
fn data_of_a_large_change_with_one_subscription_is_not_shared() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let subscription = subscribe(&world, &world.org);
    grow(&world, &repo, 20_000);
    assert_eq!(count(&world, EVENT_BODY), 0);
    assert!(pending_events(&world, &subscription)[0].event.data.len() > 10_000);
}

#[test]
fn shared_data_is_deleted_after_the_last_event_and_dead_letter_that_refers_to_it() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let [a, b, c] = std::array::from_fn(|_| subscribe(&world, &world.org));
    // The earlier subscriptions have the events of the later ones' creation.
    for (subscription, events) in [(&a, 2), (&b, 1)] {
        (0..events).for_each(|_| drop(settle_first(&world, subscription, Outcome::Delivered(200))));
    }
    let mut stream = world.platform.subscribe(&world.org);
    grow(&world, &repo, 20_000);
    let Some(platform_engine::event::StreamItem::Event { event: streamed, .. }) = block_on(stream.next()) else {
        panic!("expected an event")
    };
    assert!(streamed.event_body.is_none(), "a stream has the event in memory");
    assert_eq!(count(&world, EVENT_BODY), 1);
    let delivered = settle_first(&world, &a, Outcome::Delivered(200));
    assert_eq!(delivered.event.data, streamed.data);
    let dead_lettered = settle_first(&world, &b, dead());
    assert_eq!(dead_lettered.event.data, streamed.data);
    settle_first(&world, &c, Outcome::Delivered(200));
    assert_eq!((count(&world, EVENT_BODY), count(&world, "PendingEvent")), (1, 0), "the dead letter refers to it");
    let key = Key::new("DeadLetter", dead_lettered.uid.clone());
    let record = block_on(world.platform.store().get(&[key], &[])).unwrap().records.remove(0).unwrap();
    assert!(record.private.len() < 1000, "{}", record.private.len());
    sweep(&world);
    assert!(block_on(DeadLetter::redeliver(&world.platform, &dead_lettered.uid)).unwrap());
    let again = settle_first(&world, &b, Outcome::Delivered(200));
    assert_eq!((&again.event.id, &again.event.data), (&streamed.id, &streamed.data));
    assert_eq!((count(&world, EVENT_BODY), count(&world, "DeadLetter")), (0, 0));
}

#[test]
fn orphaned_shared_data_is_deleted() {
    let store = ObservedStore::default();
    let fail_body_deletes = Arc::clone(&store.fail_body_deletes);
    let world = World::over(Arc::new(store));
    let group = world.group(&world.org);
    let repo = world.repo(&group);
    let subscriptions: Vec<_> = (0..3).map(|_| subscribe(&world, &group)).collect();
    (0..20).for_each(|_| grow(&world, &repo, 6_000));
    assert_eq!(count(&world, EVENT_BODY), 20);
    sweep(&world);
    assert_eq!(count(&world, EVENT_BODY), 20, "all are referenced");
    // Orphans of a crash between recording the outcome and deleting the data.
    fail_body_deletes.store(true, Ordering::SeqCst);
    for subscription in &subscriptions {
        let mut lease = lease(&world, subscription, "test");
        let large =
            pending_events(&world, subscription).into_iter().filter(|pending| pending.event.event_body.is_some());
        let some = large.take(5).map(|pending| (pending, Outcome::Delivered(200))).collect();
        assert!(settle(&world, &mut lease, some), "recording the outcome succeeds nevertheless");
    }
    assert_eq!(count(&world, EVENT_BODY), 20);
    fail_body_deletes.store(false, Ordering::SeqCst);
    sweep(&world);
    assert_eq!(count(&world, EVENT_BODY), 15);
    assert_none_lost(&world);
    // Orphans of deleted subscriptions, alone and with their group.
    world.delete(&world.operator, "Subscription", &subscriptions[0]).unwrap();
    sweep(&world);
    assert_eq!(count(&world, EVENT_BODY), 15);
    world.delete(&world.operator, "Repo", &repo).unwrap();
    world.delete(&world.operator, "Group", &group).unwrap();
    assert_eq!(count(&world, EVENT_BODY), 15);
    sweep(&world);
    assert_eq!(count(&world, EVENT_BODY), 0);
}

#[test]
fn shared_data_of_evicted_dead_letters_is_deleted() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let subscriptions: Vec<_> = (0..2).map(|_| subscribe(&world, &world.org)).collect();
    settle_first(&world, &subscriptions[0], Outcome::Delivered(200));
    for _ in 0..20 {
        grow(&world, &repo, 6_000);
        for subscription in &subscriptions {
            let mut lease = lease(&world, subscription, "test");
            let mut pending = pending_events(&world, subscription).remove(0);
            // Pretends that the data is this long.
            pending.event.event_body.as_mut().unwrap().len = 1 << 20;
            assert!(settle(&world, &mut lease, vec![(pending, dead())]));
        }
    }
    assert_eq!((count(&world, "DeadLetter"), count(&world, EVENT_BODY)), (30, 15));
    assert_none_lost(&world);
}

#[test]
fn shared_data_of_an_organization_is_deleted_with_it() {
    let world = World::new();
    let organization = world.organization();
    let group = world.group(&organization);
    let repo = world.repo(&group);
    (0..2).for_each(|_| drop(subscribe(&world, &organization)));
    grow(&world, &repo, 20_000);
    world.delete(&world.operator, "Repo", &repo).unwrap();
    world.delete(&world.operator, "Group", &group).unwrap();
    assert_eq!(count(&world, EVENT_BODY), 1);
    world.delete(&world.operator, "Group", &organization).unwrap();
    assert_eq!((count(&world, EVENT_BODY), count(&world, "PendingEvent")), (0, 0));
}

#[test]
fn shared_data_is_read_at_most_4_mib_at_a_time_and_counts_in_full() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let subscriptions: Vec<_> = (0..2).map(|_| subscribe(&world, &world.org)).collect();
    let subscription = &subscriptions[1];
    (0..70).for_each(|_| grow(&world, &repo, 90_000));
    let outbox = Outbox::of(&world.platform);
    let (mut after, mut read) = (None, Vec::new());
    loop {
        let some = block_on(outbox.waiting(subscription, after, 1000)).unwrap();
        let bytes: usize = some.events.iter().map(|pending| pending.event.data.len()).sum();
        assert!(bytes <= 4 << 20, "{bytes}");
        assert_eq!(some.total, 70);
        after = some.last;
        read.extend(some.events);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(read.len(), 70);
    let bytes: usize = read.iter().map(|pending| pending.event.data.len() + 1024).sum();
    let (weight, _) = block_on(outbox.pending_bytes(subscription, None)).unwrap();
    assert_eq!(weight, bytes as u64);
    assert!(bytes > 6_000_000, "{bytes}");
}

#[test]
fn an_event_delivered_while_it_is_read_is_omitted() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let repo = world.repo(&world.org);
    let subscriptions: Vec<_> = (0..2).map(|_| subscribe(&world, &world.org)).collect();
    settle_first(&world, &subscriptions[0], Outcome::Delivered(200));
    grow(&world, &repo, 20_000);
    settle_first(&world, &subscriptions[0], Outcome::Delivered(200));
    let read = gate.interleave(
        Call::Get,
        || pending_events(&world, &subscriptions[1]),
        || drop(settle_first(&world, &subscriptions[1], Outcome::Delivered(200))),
    );
    assert_eq!(read, []);
    assert_eq!(count(&world, EVENT_BODY), 0);
}

#[test]
fn a_delivered_event_does_not_become_a_dead_letter_without_its_data() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let subscriptions: Vec<_> = (0..2).map(|_| subscribe(&world, &world.org)).collect();
    settle_first(&world, &subscriptions[0], Outcome::Delivered(200));
    grow(&world, &repo, 20_000);
    settle_first(&world, &subscriptions[0], Outcome::Delivered(200));
    let mut lease = lease(&world, &subscriptions[1], "test");
    let pending = pending_events(&world, &subscriptions[1]).remove(0);
    assert!(settle(&world, &mut lease, vec![(pending.clone(), Outcome::Delivered(200))]));
    assert!(!settle(&world, &mut lease, vec![(pending, dead())]));
    assert_eq!((count(&world, EVENT_BODY), count(&world, "DeadLetter")), (0, 0));
}

#[test]
fn lost_shared_data_is_detected_and_never_delivered_as_empty() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let subscriptions: Vec<_> = (0..2).map(|_| subscribe(&world, &world.org)).collect();
    settle_first(&world, &subscriptions[0], Outcome::Delivered(200));
    (0..2).for_each(|_| grow(&world, &repo, 20_000));
    let dead_lettered = settle_first(&world, &subscriptions[0], dead());
    assert_none_lost(&world);
    let body = dead_lettered.event.event_body.unwrap().uid;
    let delete = vec![Delete::Key(Key::new(EVENT_BODY, body.clone()))];
    block_on(world.platform.store().commit(Commit { delete, ..Commit::default() })).unwrap();
    let lost = block_on(lost_bodies(world.platform.store())).unwrap();
    let kinds: Vec<_> = lost.iter().map(|(key, _)| key.kind).collect();
    assert_eq!(kinds, ["PendingEvent", "DeadLetter"]);
    assert!(lost.iter().all(|(_, lost)| *lost == body), "{lost:?}");
    assert_eq!(code(block_on(Outbox::of(&world.platform).waiting(&subscriptions[1], None, 1))), Code::Internal);
    assert_eq!(pending_events(&world, &subscriptions[0]).len(), 1, "others are delivered");
}

/// Random changes, deliveries, failures, redeliveries, deletes and sweeps never lose data, and none remains at the end.
#[test]
fn shared_data_exists_while_something_refers_to_it() {
    for seed in 0..10 {
        let store = ObservedStore::default();
        let fail_body_deletes = Arc::clone(&store.fail_body_deletes);
        let (world, mut rng) = (World::over(Arc::new(store)), Rng::new(seed));
        let groups = [world.org.clone(), world.group(&world.org)];
        let repo = world.repo(&groups[1]);
        let mut subscriptions: Vec<_> = (0..4).map(|n| subscribe(&world, &groups[n % 2])).collect();
        for _ in 0..120 {
            fail_body_deletes.store(rng.one_in(4), Ordering::SeqCst);
            let subscription = rng.pick(&subscriptions).clone();
            match rng.below(9) {
                0..3 => grow(&world, &repo, *rng.pick(&[100, 5_000, 9_000])),
                3..6 if !pending_events(&world, &subscription).is_empty() => {
                    let mut lease = lease(&world, &subscription, "test");
                    let mut some = pending_events(&world, &subscription);
                    some.truncate(1 + rng.below(3));
                    let outcome = |pending: PendingEvent| {
                        assert!(!pending.event.data.is_empty());
                        (pending, if rng.one_in(2) { dead() } else { Outcome::Delivered(200) })
                    };
                    let outcomes = some.into_iter().map(outcome).collect();
                    assert!(settle(&world, &mut lease, outcomes));
                }
                6 => {
                    let letters = world.list(&world.operator, "DeadLetter", &[]).unwrap().uids();
                    if !letters.is_empty() {
                        let letter = Uid::opaque(rng.pick(&letters).clone());
                        assert!(block_on(DeadLetter::redeliver(&world.platform, &letter)).unwrap());
                    }
                }
                7 if rng.one_in(4) => {
                    world.delete(&world.operator, "Subscription", &subscription).unwrap();
                    subscriptions.retain(|other| *other != subscription);
                    subscriptions.push(subscribe(&world, &groups[rng.below(2)]));
                }
                _ if !fail_body_deletes.load(Ordering::SeqCst) => sweep(&world),
                _ => {}
            }
            assert_none_lost(&world);
        }
        fail_body_deletes.store(false, Ordering::SeqCst);
        sweep(&world);
        let mut referred: BTreeSet<Uid> = BTreeSet::new();
        for subscription in &subscriptions {
            referred
                .extend(pending_events(&world, subscription).into_iter().filter_map(|p| Some(p.event.event_body?.uid)));
        }
        for letter in world.walk(&world.operator, "DeadLetter", &[]) {
            let key = Key::new("DeadLetter", uid_of(&letter));
            let record = block_on(world.platform.store().get(&[key], &[])).unwrap().records.remove(0).unwrap();
            let event: platform_engine::event::Event = serde_json::from_slice(&record.private).unwrap();
            referred.extend(event.event_body.map(|body| body.uid));
        }
        assert_eq!(count(&world, EVENT_BODY), referred.len() as u64, "seed {seed}");
        for subscription in subscriptions {
            world.delete(&world.operator, "Subscription", &subscription).unwrap();
        }
        sweep(&world);
        assert_eq!(count(&world, EVENT_BODY), 0);
    }
}
