//! Kills a server that is being written to, again and again, and checks after each restart what is there.
//!
//! After each restart every acknowledged write is there, a write that got no answer is there as a whole or not at all,
//! and lists in every order, totals and gets agree. Beside the ordinary writers, races are run whose outcome only the
//! store's commits decide. `platform-server check` has its say after every 25th kill and after the last.
//!
//! ```text
//! cargo test --release -p platform-server --test crash                        100 kills of each store
//! CRASH_CYCLES=2000 cargo test --release -p platform-server --test crash -- sqlite
//! CRASH_SEED=7 cargo test -p platform-server --test crash -- sled             the same random decisions again
//! ```
//!
//! A seed repeats what is written and when the kill comes, but not how threads and disk take turns. When something is
//! wrong the data directory is kept and named, and `--nocapture` is not needed to see where the run stands.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

#[path = "../common/mod.rs"]
mod common;

mod known;
mod races;
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
use known::{Known, Unsure};
use races::{Fields, Orphans, Twins};
use serde_json::json;
use tempfile::TempDir;
use writers::Writer;

#[test]
fn what_sqlite_acknowledged_survives_kills() {
    crash("sqlite");
}

#[test]
fn what_sled_acknowledged_survives_kills() {
    crash("sled");
}

/// The URL that tokens are for; the same whatever port a restart gets.
const URL: &str = "http://crash.test";
/// How many ordinary writers there are beside the races.
const WRITERS: usize = 4;
/// How many writes are acknowledged, at most, before a server is to be killed.
const WRITES: usize = 60;
/// How much longer it lives, at most, in microseconds.
const REST: u64 = 20_000;
/// After how many kills the whole store is proved.
const CHECK_EVERY: u64 = 25;
/// After how many kills the run says where it stands.
const TELL_EVERY: u64 = 100;

fn crash(store: &str) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cycles = number("CRASH_CYCLES").unwrap_or(100);
    let seed = number("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    tell(&format!("{store}: {cycles} kills, CRASH_SEED={seed}"));
    let mut harness = Harness::new(store, seed);
    for cycle in 1..=cycles {
        harness.cycle(cycle);
        if cycle % TELL_EVERY == 0 || cycle == cycles {
            harness.tell(cycle);
        }
    }
    harness.check();
}

/// Says something at once, whatever the test runner does with the output of tests.
fn tell(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Where the writers write.
#[derive(Debug)]
struct Place {
    /// The folder that all of it lies in.
    folder: String,
    /// Identities that can be bound.
    identities: Vec<String>,
}

/// One who writes and knows what it was told.
trait Client: Send {
    /// Sends the next request, or two at once. When an answer did not come, returns what may have been done.
    fn write(&mut self, api: &Api, place: &Place) -> Result<Written, Unsure>;

    fn known(&mut self) -> &mut Known;
}

/// What was acknowledged.
#[derive(Debug, PartialEq, Eq)]
enum Written {
    Once,
    Race,
}

/// What the setup wrote, and nobody writes again.
struct Setup(Known);

impl Client for Setup {
    fn write(&mut self, _: &Api, _: &Place) -> Result<Written, Unsure> {
        Err(Unsure::new())
    }

    fn known(&mut self) -> &mut Known {
        &mut self.0
    }
}

/// What was counted.
#[derive(Debug, Default)]
struct Counts {
    acknowledged: u64,
    races: u64,
    /// Requests without an answer, and those of them that were found done.
    unanswered: u64,
    done: u64,
}

struct Harness {
    store: String,
    dir: Directory,
    token: String,
    rng: fastrand::Rng,
    server: Option<Server>,
    place: Place,
    clients: Vec<Box<dyn Client>>,
    /// When each resource was last seen to be created and updated.
    times: walk::Times,
    counts: Counts,
    begun: Instant,
}

impl Harness {
    fn new(store: &str, seed: u64) -> Self {
        let dir = Directory(TempDir::with_prefix(format!("crash-{store}-")).unwrap());
        let mut rng = fastrand::Rng::with_seed(seed);
        let server = start(dir.path(), store);
        let token = run(dir.path(), &["token", "--ttl", "30d", "--public-url", URL]).ok().trim().to_owned();
        let api = Api::new(&server.url, &token);

        let organisation = api.get("/iam/v2/groups").ok()["groups"][0]["uid"].as_str().unwrap().to_owned();
        let folder = api.post(&format!("/iam/v2/groups/{organisation}"), &json!({"name": "work"})).ok();
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
            Box::new(Orphans::default()),
            Box::new(Twins::default()),
            Box::new(Fields::default()),
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
            place: Place { folder: uid, identities },
            clients,
            times: walk::Times::default(),
            counts: Counts::default(),
            begun: Instant::now(),
        }
    }

    /// Writes, kills, restarts, and compares what is there with what was said.
    fn cycle(&mut self, cycle: u64) {
        let server = self.server.take().unwrap();
        let api = Api::new(&server.url, &self.token);
        let unsure = self.write_until_killed(server, &api);
        if cycle.is_multiple_of(CHECK_EVERY) {
            self.check();
        }
        if self.rng.u8(..8) == 0 {
            // The next one does not get to the end of its start.
            let early = Server::spawn(&mut serve(self.dir.path(), &self.store));
            thread::sleep(Duration::from_millis(self.rng.u64(..40)));
            sound(&early.kill());
        }
        let server = start(self.dir.path(), &self.store);
        let api = Api::new(&server.url, &self.token);
        self.server = Some(server);
        let seen = walk::everything(&api, &self.place.folder, &mut self.rng);
        self.times.check(&seen);
        for (client, unsure) in self.clients.iter_mut().zip(&unsure) {
            if let Some(done) = client.known().settle(unsure, &seen) {
                self.counts.unanswered += 1;
                self.counts.done += u64::from(done);
            }
        }
        for (name, body) in &seen {
            let is_known = self.clients.iter_mut().any(|client| client.known().contains(name));
            assert!(is_known, "nobody asked for `{name}`: {body}");
        }
    }

    /// Returns what each client does not know.
    fn write_until_killed(&mut self, server: Server, api: &Api) -> Vec<Unsure> {
        let (writes, rest) = (self.rng.usize(..WRITES), Duration::from_micros(self.rng.u64(..REST)));
        let place = &self.place;
        let (written, acknowledged) = mpsc::channel();
        let until_killed = |client: &mut Box<dyn Client>, written: mpsc::Sender<Written>| {
            loop {
                match client.write(api, place) {
                    Ok(what) => written.send(what).unwrap(),
                    Err(unsure) => return unsure,
                }
            }
        };
        let (unsure, first) = thread::scope(|scope| {
            let spawn = |client| {
                let written = written.clone();
                scope.spawn(move || until_killed(client, written))
            };
            let threads: Vec<_> = self.clients.iter_mut().map(spawn).collect();
            drop(written);
            // So many, or fewer when the clients have all found something wrong.
            let first: Vec<_> = acknowledged.iter().take(writes).collect();
            thread::sleep(rest);
            sound(&server.kill());
            let unsure = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (unsure.collect(), first)
        });
        for what in first.into_iter().chain(acknowledged) {
            self.counts.acknowledged += u64::from(what == Written::Once);
            self.counts.races += u64::from(what == Written::Race);
        }
        unsure
    }

    /// Has the store proved, while no server runs on it.
    fn check(&mut self) {
        drop(self.server.take());
        let checked = run(self.dir.path(), &["check", "--store", &self.store]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }

    fn tell(&self, cycle: u64) {
        let Counts { acknowledged, races, unanswered, done } = &self.counts;
        tell(&format!(
            "{}: {cycle} kills in {:.0?}; {acknowledged} acknowledged writes are as they were left; of {unanswered} \
             requests without an answer {done} were done and none by half; {races} races had one outcome each",
            self.store,
            self.begun.elapsed()
        ));
    }
}

fn serve(dir: &Path, store: &str) -> std::process::Command {
    program(dir, &["serve", "--listen", "127.0.0.1:0", "--public-url", URL, "--store", store, "--log", "warn"])
}

fn start(dir: &Path, store: &str) -> Server {
    Server::of(&mut serve(dir, store)).unwrap_or_else(|ran| panic!("it does not start: {ran:?}"))
}

/// Makes sure that a server had nothing to complain of until it was killed.
fn sound(log: &str) {
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
}

/// A directory that outlives a test that fails.
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
            tell(&format!("what was found wrong is kept in {}", self.path().display()));
        }
    }
}
