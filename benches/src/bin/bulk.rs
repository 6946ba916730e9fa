//! Measures bulk loads into SQLite and prints the cost of both sides; see the README.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a measuring program")]

use std::path::Path;

use platform_benches::{
    bulk::{self, Load},
    data::directory,
    figures::count,
    measure::{Compared, Cost, Goal, Line, median, rounds, variable},
};
use platform_store_sqlite::SqliteStore;

type Side = fn(&Path, u64);

/// A load: its name, the store, the hand-written program, the generation of the records, and its goals: for the time, the
/// length of the file, and the bytes written per record, in KB.
struct Figure {
    name: &'static str,
    store: Side,
    hand: Side,
    generate: fn(u64),
    times: Goal,
    files: Goal,
    written: fn(f64) -> Goal,
}

fn main() {
    let records = variable("BULK_COUNT", 100_000);
    let only: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    println!("{}", Line::header());
    if is_wanted("repos") {
        eprintln!("repos: {}", bulk::first_repo().map(|put| bulk::describe(&put)).unwrap_or_default());
        let figure = Figure {
            name: "repos",
            store: bulk::load_repos,
            hand: bulk::load_repos_by_hand,
            generate: bulk::generate_repos,
            times: Goal::AtMost(3.0, 1.5),
            files: Goal::AtMost(1.6, 1.2),
            written: |_| Goal::None,
        };
        let compared = run(&figure, records);
        let path = directory().join("bulk-repos.one-order");
        let one: Vec<_> = (0..rounds(1))
            .map(|_| bulk::measure(&path, |path| bulk::load_repos_with_one_order(path, records)))
            .collect();
        drop(std::fs::remove_file(path));
        print(&figure, records, "one covering order", &compared, &one, (Goal::None, Goal::None));
    }
    if is_wanted("advisories") {
        eprintln!("advisories: {}", bulk::advisories(2).last().map(|put| bulk::describe(&put)).unwrap_or_default());
        let figure = Figure {
            name: "advisories",
            store: bulk::load_advisories,
            hand: bulk::load_advisories_by_hand,
            generate: bulk::generate_advisories,
            times: Goal::AtMost(4.0, 2.0),
            files: Goal::None,
            // 12 GB of a million, and twice the file.
            written: |file| Goal::AtMost(12.0, (200.0 * file).round() / 100.0),
        };
        run(&figure, records);
    }
}

/// The loads of the store, and the generation of their records.
struct Loads {
    store: Vec<Load>,
    generation: Vec<Load>,
}

fn run(figure: &Figure, records: u64) -> Loads {
    let path = |side: &str| directory().join(format!("bulk-{}.{side}", figure.name));
    let (mut loads, mut hand) = (Loads { store: Vec::new(), generation: Vec::new() }, Vec::new());
    for _ in 0..rounds(1) {
        loads.generation.push(bulk::measure(&path("none"), |_| (figure.generate)(records)));
        hand.push(bulk::measure(&path("hand"), |path| (figure.hand)(path, records)));
        loads.store.push(bulk::measure(&path("sqlite"), |path| (figure.store)(path, records)));
    }
    if std::env::var_os("CHECK").is_some() {
        eprintln!("{:?}", SqliteStore::open(path("sqlite")).unwrap().check().unwrap());
    }
    print(figure, records, "five orders", &loads, &hand, (figure.times, figure.files));
    let kilobytes = |loads: &[Load], bytes: fn(&Load) -> u64| {
        median(loads.iter().map(|load| bytes(load) as f64 / records as f64 / 1e3).collect())
    };
    let (a, b) = (kilobytes(&loads.store, |load| load.written), kilobytes(&hand, |load| load.written));
    println!(
        "{}",
        Line {
            sides: (format!("{a:.2} KB"), format!("{b:.2} KB")),
            ..Line::value(
                format!("bulk {}: {}, KB written per record", figure.name, count(records)),
                a,
                (figure.written)(kilobytes(&loads.store, |load| load.file)),
            )
        }
    );
    if std::env::var_os("KEEP").is_none() {
        for side in ["hand", "sqlite", "sqlite-lock"] {
            drop(std::fs::remove_file(path(side)));
        }
    }
    loads
}

/// Prints the ratios of times, without generation, and of the lengths of files.
fn print(figure: &Figure, records: u64, hand: &str, loads: &Loads, hands: &[Load], goals: (Goal, Goal)) {
    let turns = loads.store.iter().zip(hands).zip(&loads.generation);
    let turns: Vec<_> = turns
        .map(|((store, hand), generation)| {
            // Not zero, which has no ratio.
            let cost = |load: &Load| {
                let time = (load.time - generation.time).max(0.01);
                Cost::of(vec![time], (load.cpu - generation.cpu).max(0.01))
            };
            (cost(store), cost(hand))
        })
        .collect();
    let compared = Compared::of(&turns);
    let name = format!("bulk {}: {}, SQLite / hand, {hand}", figure.name, count(records));
    let sides = (format!("{:.2} s", compared.a.p50), format!("{:.2} s", compared.b.p50));
    println!("{}", Line { sides, ..Line::ratio(&name, compared, goals.0) });
    let (Some(store), Some(hand)) = (loads.store.last(), hands.last()) else { return };
    let sides = (format!("{:.1} MB", store.file as f64 / 1e6), format!("{:.1} MB", hand.file as f64 / 1e6));
    println!(
        "{}",
        Line { sides, ..Line::value(format!("{name}, file"), store.file as f64 / hand.file as f64, goals.1) }
    );
}
