//! The orders of lists: bytewise by value, ties broken by uid, exactly reversed when descending.

use platform_engine::store::{KeyValue, Query, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, PART, any_of, orders, part, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_list_by_uid_is_in_bytewise_order,
    a_list_by_a_text_key_is_in_bytewise_order,
    a_list_by_an_integer_key_is_in_the_order_of_the_numbers,
    ties_are_broken_by_uid,
    descending_is_the_exact_reverse_in_every_order,
    mixed_case_and_non_ascii_text_is_not_folded,
    a_value_sorts_before_its_continuations_and_the_empty_value_first,
    values_that_are_not_utf8_are_in_bytewise_order,
    a_record_moves_when_its_value_changes,
    each_kind_has_its_own_order,
    a_filtered_list_has_the_same_orders,
];

async fn a_list_by_uid_is_in_bytewise_order(fixture: &mut Fixture) {
    let sorted = ["AB", "a", "ab", "ab-c", "ab/c", "ab/c/d", "ab/d", "ab0", "abc", "b", "é"];
    fixture.put(sorted.iter().rev().map(|uid| thing(uid))).await;
    assert_eq!(fixture.uids(&things()).await, sorted);
    let mut reversed = sorted;
    reversed.reverse();
    assert_eq!(fixture.uids(&things().descending()).await, reversed);
}

/// Puts a record for each name, in an order that differs from those of the lists, and returns the uids in name order.
async fn put_named(fixture: &Fixture, sorted: &[&[u8]]) -> Vec<String> {
    // Uids have the reverse order of the names, so that an order by uid is detected.
    let uid_of = |place: usize| format!("u/{:02}", 99 - place);
    let (even, odd): (Vec<usize>, Vec<usize>) = (0..sorted.len()).partition(|place| place % 2 == 0);
    for place in odd.into_iter().chain(even.into_iter().rev()) {
        fixture.put([thing(&uid_of(place)).named_in_bytes(sorted[place])]).await;
    }
    (0..sorted.len()).map(uid_of).collect()
}

async fn assert_sorts_as(fixture: &Fixture, sorted: &[&[u8]]) {
    let mut expected = put_named(fixture, sorted).await;
    assert_eq!(fixture.uids(&things().by("name")).await, expected);
    expected.reverse();
    assert_eq!(fixture.uids(&things().by("name").descending()).await, expected);
}

async fn a_list_by_a_text_key_is_in_bytewise_order(fixture: &mut Fixture) {
    assert_sorts_as(fixture, &[b"alpha", b"beta", b"delta", b"epsilon", b"gamma"]).await;
}

async fn a_list_by_an_integer_key_is_in_the_order_of_the_numbers(fixture: &mut Fixture) {
    let sorted = [i64::MIN, -70_000, -256, -255, -1, 0, 1, 127, 128, 255, 256, 65_536, i64::MAX];
    for (place, rank) in sorted.into_iter().enumerate().rev() {
        fixture.put([thing(&format!("u/{:02}", 99 - place)).ranked(rank)]).await;
    }
    let expected: Vec<String> = (0..sorted.len()).map(|place| format!("u/{:02}", 99 - place)).collect();
    assert_eq!(fixture.uids(&things().by("rank")).await, expected);
    let reversed: Vec<String> = expected.into_iter().rev().collect();
    assert_eq!(fixture.uids(&things().by("rank").descending()).await, reversed);
}

async fn ties_are_broken_by_uid(fixture: &mut Fixture) {
    fixture.put(["c", "a/b", "b", "a"].map(|uid| thing(uid).named("same"))).await;
    fixture.put([thing("z").named("before"), thing("0").named("tail")]).await;
    assert_eq!(fixture.uids(&things().by("name")).await, ["z", "a", "a/b", "b", "c", "0"]);
    assert_eq!(fixture.uids(&things().by("name").descending()).await, ["0", "c", "b", "a/b", "a", "z"]);
    assert_eq!(fixture.uids(&things().by("rank")).await, ["0", "a", "a/b", "b", "c", "z"]);
}

async fn descending_is_the_exact_reverse_in_every_order(fixture: &mut Fixture) {
    for batch in 0..4 {
        let batch =
            (0..10).map(|i| thing(&format!("t/{}{batch}", i * 7 % 10)).named(["x", "y"][i % 2]).ranked(i as i64 % 3));
        fixture.put(batch).await;
    }
    for order in orders() {
        let mut query = things_in(Scope::Subtree(uid("t")));
        query.order = order;
        let mut forth = fixture.uids(&query).await;
        query.order.descending = !order.descending;
        forth.reverse();
        assert_eq!(fixture.uids(&query).await, forth, "{order:?}");
    }
}

async fn mixed_case_and_non_ascii_text_is_not_folded(fixture: &mut Fixture) {
    let sorted =
        ["A", "Z", "_", "a", "aB", "ab", "e\u{301}", "z", "À", "é", "ß", "ΩMEGA", "я", "日本", "\u{ffff}", "😀"];
    let mut expected = sorted;
    expected.sort_by_key(|name| name.as_bytes());
    let expected: Vec<&[u8]> = expected.iter().map(|name| name.as_bytes()).collect();
    assert_sorts_as(fixture, &expected).await;
}

async fn a_value_sorts_before_its_continuations_and_the_empty_value_first(fixture: &mut Fixture) {
    assert_sorts_as(fixture, &[b"", b"a", b"a\0", b"a\0b", b"a ", b"a-", b"a/", b"a0", b"aa", b"b"]).await;
}

async fn values_that_are_not_utf8_are_in_bytewise_order(fixture: &mut Fixture) {
    let sorted: [&[u8]; 10] =
        [b"\0", b"\0\0", b"\0\x01", b"\x01", b"\x7f", b"\x80", b"\xc0\x80", b"\xfe", b"\xff", b"\xff\xff"];
    assert_sorts_as(fixture, &sorted).await;
}

async fn a_record_moves_when_its_value_changes(fixture: &mut Fixture) {
    fixture.put([thing("a").named("1"), thing("b").named("2"), thing("c").named("3")]).await;
    fixture.put([thing("a").named("4").ranked(-1)]).await;
    assert_eq!(fixture.uids(&things().by("name")).await, ["b", "c", "a"]);
    assert_eq!(fixture.uids(&things().by("rank")).await, ["a", "b", "c"]);
    fixture.put([thing("a").named("2")]).await;
    assert_eq!(fixture.uids(&things().by("name")).await, ["a", "b", "c"]);
    assert_eq!(fixture.total(&things().by("name")).await, 3);
}

async fn each_kind_has_its_own_order(fixture: &mut Fixture) {
    fixture.put([thing("a").named("2"), part("a").named("1"), thing("b").named("1"), part("b").named("2")]).await;
    assert_eq!(fixture.uids(&things().by("name")).await, ["b", "a"]);
    let parts = Query { kind: PART, ..things() };
    assert_eq!(fixture.uids(&parts.by("name")).await, ["a", "b"]);
}

async fn a_filtered_list_has_the_same_orders(fixture: &mut Fixture) {
    let colors = ["red", "green", "blue"];
    let put = (0..30)
        .map(|i| thing(&format!("t/{:02}", i * 7 % 30)).named(&format!("{}", i % 5)).with("color", colors[i % 3]));
    fixture.put(put).await;
    for order in orders() {
        let mut query = things();
        query.order = order;
        let all = fixture.page(&query).await.items;
        let red: Vec<String> = {
            let reds = fixture.uids(&things().where_(any_of("color", ["red"]))).await;
            all.iter().map(|item| item.uid().to_string()).filter(|uid| reds.contains(uid)).collect()
        };
        assert_eq!(fixture.uids(&query.where_(any_of("color", ["red"]))).await, red, "{order:?}");
    }
    assert!(KeyValue::boolean(false) < KeyValue::boolean(true));
}
