//! A page of 50 repos with its total, compared with hand-written rusqlite. The `ratio` program compares them in one
//! run.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::{
    data::Data,
    figures::{large, list::Sides},
};
use std::{hint::black_box, sync::Arc};

fn list(criterion: &mut Criterion) {
    let data = Data::One(large());
    let (sqlite, memory) = (Sides::sqlite(data), Sides::new(data, Arc::new(data.memory())));
    let mut group = criterion.benchmark_group("list");
    group.bench_function("first/sqlite", |bench| bench.iter(|| black_box(sqlite.first(0))));
    group.bench_function("first/memory", |bench| bench.iter(|| black_box(memory.first(0))));
    group.bench_function("first/hand", |bench| bench.iter(|| black_box(sqlite.hand_first(0))));
    let mut round = 0..;
    let mut next = || round.next().unwrap_or_default();
    group.bench_function("token/sqlite", |bench| bench.iter(|| black_box(sqlite.deep(next()))));
    group.bench_function("token/memory", |bench| bench.iter(|| black_box(memory.deep(next()))));
    group.bench_function("token/hand", |bench| bench.iter(|| black_box(sqlite.hand_deep(next()))));
    group.finish();
}

criterion_group!(benches, list);
criterion_main!(benches);
