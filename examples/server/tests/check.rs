//! Tests the command `check`: what it finds, and what it needs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod common;

use std::fs;

use common::{Server, api, run};
use platform_core::{
    store::{Commit, Delete, Store},
    uid::Uid,
};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use serde_json::json;
use tempfile::tempdir;

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
