//! A get by uid, compared with hand-written rusqlite.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::{
    data::Data,
    figures::{get::Sides, large},
};
use std::hint::black_box;

fn get(criterion: &mut Criterion) {
    let sides = Sides::sqlite(Data::One(large()));
    let mut round = 0..;
    let mut next = || round.next().unwrap_or_default();
    let mut group = criterion.benchmark_group("get");
    group.bench_function("sqlite", |bench| bench.iter(|| black_box(sides.get(next()))));
    group.bench_function("sqlite and token", |bench| bench.iter(|| black_box(sides.with_token(next()))));
    group.bench_function("hand", |bench| bench.iter(|| black_box(sides.by_hand(next()))));
    group.finish();
}

criterion_group!(benches, get);
criterion_main!(benches);
