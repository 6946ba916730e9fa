//! What is beyond the server's power: full disks, files that are read-only or damaged, and two servers on one store.
//!
//! Whatever happens, requests are answered, errors are structured, nothing that was acknowledged is lost, and nothing
//! is shown that was not written.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
};

use common::{Answer, Api, Disk, Server, api, program, run};
use serde_json::{Value, json};
use tempfile::tempdir;

#[test]
fn a_full_disk_refuses_writes_of_sqlite_until_there_is_room() {
    a_full_disk_refuses_writes_until_there_is_room("sqlite");
}

#[test]
fn a_full_disk_refuses_writes_of_sled_until_there_is_room() {
    a_full_disk_refuses_writes_until_there_is_room("sled");
}

fn a_full_disk_refuses_writes_until_there_is_room(store: &str) {
    let Some(mut disk) = Disk::new(24) else { return };
    let dir = tempdir().unwrap();
    let ballast = disk.place("ballast").display().to_string();
    disk.run(&format!("head -c 6000000 /dev/zero > {ballast}"));
    let on_disk = format!("{store}:{}", disk.place("store").display());
    let serve = on(dir.path(), &on_disk);
    let server = Server::of(&mut disk.enter(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let (api, organisation) = api(dir.path(), &["--data-dir", &data_dir(dir.path())]);

    let (written, refused) = write_until_refused(&api, &organisation);
    assert_eq!(refused.error(429)["details"][0]["reason"], "RESOURCE_EXHAUSTED", "{refused:?}");
    assert!(written.len() > 10, "{written:?}");
    // Reads go on, and writes are refused in the same way, for as long as it lasts.
    assert_eq!(repos(&api), written);
    let told = api.get("/readyz").error(503);
    assert_eq!(told["message"], "The store is full");
    assert_eq!(api.get("/livez").status, 200, "a restart would not help");
    for _ in 0..3 {
        write(&api, &organisation, written.len()).error(429);
    }
    assert_eq!(repos(&api), written);
    // With room again there is nothing to restart.
    disk.run(&format!("rm {ballast}"));
    let mut written = written;
    // Nobody need write for it to be seen.
    until(|| api.get("/readyz").status == 200);
    written.push(write(&api, &organisation, written.len()).ok());
    assert_eq!(repos(&api), written);

    let log = server.kill();
    assert!(!log.contains("panicked"), "{log}");
    assert!(log.contains("ERROR") && log.contains("the store is full"), "{log}");
    let checked = common::Ran::of(disk.enter(&program(dir.path(), &["check", "--store", &on_disk])).output().unwrap());
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let _again = Server::of(&mut disk.enter(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
    assert_eq!(repos(&common::api(dir.path(), &["--data-dir", &data_dir(dir.path())]).0), written);
}

#[test]
fn a_file_of_sqlite_that_may_not_grow_loses_nothing() {
    a_file_that_may_not_grow_loses_nothing("sqlite");
}

#[test]
fn a_file_of_sled_that_may_not_grow_loses_nothing() {
    a_file_that_may_not_grow_loses_nothing("sled");
}

/// A write that fails with anything but "no room" leaves a file of which nobody knows what it holds: no more is
/// written, and a restart finds all that was acknowledged.
fn a_file_that_may_not_grow_loses_nothing(store: &str) {
    let dir = tempdir().unwrap();
    let serve = on(dir.path(), store);
    let mut limited = Command::new("sh");
    // The signal that the limit sends is ignored, so that the write fails. 4,096 blocks are 2 or 4 MB.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""]);
    limited.arg(serve.get_program()).args(serve.get_args()).current_dir(dir.path());
    let server = Server::of(&mut limited).unwrap_or_else(|ran| panic!("{ran:?}"));
    let arguments = ["--data-dir", &data_dir(dir.path())];
    let (api, organisation) = api(dir.path(), &arguments);
    assert_eq!((api.get("/livez").status, api.get("/readyz").status), (200, 200));
    assert_eq!(grpc_health(&server), SERVING);
    let (mut written, refused) = write_until_refused(&api, &organisation);
    refused.error(503);
    for path in ["/livez", "/readyz"] {
        assert_eq!(api.get(path).error(503)["message"], "The store writes no more: restart the server");
    }
    until(|| grpc_health(&server) == NOT_SERVING);
    let again = write(&api, &organisation, written.len() + 1);
    again.error(again.status);
    for path in ["/registry/v2/repos", "/iam/v2/groups", "/iam/v2/roles"] {
        let read = api.get(path);
        assert!(read.status == 200 || read.error(503).is_object(), "{read:?}");
    }
    until(|| server.log().contains(STOPPED));
    let log = server.kill();
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(log.matches(STOPPED).count(), 1, "{log}");

    let _again = Server::of(&mut on(dir.path(), store)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let (api, _) = common::api(dir.path(), &arguments);
    let there = repos(&api);
    // The write that failed was not acknowledged, and may have been done all the same.
    assert!(there.len() <= written.len() + 1, "{} of {}", there.len(), written.len());
    assert_eq!(there[..written.len()], written);
    written = there;
    written.push(write(&api, &organisation, 9_999).ok());
    assert_eq!(repos(&api), written);
}

const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;

/// Returns the status that the gRPC health service answers, by gRPC-Web.
fn grpc_health(server: &Server) -> u8 {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let head = "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let head = format!("{head}Content-Type: application/grpc-web+proto\r\nContent-Length: 5\r\n\r\n");
    stream.write_all(&[head.as_bytes(), &[0; 5]].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // A message of two bytes, whose first field is the status.
    let message = answer.windows(7).find(|bytes| bytes.starts_with(&[0, 0, 0, 0, 2, 8])).unwrap();
    message[6]
}

/// What the log says once when the store writes no more.
const STOPPED: &str = "the store writes no more until this server is restarted";

#[test]
fn a_server_whose_store_writes_no_more_ends_for_a_supervisor_to_start_it_again() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let serve = on(dir.path(), store);
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\" --on-store-failure exit"]);
        limited.arg(serve.get_program()).args(serve.get_args().filter(|argument| *argument != ON_FAILURE));
        let server = Server::of(limited.current_dir(dir.path())).unwrap_or_else(|ran| panic!("{ran:?}"));
        let (api, organisation) = api(dir.path(), &["--data-dir", &data_dir(dir.path())]);
        write_until_refused(&api, &organisation).1.error(503);
        let told = server.wait();
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(told.stderr.contains(STOPPED), "{told:?}");
        assert!(told.stderr.lines().last().unwrap().starts_with("platform-server: "), "{told:?}");
    }
}

#[test]
fn a_store_that_may_not_be_written_is_refused_by_name() {
    for store in ["sqlite", "sled"] {
        let Some(mut disk) = Disk::new(24) else { return };
        let dir = tempdir().unwrap();
        let on_disk = format!("{store}:{}", disk.place("store").display());
        let serve = on(dir.path(), &on_disk);
        let server = Server::of(&mut disk.enter(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
        server.terminate();
        assert_eq!(server.wait().code, Some(0));
        disk.write_protect();
        let refused = Server::of(&mut disk.enter(&serve)).map(|_| "it started").unwrap_err();
        let told = refused.failed();
        assert!(told.contains(&disk.place("store").display().to_string()), "{told}");
        assert!(told.contains("cannot be written") || told.contains("Read-only"), "{told}");
    }
}

#[test]
fn servers_with_data_directories_of_their_own_cannot_share_a_store() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        fs::create_dir(dir.path().join("stores")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("stores"), dir.path().join("linked")).unwrap();
        let start = |data: &str, path: &str| {
            let store = format!("{store}:{path}");
            let arguments = ["--listen", "127.0.0.1:0", "--data-dir", data, "--store", &store];
            Server::of(&mut program(dir.path(), &arguments))
        };
        // The second has an installation, to which a store of its own belonged.
        start("two", "stores/other").unwrap().kill();
        let _first = start("one", "stores/store").unwrap();
        std::os::unix::fs::symlink(dir.path().join("stores/store"), dir.path().join("alias")).unwrap();
        for path in ["stores/store", "linked/store", "alias"] {
            let told = start("two", path).map(|_| format!("{path}: it started")).unwrap_err().failed();
            assert!(told.contains("in use") || told.contains("has it open"), "{path}: {told}");
        }
    }
}

#[test]
fn a_damaged_file_of_sqlite_shows_nothing_that_was_not_written() {
    a_damaged_file_shows_nothing_that_was_not_written("sqlite", "platform.sqlite");
}

#[test]
fn a_damaged_file_of_sled_shows_nothing_that_was_not_written() {
    a_damaged_file_shows_nothing_that_was_not_written("sled", "platform.sled/db");
}

fn a_damaged_file_shows_nothing_that_was_not_written(store: &str, file: &str) {
    let seed = fastrand::u64(..1_000_000);
    let mut rng = fastrand::Rng::with_seed(seed);
    let dir = tempdir().unwrap();
    let server = Server::of(&mut on(dir.path(), store)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let arguments = ["--data-dir", &data_dir(dir.path())];
    let (api, organisation) = api(dir.path(), &arguments);
    for number in 0..40 {
        let repo = write(&api, &organisation, number).ok();
        let body = json!({"name": "latest", "digest": format!("sha256:{:064x}", rng.u128(..))});
        api.post(&format!("/registry/v2/tags/{}", repo["uid"].as_str().unwrap()), &body).ok();
    }
    let truth = read_all(&api);
    assert!(truth.iter().all(|(_, answer)| answer.status == 200));
    server.terminate();
    assert_eq!(server.wait().code, Some(0));
    let sound = dir.path().join("sound");
    copy(&dir.path().join("data"), &sound);

    let path = dir.path().join("data").join(file);
    let store_name = file.split('/').next().unwrap();
    let bytes = fs::read(&path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for damage in 0..14 {
        let mut damaged = bytes.clone();
        match damage {
            0 => damaged.truncate(used / 2),
            1 => damaged.truncate(used / 2 / 4096 * 4096),
            2 => damaged.truncate(1000),
            3 => damaged[..100].fill(0),
            4 => damaged[used / 3..used / 3 * 2].fill(0),
            5 => damaged.extend([7; 5000]),
            _ => (0..rng.usize(1..64)).for_each(|_| damaged[rng.usize(..=used)] ^= 1 << rng.u8(..8)),
        }
        fs::remove_dir_all(dir.path().join("data")).unwrap();
        copy(&sound, &dir.path().join("data"));
        fs::write(&path, damaged).unwrap();
        let true_answers = match Server::of(&mut on(dir.path(), store)) {
            Ok(server) => {
                let (api, _) = common::api(dir.path(), &arguments);
                let mut all_true = true;
                for (path, expected) in &truth {
                    let answer = api.get(path);
                    all_true &= answer.status == 200 && answer.text == expected.text;
                    match answer.status {
                        200 => assert_true_as_far_as_it_goes(&answer, expected, &format!("{path}, {damage} of {seed}")),
                        _ => assert_structured(&answer),
                    }
                }
                let write = write(&api, &organisation, 9_999);
                if write.status != 200 {
                    assert_structured(&write);
                }
                let log = server.kill();
                // The store's library may panic over what it reads, which is caught; nothing of ours does.
                assert!(!log.contains("panicked at platform") && !log.contains("panicked at examples"), "{log}");
                all_true
            }
            Err(ran) => {
                // sled panics over some damage, which is caught and logged.
                assert_eq!(ran.code, Some(1), "{ran:?}");
                let told = ran.stderr.lines().last().unwrap_or_default();
                assert!(told.starts_with("platform-server: ") && told.contains(store_name), "{ran:?}");
                false
            }
        };
        let checked = run(dir.path(), &["check", "--store", store, "--data-dir", &data_dir(dir.path())]);
        assert!(matches!(checked.code, Some(0 | 1)), "damage {damage} of {seed}: {checked:?}");
        assert!(true_answers || checked.code == Some(1), "a check misses damage {damage} of {seed}: {checked:?}");
    }
}

/// A list may miss what no index leads to any more, which a check finds; what it has is as it was written.
fn assert_true_as_far_as_it_goes(answer: &Answer, expected: &Answer, what: &str) {
    let (answer, expected) = (answer.json(), expected.json());
    let list =
        |body: &Value| body.as_object().and_then(|body| body.values().find_map(|value| value.as_array().cloned()));
    match (expected.get("totalCount"), list(&answer), list(&expected)) {
        (Some(_), Some(shown), Some(written)) => {
            assert!(shown.iter().all(|item| written.contains(item)), "{what}: {answer}");
        }
        _ => assert_eq!(answer, expected, "{what}"),
    }
}

fn assert_structured(answer: &Answer) {
    let error = answer.error(answer.status);
    let reason = error["details"][0]["reason"].as_str().unwrap();
    // A row that no index leads to any more is not found, and a check finds it.
    let allowed = matches!((answer.status, reason), (500, "DATA_LOSS") | (503, "UNAVAILABLE") | (404, "NOT_FOUND"));
    assert!(allowed, "{answer:?}");
}

/// Every list and every repo, by its path.
fn read_all(api: &Api) -> Vec<(String, Answer)> {
    let mut paths: Vec<String> = ["groups", "roles", "roleBindings", "identities"]
        .map(|plural| format!("/iam/v2/{plural}?page_size=200"))
        .into_iter()
        .chain(["name", "name%20desc", "createTime", "uid"].map(|by| format!("/registry/v2/repos?order_by={by}")))
        .chain(["/registry/v2/tags?order_by=updateTime".to_owned()])
        .collect();
    paths.extend(repos(api).iter().map(|repo| format!("/registry/v2/repos/{}", repo["uid"].as_str().unwrap())));
    paths.into_iter().map(|path| (path.clone(), api.get(&path))).collect()
}

fn write(api: &Api, organisation: &str, number: usize) -> Answer {
    let body = json!({"name": format!("repo {number:04}"), "description": "x".repeat(500)});
    let made = api.post(&format!("/registry/v2/repos/{organisation}"), &body);
    if number.is_multiple_of(10) && made.status == 200 {
        // Some are large, so that a disk is soon full; without its readme a repo is there all the same.
        let readme = json!({"content": "all work and no play ".repeat(10_000)});
        api.patch(&format!("/registry/v2/repos/{}/readme", made.json()["uid"].as_str().unwrap()), &readme);
    }
    made
}

/// Writes repos until one is refused, and returns those that were not, and the refusal.
fn write_until_refused(api: &Api, organisation: &str) -> (Vec<Value>, Answer) {
    let mut written = Vec::new();
    loop {
        let answer = write(api, organisation, written.len());
        if answer.status != 200 {
            return (written, answer);
        }
        written.push(answer.json());
        assert!(written.len() < 5_000, "the disk does not fill");
    }
}

/// Returns all repos by name, after making sure that the total agrees.
fn repos(api: &Api) -> Vec<Value> {
    let (mut repos, mut token) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/registry/v2/repos?order_by=name&page_size=200&page_token={token}")).ok();
        repos.extend(page["repos"].as_array().unwrap().iter().cloned());
        match page["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => {
                assert_eq!(page["totalCount"], repos.len().to_string());
                return repos;
            }
        }
    }
}

fn data_dir(dir: &Path) -> String {
    dir.join("data").display().to_string()
}

/// Waits until something is so, for a minute at most.
#[track_caller]
fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it never comes to be so");
}

/// Lets a server whose store writes no more go on answering reads.
const ON_FAILURE: &str = "--on-store-failure=serve";

/// Returns a server on this store, with its keys in the directory.
fn on(dir: &Path, store: &str) -> Command {
    let (log, data) = (["--log", "warn"], data_dir(dir));
    let serve = ["serve", "--listen", "127.0.0.1:0", ON_FAILURE, "--data-dir", &data, "--store", store];
    program(dir, &[&serve[..], &log].concat())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from: PathBuf = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() { copy(&from, &to) } else { fs::copy(&from, &to).map(drop).unwrap() }
    }
}
