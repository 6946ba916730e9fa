//! Values that the store refuses, bounds, and distinguishes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use platform_engine::{
    store::{
        Commit, Conflict, Delete, Epoch, Filter, Key, KeyValue, Order, OrderBy, Position, Put, Query, Require, Scope,
        Store, StoreError,
    },
    uid::Uid,
};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;

use crate::common::{client, empty, fill, open, puts, thing};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

fn uid(text: &str) -> Uid {
    Uid::opaque(text)
}

fn colored(at: &str, color: &str) -> Put {
    Put { filter: vec![("color", KeyValue::text(color))], ..thing(at) }
}

fn none_with(color: &str) -> Require {
    Require::NoneWith("Thing", "color", KeyValue::text(color))
}

/// Takes the gate, as a batch does, until the client is dropped.
async fn take_gate(url: &str, function: &str) -> tokio_postgres::Client {
    let client = client(url).await;
    let instance = client.query_one("SELECT replace(instance::text, '-', '') FROM layout", &[]).await.unwrap();
    let salt = u64::from_str_radix(&instance.get::<_, String>(0)[..16], 16).unwrap();
    let gate = salt.rotate_left(32).wrapping_add(1).cast_signed();
    client.batch_execute(&format!("BEGIN; SELECT {function}({gate})")).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_excludes_a_value_does_not_wait_for_commits_without_it() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "excludes").await;
    let store = open(&url).await;
    store.commit(puts([colored("a/1", "red")])).await.unwrap();
    // A batch of another server.
    let other = take_gate(&url, "pg_advisory_xact_lock_shared").await;
    for (color, is_free) in [("blue", true), ("red", false)] {
        let delete = vec![Delete::Key(Key::new("Thing", uid("b/1")))];
        let commit = Commit { require: vec![none_with(color)], delete, ..Commit::default() };
        let committed = timeout(LONG, store.commit(commit)).await.unwrap();
        assert_eq!(committed.is_ok(), is_free, "{committed:?}");
    }
    drop(other);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_commits_that_exclude_each_other_s_values_one_succeeds() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "skew").await;
    let stores = [open(&url).await, open(&url).await];
    stores[0].commit(puts([thing("c/1")])).await.unwrap();
    for round in 0..20 {
        let color = |side: usize| format!("{side} {round}");
        let commit = |side: usize| Commit {
            require: vec![none_with(&color(1 - side))],
            ..puts([colored(&format!("o{side}/{round}"), &color(side))])
        };
        let outcomes = tokio::join!(stores[0].commit(commit(0)), stores[1].commit(commit(1)));
        assert!(outcomes.0.is_ok() != outcomes.1.is_ok(), "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_not_taken_for_another_one_with_the_same_hash() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "hashes").await;
    let store = open(&url).await;
    store.commit(puts([colored("a/1", "red"), colored("a/2", "blue")])).await.unwrap();
    // As if both colors had the same hash.
    let collide = "INSERT INTO member SELECT org, value, 'a/1' FROM member WHERE uid = 'a/2'";
    assert_eq!(client(&url).await.execute(collide, &[]).await.unwrap(), 1);
    let delete = vec![Delete::Key(Key::new("Thing", uid("a/2")))];
    store.commit(Commit { delete, ..Commit::default() }).await.unwrap();
    store.commit(Commit { require: vec![none_with("blue")], ..Commit::default() }).await.unwrap();
    let red = store.commit(Commit { require: vec![none_with("red")], ..Commit::default() }).await;
    assert!(matches!(red, Err(StoreError::Conflict(Conflict::Require(0)))), "{red:?}");
    let delete = vec![Delete::With("Thing", "color", KeyValue::text("blue"))];
    store.commit(Commit { delete, ..Commit::default() }).await.unwrap();
    assert!(store.get(&[Key::new("Thing", uid("a/1"))], &[]).await.unwrap().records[0].is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_subtree_is_written_and_deleted_in_one_commit() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "large").await;
    let store = open(&url).await;
    // More rows than one statement has, in two lists.
    let many = (0..4_500).map(|number| thing(&format!("a/{}/{number}", number % 2)));
    store.commit(puts(many.chain([thing("a"), thing("a/0"), thing("b/1")]))).await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    let delete = vec![Delete::Below(uid("a"), vec!["Thing", "Other"])];
    store.commit(Commit { delete, ..Commit::default() }).await.unwrap();
    let all = store.list(&Query { count: true, ..Query::new("Thing", Scope::All) }).await.unwrap();
    let left: Vec<_> = all.items.iter().map(|item| item.uid().to_string()).collect();
    assert_eq!(left, ["a", "b/1"]);
    assert_eq!(all.total, Some(2));
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_finds_no_room_fails() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "room").await;
    let options = Options::default().lanes(1).group_commits(4).retry(Duration::from_millis(200));
    let store = Arc::new(PostgresStore::open(&url, options).await.unwrap());
    store.commit(puts([thing("a/first")])).await.unwrap();
    let blocker = take_gate(&url, "pg_advisory_xact_lock").await;
    let tasks = (0..1_100).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { store.commit(puts([thing(&format!("a/{number}"))])).await })
    });
    let tasks: Vec<_> = tasks.collect();
    // The lane waits for the gate, so that all others have to wait or fail.
    while tasks.iter().filter(|task| task.is_finished()).count() < 50 {
        tokio::task::yield_now().await;
    }
    drop(blocker);
    let (mut done, mut failed) = (0_u64, 0_u64);
    for task in tasks {
        match timeout(LONG, task).await.unwrap().unwrap() {
            Ok(_) => done += 1,
            Err(StoreError::Unavailable(_)) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    let all = store.list(&Query { count: true, limit: 1, ..Query::new("Thing", Scope::All) }).await.unwrap();
    assert_eq!(all.total, Some(done + 1));
    assert!(failed >= 50, "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_by_a_key_that_another_store_registered_is_in_its_order() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "registered").await;
    let (early, other) = (open(&url).await, open(&url).await);
    let by_name = Query {
        order: Order { by: OrderBy::Key("name"), descending: false },
        ..Query::new("Thing", Scope::Children(uid("a")))
    };
    assert_eq!(early.list(&by_name).await.unwrap().items, []);
    let named = |at: &str, name: &str| Put { sort: vec![("name", KeyValue::text(name))], ..thing(at) };
    other.commit(puts([named("a/1", "z"), named("a/2", "y"), named("a/3", "x")])).await.unwrap();
    let items = early.list(&by_name).await.unwrap().items;
    assert_eq!(items.iter().map(|item| item.uid().to_string()).collect::<Vec<_>>(), ["a/3", "a/2", "a/1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uid_with_nul_is_refused() {
    let Some(cluster) = Cluster::shared() else { return };
    let store = open(&empty(cluster, "nul").await).await;
    let wrong = || uid("a/\0");
    let (key, epoch) = (Key::new("Thing", wrong()), Epoch::new("grants", wrong()));
    let after = Some(Position { value: KeyValue::default(), uid: wrong() });
    let queries = [
        Query::new("Thing", Scope::Subtree(wrong())),
        Query { after, ..Query::new("Thing", Scope::All) },
        Query { epochs: [epoch.clone()].into(), ..Query::new("Thing", Scope::All) },
    ];
    for query in queries {
        assert!(matches!(store.list(&query).await, Err(StoreError::Invalid(_))), "{query:?}");
    }
    assert!(matches!(store.get(std::slice::from_ref(&key), &[]).await, Err(StoreError::Invalid(_))));
    assert!(matches!(store.get(&[], std::slice::from_ref(&epoch)).await, Err(StoreError::Invalid(_))));
    let commits = [
        puts([thing("a/\0")]),
        Commit { delete: vec![Delete::Key(key.clone())], ..Commit::default() },
        Commit { delete: vec![Delete::Below(wrong(), vec!["Thing"])], ..Commit::default() },
        Commit { require: vec![Require::Absent(key)], ..Commit::default() },
        Commit { require: vec![Require::NoneBelow(wrong(), vec!["Thing"])], ..Commit::default() },
        Commit { require: vec![Require::Epoch(epoch.clone(), 0)], ..Commit::default() },
        Commit { raise: vec![epoch], ..Commit::default() },
    ];
    for commit in commits {
        assert!(matches!(store.commit(commit.clone()).await, Err(StoreError::Invalid(_))), "{commit:?}");
    }
    // Values can have it.
    store.commit(puts([colored("a/1", "re\0d")])).await.unwrap();
    let filters = vec![Filter::AnyOf { key: "color", values: vec![KeyValue::text("re\0d")] }];
    let found = store.list(&Query { filters, ..Query::new("Thing", Scope::All) }).await.unwrap();
    assert_eq!(found.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_only_bytes_bound_is_complete() {
    let Some(cluster) = Cluster::shared() else { return };
    let store = open(&empty(cluster, "bytes").await).await;
    fill(&store, "a", 3_000).await;
    let query = Query::new("Thing", Scope::Children(uid("a")));
    let all = store.list(&query).await.unwrap();
    assert_eq!((all.items.len(), &all.next), (3_000, &None));
    let len = all.items[0].body.len();
    for count in [0, 1, 1_023, 1_024, 1_025, 2_999, 3_000, 3_001] {
        let page = store.list(&Query { bytes: count * len, ..query.clone() }).await.unwrap();
        let expected = count.clamp(1, 3_000);
        assert_eq!(page.items, all.items[..expected], "{count}");
        let next = page.next.map(|next| next.uid);
        assert_eq!(next, (expected < 3_000).then(|| all.items[expected - 1].uid()), "{count}");
    }
    let uids: BTreeSet<_> = all.items.iter().map(|item| item.uid()).collect();
    assert_eq!(uids.len(), 3_000);
}
