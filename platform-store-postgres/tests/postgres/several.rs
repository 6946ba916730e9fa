//! Several stores on one database, as several servers have.

use std::{sync::Arc, time::Duration};

use platform_engine::{
    store::{
        Commit, Conflict, Delete, Epoch, Key, KeyValue, Order, OrderBy, Query, Require, Scope, Store, StoreError,
        UniqueKey,
    },
    uid::Uid,
};
use platform_store_postgres::{Heard, OpenError, Options, PostgresStore};
use platform_testkit::postgres::Cluster;

use crate::common::{client, empty, fill, open, private, puts, thing};

fn uid(text: &str) -> Uid {
    Uid::opaque(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_two_stores_to_one_organization_have_different_rising_sequences() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "two").await;
    let stores = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let tasks = (0..8).map(|task| {
        let store = stores[task % 2].clone();
        tokio::spawn(async move {
            let mut sequences = Vec::new();
            for round in 0..25 {
                let commit = puts([thing(&format!("a/{task}-{round}"))]);
                sequences.push(store.commit(commit).await.unwrap().sequence);
            }
            assert!(sequences.is_sorted_by(|left, right| left < right));
            sequences
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        all.extend(task.await.unwrap());
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 200);
    let query = Query {
        order: Order { by: OrderBy::Sequence, descending: false },
        count: true,
        ..Query::new("Thing", Scope::Children(uid("a")))
    };
    for store in &stores {
        let page = store.list(&query).await.unwrap();
        assert!(page.items.iter().map(|item| item.revision).eq(all.iter().copied()));
        assert_eq!(page.total, Some(200));
        assert_eq!(store.check().await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_by_sequence_misses_nothing_of_another_store() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "watch").await;
    let (reader, writers) = (open(&url).await, [Arc::new(open(&url).await), Arc::new(open(&url).await)]);
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let store = writers[task % 2].clone();
            tokio::spawn(async move {
                for round in 0..30 {
                    store.commit(puts([thing(&format!("a/{task}-{round}"))])).await.unwrap();
                }
            })
        })
        .collect();
    let mut query = Query {
        order: Order { by: OrderBy::Sequence, descending: false },
        limit: 7,
        ..Query::new("Thing", Scope::Children(uid("a")))
    };
    let mut seen = Vec::new();
    while seen.len() < 180 {
        let page = reader.list(&query).await.unwrap();
        if let Some(last) = page.items.last() {
            let value = KeyValue::integer(i64::try_from(last.revision).unwrap());
            query.after = Some(platform_engine::store::Position { value, uid: last.uid() });
        }
        seen.extend(page.items.into_iter().map(|item| item.uid()));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((count, seen.len()), (180, 180));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_conflicting_commits_of_two_stores_one_succeeds() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "conflicts").await;
    let stores = [open(&url).await, open(&url).await];
    for round in 0..20 {
        // A unique key that records of different organizations want.
        let commits = [0, 1].map(|side| {
            let mut put = thing(&format!("o{side}/{round}"));
            put.unique = vec![UniqueKey { space: "verified", value: KeyValue::text(&round.to_string()) }];
            puts([put])
        });
        let [left, right] = commits;
        let outcomes = tokio::join!(stores[0].commit(left), stores[1].commit(right));
        let outcomes = [outcomes.0, outcomes.1];
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        let is_conflict = |outcome: &Result<_, _>| {
            matches!(outcome, Err(StoreError::Conflict(Conflict::Unique { put: 0, unique: 0 })))
        };
        assert_eq!(outcomes.iter().filter(|outcome| is_conflict(outcome)).count(), 1, "{outcomes:?}");
        // A parent that is deleted while a child is put, and a value that must not exist while it is put.
        let parent = format!("p/{round}");
        stores[0].commit(puts([thing(&parent)])).await.unwrap();
        let delete = Commit {
            require: vec![Require::NoneBelow(uid(&parent), vec!["Thing"])],
            delete: vec![Delete::Key(Key::new("Thing", uid(&parent)))],
            ..Commit::default()
        };
        let create = Commit {
            require: vec![Require::Exists(Key::new("Thing", uid(&parent)))],
            ..puts([thing(&format!("{parent}/c"))])
        };
        let outcomes = tokio::join!(stores[round % 2].commit(delete), stores[1 - round % 2].commit(create));
        assert!(outcomes.0.is_ok() != outcomes.1.is_ok(), "{outcomes:?}");
        let value = KeyValue::text(&format!("value {round}"));
        let mut refers = thing(&format!("q/{round}"));
        refers.filter = vec![("role", value.clone())];
        let key = Key::new("Thing", uid(&format!("r/{round}")));
        stores[0].commit(puts([thing(&key.uid)])).await.unwrap();
        let unused = Require::NoneWith("Thing", "role", value);
        let delete = Commit { require: vec![unused], delete: vec![Delete::Key(key.clone())], ..Commit::default() };
        let refer = Commit { require: vec![Require::Exists(key)], ..puts([refers]) };
        let outcomes = tokio::join!(stores[0].commit(delete), stores[1].commit(refer));
        assert!(outcomes.0.is_ok() != outcomes.1.is_ok(), "{outcomes:?}");
    }
    assert_eq!(stores[0].check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_of_two_stores_fill_a_limit_exactly() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "limits").await;
    let stores = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = stores[task % 2].clone();
            tokio::spawn(async move {
                let require = vec![Require::AtMost("Thing", uid("a"), 40)];
                store.commit(Commit { require, ..puts([thing(&format!("a/{}/{task}", task % 3))]) }).await
            })
        })
        .collect();
    let mut created = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => created += 1,
            Err(error) => assert!(matches!(error, StoreError::Conflict(Conflict::Require(0))), "{error}"),
        }
    }
    let query = Query { count: true, ..Query::new("Thing", Scope::Subtree(uid("a"))) };
    assert_eq!((created, stores[0].list(&query).await.unwrap().total), (40, Some(40)));
    assert_eq!(stores[0].check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_epoch_is_seen_by_other_stores_at_once() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "epochs").await;
    let stores = [open(&url).await, open(&url).await];
    let grants = Epoch::new("grants", uid("a"));
    for round in 0..20 {
        let raise = Commit { raise: vec![grants.clone()], ..Commit::default() };
        let raised = stores[round % 2].commit(raise).await.unwrap().sequence;
        let other = &stores[1 - round % 2];
        let read = other.get(&[], std::slice::from_ref(&grants)).await.unwrap();
        assert_eq!(read.epochs, [raised]);
        let stale = Require::Epoch(grants.clone(), raised - 1);
        let commit = Commit { require: vec![stale], ..puts([thing("b/c")]) };
        assert!(matches!(other.commit(commit).await, Err(StoreError::Conflict(Conflict::Require(0)))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn skips_and_totals_are_exact_while_two_stores_change_a_long_list() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "skips").await;
    let stores = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    fill(&*stores[0], "a", 6_000).await;
    let tasks: Vec<_> = (0..4_usize)
        .map(|task| {
            let store = stores[task % 2].clone();
            tokio::spawn(async move {
                for round in 0..30 {
                    let number = |offset: usize| (task * 1_499 + round * 37 + offset) % 6_000;
                    let key = Key::new("Thing", uid(&format!("a/{:08}", number(0))));
                    let mut put = thing(&format!("a/{:08}", number(17)));
                    put.sort[0].1 = KeyValue::text(&format!("moved {round}"));
                    let put = vec![put, thing(&format!("a/new {task} {round}")), thing(&format!("a/b/{task} {round}"))];
                    let commit = Commit { delete: vec![Delete::Key(key)], put, ..Commit::default() };
                    store.commit(commit).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for by in [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank")] {
        for descending in [false, true] {
            for scope in [Scope::Subtree(uid("a")), Scope::Children(uid("a"))] {
                let query = Query { order: Order { by, descending }, count: true, ..Query::new("Thing", scope) };
                let all = stores[0].list(&query).await.unwrap();
                assert_eq!(all.total, Some(all.items.len() as u64));
                for skip in [1, 511, 2_345, all.items.len() - 3, all.items.len()] {
                    let query = Query { skip: skip as u64, limit: 5, ..query.clone() };
                    let page = stores[1].list(&query).await.unwrap();
                    let expected = &all.items[skip..(skip + 5).min(all.items.len())];
                    assert_eq!(page.items, expected, "{by:?} {descending} {skip}");
                }
            }
        }
    }
    assert_eq!(stores[0].check().await.unwrap(), []);
    let blocks = client(&url).await.query_one("SELECT count(*) FROM block", &[]).await.unwrap();
    assert!(blocks.get::<_, i64>(0) > 40, "the list has counted blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_finds_what_differs_from_the_records() {
    let Some(cluster) = Cluster::shared() else { return };
    let damages = [
        ("UPDATE tally SET direct = direct + 1", "length"),
        ("DELETE FROM member WHERE uid = 'a/00000007'", "filter values"),
        ("UPDATE deep SET s1 = 'x' WHERE uid = 'a/b/c'", "lists"),
        ("DELETE FROM owner WHERE uid = 'a/00000007'", "unique keys"),
        ("UPDATE block SET n = n + 1 WHERE level = 1 AND ord = 2", "block"),
        ("UPDATE head SET sequence = 1", "last sequence"),
        ("UPDATE record SET org = 7 WHERE uid = 'a/00000007'", "organization"),
        ("DELETE FROM deep WHERE uid = 'root'", "list of roots"),
        ("UPDATE epoch SET value = value + 1000000000", "epoch"),
    ];
    for (number, (damage, expected)) in damages.into_iter().enumerate() {
        let url = empty(cluster, &format!("damage_{number}")).await;
        let store = open(&url).await;
        fill(&store, "a", 4_500).await;
        let raise = vec![Epoch::new("grants", uid("a"))];
        store.commit(Commit { raise, ..puts([thing("a/b/c"), thing("root")]) }).await.unwrap();
        assert_eq!(store.check().await.unwrap(), []);
        assert!(client(&url).await.execute(damage, &[]).await.unwrap() > 0, "{damage}");
        let found = store.check().await.unwrap();
        assert!(found.iter().any(|finding| finding.what.contains(expected)), "{damage}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writes_of_a_document_that_expect_one_revision_the_first_succeeds() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "documents").await;
    let stores = [open(&url).await, open(&url).await];
    let (left, right) = (stores[0].documents(), stores[1].documents());
    assert_eq!(left.read("keys").await.unwrap(), None);
    assert!(left.write("keys", 0, b"one").await.unwrap());
    assert!(!right.write("keys", 0, b"two").await.unwrap());
    assert_eq!(right.read("keys").await.unwrap(), Some((bytes::Bytes::from_static(b"one"), 1)));
    assert!(right.write("keys", 1, b"two").await.unwrap());
    assert!(!left.write("keys", 1, b"three").await.unwrap());
    assert_eq!(left.read("keys").await.unwrap(), Some((bytes::Bytes::from_static(b"two"), 2)));
    assert!(!left.write("keys", u64::MAX, b"x").await.unwrap() && !left.write("others", 3, b"x").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_hears_other_stores_and_reports_gaps() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "notify").await;
    let stores = [open(&url).await, open(&url).await];
    let mut listener = stores[0].listen();
    assert_eq!(listener.next().await, Some(Heard::Gap));
    stores[1].notify("an event of a").await.unwrap();
    assert_eq!(listener.next().await, Some(Heard::Notification("an event of a".to_owned())));
    // Stores of another installation do not hear it.
    let other = open(&empty(cluster, "notify_other").await).await;
    let mut others = other.listen();
    assert_eq!(others.next().await, Some(Heard::Gap));
    let client = client(&url).await;
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND \
         pid <> pg_backend_pid()";
    client.query(terminate, &[]).await.unwrap();
    assert_eq!(listener.next().await, Some(Heard::Gap));
    stores[1].notify("another").await.unwrap();
    assert_eq!(listener.next().await, Some(Heard::Notification("another".to_owned())));
    assert_eq!(others.next().await, Some(Heard::Gap));
    other.notify("own").await.unwrap();
    assert_eq!(others.next().await, Some(Heard::Notification("own".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_refuses_a_database_of_another_layout() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.schema("layouts").await.unwrap();
    let opened = async || PostgresStore::open(&url, Options::default()).await.map(drop).unwrap_err().to_string();
    assert!(matches!(PostgresStore::open(&url, Options::default()).await, Err(OpenError::Empty)));
    assert!(opened().await.contains("platform-server migrate"));
    // Migrations of several servers at once run once.
    let migrations = (0..4).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { PostgresStore::migrate(&url, &Options::default()).await })
    });
    for migration in migrations.collect::<Vec<_>>() {
        migration.await.unwrap().unwrap();
    }
    drop(open(&url).await);
    let client = client(&url).await;
    client.execute("UPDATE layout SET version = 0", &[]).await.unwrap();
    let error = opened().await;
    assert!(error.contains("layout 0") && error.contains("platform-server migrate"), "{error}");
    client.execute("UPDATE layout SET version = 99", &[]).await.unwrap();
    let error = opened().await;
    assert!(error.contains("layout 99") && error.contains("later release"), "{error}");
    assert!(matches!(PostgresStore::migrate(&url, &Options::default()).await, Err(OpenError::Newer { found: 99, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_killed_at_any_statement_is_done_again() {
    // An event trigger belongs to a whole database: it would also run in the migrations of other tests.
    let Some(cluster) = private() else { return };
    let url = cluster.schema("killed_migrations").await.unwrap();
    let client = client(&url).await;
    // Ends the connection of the migration after this many statements. A sequence counts them, as it does not roll back.
    let killer = "
        CREATE SCHEMA killer;
        CREATE SEQUENCE killer.statement;
        CREATE SEQUENCE killer.target;
        CREATE FUNCTION killer.kill() RETURNS event_trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('killer.statement') = (SELECT last_value FROM killer.target) THEN
                PERFORM pg_terminate_backend(pg_backend_pid());
            END IF;
        END $$;
        CREATE EVENT TRIGGER killer ON ddl_command_end EXECUTE FUNCTION killer.kill();";
    client.batch_execute(killer).await.unwrap();
    let mut kills = 0;
    loop {
        let restart = format!("SELECT setval('killer.target', {}), setval('killer.statement', 1, false)", kills + 1);
        client.query_one(&restart, &[]).await.unwrap();
        let Err(error) = PostgresStore::migrate(&url, &Options::default()).await else { break };
        assert!(matches!(error, OpenError::Unavailable(_)), "{error}");
        let error = PostgresStore::open(&url, Options::default()).await.map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Empty | OpenError::Older { found: 0, .. }), "{error}");
        kills += 1;
        assert!(kills < 1_000, "{error}");
    }
    assert!(kills > 10, "{kills}");
    let store = open(&url).await;
    store.commit(puts([thing("a/1")])).await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_database_is_reported_within_the_time_for_retries() {
    let options = Options::default().retry(Duration::from_millis(50));
    let error = PostgresStore::open("postgres://nobody@127.0.0.1:1/none", options).await.unwrap_err();
    assert!(matches!(error, OpenError::Unavailable(_)), "{error}");
    let error = PostgresStore::open("nonsense", Options::default()).await.unwrap_err();
    assert!(error.to_string().contains("postgres://"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_a_long_body_is_complete() {
    let Some(cluster) = Cluster::shared() else { return };
    let store = open(&empty(cluster, "long_bodies").await).await;
    let mut put: Vec<_> = (0..10).map(|number| thing(&format!("a/{number}"))).collect();
    put[3].body = vec![b'x'; 1 << 20].into();
    store.commit(puts(put)).await.unwrap();
    for (bytes, length) in [(4 << 20, 8), (1 << 20, 3)] {
        let scope = Scope::Children(uid("a"));
        let query = Query { limit: 8, bytes, ..Query::new("Thing", scope.clone()) };
        let page = store.list(&query).await.unwrap();
        assert_eq!(page.items.len(), length);
        assert_eq!(page.next.map(|next| next.uid), Some(uid(&format!("a/{}", length - 1))));
    }
}
