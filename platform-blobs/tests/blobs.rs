//! The contract of blob stores, for both stores, and damage to a directory.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on fails")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use platform_blobs::{BlobDirectory, OpenError};
use platform_engine::{
    blob::{BlobId, BlobStore, MemoryBlobs},
    store::StoreError,
    timestamp::Timestamp,
};
use tempfile::TempDir;

const REPO: &str = "63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn home() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let blobs = home.path().join("blobs");
    (home, blobs)
}

/// Runs a test on both stores.
fn on_both(test: impl Fn(&dyn BlobStore)) {
    test(&MemoryBlobs::default());
    let (_home, path) = home();
    test(&BlobDirectory::open(path).unwrap());
    let (_home, path) = home();
    test(&BlobDirectory::open_shared(path).unwrap());
}

fn put(blobs: &dyn BlobStore, content: &[u8], now: Timestamp) -> BlobId {
    let id = BlobId::of(REPO, content);
    blobs.put(&id, content, now).unwrap();
    id
}

fn file(path: &Path, id: &BlobId) -> PathBuf {
    let (parent, digest) = id.parts();
    path.join(parent).join(digest)
}

#[test]
fn a_blob_is_read_as_it_was_put_and_by_its_parent_only() {
    on_both(|blobs| {
        for content in [&b""[..], b"one", &[7; 100_000]] {
            let id = BlobId::of(REPO, content);
            assert!(blobs.get(&id).unwrap().is_none());
            assert!(blobs.put(&id, content, at(0)).unwrap());
            assert!(!blobs.put(&id, content, at(0)).unwrap(), "it is there already");
            assert_eq!(blobs.get(&id).unwrap().unwrap(), content);
            assert!(blobs.get(&BlobId::of("other", content)).unwrap().is_none());
        }
        let mut all = [&b""[..], b"one", &[7; 100_000]].map(|content| BlobId::of(REPO, content));
        let mut listed = blobs.list().unwrap();
        all.sort();
        listed.sort();
        assert_eq!(listed, all);
    });
}

#[test]
fn only_blobs_that_are_older_are_deleted_and_time_never_goes_back() {
    on_both(|blobs| {
        let id = put(blobs, b"x", at(10));
        assert!(!blobs.delete(&id, at(10)).unwrap());
        assert!(blobs.renew(&id, at(20)).unwrap());
        assert!(!blobs.delete(&id, at(20)).unwrap());
        blobs.put(&id, b"x", at(30)).unwrap();
        assert!(blobs.renew(&id, at(5)).unwrap());
        assert!(!blobs.delete(&id, at(30)).unwrap());
        assert!(blobs.delete(&id, at(31)).unwrap());
        assert!(!blobs.delete(&id, at(31)).unwrap());
        assert!(blobs.get(&id).unwrap().is_none() && !blobs.renew(&id, at(40)).unwrap());
        assert_eq!(blobs.list().unwrap(), []);
        assert!(blobs.put(&id, b"x", at(50)).unwrap(), "it can be put again");
    });
}

#[test]
fn the_memory_is_bounded() {
    let blobs = MemoryBlobs::new(3);
    let id = put(&blobs, b"abc", at(0));
    let other = BlobId::of(REPO, b"d");
    assert!(matches!(blobs.put(&other, b"d", at(0)), Err(StoreError::Full(_))));
    assert!(blobs.delete(&id, at(1)).unwrap());
    assert!(blobs.put(&other, b"d", at(0)).unwrap());
}

#[test]
fn a_directory_keeps_its_blobs_and_is_open_once() {
    let (_home, path) = home();
    let blobs = BlobDirectory::open(&path).unwrap();
    let id = put(&blobs, b"x", at(0));
    assert!(matches!(BlobDirectory::open(&path), Err(OpenError::InUse { .. })));
    drop(blobs);
    assert_eq!(BlobDirectory::open(&path).unwrap().get(&id).unwrap().unwrap(), &b"x"[..]);
    let missing = BlobDirectory::open(path.join("no/where")).unwrap_err();
    assert!(matches!(missing, OpenError::Io { .. }), "{missing}");
}

#[test]
fn damage_is_an_error_and_a_put_repairs_it() {
    for damage in ["", "trunc", "swapped content"] {
        let (_home, path) = home();
        let blobs = BlobDirectory::open(&path).unwrap();
        let id = put(&blobs, b"truncated", at(0));
        fs::write(file(&path, &id), damage).unwrap();
        assert!(matches!(blobs.get(&id), Err(StoreError::Corrupt(_))), "{damage}");
        assert!(blobs.put(&id, b"truncated", at(0)).unwrap());
        assert_eq!(blobs.get(&id).unwrap().unwrap(), &b"truncated"[..]);
    }
}

#[test]
fn incomplete_files_are_deleted_and_other_files_are_ignored() {
    let (_home, path) = home();
    let id = put(&BlobDirectory::open(&path).unwrap(), b"x", at(0));
    let incomplete = file(&path, &BlobId::of(REPO, b"half")).with_extension("tmp");
    fs::write(&incomplete, "ha").unwrap();
    fs::write(path.join("notes.txt"), "").unwrap();
    fs::write(file(&path, &id).with_file_name("other"), "").unwrap();
    let blobs = BlobDirectory::open(&path).unwrap();
    assert!(!incomplete.exists());
    assert_eq!(blobs.list().unwrap(), [id]);
    assert!(blobs.put(&BlobId::of(REPO, b"half"), b"half", at(0)).unwrap());
}

#[test]
fn a_directory_is_private_and_has_directories_of_parents_with_blobs_alone() {
    for open in [BlobDirectory::open, BlobDirectory::open_shared] {
        let (_home, path) = home();
        let blobs = open(path.clone()).unwrap();
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777, 0o700);
        let ids = [put(&blobs, b"x", at(0)), put(&blobs, b"y", at(0))];
        for (id, is_last) in ids.iter().zip([false, true]) {
            assert!(blobs.delete(id, at(1)).unwrap());
            assert_eq!(file(&path, id).parent().unwrap().exists(), !is_last);
        }
    }
}

#[test]
fn an_incomplete_file_that_cannot_be_removed_is_an_error() {
    for open in [BlobDirectory::open, BlobDirectory::open_shared] {
        let (_home, path) = home();
        let id = put(&open(path.clone()).unwrap(), b"x", at(0));
        fs::create_dir(file(&path, &id).with_extension("tmp")).unwrap();
        assert!(matches!(open(path), Err(OpenError::Io { .. })));
    }
}

#[test]
fn a_failed_write_leaves_no_blob() {
    let (_home, path) = home();
    let blobs = BlobDirectory::open(&path).unwrap();
    let id = BlobId::of(REPO, b"x");
    // A directory in the place of the file makes the rename fail.
    fs::create_dir_all(file(&path, &id).join("in the way")).unwrap();
    assert!(matches!(blobs.put(&id, b"x", at(0)), Err(StoreError::Unavailable(_))));
    assert!(!file(&path, &id).with_extension("tmp").exists());
    fs::remove_dir_all(file(&path, &id)).unwrap();
    assert!(blobs.put(&id, b"x", at(0)).unwrap());
}

/// A blob that was renewed stays, however deletes are interleaved: what `renew` confirmed exists.
#[test]
fn a_blob_that_was_renewed_is_not_deleted_by_a_concurrent_collection() {
    on_both(|blobs| {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for id in blobs.list().unwrap() {
                        blobs.delete(&id, at(1)).unwrap();
                    }
                }
            });
            for round in 0_u32..300 {
                let content = round.to_be_bytes();
                let id = put(blobs, &content, at(0));
                if blobs.renew(&id, at(1)).unwrap() {
                    assert_eq!(blobs.get(&id).unwrap().unwrap(), &content[..]);
                    thread::yield_now();
                    assert!(blobs.get(&id).unwrap().is_some());
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn several_processes_share_a_directory_if_all_of_them_do() {
    let (_home, path) = home();
    let one = BlobDirectory::open_shared(&path).unwrap();
    let id = put(&one, b"one", at(0));
    let incomplete = file(&path, &id).with_extension("tmp");
    fs::write(&incomplete, b"cut").unwrap();
    let two = BlobDirectory::open_shared(&path).unwrap();
    assert!(!incomplete.exists(), "left by a crash");
    assert_eq!(two.get(&id).unwrap().unwrap(), &b"one"[..]);
    assert!(matches!(BlobDirectory::open(&path), Err(OpenError::InUse { .. })));
    // Writes and deletes of both take turns, so that a blob that was put is there.
    thread::scope(|scope| {
        for blobs in [&one, &two] {
            scope.spawn(move || {
                for round in 0..200 {
                    let id = put(blobs, b"again", at(round));
                    assert!(blobs.renew(&id, at(1000)).unwrap() || blobs.get(&id).unwrap().is_none());
                    blobs.delete(&id, at(2000)).unwrap();
                }
            });
        }
    });
    drop((one, two));
    let alone = BlobDirectory::open(&path).unwrap();
    assert!(matches!(BlobDirectory::open_shared(&path), Err(OpenError::InUse { .. })));
    assert!(alone.get(&id).unwrap().is_some());
}
