//! Rule 14: deleted keys may cost time, but do not appear.

use platform_store_kv::{
    Backend,
    backend::{KeyRange, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, Pair, all, delete, get, is, pairs_are, put, range, snapshot, write},
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        deleted_keys_do_not_appear_in_either_direction,
        deleted_keys_do_not_appear_after_opening_again,
        a_deleted_key_can_be_written_again,
        a_space_whose_keys_are_all_deleted_is_empty,
    ]
}

const SPACE: Space = Space::Replaced;
const KEYS: u32 = 1_000;

fn pair(number: u32) -> Pair {
    (number.to_be_bytes().to_vec(), vec![number as u8; 50])
}

/// Writes keys, deletes two of three, and returns the others.
fn deleted<B: Backend>(fixture: &Fixture<'_, B>) -> Result<(B, Vec<Pair>), String> {
    let backend = fixture.open()?;
    let puts = (0..KEYS).map(pair).map(|(key, value)| put(SPACE, key, value));
    write(&backend, &puts.collect::<Vec<_>>(), true)?;
    let (kept, gone): (Vec<_>, Vec<_>) = (0..KEYS).partition(|number| number % 3 == 0);
    for gone in gone.chunks(100) {
        write(&backend, &gone.iter().map(|number| delete(SPACE, pair(*number).0)).collect::<Vec<_>>(), true)?;
    }
    Ok((backend, kept.into_iter().map(pair).collect()))
}

fn are_gone<B: Backend>(backend: &B, wanted: &[Pair]) -> Outcome {
    let snapshot = snapshot(backend)?;
    pairs_are("keys, of which others were deleted", &all(&snapshot, SPACE)?, wanted)?;
    for number in 0..KEYS {
        let (key, value) = pair(number);
        let kept = (number % 3 == 0).then_some(value);
        is("the value of a key", &get(&snapshot, SPACE, &key)?, &kept)?;
        // From and to a deleted key.
        let to = (number + 3).to_be_bytes();
        for descending in [false, true] {
            let found = range(&snapshot, KeyRange { space: SPACE, from: &key, to: Some(&to), descending })?;
            let wanted = (number..(number + 3).min(KEYS)).filter(|number| number % 3 == 0).count();
            is("keys of a range, of which others were deleted", &found.len(), &wanted)?;
        }
    }
    Ok(())
}

fn deleted_keys_do_not_appear_in_either_direction<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, kept) = deleted(fixture)?;
    are_gone(&backend, &kept)
}

fn deleted_keys_do_not_appear_after_opening_again<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, kept) = deleted(fixture)?;
    drop(backend);
    are_gone(&fixture.open()?, &kept)
}

fn a_deleted_key_can_be_written_again<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, _) = deleted(fixture)?;
    let (key, _) = pair(1);
    for round in 0..5_u8 {
        write(&backend, &[put(SPACE, key.clone(), [round])], true)?;
        is("a deleted key that was written again", &get(&snapshot(&backend)?, SPACE, &key)?, &Some(vec![round]))?;
        write(&backend, &[delete(SPACE, key.clone())], true)?;
        is("a key that was deleted again", &get(&snapshot(&backend)?, SPACE, &key)?, &None)?;
    }
    Ok(())
}

fn a_space_whose_keys_are_all_deleted_is_empty<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, kept) = deleted(fixture)?;
    write(&backend, &kept.into_iter().map(|(key, _)| delete(SPACE, key)).collect::<Vec<_>>(), true)?;
    pairs_are("a space whose keys are all deleted", &all(&snapshot(&backend)?, SPACE)?, &[])?;
    drop(backend);
    pairs_are("the same after opening again", &all(&snapshot(&fixture.open()?)?, SPACE)?, &[])
}
