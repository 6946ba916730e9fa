//! The memory that a record of the memory store needs in addition to its body and uid.
//!
//! `PLATFORM_RECORDS=1000000 cargo test --release -p platform-engine --test memory_bytes -- --nocapture` prints the
//! figure for a million records.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "the figures are read")]

use std::{env, fs};

use bytes::Bytes;
use peak_alloc::PeakAlloc;
use platform_engine::{
    store::{Commit, Key, KeyValue, Put, Store, UniqueKey, memory::MemoryStore},
    uid::Uid,
};
use pollster::block_on;
use sha2::{Digest, Sha256};

/// Counts the memory of this process. The only test of this file is the only one of the process.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The number of records of a commit.
const BATCH: u64 = 1_000;

/// Returns a record like a repo: half of them are children of an organization, half of one of its ten folders.
fn repo(number: u64) -> Put {
    let organization = "5e1f".repeat(10);
    let parent = match number % 20 {
        odd if odd % 2 == 1 => format!("{organization}/{:016x}", odd / 2),
        _ => organization,
    };
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let (uid, name) = (format!("{parent}/{mixed:016x}"), format!("{:05x}-server-{number}", mixed >> 44));
    let created = 1_760_000_000_000 + (number * 7_919 % 1_000_003).cast_signed() * 1_000;
    let body = format!(
        r#"{{"uid":"{uid}","name":"{name}","description":"A small image of server, built every night from its sources","catalogTier":"BASE","bundles":["application"],"activeTags":["latest","1.29"],"createTime":"2026-01-01T00:00:00Z","updateTime":"2026-01-02T00:00:00Z"}}"#
    );
    let unique = Sha256::digest(format!("{parent}\0{name}")).to_vec();
    Put {
        key: Key::new("Repo", Uid::opaque(uid)),
        sort: vec![
            ("name", KeyValue::text(&name)),
            ("createTime", KeyValue::integer(created)),
            ("updateTime", KeyValue::integer(created + 86_400_000)),
        ],
        filter: vec![("name", KeyValue::text(&name))],
        unique: vec![UniqueKey { space: "repo.name", value: KeyValue::from_bytes(unique) }],
        search: Vec::new(),
        rendering: 1,
        body: Bytes::from(body),
        private: Bytes::new(),
        queue: false,
        revision: None,
    }
}

/// Returns the resident memory of this process that is not backed by files, in bytes; 0 where it is not known.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0) * 1024
}

#[test]
fn a_record_needs_at_most_100_bytes_in_addition_to_its_body_and_uid() {
    let records = env::var("PLATFORM_RECORDS").map_or(20_000, |records| records.parse().unwrap());
    let store = MemoryStore::new();
    let (allocated, resident_before) = (MEMORY.current_usage(), resident());
    let mut own = 0;
    for start in (0..records).step_by(BATCH as usize) {
        let put: Vec<Put> = (start..records.min(start + BATCH)).map(repo).collect();
        own += put.iter().map(|put| put.body.len() + put.key.uid.len()).sum::<usize>();
        block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    }
    let beyond = |all: usize| all.saturating_sub(own) as f64 / records as f64;
    let requested = beyond(MEMORY.current_usage() - allocated);
    println!(
        "{records} records with {} bytes of body and uid: {requested:.0} bytes requested, {:.0} bytes resident",
        own as u64 / records,
        beyond(resident().saturating_sub(resident_before)),
    );
    assert!(requested < 100.0, "{requested:.0} bytes");
}
