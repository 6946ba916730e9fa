//! Batches whose content follows from their number, so that a state that is found after a crash can be compared with one
//! of a number.

use platform_store_kv::backend::{Snapshot, Space};

use super::fixture::{Pair, Write, all, delete, failed, get, pairs_are, put};

/// The number of batches whose keys stay.
const KEPT: u64 = 8;
/// The number of keys of a batch in each space, without the number.
const KEYS: u64 = 3;
/// The key of the number of the last batch, which sorts after the others.
const LAST: &[u8] = b"last";

fn key(number: u64, of: u64) -> Vec<u8> {
    format!("{number:012}/{of}").into_bytes()
}

fn value(number: u64, of: u64) -> Vec<u8> {
    vec![number.wrapping_mul(31).wrapping_add(of) as u8; 300]
}

/// Returns a batch. In each space, it sets the number, puts new keys and deletes those of an earlier batch.
pub(super) fn batch(number: u64) -> Vec<Write> {
    let of_space = |space| {
        let new = (0..KEYS).map(move |of| put(space, key(number, of), value(number, of)));
        let old = number.checked_sub(KEPT).filter(|old| *old > 0);
        let old = old.into_iter().flat_map(move |old| (0..KEYS).map(move |of| delete(space, key(old, of))));
        new.chain(old).chain([put(space, LAST, number.to_be_bytes())])
    };
    Space::ALL.into_iter().flat_map(of_space).collect()
}

/// Returns the pairs of each space after a batch and all before it.
fn content(number: u64) -> Vec<Pair> {
    let first = number.saturating_sub(KEPT) + 1;
    let pairs = (first..=number).flat_map(|batch| (0..KEYS).map(move |of| (key(batch, of), value(batch, of))));
    let last = (number > 0).then(|| (LAST.to_vec(), number.to_be_bytes().to_vec()));
    pairs.chain(last).collect()
}

/// Returns the number of the last batch in a space, or 0.
pub(super) fn last_of(snapshot: &impl Snapshot, space: Space) -> Result<u64, String> {
    let Some(value) = get(snapshot, space, LAST)? else { return Ok(0) };
    let bytes = value.try_into().map_err(|_| format!("the number in {} is malformed", space.name()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Returns the number of the last batch, after it has compared all spaces with that batch.
pub(super) fn last(snapshot: &impl Snapshot) -> Result<u64, String> {
    let number = last_of(snapshot, Space::State)?;
    let wanted = content(number);
    for space in Space::ALL {
        let what = format!("{}, if batch {number} is the last one", space.name());
        pairs_are(&what, &all(snapshot, space)?, &wanted).map_err(|error| failed("a state of no batch", error))?;
    }
    Ok(number)
}
