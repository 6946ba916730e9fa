//! Memory for a million repos: in the memory store, in addition to their bodies and uids, and of a process that serves
//! them from SQLite.
//!
//! Each is measured in a separate process, since freed memory is not always returned to the system.

use std::{env, fs, process::Command, sync::Arc};

use platform_store_sqlite::SqliteStore;

use super::{CHILD, count, large};
use crate::{
    data::Data,
    measure::{Goal, Line},
    world::{World, pairs},
};

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let measured = |which: &str| -> f64 {
        let output = Command::new(env::current_exe().unwrap()).env(CHILD, which).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let of = count(large());
    Data::One(large()).sqlite();
    vec![
        Line::value(
            format!("memory: bytes per repo, without body and uid, {of}"),
            measured("memory"),
            Goal::AtMost(210.0, 120.0),
        ),
        Line::value(
            format!("memory: SQLite process heap after reads, MB, {of}"),
            measured("sqlite"),
            Goal::AtMost(64.0, 32.0),
        ),
    ]
}

/// Measures and prints the selected value, in a process that [`lines`] starts.
pub(super) fn child(which: &str) {
    let data = Data::One(large());
    let before = anonymous_bytes();
    if which == "memory" {
        let store = Arc::new(data.memory());
        let beyond = anonymous_bytes() - before;
        let own: u64 = (0..data.repos())
            .map(|number| {
                let put = crate::data::repo_put(&data.repo(number));
                (put.key.uid.len() + put.body.len()) as u64
            })
            .sum();
        drop(store);
        println!("{}", beyond.saturating_sub(own) as f64 / data.repos() as f64);
    } else {
        let world = World::over(Arc::new(SqliteStore::open(data.sqlite()).unwrap()));
        for place in 0..2_000_u64 {
            let skip = (place * 499 % data.repos()).to_string();
            drop(world.list(&pairs([("order_by", "name"), ("skip", &skip)])));
        }
        println!("{}", anonymous_bytes() as f64 / 1e6);
    }
}

/// Returns the resident memory of this process that is not backed by files.
fn anonymous_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}
