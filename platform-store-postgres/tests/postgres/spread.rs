//! Reads of several organizations with the statements for Citus, which read each of them in a state of its own, and
//! commits of several nodes.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use platform_engine::{
    store::{
        Commit, Epoch, Filter, Key, KeyValue, Order, OrderBy, Query, Read, Require, Scope, Store, StoreError,
        memory::MemoryStore,
    },
    uid::Uid,
};
use platform_store_postgres::testing::shards::organization;
use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::postgres::Cluster;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
};
use tokio_postgres::config::Host;

use crate::{
    citus::like_citus,
    common::{client, open, puts, thing},
};

const ORGANIZATIONS: [&str; 3] = ["a", "b", "c"];

fn grants(organization: &str) -> Epoch {
    Epoch::new("grants", Uid::opaque(organization))
}

/// Replaces a record of each organization and raises an epoch of each, in one commit, over and over.
fn write(store: &Arc<PostgresStore>) -> tokio::task::JoinHandle<()> {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        for _ in 0..200 {
            let put = ORGANIZATIONS.map(|organization| thing(&format!("{organization}/record")));
            let commit = Commit { raise: ORGANIZATIONS.map(grants).into(), ..puts(put) };
            store.commit(commit).await.unwrap();
        }
    })
}

/// The data that an epoch guards is in the organization of the epoch, and access to everything else that is read with it is
/// decided by it too.
fn assert_is_settled(records: impl Iterator<Item = (Uid, u64)>, epochs: &[u64]) {
    for (uid, revision) in records {
        let own = ORGANIZATIONS.iter().position(|organization| *organization == uid.root()).unwrap();
        assert_eq!(revision, epochs[own], "the record and the epoch of {uid} are of different states");
        assert!(epochs.iter().all(|epoch| *epoch >= revision), "{epochs:?} were read before {uid} of {revision}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn epochs_that_are_read_with_several_organizations_are_those_of_all_their_records() {
    let Some(cluster) = Cluster::shared() else { return };
    let store = Arc::new(open(&like_citus(cluster, "citus_settled").await).await);
    let epochs = ORGANIZATIONS.map(grants);
    let keys = ORGANIZATIONS.map(|organization| Key::new("Thing", Uid::opaque(&*format!("{organization}/record"))));
    let all = Query { epochs: epochs.clone().into(), ..Query::new("Thing", Scope::All) };
    let several = Query { scopes: ORGANIZATIONS.map(|of| Scope::Children(Uid::opaque(of))).into(), ..all.clone() };
    let writer = write(&store);
    while !writer.is_finished() {
        let Read { records, epochs } = store.get(&keys, &epochs).await.unwrap();
        assert_is_settled(records.into_iter().flatten().map(|record| (record.key.uid, record.revision)), &epochs);
        for query in [&several, &all] {
            let page = store.list(query).await.unwrap();
            assert_is_settled(page.items.into_iter().map(|item| (item.uid(), item.revision)), &page.epochs);
        }
    }
    writer.await.unwrap();
}

/// Records of many organizations, whose hashes are in another order than their uids, with bodies of different lengths.
fn spread() -> Vec<platform_engine::store::Put> {
    let record = |organization: i64, number: i64| {
        let mut put = thing(&format!("o{organization}/{number}"));
        put.sort[1].1 = KeyValue::integer((organization * 7 + number * 13) % 10);
        put.filter[0].1 = KeyValue::text(if number % 3 == 0 { "red" } else { "blue" });
        put.body = "x".repeat(usize::try_from(organization * 10 + number).unwrap()).into();
        put
    };
    (0..20).flat_map(|organization| (0..4).map(move |number| record(organization, number))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_many_organizations_is_that_of_a_store_with_one_state() {
    let Some(cluster) = Cluster::shared() else { return };
    let (store, model) = (open(&like_citus(cluster, "citus_many").await).await, MemoryStore::default());
    for put in spread() {
        // Sequences are those of the model.
        let revision = Some(model.commit(puts([put.clone()])).await.unwrap().sequence);
        store.commit(puts([platform_engine::store::Put { revision, ..put }])).await.unwrap();
    }
    let many: Vec<Scope> =
        (0..20).map(|organization| Scope::Subtree(Uid::opaque(&*format!("o{organization}")))).collect();
    let red = Filter::AnyOf { key: "color", values: vec![KeyValue::text("red")] };
    let not_red = Filter::NoneOf { key: "color", values: vec![KeyValue::text("red")] };
    let orders = [
        (OrderBy::Uid, false, vec![]),
        (OrderBy::Sequence, true, vec![red.clone()]),
        (OrderBy::Key("rank"), true, vec![not_red.clone()]),
        (OrderBy::Key("none"), false, vec![]),
        (OrderBy::Key("rank"), false, vec![red, not_red]),
    ];
    for scopes in [many, vec![Scope::All], vec![Scope::Roots, Scope::Subtree(Uid::opaque("o3"))]] {
        for (by, descending, filters) in orders.clone() {
            let (scopes, order) = (scopes.clone(), Order { by, descending });
            let whole = Query { scopes, order, filters, count: true, ..Query::new("Thing", Scope::All) };
            for (limit, bytes, skip) in [(7, usize::MAX, 0), (50, 500, 0), (7, 90, 3), (usize::MAX, 2_000, 41)] {
                let mut query = Query { limit, bytes, skip, ..whole.clone() };
                loop {
                    let page = store.list(&query).await.unwrap();
                    let mut expected = model.list(&query).await.unwrap();
                    // This store does not know without a read.
                    expected.items.iter_mut().for_each(|item| item.may_have_private = true);
                    assert_eq!(page, expected, "{query:?}");
                    let Some(next) = page.next else { break };
                    (query.after, query.skip) = (Some(next), 0);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_all_organizations_reads_little_more_than_it_returns() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = like_citus(cluster, "citus_limits").await;
    let store = open(&url).await;
    for from in (0..6_000).step_by(1_000) {
        let of = |number: usize| {
            let mut put = thing(&format!("o{}/{number:05}", number % 3));
            put.body = "x".repeat(1_000).into();
            put
        };
        store.commit(puts((from..from + 1_000).map(of))).await.unwrap();
    }
    drop(store);
    let client = client(&url).await;
    // A table whose statistics do not include the writes.
    let copy = "CREATE TABLE copy (LIKE record INCLUDING ALL); INSERT INTO copy SELECT * FROM record; ANALYZE copy; \
         UPDATE pg_dist_partition SET logicalrelid = 'copy'::regclass WHERE logicalrelid = 'record'::regclass; \
         DROP TABLE record; ALTER TABLE copy RENAME TO record";
    client.batch_execute(copy).await.unwrap();
    let store = open(&url).await;
    let query = Query { limit: 100_000, bytes: 50_000, ..Query::new("Thing", Scope::All) };
    let page = store.list(&query).await.unwrap();
    assert_eq!((page.items.len(), page.next.is_some()), (50, true));
    // Sessions report what they have read when they end.
    drop(store);
    let statistics = "SELECT COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE \
         relid = 'record'::regclass";
    let mut read = 0;
    while read == 0 {
        read = client.query_one(statistics, &[]).await.unwrap().get::<_, i64>(0);
    }
    assert!((50..1_000).contains(&read), "{read} records were read for 50");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_several_nodes_is_not_acknowledged_before_they_show_it() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = like_citus(cluster, "citus_hidden").await;
    open(&url).await.commit(puts([thing("a/first")])).await.unwrap();
    // As if the node of the record had not ended its part of the commit.
    let hide = "CREATE FUNCTION hide() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER hide BEFORE INSERT OR UPDATE ON head FOR EACH ROW EXECUTE FUNCTION hide()";
    cluster.execute(&url, hide).await.unwrap();
    let options = Options::default().retry(Duration::from_millis(300));
    let store = PostgresStore::open(&url, options).await.unwrap();
    let on_one = platform_engine::store::Put { unique: Vec::new(), ..thing("a/one") };
    store.commit(puts([on_one])).await.unwrap();
    // Its unique key is in an organization of its own.
    for put in [vec![thing("a/two")], vec![thing("a/three"), thing("b/three")]] {
        let done = store.commit(puts(put)).await;
        assert!(matches!(done, Err(StoreError::Unknown(_))), "{done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_to_a_node_that_is_gone_fails_at_the_second_attempt_and_commits_to_others_succeed() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = like_citus(cluster, "citus_gone").await;
    let store = open(&url).await;
    store.commit(puts([thing("a/first")])).await.unwrap();
    let org = organization("a");
    // The error of a coordinator whose worker refuses connections.
    let gone = format!(
        "CREATE SEQUENCE attempts; CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN \
         IF NEW.org = {org} THEN PERFORM nextval(''attempts''); RAISE EXCEPTION ''connection to the remote node failed'' \
         USING ERRCODE = ''08006''; END IF; RETURN NEW; END'; \
         CREATE TRIGGER gone BEFORE INSERT OR UPDATE ON head FOR EACH ROW EXECUTE FUNCTION gone()"
    );
    cluster.execute(&url, &gone).await.unwrap();
    let on_one = platform_engine::store::Put { unique: Vec::new(), ..thing("a/second") };
    let done = store.commit(puts([on_one])).await;
    assert!(matches!(done, Err(StoreError::Unavailable(_))), "{done:?}");
    let attempts = client(&url).await.query_one("SELECT last_value FROM attempts", &[]).await.unwrap();
    assert_eq!(attempts.get::<_, i64>(0), 2);
    store.health().unwrap();
    store.commit(puts([thing("b/one")])).await.unwrap();
    store.probe().await.unwrap();
}

/// Carries connections to a database, and replaces the result of the first `COMMIT` by the error that Citus returns when
/// the only node of a commit fails while it commits. It has committed.
async fn failing_commit(url: &str) -> SocketAddr {
    let config: tokio_postgres::Config = url.parse().unwrap();
    let Some(Host::Unix(directory)) = config.get_hosts().first().cloned() else { panic!("{url} has no socket") };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let failed = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = UnixStream::connect(directory.join(".s.PGSQL.5432")).await.unwrap();
            let failed = Arc::clone(&failed);
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
                    let sent = &buffer[..count];
                    let at = sent.windows(COMMITTED.len()).position(|part| part == COMMITTED);
                    let at = at.filter(|_| !failed.swap(true, Ordering::SeqCst));
                    let sent = match at {
                        None => sent.to_vec(),
                        Some(at) => [&sent[..at], &error(), &sent[at + COMMITTED.len()..]].concat(),
                    };
                    to_client.write_all(&sent).await.unwrap();
                }
            });
        }
    });
    address
}

/// The message that ends a `COMMIT`.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";

fn error() -> Vec<u8> {
    let fields = b"SERROR\0VERROR\0CXX000\0Mcould not commit transaction for shard 1 on at least one active node\0\0";
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    [b"E", &length[..], fields].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_of_a_commit_whose_node_failed_at_its_end_is_looked_up() {
    if Cluster::shared().is_none() {
        return;
    }
    let cluster = Cluster::start_private("").unwrap();
    let direct = like_citus(&cluster, "citus_outcome").await;
    open(&direct).await.commit(puts([thing("a/first")])).await.unwrap();
    let address = failing_commit(&direct).await;
    let options = direct.split_once('?').unwrap().1;
    let store = open(&format!("postgres://postgres@{address}/postgres?{options}")).await;
    let key = Key::new("Thing", Uid::opaque("a/second"));
    let commit = Commit { require: vec![Require::Absent(key.clone())], ..puts([thing("a/second")]) };
    let done = store.commit(commit).await;
    let read = open(&direct).await.get(&[key], &[]).await.unwrap();
    assert!(read.records[0].is_some(), "the commit was not applied: {done:?}");
    done.unwrap();
}
