//! Faults of the environment: full disks, read-only or damaged files, and two servers on one store.
//!
//! In each case requests get a response, errors are structured, no acknowledged write is lost, and no data is returned
//! that was never written.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{self, Api, Disk, NOT_SERVING, Response, SERVING, Server, api, program, run};

#[test]
fn sqlite_rejects_writes_while_the_disk_is_full() {
    rejects_writes_while_the_disk_is_full("sqlite");
}

#[test]
fn sled_rejects_writes_while_the_disk_is_full() {
    rejects_writes_while_the_disk_is_full("sled");
}

fn rejects_writes_while_the_disk_is_full(store: &str) {
    let Some(mut disk) = Disk::new(24) else { return };
    let dir = tempdir().unwrap();
    let ballast = disk.file("ballast").display().to_string();
    disk.run(&format!("head -c 12000000 /dev/zero > {ballast}"));
    let on_disk = format!("{store}:{}", disk.file("store").display());
    let serve = serve_on(dir.path(), &on_disk);
    let server = Server::of(&mut disk.enter(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let (api, organization) = api(dir.path(), &["--data-dir", &data_dir(dir.path())]);

    let (mut written, rejected) = write_until_rejected(&api, &organization);
    assert_eq!(rejected.error(429)["details"][0]["reason"], "RESOURCE_EXHAUSTED", "{rejected:?}");
    assert!(written.len() > 10, "{written:?}");
    // Reads succeed. The next repo may need less space than the rejected one, and so may the write that the server
    // tries every second: both may succeed until no space is left. A rejected write has no effect.
    let mut rejections = 0;
    while rejections < 3 {
        assert!(written.len() < 5_000, "the disk does not fill");
        let response = write(&api, &organization, written.len());
        if response.status == 200 {
            written.push(response.json());
            continue;
        }
        assert_eq!(response.error(429)["details"][0]["reason"], "RESOURCE_EXHAUSTED", "{response:?}");
        assert_eq!(repos(&api), written);
        assert_eq!(api.get("/livez").status, 200, "a restart would not help");
        let ready = api.get("/readyz");
        if ready.status != 200 {
            assert_eq!(ready.error(503)["message"], "The store is full");
            rejections += 1;
        }
    }
    // Once there is free space, the server recovers without a restart.
    disk.run(&format!("rm {ballast}"));
    // The server detects it even without a write.
    until(|| api.get("/readyz").status == 200);
    written.push(write(&api, &organization, written.len()).ok());
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
fn sqlite_loses_no_acknowledged_write_if_its_file_cannot_grow() {
    loses_no_acknowledged_write_if_the_file_cannot_grow("sqlite");
}

#[test]
fn sled_loses_no_acknowledged_write_if_its_file_cannot_grow() {
    loses_no_acknowledged_write_if_the_file_cannot_grow("sled");
}

/// After a write that fails with an error other than "no space left", the contents of the file are unknown: the store
/// accepts no more writes, and a restart finds every acknowledged write.
fn loses_no_acknowledged_write_if_the_file_cannot_grow(store: &str) {
    let dir = tempdir().unwrap();
    let serve = serve_on(dir.path(), store);
    let mut limited = Command::new("sh");
    // Ignores the signal that the limit sends, so that the write fails instead. 4,096 blocks are 2 or 4 MB.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""]);
    limited.arg(serve.get_program()).args(serve.get_args()).current_dir(dir.path());
    let server = Server::of(&mut limited).unwrap_or_else(|ran| panic!("{ran:?}"));
    let arguments = ["--data-dir", &data_dir(dir.path())];
    let (api, organization) = api(dir.path(), &arguments);
    assert_eq!((api.get("/livez").status, api.get("/readyz").status), (200, 200));
    assert_eq!(server.grpc_health(), SERVING);
    let (mut written, rejected) = write_until_rejected(&api, &organization);
    rejected.error(503);
    for path in ["/livez", "/readyz"] {
        assert_eq!(api.get(path).error(503)["message"], "The store accepts no more writes; restart the server");
    }
    until(|| server.grpc_health() == NOT_SERVING);
    let again = write(&api, &organization, written.len() + 1);
    again.error(again.status);
    for path in ["/registry/v2/repos", "/iam/v2/groups", "/iam/v2/roles"] {
        let read = api.get(path);
        assert!(read.status == 200 || read.error(503).is_object(), "{read:?}");
    }
    until(|| server.log().contains(STOPPED));
    let log = server.kill();
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(log.matches(STOPPED).count(), 1, "{log}");

    let _again = Server::of(&mut serve_on(dir.path(), store)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let (api, _) = common::api(dir.path(), &arguments);
    let stored = repos(&api);
    // The failed write was not acknowledged, and may have been applied nevertheless.
    assert!(stored.len() <= written.len() + 1, "{} of {}", stored.len(), written.len());
    assert_eq!(stored[..written.len()], written);
    written = stored;
    written.push(write(&api, &organization, 9_999).ok());
    assert_eq!(repos(&api), written);
}

/// The log message, logged once, of a store that accepts no more writes.
const STOPPED: &str = "the store accepts no more writes until this server is restarted";

#[test]
fn a_server_exits_for_a_restart_when_its_store_accepts_no_more_writes() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let serve = serve_on(dir.path(), store);
        let mut limited = Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\" --on-store-failure exit"]);
        limited.arg(serve.get_program()).args(serve.get_args().filter(|argument| *argument != ON_FAILURE));
        let server = Server::of(limited.current_dir(dir.path())).unwrap_or_else(|ran| panic!("{ran:?}"));
        let (api, organization) = api(dir.path(), &["--data-dir", &data_dir(dir.path())]);
        write_until_rejected(&api, &organization).1.error(503);
        let ran = server.wait();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(STOPPED), "{ran:?}");
        assert!(ran.stderr.lines().last().unwrap().starts_with("platform-server: "), "{ran:?}");
    }
}

#[test]
fn the_error_for_a_read_only_store_names_its_path() {
    for store in ["sqlite", "sled"] {
        let Some(mut disk) = Disk::new(24) else { return };
        let dir = tempdir().unwrap();
        let on_disk = format!("{store}:{}", disk.file("store").display());
        let serve = serve_on(dir.path(), &on_disk);
        let server = Server::of(&mut disk.enter(&serve)).unwrap_or_else(|ran| panic!("{ran:?}"));
        server.terminate();
        assert_eq!(server.wait().code, Some(0));
        disk.write_protect();
        let error = Server::of(&mut disk.enter(&serve)).map(|_| "it started").unwrap_err().failed();
        assert!(error.contains(&disk.file("store").display().to_string()), "{error}");
        assert!(error.contains("cannot be written") || error.contains("Read-only"), "{error}");
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
        // The second installation already has its own store.
        start("two", "stores/other").unwrap().kill();
        let _first = start("one", "stores/store").unwrap();
        std::os::unix::fs::symlink(dir.path().join("stores/store"), dir.path().join("alias")).unwrap();
        for path in ["stores/store", "linked/store", "alias"] {
            let error = start("two", path).map(|_| format!("{path}: it started")).unwrap_err().failed();
            assert!(error.contains("in use") || error.contains("has it open"), "{path}: {error}");
        }
    }
}

#[test]
fn sqlite_with_a_damaged_file_returns_no_data_that_was_not_written() {
    returns_no_data_that_was_not_written("sqlite", "platform.sqlite");
}

#[test]
fn sled_with_a_damaged_file_returns_no_data_that_was_not_written() {
    returns_no_data_that_was_not_written("sled", "platform.sled/db");
}

fn returns_no_data_that_was_not_written(store: &str, file: &str) {
    let seed = fastrand::u64(..1_000_000);
    let mut rng = fastrand::Rng::with_seed(seed);
    let dir = tempdir().unwrap();
    let server = Server::of(&mut serve_on(dir.path(), store)).unwrap_or_else(|ran| panic!("{ran:?}"));
    let arguments = ["--data-dir", &data_dir(dir.path())];
    let (api, organization) = api(dir.path(), &arguments);
    for number in 0..40 {
        let repo = write(&api, &organization, number).ok();
        let body = json!({"name": "latest", "digest": format!("sha256:{:064x}", rng.u128(..))});
        api.post(&format!("/registry/v2/tags/{}", repo["uid"].as_str().unwrap()), &body).ok();
    }
    let original = read_all(&api);
    assert!(original.iter().all(|(_, response)| response.status == 200));
    server.terminate();
    assert_eq!(server.wait().code, Some(0));
    let undamaged = dir.path().join("undamaged");
    copy(&dir.path().join("data"), &undamaged);

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
        copy(&undamaged, &dir.path().join("data"));
        fs::write(&path, damaged).unwrap();
        let is_complete = match Server::of(&mut serve_on(dir.path(), store)) {
            Ok(server) => {
                let (api, _) = common::api(dir.path(), &arguments);
                let mut all_equal = true;
                for (path, expected) in &original {
                    let response = api.get(path);
                    all_equal &= response.status == 200 && response.text == expected.text;
                    match response.status {
                        200 => assert_subset(&response, expected, &format!("{path}, {damage} of {seed}")),
                        _ => assert_structured(&response),
                    }
                }
                let write = write(&api, &organization, 9_999);
                if write.status != 200 {
                    assert_structured(&write);
                }
                let log = server.kill();
                // The store's library may panic on damaged data, which is caught; our own code must not panic.
                assert!(!log.contains("panicked at platform") && !log.contains("panicked at examples"), "{log}");
                all_equal
            }
            Err(ran) => {
                // sled panics on some damage, which is caught and logged.
                assert_eq!(ran.code, Some(1), "{ran:?}");
                let error = ran.stderr.lines().last().unwrap_or_default();
                assert!(error.starts_with("platform-server: ") && error.contains(store_name), "{ran:?}");
                false
            }
        };
        let checked = run(dir.path(), &["check", "--store", store, "--data-dir", &data_dir(dir.path())]);
        assert!(matches!(checked.code, Some(0 | 1)), "damage {damage} of {seed}: {checked:?}");
        assert!(is_complete || checked.code == Some(1), "a check misses damage {damage} of {seed}: {checked:?}");
    }
}

/// A list may lack resources whose index entry is lost, which a check finds; those in it must be as they were written.
fn assert_subset(response: &Response, expected: &Response, context: &str) {
    let (response, expected) = (response.json(), expected.json());
    let list =
        |body: &Value| body.as_object().and_then(|body| body.values().find_map(|value| value.as_array().cloned()));
    match (expected.get("totalCount"), list(&response), list(&expected)) {
        (Some(_), Some(found), Some(written)) => {
            assert!(found.iter().all(|item| written.contains(item)), "{context}: {response}");
        }
        _ => assert_eq!(response, expected, "{context}"),
    }
}

fn assert_structured(response: &Response) {
    let error = response.error(response.status);
    let reason = error["details"][0]["reason"].as_str().unwrap();
    // A row whose index entry is lost is NOT_FOUND, and a check finds it.
    let allowed = matches!((response.status, reason), (500, "DATA_LOSS") | (503, "UNAVAILABLE") | (404, "NOT_FOUND"));
    assert!(allowed, "{response:?}");
}

/// Returns the responses of every list and every repo by path.
fn read_all(api: &Api) -> Vec<(String, Response)> {
    let mut paths: Vec<String> = ["groups", "roles", "roleBindings", "identities"]
        .map(|plural| format!("/iam/v2/{plural}?page_size=200"))
        .into_iter()
        .chain(["name", "name%20desc", "createTime", "uid"].map(|by| format!("/registry/v2/repos?order_by={by}")))
        .chain(["/registry/v2/tags?order_by=updateTime".to_owned()])
        .collect();
    paths.extend(repos(api).iter().map(|repo| format!("/registry/v2/repos/{}", repo["uid"].as_str().unwrap())));
    paths.into_iter().map(|path| (path.clone(), api.get(&path))).collect()
}

fn write(api: &Api, organization: &str, number: usize) -> Response {
    let body = json!({"name": format!("repo {number:04}"), "description": "x".repeat(500)});
    let made = api.post(&format!("/registry/v2/repos/{organization}"), &body);
    if number.is_multiple_of(10) && made.status == 200 {
        // Large readmes fill the disk quickly. Their failure does not matter, since the repo exists without one.
        let readme = json!({"content": "all work and no play ".repeat(10_000)});
        api.patch(&format!("/registry/v2/repos/{}/readme", made.json()["uid"].as_str().unwrap()), &readme);
    }
    made
}

/// Writes repos until one is rejected, and returns the written repos and the rejection.
fn write_until_rejected(api: &Api, organization: &str) -> (Vec<Value>, Response) {
    let mut written = Vec::new();
    loop {
        let response = write(api, organization, written.len());
        if response.status != 200 {
            return (written, response);
        }
        written.push(response.json());
        assert!(written.len() < 5_000, "the disk does not fill");
    }
}

/// Returns all repos by name, after checking the total.
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

/// Waits until a condition is true, for a minute at most.
#[track_caller]
fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("timed out");
}

/// Keeps the server running after its store has stopped accepting writes.
const ON_FAILURE: &str = "--on-store-failure=serve";

/// Returns the command of a server on this store, with its keys in the directory.
fn serve_on(dir: &Path, store: &str) -> Command {
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
