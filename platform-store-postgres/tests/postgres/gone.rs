//! Servers that do not answer: calls end in time, others are not held up, and the store works again with its primary.

use std::{
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use platform_engine::{
    store::{Commit, Key, Query, Require, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;
use tokio::time::timeout;

use crate::common::{client, empty, open, private, puts, thing};

fn things() -> Query {
    Query { limit: 10, ..Query::new("Thing", Scope::All) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_accepts_connections_and_does_not_answer_does_not_hide_the_primary() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "silent").await;
    // The system accepts connections on behalf of a process that is frozen.
    let silent = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let [one, two] = silent.each_ref().map(|listener| listener.local_addr().unwrap());
    let store = open(&url.replacen('@', &format!("@{one},{two},"), 1)).await;
    store.commit(puts([thing("a/1")])).await.unwrap();
    assert_eq!(store.list(&things()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_list_is_canceled_and_holds_no_connection() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "dropped").await;
    let store = PostgresStore::open(&url, Options::default().readers(1)).await.unwrap();
    store.commit(puts([thing("a/1")])).await.unwrap();
    store.list(&things()).await.unwrap();
    let other = client(&url).await;
    other.batch_execute("BEGIN; LOCK TABLE record").await.unwrap();
    timeout(Duration::from_millis(300), store.list(&things())).await.unwrap_err();
    // With the only connection of the readers.
    store.clock().await.unwrap();
    let schema = url.rsplit("%22").nth(1).unwrap();
    let waiting =
        format!("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '\"{schema}\".record'::regclass");
    // The server acknowledges a cancellation before its process ends the statement.
    let ended = async { while other.query_one(&waiting, &[]).await.unwrap().get::<_, i64>(0) != 0 {} };
    timeout(Duration::from_secs(60), ended).await.expect("the server goes on with the list");
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(store.list(&things()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_frozen_server_end_and_the_store_works_when_it_continues() {
    let Some(cluster) = private() else { return };
    let url = empty(&cluster, "frozen").await;
    let store = Arc::new(PostgresStore::open(&url, Options::default().retry(Duration::from_secs(1))).await.unwrap());
    store.commit(puts([thing("a/1")])).await.unwrap();
    let history = store.lineage();
    cluster.freeze().unwrap();
    let calls: Vec<_> = (0..40)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                match number % 2 {
                    0 => drop(store.list(&things()).await.unwrap_err()),
                    _ => match store.commit(puts([thing(&format!("{number}/1"))])).await.unwrap_err() {
                        StoreError::Unavailable(_) | StoreError::Unknown(_) => {}
                        other => panic!("{other}"),
                    },
                }
            })
        })
        .collect();
    for call in calls {
        timeout(Duration::from_secs(60), call).await.unwrap().unwrap();
    }
    // The server is known not to answer, so that a call only waits as long as calls are repeated.
    let started = Instant::now();
    store.clock().await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(store.health().is_err());
    cluster.thaw().unwrap();
    let works = async {
        while store.commit(puts([thing("b/1")])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), works).await.unwrap();
    assert!(store.list(&things()).await.unwrap().items.len() >= 2);
    assert!(store.health().is_ok());
    assert_eq!(store.lineage(), history, "the same primary with the same timeline");
    assert_eq!(store.check().await.unwrap(), []);
}

/// The platform drops its caches when the history is another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_becomes_the_primary_is_used_and_has_another_history() {
    let Some(cluster) = private() else { return };
    let url = empty(&cluster, "promoted").await;
    let store = open(&url).await;
    store.commit(puts([thing("a/1")])).await.unwrap();
    let history = store.lineage();
    cluster.crash().unwrap();
    cluster.demote().unwrap();
    cluster.restart().unwrap();
    assert!(store.list(&things()).await.is_err(), "a standby has answered");
    cluster.promote().unwrap();
    let works = async { while store.commit(puts([thing("a/2")])).await.is_err() {} };
    timeout(Duration::from_secs(60), works).await.unwrap();
    assert_ne!(store.lineage(), history);
    assert_eq!(store.list(&things()).await.unwrap().items.len(), 2);
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_wait_for_each_other_do_not_wait_for_the_server_one_after_another() {
    let Some(cluster) = private() else { return };
    let url = empty(&cluster, "waiting").await;
    let retry = Duration::from_secs(2);
    let store = Arc::new(PostgresStore::open(&url, Options::default().retry(retry)).await.unwrap());
    store.commit(puts([thing("a/1")])).await.unwrap();
    cluster.crash().unwrap();
    let started = Instant::now();
    let calls: Vec<_> = (0..30)
        .map(|number| {
            let store = store.clone();
            // Each is a batch of its own.
            let require = vec![Require::NoneBelow(Uid::opaque("a/none"), vec!["Thing"])];
            let commit = Commit { require, ..puts([thing(&format!("a/x{number}"))]) };
            tokio::spawn(async move { store.commit(commit).await.unwrap_err() })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert!(started.elapsed() < retry * 10, "{:?}", started.elapsed());
    cluster.restart().unwrap();
    while store.clock().await.is_err() {}
    store.commit(puts([thing("a/2")])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_belongs_to_one_process() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "named").await;
    let (one, two) = (open(&url).await, open(&url).await);
    assert!(one.claim("a").await.unwrap());
    assert!(one.claim("a").await.unwrap(), "it has it already");
    assert!(!two.claim("a").await.unwrap());
    assert!(two.claim("b").await.unwrap());
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2";
    client(&url).await.query(terminate, &[]).await.unwrap();
    assert!(one.claim("a").await.unwrap(), "the name is taken again with the next connection");
    drop(one);
    let taken = async { while !two.claim("a").await.unwrap() {} };
    timeout(Duration::from_secs(30), taken).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_set_to_read_only_answers_reads_and_refuses_writes() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "read_only").await;
    open(&url).await.commit(puts([thing("a/1")])).await.unwrap();
    let read_only = url.replacen("options=", "options=-cdefault_transaction_read_only%3Don%20", 1);
    let store = open(&read_only).await;
    assert!(store.get(&[Key::new("Thing", Uid::opaque("a/1"))], &[]).await.unwrap().records[0].is_some());
    let refused = store.commit(puts([thing("a/2")])).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Full(why) if why.to_string().contains("read-only")), "{refused:?}");
    assert!(matches!(store.health(), Err(StoreError::Full(_))));
    assert_eq!(store.check().await.unwrap(), []);
    assert_eq!(PostgresStore::layout(&read_only, &Options::default()).await.unwrap(), PostgresStore::LAYOUT);
}
