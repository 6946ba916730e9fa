//! A page of 50 repos by name with the exact total, compared with hand-written rusqlite.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_engine::store::Store;
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use super::{count, large, organizations};
use crate::{
    data::Data,
    hand::HandReads,
    measure::{Goal, Line, Times, compare},
    world::{World, pairs},
};

/// Number of positions in the list that stay in the store's cache.
const WARM_PLACES: u64 = 64;

/// A position in the list: a query with its page token, and the cursor of the hand-written program.
type Place = (Vec<(String, String)>, String);

/// Both sides over the same repos, and positions in the list.
#[derive(Debug)]
pub struct Sides {
    world: World,
    hand: HandReads,
    first: Vec<(String, String)>,
    /// Positions spread over the list.
    warm_places: Vec<Place>,
}

impl Sides {
    /// Opens both, over SQLite or another store with the same data, and checks that they return the same pages.
    pub fn new(data: Data, store: Arc<dyn Store>) -> Self {
        let (world, hand) = (World::over(store), HandReads::open(data));
        let first = pairs([("order_by", "name")]);
        let total = world.list(&first).total_count;
        let end = total.saturating_sub(200);
        let place = |skip: u64| {
            let skip = skip.to_string();
            let reply = world.list(&pairs([("order_by", "name"), ("skip", &skip), ("page_size", "1")]));
            let item: serde_json::Value = serde_json::from_slice(&reply.items[0]).unwrap();
            let text = |name: &str| item[name].as_str().unwrap();
            let cursor = URL_SAFE_NO_PAD.encode(format!("{}\n{}", text("name"), text("uid")));
            (pairs([("order_by", "name"), ("page_token", &reply.next_page_token.unwrap())]), cursor)
        };
        let warm_places = (0..WARM_PLACES).map(|number| place(end * number / WARM_PLACES)).collect();
        let sides = Self { warm_places, world, hand, first };
        for round in 0..64 {
            assert_eq!(repos(&sides.first(round)), repos(&sides.hand_first(round)));
            assert_eq!(repos(&sides.deep(round)), repos(&sides.hand_deep(round)));
        }
        sides
    }

    /// Opens both over SQLite.
    pub fn sqlite(data: Data) -> Self {
        Self::new(data, Arc::new(SqliteStore::open(data.sqlite()).unwrap()))
    }

    /// Reads the first page.
    pub fn first(&self, _: usize) -> Vec<u8> {
        self.world.page(&self.first)
    }

    /// Reads a page by token, at a position in the cache.
    pub fn deep(&self, round: usize) -> Vec<u8> {
        self.world.page(&self.warm_places[round % self.warm_places.len()].0)
    }

    /// Reads the first page with the hand-written program.
    pub fn hand_first(&self, _: usize) -> Vec<u8> {
        self.hand.list(0, None)
    }

    /// Reads a page by cursor with the hand-written program, at one of the positions of [`Sides::deep`].
    pub fn hand_deep(&self, round: usize) -> Vec<u8> {
        self.hand.list(0, Some(&self.warm_places[round % self.warm_places.len()].1))
    }
}

/// Returns a page without its token, whose form differs between the sides.
pub(super) fn repos(page: &[u8]) -> serde_json::Value {
    let mut page: serde_json::Value = serde_json::from_slice(page).unwrap();
    page.as_object_mut().unwrap().remove("nextPageToken");
    page
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    let goal = Goal::AtMost(1.0, 0.35);
    let many = organizations(1_000);
    let data = Data::One(large());
    let one = format!("{} in one organization", count(large()));
    for (data, of) in [(data, &one), (Data::Many(many), &format!("{many} organizations"))] {
        let sqlite = Sides::sqlite(data);
        lines.extend(compared(&sqlite, &format!("list: SQLite / hand, {of}"), goal));
    }
    let memory = Sides::new(data, Arc::new(data.memory()));
    lines.extend(compared(&memory, &format!("list: memory / hand, {one}"), Goal::None));
    lines
}

/// Measures the figure for sled.
pub fn sled_lines() -> Vec<Line> {
    let data = Data::One(large());
    let sled = Sides::new(data, Arc::new(SledStore::open(data.sled()).unwrap()));
    compared(&sled, &format!("list: sled / hand, {} in one organization", count(large())), Goal::None).into()
}

fn compared(sides: &Sides, name: &str, goal: Goal) -> [Line; 2] {
    let times = Times::default();
    let first = compare(times, |round| drop(sides.first(round)), |round| drop(sides.hand_first(round)));
    let deep = compare(times, |round| drop(sides.deep(round)), |round| drop(sides.hand_deep(round)));
    [Line::ratio(format!("{name}, first"), first, goal), Line::ratio(format!("{name}, by token"), deep, goal)]
}
