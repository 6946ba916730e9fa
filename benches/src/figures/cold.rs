//! Pages and repos that have not been read before, compared with hand-written rusqlite: with the files in the system's
//! cache, and without.

use std::{fs, path::PathBuf, process::Command, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_store_sqlite::SqliteStore;

use super::{count, large, list::repos};
use crate::{
    data::{Data, mix},
    hand::{HandReads, Layout},
    measure::{Compared, Cost, Goal, Line, Times, turn, variable},
    world::{World, pairs},
};

/// The number of repos in a page.
const PAGE: u64 = 50;

/// The sides other than the platform. The first is the one that the goals are about.
const HANDS: [(Layout, &str); 3] = [
    (Layout::Json, "index, then JSON"),
    (Layout::Columns, "index, then columns"),
    (Layout::Covering, "covering index, mapped"),
];

/// The page cache of both sides, in bytes: `BENCH_CACHE`, by default 64 MiB.
fn cache() -> u64 {
    variable("BENCH_CACHE", 64 << 20)
}

fn open(data: Data) -> World {
    World::over(Arc::new(SqliteStore::builder().cache_bytes(cache()).open(data.sqlite()).unwrap()))
}

/// A page: the query of the platform, and the cursor of the hand-written program.
type Place = (Vec<(String, String)>, String);

/// Returns different pages in random order, for all turns. Another store finds them, which is closed then.
fn places(data: Data, times: &mut Times) -> Vec<Place> {
    let pages = data.repos() / PAGE - 1;
    let needed = (times.rounds * (times.operations + times.operations / 10)) as u64;
    if needed > pages {
        times.operations = (pages as usize * 10 / 11 / times.rounds).max(1);
    }
    let mut numbers: Vec<u64> = (0..pages).collect();
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, (mix(last as u64) % (last as u64 + 1)) as usize);
    }
    let world = World::over(Arc::new(SqliteStore::open(data.sqlite()).unwrap()));
    let place = |page: u64| {
        let before = (page * PAGE + PAGE - 1).to_string();
        let reply = world.list(&pairs([("order_by", "name"), ("skip", &before), ("page_size", "1")]));
        let item: serde_json::Value = serde_json::from_slice(&reply.items[0]).unwrap();
        let text = |name: &str| item[name].as_str().unwrap();
        let cursor = URL_SAFE_NO_PAD.encode(format!("{}\n{}", text("name"), text("uid")));
        (pairs([("order_by", "name"), ("page_token", &reply.next_page_token.unwrap())]), cursor)
    };
    numbers.into_iter().take(needed.min(pages) as usize).map(place).collect()
}

/// Removes files, also those in directories, from the system's cache: `posix_fadvise` with `POSIX_FADV_DONTNEED`, which dd
/// calls.
fn forget(files: &[PathBuf]) {
    for file in files.iter().filter(|file| file.exists()) {
        if file.is_dir() {
            forget(&fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>());
            continue;
        }
        let file = format!("if={}", file.display());
        let done = Command::new("dd").args([&file, "iflag=nocache", "count=0", "status=none"]).status().unwrap();
        assert!(done.success());
    }
}

/// Measures the platform and each hand-written side in turns, each with the same numbers, which never repeat.
fn in_turns(
    times: Times,
    before: impl Fn(),
    mut platform: impl FnMut(usize),
    hands: &mut [Box<dyn FnMut(usize) + '_>],
) -> Vec<Compared> {
    // The warm-up has its own numbers.
    let (warm, all) = (times.operations / 10, times.operations + times.operations / 10);
    let one = |round: usize, side: &mut dyn FnMut(usize)| -> Cost {
        before();
        let mut next = round * all..;
        let cost = turn(times, 0, &mut |_| side(next.next().unwrap_or_default()));
        assert_eq!(next.start, round * all + warm + times.operations);
        cost
    };
    let mut turns: Vec<Vec<(Cost, Cost)>> = vec![Vec::new(); hands.len()];
    for round in 0..times.rounds {
        let a = one(round, &mut platform);
        for (hand, turns) in hands.iter_mut().zip(&mut turns) {
            turns.push((a, one(round, hand)));
        }
    }
    turns.iter().map(|turns| Compared::of(turns)).collect()
}

fn pages(name: &str, operations: usize, is_forgotten: bool) -> Vec<Line> {
    let data = Data::One(large());
    let mut times = Times::of(operations);
    let hands = HANDS.map(|(layout, _)| HandReads::with(data, layout, (cache() >> 10) as u32));
    let places = places(data, &mut times);
    let world = open(data);
    let mut files = vec![data.sqlite(), PathBuf::from(format!("{}-wal", data.sqlite().display()))];
    files.extend(HANDS.map(|(layout, _)| layout.file(data)));
    let is_same = |place: &Place| {
        let page = repos(&world.page(&place.0));
        hands.iter().all(|hand| repos(&hand.list(0, Some(&place.1))) == page)
    };
    // The last page of the last turn.
    assert!(places.last().is_none_or(is_same));
    let mut by_hand: Vec<Box<dyn FnMut(usize) + '_>> = Vec::new();
    for hand in &hands {
        by_hand.push(Box::new(|number| drop(hand.list(0, Some(&places[number].1)))));
    }
    let before = || {
        if is_forgotten {
            forget(&files);
        }
    };
    let compared = in_turns(times, before, |number| drop(world.page(&places[number].0)), &mut by_hand);
    let goals = [Goal::AtMost(1.5, 1.0), Goal::None, Goal::None];
    let lines = compared.into_iter().zip(HANDS).zip(goals);
    lines.map(|((compared, (_, hand)), goal)| Line::ratio(format!("{name} / {hand}"), compared, goal)).collect()
}

/// Compares pages of two stores with the same repos that neither has read before. Removes these files from the system's cache
/// before each turn, if `is_forgotten`.
pub(super) fn compared(
    operations: usize,
    is_forgotten: bool,
    open: impl FnOnce() -> (World, World),
    files: &[PathBuf],
) -> Compared {
    let mut times = Times::of(operations);
    let places = places(Data::One(large()), &mut times);
    let (a, b) = open();
    let page = |world: &World, number: usize| repos(&world.page(&places[number].0));
    // The last page of the last turn.
    let last = places.len() - 1;
    assert_eq!(page(&a, last), page(&b, last));
    let before = || {
        if is_forgotten {
            forget(files);
        }
    };
    let other = Box::new(|number: usize| drop(b.page(&places[number].0)));
    in_turns(times, before, |number| drop(a.page(&places[number].0)), &mut [other]).remove(0)
}

/// Measures pages and gets that have not been read before, with the files in the system's cache.
pub fn lines() -> Vec<Line> {
    let of = count(large());
    let mut lines = pages(&format!("cold: page of {of}"), 1_000, false);
    let data = Data::One(large());
    let mut times = Times::of(4_000);
    let all = times.rounds * (times.operations + times.operations / 10);
    if all as u64 > data.repos() {
        times.operations = (data.repos() as usize * 10 / 11 / times.rounds).max(1);
    }
    let (world, numbers) = (open(data), Numbers::of(data.repos()));
    let uid = |number: usize| data.repo(numbers.get(number as u64)).uid.to_string();
    let uids: Vec<String> = (0..all.min(data.repos() as usize)).map(uid).collect();
    let layouts = [HANDS[2], HANDS[0], HANDS[1]];
    let hands = layouts.map(|(layout, _)| HandReads::with(data, layout, (cache() >> 10) as u32));
    let mut by_hand: Vec<Box<dyn FnMut(usize) + '_>> = Vec::new();
    for hand in &hands {
        by_hand.push(Box::new(|number| drop(hand.get(&uids[number]))));
    }
    let compared = in_turns(times, || (), |number| drop(world.get(&uids[number])), &mut by_hand);
    let names = ["table by uid, mapped", "index, then JSON", "index, then columns"];
    let goals = [Goal::AtMost(1.2, 1.0), Goal::None, Goal::None];
    for ((compared, name), goal) in compared.into_iter().zip(names).zip(goals) {
        lines.push(Line::ratio(format!("cold: get of {of} / {name}"), compared, goal));
    }
    lines
}

/// Measures pages that have not been read before, after the files have left the system's cache.
pub fn disk_lines() -> Vec<Line> {
    pages(&format!("cold-disk: page of {}", count(large())), 300, true)
}

/// The numbers below a bound, in a pseudorandom order: each once.
struct Numbers {
    bound: u64,
    bits: u32,
}

impl Numbers {
    const fn of(bound: u64) -> Self {
        Self { bound, bits: 64 - bound.leading_zeros() }
    }

    /// Returns the number at a place: a bijection of the numbers of as many bits, repeated until it is below the bound.
    const fn get(&self, place: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        let mut number = place;
        loop {
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
            number ^= number >> (self.bits / 2 + 1);
            number = number.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
            if number < self.bound {
                return number;
            }
        }
    }
}
