//! Backups of running and of stopped servers, and what is restored of them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Stdio,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use platform_blobs::BlobDirectory;
use platform_engine::{
    blob::{BlobId, BlobStore},
    store::{Query, Scope, Store},
    timestamp::Timestamp,
};
use platform_store_sqlite::SqliteStore;

use super::{common::STORES, *};

/// The number of writers during backups.
const WRITERS: usize = 3;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn exported(dir: &Path, arguments: &[&str]) -> String {
    run(dir, &[&["export", "--with-private"], arguments].concat()).ok()
}

/// Restores a backup into this directory, which must not exist.
fn restore(dir: &Path, from: &str, arguments: &[&str]) -> Ran {
    run(dir, &[&["restore", "--from", from], arguments].concat())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A step of a writer, by its number.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Creates a repo with a name of this step and a description of this length.
    Create(usize),
    /// Changes the description of the repo of an earlier step.
    Change(usize),
    /// Deletes the repo of an earlier step.
    Delete(usize),
}

/// The number of steps in a cycle. After it, two repos are left.
const CYCLE: usize = 8;
/// The number of cycles whose repos are left: without a bound, backups would become larger and slower with their number.
const CYCLES: usize = 25;

impl Step {
    const fn of(number: usize) -> Self {
        let former = number.checked_sub(CYCLE * CYCLES);
        match (number % CYCLE, former) {
            (0 | 3, _) => Self::Create(0),
            (2, _) => Self::Create(500),
            (1 | 4, _) => Self::Change(number - 1),
            (5, _) => Self::Delete(number - 3),
            (6, Some(former)) => Self::Delete(former - 6),
            (_, Some(former)) => Self::Delete(former - 4),
            (_, None) => Self::Change(number - number % CYCLE),
        }
    }
}

fn changed_in(step: usize) -> String {
    format!("changed in step {step}")
}

/// The names and descriptions of the repos of a writer after a number of its steps, which differ for any two numbers.
fn after_steps(writer: usize, steps: usize) -> BTreeMap<String, String> {
    let mut repos = BTreeMap::new();
    let name = |step: usize| format!("{writer}-{step}");
    // The resources that were created before have been deleted.
    let first = (steps / CYCLE).saturating_sub(CYCLES + 1) * CYCLE;
    for step in first..steps {
        match Step::of(step) {
            Step::Create(length) => drop(repos.insert(name(step), "x".repeat(length))),
            Step::Change(earlier) => drop(repos.insert(name(earlier), changed_in(step))),
            Step::Delete(earlier) => drop(repos.remove(&name(earlier))),
        }
    }
    repos
}

#[test]
fn the_states_of_a_writer_differ_and_are_bounded() {
    let many = 2 * CYCLE * CYCLES;
    let states: Vec<_> = (0..many).map(|steps| after_steps(0, steps)).collect();
    assert!(states.iter().all(|state| state.len() <= 2 * CYCLES + 4));
    for (number, state) in states.iter().enumerate() {
        assert!(states[number + 1..].iter().all(|later| later != state), "{number}");
    }
    // The same as if all steps were made.
    let mut all = BTreeMap::new();
    for step in 0..many - 1 {
        match Step::of(step) {
            Step::Create(length) => drop(all.insert(format!("0-{step}"), "x".repeat(length))),
            Step::Change(earlier) => *all.get_mut(&format!("0-{earlier}")).unwrap() = changed_in(step),
            Step::Delete(earlier) => drop(all.remove(&format!("0-{earlier}")).unwrap()),
        }
    }
    assert_eq!(all, states[many - 1]);
}

/// When each step of a writer began, and when it was acknowledged.
type Steps = Mutex<Vec<(Instant, Instant)>>;

/// Makes the steps of a writer until it is stopped, and records those that were acknowledged.
fn write(api: &Api, organization: &str, writer: usize, steps: &Steps, stop: &AtomicBool) {
    let mut uids = BTreeMap::new();
    for step in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let began = Instant::now();
        match Step::of(step) {
            Step::Create(length) => {
                let body = json!({ "name": format!("{writer}-{step}"), "description": "x".repeat(length) });
                uids.insert(step, uid(&api.post(&format!("/registry/v2/repos/{organization}"), &body).ok()));
            }
            Step::Change(earlier) => {
                let body = json!({ "description": changed_in(step) });
                api.patch(&format!("/registry/v2/repos/{}", uids[&earlier]), &body).ok();
            }
            Step::Delete(earlier) => {
                let uid = uids.remove(&earlier).unwrap();
                assert_eq!(api.delete(&format!("/registry/v2/repos/{uid}")).status, 200);
            }
        }
        steps.lock().unwrap().push((began, Instant::now()));
    }
}

/// Compares the repos in a restored SQLite store with the steps of the writers: they must be those of one moment, and
/// have the steps that were acknowledged before the backup began.
fn verify_steps(store: &Path, before: &[usize], after: &[usize], steps: &[Steps]) {
    let store = SqliteStore::open(store).unwrap();
    assert_eq!(store.check().unwrap(), []);
    let items = block_on(store.list(&Query::new("Repo", Scope::All))).unwrap().items;
    let mut found = vec![BTreeMap::new(); WRITERS];
    for item in items {
        let body: Value = serde_json::from_slice(&item.body).unwrap();
        let name = body["name"].as_str().unwrap().to_owned();
        let writer: usize = name.split_once('-').unwrap().0.parse().unwrap();
        found[writer].insert(name, body["description"].as_str().unwrap_or_default().to_owned());
    }
    // A step can be applied before it is acknowledged.
    let state = |writer: usize| {
        let mut possible = before[writer]..=after[writer] + 1;
        let found = &found[writer];
        possible.find(|steps| after_steps(writer, *steps) == *found).unwrap_or_else(|| panic!("{writer}: {found:?}"))
    };
    let states: Vec<_> = (0..WRITERS).map(state).collect();
    // No step in the store began after another one was acknowledged that is not in the store.
    let steps: Vec<_> = steps.iter().map(|steps| steps.lock().unwrap().clone()).collect();
    let began =
        steps.iter().zip(&states).filter_map(|(steps, state)| steps.get(state.checked_sub(1)?)).map(|step| step.0);
    let missing = steps.iter().zip(&states).filter_map(|(steps, state)| steps.get(*state)).map(|step| step.1);
    if let (Some(began), Some(acknowledged)) = (began.max(), missing.min()) {
        assert!(began < acknowledged, "{states:?} is not the state of one moment");
    }
}

#[test]
fn backups_of_a_server_under_load_have_every_acknowledged_write() {
    // A few in all; 1,000 of each store in `.ci/long`. The store has its own test with 20.
    let backups = std::env::var("PLATFORM_BACKUPS").map_or(3, |backups| backups.parse().unwrap());
    for store in STORES {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &["--store", store]);
        let steps: [Steps; WRITERS] = Default::default();
        let counts = || steps.iter().map(|steps| steps.lock().unwrap().len()).collect::<Vec<_>>();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for (writer, steps) in steps.iter().enumerate() {
                let (api, organization, stop) = (&api, &organization, &stop);
                scope.spawn(move || write(api, organization, writer, steps, stop));
            }
            while counts().contains(&0) {
                thread::yield_now();
            }
            // The writers must stop if an assertion fails.
            let made = std::panic::catch_unwind(|| {
                for number in 0..backups {
                    // Of a long run, seen where it is.
                    if number % 100 == 0 {
                        println!("{store}: {number} backups, steps {:?}", counts());
                    }
                    let before = counts();
                    let file = text(&dir.path().join(format!("{number}.tar")));
                    // Finds the server, whatever its store is.
                    run(dir.path(), &["backup", "--to", &file]).ok();
                    let after = counts();
                    let restored = tempdir().unwrap();
                    // The export of a store can be restored to another one.
                    restore(restored.path(), &file, &[]).ok();
                    verify_steps(&restored.path().join("platform-data/platform.sqlite"), &before, &after, &steps);
                    fs::remove_file(file).unwrap();
                }
            });
            stop.store(true, Ordering::SeqCst);
            made.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert!(!server.log().contains("ERROR"), "{}", server.log());
        // Nothing temporary is left.
        let names = fs::read_dir(dir.path().join("platform-data")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')));
    }
}

#[test]
fn a_restored_installation_has_everything_and_is_a_new_generation() {
    let (dir, restored) = (tempdir().unwrap(), tempdir().unwrap());
    fill(dir.path());
    let content = b"a blob";
    let id = BlobId::of("parent", content);
    let blobs = |dir: &Path| BlobDirectory::open(dir.join("platform-data/platform.sqlite.blobs")).unwrap();
    blobs(dir.path()).put(&id, content, Timestamp::EPOCH).unwrap();
    let server = Server::start(dir.path(), &["--public-url", PUBLIC]);
    let (mut api, organization) = api(dir.path(), &[]);
    api.url = server.url.clone();
    let list = format!("/registry/v2/repos?uidp.descendants_of={organization}&page_size=2");
    let page_token = api.get(&list).ok()["nextPageToken"].as_str().unwrap().to_owned();
    let file = text(&dir.path().join("backup.tar"));
    // The public URL is that of no server here.
    let made = run(dir.path(), &["backup", "--to", &file, "--api", &api.url]);
    assert!(made.ok().starts_with(&format!("{file}: sequence ")));
    assert_eq!(mode(Path::new(&file)), 0o600);
    let piped =
        program(dir.path(), &["backup", "--to", "-", "--api", &api.url]).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(piped.status.code(), Some(0));
    assert!(run(dir.path(), &["backup", "--to", &file]).failed().contains("exists"));
    server.terminate();
    server.wait();
    // Of a stopped server, and of the standard output of a running one.
    let stopped = text(&dir.path().join("stopped.tar"));
    run(dir.path(), &["backup", "--to", &stopped]).ok();
    let piped_file = text(&dir.path().join("piped.tar"));
    fs::write(&piped_file, &piped.stdout).unwrap();
    for file in [&file, &stopped, &piped_file] {
        let verified = run(dir.path(), &["backup", "verify", file]);
        assert!(verified.ok().contains("with keys, intact"), "{file}");
    }
    let listing = Command::new("tar").args(["tf", &stopped]).output().unwrap();
    let (parent, digest) = id.parts();
    let expected =
        format!("manifest.json\nbootstrap.json\nkeys.json\nstore.sqlite\nblobs/{parent}/{digest}\nSHA256SUMS\n");
    assert_eq!(String::from_utf8(listing.stdout).unwrap(), expected);

    // The last one: a server may record when an identity was last seen.
    restore(restored.path(), &stopped, &[]).ok();
    let modes = fs::read_dir(restored.path().join("platform-data")).unwrap().map(|entry| entry.unwrap());
    for entry in modes {
        let expected = if entry.file_type().unwrap().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
    }
    assert_eq!(run(restored.path(), &["check"]).ok(), "");
    assert_eq!(blobs(restored.path()).get(&id).unwrap().as_deref(), Some(&content[..]));
    // Secrets are sealed with the same keys; the lines of the two exports differ in the list of all sealing keys.
    let lines =
        |text: String| text.lines().filter(|line| !line.contains("sealKeys")).map(str::to_owned).collect::<Vec<_>>();
    let without_end = |mut lines: Vec<String>| lines.pop().map(|_| lines);
    assert_eq!(
        without_end(lines(exported(restored.path(), &[]))),
        without_end(lines(exported(dir.path(), &[]))),
        "the stores have the same records"
    );
    let server = Server::start(restored.path(), &["--public-url", PUBLIC]);
    let old = Api::new(&server.url, &api.token);
    old.get("/iam/v2/groups").error(401);
    let (mut new, _) = super::api(restored.path(), &[]);
    new.url = server.url.clone();
    new.get(&list).ok();
    new.get(&format!("{list}&page_token={page_token}")).error(400);
    // Later sequences are greater than all before the restoration.
    let repo = new.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "new" })).ok();
    server.terminate();
    server.wait();
    let revision = |text: String, uid: &str| {
        let line: Value =
            text.lines().find(|line| line.contains(uid)).map(|line| serde_json::from_str(line).unwrap()).unwrap();
        line["revision"].as_u64().unwrap()
    };
    assert!(revision(exported(restored.path(), &[]), &uid(&repo)) > 1 << 32);
    assert_eq!(run(restored.path(), &["check"]).ok(), "");
}

#[test]
fn a_restoration_that_fails_writes_nothing() {
    let dir = tempdir().unwrap();
    fill(dir.path());
    let file = dir.path().join("backup.tar");
    run(dir.path(), &["backup", "--to", &text(&file)]).ok();
    let bytes = fs::read(&file).unwrap();
    let changed = text(&dir.path().join("changed.tar"));
    let refused = |bytes: &[u8]| {
        fs::write(&changed, bytes).unwrap();
        let target = tempdir().unwrap();
        let error = restore(target.path(), &changed, &[]).failed();
        assert!(!target.path().join("platform-data").exists(), "{error}");
        error
    };
    // A flipped bit is found wherever it is, except in the padding and in fields of tar's headers that are not used.
    let mut random = fastrand::Rng::with_seed(3);
    let find = |needle: &[u8]| bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let places = ["SQLite format 3", "\"pageTokens\"", "\"organization\"", "store.sqlite\0", "  keys.json\n"];
    for place in places.map(|text| find(text.as_bytes())) {
        let mut flipped = bytes.clone();
        flipped[place + random.usize(0..5)] ^= 1 << random.u8(0..8);
        refused(&flipped);
    }
    for _ in 0..10 {
        let len = random.usize(0..bytes.len() - 2048);
        refused(&bytes[..len]);
    }
    assert!(refused(b"no archive").contains("cannot restore"));
    // Another layout of the store: the message names both releases and what to do.
    let layout = find(b"\"layout\": ") + 10;
    let mut later = bytes.clone();
    later[layout] = b'9';
    let error = refused(&later);
    assert!(error.contains("has layout 9") && error.contains("restore it with release 0.1.0"), "{error}");
    let mut later = bytes.clone();
    later[find(b"\"version\": ") + 11] = b'9';
    assert!(refused(&later).contains("the backup has version 9"));
    // A directory that is in use.
    let error = restore(dir.path(), &text(&file), &[]).failed();
    assert!(error.contains("is not empty") && error.contains("--data-dir"), "{error}");
    let error = restore(dir.path(), &text(&file), &["--data-dir", "other", "--store", "sled"]).failed();
    assert!(error.contains("is of a SQLite store") && !dir.path().join("other").exists(), "{error}");
    for (store, why) in
        [("memory", "inside its server"), ("sqlite:x", "leave out the path"), ("postgres://x/y", "pg_dump")]
    {
        let error = restore(dir.path(), &text(&file), &["--data-dir", "other", "--store", store]).failed();
        assert!(error.contains(why), "{error}");
    }
    assert!(run(dir.path(), &["backup", "--store", "postgres://x/y"]).failed().contains("pg_dump"));
    // Neither a store nor a server.
    fs::rename(dir.path().join("platform-data/platform.sqlite"), dir.path().join("moved")).unwrap();
    let error = run(dir.path(), &["backup", "--to", "none.tar"]).failed();
    assert!(error.contains("no store at platform-data/platform.sqlite") && error.contains("no response"), "{error}");
    assert!(!dir.path().join("none.tar").exists());
    // An empty directory is filled; what an interrupted restoration has left is removed.
    fs::create_dir_all(dir.path().join("other/.platform-restore-x")).unwrap();
    restore(dir.path(), &text(&file), &["--data-dir", "other"]).ok();
    assert!(!dir.path().join("other/.platform-restore-x").exists());
}

#[test]
fn a_damaged_store_is_restored_only_with_the_option_that_accepts_it() {
    let dir = tempdir().unwrap();
    fill(dir.path());
    let path = dir.path().join("platform-data/platform.sqlite");
    let mut bytes = fs::read(&path).unwrap();
    let name = b"\"name\":\"repo 29\"";
    let at = bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    bytes[at + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let file = text(&dir.path().join("backup.tar"));
    run(dir.path(), &["backup", "--to", &file]).ok();
    let verified = run(dir.path(), &["backup", "verify", &file]);
    assert!(verified.code == Some(1) && verified.stdout.contains("checksum"), "{verified:?}");

    let target = tempdir().unwrap();
    let refused = restore(target.path(), &file, &[]);
    // The same findings as those of `backup verify`.
    assert!(verified.stdout.lines().all(|finding| refused.stderr.contains(finding)), "{verified:?} {refused:?}");
    assert!(refused.code == Some(1) && refused.stderr.contains("--accept-damage"), "{refused:?}");
    assert!(!target.path().join("platform-data").exists());
    let accepted = restore(target.path(), &file, &["--accept-damage"]);
    assert!(accepted.stderr.contains("checksum"), "{accepted:?}");
    accepted.ok();
    let checked = run(target.path(), &["check"]);
    assert!(checked.code == Some(1) && checked.stdout.contains("checksum"), "{checked:?}");
    let server = Server::start(target.path(), &["--public-url", PUBLIC]);
    let (mut api, _) = api(target.path(), &[]);
    api.url = server.url.clone();
    // Intact records can be read, and a damaged one is an error and not another value.
    assert_eq!(api.get("/registry/v2/repos?name=repo%2028").ok()["repos"][0]["name"], "repo 28");
    api.get("/registry/v2/repos?name=repo%2029").error(500);
}

#[test]
fn a_backup_without_keys_is_restored_with_those_of_another_file() {
    let dir = tempdir().unwrap();
    fill(dir.path());
    let (file, keys) = (text(&dir.path().join("backup.tar")), text(&dir.path().join("keys")));
    let made = run(dir.path(), &["backup", "--without-keys", "--to", &file]);
    assert!(made.stderr.contains("keys export") && made.stderr.contains("client secrets"), "{made:?}");
    run(dir.path(), &["keys", "export", "--to", &keys]).ok();
    assert!(!String::from_utf8_lossy(&fs::read(&file).unwrap()).contains("pkcs8"));
    assert!(run(dir.path(), &["backup", "verify", &file]).ok().contains("without keys, intact"));
    let (without, with) = (tempdir().unwrap(), tempdir().unwrap());
    let restored = restore(without.path(), &file, &[]);
    assert!(restored.stderr.contains("--recreate-missing"), "{restored:?}");
    assert!(run(without.path(), &["serve"]).failed().contains("keys.json is missing"));
    restore(with.path(), &file, &["--keys", &keys]).ok();
    let seal = |dir: &Path| {
        let keys = run(dir, &["keys", "list"]).ok();
        keys.lines()
            .filter(|line| line.starts_with("seal"))
            .map(|line| line.split_whitespace().last().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(seal(with.path())[1..], seal(dir.path()), "the secrets can be read");
}

#[test]
fn only_operators_make_backups() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    let body = json!({ "name": "someone", "claimMatch": { "issuer": "https://issuer.example", "subject": "someone" } });
    let identity = uid(&api.post(&format!("/iam/v2/identities/{organization}"), &body).ok());
    let token = run(dir.path(), &["token", "--identity", &identity]).ok();
    let other = api.with_token(token.trim());
    for method in ["GET", "POST"] {
        other.send(method, "/operator/backup", None).error(403);
        api.with_token("").send(method, "/operator/backup", None).error(401);
        let error = api.send(method, "/operator/backup?with=1", None).error(400);
        assert_eq!(error["details"][1]["fieldViolations"][0]["field"], "with", "{error}");
    }
    for (method, path) in [("GET", "log"), ("GET", "read-only"), ("POST", "check"), ("POST", "keys/revoke")] {
        api.send(method, &format!("/operator/{path}?withoutKeys=true"), None).error(400);
    }
    api.send("POST", "/operator/backup?withoutKeys=maybe", None).error(400);
    assert_eq!(api.get("/operator/backup").ok()["running"], false);
    drop(server);
}

#[test]
fn a_running_server_makes_scheduled_backups() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--backup-dir", "backups", "--backup-every", "1h", "--backup-keep", "2"]);
    let started = Instant::now();
    let made = loop {
        let made = server.log().lines().find(|line| line.contains("made a backup")).map(str::to_owned);
        if let Some(made) = made {
            break made;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{}", server.log());
        thread::yield_now();
    };
    let files: Vec<_> = fs::read_dir(dir.path().join("backups")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}: {made}") };
    assert_eq!((mode(file), mode(&dir.path().join("backups"))), (0o600, 0o700));
    assert!(run(dir.path(), &["backup", "verify", &text(file)]).ok().contains("intact"));
    drop(server);
}
