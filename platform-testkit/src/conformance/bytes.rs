//! Pages that end early because of the size of their bodies.

use platform_engine::store::{Query, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, TICKET, any_of, none_of, orders, thing, things, things_in, ticket, uid},
};

pub(super) const CASES: &[Case] = cases![
    a_page_ends_before_the_record_that_would_exceed_its_bytes,
    the_first_record_is_returned_regardless_of_its_length,
    a_last_page_within_its_bytes_has_no_next,
    skipped_records_do_not_count_towards_bytes,
    pages_limited_by_bytes_concatenate_to_the_whole_list_in_every_order,
    pages_of_a_queue_are_limited_by_bytes,
];

/// Puts ten things with bodies of 100 bytes.
async fn put_ten(fixture: &Fixture) {
    let colors = ["red", "green"];
    let put =
        |i: usize| thing(&format!("t/{i}")).body(vec![b'x'; 100]).with("color", colors[i % 2]).ranked(-(i as i64));
    fixture.put((0..10).map(put)).await;
}

async fn a_page_ends_before_the_record_that_would_exceed_its_bytes(fixture: &mut Fixture) {
    put_ten(fixture).await;
    for (bytes, length) in [(0, 1), (99, 1), (100, 1), (199, 1), (200, 2), (399, 3), (400, 4), (999, 9)] {
        for order in orders() {
            for query in [things(), things_in(Scope::Subtree(uid("t"))), things().where_(none_of("color", ["blue"]))] {
                let page = fixture.page(&Query { order, count: true, ..query.bytes(bytes) }).await;
                assert_eq!((page.items.len(), page.total), (length, Some(10)), "{bytes} bytes, {order:?}");
                assert_eq!(page.next.map(|next| next.uid), page.items.last().map(|last| last.uid()));
            }
        }
    }
    let page = fixture.page(&things().limit(3).bytes(450)).await;
    assert_eq!(page.items.len(), 3, "the limit applies too");
    assert_eq!(fixture.page(&things().limit(0).bytes(450)).await.items.len(), 0);
}

async fn the_first_record_is_returned_regardless_of_its_length(fixture: &mut Fixture) {
    fixture.put([thing("a").body(vec![b'x'; 100_000]), thing("b"), thing("c").body(vec![b'x'; 100_000])]).await;
    let query = things().bytes(10);
    assert_eq!(fixture.uids(&query).await, ["a"]);
    assert_eq!(fixture.uids(&query.clone().skip(1)).await, ["b"]);
    assert_eq!(fixture.walk(&query, 5).await, ["a", "b", "c"]);
}

async fn a_last_page_within_its_bytes_has_no_next(fixture: &mut Fixture) {
    put_ten(fixture).await;
    for query in [things(), things_in(Scope::Children(uid("t"))).by("name"), things().by_sequence().descending()] {
        let page = fixture.page(&query.bytes(1_000)).await;
        assert_eq!((page.items.len(), page.next), (10, None));
    }
}

async fn skipped_records_do_not_count_towards_bytes(fixture: &mut Fixture) {
    put_ten(fixture).await;
    let query = things_in(Scope::Children(uid("t"))).by("rank").bytes(250).skip(3);
    assert_eq!(fixture.uids(&query).await, ["t/6", "t/5"]);
    assert_eq!(fixture.uids(&things().bytes(250).skip(9)).await, ["t/9"]);
}

async fn pages_limited_by_bytes_concatenate_to_the_whole_list_in_every_order(fixture: &mut Fixture) {
    let lengths = [0, 10, 500, 3, 5_000, 0, 0, 70_000, 80, 1];
    let put = |i: usize| {
        let body = vec![b'x'; lengths[i % lengths.len()]];
        let parent = ["t", "t/u", "v"][i % 3];
        thing(&format!("{parent}/{i:02}")).named(&format!("n{}", i % 4)).with("color", "red").body(body)
    };
    fixture.put((0..60).map(put)).await;
    let scopes = vec![Scope::Subtree(uid("t")), Scope::Children(uid("v"))];
    for order in orders() {
        for query in [things(), things_in(Scope::Subtree(uid("t"))), Query { scopes: scopes.clone(), ..things() }] {
            for query in [query.clone(), query.where_(any_of("color", ["red"]))] {
                let query = Query { order, ..query };
                let whole = fixture.uids(&query).await;
                assert!(whole.len() >= 40);
                for bytes in [0, 90, 600, 6_000, 75_000] {
                    let walked = fixture.walk(&query.clone().bytes(bytes), 1_000).await;
                    assert_eq!(walked, whole, "pages of {bytes} bytes, {query:?}");
                }
            }
        }
    }
}

async fn pages_of_a_queue_are_limited_by_bytes(fixture: &mut Fixture) {
    for i in 0..5 {
        fixture.put([ticket(&format!("q/{i}")).body(vec![b'x'; 100])]).await;
    }
    for scope in [Scope::All, Scope::Children(uid("q"))] {
        let query = Query { bytes: 250, ..Query::new(TICKET, scope).by_sequence() };
        assert_eq!(fixture.uids(&query).await, ["q/0", "q/1"]);
        assert_eq!(fixture.walk(&query, 10).await.len(), 5);
    }
}
