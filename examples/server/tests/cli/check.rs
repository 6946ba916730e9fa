//! Tests the command `check`: what it finds, and what it needs.

use std::fs;

use platform_engine::{
    store::{Commit, Delete, Store},
    uid::Uid,
};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use serde_json::json;
use tempfile::tempdir;

use crate::common::{self, Server, api, run};

#[test]
fn check_needs_a_store_and_finds_no_damage_in_a_new_one() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["check"]).failed().contains("no store at platform-data/platform.sqlite"));
    assert!(run(dir.path(), &["check", "--store", "memory"]).failed().contains("nothing to check"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    for store in ["sqlite", "sled"] {
        drop(Server::start(dir.path(), &["--store", store]));
        let ran = run(dir.path(), &["check", "--store", store]);
        assert!(ran.stderr.starts_with("no damage found in platform-data/"), "{ran:?}");
        assert_eq!(ran.ok(), "");
    }
}

#[test]
fn check_finds_events_whose_data_is_missing() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        for _ in 0..2 {
            let body = json!({ "sink": "https://receiver.invalid/" });
            api.post(&format!("/events/v2/subscriptions/{organization}"), &body).ok();
        }
        let aliases: Vec<_> = (0..100).map(|n| format!("library/{n}{}:latest", "a".repeat(100))).collect();
        let repo = json!({ "name": "nginx", "aliases": aliases });
        api.post(&format!("/registry/v2/repos/{organization}"), &repo).ok();
        server.terminate();
        assert_eq!(server.wait().code, Some(0));
        assert_eq!(run(dir.path(), &["check", "--store", store]).ok(), "", "{store}");

        let path = dir.path().join("platform-data").join(format!("platform.{store}"));
        let open: Box<dyn Store> = match store {
            "sqlite" => Box::new(SqliteStore::open(path).unwrap()),
            _ => Box::new(SledStore::open(path).unwrap()),
        };
        let delete = vec![Delete::Below(Uid::opaque(&*organization), vec!["EventBody"])];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(open.commit(Commit { delete, ..Commit::default() })).unwrap();
        drop(open);
        let ran = run(dir.path(), &["check", "--store", store]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.stdout.matches("is missing").count(), 2, "{ran:?}");
        assert!(ran.stdout.contains(&format!("the data {organization}/")), "{ran:?}");
    }
}

#[test]
fn check_of_a_running_server_checks_a_copy() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "nginx" })).ok();
    let by_directory = run(dir.path(), &["check"]);
    assert!(
        by_directory.stderr.contains(&format!("no damage found in the store of {}", server.url)),
        "{by_directory:?}"
    );
    assert_eq!(by_directory.ok(), "");
    assert_eq!(run(dir.path(), &["check", "--api", &format!("{}/", server.url)]).ok(), "");
    assert!(run(dir.path(), &["check", "--api", &server.url, "--token", "none"]).failed().contains("returned 401"));
    // Nothing is left of the copies.
    let names = fs::read_dir(dir.path().join("platform-data")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')));
    server.terminate();
    server.wait();

    // A record that does not match its checksum: in the last page of the file, which no start needs.
    let path = dir.path().join("platform-data/platform.sqlite");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(14).rposition(|window| window == b"\"name\":\"nginx\"").unwrap();
    bytes[at + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let server = Server::start(dir.path(), &[]);
    let found = run(dir.path(), &["check"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stdout.contains("checksum") && found.stderr.contains("is damaged"), "{found:?}");
    drop(server);
}

#[test]
fn check_of_a_running_server_with_another_store_says_what_to_do() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "sled"]);
    for arguments in [&["check", "--store", "sled"][..], &["check", "--api", &server.url]] {
        let error = run(dir.path(), arguments).failed();
        assert!(error.contains("stop the server first") && error.contains("backup verify"), "{error}");
    }
    drop(server);
}

#[test]
fn compact_gives_space_back_and_keeps_everything() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["compact"]).failed().contains("no store at"));
    for (store, advice) in [("sled", "import store"), ("memory", "nothing to compact"), ("postgres://x/y", "VACUUM")] {
        assert!(run(dir.path(), &["compact", "--store", store]).failed().contains(advice), "{store}");
    }
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    let group = api.post(&format!("/iam/v2/groups/{organization}"), &json!({ "name": "large" })).ok();
    let repos: Vec<_> = (0..100)
        .map(|repo| {
            let aliases: Vec<_> = (0..30).map(|n| format!("library/{repo}-{n}{}:latest", "a".repeat(100))).collect();
            let repo = json!({ "name": format!("repo-{repo}"), "aliases": aliases });
            let made = api.post(&format!("/registry/v2/repos/{}", group["uid"].as_str().unwrap()), &repo).ok();
            made["uid"].as_str().unwrap().to_owned()
        })
        .collect();
    for uid in &repos[1..] {
        assert_eq!(api.delete(&format!("/registry/v2/repos/{uid}")).status, 200);
    }
    assert!(run(dir.path(), &["compact"]).failed().contains("stop the server first"));
    server.terminate();
    server.wait();
    let path = dir.path().join("platform-data/platform.sqlite");
    let before = fs::metadata(&path).unwrap().len();
    let printed = run(dir.path(), &["compact"]).ok();
    assert!(printed.starts_with("platform-data/platform.sqlite: ") && printed.ends_with(" given back\n"), "{printed}");
    assert!(fs::metadata(&path).unwrap().len() < before / 2);
    assert_eq!(run(dir.path(), &["check"]).ok(), "");
    let server = Server::start(dir.path(), &[]);
    let (api, _) = common::api(dir.path(), &[]);
    assert_eq!(api.get("/registry/v2/repos").ok()["repos"][0]["uid"], *repos[0]);
    drop(server);
}

#[test]
fn a_migration_prints_the_layout_and_refuses_a_file_of_another_one() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["migrate", "--dry-run"]).failed().contains("no store at"));
    assert!(run(dir.path(), &["migrate", "--store", "memory"]).failed().contains("nothing to migrate"));
    let path = dir.path().join("platform-data/platform.sqlite");
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../platform-store-sqlite/tests/layout-4.db"), &path).unwrap();
    for arguments in [&["migrate", "--dry-run"][..], &["migrate"]] {
        assert!(run(dir.path(), arguments).ok().ends_with("has layout 4, that of this release\n"));
    }
    let mut file = fs::read(&path).unwrap();
    // The layout is the big-endian `PRAGMA user_version` at byte 60 of the header.
    file[60..64].copy_from_slice(&3_u32.to_be_bytes());
    fs::write(&path, &file).unwrap();
    for arguments in [&["migrate", "--dry-run"][..], &["migrate"]] {
        let printed = run(dir.path(), arguments).failed();
        assert!(printed.contains("has layout version 3") && printed.contains("run `export`"), "{printed}");
    }
    assert_eq!(fs::read(&path).unwrap(), file);
    drop(Server::start(dir.path(), &["--store", "sled", "--data-dir", "sled"]));
    let sled = run(dir.path(), &["migrate", "--dry-run", "--store", "sled", "--data-dir", "sled"]);
    assert!(sled.ok().ends_with("has layout 2, that of this release\n"));
}
