//! Copies of stores through a file, and files that are rejected.

#![expect(clippy::cast_precision_loss, reason = "the speed is printed")]

use std::{
    collections::BTreeSet,
    io::{BufWriter, Read as _},
};

use indicatif::ProgressBar;
use platform_core::resources::KINDS;
use platform_engine::{
    store::{Commit, Conflict, Key, MAX_COPIED, Put, Query, Record, Scope, Store, StoreError, memory::MemoryStore},
    uid::Uid,
};
use sha2::{Digest, Sha256};

use super::{
    BATCH, export,
    format::{End, Header, Reader},
    import::{verify, write},
};
use crate::Kinds;

/// The form of secrets in every private part.
const SECRET: &str = "a-secret-hash";

fn uid(text: &str) -> Uid {
    Uid::opaque(text)
}

fn header(private: bool) -> Header {
    let (organization, operator) = (uid(&"a".repeat(40)), uid(&"b".repeat(40)));
    Header::new(organization, operator, private.then(|| vec!["0123456789abcdef".to_owned()]))
}

/// Returns records of all kinds with random uids, revisions and private parts.
fn random_records(seed: u64) -> Vec<Put> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut puts = Vec::new();
    for registered in Kinds::default().stored() {
        for number in 0..random.usize(3..12) {
            let segments = random.usize(1..4);
            let segments: Vec<_> = (0..segments).map(|_| format!("{:016x}", random.u64(..))).collect();
            let mut body = (registered.example)();
            body["uid"] = segments.join("/").into();
            let record = Record {
                key: Key::new(registered.kind.name, uid(&segments.join("/"))),
                revision: random.u64(1..50),
                rendering: random.u16(0..2),
                body: body.to_string().into(),
                private: match number % 3 {
                    0 => "".into(),
                    1 => "{}".into(),
                    _ => {
                        format!(r#"{{"clientSecret":"{SECRET}","codeHash":"{SECRET}","familyHash":"{SECRET}"}}"#).into()
                    }
                },
            };
            puts.push(registered.restored(record).unwrap());
        }
    }
    puts.sort_by(|left, right| left.key.cmp(&right.key));
    puts
}

/// Returns a store with random records. Those whose unique keys are taken are left out.
async fn random_store(seed: u64) -> (MemoryStore, usize) {
    let (store, mut count) = (MemoryStore::new(), 0);
    for put in random_records(seed) {
        match store.commit(Commit { put: vec![put], ..Commit::default() }).await {
            Ok(_) => count += 1,
            Err(StoreError::Conflict(Conflict::Unique { .. })) => {}
            Err(other) => panic!("{other}"),
        }
    }
    (store, count)
}

async fn file(store: &dyn Store, header: &Header) -> Vec<u8> {
    export::write_stopped(Kinds::default(), store, header, Vec::new(), &ProgressBar::hidden()).await.unwrap().0
}

#[tokio::test]
async fn the_copy_of_a_store_has_the_same_file() {
    for seed in 0..30 {
        let (store, count) = random_store(seed).await;
        let exported = file(&store, &header(true)).await;
        let (read, end, need_secrets) = verify(Kinds::default(), &*exported, "file").unwrap();
        assert_eq!((&read, end.records.values().sum::<u64>()), (&header(true), count as u64));
        assert_eq!(need_secrets.lines(), "");
        let copy = MemoryStore::new();
        assert_eq!(write(Kinds::default(), &copy, &*exported, "file", false).await.unwrap(), end);
        assert_eq!(file(&copy, &header(true)).await, exported, "seed {seed}");
    }
}

#[tokio::test]
async fn secrets_are_left_out_and_the_resources_that_need_new_ones_are_named() {
    let (store, _) = random_store(1).await;
    let exported = file(&store, &header(false)).await;
    let text = String::from_utf8(exported.clone()).unwrap();
    let decoded: Vec<u8> = text
        .lines()
        .filter_map(|line| line.split_once("\"private\":\""))
        .flat_map(|(_, rest)| {
            use base64::{Engine as _, engine::general_purpose::STANDARD};
            STANDARD.decode(rest.split('"').next().unwrap()).unwrap()
        })
        .collect();
    // Data other than secrets is kept, such as the events of dead letters.
    assert!(!decoded.is_empty());
    let (_, end, need_secrets) = verify(Kinds::default(), &*exported, "file").unwrap();
    let copy = MemoryStore::new();
    write(Kinds::default(), &copy, &*exported, "file", false).await.unwrap();
    let again = file(&copy, &header(true)).await;
    let lines = need_secrets.lines();
    for kind in ["GroupInvite", "IdentityProvider", "SignIn"] {
        assert!(lines.contains(&format!(" of the kind {kind} ")), "{lines}");
        for line in String::from_utf8(again.clone()).unwrap().lines().filter(|line| line.contains(kind)) {
            let Some((_, private)) = line.split_once("\"private\":\"") else { continue };
            use base64::{Engine as _, engine::general_purpose::STANDARD};
            let private = STANDARD.decode(private.split('"').next().unwrap()).unwrap();
            assert!(!String::from_utf8(private).unwrap().contains(SECRET), "{line}");
        }
    }
    assert!(end.records.contains_key("GroupInvite"));
}

/// Returns a file of three groups.
async fn three() -> Vec<String> {
    let store = MemoryStore::new();
    let group = KINDS.iter().find(|registered| registered.kind.name == "Group").unwrap();
    for (name, revision) in [("a1", 3), ("a2", 9), ("a3", 1)] {
        let body = format!(r#"{{"uid":"{name}","name":"{name}"}}"#);
        let key = Key::new("Group", uid(name));
        let record = Record { key, revision, rendering: 1, body: body.into(), private: "".into() };
        let put = vec![group.restored(record).unwrap()];
        store.commit(Commit { put, ..Commit::default() }).await.unwrap();
    }
    let file = String::from_utf8(file(&store, &header(true)).await).unwrap();
    file.lines().map(|line| format!("{line}\n")).collect()
}

/// Returns the error of a file.
fn rejected(lines: &[String]) -> String {
    format!("{:#}", verify(Kinds::default(), lines.concat().as_bytes(), "file").unwrap_err())
}

/// Replaces the last line by that of the lines before it.
fn with_end(lines: &[String]) -> Vec<String> {
    let lines = &lines[..lines.len() - 1];
    let sha256 = Sha256::digest(lines.concat()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let end = format!("{{\"end\":{{\"records\":{{\"Group\":{}}},\"sha256\":\"{sha256}\"}}}}\n", lines.len() - 1);
    [lines, &[end]].concat()
}

#[tokio::test]
async fn a_file_that_breaks_a_rule_is_rejected_with_the_line_and_the_rule() {
    let lines = three().await;
    assert_eq!(with_end(&lines), lines);
    verify(Kinds::default(), lines.concat().as_bytes(), "file").unwrap();
    let change = |at: usize, from: &str, to: &str| {
        let mut lines = lines.clone();
        assert!(lines[at].contains(from), "{}", lines[at]);
        lines[at] = lines[at].replace(from, to);
        with_end(&lines)
    };
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    let doubled = [&lines[..3], &lines[2..]].concat();
    for (lines, expected) in [
        (with_end(&swapped), "file, line 3: must come before the Group a2: records are sorted by kind and uid"),
        (with_end(&doubled), "file, line 4: is a second record of the Group a2"),
        (change(0, "\"version\":1", "\"version\":2"), "file, line 1: has version 2, and this release reads version 1"),
        (change(0, "\"rendering\":1", "\"rendering\":2"), "file, line 1: was written by a later release"),
        (change(0, "platform-store", "other"), "file, line 1: must be the first line of an export"),
        (change(0, &"b".repeat(40), "b"), "file, line 1: operator must be a uid of one segment"),
        (lines[1..].to_vec(), "file, line 1: must be the first line of an export"),
        (change(2, "\"Group\"", "\"Other\""), "file, line 3: this release has no kind Other"),
        (change(2, "\"kind\"", "\"type\""), "file, line 3: is not a valid record"),
        (change(2, "\"revision\":9", "\"revision\":0"), "file, line 3: revision must be a number from 1 to"),
        (
            change(2, "\"revision\":9", &format!("\"revision\":{}", MAX_COPIED + 1)),
            "file, line 3: revision must be a number from 1 to 4611686018427387904",
        ),
        (change(2, "\"rendering\":1", "\"rendering\":9"), "file, line 3: rendering must be at most 1"),
        (change(2, "\"body\":{\"uid\":\"a2\"", "\"body\":{\"uid\":\"a9\""), "file, line 3: body.uid must be the uid"),
        (change(2, "{\"uid\":\"a2\",\"name\":\"a2\"}", "7"), "file, line 3: body must be a JSON object"),
        (
            change(2, "\"uid\":\"a2\",\"rev", "\"uid\":\"a2//\",\"rev"),
            "file, line 3: uid must be the path of a resource",
        ),
        ([&lines[..2], &lines[3..]].concat(), "file, line 4: the counts must be those of the records"),
        ([&lines[..], &lines[2..3]].concat(), "file, line 5: must be the last line"),
    ] {
        let error = rejected(&lines);
        assert!(error.starts_with(expected), "{error}");
    }
    let mut changed = lines.clone();
    changed[2] = changed[2].replace("\"name\":\"a2\"", "\"name\":\"b2\"");
    assert!(rejected(&changed).starts_with("file, line 5: the checksum must be that of the lines before"));
    let mut with_private = lines.clone();
    with_private[1] = with_private[1].replace("}}", "},\"private\":\"%\"}");
    assert!(rejected(&with_end(&with_private)).starts_with("file, line 2: private must be base64"));
}

#[tokio::test]
async fn a_truncated_file_is_rejected_wherever_it_ends() {
    let file = three().await.concat();
    for length in 0..file.len() {
        let error = format!("{:#}", verify(Kinds::default(), &file.as_bytes()[..length], "file").unwrap_err());
        assert!(error.contains("truncated") || error.contains("is empty"), "at {length}: {error}");
    }
}

#[tokio::test]
async fn an_interrupted_import_is_continued() {
    let (store, count) = random_store(7).await;
    let exported = file(&store, &header(true)).await;
    let records = |bytes: &[u8]| {
        let mut reader = Reader::new(Kinds::default(), bytes, "file").unwrap();
        std::iter::from_fn(move || reader.next().unwrap().map(|entry| entry.put)).collect::<Vec<_>>()
    };
    let all = records(&exported);
    assert_eq!(all.len(), count);
    for done in [0, 1, count / 2, count] {
        let copy = MemoryStore::new();
        let put = all[..done].to_vec();
        copy.commit(Commit { put, ..Commit::default() }).await.unwrap();
        let End { records, .. } = write(Kinds::default(), &copy, &*exported, "file", true).await.unwrap();
        assert_eq!(records.values().sum::<u64>(), count as u64);
        assert_eq!(file(&copy, &header(true)).await, exported);
    }
    let copy = MemoryStore::new();
    let mut other = all[3].clone();
    other.revision = Some(77);
    copy.commit(Commit { put: vec![other], ..Commit::default() }).await.unwrap();
    let error = write(Kinds::default(), &copy, &*exported, "file", true).await.unwrap_err().to_string();
    assert!(error.starts_with("the store has another "), "{error}");
}

#[test]
fn every_kind_that_has_a_private_part_keeps_what_it_needs() {
    // A kind whose private part is not listed here loses all of it in an export.
    let keeps =
        ["DeadLetter", "EventBody", "GroupInvite", "Identity", "IdentityProvider", "RepoFollower", "Role", "SignIn"];
    let found = Kinds::default().stored().filter(|registered| {
        let kept = registered.without_secrets("{}".into()).unwrap();
        !kept.is_empty()
    });
    assert_eq!(found.map(|registered| registered.kind.name).collect::<BTreeSet<_>>(), keeps.into());
}

/// Lists all repos by pages and writes as many bytes to a file as an export has.
async fn scan(store: &dyn Store, mut out: impl std::io::Write, bytes: usize) -> u64 {
    let (mut after, mut scanned, mut left) = (None, 0, bytes);
    loop {
        let query = Query { after, limit: BATCH, ..Query::new("Repo", Scope::All) };
        let page = store.list(&query).await.unwrap();
        for item in &page.items {
            out.write_all(&item.body).unwrap();
            left -= item.body.len();
        }
        scanned += page.items.len() as u64;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    std::io::copy(&mut std::io::repeat(b'x').take(left as u64), &mut out).unwrap();
    scanned
}

/// Prints the speed of an export, and of a scan of the same store by pages that writes as many bytes, for this many repos;
/// and of imports:
/// `PLATFORM_TRANSFER_RECORDS=200000 cargo test --release -p platform-server --lib speed -- --nocapture`.
#[tokio::test(flavor = "multi_thread")]
async fn the_speed_of_a_copy_is_compared_with_a_scan() {
    let count: u64 = std::env::var("PLATFORM_TRANSFER_RECORDS").ok().map_or(500, |count| count.parse().unwrap());
    let repo = KINDS.iter().find(|registered| registered.kind.name == "Repo").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, file: &str| -> Box<dyn Store> {
        match name {
            "memory" => Box::new(MemoryStore::new()),
            _ => Box::new(platform_store_sqlite::SqliteStore::open(dir.path().join(file)).unwrap()),
        }
    };
    for name in ["memory", "sqlite"] {
        let (store, copy) = (open(name, "one"), open(name, "two"));
        for first in (0..count).step_by(500) {
            let put = (first..count.min(first + 500)).map(|number| {
                let mut body = (repo.example)();
                let own = format!("{:040x}/{number:016x}", number % 7);
                body["uid"] = own.clone().into();
                body["name"] = format!("repo {number}").into();
                let key = Key::new("Repo", uid(&own));
                let (body, private) = (body.to_string().into(), "".into());
                repo.restored(Record { key, revision: number + 1, rendering: 1, body, private }).unwrap()
            });
            store.commit(Commit { put: put.collect(), ..Commit::default() }).await.unwrap();
        }
        let (mut scans, mut exports) = (f64::MAX, f64::MAX);
        let exported = file(&*store, &header(true)).await;
        // In turns, and the fastest of each.
        for _ in 0..5 {
            let out = || BufWriter::with_capacity(1 << 20, tempfile::tempfile().unwrap());
            let begun = std::time::Instant::now();
            assert_eq!(scan(&*store, out(), exported.len()).await, count);
            scans = scans.min(begun.elapsed().as_secs_f64());
            let begun = std::time::Instant::now();
            export::write_stopped(Kinds::default(), &*store, &header(true), out(), &ProgressBar::hidden())
                .await
                .unwrap();
            exports = exports.min(begun.elapsed().as_secs_f64());
        }
        let per_second = |begun: std::time::Instant| count as f64 / begun.elapsed().as_secs_f64();
        let begun = std::time::Instant::now();
        let (_, end, _) = verify(Kinds::default(), &*exported, "file").unwrap();
        let verified = per_second(begun);
        assert_eq!(write(Kinds::default(), &*copy, &*exported, "file", false).await.unwrap(), end);
        let import = per_second(begun);
        println!(
            "{name}: export of {count} in {exports:.2} s, scan in {scans:.2} s ({:.2} of its speed); verify {verified:.0}, \
             import {import:.0} records/s",
            scans / exports
        );
    }
}
