//! One access decision, compared with bare lookups in a set.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::figures::access::Sides;
use std::hint::black_box;

fn access(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("access");
    for (of, identities, bindings) in [("40,000 bindings", 20_000, 2), ("a caller with 1,000", 1, 1_000)] {
        let sides = Sides::new(identities, bindings);
        let mut round = 0..;
        let mut next = || round.next().unwrap_or_default();
        group.bench_function(format!("decision/{of}"), |bench| bench.iter(|| black_box(sides.decide(next()))));
        group.bench_function(format!("probes/{of}"), |bench| bench.iter(|| black_box(sides.by_hand(next()))));
    }
    group.finish();
}

criterion_group!(benches, access);
criterion_main!(benches);
