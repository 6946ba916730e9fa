//! Concurrent repetitions of a write with an idempotency key, on each store (`docs/api.md`, Repeatable writes).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::{sync::Barrier, thread};

use common::{STORES, Server, api};
use serde_json::json;
use tempfile::tempdir;

/// The number of clients that send the same request at the same time.
const CLIENTS: usize = 64;

#[test]
fn of_64_concurrent_repetitions_one_is_carried_out_on_each_store() {
    for store in STORES {
        let dir = tempdir().unwrap();
        let _server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        let path = format!("/iam/v2/identities/{organization}");
        // The name of an identity need not be unique.
        let body = json!({ "name": "repeated", "claimMatch": { "issuer": "https://issuer.test", "subject": "s" } });
        let barrier = Barrier::new(CLIENTS);
        let send = || {
            barrier.wait();
            api.try_send_keyed("POST", &path, &body, "key").unwrap()
        };
        let responses: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(send)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let made = responses[0].ok();
        assert!(responses.iter().all(|response| response.ok() == made), "{store}: {responses:?}");
        let first = responses.iter().filter(|response| !response.is_replayed).count();
        let listed = api.get("/iam/v2/identities?name=repeated").ok();
        assert_eq!((first, &listed["totalCount"]), (1, &json!("1")), "{store}");
    }
}
