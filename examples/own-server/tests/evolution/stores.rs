//! The versions of a kind in one process after another, over each store.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use platform_engine::{
    access::Caller,
    kind::Registered,
    options::RequestOptions,
    platform::{Platform, Settings},
    request::ListRequest,
    shape::{self, AdoptError, RewriteError},
    store::{Query, Scope, Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_store_postgres::{Options, PostgresStore};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use platform_testkit::{SeededEntropy, TestClock, postgres::Cluster};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::vehicle::{Careless, VERSIONS, version};

/// The caller, who is an operator.
fn me() -> Caller {
    Caller::new(Uid::from_digest([1; 20]))
}

/// A platform of one version over a store.
struct Release {
    platform: Platform,
    registered: &'static Registered,
}

impl Release {
    /// Builds the platform of a version, which must fit the store.
    async fn adopted(store: &Arc<dyn Store>, number: usize) -> Self {
        shape::adopt(&**store, VERSIONS[number - 1]).await.unwrap();
        Self::new(store, number)
    }

    fn new(store: &Arc<dyn Store>, number: usize) -> Self {
        let clock = TestClock::at(Timestamp::from_millis(1000 * i64::try_from(number).unwrap()));
        let entropy = SeededEntropy::new(u64::try_from(number).unwrap());
        let platform = Platform::builder(Arc::clone(store), clock, entropy)
            .kinds(VERSIONS[number - 1])
            .settings(Settings { operators: [me().identity].into(), ..Settings::default() })
            .ephemeral_keys()
            .build()
            .unwrap();
        Self { platform, registered: version(number) }
    }

    async fn create(&self, body: Value) -> Value {
        let created = self
            .platform
            .create_erased(&me(), self.registered, "", body.as_object().unwrap(), RequestOptions::none())
            .await;
        serde_json::from_slice(&created.unwrap().body).unwrap()
    }

    async fn update(&self, uid: &str, body: Value) -> Value {
        let body = body.as_object().unwrap();
        let updated =
            self.platform.update_erased(&me(), self.registered, uid, body, None, RequestOptions::none()).await;
        serde_json::from_slice(&updated.unwrap().body).unwrap()
    }

    async fn get(&self, uid: &str) -> Value {
        serde_json::from_slice(
            &self.platform.get_erased(&me(), self.registered, uid, RequestOptions::none()).await.unwrap().body,
        )
        .unwrap()
    }

    /// Returns the resources of a list, by this order and filter.
    async fn list(&self, order: &str, filter: &[(&str, &str)]) -> Vec<Value> {
        let query = filter.iter().copied().chain([("order_by", order)]);
        let query: Vec<_> = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let request = ListRequest::from_query(self.registered.kind, &query).unwrap();
        let reply = self.platform.list_erased(Some(&me()), self.registered, &request).await.unwrap();
        assert_eq!(reply.total_count, reply.items.len() as u64);
        reply.items.iter().map(|item| serde_json::from_slice(item).unwrap()).collect()
    }

    async fn plates(&self, order: &str, filter: &[(&str, &str)]) -> Vec<String> {
        let listed = self.list(order, filter).await;
        listed.iter().map(|vehicle| vehicle["plate"].as_str().unwrap().to_owned()).collect()
    }
}

fn uid(resource: &Value) -> &str {
    resource["uid"].as_str().unwrap()
}

/// Returns a resource without its uid and its times.
fn values(resource: &Value) -> Value {
    let mut values = resource.clone();
    ["uid", "createTime", "updateTime"].iter().for_each(|name| drop(values.as_object_mut().unwrap().remove(*name)));
    values
}

/// Returns all that a store has of the kind and its shape.
async fn contents(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    for kind in ["Vehicle", "KindShape"] {
        let page = store.list(&Query::new(kind, Scope::All)).await.unwrap();
        all.extend(page.items.into_iter().map(|item| format!("{} {item:?}", item.uid())));
    }
    all
}

/// Takes a store through all versions. `reopen` closes and opens it.
async fn all_versions(mut reopen: impl AsyncFnMut() -> Arc<dyn Store>) {
    let mut store = reopen().await;
    let first = Release::adopted(&store, 1).await;
    let old = first.create(json!({ "plate": "A1", "seats": 4, "color": "red", "wheels": 3 })).await;
    let plain = first.create(json!({ "plate": "B2" })).await;
    assert_eq!(values(&plain), json!({ "plate": "B2", "seats": 0, "wheels": 0 }));
    drop(first);

    // A rename is free.
    store = next(store, &mut reopen).await;
    let renamed = Release::adopted(&store, 2).await;
    let expected = json!({ "plate": "A1", "places": 4, "color": "red", "wheels": 3 });
    assert_eq!(values(&renamed.get(uid(&old)).await), expected);
    assert_eq!(values(&renamed.list("plate", &[("plate", "A1")]).await[0]), expected);
    assert_eq!(
        values(&renamed.update(uid(&plain), json!({ "places": 2 })).await),
        json!({ "plate": "B2", "places": 2, "wheels": 0 })
    );
    drop(renamed);

    // So are fields with a default, also required ones, and removals.
    store = next(store, &mut reopen).await;
    let default = Release::adopted(&store, 3).await;
    assert_eq!(default.get(uid(&old)).await["status"], "parked");
    let sold = default.create(json!({ "plate": "C3", "places": 5, "color": "blue", "status": "sold" })).await;
    let unset = default.create(json!({ "plate": "D4" })).await;
    assert_eq!((&sold["status"], &unset["status"]), (&json!("sold"), &json!("parked")));
    assert_eq!(default.update(uid(&sold), json!({ "status": "" })).await["status"], "parked");
    assert_eq!(default.update(uid(&sold), json!({ "status": "sold" })).await["status"], "sold");
    drop(default);

    store = next(store, &mut reopen).await;
    let required = Release::adopted(&store, 4).await;
    assert_eq!(required.get(uid(&plain)).await["owner"], "nobody");
    assert_eq!(required.update(uid(&plain), json!({ "color": "green" })).await["owner"], "nobody");
    let unset = json!({ "plate": "E5" });
    let error = required
        .platform
        .create_erased(&me(), required.registered, "", unset.as_object().unwrap(), RequestOptions::none())
        .await;
    assert_eq!(error.unwrap_err().violations()[0].field, "owner");
    drop(required);

    store = next(store, &mut reopen).await;
    let removed = Release::adopted(&store, 5).await;
    let expected = json!({ "plate": "A1", "places": 4, "color": "red", "status": "parked", "owner": "nobody" });
    assert_eq!(values(&removed.get(uid(&old)).await), expected);
    assert!(removed.list("plate", &[]).await.iter().all(|vehicle| vehicle.get("wheels").is_none()));
    let twin = removed.create(json!({ "plate": "A1", "places": 1, "owner": "bob" })).await;
    drop(removed);

    rewritten(&mut store, &mut reopen, [uid(&old), uid(&twin)]).await;
}

/// New orders, filters and a uniqueness rule, which two records break at first.
async fn rewritten(store: &mut Arc<dyn Store>, reopen: &mut impl AsyncFnMut() -> Arc<dyn Store>, twins: [&str; 2]) {
    let before = contents(&**store).await;
    let Err(AdoptError::MustRewrite(reasons)) = shape::adopt(&**store, VERSIONS[5]).await else { panic!("a rewrite") };
    let items: BTreeSet<_> = reasons.iter().map(|reason| reason.item.as_str()).collect();
    let expected =
        ["filter by color", "filter by status", "order by places", "order by status", "unique vehicle.plate"];
    assert_eq!(items, expected.into());
    let rewrite = async |store: &dyn Store, is_dry| shape::rewrite(store, version(6), is_dry, &mut |_| {}).await;
    let Err(RewriteError::Taken(taken)) = rewrite(&**store, false).await else { panic!("a conflict") };
    let mut named = [taken[0].uid.as_str(), taken[0].other.as_str()];
    named.sort_unstable();
    let mut twins = twins;
    twins.sort_unstable();
    assert_eq!((taken.len(), taken[0].space, named), (1, "vehicle.plate", twins));
    assert_eq!(contents(&**store).await, before, "nothing was written");

    Release::new(store, 5).update(twins[0], json!({ "plate": "F6" })).await;
    let before = contents(&**store).await;
    assert_eq!(rewrite(&**store, true).await.unwrap().records, 5);
    assert_eq!(contents(&**store).await, before, "a dry run writes nothing");
    let revisions = async |store: &dyn Store| {
        let page = store.list(&Query::new("Vehicle", Scope::All)).await.unwrap();
        page.items.into_iter().map(|item| item.revision).collect::<Vec<_>>()
    };
    let kept = revisions(&**store).await;
    assert_eq!(rewrite(&**store, false).await.unwrap().records, 5);
    assert_eq!(revisions(&**store).await, kept);

    for number in [6, 7] {
        *store = next(std::mem::replace(store, Arc::new(MemoryStore::new())), reopen).await;
        let indexed = Release::adopted(store, number).await;
        let places: Vec<_> =
            indexed.list("places desc", &[]).await.iter().map(|vehicle| vehicle["places"].clone()).collect();
        assert_eq!(places, [5, 4, 2, 1, 0]);
        assert_eq!(indexed.plates("plate", &[("status", "sold")]).await, ["C3"]);
        assert_eq!(indexed.plates("plate", &[("status", "parked")]).await.len(), 4);
        assert_eq!(indexed.plates("plate", &[("color", "green")]).await, ["B2"]);
        let body = json!({ "plate": "C3", "owner": "eve" });
        let error = indexed
            .platform
            .create_erased(&me(), indexed.registered, "", body.as_object().unwrap(), RequestOptions::none())
            .await;
        assert!(error.unwrap_err().to_string().contains("A vehicle of this plate already exists"));
    }
    // An earlier release again: its writes lack the keys, so that the next one is refused until a rewrite.
    Release::adopted(store, 5).await;
    let again = shape::adopt(&**store, VERSIONS[5]).await;
    assert!(matches!(again, Err(AdoptError::MustRewrite(_))), "{again:?}");
}

async fn next(store: Arc<dyn Store>, reopen: &mut impl AsyncFnMut() -> Arc<dyn Store>) -> Arc<dyn Store> {
    drop(store);
    reopen().await
}

fn run(test: impl Future<Output = ()>) {
    Runtime::new().unwrap().block_on(test);
}

pub(crate) fn memory() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    run(all_versions(async || Arc::clone(&store)));
}

pub(crate) fn sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    run(all_versions(async || Arc::new(SqliteStore::open(&path).unwrap()) as _));
}

pub(crate) fn sled() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    run(all_versions(async || Arc::new(SledStore::open(&path).unwrap()) as _));
}

pub(crate) fn postgres() {
    let Some(cluster) = Cluster::shared() else { return };
    run(async {
        let url = cluster.empty_schema("evolution").await.unwrap();
        PostgresStore::migrate(&url, &Options::default()).await.unwrap();
        all_versions(async || Arc::new(PostgresStore::open(&url, Options::default()).await.unwrap()) as _).await;
    });
}

/// Stores that an earlier release has written with each version, and what a later one reads. With `UPDATE_EXPECT`, they
/// are written again.
pub(crate) fn stored_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/evolution/stored");
    let body = |number: usize| {
        let mut body = json!({ "plate": format!("V{number}"), "color": "red" });
        body[if number == 1 { "seats" } else { "places" }] = number.into();
        if number >= 4 {
            body["owner"] = "ann".into();
        }
        body
    };
    for number in 1..=6 {
        let path = folder.join(format!("version-{number}.sqlite"));
        run(async {
            let directory = tempfile::tempdir().unwrap();
            if std::env::var("UPDATE_EXPECT").is_ok() {
                let new = directory.path().join("new");
                let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&new).unwrap());
                Release::adopted(&store, number).await.create(body(number)).await;
                drop(store);
                fs::copy(new, &path).unwrap();
            }
            let copy: PathBuf = directory.path().join("store");
            fs::copy(&path, &copy).unwrap();
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&copy).unwrap());
            if number < 6 {
                let read = Release::adopted(&store, 5).await.list("plate", &[("plate", &format!("V{number}"))]).await;
                assert_eq!(read[0]["places"], number, "version {number}");
                shape::rewrite(&*store, version(6), false, &mut |_| {}).await.unwrap();
            }
            let read = Release::adopted(&store, 7).await.list("places", &[("color", "red")]).await;
            let owner = if number < 4 { "nobody" } else { "ann" };
            let expected = json!({
                "plate": format!("V{number}"), "places": number, "color": "red", "status": "parked", "owner": owner,
            });
            assert_eq!(read.iter().map(values).collect::<Vec<_>>(), [expected], "version {number}");
            // What is not said is refused, with what to say.
            let error = shape::adopt(&*store, &[Registered::of::<Careless>()]).await.unwrap_err().to_string();
            assert!(error.contains("Vehicle: fields.places: is stored and has no row in the table"), "{error}");
            assert!(error.contains("Vehicle: fields.color: is stored as text and is int32 in the table"), "{error}");
            assert!(
                error.contains("Vehicle: fields.spots: is always set, and stored resources may lack it"),
                "{error}"
            );
        });
    }
}
