//! A page beside a writer that commits groups of 64 as fast as it can, and at rest.

#![allow(missing_docs, clippy::expect_used, reason = "criterion's macros; what fails ends a bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::figures::writers::{Written, stores};

fn writers(criterion: &mut Criterion) {
    let (stores, _kept) = stores();
    let mut group = criterion.benchmark_group("writers");
    for (name, _, store) in stores {
        let written = Written::new(store);
        group.bench_function(format!("{name}/at rest"), |bench| bench.iter(|| written.list()));
        written.write(true);
        group.bench_function(format!("{name}/beside a writer"), |bench| bench.iter(|| written.list()));
        written.write(false);
    }
    group.finish();
}

criterion_group!(benches, writers);
criterion_main!(benches);
