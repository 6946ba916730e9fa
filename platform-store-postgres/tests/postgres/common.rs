//! Stores and records for the tests.

use platform_engine::{
    store::{Commit, Key, KeyValue, Put, Store, UniqueKey},
    uid::Uid,
};
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;

/// Starts a cluster that no other test uses. Returns `None` where [`Cluster::shared`] does.
pub(crate) fn private() -> Option<Cluster> {
    Cluster::shared()?;
    Some(Cluster::start_private("").unwrap())
}

/// Returns the URL of an empty schema with the tables of the store.
pub(crate) async fn empty(cluster: &Cluster, name: &str) -> String {
    let url = cluster.empty_schema(name).await.unwrap();
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    url
}

pub(crate) async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, Options::default()).await.unwrap()
}

pub(crate) fn thing(uid: &str) -> Put {
    Put {
        key: Key::new("Thing", Uid::opaque(uid)),
        sort: vec![("name", KeyValue::text(uid)), ("rank", KeyValue::integer(0))],
        filter: vec![("color", KeyValue::text("red"))],
        unique: vec![UniqueKey { space: "thing", value: KeyValue::text(uid) }],
        search: Vec::new(),
        rendering: 1,
        body: format!("{{\"uid\":\"{uid}\"}}").into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

pub(crate) fn puts(put: impl IntoIterator<Item = Put>) -> Commit {
    Commit { put: put.into_iter().collect(), ..Commit::default() }
}

/// Puts children of a uid, in commits of a thousand.
pub(crate) async fn fill(store: &dyn Store, parent: &str, count: usize) {
    for from in (0..count).step_by(1_000) {
        let numbers = from..(from + 1_000).min(count);
        store.commit(puts(numbers.map(|number| thing(&format!("{parent}/{number:08}"))))).await.unwrap();
    }
}

/// Returns a connection for statements of the test.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
