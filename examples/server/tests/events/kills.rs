//! Kills the server and its receiver at random: the event of every acknowledged change is delivered, in order.

use std::{
    collections::HashSet,
    io::stderr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tempfile::TempDir;

use super::*;

/// The audience of tokens, which stays the same when a restart gets another port.
const URL: &str = "http://events.test";

#[test]
fn kills_of_server_and_receiver_lose_no_event_of_sqlite() {
    kill_server_and_receiver("sqlite");
}

#[test]
fn kills_of_server_and_receiver_lose_no_event_of_sled() {
    kill_server_and_receiver("sled");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn start(dir: &TempDir, store: &str) -> Server {
    Server::start(dir.path(), &[&["--store", store, "--public-url", URL][..], &OPEN].concat())
}

/// The current URL of the server, which changes with each restart.
#[derive(Default)]
struct ServerUrl(Mutex<String>);

fn kill_server_and_receiver(store: &str) {
    let events = number("EVENTS").unwrap_or(400);
    let seed = number("EVENTS_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut rng = fastrand::Rng::with_seed(seed);
    let _ = writeln!(stderr(), "{store}: {events} events, EVENTS_SEED={seed}");
    let dir = TempDir::with_prefix(format!("events-{store}-")).unwrap();
    let mut server = start(&dir, store);
    let token = run(dir.path(), &["token", "--ttl", "30d", "--public-url", URL]).ok().trim().to_owned();
    let first = Api::new(&server.url, &token);
    let organization = first.get("/iam/v2/groups").ok()["groups"][0]["uid"].as_str().unwrap().to_owned();
    let mut receiver = Receiver::start();
    let subscription = subscribe(&first, &organization, &receiver.url());

    let server_url = Arc::new(ServerUrl(Mutex::new(server.url.clone())));
    let done = Arc::<AtomicBool>::default();
    let writer = {
        let (server_url, done, token) = (Arc::clone(&server_url), Arc::clone(&done), token.clone());
        let path = format!("/registry/v2/repos/{organization}");
        // A single writer, so that changes are acknowledged in the order of their commits.
        thread::spawn(move || {
            let (mut acknowledged, mut attempt) = (Vec::new(), 0);
            while (acknowledged.len() as u64) < events {
                let url = server_url.0.lock().unwrap().clone();
                let api = Api::new(&url, &token);
                while (acknowledged.len() as u64) < events {
                    attempt += 1;
                    match api.try_send("POST", &path, Some(&json!({ "name": format!("r{attempt}") }))) {
                        Some(response) if response.status == 200 => {
                            acknowledged.push(response.json()["uid"].as_str().unwrap().to_owned());
                        }
                        Some(response) => panic!("{response:?}"),
                        None => break,
                    }
                }
                thread::sleep(Duration::from_millis(5));
            }
            done.store(true, Ordering::SeqCst);
            acknowledged
        })
    };
    let (mut kills, mut restarts) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(rng.u64(5..100)));
        if rng.bool() {
            let log = server.kill();
            assert!(!log.contains("panicked"), "{log}");
            server = start(&dir, store);
            *server_url.0.lock().unwrap() = server.url.clone();
            kills += 1;
        } else {
            receiver.stop();
            thread::sleep(Duration::from_millis(rng.u64(1..300)));
            receiver.restart();
            restarts += 1;
        }
    }
    let acknowledged = writer.join().unwrap();
    let api = Api::new(&server.url, &token);
    let last = acknowledged.last().unwrap();
    // On a busy machine all deliveries can take long, so the time is that of one.
    while receiver.subjects().last() != Some(last) {
        let delivered = receiver.subjects().len();
        until(|| receiver.subjects().len() > delivered);
    }
    until(|| run(dir.path(), &["events", "pending", "--api", &server.url, "--token", &token]).ok().is_empty());
    let delivered = receiver.subjects();
    // Changes whose responses were lost have events too, in their order among the others.
    let known: HashSet<_> = acknowledged.iter().collect();
    let delivered_known: Vec<_> = delivered.iter().filter(|subject| known.contains(subject)).collect();
    assert_eq!(
        delivered_known,
        acknowledged.iter().collect::<Vec<_>>(),
        "no event is lost, and their order is that of the changes"
    );
    for unknown in delivered.iter().filter(|subject| !known.contains(subject)) {
        api.get(&format!("/registry/v2/repos/{unknown}")).ok();
    }
    let total = api.get(&format!("/registry/v2/repos?uidp.descendants_of={organization}")).ok()["totalCount"].clone();
    assert_eq!(total, delivered.len().to_string(), "one event per change");
    let status = api.get(&format!("/events/v2/deliveryStatuses/{subscription}")).ok();
    let duplicates = receiver.received().len() - delivered.len();
    let _ = writeln!(
        stderr(),
        "{store}: {} delivered, {duplicates} duplicates, {} dead after {kills} kills of the server and {restarts} of the \
         receiver",
        delivered.len(),
        status["dead"]
    );
    assert_eq!(status["dead"], "0");
    drop(server);
    assert_eq!(run(dir.path(), &["check", "--store", store]).code, Some(0));
}
