//! A backup of a store that is being changed is the state after one commit, and its commits go on during the backup.

use std::{
    fs, future,
    path::Path,
    sync::mpsc::{channel, sync_channel},
    task::{Context, Poll},
};

use super::*;

/// The number of records that make the file so large that a copy needs many steps.
const LARGE: usize = 400;

fn large(number: usize, commit: usize) -> Put {
    let body = format!("{commit} {}", "x".repeat(4_000));
    let value = (format!("large {number:04}"), "red", body);
    Put { key: Key::new("Large", Uid::opaque(format!("group/{number:04}"))), ..put("group", &value) }
}

/// Adds large records to the commits of [`history`], one changed record to each but the first, and returns the changes:
/// the record and the number of the commit.
fn add_large(commits: &mut [Commit]) -> Vec<(usize, usize)> {
    let mut random = Random(23);
    let mut changes: Vec<_> = (0..LARGE).map(|number| (number, 0)).collect();
    changes.extend((1..commits.len()).map(|commit| (random.below(LARGE), commit)));
    for (number, commit) in &changes {
        commits[*commit].put.push(large(*number, *commit));
    }
    changes
}

fn body_of(store: &SqliteStore, key: &Key) -> Option<bytes::Bytes> {
    let read = block_on(store.get(std::slice::from_ref(key), &[])).unwrap();
    read.records[0].as_ref().map(|record| record.body.clone())
}

/// Opens a copy, and compares all of it with the state of its sequence, which is returned.
fn verify(copy: &Path, states: &[State], changes: &[(usize, usize)]) -> usize {
    let store = SqliteStore::open(copy).unwrap();
    assert_eq!(store.check().unwrap(), []);
    let query = Query { epochs: [state_epoch()].into(), count: true, ..Query::new("Thing", Scope::All) };
    let page = block_on(store.list(&query)).unwrap();
    let at = page.epochs[0] as usize;
    let found: Vec<_> = page.items.iter().map(|item| (item.uid().to_string(), &*item.body)).collect();
    let expected: Vec<_> = states[at].iter().map(|(uid, (_, _, body))| (uid.to_string(), body.as_bytes())).collect();
    assert_eq!(found, expected, "at {at}");
    for number in 0..LARGE {
        // The commit with the index n has the sequence n + 1.
        let last = changes.iter().rev().find(|(changed, commit)| *changed == number && *commit < at).unwrap();
        let put = large(number, last.1);
        assert_eq!(body_of(&store, &put.key).as_ref(), Some(&put.body), "{number} at {at}");
    }
    at
}

/// Makes a number of backups while a history is committed, again and again in a new store.
fn back_up_under_load(backups: usize, delta_bytes: u64) {
    let (mut commits, states) = history();
    let changes = add_large(&mut commits);
    let mut made = 0;
    while made < backups {
        let directory = tempfile::tempdir().unwrap();
        let builder = SqliteStore::builder().synchronous(Synchronous::Normal).delta_bytes(delta_bytes);
        let store = builder.open(directory.path().join("platform.db")).unwrap();
        block_on(store.commit(commits[0].clone())).unwrap();
        let done = AtomicU64::new(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                for commit in &commits[1..] {
                    let committed = block_on(store.commit(commit.clone())).unwrap();
                    done.store(committed.sequence, Ordering::SeqCst);
                }
            });
            while made < backups && done.load(Ordering::SeqCst) < COMMITS as u64 {
                let (before, steps) = (done.load(Ordering::SeqCst), AtomicU64::new(0));
                let steps = std::sync::Arc::new(steps);
                let counted = steps.clone();
                let copy = directory.path().join(format!("copy{made}"));
                let count = move |_, _| {
                    counted.fetch_add(1, Ordering::SeqCst);
                };
                let sequence = block_on(store.back_up(&copy, count)).unwrap();
                let pages = fs::metadata(&copy).unwrap().len() / 4096;
                let steps = steps.load(Ordering::SeqCst);
                assert!(steps >= 2 && steps <= pages / 64 + 2, "{steps} steps for {pages} pages: it started again");
                assert!(sequence >= before, "the copy lacks a commit that was acknowledged before it began");
                assert_eq!(verify(&copy, &states, &changes) as u64, sequence);
                fs::remove_file(&copy).unwrap();
                made += 1;
            }
        });
        assert_eq!(store.check().unwrap(), []);
    }
}

#[test]
fn each_backup_is_the_state_after_a_commit_not_before_it_began() {
    // 20 in all; 1,000 in `.ci/long`.
    let backups = std::env::var("PLATFORM_BACKUPS").map_or(20, |backups| backups.parse().unwrap());
    back_up_under_load(backups / 2, 32 << 20);
    back_up_under_load(backups - backups / 2, 60_000);
}

#[test]
fn the_log_is_checkpointed_during_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let store = SqliteStore::builder().synchronous(Synchronous::Normal).open(&path).unwrap();
    let group = |commit: usize| {
        let put = (0..LARGE).map(|number| large(number, commit)).collect();
        Commit { put, ..Commit::default() }
    };
    for number in 0..10 {
        let mut commit = group(0);
        commit.put.iter_mut().for_each(|put| put.key.uid = Uid::opaque(format!("{}/{number}", put.key.uid)));
        block_on(store.commit(commit)).unwrap();
    }
    // Each step of the copy waits for a commit.
    let (turns, turn) = sync_channel(0);
    let written = thread::scope(|scope| {
        let backup = scope.spawn(|| {
            let wait = move |_, _| turn.recv().unwrap_or_default();
            block_on(store.back_up(directory.path().join("copy"), wait)).unwrap()
        });
        let mut written = 0;
        loop {
            // Queued before the step goes on, so that it is written after it.
            let mut commit = Box::pin(store.commit(group(written)));
            let mut poll = |cx: &mut Context<'_>| Poll::Ready(commit.as_mut().poll(cx).is_ready());
            let is_done = block_on(future::poll_fn(&mut poll));
            let goes_on = turns.send(()).is_ok();
            if !is_done {
                block_on(commit).unwrap();
            }
            written += 1;
            if !goes_on {
                break;
            }
        }
        backup.join().unwrap();
        written * LARGE * 4_000
    });
    let wal = fs::metadata(path.with_extension("db-wal")).unwrap().len() as usize;
    assert!(written > 60 << 20 && wal < written / 2, "{wal} bytes of log for {written} written bytes");
    assert_eq!(SqliteStore::open(directory.path().join("copy")).unwrap().check().unwrap(), []);
}

#[test]
fn a_canceled_backup_and_a_second_one_do_not_disturb_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("platform.db")).unwrap();
    let put = (0..LARGE).map(|number| large(number, 0)).collect();
    block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    let copy = |name: &str| directory.path().join(name);
    let (began, begins) = channel();
    let (ends, end) = channel::<()>();
    thread::scope(|scope| {
        let (store, first) = (&store, copy("first"));
        let wait = move |_, _| {
            began.send(()).unwrap_or_default();
            end.recv().unwrap_or_default();
        };
        let mut backup = Box::pin(store.back_up(first, wait));
        let is_pending = block_on(future::poll_fn(|cx| Poll::Ready(backup.as_mut().poll(cx).is_pending())));
        assert!(is_pending);
        begins.recv().unwrap();
        let second =
            scope.spawn(|| block_on(store.back_up(copy("second"), |_, _| {})).map_err(|error| error.to_string()));
        while !copy("second").exists() {
            thread::yield_now();
        }
        ends.send(()).unwrap();
        // The second is refused after a step of the first, which waits in the next one then.
        begins.recv().unwrap();
        drop(backup);
        drop(ends);
        // It was made if it came after the first.
        let refused = second.join().unwrap().err();
        assert!(refused.as_ref().is_none_or(|error| error.contains("another backup")), "{refused:?}");
    });
    block_on(store.back_up(copy("third"), |_, _| {})).unwrap();
    assert_eq!(SqliteStore::open(copy("third")).unwrap().check().unwrap(), []);
    let exists = block_on(store.back_up(copy("third"), |_, _| {})).unwrap_err().to_string();
    assert!(exists.contains("cannot create"), "{exists}");
    assert_eq!(store.check().unwrap(), []);
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files_of_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("platform.db");
    let modes = || {
        let entries = fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
        let mode = |entry: fs::DirEntry| entry.metadata().unwrap().permissions().mode() & 0o777;
        entries.map(|entry| (entry.file_name().into_string().unwrap(), mode(entry))).collect::<BTreeMap<_, _>>()
    };
    for made_by_an_earlier_version in [false, true] {
        if made_by_an_earlier_version {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let store = SqliteStore::open(&path).unwrap();
        block_on(store.commit(Commit { put: vec![large(0, 0)], ..Commit::default() })).unwrap();
        block_on(store.back_up(directory.path().join("copy"), |_, _| {})).unwrap();
        let names = ["copy", "platform.db", "platform.db-lock", "platform.db-shm", "platform.db-wal"];
        assert_eq!(modes(), names.map(|name| (name.to_owned(), 0o600)).into());
        fs::remove_file(directory.path().join("copy")).unwrap();
    }
}
