//! Values at the limits that a store must support.

use bytes::Bytes;
use platform_engine::store::{Delete, Filter, KeyValue, Position, Put, Require, UniqueKey};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, THING, any_of, guarded, key, thing, things},
};

pub(super) const CASES: &[Case] = cases![
    bodies_of_a_mebibyte_are_stored,
    a_page_of_large_bodies_is_returned_completely,
    bodies_may_have_any_bytes_or_none,
    sort_values_of_maximum_length_are_distinguished_by_their_last_byte,
    filter_values_of_maximum_length_are_distinguished_by_their_last_byte,
    unique_values_of_maximum_length_are_distinguished_by_their_last_byte,
    values_of_every_byte_are_stored,
    a_record_may_have_many_filter_values,
];

const MEBIBYTE: usize = 1 << 20;

fn noise(seed: u8, len: usize) -> Bytes {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) ^ (i >> 8) as u8).collect()
}

async fn bodies_of_a_mebibyte_are_stored(fixture: &mut Fixture) {
    let put = Put { private: noise(2, MEBIBYTE), ..thing("a").body(noise(1, MEBIBYTE)) };
    fixture.put([put, thing("b")]).await;
    let record = fixture.record(THING, "a").await.unwrap();
    assert!(record.body == noise(1, MEBIBYTE) && record.private == noise(2, MEBIBYTE));
    fixture.put([thing("a").body(noise(3, MEBIBYTE + 1))]).await;
    assert!(fixture.record(THING, "a").await.unwrap().body == noise(3, MEBIBYTE + 1));
    assert_eq!(fixture.record(THING, "b").await.unwrap().body, "b");
}

async fn a_page_of_large_bodies_is_returned_completely(fixture: &mut Fixture) {
    fixture.put((0..8).map(|i| thing(&format!("t/{i}")).body(noise(i, MEBIBYTE)))).await;
    let page = fixture.page(&things().by("name")).await;
    assert_eq!(page.items.len(), 8);
    assert!(page.items.iter().zip(0..).all(|(item, i)| item.body == noise(i, MEBIBYTE)));
}

async fn bodies_may_have_any_bytes_or_none(fixture: &mut Fixture) {
    let every: Bytes = (0..=255).collect();
    let put = Put { private: every.clone(), rendering: u16::MAX, ..thing("a").body(every.clone()) };
    fixture.put([put, Put { rendering: 0, ..thing("b").body("") }]).await;
    let record = fixture.record(THING, "a").await.unwrap();
    assert_eq!((record.body, record.private, record.rendering), (every.clone(), every, u16::MAX));
    let record = fixture.record(THING, "b").await.unwrap();
    assert_eq!((record.body, record.private, record.rendering), (Bytes::new(), Bytes::new(), 0));
}

/// Returns values of the maximum length, in order, that differ only in the last byte.
fn long_values() -> [KeyValue; 4] {
    [0, b'a', b'b', 255].map(|last| {
        let mut bytes = vec![b'x'; KeyValue::MAX_LEN];
        bytes[KeyValue::MAX_LEN - 1] = last;
        KeyValue::from_bytes(bytes)
    })
}

async fn sort_values_of_maximum_length_are_distinguished_by_their_last_byte(fixture: &mut Fixture) {
    let values = long_values();
    for (value, uid) in values.iter().zip(["d", "c", "b", "a"]) {
        fixture.put([thing(uid).named_in_bytes(value.as_bytes())]).await;
    }
    assert_eq!(fixture.uids(&things().by("name")).await, ["d", "c", "b", "a"]);
    let after = Position { value: values[1].clone(), uid: key("c").uid };
    assert_eq!(fixture.uids(&things().by("name").after(after.clone())).await, ["b", "a"]);
    assert_eq!(fixture.uids(&things().by("name").descending().after(after)).await, ["d"]);
    assert_eq!(fixture.walk(&things().by("name"), 1).await, ["d", "c", "b", "a"]);
}

async fn filter_values_of_maximum_length_are_distinguished_by_their_last_byte(fixture: &mut Fixture) {
    let values = long_values();
    for (value, uid) in values.iter().zip(["a", "b", "c", "d"]) {
        fixture.put([Put { filter: vec![("long", value.clone())], ..thing(uid) }]).await;
    }
    for (value, uid) in values.iter().zip(["a", "b", "c", "d"]) {
        let filter = Filter::AnyOf { key: "long", values: vec![value.clone()] };
        assert_eq!(fixture.uids(&things().where_(filter).by("name")).await, [uid]);
        assert!(!fixture.holds(Require::NoneWith(THING, "long", value.clone())).await);
    }
    fixture.delete([Delete::With(THING, "long", values[1].clone())]).await;
    assert_eq!(fixture.uids(&things()).await, ["a", "c", "d"]);
}

async fn unique_values_of_maximum_length_are_distinguished_by_their_last_byte(fixture: &mut Fixture) {
    let owning =
        |uid, value: &KeyValue| Put { unique: vec![UniqueKey { space: "s", value: value.clone() }], ..thing(uid) };
    let values = long_values();
    for (value, uid) in values.iter().zip(["a", "b", "c", "d"]) {
        fixture.put([owning(uid, value)]).await;
    }
    for value in &values {
        fixture.rejected(guarded([], [owning("e", value)])).await;
    }
}

async fn values_of_every_byte_are_stored(fixture: &mut Fixture) {
    let single = |byte: u8| KeyValue::from_bytes([byte]);
    let put = (0..=255_u8).map(|byte| Put {
        filter: vec![("byte", single(byte))],
        unique: vec![UniqueKey { space: "byte", value: single(byte) }],
        ..thing(&format!("t/{:03}", 255 - byte)).named_in_bytes(&[byte])
    });
    fixture.put(put).await;
    let expected: Vec<String> = (0..=255).rev().map(|i| format!("t/{i:03}")).collect();
    assert_eq!(fixture.uids(&things().by("name")).await, expected);
    assert_eq!(fixture.walk(&things().by("name"), 50).await, expected);
    for byte in [0, 1, 47, 48, 127, 128, 254, 255_u8] {
        let filter = Filter::AnyOf { key: "byte", values: vec![single(byte)] };
        assert_eq!(fixture.uids(&things().where_(filter)).await, [format!("t/{:03}", 255 - byte)]);
    }
}

async fn a_record_may_have_many_filter_values(fixture: &mut Fixture) {
    let put = (0..200).fold(thing("a"), |put, i| put.with("id", &format!("v{i}")));
    fixture.put([put, thing("b").with("id", "v7")]).await;
    assert_eq!(fixture.uids(&things().where_(any_of("id", ["v7"]))).await, ["a", "b"]);
    assert_eq!(fixture.uids(&things().where_(any_of("id", ["v199", "v0"]))).await, ["a"]);
    fixture.put([thing("a").with("id", "v3")]).await;
    assert_eq!(fixture.total(&things().where_(any_of("id", ["v199"]))).await, 0);
}
