//! Broken connections and crashes of the server: no acknowledged commit is lost, and none is applied twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use platform_engine::{
    store::{Commit, Key, MAX_SEQUENCE, Query, Require, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;

use crate::common::{client, empty, puts, thing};

/// Commits until it is stopped, and returns the uids of the acknowledged commits and of those with an unknown
/// outcome.
async fn work(store: Arc<PostgresStore>, task: usize, stop: Arc<AtomicBool>) -> (Vec<String>, Vec<String>) {
    let (mut acknowledged, mut unknown) = (Vec::new(), Vec::new());
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let uid = format!("o{}/{task}-{round}", task % 3);
        // A commit that was applied twice would fail the second time.
        let require = vec![Require::Absent(Key::new("Thing", Uid::opaque(&*uid)))];
        match store.commit(Commit { require, ..puts([thing(&uid)]) }).await {
            Ok(_) => acknowledged.push(uid),
            Err(StoreError::Unknown(_)) => unknown.push(uid),
            Err(StoreError::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    (acknowledged, unknown)
}

async fn verify(store: &PostgresStore, outcomes: Vec<(Vec<String>, Vec<String>)>) -> usize {
    let mut count = 0;
    for (acknowledged, _) in &outcomes {
        for uid in acknowledged {
            let read = store.get(&[Key::new("Thing", Uid::opaque(&**uid))], &[]).await.unwrap();
            assert!(read.records[0].is_some(), "{uid} was acknowledged and is lost");
        }
        count += acknowledged.len();
    }
    let unknown: usize = outcomes.iter().map(|(_, unknown)| unknown.len()).sum();
    let all = store.list(&Query { count: true, limit: 1, ..Query::new("Thing", Scope::All) }).await.unwrap();
    let all = usize::try_from(all.total.unwrap()).unwrap();
    assert!((count..=count + unknown).contains(&all), "{all} records of {count} commits and {unknown} unknown ones");
    assert_eq!(store.check().await.unwrap(), []);
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_commit_is_lost_when_backends_are_terminated() {
    let Some(cluster) = Cluster::shared() else { return };
    // Other tests use the same server.
    let url = empty(cluster, "terminated").await + "&application_name=victim";
    let store = Arc::new(PostgresStore::open(&url, Options::default().lanes(3)).await.unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..6).map(|task| tokio::spawn(work(store.clone(), task, stop.clone()))).collect();
    let client = client(&url).await;
    for round in 0..40 {
        tokio::time::sleep(Duration::from_millis(15)).await;
        // Every other time, only backends that are in the middle of a commit.
        let condition = if round % 2 == 0 { "query = 'COMMIT' AND state = 'active'" } else { "state <> 'idle'" };
        let terminate = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' AND pid <> pg_backend_pid() AND {condition}"
        );
        client.query(&terminate, &[]).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    assert!(verify(&store, outcomes).await > 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_commit_is_lost_when_the_server_crashes() {
    if Cluster::shared().is_none() {
        return;
    }
    let Ok(cluster) = Cluster::start_private("") else { return };
    let url = empty(&cluster, "crashed").await;
    let store = Arc::new(PostgresStore::open(&url, Options::default().lanes(3)).await.unwrap());
    let generation = store.lineage();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..6).map(|task| tokio::spawn(work(store.clone(), task, stop.clone()))).collect();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        cluster.crash().unwrap();
        cluster.restart().unwrap();
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    stop.store(true, Ordering::Relaxed);
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    assert!(verify(&store, outcomes).await > 10);
    assert_eq!(store.lineage(), generation, "the same primary with the same timeline");
    assert!(store.health().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_database_refuses_fails_alone() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "refused").await;
    let store = Arc::new(PostgresStore::open(&url, Options::default().lanes(1)).await.unwrap());
    store.commit(puts([thing("a/first")])).await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let store = store.clone();
            // Too long for an index, and of digits that cannot be compressed.
            let digits = (0..9_000_u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % 1_000_003);
            let long: String = digits.map(|digit| digit.to_string()).collect();
            let uid = if number == 7 { format!("a/{long}") } else { format!("a/{number}") };
            tokio::spawn(async move { store.commit(puts([thing(&uid)])).await })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap().is_ok(), number != 7, "commit {number}");
    }
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_sequence_at_the_end_of_its_range_is_found() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "sequences").await;
    let store = PostgresStore::open(&url, Options::default()).await.unwrap();
    store.commit(puts([thing("a/first")])).await.unwrap();
    let client = client(&url).await;
    for (sequence, count) in [(MAX_SEQUENCE.cast_signed(), 0), (i64::MAX, 1), (-1, 2)] {
        client.execute("UPDATE head SET sequence = $1", &[&sequence]).await.unwrap();
        let findings = store.check().await.unwrap();
        let of_sequences = findings.iter().filter(|finding| finding.to_string().contains("the last sequence"));
        assert_eq!(of_sequences.count(), count, "{sequence}: {findings:?}");
    }
}
