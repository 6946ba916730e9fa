//! The server's files: atomic, private to their owner, and the same for all processes that start concurrently.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use platform_engine::timestamp::Timestamp;
use platform_keys::{
    Algorithm, Bootstrap, DataDirError, Keys, PAGE_TOKEN_KEY_RETENTION, SIGNING_KEY_RETENTION, SecretKey, VerifyingKey,
};
use platform_testkit::{SeededEntropy, TestClock};
use serde_json::{Value, json};
use tempfile::tempdir;

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

fn clock() -> Arc<TestClock> {
    Arc::new(TestClock::at(at(NOW)))
}

fn entropy() -> Arc<SeededEntropy> {
    Arc::new(SeededEntropy::new(1))
}

/// Returns the time at a number of seconds since 1970.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn read_or_create(directory: &Path) -> Result<Keys, DataDirError> {
    Keys::read_or_create(directory, Algorithm::Es256, &*clock(), &*entropy())
}

fn bootstrap(directory: &Path) -> Result<Bootstrap, DataDirError> {
    Bootstrap::read_or_create(directory, || Bootstrap::draw(&*entropy()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut contents = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut contents);
    fs::write(path, contents.to_string()).unwrap();
}

#[test]
fn keys_of_other_algorithms_than_the_server_s_own_are_neither_made_nor_written() {
    let directory = tempdir().unwrap();
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !Algorithm::OWN.contains(algorithm)) {
        let made = Keys::read_or_create(directory.path(), algorithm, &*clock(), &*entropy());
        assert!(made.unwrap_err().to_string().contains("RS256 or ES256"), "{algorithm:?}");
        assert!(Keys::read(directory.path()).unwrap().is_none(), "{algorithm:?}");
    }
    read_or_create(directory.path()).unwrap();
    assert!(fs::read_to_string(directory.path().join("keys.json")).unwrap().ends_with("}\n"));
}

#[test]
fn the_second_start_reads_the_files_of_the_first() {
    let directory = tempdir().unwrap();
    let directory = directory.path().join("deep").join("platform-data");
    let (keys, names) = (read_or_create(&directory).unwrap(), bootstrap(&directory).unwrap());
    assert_eq!(mode(&directory), 0o700);
    for file in ["keys.json", "bootstrap.json"] {
        assert_eq!(mode(&directory.join(file)), 0o600, "{file}");
    }
    let again = Keys::read_or_create(&directory, Algorithm::Rs256, &*clock(), &*entropy()).unwrap();
    assert_eq!(again.signing().kid(), keys.signing().kid(), "an existing key keeps its algorithm");
    assert_eq!(again.page_tokens(), keys.page_tokens());
    assert_ne!(keys.page_tokens()[0].secret(), keys.sealing()[0].secret());
    let again = Bootstrap::read_or_create(&directory, || panic!("only the first start draws uids"));
    assert_eq!(again.unwrap(), names);
    for file in ["keys.json", "bootstrap.json"] {
        assert!(fs::read_to_string(directory.join(file)).unwrap().ends_with("}\n"), "{file}");
    }
    assert!(names.organization.is_root() && names.operator != names.organization);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no temporary file is left over");
}

/// The body of the processes that the next test starts: prints the keys and uids that it reads or creates.
#[test]
fn start_in_a_child_process() {
    let Some(directory) = std::env::var_os("PLATFORM_OIDC_TEST_DATA_DIR") else { return };
    let directory = Path::new(&directory);
    let (keys, names) = (read_or_create(directory).unwrap(), bootstrap(directory).unwrap());
    let page_token = keys.page_tokens()[0].id();
    println!("found {} {page_token} {} {}", keys.signing().kid(), names.organization, names.operator);
}

#[test]
fn processes_that_start_concurrently_agree() {
    for _ in 0..3 {
        let directory = tempdir().unwrap();
        let start = || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "start_in_a_child_process", "--nocapture"])
                .env("PLATFORM_OIDC_TEST_DATA_DIR", directory.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let starts: Vec<_> = (0..8).map(|_| start()).collect();
        let mut found = HashSet::new();
        for start in starts {
            let output = String::from_utf8(start.wait_with_output().unwrap().stdout).unwrap();
            let line = output.lines().find_map(|line| line.split_once("found ")).map(|(_, line)| line.to_owned());
            found.insert(line.unwrap_or_else(|| panic!("no start: {output}")));
        }
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no temporary file is left over");
    }
}

#[test]
fn a_file_that_others_can_read_is_rejected_with_the_remedy() {
    let directory = tempdir().unwrap();
    read_or_create(directory.path()).unwrap();
    let path = directory.path().join("keys.json");
    for mode in [0o604, 0o640, 0o644, 0o660, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(matches!(error, DataDirError::Exposed { mode: found, .. } if found == mode));
        let remedy = format!("chmod 600 {}", path.display());
        assert!(error.to_string().ends_with(&remedy), "{error}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    read_or_create(directory.path()).unwrap();
}

#[test]
fn an_invalid_file_is_rejected_without_quoting_it() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("keys.json");
    let changes: [fn(&mut Value); 14] = [
        |file| file["version"] = json!(2),
        |file| file["canary"] = json!("canary"),
        |file| file["signing"] = json!([]),
        |file| file["pageTokens"] = json!([]),
        |file| file["signing"][0]["pkcs8"] = json!("canary!"),
        |file| file["signing"][0]["pkcs8"] = json!("Y2FuYXJ5"),
        |file| file["signing"][0]["kid"] = json!("canary"),
        |file| file["signing"][0]["algorithm"] = json!("canary"),
        |file| file["signing"][0]["algorithm"] = json!("RS256"),
        |file| file["signing"][0]["created"] = json!("canary"),
        |file| file["pageTokens"][0]["secret"] = json!("Y2FuYXJ5"),
        |file| file["pageTokens"][0]["secret"] = json!("canary!"),
        |file| file["sealing"][0]["secret"] = json!("Y2FuYXJ5"),
        |file| *file = json!("canary"),
    ];
    for change in changes {
        let _ = fs::remove_file(&path);
        read_or_create(directory.path()).unwrap();
        edit(&path, change);
        let error = read_or_create(directory.path()).unwrap_err();
        assert!(matches!(error, DataDirError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains("keys.json") && !format!("{error} {error:?}").contains("canary"), "{error}");
        let before = fs::read(&path).unwrap();
        Keys::rotate(directory.path(), Algorithm::Es256, &*clock(), &*entropy()).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), before, "a rotation that fails writes nothing");
    }
    let whole = fs::read(&path).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(matches!(read_or_create(directory.path()), Err(DataDirError::Malformed { .. })));
    }

    let path = directory.path().join("bootstrap.json");
    let changes: [fn(&mut Value); 6] = [
        |file| file["version"] = json!(2),
        |file| file["operator"] = json!("canary"),
        |file| file["organization"] = json!("canary"),
        |file| file["organization"] = json!("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
        |file| file["organization"] = json!(""),
        |file| file["x"] = json!(1),
    ];
    for change in changes {
        let _ = fs::remove_file(&path);
        bootstrap(directory.path()).unwrap();
        edit(&path, change);
        assert!(matches!(bootstrap(directory.path()), Err(DataDirError::Malformed { .. })));
    }
}

#[test]
fn a_rotation_adds_new_keys_and_retains_old_ones_while_they_are_needed() {
    let (directory, clock, entropy) = (tempdir().unwrap(), clock(), entropy());
    let rotate = || Keys::rotate(directory.path(), Algorithm::Rs256, &*clock, &*entropy).unwrap();
    let first = Keys::read_or_create(directory.path(), Algorithm::Es256, &*clock, &*entropy).unwrap();
    clock.advance(3_600_000);
    let second = rotate();
    assert_ne!(second.signing().kid(), first.signing().kid());
    assert_eq!(second.signing().verifying().algorithm(), Algorithm::Rs256);
    let kids: Vec<_> = second.verifying().map(|key| key.thumbprint().to_owned()).collect();
    assert_eq!(kids, [second.signing().kid(), first.signing().kid()]);
    assert_eq!(second.page_tokens().len(), 2);
    assert_eq!(second.page_tokens()[1], first.page_tokens()[0]);
    assert_eq!(mode(&directory.path().join("keys.json")), 0o600);

    clock.advance(PAGE_TOKEN_KEY_RETENTION.as_millis() as i64 - 1000);
    assert_eq!(rotate().page_tokens().len(), 3);
    clock.advance(1000);
    let third = rotate();
    assert_eq!(third.page_tokens().len(), 3, "the first key is dropped, a fourth is added");
    assert!(!third.page_tokens().contains(&first.page_tokens()[0]));
    assert_eq!(third.verifying().count(), 4, "signing keys have a longer retention than page-token keys");
    assert_eq!(third.sealing().len(), 4, "values sealed with the first key may still be stored");
    assert_eq!(third.sealing().last(), first.sealing().last());
    assert_eq!(third.webhook_keys().count(), 3, "webhook tokens are valid for less than a day");
    let ids: HashSet<_> = third.page_tokens().iter().chain(third.sealing()).map(SecretKey::id).collect();
    assert_eq!(ids.len(), 7, "each has its own id");
    assert_eq!(read_or_create(directory.path()).unwrap().page_tokens(), third.page_tokens());

    clock.advance(SIGNING_KEY_RETENTION.as_millis() as i64);
    let last = rotate();
    assert_eq!(last.verifying().count(), 2, "the keys that were replaced before are dropped");
    assert_eq!((last.page_tokens().len(), last.webhook_keys().count(), last.sealing().len()), (2, 2, 5));
}

#[test]
fn own_signing_keys_have_an_algorithm_that_all_clients_know() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("keys.json");
    for algorithm in Algorithm::ALL {
        let is_known = Algorithm::OWN.contains(&algorithm);
        for step in ["created", "rotated"] {
            let before = fs::read(&path).ok();
            let keys = match step {
                "created" => Keys::read_or_create(directory.path(), algorithm, &*clock(), &*entropy()),
                _ => Keys::rotate(directory.path(), algorithm, &*clock(), &*entropy()),
            };
            assert_eq!(keys.is_ok(), is_known, "{algorithm:?} {step}");
            if !is_known {
                assert_eq!(fs::read(&path).ok(), before, "nothing is written: {algorithm:?} {step}");
            }
            if step == "created" {
                let _ = fs::remove_file(&path);
                read_or_create(directory.path()).unwrap();
            }
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_file_that_lacks_a_sort_of_keys_gets_one_once_and_retains_the_others() {
    let ids = |keys: &Keys| {
        let kids = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect::<Vec<_>>();
        [
            ("signing", kids(keys.verifying().filter_map(VerifyingKey::kid).collect())),
            ("pageTokens", kids(keys.page_tokens().iter().map(SecretKey::id).collect())),
            ("sealing", kids(keys.sealing().iter().map(SecretKey::id).collect())),
            ("webhooks", kids(keys.webhook_keys().filter_map(|(key, _)| key.kid()).collect())),
        ]
    };
    for lacking in ["sealing", "webhooks"] {
        let directory = tempdir().unwrap();
        let remove =
            || edit(&directory.path().join("keys.json"), |file| drop(file.as_object_mut().unwrap().remove(lacking)));
        // Other random numbers than those of the keys that are removed.
        let entropy = SeededEntropy::new(2);
        let before = ids(&read_or_create(directory.path()).unwrap());
        remove();
        let again = || Keys::read_or_create(directory.path(), Algorithm::Es256, &*clock(), &entropy).unwrap();
        let after = ids(&again());
        for ((sort, before), (_, after)) in before.iter().zip(&after) {
            assert_eq!(after.len(), 1, "{sort}");
            assert_eq!(after == before, *sort != lacking, "{sort} without {lacking}");
        }
        assert_eq!(ids(&again()), after);
        remove();
        let rotated = ids(&Keys::rotate(directory.path(), Algorithm::Es256, &*clock(), &entropy).unwrap());
        assert!(rotated.iter().all(|(_, ids)| ids.len() == 2), "{rotated:?}");
    }
}

#[test]
fn concurrent_rotations_lose_no_key() {
    let directory = tempdir().unwrap();
    read_or_create(directory.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Keys::rotate(directory.path(), Algorithm::Es256, &*clock(), &*entropy()).unwrap());
        }
    });
    assert_eq!(read_or_create(directory.path()).unwrap().verifying().count(), 9);
}

#[test]
fn rotating_a_missing_file_is_an_error() {
    let directory = tempdir().unwrap();
    let error = Keys::rotate(directory.path(), Algorithm::Es256, &*clock(), &*entropy()).unwrap_err();
    assert!(matches!(error, DataDirError::Io { action: "read", .. }), "{error}");
}

#[test]
fn the_error_names_a_directory_that_cannot_be_created() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = read_or_create(&file.join("platform-data")).unwrap_err();
    assert!(error.to_string().contains("platform-data"), "{error}");
}

#[test]
fn debug_omits_secrets() {
    let directory = tempdir().unwrap();
    let keys = read_or_create(directory.path()).unwrap();
    let file: Value = serde_json::from_slice(&fs::read(directory.path().join("keys.json")).unwrap()).unwrap();
    let shown = format!("{keys:?}");
    assert!(shown.contains(keys.page_tokens()[0].id()));
    for secret in [&file["signing"][0]["pkcs8"], &file["pageTokens"][0]["secret"], &file["sealing"][0]["secret"]] {
        assert!(!shown.contains(secret.as_str().unwrap()));
    }
    assert!(!shown.contains(&format!("{:?}", keys.page_tokens()[0].secret())));
}
