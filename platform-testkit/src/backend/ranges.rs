//! Rule 4: ranges in either direction, with an upper bound that is exclusive.

use std::ops::ControlFlow;

use platform_store_kv::{
    Backend,
    backend::{KeyRange, Snapshot as _, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, Pair, all, brief, delete, failed, get, is, pairs_are, put, range, snapshot, whole, write},
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        they_have_the_keys_between_all_bounds_in_both_directions,
        the_lower_bound_is_inclusive_and_the_upper_bound_exclusive,
        they_end_when_the_caller_breaks,
        they_have_the_keys_of_their_space_alone,
        a_range_without_keys_is_empty,
    ]
}

const SPACE: Space = Space::Entries;

/// Bounds, of which every second one is a key.
fn bounds() -> Vec<Vec<u8>> {
    let texts = ["\0", "\0\0", "a", "a\0", "aa", "aaa", "ab", "b", "b\u{1}", "c", "ca", "cb", "d", "\u{7f}"];
    let mut bounds: Vec<_> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    bounds.extend([vec![0x80], vec![0xfe, 0xff], vec![0xff], vec![0xff, 0], vec![0xff, 0xff], vec![0xff; 40]]);
    bounds
}

/// Writes the keys, and as many to the spaces next to it.
fn filled<B: Backend>(fixture: &Fixture<'_, B>) -> Result<(B, Vec<Pair>), String> {
    let backend = fixture.open()?;
    let pairs: Vec<Pair> =
        bounds().into_iter().step_by(2).map(|key| (key.clone(), [&key[..], b"!"].concat())).collect();
    let mut batch: Vec<_> = pairs.iter().map(|(key, value)| put(SPACE, key.clone(), value.clone())).collect();
    for other in [Space::Sequence, Space::Epochs] {
        batch.extend(bounds().into_iter().map(|key| put(other, key, "other")));
    }
    write(&backend, &batch, true)?;
    Ok((backend, pairs))
}

fn they_have_the_keys_between_all_bounds_in_both_directions<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, pairs) = filled(fixture)?;
    let snapshot = snapshot(&backend)?;
    let bounds = bounds();
    for from in [&[][..]].into_iter().chain(bounds.iter().map(Vec::as_slice)) {
        for to in [None].into_iter().chain(bounds.iter().map(|bound| Some(bound.as_slice()))) {
            // The engine does not ask for others.
            if to.is_some_and(|to| to <= from) {
                continue;
            }
            let is_between = |key: &[u8]| key >= from && to.is_none_or(|to| key < to);
            let mut wanted: Vec<_> = pairs.iter().filter(|(key, _)| is_between(key)).cloned().collect();
            for descending in [false, true] {
                let found = range(&snapshot, KeyRange { space: SPACE, from, to, descending })?;
                let to = to.map_or("the end".to_owned(), brief);
                let what = format!("from {} to {to}, descending: {descending}", brief(from));
                pairs_are(&what, &found, &wanted)?;
                wanted.reverse();
            }
        }
    }
    Ok(())
}

fn the_lower_bound_is_inclusive_and_the_upper_bound_exclusive<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    write(&backend, &["a", "b", "c"].map(|key| put(SPACE, key, "")), true)?;
    let snapshot = snapshot(&backend)?;
    for descending in [false, true] {
        let found = range(&snapshot, KeyRange { space: SPACE, from: b"a", to: Some(b"c"), descending })?;
        let mut keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        let what = format!("the keys of a, b, c from a to c, descending: {descending}");
        is(&what, &keys, &vec![b"a".to_vec(), b"b".to_vec()])?;
    }
    Ok(())
}

fn they_end_when_the_caller_breaks<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, pairs) = filled(fixture)?;
    let snapshot = snapshot(&backend)?;
    for descending in [false, true] {
        for most in 1..=pairs.len() {
            let mut count = 0;
            let read = snapshot.range(whole(SPACE, descending), |_, _| {
                count += 1;
                if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            read.map_err(|error| failed("a range that ends early fails", error))?;
            is(&format!("calls of a function that breaks at call {most}"), &count, &most)?;
        }
    }
    Ok(())
}

fn they_have_the_keys_of_their_space_alone<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    let keys = [&b"\0"[..], b"key", b"\xff", b"\xff\xff\xff"];
    let value = |space: Space, key: &[u8]| [&[space.number()], key].concat();
    let of_space = |space: Space| keys.map(|key| (key.to_vec(), value(space, key))).to_vec();
    let puts = Space::ALL.into_iter().flat_map(|space| keys.map(|key| put(space, key, value(space, key))));
    write(&backend, &puts.collect::<Vec<_>>(), true)?;
    for space in Space::ALL {
        let snapshot = snapshot(&backend)?;
        pairs_are(space.name(), &all(&snapshot, space)?, &of_space(space))?;
        for key in keys {
            is(space.name(), &get(&snapshot, space, key)?, &Some(value(space, key)))?;
        }
    }
    for (at, space) in Space::ALL.into_iter().enumerate() {
        write(&backend, &keys.map(|key| delete(space, key)), true)?;
        let snapshot = snapshot(&backend)?;
        for (other, space) in Space::ALL.into_iter().enumerate() {
            let wanted = if other > at { of_space(space) } else { Vec::new() };
            let what = format!("{}, after the keys of {} spaces were deleted", space.name(), at + 1);
            pairs_are(&what, &all(&snapshot, space)?, &wanted)?;
        }
    }
    Ok(())
}

fn a_range_without_keys_is_empty<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (backend, _) = filled(fixture)?;
    let snapshot = snapshot(&backend)?;
    for descending in [false, true] {
        for (from, to) in [(&b"bb"[..], &b"bc"[..]), (b"e", b"f")] {
            let found = range(&snapshot, KeyRange { space: SPACE, from, to: Some(to), descending })?;
            pairs_are("a range without keys", &found, &[])?;
        }
        pairs_are("an empty space", &range(&snapshot, whole(Space::Unindexed, descending))?, &[])?;
    }
    Ok(())
}
