//! Measures bulk loads into SQLite and prints the cost of both sides; see the README.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program: a failure ends it")]

use std::path::Path;

use platform_benches::{
    bulk::{self, Load},
    data::directory,
};
use platform_store_sqlite::SqliteStore;

type Side = fn(&Path, u64);

fn main() {
    let count = std::env::var("BULK_COUNT").map_or(100_000, |count| count.parse().unwrap());
    let only: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    if is_wanted("repos") {
        println!("repos: {}", bulk::first_repo().map(|put| bulk::describe(&put)).unwrap_or_default());
        run("repos", count, bulk::load_repos, bulk::load_repos_by_hand, bulk::generate_repos);
    }
    if is_wanted("advisories") {
        println!("advisories: {}", bulk::advisories(2).last().map(|put| bulk::describe(&put)).unwrap_or_default());
        run("advisories", count, bulk::load_advisories, bulk::load_advisories_by_hand, bulk::generate_advisories);
    }
}

fn run(name: &str, count: u64, a: Side, b: Side, generate: fn(u64)) {
    let path = |side: &str| directory().join(format!("bulk-{name}.{side}"));
    let nothing = bulk::measure(&path("none"), |_| generate(count));
    let hand = bulk::measure(&path("hand"), |path| b(path, count));
    let store = bulk::measure(&path("sqlite"), |path| a(path, count));
    if std::env::var_os("CHECK").is_some() {
        println!("{:?}", SqliteStore::open(path("sqlite")).unwrap().check().unwrap());
    }
    for (side, load) in [("generation", nothing), ("store", store), ("hand", hand)] {
        let Load { cpu, written, file } = load;
        let (written, file) = (written as f64 / 1e6, file as f64 / 1e6);
        println!("{name:12} {count:9} {side:10}: {cpu:8.2} s, {written:9.1} MB written, file {file:8.1} MB");
    }
    let time = (store.cpu - nothing.cpu) / (hand.cpu - nothing.cpu);
    let file = store.file as f64 / hand.file as f64;
    let written = store.written as f64 / store.file as f64;
    println!(
        "{name:12} {count:9}: time {time:.2} times, file {file:.2} times, {written:.2} bytes written per byte of file"
    );
    if std::env::var_os("KEEP").is_none() {
        for side in ["hand", "sqlite", "sqlite-lock"] {
            let _ = std::fs::remove_file(path(side));
        }
    }
}
