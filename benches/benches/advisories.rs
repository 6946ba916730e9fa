//! A page of advisories of twenty artifacts, compared with hand-written rusqlite. The `ratio` program compares them in
//! one run.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::figures::advisories::Sides;

fn advisories(criterion: &mut Criterion) {
    let sides = Sides::open();
    let mut group = criterion.benchmark_group("advisories");
    let mut round = 0..;
    let mut next = || round.next().unwrap_or_default();
    group.bench_function("sqlite", |bench| bench.iter(|| black_box(sides.page(next()))));
    group.bench_function("hand", |bench| bench.iter(|| black_box(sides.hand_page(next()))));
    group.finish();
}

criterion_group!(benches, advisories);
criterion_main!(benches);
