//! Random batches, reads and openings, compared with a map for each space.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use platform_store_kv::{
    Backend,
    backend::{KeyRange, Snapshot as _, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, Pair, Write, all, brief, failed, get, is, pairs_are, snapshot, write},
};
use crate::Rng;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![random_batches_and_reads_are_those_of_a_map]
}

type Model = BTreeMap<Space, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Returns a key of few, so that they meet: short ones of few bytes, some with a long tail.
fn key(random: &mut Rng, longest: usize) -> Vec<u8> {
    let length = 1 + random.below(3);
    let mut key: Vec<u8> = (0..length).map(|_| *random.pick(&[0, 1, b'a', b'b', 0x7f, 0xff])).collect();
    if random.one_in(10) {
        key.extend(vec![*random.pick(&[0, b'x', 0xff]); random.below(2_000)]);
    }
    key.truncate(longest);
    key
}

fn value(random: &mut Rng, longest: usize) -> Vec<u8> {
    let length = match random.below(20) {
        0 => 0,
        1 => random.below(20_000),
        _ => random.below(100),
    };
    vec![random.next() as u8; length.min(longest)]
}

fn batch<B: Backend>(random: &mut Rng, model: &mut Model) -> Vec<Write> {
    let mut taken = BTreeSet::new();
    let mut batch = Vec::new();
    for _ in 0..1 + random.below(30) {
        let (space, key) = (*random.pick(&Space::ALL), key(random, B::MAX_KEY));
        if !taken.insert((space, key.clone())) {
            continue;
        }
        let value = (!random.one_in(3)).then(|| value(random, B::MAX_VALUE));
        let of_space = model.entry(space).or_default();
        match &value {
            Some(value) => drop(of_space.insert(key.clone(), value.clone())),
            None => drop(of_space.remove(&key)),
        }
        batch.push((space, key, value));
    }
    batch
}

/// Compares a range with random bounds, which ends after some keys.
fn compare_range<B: Backend>(random: &mut Rng, snapshot: &B::Snapshot, model: &Model) -> Outcome {
    let space = *random.pick(&Space::ALL);
    let from = if random.one_in(4) { Vec::new() } else { key(random, B::MAX_KEY) };
    let to = (!random.one_in(4)).then(|| key(random, B::MAX_KEY)).filter(|to| *to > from);
    let (descending, most) = (random.one_in(2), 1 + random.below(20));
    let range = KeyRange { space, from: &from, to: to.as_deref(), descending };
    let mut found: Vec<Pair> = Vec::new();
    let read = snapshot.range(range, |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.map_err(|error| failed("a range fails", error))?;
    let of_space = model.get(&space).into_iter().flatten();
    let between = of_space.filter(|(key, _)| **key >= from && to.as_ref().is_none_or(|to| *key < to));
    let mut wanted: Vec<Pair> = between.map(|(key, value)| (key.clone(), value.clone())).collect();
    if descending {
        wanted.reverse();
    }
    wanted.truncate(most);
    let to = to.as_deref().map_or("the end".to_owned(), brief);
    let what = format!("{} from {} to {to}, descending: {descending}", space.name(), brief(&from));
    pairs_are(&what, &found, &wanted)
}

fn compare<B: Backend>(random: &mut Rng, snapshot: &B::Snapshot, model: &Model) -> Outcome {
    for _ in 0..5 {
        compare_range::<B>(random, snapshot, model)?;
        let (space, key) = (*random.pick(&Space::ALL), key(random, B::MAX_KEY));
        let wanted = model.get(&space).and_then(|of_space| of_space.get(&key));
        is(&format!("{} in {}", brief(&key), space.name()), &get(snapshot, space, &key)?.as_ref(), &wanted)?;
    }
    Ok(())
}

fn compare_all<B: Backend>(snapshot: &B::Snapshot, model: &Model) -> Outcome {
    for space in Space::ALL {
        let of_space = model.get(&space).into_iter().flatten();
        let wanted: Vec<Pair> = of_space.map(|(key, value)| (key.clone(), value.clone())).collect();
        pairs_are(space.name(), &all(snapshot, space)?, &wanted)?;
    }
    Ok(())
}

fn random_batches_and_reads_are_those_of_a_map<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (seed, batches) = fixture.suite.random;
    let (mut random, mut model) = (Rng::new(seed), Model::new());
    let mut backend = fixture.open()?;
    for number in 1..=batches {
        let at = |error: String| format!("seed {seed}, batch {number}: {error}");
        // Unsynced writes may be lost when the backend is closed.
        let is_opened_again = number == batches || random.one_in(20);
        let sync = is_opened_again || random.one_in(4);
        write(&backend, &batch::<B>(&mut random, &mut model), sync).map_err(at)?;
        compare::<B>(&mut random, &snapshot(&backend)?, &model).map_err(at)?;
        if is_opened_again {
            drop(backend);
            backend = fixture.open()?;
            compare_all::<B>(&snapshot(&backend)?, &model).map_err(at)?;
        }
    }
    Ok(())
}
