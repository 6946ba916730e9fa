//! Two platforms, each with its own PostgreSQL store on one database, are linearizable; and the history finds stores
//! that are not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod proxy;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::history::{History, Summary};
use platform_testkit::postgres::Cluster;
use proxy::Proxy;
use tokio::runtime::{Handle, Runtime};

/// A store whose calls run on a runtime, because the threads of a history have none.
#[derive(Debug)]
struct OnRuntime {
    store: Arc<PostgresStore>,
    runtime: Handle,
}

impl OnRuntime {
    async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.runtime.spawn(call).await.map_err(|error| StoreError::Unknown(error.into()))?
    }
}

#[async_trait]
impl Store for OnRuntime {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        let (store, keys, epochs) = (self.store.clone(), keys.to_vec(), epochs.to_vec());
        self.run(async move { store.get(&keys, &epochs).await }).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let (store, query) = (self.store.clone(), query.clone());
        self.run(async move { store.list(&query).await }).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let store = self.store.clone();
        self.run(async move { store.commit(commit).await }).await
    }

    fn health(&self) -> Result<(), StoreError> {
        self.store.health()
    }

    fn lineage(&self) -> u64 {
        self.store.lineage()
    }
}

fn open(runtime: &Runtime, url: &str) -> PostgresStore {
    runtime.block_on(PostgresStore::open(url, Options::default().readers(3).lanes(2))).unwrap()
}

/// Runs a history on two stores of this database, and checks the database afterwards by another URL of it.
fn run(runtime: &Runtime, url: &str, direct: &str, history: History) -> Result<Summary, String> {
    let store = || -> Arc<dyn Store> {
        let store = Arc::new(open(runtime, url));
        Arc::new(OnRuntime { store, runtime: runtime.handle().clone() })
    };
    let summary = history.run(vec![store(), store()])?;
    println!("{summary:?}");
    let found = runtime.block_on(open(runtime, direct).check()).map_err(|error| error.to_string())?;
    if found.is_empty() { Ok(summary) } else { Err(format!("{found:?}")) }
}

/// Returns the URL of a schema with tables, after this change of it.
fn schema(runtime: &Runtime, cluster: &Cluster, name: &str, change: &str) -> String {
    runtime.block_on(async {
        let url = cluster.empty_schema(name).await.unwrap();
        PostgresStore::migrate(&url, &Options::default()).await.unwrap();
        cluster.execute(&url, change).await.unwrap();
        url
    })
}

/// Returns a history that is long enough to find the errors below in a few runs.
fn short(seed: u64) -> History {
    History { seed, operations: 1_000, ..History::default() }
}

#[test]
fn every_result_of_two_platforms_over_one_database_is_that_of_a_state_during_its_call() {
    let Some(cluster) = Cluster::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let url = schema(&runtime, cluster, "history", "");
    let history = History::default().with_variables(|name| std::env::var(name).ok());
    let summary = run(&runtime, &url, &url, history).unwrap();
    summary.assert_varied(&history, 500);
}

/// On Citus with `PLATFORM_CITUS_URL`, otherwise with its statements on PostgreSQL.
#[test]
fn every_result_with_the_statements_for_citus_is_that_of_a_state_during_its_call() {
    let Some(cluster) = Cluster::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let url = runtime.block_on(async {
        let url = match Cluster::citus() {
            Some(citus) => citus.empty_schema("history_citus").await.unwrap(),
            None => cluster.schema_like_citus("history_citus").await.unwrap(),
        };
        PostgresStore::migrate(&url, &Options::default()).await.unwrap();
        url
    });
    let history = short(1).with_variables(|name| std::env::var(name).ok());
    let summary = run(&runtime, &url, &url, history).unwrap();
    assert!(summary.allowed > 100 && summary.concurrent > 100, "{summary:?}");
}

#[test]
fn every_result_is_that_of_a_state_while_connections_break_in_commits() {
    let Some(broken) = Broken::new("") else { return };
    let summary = broken.run(short(1)).unwrap();
    assert!(broken.proxy.cuts() > 20 && summary.allowed > 100, "{} cuts, {summary:?}", broken.proxy.cuts());
}

/// Fails unless an error is that of the check, and not of a database that does not answer.
fn assert_is_inconsistency(found: &str) {
    println!("{}", found.lines().next().unwrap_or_default());
    assert!(!found.starts_with("the store"), "{found}");
}

/// A cluster of its own behind a proxy that cuts connections in the middle of commits.
struct Broken {
    runtime: Runtime,
    proxy: Proxy,
    url: String,
    direct: String,
    _cluster: Cluster,
}

impl Broken {
    /// Returns `None` if no PostgreSQL can be started. `change` is made to the tables.
    fn new(change: &str) -> Option<Self> {
        Cluster::shared()?;
        let (runtime, cluster) = (Runtime::new().unwrap(), Cluster::start_private("").ok()?);
        let direct = schema(&runtime, &cluster, "broken", change);
        let proxy = runtime.block_on(Proxy::start(&direct)).unwrap();
        let options = direct.split_once('?').unwrap().1;
        let url = format!("postgres://postgres@{}/postgres?{options}", proxy.address());
        Some(Self { runtime, proxy, url, direct, _cluster: cluster })
    }

    fn run(&self, history: History) -> Result<Summary, String> {
        run(&self.runtime, &self.url, &self.direct, history)
    }
}

/// As if the outcome were decided by the status of a transaction, which another one may have got after a failover.
#[test]
fn an_outcome_that_is_decided_without_the_row_of_the_batch_is_found() {
    let forget = "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER forget BEFORE UPDATE ON batch FOR EACH ROW EXECUTE FUNCTION forget()";
    let Some(broken) = Broken::new(forget) else { return };
    let found = (1..=10).try_for_each(|seed| broken.run(short(seed)).map(drop)).unwrap_err();
    assert_is_inconsistency(&found);
}

/// Without the locks of their organizations, commits get sequences that become visible out of order, as those of
/// `nextval` do, and are checked against states that are not the last.
#[test]
fn sequences_that_are_assigned_outside_the_locks_are_found() {
    let Some(cluster) = Cluster::shared() else { return };
    let runtime = Runtime::new().unwrap();
    // Found before the functions of the database, by the path below.
    let unlocked = ["pg_advisory_xact_lock", "pg_advisory_xact_lock_shared"]
        .map(|name| format!("CREATE FUNCTION {name}(int8) RETURNS void LANGUAGE sql AS 'SELECT'"));
    let url = schema(&runtime, cluster, "unlocked", &unlocked.join(";")) + "%2Cpg_catalog";
    let found = (1..=10).try_for_each(|seed| run(&runtime, &url, &url, short(seed)).map(drop)).unwrap_err();
    assert_is_inconsistency(&found);
}

/// A standby answers with states that may be old.
#[test]
fn nothing_is_read_from_a_standby() {
    if Cluster::shared().is_none() {
        return;
    }
    let cluster = Cluster::start_private("").unwrap();
    let runtime = Runtime::new().unwrap();
    let url = schema(&runtime, &cluster, "standby", "");
    let options = || Options::default().retry(Duration::from_millis(300));
    let store = runtime.block_on(PostgresStore::open(&url, options())).unwrap();
    runtime.block_on(store.get(&[], &[])).unwrap();
    cluster.crash().unwrap();
    cluster.demote().unwrap();
    cluster.restart().unwrap();
    // It answers other clients.
    runtime.block_on(cluster.execute(&url, "SELECT version FROM layout")).unwrap();
    let epoch = Epoch::new("grants", platform_engine::uid::Uid::opaque("a"));
    let read = runtime.block_on(store.get(&[], &[epoch]));
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    let opened = runtime.block_on(PostgresStore::open(&url, options())).map(drop);
    assert!(opened.as_ref().is_err_and(|error| error.to_string().contains("standby")), "{opened:?}");
}
