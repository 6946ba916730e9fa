//! x
#![allow(clippy::unwrap_used, clippy::print_stdout)]
use platform_core::{store::*, uid::Uid};
fn main() {
    let s = platform_store_sqlite::SqliteStore::open(std::env::args().nth(1).unwrap()).unwrap();
    let mut q = Query::new("Repo", Scope::Subtree(Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7")));
    q.order.by = OrderBy::Key("name");
    q.limit = 50;
    q.count = true;
    let mut best = f64::MAX;
    for _ in 0..20 {
        let t = std::time::Instant::now();
        for _ in 0..5000 {
            std::hint::black_box(pollster::block_on(s.list(&q)).unwrap());
        }
        best = best.min(t.elapsed().as_secs_f64() / 5000.0 * 1e6);
    }
    println!("{best}");
}
