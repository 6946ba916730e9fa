//! A page of 50 repos by name with the exact total, beside hand-written rusqlite.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::store::Store;
use platform_store_sqlite::SqliteStore;

use super::LARGE;
use crate::{
    data::{Data, mix},
    hand::HandReads,
    measure::{Goal, Line, Times, compare},
    world::{World, pairs},
};

/// How many places there are that are read again and again.
const FEW: u64 = 64;
/// How many places there are of which the store has forgotten one when its turn comes again.
const MANY: u64 = 4_096;

/// A query that goes on from a place, and the hand-written cursor of the same place.
type Place = (Vec<(String, String)>, String);

/// Both sides over the same repos, and pages of the same places.
#[derive(Debug)]
pub struct Sides {
    world: World,
    hand: HandReads,
    first: Vec<(String, String)>,
    /// Places all over the list.
    few: Vec<Place>,
    many: Vec<Place>,
}

impl Sides {
    /// Opens both, over SQLite or another store of the same data, and makes sure that they answer the same.
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
        let few = (0..FEW).map(|number| place(end * number / FEW)).collect();
        let many = (0..MANY).map(|number| place(mix(number) % end)).collect();
        let sides = Self { few, many, world, hand, first };
        for round in 0..64 {
            assert_eq!(repos(&sides.first(round)), repos(&sides.hand_first(round)));
            assert_eq!(repos(&sides.deep(round)), repos(&sides.hand_deep(round)));
            assert_eq!(repos(&sides.cold(round)), repos(&sides.hand_cold(round)));
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

    /// A page by a token, of one of few places in the list.
    pub fn deep(&self, round: usize) -> Vec<u8> {
        self.world.page(&self.few[round % self.few.len()].0)
    }

    /// A page by a token, of one of so many places that the store does not remember them all.
    pub fn cold(&self, round: usize) -> Vec<u8> {
        self.world.page(&self.many[round % self.many.len()].0)
    }

    /// The first page by hand.
    pub fn hand_first(&self, _: usize) -> Vec<u8> {
        self.hand.list(0, None)
    }

    /// A page by a cursor by hand, of one of few places.
    pub fn hand_deep(&self, round: usize) -> Vec<u8> {
        self.hand.list(0, Some(&self.few[round % self.few.len()].1))
    }

    /// A page by a cursor by hand, of one of many places.
    pub fn hand_cold(&self, round: usize) -> Vec<u8> {
        self.hand.list(0, Some(&self.many[round % self.many.len()].1))
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
        lines.extend(compared(&sqlite, &format!("list: SQLite / hand, {of}"), goal));
        if data == Data::One(LARGE) {
            // Each side counts for itself, since the rounds' numbers come twice: once to get warm.
            let (mut place, mut place_by_hand) = (0.., 0..);
            let mut next = || drop(sqlite.cold(place.next().unwrap_or_default()));
            let mut next_by_hand = || drop(sqlite.hand_cold(place_by_hand.next().unwrap_or_default()));
            let cold = compare(Times::default(), |_| next(), |_| next_by_hand());
            lines.push(Line::ratio("list: the same by token, not read before", cold, Goal::None));
        }
    }
    let data = Data::One(LARGE);
    let memory = Sides::new(data, Arc::new(data.memory()));
    lines.extend(compared(&memory, "list: memory / hand, 1M in one organisation", Goal::None));
    lines
}

fn compared(sides: &Sides, name: &str, goal: Goal) -> [Line; 2] {
    let times = Times::default();
    let first = compare(times, |round| drop(sides.first(round)), |round| drop(sides.hand_first(round)));
    let deep = compare(times, |round| drop(sides.deep(round)), |round| drop(sides.hand_deep(round)));
    [Line::ratio(format!("{name}, first"), first, goal), Line::ratio(format!("{name}, by token"), deep, goal)]
}
