//! Kept lists of filter values.

use std::sync::Arc;

use platform_engine::{
    store::{Commit, Delete, Filter, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store},
    uid::Uid,
};
use platform_store_postgres::PostgresStore;
use platform_testkit::postgres::Cluster;

use crate::common::{client, empty, open, puts, thing};

const COLORS: [&str; 2] = ["red", "blue"];

/// Most records are red, some are blue, and some are both, twice.
fn colored(number: usize, round: usize) -> Put {
    let mut put = thing(&format!("a/b/{number:05}"));
    let colors: &[&str] = match (number + round) % 11 {
        0 => &["blue"],
        1 => &["red", "blue", "red"],
        _ => &["red"],
    };
    put.filter = colors.iter().map(|color| ("color", KeyValue::text(color))).collect();
    put.sort = vec![
        ("name", KeyValue::text(&format!("{:05}", number * 7_919 % 10_007))),
        ("rank", KeyValue::integer((number % 7 * (round + 1)) as i64)),
    ];
    put
}

fn of_color(color: &str, scope: &Scope, by: OrderBy, descending: bool) -> Query {
    let filters = vec![Filter::AnyOf { key: "color", values: vec![KeyValue::text(color)] }];
    let order = Order { by, descending };
    Query { filters, order, count: true, ..Query::new("Thing", scope.clone()) }
}

/// Compares pages of lists of one color with those of a filter that has the same meaning, which is never kept.
async fn verify(store: &PostgresStore) {
    let uid = |text: &str| Uid::opaque(text);
    let scopes = [Scope::Subtree(uid("a")), Scope::Children(uid("a/b")), Scope::Children(uid("a"))];
    for scope in scopes {
        for by in [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank")] {
            for (color, descending) in [("red", false), ("red", true), ("blue", true), ("green", false)] {
                let query = of_color(color, &scope, by, descending);
                let contains = Filter::Contains { keys: vec!["color"], bytes: KeyValue::text(color) };
                let all = store.list(&Query { filters: vec![contains], ..query.clone() }).await.unwrap();
                let page = store.list(&Query { limit: 10, ..query.clone() }).await.unwrap();
                assert_eq!((page.total, &*page.items), (all.total, &all.items[..10.min(all.items.len())]), "{query:?}");
                let skipped = store.list(&Query { limit: 7, skip: 5, ..query.clone() }).await.unwrap();
                assert_eq!(skipped.items, all.items[5.min(all.items.len())..12.min(all.items.len())]);
                // The page after the middle.
                if let Some(item) = all.items.get(all.items.len() / 2) {
                    let half = store.list(&Query { limit: all.items.len() / 2 + 1, ..query.clone() }).await.unwrap();
                    assert_eq!(half.items.last(), Some(item));
                    let rest = &all.items[all.items.len() / 2 + 1..];
                    assert_eq!(half.next.is_some(), !rest.is_empty());
                    if half.next.is_some() {
                        let page = store.list(&Query { after: half.next, limit: 10, ..query }).await.unwrap();
                        assert_eq!(page.items, rest[..10.min(rest.len())]);
                    }
                }
            }
        }
    }
    assert_eq!(store.check().await.unwrap(), []);
}

async fn kept(url: &str) -> Vec<i64> {
    let rows = client(url).await.query("SELECT deep FROM tally WHERE blocked AND deep > 1000 ORDER BY 1", &[]).await;
    let lengths = rows.unwrap();
    lengths.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_frequent_value_are_kept_and_exact_while_two_stores_change_them() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "filtered").await;
    let stores = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    for from in (0..2_600).step_by(130) {
        stores[0].commit(puts((from..from + 130).map(|number| colored(number, 0)))).await.unwrap();
    }
    stores[0].commit(puts([thing("a"), thing("a/b")])).await.unwrap();
    // Red below `a` and `a/b`, and red children of `a/b`. There are too few blue ones.
    let lengths = kept(&url).await;
    assert!(lengths.len() == 3 && lengths.iter().all(|length| (2_300..2_500).contains(length)), "{lengths:?}");
    verify(&stores[1]).await;
    let tasks = (0..4_usize).map(|task| {
        let store = stores[task % 2].clone();
        tokio::spawn(async move {
            for round in 1..30 {
                let number = |offset: usize| (task * 611 + round * 37 + offset) % 2_600;
                let key = Key::new("Thing", Uid::opaque(format!("a/b/{:05}", number(3))));
                let put = vec![colored(number(0), round), colored(number(17), round), colored(2_600 + task, round)];
                let commit = Commit { delete: vec![Delete::Key(key)], put, ..Commit::default() };
                store.commit(commit).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    verify(&stores[0]).await;
    // A new sort key.
    let mut put = colored(5_000, 0);
    put.sort.push(("size", KeyValue::integer(3)));
    stores[1].commit(puts([put])).await.unwrap();
    assert_eq!(kept(&url).await.len(), 3);
    verify(&stores[0]).await;
    let red = of_color(COLORS[0], &Scope::Subtree(Uid::opaque("a")), OrderBy::Key("size"), true);
    let last = stores[0].list(&Query { limit: 1, ..red }).await.unwrap().items;
    assert_eq!(last[0].uid(), Uid::opaque("a/b/05000"));
    // Short lists are not kept.
    let few = (0..2_000).map(|number| Delete::Key(Key::new("Thing", Uid::opaque(format!("a/b/{number:05}")))));
    stores[0].commit(Commit { delete: few.collect(), ..Commit::default() }).await.unwrap();
    let key = Key::new("Thing", Uid::opaque("a/b/02599"));
    stores[0].commit(Commit { delete: vec![Delete::Key(key)], ..Commit::default() }).await.unwrap();
    // The lane has dropped them before it begins another batch.
    stores[0].commit(puts([thing("a/c")])).await.unwrap();
    assert!(kept(&url).await.is_empty());
    verify(&stores[1]).await;
}
