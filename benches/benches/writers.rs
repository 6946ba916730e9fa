//! A page while a writer commits batches of 64 as fast as it can, and while it is idle.

#![allow(missing_docs, clippy::expect_used, reason = "macros of criterion; a failure ends the bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use platform_benches::figures::writers::{Pace, StoreWithWriter, stores};

fn writers(criterion: &mut Criterion) {
    let (stores, _directory) = stores();
    let mut group = criterion.benchmark_group("writers");
    for (name, store) in stores {
        let store = StoreWithWriter::new(store);
        group.bench_function(format!("{name}/idle"), |bench| bench.iter(|| store.list()));
        store.writer.set(Some(Pace::FlatOut));
        group.bench_function(format!("{name}/with a writer"), |bench| bench.iter(|| store.list()));
        store.writer.set(None);
    }
    group.finish();
}

criterion_group!(benches, writers);
criterion_main!(benches);
