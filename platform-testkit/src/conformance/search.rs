//! Patterns of sort keys, with and without an index.

use platform_engine::store::{Delete, Filter, Put, Query, Scope, pattern::Pattern};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, PART, any_of, contains, key, orders, part, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_part_of_a_value_is_found_wherever_it_is,
    a_pattern_begins_and_ends_where_it_has_no_wildcard,
    values_are_compared_bytewise,
    a_part_that_is_too_short_for_an_index_is_found,
    a_missing_key_has_the_empty_value,
    a_search_reflects_puts_and_deletes,
    records_without_an_index_are_found,
    a_search_and_other_filters_and_scopes_must_all_match,
    a_search_has_a_total_a_skip_and_a_cursor,
    a_search_applies_to_one_kind,
];

/// Returns the filter for names that match a pattern, in which `*` is a wildcard.
pub(super) fn like(pattern: &str) -> Filter {
    let parts = pattern.split('*').map(str::to_owned).collect();
    Filter::Like { key: "name", pattern: Pattern { parts } }
}

async fn assert_found<const N: usize>(fixture: &Fixture, pattern: &str, expected: [&str; N]) {
    for order in orders() {
        let query = Query { order, filters: vec![like(pattern)], ..things() };
        let mut uids = fixture.uids(&query).await;
        uids.sort();
        assert_eq!(uids, expected, "{query:?}");
        assert_eq!(fixture.total(&query).await, N as u64, "{query:?}");
    }
}

async fn put_images(fixture: &Fixture) {
    let names = ["nginx", "nginx-fips", "engine", "Nginx", "ng", "redis"];
    let put = ["a", "b", "c", "d", "e", "f"].into_iter().zip(names).map(|(uid, name)| thing(uid).named(name));
    fixture.put(put).await;
}

async fn a_part_of_a_value_is_found_wherever_it_is(fixture: &mut Fixture) {
    put_images(fixture).await;
    assert_found(fixture, "*gin*", ["a", "b", "c", "d"]).await;
    assert_found(fixture, "*nginx*", ["a", "b"]).await;
    assert_found(fixture, "*fips*", ["b"]).await;
    assert_found(fixture, "*fipsy*", []).await;
    assert_found(fixture, "*none*", []).await;
    assert_found(fixture, "*", ["a", "b", "c", "d", "e", "f"]).await;
}

async fn a_pattern_begins_and_ends_where_it_has_no_wildcard(fixture: &mut Fixture) {
    put_images(fixture).await;
    assert_found(fixture, "ngi*", ["a", "b"]).await;
    assert_found(fixture, "*ginx", ["a", "d"]).await;
    assert_found(fixture, "ngi*fips", ["b"]).await;
    assert_found(fixture, "*gin*ips*", ["b"]).await;
    assert_found(fixture, "*ips*gin*", []).await;
    assert_found(fixture, "nginx*nginx", []).await;
    assert_found(fixture, "nginx", ["a"]).await;
    assert_found(fixture, "ngin", []).await;
}

async fn values_are_compared_bytewise(fixture: &mut Fixture) {
    let names = ["straße", "STRASSE", "e\u{301}té", "été", "100%_\\", "100x_\\", "a鏡b"];
    fixture.put(names.iter().zip(["a", "b", "c", "d", "e", "f", "g"]).map(|(name, uid)| thing(uid).named(name))).await;
    fixture.put([thing("h").named_in_bytes(b"\xff\xfe\xfdraw\0\x01\x02")]).await;
    assert_found(fixture, "*aße*", ["a"]).await;
    assert_found(fixture, "*té*", ["c", "d"]).await;
    assert_found(fixture, "*été*", ["d"]).await;
    assert_found(fixture, "100%*", ["e"]).await;
    assert_found(fixture, "*%_*", ["e"]).await;
    assert_found(fixture, "*0%_\\", ["e"]).await;
    assert_found(fixture, "*鏡*", ["g"]).await;
    assert_found(fixture, "*raw*", ["h"]).await;
    assert_found(fixture, "*raw\0\u{1}*", ["h"]).await;
}

async fn a_part_that_is_too_short_for_an_index_is_found(fixture: &mut Fixture) {
    put_images(fixture).await;
    assert_found(fixture, "*ng*", ["a", "b", "c", "e"]).await;
    assert_found(fixture, "*x*", ["a", "b", "d"]).await;
    assert_found(fixture, "n*s", ["b"]).await;
    assert_found(fixture, "", []).await;
}

async fn a_missing_key_has_the_empty_value(fixture: &mut Fixture) {
    fixture.put([thing("a").named("abcd"), Put { sort: Vec::new(), search: Vec::new(), ..thing("b") }]).await;
    let found = async |pattern: &str| fixture.uids(&things().where_(like(pattern))).await;
    assert_eq!(found("*bcd*").await, ["a"]);
    assert_eq!(found("*").await, ["a", "b"]);
    assert_eq!(found("").await, ["b"]);
    let Filter::Like { pattern, .. } = like("*") else { unreachable!() };
    let unknown = |pattern: Pattern| things().where_(Filter::Like { key: "unknown", pattern });
    assert_eq!(fixture.total(&unknown(pattern)).await, 2);
    assert_eq!(fixture.total(&unknown(Pattern { parts: vec![String::new(), "abc".into()] })).await, 0);
}

async fn a_search_reflects_puts_and_deletes(fixture: &mut Fixture) {
    put_images(fixture).await;
    fixture.put([thing("a").named("apache"), thing("c").named("nginx-engine")]).await;
    assert_found(fixture, "*nginx*", ["b", "c"]).await;
    assert_found(fixture, "*pach*", ["a"]).await;
    fixture.put([thing("c").named("nginx-engine").ranked(7)]).await;
    assert_found(fixture, "*nginx*", ["b", "c"]).await;
    fixture.delete([Delete::Key(key("b"))]).await;
    assert_found(fixture, "*nginx*", ["c"]).await;
    fixture.delete([Delete::Key(key("c"))]).await;
    assert_found(fixture, "*nginx*", []).await;
    fixture.put([thing("c").named("nginx")]).await;
    assert_found(fixture, "*nginx*", ["c"]).await;
}

async fn records_without_an_index_are_found(fixture: &mut Fixture) {
    let without = |put: Put| Put { search: Vec::new(), ..put };
    fixture.put([without(thing("a").named("nginx"))]).await;
    assert_found(fixture, "*ginx*", ["a"]).await;
    fixture.put([thing("b").named("nginx"), without(thing("c").named("engine"))]).await;
    assert_found(fixture, "*gin*", ["a", "b", "c"]).await;
    // All of them have it now, and then one has not.
    fixture.put([thing("a").named("nginx"), thing("c").named("engine")]).await;
    assert_found(fixture, "*gin*", ["a", "b", "c"]).await;
    fixture.put([without(thing("a").named("nginx")), without(thing("d").named("login"))]).await;
    assert_found(fixture, "*gin*", ["a", "b", "c", "d"]).await;
    fixture.delete([Delete::Key(key("a")), Delete::Key(key("d"))]).await;
    assert_found(fixture, "*gin*", ["b", "c"]).await;
}

async fn a_search_and_other_filters_and_scopes_must_all_match(fixture: &mut Fixture) {
    let named = |uid: &str, name: &str, color: &str| thing(uid).named(name).with("color", color);
    fixture
        .put([
            named("x", "nginx", "red"),
            named("x/a", "nginx-fips", "blue"),
            named("x/a/b", "nginx-slim", "red"),
            named("xa", "nginx", "red"),
            named("x/c", "redis", "red"),
        ])
        .await;
    let found = async |scope: Scope, filters: &[Filter]| {
        let filters = [&[like("*ngi*")], filters].concat();
        let query = Query { filters, ..things_in(scope) };
        let uids = fixture.uids(&query).await;
        assert_eq!(fixture.total(&query).await, uids.len() as u64);
        uids
    };
    assert_eq!(found(Scope::Subtree(uid("x")), &[]).await, ["x", "x/a", "x/a/b"]);
    assert_eq!(found(Scope::Children(uid("x")), &[]).await, ["x/a"]);
    assert_eq!(found(Scope::Roots, &[]).await, ["x", "xa"]);
    assert_eq!(found(Scope::Exact(uid("x/c")), &[]).await, [""; 0]);
    assert_eq!(found(Scope::All, &[any_of("color", ["red"])]).await, ["x", "x/a/b", "xa"]);
    assert_eq!(found(Scope::Subtree(uid("x")), &[any_of("color", ["blue"])]).await, ["x/a"]);
    assert_eq!(found(Scope::All, &[contains(["color"], "lu")]).await, ["x/a"]);
    assert_eq!(found(Scope::All, &[like("*slim"), like("*-*")]).await, ["x/a/b"]);
}

async fn a_search_has_a_total_a_skip_and_a_cursor(fixture: &mut Fixture) {
    for batch in 0..4 {
        let numbers = (batch * 100)..(batch + 1) * 100;
        let name =
            |number: u64| format!("{} {:03}", ["nginx", "redis", "engine"][number as usize % 3], number * 7 % 400);
        fixture.put(numbers.map(|number| thing(&format!("o{}/{number:03}", number % 3)).named(&name(number)))).await;
    }
    for order in orders() {
        let query = Query { order, filters: vec![like("*gin*")], ..things() };
        let all = fixture.uids(&query).await;
        assert_eq!((all.len(), fixture.total(&query).await), (267, 267), "{order:?}");
        assert_eq!(fixture.walk(&query, 50).await, all, "{order:?}");
        assert_eq!(fixture.uids(&query.clone().skip(200).limit(30)).await, all[200..230], "{order:?}");
        let reversed =
            Query { order: platform_engine::store::Order { descending: !order.descending, ..order }, ..query };
        let reversed = fixture.uids(&reversed).await;
        assert!(all.iter().eq(reversed.iter().rev()), "{order:?}");
    }
}

async fn a_search_applies_to_one_kind(fixture: &mut Fixture) {
    fixture.put([thing("a").named("nginx"), part("b").named("nginx")]).await;
    assert_found(fixture, "*ginx*", ["a"]).await;
    assert_eq!(fixture.uids(&Query::new(PART, Scope::All).where_(like("*ginx*"))).await, ["b"]);
    fixture.delete([Delete::Below(uid("a"), vec![PART]), Delete::Key(key("a"))]).await;
    assert_found(fixture, "*ginx*", []).await;
}
