//! A walk of all repos of an organization by pages of 200, compared with one scan in the same order by hand.

use std::{sync::Arc, time::Instant};

use platform_engine::store::Store;
use platform_store_sqlite::SqliteStore;

use super::{count, large};
use crate::{
    data::Data,
    hand::{HandReads, Layout},
    measure::{Compared, Cost, Goal, Line, process_cpu, rounds},
    world::{World, pairs},
};

/// The number of repos in a page, the largest that is allowed.
const PAGE: &str = "200";

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let data = Data::One(large());
    let store = Arc::new(SqliteStore::open(data.sqlite()).unwrap());
    vec![walked("walk: SQLite", data, store, Goal::AtLeast(0.5, 0.8))]
}

pub(super) fn walked(name: &str, data: Data, store: Arc<dyn Store>, goal: Goal) -> Line {
    let (world, hand) = (World::over(store), HandReads::with(data, Layout::Json, 2_048));
    let walk = || {
        let mut query = pairs([("order_by", "name"), ("page_size", PAGE)]);
        let (mut repos, mut bytes) = (0, 0);
        loop {
            let reply = world.list(&query);
            repos += reply.items.len() as u64;
            bytes += reply.items.iter().map(|item| item.len() as u64).sum::<u64>();
            let Some(token) = reply.next_page_token else { return (repos, bytes) };
            query = pairs([("order_by", "name"), ("page_size", PAGE), ("page_token", &token)]);
        }
    };
    let scan = || hand.scan(0);
    // Warms up both.
    assert_eq!(walk(), scan());
    let turns: Vec<_> = (0..rounds(3)).map(|_| (cost(walk), cost(scan))).collect();
    let compared = Compared::of(&turns);
    let rate = |cost: Cost| format!("{:.0}/s", data.repos() as f64 / cost.p50 * 1e6);
    Line {
        name: format!("{name}, {} by pages of {PAGE} / one scan, rows a second", count(data.repos())),
        sides: (rate(compared.a), rate(compared.b)),
        value: 1.0 / compared.ratio.p50,
        cpu: Some(1.0 / compared.ratio.cpu),
        goal,
    }
}

fn cost<T>(work: impl FnOnce() -> T) -> Cost {
    let (started, cpu) = (Instant::now(), process_cpu());
    drop(work());
    // Not zero, which has no ratio.
    let cpu = (process_cpu() - cpu).max(0.01) * 1e6;
    Cost::of(vec![started.elapsed().as_secs_f64() * 1e6], cpu)
}
