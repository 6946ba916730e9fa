//! Kills the server and its receiver at random: every acknowledged change is told, in the order of the changes.

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

/// The URL that tokens are for; the same whatever port a restart gets.
const URL: &str = "http://events.test";

#[test]
fn kills_of_server_and_receiver_lose_no_event_of_sqlite() {
    survive("sqlite");
}

#[test]
fn kills_of_server_and_receiver_lose_no_event_of_sled() {
    survive("sled");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn start(dir: &TempDir, store: &str) -> Server {
    Server::start(dir.path(), &[&["--store", store, "--public-url", URL][..], &OPEN].concat())
}

/// Where the server is now.
#[derive(Default)]
struct Where(Mutex<String>);

fn survive(store: &str) {
    let events = number("EVENTS").unwrap_or(1000);
    let seed = number("EVENTS_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut rng = fastrand::Rng::with_seed(seed);
    let _ = writeln!(stderr(), "{store}: {events} events, EVENTS_SEED={seed}");
    let dir = TempDir::with_prefix(format!("events-{store}-")).unwrap();
    let mut server = start(&dir, store);
    let token = run(dir.path(), &["token", "--ttl", "30d", "--public-url", URL]).ok().trim().to_owned();
    let first = Api::new(&server.url, &token);
    let organisation = first.get("/iam/v2/groups").ok()["groups"][0]["uid"].as_str().unwrap().to_owned();
    let mut receiver = Receiver::begin();
    let subscription = subscribe(&first, &organisation, &receiver.url());

    let place = Arc::new(Where(Mutex::new(server.url.clone())));
    let done = Arc::<AtomicBool>::default();
    let writer = {
        let (place, done, token) = (Arc::clone(&place), Arc::clone(&done), token.clone());
        let path = format!("/registry/v2/repos/{organisation}");
        // One writer, so that the order in which changes are acknowledged is that of their commits.
        thread::spawn(move || {
            let (mut acknowledged, mut attempt) = (Vec::new(), 0);
            while (acknowledged.len() as u64) < events {
                let url = place.0.lock().unwrap().clone();
                let api = Api::new(&url, &token);
                while (acknowledged.len() as u64) < events {
                    attempt += 1;
                    match api.try_send("POST", &path, Some(&json!({ "name": format!("r{attempt}") }))) {
                        Some(answer) if answer.status == 200 => {
                            acknowledged.push(answer.json()["uid"].as_str().unwrap().to_owned());
                        }
                        Some(answer) => panic!("{answer:?}"),
                        None => break,
                    }
                }
                thread::sleep(Duration::from_millis(5));
            }
            done.store(true, Ordering::SeqCst);
            acknowledged
        })
    };
    let (mut kills, mut ends) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(rng.u64(5..100)));
        if rng.bool() {
            let log = server.kill();
            assert!(!log.contains("panicked"), "{log}");
            server = start(&dir, store);
            *place.0.lock().unwrap() = server.url.clone();
            kills += 1;
        } else {
            receiver.end();
            thread::sleep(Duration::from_millis(rng.u64(1..300)));
            receiver.again();
            ends += 1;
        }
    }
    let acknowledged = writer.join().unwrap();
    let api = Api::new(&server.url, &token);
    let last = acknowledged.last().unwrap();
    until(|| receiver.subjects().last() == Some(last));
    until(|| run(dir.path(), &["events", "pending", "--api", &server.url, "--token", &token]).ok().is_empty());
    let told = receiver.subjects();
    // Changes whose answers never came may be told of too, in their places.
    let known: HashSet<_> = acknowledged.iter().collect();
    let of_known: Vec<_> = told.iter().filter(|subject| known.contains(subject)).collect();
    assert_eq!(of_known, acknowledged.iter().collect::<Vec<_>>(), "none is lost and their order is kept");
    for unknown in told.iter().filter(|subject| !known.contains(subject)) {
        api.get(&format!("/registry/v2/repos/{unknown}")).ok();
    }
    let total = api.get(&format!("/registry/v2/repos?uidp.descendants_of={organisation}")).ok()["totalCount"].clone();
    assert_eq!(total, told.len().to_string(), "no event without its change, and no change without its event");
    let status = api.get(&format!("/events/v2/deliveryStatuses/{subscription}")).ok();
    let again = receiver.taken().len() - told.len();
    let _ = writeln!(
        stderr(),
        "{store}: {} told, {again} of them again, after {kills} kills of the server and {ends} of the receiver; dead {}",
        told.len(),
        status["dead"]
    );
    assert_eq!(status["dead"], "0");
    drop(server);
    assert_eq!(run(dir.path(), &["check", "--store", store]).code, Some(0));
}
