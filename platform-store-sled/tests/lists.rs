//! Lists stay exact when the sort keys of a kind change.

use platform_engine::{
    store::{Commit, Key, KeyValue, Order, OrderBy, Put, Query, Scope, Store, model::Model},
    uid::Uid,
};
use platform_store_sled::SledStore;

fn put(number: i64, names: &[&'static str]) -> Put {
    let value = |name: &str| if name == "rank" { number % 13 } else { number * 7 % 100 };
    Put {
        key: Key::new("Thing", Uid::opaque(format!("top/{number:04}"))),
        sort: names.iter().map(|name| (*name, KeyValue::integer(value(name)))).collect(),
        filter: Vec::new(),
        unique: Vec::new(),
        rendering: 0,
        body: format!("{number}").into(),
        private: b"".as_slice().into(),
        queue: false,
    }
}

#[test]
fn lists_by_an_added_or_removed_sort_key_are_exact() {
    let home = tempfile::tempdir().unwrap();
    let store = SledStore::open(home.path()).unwrap();
    let mut model = Model::default();
    for (numbers, names) in [(0..200, &["name"][..]), (150..300, &["name", "rank"]), (290..310, &["rank"])] {
        let commit = Commit { put: numbers.map(|number| put(number, names)).collect(), ..Commit::default() };
        let sequence = pollster::block_on(store.commit(commit.clone())).unwrap().sequence;
        model.apply(&commit, sequence);
        for (name, descending) in [("name", false), ("name", true), ("rank", false), ("rank", true)] {
            for scope in [Scope::Children(Uid::opaque("top")), Scope::Subtree(Uid::opaque("top")), Scope::All] {
                let order = Order { by: OrderBy::Key(name), descending };
                let query = Query { order, count: true, limit: 70, skip: 11, ..Query::new("Thing", scope) };
                let page = pollster::block_on(store.list(&query)).unwrap();
                assert_eq!(page, model.list(&query), "{query:?}");
                let query = Query { after: page.next, ..query };
                assert_eq!(pollster::block_on(store.list(&query)).unwrap(), model.list(&query), "{query:?}");
            }
        }
        assert_eq!(store.check().unwrap(), []);
    }
}
