//! Scopes: parts of the hierarchy, compared by uid segment.

use platform_engine::store::{Delete, Query, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, THING, any_of, orders, part, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_subtree_is_the_uid_and_its_descendants,
    children_are_direct_children_only,
    exact_is_only_the_uid,
    roots_are_uids_of_one_segment,
    all_is_every_record_of_the_kind,
    a_scope_without_records_is_empty,
    a_query_without_scopes_returns_an_empty_page,
    the_uid_of_a_scope_needs_no_record,
    scopes_compare_uids_by_segment,
    scopes_apply_to_one_kind,
    several_scopes_are_merged_in_order,
    many_scopes_are_merged_in_order,
    every_level_of_a_deep_path_is_a_scope,
    a_scope_reflects_puts_and_deletes,
];

const UIDS: [&str; 12] =
    ["a", "ab", "ab/c", "ab/c/d", "ab/c/d/e", "ab/c/f", "ab/g", "abc", "abc/d", "b", "b/c", "b/c/d"];

/// Asserts that lists of the scope in every order have the expected uids, sorted by uid, and the matching total.
async fn assert_scope(fixture: &Fixture, scope: Scope, expected: &[&str]) {
    for order in orders() {
        let query = Query { order, ..things_in(scope.clone()) };
        let mut uids = fixture.uids(&query).await;
        uids.sort();
        assert_eq!(uids, expected, "{query:?}");
        assert_eq!(fixture.total(&query).await, expected.len() as u64, "{query:?}");
    }
}

async fn a_subtree_is_the_uid_and_its_descendants(fixture: &mut Fixture) {
    fixture.put(UIDS.map(thing)).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &UIDS[1..7]).await;
    assert_scope(fixture, Scope::Subtree(uid("ab/c")), &UIDS[2..6]).await;
    assert_scope(fixture, Scope::Subtree(uid("ab/g")), &["ab/g"]).await;
    assert_scope(fixture, Scope::Subtree(uid("a")), &["a"]).await;
}

async fn children_are_direct_children_only(fixture: &mut Fixture) {
    fixture.put(UIDS.map(thing)).await;
    assert_scope(fixture, Scope::Children(uid("ab")), &["ab/c", "ab/g"]).await;
    assert_scope(fixture, Scope::Children(uid("ab/c")), &["ab/c/d", "ab/c/f"]).await;
    assert_scope(fixture, Scope::Children(uid("b")), &["b/c"]).await;
    assert_scope(fixture, Scope::Children(uid("ab/g")), &[]).await;
}

async fn exact_is_only_the_uid(fixture: &mut Fixture) {
    fixture.put(UIDS.map(thing)).await;
    assert_scope(fixture, Scope::Exact(uid("ab")), &["ab"]).await;
    assert_scope(fixture, Scope::Exact(uid("ab/c/d/e")), &["ab/c/d/e"]).await;
    assert_scope(fixture, Scope::Exact(uid("ab/")), &[]).await;
}

async fn roots_are_uids_of_one_segment(fixture: &mut Fixture) {
    fixture.put(UIDS.map(thing)).await;
    assert_scope(fixture, Scope::Roots, &["a", "ab", "abc", "b"]).await;
}

async fn all_is_every_record_of_the_kind(fixture: &mut Fixture) {
    fixture.put(UIDS.map(thing)).await;
    assert_scope(fixture, Scope::All, &UIDS).await;
}

async fn a_scope_without_records_is_empty(fixture: &mut Fixture) {
    let scopes =
        [Scope::Subtree(uid("x")), Scope::Children(uid("x")), Scope::Exact(uid("x")), Scope::Roots, Scope::All];
    for scope in scopes {
        assert_scope(fixture, scope, &[]).await;
    }
    fixture.put(["ab/c"].map(thing)).await;
    for scope in [Scope::Subtree(uid("x")), Scope::Children(uid("x")), Scope::Exact(uid("ab")), Scope::Roots] {
        assert_scope(fixture, scope, &[]).await;
    }
}

async fn a_query_without_scopes_returns_an_empty_page(fixture: &mut Fixture) {
    fixture.put(UIDS.map(thing)).await;
    let query = Query { scopes: Vec::new(), count: true, ..things() };
    let page = fixture.page(&query).await;
    assert_eq!((page.items.len(), page.next, page.total), (0, None, Some(0)));
}

async fn the_uid_of_a_scope_needs_no_record(fixture: &mut Fixture) {
    fixture.put(["ab/c/d", "ab/c/e/f"].map(thing)).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &["ab/c/d", "ab/c/e/f"]).await;
    assert_scope(fixture, Scope::Children(uid("ab/c")), &["ab/c/d"]).await;
    assert_scope(fixture, Scope::Children(uid("ab")), &[]).await;
}

async fn scopes_compare_uids_by_segment(fixture: &mut Fixture) {
    fixture.put(["AB/c", "a/b", "ab-c", "ab-c/d", "ab/c", "ab0", "ab0/c", "abc", "abc/d", "b/ab/c"].map(thing)).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &["ab/c"]).await;
    assert_scope(fixture, Scope::Children(uid("ab")), &["ab/c"]).await;
    assert_scope(fixture, Scope::Subtree(uid("a")), &["a/b"]).await;
    assert_scope(fixture, Scope::Exact(uid("ab")), &[]).await;
    fixture.put(["p_q/x", "p%q/x", "pxq/x", "p*q/x"].map(thing)).await;
    assert_scope(fixture, Scope::Subtree(uid("p_q")), &["p_q/x"]).await;
    assert_scope(fixture, Scope::Children(uid("p%q")), &["p%q/x"]).await;
    assert_scope(fixture, Scope::Subtree(uid("p*q")), &["p*q/x"]).await;
}

async fn scopes_apply_to_one_kind(fixture: &mut Fixture) {
    fixture.put([thing("ab/c"), part("ab/d"), part("ab")]).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &["ab/c"]).await;
    assert_eq!(fixture.uids(&Query::new("Unheard", Scope::Subtree(uid("ab")))).await, [""; 0]);
    assert_eq!(fixture.total(&Query::new(THING, Scope::All)).await, 1);
}

async fn several_scopes_are_merged_in_order(fixture: &mut Fixture) {
    let names = ["m", "c", "x", "a", "m", "z", "b", "y", "c", "k", "m", "d"];
    let put = UIDS.iter().zip(names).map(|(uid, name)| thing(uid).named(name).with("color", &name[..1]));
    fixture.put(put).await;
    let scopes = vec![Scope::Subtree(uid("ab/c")), Scope::Exact(uid("ab")), Scope::Children(uid("b"))];
    let query = Query { scopes, ..things() };
    assert_eq!(fixture.uids(&query).await, ["ab", "ab/c", "ab/c/d", "ab/c/d/e", "ab/c/f", "b/c"]);
    assert_eq!(fixture.total(&query).await, 6);
    let named = query.by("name");
    let sorted = ["ab/c/d", "ab", "ab/c/d/e", "b/c", "ab/c", "ab/c/f"];
    assert_eq!(fixture.uids(&named).await, sorted);
    assert_eq!(fixture.uids(&named.clone().skip(2).limit(3)).await, sorted[2..5]);
    let position = fixture.position(&named, "ab").await;
    assert_eq!(fixture.uids(&named.clone().after(position).skip(1)).await, sorted[3..]);
    assert_eq!(fixture.uids(&named.clone().where_(any_of("color", ["m", "c"]))).await, ["ab", "ab/c/d/e", "b/c"]);
    let reversed: Vec<&str> = sorted.into_iter().rev().collect();
    assert_eq!(fixture.uids(&named.descending()).await, reversed);
}

async fn many_scopes_are_merged_in_order(fixture: &mut Fixture) {
    let (groups, each) = (60, 4);
    let name = |group: usize, member: usize| format!("{:03}", (member * groups + group * 7 % groups) * 11 % 240);
    let members = (0..groups).flat_map(|group| (0..each).map(move |member| (group, member)));
    fixture.put(members.map(|(group, member)| thing(&format!("g{group}/{member}")).named(&name(group, member)))).await;
    let scopes = (0..groups).filter(|group| group % 2 == 0).map(|group| match group % 4 {
        0 => Scope::Subtree(uid(&format!("g{group}"))),
        _ => Scope::Children(uid(&format!("g{group}"))),
    });
    let query = Query { scopes: scopes.collect(), ..things() }.by("name");
    let page = fixture.uids(&query).await;
    assert_eq!(page.len(), groups / 2 * each);
    assert_eq!(fixture.total(&query).await, page.len() as u64);
    let all = fixture.uids(&things().by("name")).await;
    let even = |uid: &String| uid[1..].split('/').next().is_some_and(|group| group.parse::<usize>().unwrap() % 2 == 0);
    assert_eq!(page, all.into_iter().filter(even).collect::<Vec<_>>());
    assert_eq!(fixture.walk(&query, 9).await, page);
}

async fn every_level_of_a_deep_path_is_a_scope(fixture: &mut Fixture) {
    let levels: Vec<String> = (0..32)
        .scan(String::new(), |path, level| {
            path.push_str(if level == 0 { "0123456789012345678901234567890123456789" } else { "/0123456789abcdef" });
            Some(path.clone())
        })
        .collect();
    fixture.put(levels.iter().map(|uid| thing(uid))).await;
    for (level, top) in levels.iter().enumerate() {
        assert_eq!(fixture.uids(&things_in(Scope::Subtree(uid(top)))).await, levels[level..]);
        let child = levels.get(level + 1).cloned();
        assert_eq!(fixture.uids(&things_in(Scope::Children(uid(top)))).await, child.into_iter().collect::<Vec<_>>());
    }
}

async fn a_scope_reflects_puts_and_deletes(fixture: &mut Fixture) {
    fixture.put(["ab/c", "ab/d"].map(thing)).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &["ab/c", "ab/d"]).await;
    // With deeper records, the subtree differs from the children.
    fixture.put(["ab/c/e"].map(thing)).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &["ab/c", "ab/c/e", "ab/d"]).await;
    assert_scope(fixture, Scope::Children(uid("ab")), &["ab/c", "ab/d"]).await;
    fixture.delete([Delete::Below(uid("ab/c"), vec![THING])]).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &["ab/c", "ab/d"]).await;
    fixture.delete([Delete::Below(uid("ab"), vec![THING])]).await;
    assert_scope(fixture, Scope::Subtree(uid("ab")), &[]).await;
    assert_scope(fixture, Scope::Children(uid("ab")), &[]).await;
}
