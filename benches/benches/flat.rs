//! Pages from a store with a million repos, compared with one with ten thousand.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::{
    data::Data,
    figures::{
        flat::{Place, cases},
        large, small,
    },
    world::World,
};
use platform_engine::store::Store;
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

type Open = fn(Data) -> Arc<dyn Store>;

const STORES: [(&str, Open); 4] = [
    ("memory", |data| Arc::new(data.memory())),
    ("sqlite", |data| Arc::new(SqliteStore::open(data.sqlite()).expect("the store opens"))),
    ("redb", |data| Arc::new(own_store::open(&data.redb()).expect("the store opens"))),
    ("sled", |data| Arc::new(SledStore::open(data.sled()).expect("the store opens"))),
];

fn flat(criterion: &mut Criterion) {
    for (store, open) in STORES {
        let mut group = criterion.benchmark_group(format!("flat/{store}"));
        for repos in [small(), large()] {
            let world = World::over(open(Data::One(repos)));
            for case in cases() {
                for place in [Place::First, Place::Token, Place::Skip] {
                    let query = case.query(&world, place);
                    let name = format!("{} {place:?}/{repos}", case.name);
                    group.bench_function(name, |bench| bench.iter(|| black_box(world.list(&query))));
                }
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = flat
}
criterion_main!(benches);
