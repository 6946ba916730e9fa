//! A page of 50 repos by name with the exact total, beside hand-written rusqlite.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::store::Store;
use platform_store_sqlite::SqliteStore;

use super::LARGE;
use crate::{
    data::Data,
    hand::HandReads,
    measure::{Goal, Line, Times, compare},
    world::{World, pairs},
};

/// Both sides over the same repos, and pages of the same places.
#[derive(Debug)]
pub struct Sides {
    world: World,
    hand: HandReads,
    first: Vec<(String, String)>,
    /// Queries that go on from places all over the list, and the hand-written cursors of the same places.
    deep: Vec<(Vec<(String, String)>, String)>,
}

impl Sides {
    /// Opens both, over SQLite or another store of the same data, and makes sure that they answer the same.
    pub fn new(data: Data, store: Arc<dyn Store>) -> Self {
        let (world, hand) = (World::over(store), HandReads::open(data));
        let first = pairs([("order_by", "name")]);
        let total = world.list(&first).total_count;
        let deep = (0..64).map(|place| {
            let skip = (total.saturating_sub(200) * place / 64).to_string();
            let reply = world.list(&pairs([("order_by", "name"), ("skip", &skip), ("page_size", "1")]));
            let item: serde_json::Value = serde_json::from_slice(&reply.items[0]).unwrap();
            let text = |name: &str| item[name].as_str().unwrap();
            let cursor = URL_SAFE_NO_PAD.encode(format!("{}\n{}", text("name"), text("uid")));
            (pairs([("order_by", "name"), ("page_token", &reply.next_page_token.unwrap())]), cursor)
        });
        let sides = Self { deep: deep.collect(), world, hand, first };
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

    /// The first page.
    pub fn first(&self, _: usize) -> Vec<u8> {
        self.world.page(&self.first)
    }

    /// A page by a token, somewhere in the list.
    pub fn deep(&self, round: usize) -> Vec<u8> {
        self.world.page(&self.deep[round % self.deep.len()].0)
    }

    /// The first page by hand.
    pub fn hand_first(&self, _: usize) -> Vec<u8> {
        self.hand.list(0, None)
    }

    /// A page by a cursor by hand.
    pub fn hand_deep(&self, round: usize) -> Vec<u8> {
        self.hand.list(0, Some(&self.deep[round % self.deep.len()].1))
    }
}

/// Returns a page without its token, which has each side's own form.
fn repos(page: &[u8]) -> serde_json::Value {
    let mut page: serde_json::Value = serde_json::from_slice(page).unwrap();
    page.as_object_mut().unwrap().remove("nextPageToken");
    page
}

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    let goal = Goal::AtMost(1.0, 0.35);
    for (data, of) in [(Data::One(LARGE), "1M in one organisation"), (Data::Many(1_000), "1,000 organisations")] {
        let sqlite = Sides::sqlite(data);
        lines.push(compared(&sqlite, &format!("list: SQLite / hand, {of}"), goal));
    }
    let data = Data::One(LARGE);
    let memory = Sides::new(data, Arc::new(data.memory()));
    lines.push(compared(&memory, "list: memory / hand, 1M in one organisation", Goal::None));
    lines.into_iter().flatten().collect()
}

fn compared(sides: &Sides, name: &str, goal: Goal) -> [Line; 2] {
    let times = Times::default();
    let first = compare(times, |round| drop(sides.first(round)), |round| drop(sides.hand_first(round)));
    let deep = compare(times, |round| drop(sides.deep(round)), |round| drop(sides.hand_deep(round)));
    [Line::ratio(format!("{name}, first"), first, goal), Line::ratio(format!("{name}, by token"), deep, goal)]
}
