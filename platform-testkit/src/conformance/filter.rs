//! Filters, alone and combined.

use platform_engine::store::{Delete, Filter, Query, Scope};

use super::{
    Case, Fixture, cases,
    records::{
        Ask, Describe, PART, above, any_of, contains, key, none_of, orders, part, thing, things, things_in, uid,
    },
};

pub(super) const CASES: &[Case] = cases![
    any_of_one_value_matches_the_records_that_have_it,
    any_of_several_values_matches_each_record_once,
    any_of_no_values_matches_nothing,
    none_of_matches_records_without_any_of_the_values,
    above_matches_records_with_a_greater_value,
    contains_searches_every_value_of_every_key,
    a_key_may_have_several_values,
    a_missing_key_has_no_value,
    values_are_compared_whole_and_bytewise,
    all_filters_must_match,
    filters_and_scopes_must_both_match,
    a_filter_applies_to_one_kind,
    a_filter_reflects_puts_and_deletes,
    a_filtered_list_has_a_total_a_skip_and_a_cursor,
];

async fn assert_passes<const N: usize>(fixture: &Fixture, filters: &[Filter], expected: [&str; N]) {
    for order in orders() {
        let query = Query { order, filters: filters.to_vec(), ..things() };
        let mut uids = fixture.uids(&query).await;
        uids.sort();
        assert_eq!(uids, expected, "{query:?}");
        assert_eq!(fixture.total(&query).await, N as u64, "{query:?}");
    }
}

async fn put_paints(fixture: &Fixture) {
    let put = [
        thing("a").with("color", "red").with("size", "1"),
        thing("b").with("color", "green").with("size", "2"),
        thing("c").with("color", "blue").with("size", "3"),
        thing("d").with("color", "red").with("color", "blue").with("size", "4"),
        thing("e").with("size", "5"),
    ];
    fixture.put(put).await;
}

async fn any_of_one_value_matches_the_records_that_have_it(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[any_of("color", ["red"])], ["a", "d"]).await;
    assert_passes(fixture, &[any_of("color", ["green"])], ["b"]).await;
    assert_passes(fixture, &[any_of("color", ["black"])], []).await;
}

async fn any_of_several_values_matches_each_record_once(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[any_of("color", ["red", "blue"])], ["a", "c", "d"]).await;
    assert_passes(fixture, &[any_of("color", ["blue", "red", "green", "black", "red"])], ["a", "b", "c", "d"]).await;
    assert_passes(fixture, &[any_of("color", ["red", "red"])], ["a", "d"]).await;
}

async fn any_of_no_values_matches_nothing(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[any_of("color", [])], []).await;
    assert_passes(fixture, &[none_of("color", [])], ["a", "b", "c", "d", "e"]).await;
}

async fn none_of_matches_records_without_any_of_the_values(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[none_of("color", ["red"])], ["b", "c", "e"]).await;
    assert_passes(fixture, &[none_of("color", ["red", "blue"])], ["b", "e"]).await;
    assert_passes(fixture, &[none_of("color", ["black"])], ["a", "b", "c", "d", "e"]).await;
}

async fn above_matches_records_with_a_greater_value(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[above("size", "3")], ["d", "e"]).await;
    assert_passes(fixture, &[above("size", "")], ["a", "b", "c", "d", "e"]).await;
    assert_passes(fixture, &[above("size", "5")], []).await;
    assert_passes(fixture, &[above("color", "green")], ["a", "d"]).await;
    assert_passes(fixture, &[above("size", "30")], ["d", "e"]).await;
}

async fn contains_searches_every_value_of_every_key(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[contains(["color"], "re")], ["a", "b", "d"]).await;
    assert_passes(fixture, &[contains(["color"], "lue")], ["c", "d"]).await;
    assert_passes(fixture, &[contains(["color", "size"], "5")], ["e"]).await;
    assert_passes(fixture, &[contains(["color"], "")], ["a", "b", "c", "d"]).await;
    assert_passes(fixture, &[contains(["color"], "RE")], []).await;
    assert_passes(fixture, &[contains([], "red")], []).await;
    assert_passes(fixture, &[contains(["color"], "reddish")], []).await;
}

async fn a_key_may_have_several_values(fixture: &mut Fixture) {
    fixture.put([thing("a").with("id", "1").with("id", "2").with("id", "3"), thing("b").with("id", "2")]).await;
    assert_passes(fixture, &[any_of("id", ["3"])], ["a"]).await;
    assert_passes(fixture, &[any_of("id", ["1", "2", "3"])], ["a", "b"]).await;
    assert_passes(fixture, &[any_of("id", ["1"]), any_of("id", ["3"])], ["a"]).await;
    assert_passes(fixture, &[none_of("id", ["1"])], ["b"]).await;
}

async fn a_missing_key_has_no_value(fixture: &mut Fixture) {
    fixture.put([thing("a").with("color", ""), thing("b")]).await;
    assert_passes(fixture, &[any_of("color", [""])], ["a"]).await;
    assert_passes(fixture, &[none_of("color", [""])], ["b"]).await;
    assert_passes(fixture, &[contains(["color"], "")], ["a"]).await;
    assert_passes(fixture, &[any_of("unheard", ["", "x"])], []).await;
}

async fn values_are_compared_whole_and_bytewise(fixture: &mut Fixture) {
    let values = ["red", "Red", "red ", "re", "red\0", "réd", "re\u{301}d", ""];
    let put = values.iter().zip('a'..).map(|(value, uid)| thing(&uid.to_string()).with("color", value));
    fixture.put(put).await;
    for (value, expected) in values.iter().zip('a'..) {
        assert_passes(fixture, &[any_of("color", [value])], [&*expected.to_string()]).await;
    }
}

async fn all_filters_must_match(fixture: &mut Fixture) {
    put_paints(fixture).await;
    assert_passes(fixture, &[any_of("color", ["red"]), any_of("size", ["4", "5"])], ["d"]).await;
    assert_passes(fixture, &[any_of("color", ["red", "green"]), none_of("color", ["blue"])], ["a", "b"]).await;
    assert_passes(fixture, &[none_of("color", ["green"]), above("size", "2")], ["c", "d", "e"]).await;
    assert_passes(
        fixture,
        &[contains(["color"], "e"), above("size", "1"), any_of("size", ["1", "2", "3"])],
        ["b", "c"],
    )
    .await;
    assert_passes(fixture, &[any_of("color", ["red"]), none_of("color", ["red"])], []).await;
    assert_passes(fixture, &[none_of("color", ["red"]), none_of("size", ["5"])], ["b", "c"]).await;
}

async fn filters_and_scopes_must_both_match(fixture: &mut Fixture) {
    let red = |uid| thing(uid).with("color", "red");
    fixture.put([red("x/a"), red("x/a/b"), red("xy/a"), red("z"), thing("x/c").with("color", "blue")]).await;
    let filtered = |scope| things_in(scope).where_(any_of("color", ["red"]));
    assert_eq!(fixture.uids(&filtered(Scope::Subtree(uid("x")))).await, ["x/a", "x/a/b"]);
    assert_eq!(fixture.uids(&filtered(Scope::Children(uid("x")))).await, ["x/a"]);
    assert_eq!(fixture.uids(&filtered(Scope::Exact(uid("z")))).await, ["z"]);
    assert_eq!(fixture.uids(&filtered(Scope::Exact(uid("x/c")))).await, [""; 0]);
    assert_eq!(fixture.uids(&filtered(Scope::Roots)).await, ["z"]);
    assert_eq!(fixture.uids(&filtered(Scope::All).by("name")).await, ["x/a", "x/a/b", "xy/a", "z"]);
    let several = Query { scopes: vec![Scope::Roots, Scope::Children(uid("x"))], ..filtered(Scope::All) };
    assert_eq!(fixture.uids(&several).await, ["x/a", "z"]);
    assert_eq!(fixture.total(&several).await, 2);
}

async fn a_filter_applies_to_one_kind(fixture: &mut Fixture) {
    fixture.put([thing("a").with("color", "red"), part("b").with("color", "red")]).await;
    assert_passes(fixture, &[any_of("color", ["red"])], ["a"]).await;
    let parts = Query { kind: PART, ..things() };
    assert_eq!(fixture.uids(&parts.where_(any_of("color", ["red"]))).await, ["b"]);
}

async fn a_filter_reflects_puts_and_deletes(fixture: &mut Fixture) {
    put_paints(fixture).await;
    fixture.put([thing("a").with("color", "green").with("size", "1"), thing("e").with("color", "red")]).await;
    assert_passes(fixture, &[any_of("color", ["red"])], ["d", "e"]).await;
    assert_passes(fixture, &[any_of("color", ["green"])], ["a", "b"]).await;
    assert_passes(fixture, &[above("size", "4")], []).await;
    fixture.delete([Delete::Key(key("d"))]).await;
    assert_passes(fixture, &[any_of("color", ["red", "blue"])], ["c", "e"]).await;
    fixture.put(["a", "b", "c", "e"].map(thing)).await;
    assert_passes(fixture, &[any_of("color", ["red", "green", "blue"])], []).await;
}

async fn a_filtered_list_has_a_total_a_skip_and_a_cursor(fixture: &mut Fixture) {
    let colors = ["red", "green", "blue"];
    let put =
        (0..60).map(|i| thing(&format!("t/{i:02}")).named(&format!("{:02}", 59 - i)).with("color", colors[i % 3]));
    fixture.put(put).await;
    for filter in [any_of("color", ["red"]), any_of("color", ["red", "blue"]), none_of("color", ["green"])] {
        let query = things().by("name").where_(filter);
        let whole = fixture.uids(&query).await;
        assert_eq!(fixture.total(&query).await, whole.len() as u64);
        assert_eq!(fixture.uids(&query.clone().skip(5).limit(4)).await, whole[5..9]);
        let position = fixture.position(&query, &whole[9]).await;
        assert_eq!(fixture.uids(&query.clone().after(position).skip(3).limit(2)).await, whole[13..15]);
        assert_eq!(fixture.total(&query.clone().skip(5)).await, whole.len() as u64);
    }
}
