//! Totals, which count all matches, and the windows that `skip` and `limit` select.

use platform_engine::store::{Delete, Filter, Query, Scope};

use super::{
    Case, Fixture, cases,
    records::{
        Ask, Describe, THING, above, any_of, contains, key, none_of, orders, text, thing, things, things_in, uid,
    },
};

pub(super) const CASES: &[Case] = cases![
    a_total_is_returned_only_if_requested,
    a_total_does_not_depend_on_after_skip_or_limit,
    a_total_reflects_puts_and_every_kind_of_delete,
    a_replaced_record_is_counted_once,
    a_total_counts_what_filters_and_scopes_match,
    skip_omits_that_many_records,
    skip_counts_from_the_cursor,
    skip_beyond_the_end_returns_an_empty_page,
    limit_bounds_the_page,
    a_limit_of_zero_returns_an_empty_page_without_next,
];

async fn put_twenty(fixture: &Fixture) {
    fixture.put((0..20).map(|i| thing(&format!("t/{i:02}")).named(&format!("{:02}", i * 7 % 20)))).await;
}

fn counted(query: Query) -> Query {
    Query { count: true, ..query }
}

async fn a_total_is_returned_only_if_requested(fixture: &mut Fixture) {
    assert_eq!(fixture.page(&counted(things())).await.total, Some(0));
    put_twenty(fixture).await;
    assert_eq!(fixture.page(&things()).await.total, None);
    assert_eq!(fixture.page(&counted(things())).await.total, Some(20));
}

async fn a_total_does_not_depend_on_after_skip_or_limit(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    for order in orders() {
        let query = Query { order, ..things_in(Scope::Children(uid("t"))) };
        let position = fixture.position(&query, "t/11").await;
        for query in [query.clone(), query.clone().after(position.clone())] {
            for (skip, limit) in [(0, 1), (5, 3), (19, 10), (20, 10), (1_000, 10), (0, 0), (3, usize::MAX)] {
                assert_eq!(fixture.page(&counted(query.clone().skip(skip).limit(limit))).await.total, Some(20));
            }
        }
    }
}

async fn a_total_reflects_puts_and_every_kind_of_delete(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    fixture.put(["t/05/a", "t/05/b"].map(thing)).await;
    fixture.put([thing("t/red").with("color", "red")]).await;
    let totals = async || {
        let scopes = [Scope::All, Scope::Subtree(uid("t")), Scope::Children(uid("t"))];
        [
            fixture.total(&things_in(scopes[0].clone())).await,
            fixture.total(&things_in(scopes[1].clone())).await,
            fixture.total(&things_in(scopes[2].clone())).await,
        ]
    };
    assert_eq!(totals().await, [23, 23, 21]);
    fixture.delete([Delete::Key(key("t/00")), Delete::Key(key("missing"))]).await;
    assert_eq!(totals().await, [22, 22, 20]);
    fixture.delete([Delete::Below(uid("t/05"), vec![THING])]).await;
    assert_eq!(totals().await, [20, 20, 20]);
    fixture.delete([Delete::With(THING, "color", text("red"))]).await;
    assert_eq!(totals().await, [19, 19, 19]);
    fixture.delete([Delete::Below(uid("t"), vec![THING])]).await;
    assert_eq!(totals().await, [0, 0, 0]);
}

async fn a_replaced_record_is_counted_once(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    for name in ["x", "y"] {
        fixture.put([thing("t/03").named(name).with("color", "red")]).await;
    }
    assert_eq!(fixture.total(&things().by("name")).await, 20);
    assert_eq!(fixture.total(&things().where_(any_of("color", ["red"]))).await, 1);
}

async fn a_total_counts_what_filters_and_scopes_match(fixture: &mut Fixture) {
    let colors = ["red", "green", "blue"];
    let put = (0..60).map(|i| {
        let parent = ["x", "x/y", "z"][i % 3];
        thing(&format!("{parent}/{i:02}")).with("color", colors[i / 3 % 3]).with("size", &(i % 10).to_string())
    });
    fixture.put(put).await;
    let filters = [
        vec![],
        vec![any_of("color", ["red"])],
        vec![any_of("color", ["red", "blue"])],
        vec![none_of("color", ["red"])],
        vec![above("size", "4")],
        vec![contains(["color", "size"], "e")],
        vec![any_of("color", ["green"]), above("size", "2")],
    ];
    let scopes = [
        vec![Scope::All],
        vec![Scope::Subtree(uid("x"))],
        vec![Scope::Children(uid("x"))],
        vec![Scope::Children(uid("x")), Scope::Subtree(uid("z"))],
        vec![Scope::Exact(uid("z/02")), Scope::Roots],
    ];
    let all = fixture.page(&things()).await.items;
    for filters in &filters {
        for scopes in &scopes {
            let query = Query { filters: filters.clone(), scopes: scopes.clone(), ..things() };
            let passes = |uid: &str| {
                let i: usize = uid.rsplit('/').next().unwrap().parse().unwrap();
                let keys = [("color", text(colors[i / 3 % 3])), ("size", text(&(i % 10).to_string()))];
                filters.iter().all(|filter: &Filter| filter.passes(&[], &keys))
            };
            let matching =
                all.iter().filter(|item| scopes.iter().any(|scope| scope.contains(&item.uid())) && passes(&item.uid()));
            assert_eq!(fixture.total(&query).await, matching.count() as u64, "{query:?}");
        }
    }
}

async fn skip_omits_that_many_records(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    for order in orders() {
        let query = Query { order, ..things_in(Scope::Subtree(uid("t"))) };
        let whole = fixture.uids(&query).await;
        for skip in [0, 1, 10, 19] {
            let page = fixture.uids(&query.clone().skip(skip).limit(3)).await;
            let skip = usize::try_from(skip).unwrap();
            assert_eq!(page, whole[skip..(skip + 3).min(20)], "{skip}, {order:?}");
        }
    }
}

async fn skip_counts_from_the_cursor(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    for order in orders() {
        let query = Query { order, ..things() };
        let whole = fixture.uids(&query).await;
        let position = fixture.position(&query, &whole[6]).await;
        let from_there = query.after(position);
        for skip in [0, 1, 5, 12] {
            let start = 7 + usize::try_from(skip).unwrap();
            assert_eq!(fixture.uids(&from_there.clone().skip(skip).limit(4)).await, whole[start..(start + 4).min(20)]);
        }
        assert_eq!(fixture.uids(&from_there.skip(13)).await, [""; 0]);
    }
}

async fn skip_beyond_the_end_returns_an_empty_page(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    for skip in [20, 21, 1_000_000, u64::from(u32::MAX) + 1, i64::MAX as u64, u64::MAX] {
        let page = fixture.page(&counted(things().skip(skip).limit(5))).await;
        assert_eq!((page.items.len(), page.next, page.total), (0, None, Some(20)), "{skip}");
    }
}

async fn limit_bounds_the_page(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    let whole = fixture.uids(&things()).await;
    for limit in [1, 19, 20, 21, usize::MAX] {
        assert_eq!(fixture.uids(&things().limit(limit)).await, whole[..limit.min(20)]);
    }
}

async fn a_limit_of_zero_returns_an_empty_page_without_next(fixture: &mut Fixture) {
    put_twenty(fixture).await;
    let page = fixture.page(&counted(things().limit(0))).await;
    assert_eq!((page.items.len(), page.next, page.total), (0, None, Some(20)));
}
