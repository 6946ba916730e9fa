//! Measures what a durable create costs, on top of an existing number of records:
//! `cargo run --profile dist -p platform-store-sqlite --example sqlite_creates -- EXISTING CREATES CLIENTS`.
//!
//! Records are like those of repositories: bodies of about 300 bytes, three sort keys, a filter key and a unique key
//! with a distinct value each, all in one organization. Prints the bytes that the process wrote per create until the
//! store was closed, and its processor time per create; and, with `PAGES=1`, which tables the pages in the write-ahead
//! log belong to before the store is closed. With one client, also prints the median time of a create, and that of a
//! write of 4 KiB to the end of a file with fdatasync. Environment variables: `CACHE` is the memory for caches and
//! unfolded changes in bytes, `DELTA` the bound of unfolded changes in bytes, `BACKUPS=1` makes backups with pauses
//! between them, and prints the times of the creates during backups and of the others, `REPLAY=1` opens a copy of the
//! file as a crash leaves it, `CHECK=1` checks the store at the end, and `KEEP` is a path to which the file is copied.
//! `tests/layout-4.db` was made with `KEEP=layout-4.db`, 0 existing records and 140 creates by one client.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, reason = "this is a benchmark program")]

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use platform_engine::{
    store::{Commit, Key, KeyValue, Put, Require, Store, UniqueKey},
    uid::Uid,
};
use platform_store_sqlite::SqliteStore;

const GROUP: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (existing, creates, clients) = (number(200_000), number(100_000), number(64));
    let directory = tempfile::tempdir_in(std::env::var_os("DIR").unwrap_or_else(|| ".".into())).unwrap();
    let path = directory.path().join("platform.db");
    let store = open(&path);
    for from in (0..existing).step_by(5_000) {
        let put = (from..existing.min(from + 5_000)).map(put).collect();
        pollster::block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    }
    drop(store);
    println!("file: {} bytes per record", fs::metadata(&path).unwrap().len() / existing.max(1));
    let (bytes, seconds) = (written(), cpu_seconds());
    let store = open(&path);
    let start = Instant::now();
    let is_copying = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let times: Vec<(Duration, [bool; 2])> = std::thread::scope(|scope| {
        let (store, is_copying, done) = (&store, &is_copying, &done);
        let create = move |number| {
            let before = is_copying.load(Relaxed);
            let start = Instant::now();
            let put = put(number);
            let require = vec![Require::Absent(put.key.clone())];
            let commit = Commit { require, put: vec![put], ..Commit::default() };
            pollster::block_on(store.commit(commit)).unwrap();
            done.fetch_add(1, Relaxed);
            (start.elapsed(), [before, is_copying.load(Relaxed)])
        };
        if std::env::var_os("BACKUPS").is_some() {
            let copy = directory.path().join("copy.db");
            scope.spawn(move || back_up(store, &copy, is_copying, || done.load(Relaxed), creates));
        }
        let client = move |client| (client..creates).step_by(clients as usize).map(|i| create(existing + i)).collect();
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || -> Vec<_> { client(number) })).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let elapsed = start.elapsed();
    if std::env::var_os("PAGES").is_some() {
        pages(&path);
    }
    if std::env::var_os("CHECK").is_some() {
        println!("check: {:?}", store.check().unwrap());
    }
    if std::env::var_os("REPLAY").is_some() {
        replay(&path, directory.path());
    }
    let open = cpu_seconds();
    drop(store);
    println!(
        "{creates} creates by {clients} clients on {existing}: {:.2} KB written and {:.0} us of processor time each \
         ({:.0} until the close), {:.0} per second",
        (written() - bytes) as f64 / creates as f64 / 1e3,
        (cpu_seconds() - seconds) * 1e6 / creates as f64,
        (open - seconds) * 1e6 / creates as f64,
        creates as f64 / elapsed.as_secs_f64()
    );
    if let Some(copy) = std::env::var_os("KEEP") {
        fs::copy(&path, copy).unwrap();
    }
    let of = |times: &[Duration], percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
    let sorted = |filter: &dyn Fn([bool; 2]) -> bool| {
        let mut times: Vec<_> = times.iter().filter(|(_, copying)| filter(*copying)).map(|(time, _)| *time).collect();
        times.sort_unstable();
        times
    };
    for (what, backup) in [("during backups", true), ("between backups", false)] {
        let times = sorted(&|copying| copying == [backup; 2]);
        if !times.is_empty() && std::env::var_os("BACKUPS").is_some() {
            println!("{} {what}: p50 {:.0} us, p99 {:.0} us", times.len(), of(&times, 50), of(&times, 99));
        }
    }
    let times = sorted(&|_| true);
    println!("times: p50 {:.0} us, p99 {:.0} us", of(&times, 50), of(&times, 99));
    if clients == 1 {
        let mut file = fs::File::create(directory.path().join("appended")).unwrap();
        let append = |_| {
            let start = Instant::now();
            file.write_all(&[7; 4_096]).unwrap();
            file.sync_data().unwrap();
            start.elapsed()
        };
        let mut appends: Vec<_> = (0..times.len().min(5_000)).map(append).collect();
        appends.sort_unstable();
        println!(
            "append and fdatasync: p50 {:.0} us; ratio {:.2}",
            of(&appends, 50),
            of(&times, 50) / of(&appends, 50)
        );
    }
}

/// Makes backups until all creates are done, each followed by a pause in which as many creates are done as during it.
fn back_up(store: &SqliteStore, copy: &Path, is_copying: &AtomicBool, done: impl Fn() -> u64, creates: u64) {
    let (mut backups, mut longest_log) = (0, 0);
    let log = format!("{}-wal", copy.with_file_name("platform.db").display());
    while done() < creates {
        let before = done();
        is_copying.store(true, Relaxed);
        pollster::block_on(store.back_up(copy, |_, _| {})).unwrap();
        is_copying.store(false, Relaxed);
        longest_log = fs::metadata(&log).map_or(0, |log| log.len()).max(longest_log);
        backups += 1;
        fs::remove_file(copy).unwrap();
        let pause = (2 * done() - before).max(done() + 100).min(creates);
        while done() < pause {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    println!("{backups} backups; the log had at most {longest_log} bytes");
}

/// Opens a copy of the files, as a process that is killed leaves them.
fn replay(path: &Path, directory: &Path) {
    let copy = directory.join("killed.db");
    fs::copy(path, &copy).unwrap();
    fs::copy(format!("{}-wal", path.display()), directory.join("killed.db-wal")).unwrap();
    let start = Instant::now();
    let store = open(&copy);
    println!("opened after a crash in {:.2?}, with {} bytes of changes", start.elapsed(), store.unfolded_bytes());
}

fn open(path: &Path) -> SqliteStore {
    let mut builder = SqliteStore::builder();
    if let Some(bytes) = std::env::var("CACHE").ok().map(|text| text.parse().unwrap()) {
        builder = builder.cache_size(bytes);
    }
    if let Some(bytes) = std::env::var("DELTA").ok().map(|text| text.parse().unwrap()) {
        builder = builder.delta_bytes(bytes);
    }
    builder.open(path).unwrap()
}

/// Returns a deterministic number that looks random.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn put(number: u64) -> Put {
    let uid = Uid::opaque(format!("{GROUP}/{:016x}", mix(number)));
    let name = KeyValue::text(&format!("repo-{:08x}", mix(number + 7) >> 32));
    let time = KeyValue::integer(1_760_000_000_000 + number.cast_signed());
    let body = format!("{{\"uid\":\"{uid}\",\"number\":{number},\"text\":\"{}\"}}", "x".repeat(210));
    Put {
        key: Key::new("Repo", uid),
        sort: vec![("name", name.clone()), ("createTime", time.clone()), ("updateTime", time)],
        filter: vec![("name", name)],
        unique: vec![UniqueKey { space: "repo", value: KeyValue::text(&format!("{GROUP}/{number}-{}", mix(number))) }],
        search: Vec::new(),
        rendering: 1,
        body: body.into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    }
}

/// Returns the bytes that this process has caused to be written to disk.
fn written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

/// Returns the CPU time of this process.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.split(' ').skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Prints how many frames of the write-ahead log belong to each table.
fn pages(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut select = connection.prepare("SELECT pageno, name, pagetype FROM dbstat").unwrap();
    let read = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, u32>(0)?, format!("{} ({})", row.get::<_, String>(1)?, row.get::<_, String>(2)?)))
    };
    let names: BTreeMap<u32, String> = select.query_map([], read).unwrap().map(Result::unwrap).collect();
    let log = fs::read(format!("{}-wal", path.display())).unwrap();
    let mut frames = BTreeMap::new();
    let salt = &log[16..24];
    for frame in log[32..].chunks_exact(24 + 4_096).take_while(|frame| frame[8..16] == *salt) {
        let page = u32::from_be_bytes(frame[..4].try_into().unwrap());
        *frames.entry(names.get(&page).map_or("other", |name| name)).or_insert(0) += 1;
    }
    println!("frames in the log: {frames:?}");
}
