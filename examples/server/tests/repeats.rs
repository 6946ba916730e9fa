//! Concurrent repetitions of a write with an idempotency key, on each store and across servers (`docs/api.md`, Repeatable
//! writes).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod common;
#[path = "postgres/database.rs"]
#[allow(dead_code, reason = "the tests of several servers use the rest")]
mod database;

use std::{sync::Barrier, thread};

use common::{Api, STORES, Server, api};
use database::Database;
use serde_json::json;
use tempfile::tempdir;

/// The number of clients that send the same request at the same time.
const CLIENTS: usize = 64;

/// Sends the same create with the same key from all clients, to one server after the other.
fn one_is_carried_out(servers: &[Api], organization: &str) {
    let path = format!("/iam/v2/identities/{organization}");
    // The name of an identity need not be unique.
    let body = json!({ "name": "repeated", "claimMatch": { "issuer": "https://issuer.test", "subject": "s" } });
    let barrier = Barrier::new(CLIENTS);
    let send = |server: &Api| {
        barrier.wait();
        server.try_send_keyed("POST", &path, &body, "key").unwrap()
    };
    let responses: Vec<_> = thread::scope(|scope| {
        let servers = servers.iter().cycle().take(CLIENTS);
        let threads: Vec<_> = servers.map(|server| scope.spawn(|| send(server))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let made = responses[0].ok();
    assert!(responses.iter().all(|response| response.ok() == made), "{responses:?}");
    assert_eq!(responses.iter().filter(|response| !response.is_replayed).count(), 1);
    for server in servers {
        let listed = server.get("/iam/v2/identities?name=repeated").ok();
        assert_eq!((&listed["totalCount"], &listed["identities"][0]), (&json!("1"), &made));
    }
}

#[test]
fn of_64_concurrent_repetitions_one_is_carried_out_on_each_store() {
    for store in STORES {
        let dir = tempdir().unwrap();
        let _server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        one_is_carried_out(&[api], &organization);
    }
}

#[test]
fn of_64_concurrent_repetitions_at_two_servers_of_a_database_one_is_carried_out() {
    let Some(database) = Database::migrated("repeats") else { return };
    let servers = [database.start(&[]), database.start(&[])];
    let (organization, token) = database.operator();
    one_is_carried_out(&servers.each_ref().map(|server| Api::new(&server.url, &token)), &organization);
}
