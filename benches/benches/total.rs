//! A page with the exact total, compared with one without.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::{
    data::Data,
    figures::{large, total::list},
};
use platform_engine::store::Store;
use platform_store_sqlite::SqliteStore;

fn total(criterion: &mut Criterion) {
    let data = Data::One(large());
    let memory: (_, Arc<dyn Store>) = ("memory", Arc::new(data.memory()));
    let sqlite: (_, Arc<dyn Store>) = ("sqlite", Arc::new(SqliteStore::open(data.sqlite()).expect("the store opens")));
    let mut group = criterion.benchmark_group("total");
    for (name, store) in [memory, sqlite] {
        group.bench_function(format!("{name}/with"), |bench| bench.iter(|| black_box(list(&*store, true))));
        group.bench_function(format!("{name}/without"), |bench| bench.iter(|| black_box(list(&*store, false))));
    }
    group.finish();
}

criterion_group!(benches, total);
criterion_main!(benches);
