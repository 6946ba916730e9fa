//! The data of the measurements: many small resources, few large ones, and resources at the bounds of documented limits.

use std::{path::PathBuf, sync::Arc};

use platform_core::resources::{
    iam::Group,
    registry::{Image, Repo, Tag},
    vulnerabilities::Advisory,
};
use platform_engine::{
    access::Caller,
    kind::{Imported, Resource},
    platform::{Platform, Settings},
    store::{Commit, Store},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};
use pollster::block_on;
use serde_json::{Value, json};

use crate::data::{self, Data};

/// The number of small repos, of about 330 bytes each.
pub const REPOS: u64 = 20_000;
/// The number of large repos, of about 45 kB each: 58 MB.
const LARGE: u64 = 1_300;
/// The number of images, each with the same vulnerabilities.
const IMAGES: usize = 500;
/// The number of packages of each image.
const PACKAGES: usize = 34;
/// The number of advisories of each package.
const PER_PACKAGE: usize = 30;
/// The first and last day for which images have a history.
pub const DAYS: (&str, &str) = ("2025-01-01T00:00:00Z", "2025-07-19T00:00:00Z");

/// Returns the group of the large repos.
pub fn large() -> Uid {
    Uid::opaque(format!("{}/{:016x}", data::organization(0), data::mix(99)))
}

/// Returns the repo with the images.
pub fn images() -> Uid {
    Uid::opaque(format!("{}/{:016x}", data::organization(0), data::mix(98)))
}

/// Returns the ids of the vulnerabilities.
pub fn vulnerabilities() -> impl Iterator<Item = String> {
    (0..PACKAGES * PER_PACKAGE).map(|number| format!("CVE-2025-{number}"))
}

/// Returns the file of a SQLite store with the data, and creates it if it is missing.
pub fn sqlite() -> PathBuf {
    data::cached("bystander-1.sqlite", |path| {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::builder().open(path).unwrap());
        block_on(Data::One(REPOS).fill(Arc::clone(&store)));
        block_on(fill_large(&store));
        let settings = Settings { operators: [data::operator()].into(), ..Settings::default() };
        let builder = platform_v1::builder(store, SystemClock, SystemEntropy).settings(settings);
        fill_images(&builder.ephemeral_keys().build().unwrap());
    })
}

fn now() -> Option<Timestamp> {
    Some(Timestamp::from_millis(1_760_000_000_000))
}

async fn fill_large(store: &Arc<dyn Store>) {
    let group = Group { uid: large(), name: "large".to_owned(), create_time: now(), ..Group::default() };
    let images = Repo { uid: images(), name: "images".to_owned(), create_time: now(), ..Repo::default() };
    let put = vec![data::put(&group, &large()), data::repo_put(&images)];
    store.commit(Commit { put, ..Commit::default() }).await.unwrap();
    let aliases: Vec<_> = (0..500).map(|alias| format!("{alias}-{}", "a".repeat(80))).collect();
    let repo = |number: u64| Repo {
        uid: Uid::opaque(format!("{}/{:016x}", large(), data::mix(number))),
        name: format!("large-{number}"),
        aliases: aliases.clone(),
        create_time: now(),
        ..Repo::default()
    };
    let repos: Vec<_> = (0..LARGE).map(|number| data::repo_put(&repo(number))).collect();
    for put in repos.chunks(100) {
        store.commit(Commit { put: put.to_vec(), ..Commit::default() }).await.unwrap();
    }
}

fn fill_images(platform: &Platform) {
    let operator = Caller::new(data::operator());
    put::<Advisory>(platform, &operator, &data::organization(0), (0..PACKAGES * PER_PACKAGE).map(advisory));
    let package = |place| json!({ "name": format!("package-{place}"), "version": "1.4.0-r0" });
    let packages: Vec<_> = (0..PACKAGES).map(package).collect();
    let image = |number| {
        let digest = format!("sha256:{number:064x}");
        json!({
            "digest": digest, "createTime": DAYS.0,
            "platforms": [{ "architecture": "amd64", "digest": digest, "size": "1000", "packages": packages }],
        })
    };
    put::<Image>(platform, &operator, &images(), (0..IMAGES).map(image));
    let tag = |number| json!({ "name": format!("tag-{number}"), "digest": format!("sha256:{number:064x}") });
    for number in 0..IMAGES {
        let tag: Tag = serde_json::from_value(tag(number)).unwrap();
        block_on(platform.create(&operator, &images(), &tag)).unwrap();
    }
}

fn put<R: Imported + Resource>(
    platform: &Platform,
    operator: &Caller,
    parent: &str,
    resources: impl Iterator<Item = Value> + Send,
) {
    let resources = resources.map(|one| serde_json::from_value::<R>(one).unwrap());
    let reply = block_on(platform.put(operator, parent, resources)).unwrap();
    assert!(reply.refused.is_empty(), "{:?}", reply.refused.first());
}

/// Returns an advisory that is not fixed, and about as long as documents can return for each of a thousand names.
fn advisory(number: usize) -> Value {
    let (package, place) = (number / PER_PACKAGE, number % PER_PACKAGE);
    let event = |note: usize| {
        let at = format!("2025-{:02}-{:02}T00:00:00Z", 1 + place % 6, 1 + note);
        json!({
            "createTime": at, "reviewState": "REVIEW_STATE_APPROVED",
            "truePositiveDetermination": { "note": "a".repeat(900) },
        })
    };
    let events: Vec<_> = (0..15).map(event).collect();
    json!({
        "advisoryId": format!("CGA-{number}"), "artifactName": format!("package-{package}"), "artifactType": "apk",
        "packageNamespace": "wolfi", "aliases": [format!("CVE-2025-{number}")], "events": events,
    })
}
