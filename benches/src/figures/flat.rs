//! The same page from stores with a million and ten thousand repos, to find costs that grow with the data.

use std::sync::Arc;

use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use super::{large, small};
use crate::{
    data::{Data, folder, organization},
    measure::{Goal, Line, Times, compare},
    world::{World, pairs},
};

/// A list with an order and a scope.
#[derive(Debug)]
pub struct Case {
    /// A description for the output.
    pub name: String,
    order: String,
    scope: (&'static str, String),
}

/// Position of a page in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The first page.
    First,
    /// In the middle, by a page token.
    Token,
    /// In the middle, by `skip`.
    Skip,
}

/// Returns each order in both directions for the whole organization, and one order for the other scopes.
pub fn cases() -> Vec<Case> {
    let orders = ["name", "createTime", "updateTime", "uid"];
    let all = |order: String| Case {
        name: format!("by {order}"),
        order,
        scope: ("uidp.descendants_of", organization(0).to_string()),
    };
    let both = orders.iter().flat_map(|order| [(*order).to_owned(), format!("{order} desc")]);
    let scope = |name: &str, key, uid: String| Case { name: name.to_owned(), order: "name".into(), scope: (key, uid) };
    both.map(all)
        .chain([
            scope("of a folder's subtree", "uidp.descendants_of", folder(0).to_string()),
            scope("of children", "uidp.children_of", organization(0).to_string()),
            scope("of a folder's children", "uidp.children_of", folder(0).to_string()),
        ])
        .collect()
}

impl Case {
    /// Returns the query parameters of a page.
    pub fn query(&self, world: &World, place: Place) -> Vec<(String, String)> {
        let first = pairs([("order_by", &self.order), (self.scope.0, &self.scope.1)]);
        let middle = (world.list(&first).total_count / 2).to_string();
        let with = |key: &str, value: &str| first.iter().cloned().chain(pairs([(key, value)])).collect();
        match place {
            Place::First => first,
            Place::Skip => with("skip", &middle),
            Place::Token => {
                let reply = world.list(&with("skip", &middle));
                let next = reply.next_page_token;
                with("page_token", &next.expect("BENCH_SMALL is at least 2,500, so that each list has three pages"))
            }
        }
    }
}

/// Compares every case between the large and the small store.
pub fn compared(store: &str, large: &World, small: &World, skip: Goal) -> Vec<Line> {
    let times = Times::of(300);
    let places = [
        ("first page", Place::First, Goal::AtMost(1.5, 1.1)),
        ("middle by token", Place::Token, Goal::AtMost(1.5, 1.1)),
        ("middle by skip", Place::Skip, skip),
    ];
    let mut lines = Vec::new();
    for case in cases() {
        for (position, place, goal) in places {
            let (a, b) = (case.query(large, place), case.query(small, place));
            let compared = compare(times, |_| drop(large.list(&a)), |_| drop(small.list(&b)));
            lines.push(Line::ratio(format!("flat: {store}, {position} {}", case.name), compared, goal));
        }
    }
    lines
}

/// Measures the figure for the memory store. Every page includes the total.
pub fn memory_lines() -> Vec<Line> {
    let open = |repos| World::over(Arc::new(Data::One(repos).memory()));
    compared("memory", &open(large()), &open(small()), Goal::AtMost(3.0, 1.5))
}

/// Measures the figure for SQLite.
pub fn sqlite_lines() -> Vec<Line> {
    let open = |repos| World::over(Arc::new(SqliteStore::open(Data::One(repos).sqlite()).unwrap()));
    compared("SQLite", &open(large()), &open(small()), Goal::AtMost(3.0, 1.5))
}

/// Measures the figure for sled.
pub fn sled_lines() -> Vec<Line> {
    let open = |repos| World::over(Arc::new(SledStore::open(Data::One(repos).sled()).unwrap()));
    compared("sled", &open(large()), &open(small()), Goal::AtMost(3.0, 1.5))
}

/// Measures the figure for the store over redb of `examples/own-store`.
pub fn redb_lines() -> Vec<Line> {
    let open = |repos| World::over(Arc::new(own_store::open(&Data::One(repos).redb()).unwrap()));
    compared("redb", &open(large()), &open(small()), Goal::AtMost(3.0, 1.5))
}
