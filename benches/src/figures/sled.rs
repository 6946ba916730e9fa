//! The figures of the sled store, which has no goals but those that it reached before: see `flat-sled` for flatness.

use std::sync::Arc;

use platform_store_sled::SledStore;

use super::{count, creates, get, large, list, walk, writers};
use crate::{
    data::{self, Data, mix},
    measure::{Goal, Line, Times, alone},
    world::{World, pairs},
};

/// Measures the figure.
pub fn lines() -> Vec<Line> {
    let data = Data::One(large());
    let mut lines = list::sled_lines();
    lines.extend(get::sled_lines());
    let store = Arc::new(SledStore::open(data.sled()).unwrap());
    let world = World::over(store.clone());
    let skips: Vec<_> = (0..64).map(|number| (mix(number) % data.repos()).to_string()).collect();
    let skip = |number: usize| drop(world.page(&pairs([("order_by", "name"), ("skip", &skips[number % 64])])));
    let cost = alone(Times::of(50), skip);
    let name = |figure: &str| format!("sled: {figure}, of {}", count(large()));
    lines.push(Line::value(name("skip to a random place, us"), cost.p50, Goal::None));
    drop(world);
    lines.push(walk::walked("walk: sled", data, store, Goal::None));
    // sled writes to its directory while it is open, so the creates have a store of their own.
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let small = Data::One(large().min(10_000));
    let open = |name: &str| {
        let store = Arc::new(SledStore::open(directory.path().join(name)).unwrap());
        pollster::block_on(small.fill(store.clone()));
        store
    };
    let on = count(small.repos());
    let one = format!("creates: sled, one client, of {on} / 4 KiB and fdatasync");
    lines.push(creates::one_client(&one, open("one"), directory.path(), Goal::None));
    let created = creates::created(open("many"), creates::creates());
    lines.extend(created.lines(&format!("written: sled, on {on}, 64 clients"), Goal::None));
    lines.extend(writers::sled_lines());
    lines
}
