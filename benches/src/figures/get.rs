//! A repo by its uid, beside hand-written rusqlite.

use std::sync::Arc;

use bytes::Bytes;
use platform_store_sqlite::SqliteStore;

use super::LARGE;
use crate::{
    data::{Data, mix},
    hand::HandReads,
    measure::{Goal, Line, Times, compare},
    world::World,
};

/// Both sides over the same repos.
#[derive(Debug)]
pub struct Sides {
    world: World,
    hand: HandReads,
    uids: Vec<String>,
    /// So many that none of them is asked for twice.
    fresh: Vec<String>,
}

impl Sides {
    /// Opens both, and makes sure that they answer the same.
    pub fn new(data: Data) -> Self {
        let world = World::over(Arc::new(SqliteStore::open(data.sqlite()).unwrap()));
        let uid = |number| data.repo(mix(number) % data.repos()).uid.to_string();
        let (uids, fresh) = ((0..2_000).map(uid).collect(), (2_000..102_000).map(uid).collect());
        let sides = Self { world, hand: HandReads::open(data), uids, fresh };
        (0..2_000).for_each(|round| assert_eq!(sides.get(round), sides.by_hand(round)));
        sides
    }

    fn uid(&self, round: usize) -> &str {
        &self.uids[round % self.uids.len()]
    }

    /// A get by a caller who is known.
    pub fn get(&self, round: usize) -> Bytes {
        self.world.get(self.uid(round))
    }

    /// A get by a caller whose token is checked.
    pub fn with_token(&self, round: usize) -> Bytes {
        self.world.get_with_token(self.uid(round))
    }

    /// A get by hand.
    pub fn by_hand(&self, round: usize) -> Vec<u8> {
        self.hand.get(self.uid(round))
    }

    /// A get by a caller who is known, of a repo that was not read before.
    pub fn cold(&self, round: usize) -> Bytes {
        self.world.get(&self.fresh[round % self.fresh.len()])
    }

    /// A get by hand of a repo that was not read before.
    pub fn cold_by_hand(&self, round: usize) -> Vec<u8> {
        self.hand.get(&self.fresh[round % self.fresh.len()])
    }
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let sides = Sides::new(Data::One(LARGE));
    let times = Times { operations: 4_000, ..Times::default() };
    let get = compare(times, |round| drop(sides.get(round)), |round| drop(sides.by_hand(round)));
    let with = compare(times, |round| drop(sides.with_token(round)), |round| drop(sides.by_hand(round)));
    // Each side counts for itself, since the rounds' numbers come twice: once to get warm.
    let (mut fresh, mut fresh_by_hand) = (0.., 0..);
    let mut next = || drop(sides.cold(fresh.next().unwrap_or_default()));
    let mut next_by_hand = || drop(sides.cold_by_hand(fresh_by_hand.next().unwrap_or_default()));
    let cold = compare(times, |_| next(), |_| next_by_hand());
    vec![
        Line::ratio("get: SQLite / hand, of 1M", get, Goal::AtMost(1.3, 1.0)),
        Line::ratio("get: the same, not read before", cold, Goal::None),
        Line::ratio("get: the same, its bearer token checked", with, Goal::None),
    ]
}
