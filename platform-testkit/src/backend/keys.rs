//! Rule 3: keys of 1 to `MAX_KEY` bytes, values of 0 to `MAX_VALUE` bytes, whatever these are.

use platform_store_kv::{
    Backend,
    backend::{NODE_LEN, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, Pair, Write, all, failed, get, is, pairs_are, put, snapshot, write},
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        keys_have_any_length_up_to_the_greatest,
        values_have_any_length_up_to_the_greatest,
        keys_and_values_have_any_bytes,
        the_greatest_length_of_values_is_enough_for_tree_nodes,
    ]
}

/// Longer keys and values are not tried: our choice, for the time of a test.
const LONGEST_KEY: usize = 1 << 20;
const LONGEST_VALUE: usize = 64 << 20;

/// Returns short lengths, those next to the powers of two up to a million, and the greatest one.
fn lengths(least: usize, greatest: usize) -> Vec<usize> {
    let powers = (6..=20).map(|bits| 1_usize << bits).flat_map(|power| [power - 1, power, power + 1]);
    let mut lengths: Vec<_> = (least..=70).chain(powers).filter(|length| *length < greatest).collect();
    lengths.push(greatest);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

fn written<B: Backend>(fixture: &Fixture<'_, B>, batch: &[Write]) -> Result<B, String> {
    let backend = fixture.open()?;
    for change in batch {
        let (key, value) = (change.1.len(), change.2.as_ref().map_or(0, Vec::len));
        write(&backend, std::slice::from_ref(change), true)
            .map_err(|error| failed(&format!("a key of {key} bytes with a value of {value}"), error))?;
    }
    drop(backend);
    fixture.open()
}

/// All keys have the same bytes, so that keys which are cut off are equal.
fn keys_have_any_length_up_to_the_greatest<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let pairs: Vec<Pair> = lengths(1, B::MAX_KEY.min(LONGEST_KEY))
        .into_iter()
        .map(|length| (vec![0xab; length], length.to_be_bytes().to_vec()))
        .collect();
    let batch: Vec<_> = pairs.iter().map(|(key, value)| put(Space::Entries, key.clone(), value.clone())).collect();
    let snapshot = snapshot(&written(fixture, &batch)?)?;
    for (key, value) in &pairs {
        let found = get(&snapshot, Space::Entries, key)?;
        is(&format!("the value of a key of {} bytes", key.len()), &found.as_ref(), &Some(value))?;
    }
    pairs_are("keys of all lengths", &all(&snapshot, Space::Entries)?, &pairs)
}

fn values_have_any_length_up_to_the_greatest<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let value = |length: usize| (0..length).map(|at| (at ^ (at >> 8) ^ length) as u8).collect::<Vec<_>>();
    let lengths = lengths(0, B::MAX_VALUE.min(LONGEST_VALUE));
    let key = |length: &usize| length.to_be_bytes().to_vec();
    let batch: Vec<_> = lengths.iter().map(|length| put(Space::Records, key(length), value(*length))).collect();
    let snapshot = snapshot(&written(fixture, &batch)?)?;
    for length in &lengths {
        let Some(found) = get(&snapshot, Space::Records, &key(length))? else {
            return Err(format!("the key with a value of {length} bytes is missing"));
        };
        is(&format!("the length of a value of {length} bytes"), &found.len(), length)?;
        is(&format!("whether a value of {length} bytes is what was written"), &(found == value(*length)), &true)?;
    }
    Ok(())
}

fn keys_and_values_have_any_bytes<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let edges = [0, 1, b'/', 0x7f, 0x80, 0xfe, 0xff];
    let single = (0..=u8::MAX).map(|byte| vec![byte]);
    let pairs = edges.into_iter().flat_map(|first| edges.map(|second| vec![first, second]));
    let triples = edges.into_iter().flat_map(|first| edges.map(|second| vec![first, second, 0]));
    let mut keys: Vec<_> = single.chain(pairs).chain(triples).collect();
    keys.sort_unstable();
    let batch: Vec<_> = keys.iter().map(|key| put(Space::Lists, key.clone(), key.clone())).collect();
    let backend = fixture.open()?;
    write(&backend, &batch, true)?;
    let wanted: Vec<Pair> = keys.into_iter().map(|key| (key.clone(), key)).collect();
    pairs_are("keys of all bytes, in their order", &all(&snapshot(&backend)?, Space::Lists)?, &wanted)
}

fn the_greatest_length_of_values_is_enough_for_tree_nodes<B: Backend>(_: &Fixture<'_, B>) -> Outcome {
    is("whether `MAX_VALUE` is at least `NODE_LEN`", &(B::MAX_VALUE >= NODE_LEN), &true)?;
    is("whether `MAX_KEY` is at least 1", &(B::MAX_KEY >= 1), &true)
}
