//! Walks by cursor: each record that exists throughout a walk is returned exactly once.

use std::sync::atomic::{AtomicBool, Ordering};

use platform_engine::store::{Commit, Delete, KeyValue, Order, OrderBy, Position, Query, Scope};

use super::{
    Case, Fixture, cases,
    fixture::walk,
    records::{Ask, Describe, any_of, key, none_of, orders, text, thing, things, things_in, uid},
};
use crate::on_drop::SetOnDrop;

pub(super) const CASES: &[Case] = cases![
    pages_concatenate_to_the_whole_list_in_every_order,
    pages_of_a_filtered_list_concatenate_to_the_whole_list,
    pages_of_several_scopes_concatenate_to_the_whole_list,
    the_last_page_has_no_next_even_if_it_is_full,
    next_is_the_position_of_the_last_record_of_the_page,
    a_position_stays_valid_when_its_record_is_deleted,
    a_position_that_never_had_a_record_is_valid,
    a_position_with_an_empty_uid_is_before_all_records_with_its_value,
    a_position_within_ties_continues_within_them,
    a_position_after_the_last_record_gives_an_empty_page,
    a_position_is_a_boundary_and_not_an_index_into_a_snapshot,
    a_walk_concurrent_with_writes_returns_stable_records_exactly_once,
    a_walk_by_pages_of_one_concurrent_with_deletes_returns_stable_records_exactly_once,
];

/// Puts 40 records with few different names and ranks, in an order that differs from that of every list.
async fn put_forty(fixture: &Fixture) {
    for batch in 0..4 {
        let put = (0..10).map(|i| {
            let number = (batch * 10 + i) * 17 % 40;
            let color = ["red", "green", "blue"][number % 3];
            let parent = ["x", "x/y", "z"][number % 3];
            let put = thing(&format!("{parent}/{number:02}")).named(&format!("n{}", number % 7)).with("color", color);
            put.ranked(number as i64 % 2)
        });
        fixture.put(put).await;
    }
}

async fn assert_walks(fixture: &Fixture, query: Query) {
    for order in orders() {
        let query = Query { order, ..query.clone() };
        let whole = fixture.uids(&query).await;
        assert!(!whole.is_empty());
        for page in [1, 2, 3, 7, whole.len() - 1, whole.len(), whole.len() + 1] {
            assert_eq!(fixture.walk(&query, page).await, whole, "pages of {page}, {query:?}");
        }
    }
}

async fn pages_concatenate_to_the_whole_list_in_every_order(fixture: &mut Fixture) {
    put_forty(fixture).await;
    assert_eq!(fixture.uids(&things()).await.len(), 40);
    assert_walks(fixture, things()).await;
    assert_walks(fixture, things_in(Scope::Subtree(uid("x")))).await;
    assert_walks(fixture, things_in(Scope::Children(uid("x")))).await;
}

async fn pages_of_a_filtered_list_concatenate_to_the_whole_list(fixture: &mut Fixture) {
    put_forty(fixture).await;
    for values in [["red", "none"], ["red", "blue"]] {
        assert_walks(fixture, things().where_(any_of("color", values))).await;
        assert_walks(fixture, things_in(Scope::Subtree(uid("x"))).where_(any_of("color", ["green", "red"]))).await;
    }
    assert_walks(fixture, things().where_(any_of("color", ["red"])).where_(none_of("color", ["blue"]))).await;
}

async fn pages_of_several_scopes_concatenate_to_the_whole_list(fixture: &mut Fixture) {
    put_forty(fixture).await;
    let scopes = vec![Scope::Children(uid("x")), Scope::Subtree(uid("x/y")), Scope::Exact(uid("z/02"))];
    assert_walks(fixture, Query { scopes, ..things() }).await;
}

async fn the_last_page_has_no_next_even_if_it_is_full(fixture: &mut Fixture) {
    fixture.put(["a", "b", "c", "d"].map(thing)).await;
    assert!(fixture.page(&things().limit(3)).await.next.is_some());
    assert!(fixture.page(&things().limit(4)).await.next.is_none());
    assert!(fixture.page(&things().limit(5)).await.next.is_none());
    assert!(fixture.page(&things().skip(2).limit(2)).await.next.is_none());
    assert!(fixture.page(&things().skip(4).limit(2)).await.next.is_none());
}

async fn next_is_the_position_of_the_last_record_of_the_page(fixture: &mut Fixture) {
    let first = fixture
        .put([thing("a").named("z").ranked(5), thing("b").named("y").ranked(5), thing("c").named("x").ranked(6)])
        .await;
    let sequence = KeyValue::integer(i64::try_from(first).unwrap());
    let expected = [
        (things(), Position { value: text(""), uid: uid("b") }),
        (things().by("name"), Position { value: text("y"), uid: uid("b") }),
        (things().by("rank"), Position { value: KeyValue::integer(5), uid: uid("b") }),
        (things().by_sequence(), Position { value: sequence, uid: uid("b") }),
    ];
    for (query, position) in expected {
        assert_eq!(fixture.page(&query.limit(2)).await.next, Some(position));
    }
}

async fn a_position_stays_valid_when_its_record_is_deleted(fixture: &mut Fixture) {
    for order in orders() {
        fixture.put(["a", "b", "c", "d", "e"].map(|uid| thing(uid).named(uid))).await;
        let query = Query { order, ..things() };
        let position = fixture.position(&query, "c").await;
        fixture.delete([Delete::Key(key("c"))]).await;
        let rest = if order.descending { ["b", "a"] } else { ["d", "e"] };
        assert_eq!(fixture.uids(&query.after(position)).await, rest, "{order:?}");
    }
}

async fn a_position_that_never_had_a_record_is_valid(fixture: &mut Fixture) {
    fixture.put([thing("a").named("1"), thing("b").named("3"), thing("c").named("5")]).await;
    let after = |value: &str, of: &str| Position { value: text(value), uid: uid(of) };
    let named = || things().by("name");
    assert_eq!(fixture.uids(&named().after(after("2", "zzz"))).await, ["b", "c"]);
    assert_eq!(fixture.uids(&named().after(after("3", "a"))).await, ["b", "c"]);
    assert_eq!(fixture.uids(&named().after(after("3", "b/c"))).await, ["c"]);
    assert_eq!(fixture.uids(&named().after(after("", ""))).await, ["a", "b", "c"]);
    assert_eq!(fixture.uids(&named().descending().after(after("4", "a"))).await, ["b", "a"]);
    assert_eq!(fixture.uids(&named().descending().after(after("3", "a"))).await, ["a"]);
    assert_eq!(fixture.uids(&things().after(after("", "aa"))).await, ["b", "c"]);
}

async fn a_position_with_an_empty_uid_is_before_all_records_with_its_value(fixture: &mut Fixture) {
    put_forty(fixture).await;
    let order = Order { by: OrderBy::Key("name"), descending: false };
    let all = fixture.uids(&Query { order, ..things() }).await;
    for (value, skipped) in [("", 0), ("n0", 0), ("n1", 6), ("n6", 35), ("n7", 40)] {
        let after = Some(Position { value: KeyValue::text(value), uid: uid("") });
        for scope in [Scope::Subtree(uid("x")), Scope::Subtree(uid("z")), Scope::Roots] {
            let whole = fixture.uids(&Query { order, ..things_in(scope.clone()) }).await;
            let rest: Vec<_> = whole.into_iter().filter(|uid| all.iter().skip(skipped).any(|one| one == uid)).collect();
            assert_eq!(fixture.uids(&Query { order, after: after.clone(), ..things_in(scope) }).await, rest, "{value}");
        }
        let rest: Vec<_> = all.iter().skip(skipped).cloned().collect();
        assert_eq!(fixture.uids(&Query { order, after, ..things() }).await, rest, "{value}");
    }
}

async fn a_position_within_ties_continues_within_them(fixture: &mut Fixture) {
    fixture.put(["a", "b", "c", "d"].map(|uid| thing(uid).named("same"))).await;
    let after = |of| Position { value: text("same"), uid: uid(of) };
    assert_eq!(fixture.uids(&things().by("name").after(after("b"))).await, ["c", "d"]);
    assert_eq!(fixture.uids(&things().by("name").descending().after(after("b"))).await, ["a"]);
}

async fn a_position_after_the_last_record_gives_an_empty_page(fixture: &mut Fixture) {
    fixture.put(["a", "b"].map(thing)).await;
    let query = things().after(Position { value: text(""), uid: uid("b") });
    let page = fixture.page(&Query { count: true, ..query }).await;
    assert_eq!((page.items.len(), page.next, page.total), (0, None, Some(2)));
}

async fn a_position_is_a_boundary_and_not_an_index_into_a_snapshot(fixture: &mut Fixture) {
    fixture.put(["b", "d", "f"].map(thing)).await;
    let position = fixture.position(&things(), "d").await;
    fixture.put(["a", "c", "e", "g"].map(thing)).await;
    assert_eq!(fixture.uids(&things().after(position.clone())).await, ["e", "f", "g"]);
    assert_eq!(fixture.uids(&things().descending().after(position)).await, ["c", "b", "a"]);
}

const STABLE: usize = 120;
const WRITES: usize = 150;

/// Walks repeatedly while another thread puts and deletes records between the stable ones.
fn walk_while_writing(fixture: &Fixture, order: Order, page: usize) {
    let (is_done, query) = (AtomicBool::new(false), Query { order, ..things_in(Scope::Children(uid("t"))) });
    fixture.together(2, async |thread, store| {
        if thread == 0 {
            let _done = SetOnDrop(&is_done);
            for round in 0..WRITES {
                let number = round * 37 % STABLE;
                let uid = format!("t/{number:03}-transient");
                store.commit(Commit { put: vec![thing(&uid).named(&uid)], ..Commit::default() }).await.unwrap();
                if round % 3 != 0 {
                    store.commit(Commit { delete: vec![Delete::Key(key(&uid))], ..Commit::default() }).await.unwrap();
                }
            }
            return;
        }
        let mut expected: Vec<String> = (0..STABLE).map(|number| format!("t/{number:03}")).collect();
        if order.descending {
            expected.reverse();
        }
        // One more walk after the last write, so that there is at least one.
        let mut last = false;
        while !last {
            last = is_done.load(Ordering::Acquire);
            let mut walked = walk(&*store, &query, page).await;
            assert!(walked.is_sorted_by(|left, right| if order.descending { left > right } else { left < right }));
            walked.retain(|uid| !uid.ends_with("-transient"));
            assert_eq!(walked, expected);
        }
    });
}

async fn a_walk_concurrent_with_writes_returns_stable_records_exactly_once(fixture: &mut Fixture) {
    fixture.put((0..STABLE).map(|number| format!("t/{number:03}")).map(|uid| thing(&uid).named(&uid))).await;
    for order in orders().into_iter().filter(|order| order.by == OrderBy::Key("name")) {
        walk_while_writing(fixture, order, 7);
    }
}

async fn a_walk_by_pages_of_one_concurrent_with_deletes_returns_stable_records_exactly_once(fixture: &mut Fixture) {
    fixture.put((0..STABLE).map(|number| thing(&format!("t/{number:03}")))).await;
    walk_while_writing(fixture, things().order, 1);
}
