//! A get of a repo by uid, compared with hand-written rusqlite.

use std::sync::Arc;

use bytes::Bytes;
use platform_engine::store::Store;
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use super::{count, large};
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
}

impl Sides {
    /// Opens both, and checks that they return the same repos.
    pub fn new(data: Data, store: Arc<dyn Store>) -> Self {
        let world = World::over(store);
        let uid = |number| data.repo(mix(number) % data.repos()).uid.to_string();
        let uids = (0..2_000).map(uid).collect();
        let sides = Self { world, hand: HandReads::open(data), uids };
        (0..2_000).for_each(|round| assert_eq!(sides.get(round), sides.by_hand(round)));
        sides
    }

    fn uid(&self, round: usize) -> &str {
        &self.uids[round % self.uids.len()]
    }

    /// Opens both over SQLite.
    pub fn sqlite(data: Data) -> Self {
        Self::new(data, Arc::new(SqliteStore::open(data.sqlite()).unwrap()))
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
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let sides = Sides::sqlite(Data::One(large()));
    let times = Times::of(4_000);
    let get = compare(times, |round| drop(sides.get(round)), |round| drop(sides.by_hand(round)));
    let with = compare(times, |round| drop(sides.with_token(round)), |round| drop(sides.by_hand(round)));
    vec![
        Line::ratio(format!("get: SQLite / hand, of {}", count(large())), get, Goal::AtMost(1.3, 1.0)),
        Line::ratio("get: the same, with bearer token check", with, Goal::None),
    ]
}

/// Measures the figure for sled.
pub fn sled_lines() -> Vec<Line> {
    let data = Data::One(large());
    let sides = Sides::new(data, Arc::new(SledStore::open(data.sled()).unwrap()));
    let get = compare(Times::of(4_000), |round| drop(sides.get(round)), |round| drop(sides.by_hand(round)));
    vec![Line::ratio(format!("get: sled / hand, of {}", count(large())), get, Goal::None)]
}
