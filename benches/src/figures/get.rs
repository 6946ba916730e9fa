//! A get of a repo by uid, compared with hand-written rusqlite.

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
    /// Enough uids that none is requested twice.
    cold_uids: Vec<String>,
}

impl Sides {
    /// Opens both, and checks that they return the same repos.
    pub fn new(data: Data) -> Self {
        let world = World::over(Arc::new(SqliteStore::open(data.sqlite()).unwrap()));
        let uid = |number| data.repo(mix(number) % data.repos()).uid.to_string();
        let (uids, cold_uids) = ((0..2_000).map(uid).collect(), (2_000..102_000).map(uid).collect());
        let sides = Self { world, hand: HandReads::open(data), uids, cold_uids };
        (0..2_000).for_each(|round| assert_eq!(sides.get(round), sides.by_hand(round)));
        sides
    }

    fn uid(&self, round: usize) -> &str {
        &self.uids[round % self.uids.len()]
    }

    /// Gets a repo for the authenticated caller.
    pub fn get(&self, round: usize) -> Bytes {
        self.world.get(self.uid(round))
    }

    /// Checks the bearer token and gets a repo.
    pub fn with_token(&self, round: usize) -> Bytes {
        self.world.get_with_token(self.uid(round))
    }

    /// Gets a repo with the hand-written program.
    pub fn by_hand(&self, round: usize) -> Vec<u8> {
        self.hand.get(self.uid(round))
    }

    /// Gets a repo that is not in the cache, for an authenticated caller.
    pub fn cold(&self, round: usize) -> Bytes {
        self.world.get(&self.cold_uids[round % self.cold_uids.len()])
    }

    /// Gets a repo that is not in the cache, with the hand-written program.
    pub fn cold_by_hand(&self, round: usize) -> Vec<u8> {
        self.hand.get(&self.cold_uids[round % self.cold_uids.len()])
    }
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let sides = Sides::new(Data::One(LARGE));
    let times = Times { operations: 4_000, ..Times::default() };
    let get = compare(times, |round| drop(sides.get(round)), |round| drop(sides.by_hand(round)));
    let with = compare(times, |round| drop(sides.with_token(round)), |round| drop(sides.by_hand(round)));
    // Each side has its own counter, since the numbers of the rounds are repeated after the warm-up.
    let (mut round, mut round_by_hand) = (0.., 0..);
    let mut next = || drop(sides.cold(round.next().unwrap_or_default()));
    let mut next_by_hand = || drop(sides.cold_by_hand(round_by_hand.next().unwrap_or_default()));
    let cold = compare(times, |_| next(), |_| next_by_hand());
    vec![
        Line::ratio("get: SQLite / hand, of 1M", get, Goal::AtMost(1.3, 1.0)),
        Line::ratio("get: the same, cold", cold, Goal::None),
        Line::ratio("get: the same, with bearer token check", with, Goal::None),
    ]
}
