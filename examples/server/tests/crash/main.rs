//! Kills a server under write load repeatedly, and checks the stored data after each restart.
//!
//! After each restart every acknowledged write is present, a write without a response is applied as a whole or not at
//! all, and lists in every order, totals and gets agree. In addition to ordinary writers there are clients that send
//! conflicting requests, whose outcome only the store's commits decide. `platform-server check` verifies the store
//! after every 25th kill and after the last.
//!
//! ```text
//! cargo test --release -p server --test crash                        100 kills of each store
//! CRASH_CYCLES=2000 cargo test --release -p server --test crash -- sqlite
//! CRASH_SEED=7 cargo test -p server --test crash -- sled             repeats the random decisions of a seed
//! ```
//!
//! A seed repeats the writes and the times of the kills, but not the scheduling of threads and disk. A failed test
//! keeps the data directory and prints its path. Progress is printed even without `--nocapture`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

#[path = "../common/mod.rs"]
mod common;

mod known;
mod races;
mod repeats;
mod walk;
mod writers;

use std::{
    io::{Write, stderr},
    panic::resume_unwind,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use common::{Api, Server, program, run};
use known::{Known, Unacknowledged};
use races::{NameRace, ParentRace, PatchRace};
use repeats::Repeater;
use serde_json::json;
use tempfile::TempDir;
use writers::Writer;

#[test]
fn acknowledged_writes_to_sqlite_survive_kills() {
    crash("sqlite");
}

#[test]
fn acknowledged_writes_to_sled_survive_kills() {
    crash("sled");
}

/// The audience of tokens, which stays the same when a restart gets another port.
const URL: &str = "http://crash.test";
/// Number of ordinary writers, in addition to the clients of the races.
const WRITERS: usize = 4;
/// Upper bound of the random number of acknowledged writes before a kill.
const WRITES: usize = 60;
/// Upper bound of the random delay between these writes and the kill, in microseconds.
const KILL_DELAY: u64 = 20_000;
/// Number of kills between checks of the whole store.
const CHECK_EVERY: u64 = 25;
/// Number of kills between reports of progress.
const REPORT_EVERY: u64 = 100;

fn crash(store: &str) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cycles = number("CRASH_CYCLES").unwrap_or(40);
    let seed = number("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    print(&format!("{store}: {cycles} kills, CRASH_SEED={seed}"));
    let mut harness = Harness::new(store, seed);
    for cycle in 1..=cycles {
        harness.cycle(cycle);
        if cycle % REPORT_EVERY == 0 || cycle == cycles {
            harness.report(cycle);
        }
    }
    harness.check();
}

/// Prints to standard error, which the test runner does not capture here.
fn print(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// The resources that all clients share.
#[derive(Debug)]
struct Fixture {
    /// The folder that contains all resources of the test.
    folder: String,
    /// Identities that can be bound.
    identities: Vec<String>,
}

/// A client that writes and knows the acknowledged state of its resources.
trait Client: Send {
    /// Sends the next request, or two at once. If a response is missing, returns the changes that may have been
    /// applied.
    fn write(&mut self, api: &Api, fixture: &Fixture) -> Result<Written, Unacknowledged>;

    fn known(&mut self) -> &mut Known;
}

/// Kind of an acknowledged write.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Once,
    Race,
}

/// The resources that the setup created, which no client changes.
struct Setup(Known);

impl Client for Setup {
    fn write(&mut self, _: &Api, _: &Fixture) -> Result<Written, Unacknowledged> {
        Err(Unacknowledged::new())
    }

    fn known(&mut self) -> &mut Known {
        &mut self.0
    }
}

/// Counters for the report.
#[derive(Debug, Default)]
struct Counts {
    acknowledged: u64,
    races: u64,
    /// Requests without a response.
    unanswered: u64,
    /// Requests without a response that were applied.
    applied: u64,
}

struct Harness {
    store: String,
    dir: Directory,
    token: String,
    rng: fastrand::Rng,
    server: Option<Server>,
    fixture: Fixture,
    clients: Vec<Box<dyn Client>>,
    /// The last seen creation and update times of each resource.
    times: walk::Times,
    counts: Counts,
    started: Instant,
}

impl Harness {
    fn new(store: &str, seed: u64) -> Self {
        let dir = Directory(TempDir::with_prefix(format!("crash-{store}-")).unwrap());
        let mut rng = fastrand::Rng::with_seed(seed);
        let server = start(dir.path(), store);
        let token = run(dir.path(), &["token", "--ttl", "30d", "--public-url", URL]).ok().trim().to_owned();
        let api = Api::new(&server.url, &token);

        let organization = api.get("/iam/v2/groups").ok()["groups"][0]["uid"].as_str().unwrap().to_owned();
        let folder = api.post(&format!("/iam/v2/groups/{organization}"), &json!({"name": "work"})).ok();
        let uid = folder["uid"].as_str().unwrap().to_owned();
        let mut setup = Known::default();
        setup.acknowledge("group work", folder);
        let identity = |number: u64| {
            let claims = json!({"issuer": "https://issuer.example", "subject": format!("{number}")});
            let body = json!({"name": format!("identity {number}"), "claimMatch": claims});
            api.post(&format!("/iam/v2/identities/{uid}"), &body).ok()
        };
        let identities: Vec<_> = (0..3).map(identity).collect();
        for identity in &identities {
            setup.acknowledge(format!("identity {}", identity["name"].as_str().unwrap()), identity.clone());
        }
        let identities = identities.iter().map(|identity| identity["uid"].as_str().unwrap().to_owned()).collect();
        let mut clients: Vec<Box<dyn Client>> = vec![
            Box::new(Setup(setup)),
            Box::new(ParentRace::default()),
            Box::new(NameRace::default()),
            Box::new(PatchRace::default()),
            Box::new(Repeater::default()),
        ];
        for number in 0..WRITERS {
            clients.push(Box::new(Writer::new(format!("w{number}"), rng.fork())));
        }
        Self {
            store: store.to_owned(),
            dir,
            token,
            rng,
            server: Some(server),
            fixture: Fixture { folder: uid, identities },
            clients,
            times: walk::Times::default(),
            counts: Counts::default(),
            started: Instant::now(),
        }
    }

    /// Writes, kills, restarts, and compares the stored with the acknowledged state.
    fn cycle(&mut self, cycle: u64) {
        let server = self.server.take().unwrap();
        let api = Api::new(&server.url, &self.token);
        let unacknowledged = self.write_until_killed(server, &api);
        if cycle.is_multiple_of(CHECK_EVERY) {
            self.check();
        }
        if self.rng.u8(..8) == 0 {
            // Kills another server while it is starting.
            let early = Server::spawn(&mut serve(self.dir.path(), &self.store));
            thread::sleep(Duration::from_millis(self.rng.u64(..40)));
            assert_no_errors(&early.kill());
        }
        let server = start(self.dir.path(), &self.store);
        let api = Api::new(&server.url, &self.token);
        self.server = Some(server);
        let seen = walk::everything(&api, &self.fixture.folder, &mut self.rng);
        self.times.check(&seen);
        for (client, unacknowledged) in self.clients.iter_mut().zip(&unacknowledged) {
            if let Some(is_applied) = client.known().reconcile(unacknowledged, &seen) {
                self.counts.unanswered += 1;
                self.counts.applied += u64::from(is_applied);
            }
        }
        for (name, body) in &seen {
            let is_known = self.clients.iter_mut().any(|client| client.known().contains(name));
            assert!(is_known, "no client created `{name}`: {body}");
        }
    }

    /// Runs all clients until the server is killed, and returns the unacknowledged changes of each.
    fn write_until_killed(&mut self, server: Server, api: &Api) -> Vec<Unacknowledged> {
        let (writes, delay) = (self.rng.usize(..WRITES), Duration::from_micros(self.rng.u64(..KILL_DELAY)));
        let fixture = &self.fixture;
        let (written, acknowledged) = mpsc::channel();
        let until_killed = |client: &mut Box<dyn Client>, written: mpsc::Sender<Written>| {
            loop {
                match client.write(api, fixture) {
                    Ok(kind) => written.send(kind).unwrap(),
                    Err(unacknowledged) => return unacknowledged,
                }
            }
        };
        let (unacknowledged, first) = thread::scope(|scope| {
            let spawn = |client| {
                let written = written.clone();
                scope.spawn(move || until_killed(client, written))
            };
            let threads: Vec<_> = self.clients.iter_mut().map(spawn).collect();
            drop(written);
            // Fewer than `writes` only if all clients failed.
            let first: Vec<_> = acknowledged.iter().take(writes).collect();
            thread::sleep(delay);
            assert_no_errors(&server.kill());
            let unacknowledged =
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (unacknowledged.collect(), first)
        });
        for kind in first.into_iter().chain(acknowledged) {
            self.counts.acknowledged += u64::from(kind == Written::Once);
            self.counts.races += u64::from(kind == Written::Race);
        }
        unacknowledged
    }

    /// Stops the server and verifies the store.
    fn check(&mut self) {
        drop(self.server.take());
        let checked = run(self.dir.path(), &["check", "--store", &self.store]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }

    fn report(&self, cycle: u64) {
        let Counts { acknowledged, races, unanswered, applied } = &self.counts;
        print(&format!(
            "{}: {cycle} kills in {:.0?}; all {acknowledged} acknowledged writes are intact; of {unanswered} requests \
             without a response {applied} were applied and none in part; {races} races had one outcome each",
            self.store,
            self.started.elapsed()
        ));
    }
}

fn serve(dir: &Path, store: &str) -> std::process::Command {
    program(dir, &["serve", "--listen", "127.0.0.1:0", "--public-url", URL, "--store", store, "--log", "warn"])
}

fn start(dir: &Path, store: &str) -> Server {
    Server::of(&mut serve(dir, store)).unwrap_or_else(|ran| panic!("the server does not start: {ran:?}"))
}

/// Asserts that a server logged no errors or panics.
fn assert_no_errors(log: &str) {
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
}

/// A temporary directory that is kept if the test fails.
struct Directory(TempDir);

impl Directory {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.disable_cleanup(true);
            print(&format!("the data directory is kept in {}", self.path().display()));
        }
    }
}
