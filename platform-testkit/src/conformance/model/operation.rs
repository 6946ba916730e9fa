//! A random operation on a store, whose result is compared with the model's.
//!
//! Values come from small sets, so that records collide, requirements fail and unique keys are taken about half of the
//! time. One parent has many possible children, so that lists also grow beyond the size at which a store may change
//! their representation, and shrink again.

use platform_engine::store::{
    Commit, Committed, Delete, Epoch, Filter, Key, KeyValue, KindName, Order, OrderBy, Position, Put, Query, Require,
    Scope, StoreError, UniqueKey, pattern::Pattern,
};
use platform_engine::uid::Uid;

use super::{
    super::{
        Fixture,
        fixture::differ,
        records::{PART, THING, TICKET, text, uid},
    },
    random::Random,
};
use crate::model::Model;

/// An operation on a store.
#[derive(Debug)]
pub(super) enum Operation {
    Commit(Commit),
    Get(Vec<Key>, Vec<Epoch>),
    List(Query),
    Reopen,
}

const KINDS: [KindName; 3] = [THING, PART, TICKET];
const NAMES: [&str; 12] = ["", "a", "A", "a b", "a\0", "ab", "b", "é", "zz", "nginx", "nginx-fips", "engine"];
const COLORS: [&str; 6] = ["red", "red", "red", "green", "blue", ""];
const SIZES: [&str; 3] = ["1", "2", "10"];
const UNIQUE: [&str; 5] = ["x", "y", "z", "xx", ""];
const EPOCHS: [(&str, &str); 4] = [("e", "a"), ("f", "a/f"), ("e", "ab"), ("e", "")];

impl Operation {
    pub(super) fn random(random: &mut Random, model: &Model) -> Self {
        match random.below(400) {
            0 => Self::Reopen,
            1..180 => Self::Commit(commit(random, model)),
            180..220 => Self::Get(random.some(6, any_key), random.some(2, any_epoch)),
            _ => Self::List(query(random, model)),
        }
    }

    /// Runs the operation on both, and returns a message if the result differs from the model's.
    pub(super) async fn check(&self, fixture: &mut Fixture, model: &mut Model) -> Result<(), String> {
        match self {
            Self::Commit(commit) => {
                let outcome = fixture.store().commit(commit.clone()).await;
                match (outcome, model.check(commit)) {
                    (Ok(Committed { sequence }), Ok(())) => {
                        let last = model.last_sequence(commit);
                        if sequence <= last {
                            return Err(format!("returned the sequence {sequence} after {last}"));
                        }
                        model.apply(commit, sequence);
                        Ok(())
                    }
                    (Err(StoreError::Conflict(conflict)), Err(expected)) if conflict == expected => Ok(()),
                    (outcome, expected) => Err(format!("returned {outcome:?}, expected {expected:?}")),
                }
            }
            Self::Get(keys, epochs) => {
                let read = fixture.store().get(keys, epochs).await.map_err(|error| error.to_string())?;
                let expected = model.get(keys, epochs);
                if read == expected { Ok(()) } else { Err(format!("returned {read:?}, expected {expected:?}")) }
            }
            Self::List(query) => {
                let page = fixture.store().list(query).await.map_err(|error| error.to_string())?;
                differ(&page, &model.list(query)).map_or(Ok(()), Err)
            }
            Self::Reopen => {
                if fixture.suite().exclusion("reopen::records_are_stored_after_reopening").is_none() {
                    fixture.reopen().await;
                }
                Ok(())
            }
        }
    }
}

fn any_kind(random: &mut Random) -> KindName {
    random.pick(&KINDS)
}

fn any_uid(random: &mut Random) -> Uid {
    let root = ["a", "ab", "b"][random.below(3)];
    let (few, many) = (random.below(3), random.below(250));
    uid(&match random.below(10) {
        0 => root.to_owned(),
        1 => format!("{root}/{few}"),
        2 => format!("{root}/{few}/{}", random.below(3)),
        3 => format!("a/{few}0/{few}"),
        _ => format!("a/{many}"),
    })
}

fn any_key(random: &mut Random) -> Key {
    Key::new(any_kind(random), any_uid(random))
}

fn any_epoch(random: &mut Random) -> Epoch {
    let (name, of) = random.pick(&EPOCHS);
    Epoch::new(name, uid(of))
}

fn any_kinds(random: &mut Random) -> Vec<KindName> {
    random.pick(&[vec![THING], vec![PART], vec![TICKET], vec![THING, PART, TICKET], vec![]])
}

fn any_filter_value(random: &mut Random) -> (&'static str, KeyValue) {
    if random.chance(60) { ("color", text(random.pick(&COLORS))) } else { ("size", text(random.pick(&SIZES))) }
}

fn put(random: &mut Random, unique_percent: u64) -> Put {
    let name = text(random.pick(&NAMES));
    let unique =
        |random: &mut Random| UniqueKey { space: random.pick(&["name", "alias"]), value: text(random.pick(&UNIQUE)) };
    let mut filter = vec![("name", name.clone())];
    filter.extend(random.some(3, any_filter_value));
    filter.dedup();
    let mut unique = if random.chance(unique_percent) { random.some(2, unique) } else { Vec::new() };
    unique.sort();
    unique.dedup();
    let key = any_key(random);
    Put {
        queue: key.kind == TICKET,
        key,
        sort: vec![("name", name), ("rank", KeyValue::integer(random.below(4) as i64 - 2))],
        filter,
        unique,
        // Mostly, so that sometimes all records of a kind have the index.
        search: if random.chance(97) { vec!["name"] } else { Vec::new() },
        rendering: random.below(3) as u16,
        body: vec![random.below(256) as u8; random.pick(&[0, 1, 30, 5_000])].into(),
        private: vec![random.below(256) as u8; random.pick(&[0, 0, 10])].into(),
        revision: None,
    }
}

fn commit(random: &mut Random, model: &Model) -> Commit {
    let most = random.pick(&[1, 1, 3, 3, 3, 60]);
    // A commit with many unique keys would never succeed, because there are few different values.
    let unique_percent = if most > 3 { 0 } else { 15 };
    let mut put = random.some(most, |random| put(random, unique_percent));
    let mut keys = std::collections::BTreeSet::new();
    put.retain(|put| keys.insert(put.key.clone()));
    let require = if random.chance(40) { random.some(3, |random| require(random, model)) } else { Vec::new() };
    let delete = if random.chance(40) { random.some(3, delete) } else { Vec::new() };
    let raise = if random.chance(20) { random.some(2, any_epoch) } else { Vec::new() };
    Commit { require, delete, put, raise }
}

fn require(random: &mut Random, model: &Model) -> Require {
    let key = any_key(random);
    match random.below(7) {
        0 => Require::Absent(key),
        1 => Require::Exists(key),
        2 => {
            let record = model.get(std::slice::from_ref(&key), &[]).records.into_iter().flatten().next();
            let revision = record.map_or(1, |record| record.revision);
            Require::Revision(key, if random.chance(80) { revision } else { revision - 1 })
        }
        3 => Require::NoneBelow(key.uid, any_kinds(random)),
        4 => {
            let (name, value) = any_filter_value(random);
            Require::NoneWith(key.kind, name, value)
        }
        5 => {
            let kind = random.pick(&[THING, PART]);
            let top = random.pick(&[key.uid.clone(), Uid::opaque("a"), Uid::opaque("ab")]);
            let scope = Scope::Subtree(top.clone());
            let total = model.list(&Query { count: true, limit: 0, ..Query::new(kind, scope) }).total;
            let most = total.unwrap_or_default() + random.below(5) as u64;
            Require::AtMost(kind, top, most.saturating_sub(random.below(4) as u64))
        }
        _ => {
            let epoch = any_epoch(random);
            let value = model.get(&[], std::slice::from_ref(&epoch)).epochs[0];
            Require::Epoch(epoch, if random.chance(80) { value } else { value + 1 })
        }
    }
}

fn delete(random: &mut Random) -> Delete {
    let key = any_key(random);
    match random.below(40) {
        0 => Delete::Below(key.uid, any_kinds(random)),
        1 => {
            let (name, value) = any_filter_value(random);
            Delete::With(key.kind, name, value)
        }
        _ => Delete::Key(key),
    }
}

fn query(random: &mut Random, model: &Model) -> Query {
    let mut query = Query::new(any_kind(random), Scope::All);
    let most = random.pick(&[1, 1, 1, 6]);
    query.scopes = disjoint((0..most).map(|_| scope(random)).collect());
    let most = random.pick(&[0, 1, 1, 3]);
    query.filters = random.some(most, filter);
    let by = random.pick(&[OrderBy::Uid, OrderBy::Sequence, OrderBy::Key("name"), OrderBy::Key("rank")]);
    query.order = Order { by, descending: random.chance(50) };
    query.count = random.chance(70);
    query.skip = random.pick(&[0, 0, 0, 1, 7, 50, u64::MAX]);
    query.epochs = random.some(1, any_epoch).into();
    query.after = match random.below(4) {
        0 => Some(any_position(random, by)),
        1 => model.list(&Query { limit: random.below(60), ..query.clone() }).next,
        _ => None,
    };
    query.limit = random.pick(&[0, 1, 3, 20, 20, 20, usize::MAX]);
    query.bytes = random.pick(&[usize::MAX, usize::MAX, 0, 31, 5_030, 20_000]);
    query
}

fn any_position(random: &mut Random, by: OrderBy) -> Position {
    let value = match by {
        OrderBy::Uid => KeyValue::default(),
        OrderBy::Sequence => KeyValue::integer(random.below(5_000) as i64),
        OrderBy::Key("rank") => KeyValue::integer(random.below(4) as i64 - 2),
        OrderBy::Key(_) => text(random.pick(&NAMES)),
    };
    Position { value, uid: any_uid(random) }
}

fn scope(random: &mut Random) -> Scope {
    let uid = any_uid(random);
    let top = random.pick(&[uid.clone(), uid.parent().unwrap_or_else(|| uid.clone()), Uid::opaque("a")]);
    match random.below(16) {
        0 => Scope::All,
        1 => Scope::Roots,
        2..5 => Scope::Exact(uid),
        5..10 => Scope::Children(top),
        _ => Scope::Subtree(top),
    }
}

/// Removes each scope that could share a record with an earlier one.
fn disjoint(scopes: Vec<Scope>) -> Vec<Scope> {
    let mut disjoint_scopes: Vec<Scope> = Vec::new();
    for scope in scopes {
        if !disjoint_scopes.iter().any(|other| overlap(other, &scope)) {
            disjoint_scopes.push(scope);
        }
    }
    disjoint_scopes
}

fn overlap(left: &Scope, right: &Scope) -> bool {
    let meets = |left: &Scope, right: &Scope| match (left, right) {
        (Scope::All, _) => true,
        (Scope::Exact(uid), other) => other.contains(uid),
        (Scope::Subtree(top), Scope::Subtree(other)) => other.is_at_or_below(top),
        (Scope::Subtree(top), Scope::Children(parent)) => parent.is_at_or_below(top) || top.is_below(parent),
        (Scope::Subtree(top), Scope::Roots) => top.is_root(),
        (Scope::Children(parent), Scope::Children(other)) => parent == other,
        (Scope::Roots, Scope::Roots) => true,
        _ => false,
    };
    meets(left, right) || meets(right, left)
}

fn pattern(random: &mut Random) -> Pattern {
    let parts = ["", "", "a", "nginx", "gin", "-fi", "zz", "é"];
    Pattern { parts: (0..1 + random.below(3)).map(|_| random.pick(&parts).to_owned()).collect() }
}

fn filter(random: &mut Random) -> Filter {
    let (key, value) = match random.below(4) {
        0 => ("name", text(random.pick(&NAMES))),
        _ => any_filter_value(random),
    };
    let others: Vec<KeyValue> = random
        .some(2, any_filter_value)
        .into_iter()
        .filter(|(other, _)| *other == key)
        .map(|(_, value)| value)
        .collect();
    match random.below(8) {
        0 => Filter::NoneOf { key, values: others },
        1 => Filter::Above { key, value },
        3 => Filter::Like { key: "name", pattern: pattern(random) },
        2 => Filter::Contains { keys: vec![key, "name"], bytes: text(random.pick(&["", "a", "e", "1"])) },
        _ => Filter::AnyOf { key, values: others.into_iter().chain([value]).collect() },
    }
}
