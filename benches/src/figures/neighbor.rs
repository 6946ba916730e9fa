//! A list and a get of an organization of a thousand repos in the store of a large one under writes, compared with the
//! same in a store of its own without writes.

use std::sync::Arc;

use platform_store_sqlite::SqliteStore;

use super::{
    count, large,
    writers::{Pace, Writer},
};
use crate::{
    data::{Data, EACH, copied, mix, organization},
    measure::{Compared, Cost, Goal, Line, Times, turn},
    world::{World, pairs},
};

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let data = Data::Neighbors(large());
    let (_directory, path) = copied(&data.sqlite());
    let store = Arc::new(SqliteStore::open(path).unwrap());
    let writer = Writer::new(store.clone(), data, data.repos());
    let noisy = World::over(store);
    let alone = World::over(Arc::new(SqliteStore::open(Data::Neighbors(0).sqlite()).unwrap()));
    let query = pairs([("order_by", "name"), ("uidp.descendants_of", &organization(1))]);
    assert_eq!(noisy.list(&query).total_count, EACH);
    let uids: Vec<String> = (0..EACH).map(|number| data.repo(mix(number) % EACH).uid.to_string()).collect();
    let list = |world: &World, _: usize| drop(world.page(&query));
    let get = |world: &World, number: usize| drop(world.get(&uids[number % uids.len()]));
    let mut lines = Vec::new();
    for (pace, goal) in [(Pace::Today, Goal::AtMost(1.5, 1.1)), (Pace::FlatOut, Goal::None)] {
        let compared = |times: Times, read: &dyn Fn(&World, usize)| {
            let round = |round| -> (Cost, Cost) {
                writer.set(Some(pace));
                let a = turn(times, round, &mut |number| read(&noisy, number));
                writer.set(None);
                (a, turn(times, round, &mut |number| read(&alone, number)))
            };
            Compared::of(&(0..times.rounds).map(round).collect::<Vec<_>>())
        };
        let name = |read: &str| format!("neighbor: {read} of 1k by {} {pace} / alone", count(large()));
        lines.push(Line::ratio(name("list"), compared(Times::of(2_000), &list), goal));
        lines.push(Line::ratio(name("get"), compared(Times::of(20_000), &get), goal));
    }
    lines
}
