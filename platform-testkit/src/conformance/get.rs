//! Point reads.

use bytes::Bytes;
use platform_engine::store::{Delete, Key, Put, Read, Record};

use super::{
    Case, Fixture, cases,
    records::{Describe, PART, THING, key, part, thing, things},
};

pub(super) const CASES: &[Case] = cases![
    a_record_is_returned_as_it_was_put,
    a_record_that_was_never_put_is_none,
    records_are_returned_in_the_order_of_the_keys,
    a_repeated_key_is_returned_repeatedly,
    a_read_without_keys_is_empty,
    kinds_may_use_the_same_uid,
    uids_are_matched_whole_and_bytewise,
    a_put_replaces_the_whole_record,
    a_list_returns_the_same_as_a_get_except_for_the_private_part,
];

async fn a_record_is_returned_as_it_was_put(fixture: &mut Fixture) {
    let put = Put { rendering: 7, private: Bytes::from_static(b"sealed"), ..thing("ab/c").body("the body") };
    let sequence = fixture.put([put]).await;
    let expected = Record {
        key: key("ab/c"),
        revision: sequence,
        rendering: 7,
        body: Bytes::from_static(b"the body"),
        private: Bytes::from_static(b"sealed"),
    };
    assert_eq!(fixture.record(THING, "ab/c").await, Some(expected));
}

async fn a_record_that_was_never_put_is_none(fixture: &mut Fixture) {
    assert_eq!(fixture.record(THING, "ab").await, None);
    fixture.put([thing("ab")]).await;
    assert_eq!(fixture.record(THING, "ab/c").await, None);
    assert_eq!(fixture.record("Unheard", "ab").await, None);
}

async fn records_are_returned_in_the_order_of_the_keys(fixture: &mut Fixture) {
    fixture.put(["a", "b", "c"].map(thing)).await;
    let keys = ["c", "missing", "a", "b"].map(key);
    let read = fixture.store().get(&keys, &[]).await.unwrap();
    let bodies = read.records.into_iter().map(|record| record.map(|record| record.body));
    assert!(bodies.eq([Some("c"), None, Some("a"), Some("b")].map(|body| body.map(Bytes::from))));
}

async fn a_repeated_key_is_returned_repeatedly(fixture: &mut Fixture) {
    fixture.put(["a"].map(thing)).await;
    let read = fixture.store().get(&[key("a"), key("a")], &[]).await.unwrap();
    assert_eq!(read.records.len(), 2);
    assert!(read.records[0].is_some() && read.records[0] == read.records[1]);
}

async fn a_read_without_keys_is_empty(fixture: &mut Fixture) {
    assert_eq!(fixture.store().get(&[], &[]).await.unwrap(), Read::default());
}

async fn kinds_may_use_the_same_uid(fixture: &mut Fixture) {
    fixture.put([thing("ab").body("a thing"), part("ab").body("a part")]).await;
    assert_eq!(fixture.record(THING, "ab").await.unwrap().body, "a thing");
    assert_eq!(fixture.record(PART, "ab").await.unwrap().body, "a part");
    fixture.delete([Delete::Key(Key::new(PART, key("ab").uid))]).await;
    assert!(fixture.record(THING, "ab").await.is_some() && fixture.record(PART, "ab").await.is_none());
}

async fn uids_are_matched_whole_and_bytewise(fixture: &mut Fixture) {
    fixture.put(["ab", "ab/c", "é"].map(thing)).await;
    for other in ["a", "abc", "AB", "ab/", "ab/cd", "e\u{301}", ""] {
        assert_eq!(fixture.record(THING, other).await, None, "{other}");
    }
}

async fn a_put_replaces_the_whole_record(fixture: &mut Fixture) {
    let first = thing("a").named("one").with("color", "red").owning("space", "mine").body("first");
    fixture.put([Put { private: Bytes::from_static(b"sealed"), ..first }]).await;
    let sequence = fixture.put([Put { rendering: 2, ..thing("a").named("two").body("second") }]).await;
    let expected =
        Record { key: key("a"), revision: sequence, rendering: 2, body: Bytes::from("second"), private: Bytes::new() };
    assert_eq!(fixture.record(THING, "a").await, Some(expected));
    assert_eq!(fixture.uids(&things()).await, ["a"]);
    fixture.put([thing("b").owning("space", "mine")]).await;
}

async fn a_list_returns_the_same_as_a_get_except_for_the_private_part(fixture: &mut Fixture) {
    fixture.put([Put { rendering: 3, private: Bytes::from_static(b"sealed"), ..thing("a").body("public") }]).await;
    let record = fixture.record(THING, "a").await.unwrap();
    let page = fixture.page(&things()).await;
    let item = &page.items[0];
    assert_eq!(
        (&item.uid(), item.revision, item.rendering, &item.body),
        (&record.key.uid, record.revision, record.rendering, &record.body)
    );
    assert!(item.may_have_private, "an export would leave out the private part");
}
