//! A page after a `skip` is the part of the whole list that begins there, from whichever end the store counts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "the helpers of tests may do what tests may")]

use platform_engine::{
    store::{Commit, Filter, Key, KeyValue, Order, OrderBy, Page, Put, Query, Scope, Store},
    uid::Uid,
};
use platform_store_sled::SledStore;

const PAGE: usize = 3;

/// Returns a record with few different values, which direct and deep members of lists share. Some are the beginning of
/// others, contain bytes that keys escape, or are so long that the lists have several nodes of sled's tree.
fn put(number: usize, uid: String) -> Put {
    let long = [b"a".as_slice(), &[0xff; 300]].concat();
    let names = [b"".as_slice(), b"a", b"a\0", b"a\0b", b"a\xfe", b"a\xff", b"ab", &long];
    Put {
        key: Key::new("Thing", Uid::opaque(uid)),
        sort: vec![
            ("name", KeyValue::from_bytes(names[number * 5 % names.len()])),
            ("rank", KeyValue::integer(number as i64 % 2)),
        ],
        filter: ["red", "blue"][..=number % 2].iter().map(|color| ("color", KeyValue::text(color))).collect(),
        unique: Vec::new(),
        rendering: 1,
        body: b"{}".as_slice().into(),
        private: b"".as_slice().into(),
        queue: false,
        revision: None,
    }
}

/// Puts three trees of children and deeper records, and roots that are next to them. There is a record `m`, but none of
/// the uid `n`.
fn fill(store: &SledStore) {
    let mut uids: Vec<String> = ["l", "l0", "m", "m-", "m.a", "m0", "ma"].map(str::to_owned).into();
    for (top, children) in [("l", 3), ("m", 30), ("n", 12)] {
        for child in 0..children {
            let rests = ["", "/a", "/a/b"].iter().take(if child % 3 == 0 { 3 } else { 1 });
            uids.extend(rests.map(|rest| format!("{top}/{child:02}{rest}")));
        }
    }
    let puts: Vec<Put> = uids.into_iter().enumerate().map(|(number, uid)| put(number, uid)).collect();
    // Several records have one sequence, and sequences do not sort like uids.
    for part in 0..7 {
        let put = puts.iter().skip(part).step_by(7).cloned().collect();
        pollster::block_on(store.commit(Commit { put, ..Commit::default() })).unwrap();
    }
}

fn list(store: &SledStore, query: &Query) -> Page {
    pollster::block_on(store.list(query)).unwrap()
}

fn uids(page: Page) -> Vec<Uid> {
    page.items.into_iter().map(|item| item.uid().clone()).collect()
}

/// Compares the pages at every `skip` with the parts of the list that they are.
fn check_skips(store: &SledStore, query: &Query, all: &[Uid]) {
    for skip in 0..=all.len() + 1 {
        let page = list(store, &Query { skip: skip as u64, limit: PAGE, ..query.clone() });
        let (from, to) = (skip.min(all.len()), (skip + PAGE).min(all.len()));
        assert_eq!(page.next.is_some(), to < all.len(), "{skip} of {}: {query:?}", all.len());
        assert_eq!(uids(page), all[from..to], "{skip} of {}: {query:?}", all.len());
    }
}

#[test]
fn a_page_after_a_skip_is_a_part_of_the_whole_list() {
    let home = tempfile::tempdir().unwrap();
    let store = SledStore::builder().promote_above(1).open(home.path().join("store")).unwrap();
    fill(&store);
    assert_eq!(store.check().unwrap(), []);
    let scope = |scope: fn(Uid) -> Scope, uid| scope(Uid::opaque(uid));
    let scopes = [
        vec![scope(Scope::Subtree, "m")],
        vec![scope(Scope::Children, "m")],
        vec![scope(Scope::Subtree, "n")],
        vec![scope(Scope::Subtree, "m/03")],
        vec![scope(Scope::Children, "m/03/a")],
        vec![Scope::Roots],
        vec![Scope::All],
        vec![scope(Scope::Subtree, "l"), scope(Scope::Subtree, "n")],
        vec![scope(Scope::Exact, "m0"), scope(Scope::Children, "n")],
    ];
    let colors = |colors: &[&str]| {
        let values = colors.iter().map(|color| KeyValue::text(color)).collect();
        vec![Filter::AnyOf { key: "color", values }]
    };
    for scopes in scopes {
        for filters in [Vec::new(), colors(&["blue"]), colors(&["red", "blue"])] {
            for by in [OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank")] {
                let order = |descending| Order { by, descending };
                let (scopes, filters) = (scopes.clone(), filters.clone());
                let ascending = Query { scopes, filters, order: order(false), ..Query::new("Thing", Scope::All) };
                let descending = Query { order: order(true), ..ascending.clone() };
                let mut all = uids(list(&store, &ascending));
                check_all(&store, &ascending, &all);
                all.reverse();
                check_all(&store, &descending, &all);
            }
        }
    }
}

/// Checks the list, with a total and without, and what follows a position in it.
fn check_all(store: &SledStore, query: &Query, all: &[Uid]) {
    let first = all.len() / 3;
    let after = list(store, &Query { limit: first, ..query.clone() }).next;
    for count in [false, true] {
        let query = Query { count, ..query.clone() };
        check_skips(store, &query, all);
        if let Some(after) = after.clone() {
            check_skips(store, &Query { after: Some(after), ..query }, &all[first..]);
        }
    }
}
