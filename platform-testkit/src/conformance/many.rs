//! Commits and reads with thousands of records.

use platform_engine::store::{Commit, Conflict, Delete, Epoch, Key, Query, Require, Scope};

use super::{
    Case, Fixture, cases,
    records::{Ask, Describe, THING, any_of, epoch, key, text, thing, things, things_in, uid},
};

pub(super) const CASES: &[Case] = cases![
    one_commit_and_one_read_can_have_5000_records,
    one_commit_can_have_5000_requirements,
    one_commit_can_delete_5000_keys,
    one_delete_can_delete_thousands_of_records_below_a_uid,
    one_delete_can_delete_thousands_of_records_with_a_value,
    one_commit_and_one_read_can_have_hundreds_of_epochs,
    a_list_of_hundreds_of_exact_uids_is_merged,
];

const MANY: usize = 5_000;

fn uids() -> impl DoubleEndedIterator<Item = String> {
    (0..MANY).map(|i| format!("t/{i:04}"))
}

async fn put_many(fixture: &Fixture) -> u64 {
    fixture.put(uids().enumerate().map(|(i, uid)| thing(&uid).with("half", ["even", "odd"][i % 2]))).await
}

async fn one_commit_and_one_read_can_have_5000_records(fixture: &mut Fixture) {
    let sequence = put_many(fixture).await;
    let keys: Vec<Key> = uids().map(|uid| key(&uid)).rev().chain([key("missing")]).collect();
    let read = fixture.store().get(&keys, &[]).await.unwrap();
    assert_eq!(read.records.len(), MANY + 1);
    assert_eq!(read.records[MANY], None);
    let found = read.records.iter().flatten();
    assert!(found.zip(&keys).all(|(record, key)| record.key == *key && record.revision == sequence));
    assert_eq!(fixture.total(&things_in(Scope::Children(uid("t")))).await, MANY as u64);
}

async fn one_commit_can_have_5000_requirements(fixture: &mut Fixture) {
    put_many(fixture).await;
    let mut require: Vec<Require> = uids().map(|uid| Require::Exists(key(&uid))).collect();
    fixture.commit(Commit { require: require.clone(), ..Commit::default() }).await;
    require.push(Require::Exists(key("missing")));
    let conflict = fixture.rejected(Commit { require, ..Commit::default() }).await;
    assert_eq!(conflict, Conflict::Require(MANY));
}

async fn one_commit_can_delete_5000_keys(fixture: &mut Fixture) {
    put_many(fixture).await;
    fixture.put([thing("kept")]).await;
    fixture.delete(uids().map(|uid| Delete::Key(key(&uid)))).await;
    assert_eq!(fixture.uids(&things().by("name")).await, ["kept"]);
}

async fn one_delete_can_delete_thousands_of_records_below_a_uid(fixture: &mut Fixture) {
    put_many(fixture).await;
    fixture.put([thing("t"), thing("tt/0")]).await;
    fixture.delete([Delete::Below(uid("t"), vec![THING])]).await;
    assert_eq!(fixture.uids(&things().by("name")).await, ["t", "tt/0"]);
}

async fn one_delete_can_delete_thousands_of_records_with_a_value(fixture: &mut Fixture) {
    put_many(fixture).await;
    fixture.delete([Delete::With(THING, "half", text("odd"))]).await;
    assert_eq!(fixture.total(&things()).await, MANY as u64 / 2);
    assert_eq!(fixture.total(&things().where_(any_of("half", ["odd"]))).await, 0);
    assert_eq!(fixture.uids(&things().by("name").skip(1_200).limit(2)).await, ["t/2400", "t/2402"]);
}

async fn one_commit_and_one_read_can_have_hundreds_of_epochs(fixture: &mut Fixture) {
    let names: Vec<String> = (0..500).map(|i| format!("{}/{i}", i % 10)).collect();
    let sequence = fixture.raise(names.iter().map(String::as_str)).await;
    let epochs: Vec<Epoch> = names.iter().map(|name| epoch(name)).collect();
    assert_eq!(fixture.store().get(&[], &epochs).await.unwrap().epochs, [sequence; 500]);
}

async fn a_list_of_hundreds_of_exact_uids_is_merged(fixture: &mut Fixture) {
    put_many(fixture).await;
    let selected = |i: &usize| i % 10 == 3;
    let scopes = (0..MANY).filter(selected).rev().map(|i| Scope::Exact(uid(&format!("t/{i:04}")))).collect();
    let query = Query { scopes, ..things() }.by("name");
    let expected: Vec<String> = (0..MANY).filter(selected).map(|i| format!("t/{i:04}")).collect();
    assert_eq!(fixture.uids(&query).await, expected);
    assert_eq!(fixture.total(&query).await, MANY as u64 / 10);
    assert_eq!(fixture.uids(&query.skip(100).limit(2)).await, expected[100..102]);
}
