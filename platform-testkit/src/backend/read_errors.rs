//! Rule 2: an error is never the end of a range, and nothing is read after one.

use std::ops::ControlFlow;

use platform_store_kv::{
    Backend,
    backend::{KeyRange, Snapshot as _, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, get, is, put, snapshot, whole, write},
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![an_error_is_never_the_end_of_a_range, an_error_is_never_a_missing_key]
}

const KEYS: usize = 5_000;

fn key(number: usize) -> String {
    format!("{number:06}")
}

/// Returns a backend that has keys, and whose memory has none of them.
fn filled<B: Backend>(fixture: &Fixture<'_, B>) -> Result<B, String> {
    let backend = fixture.open()?;
    let keys = (0..KEYS).map(|number| put(Space::Records, key(number), vec![b'x'; 200]));
    write(&backend, &keys.collect::<Vec<_>>(), true)?;
    drop(backend);
    fixture.open()
}

fn fail<B: Backend>(fixture: &Fixture<'_, B>, backend: &B) {
    fixture.suite.failing_reads.iter().for_each(|fail| fail(backend));
}

/// Reads of data in memory may succeed, so that a whole range is right, too.
fn an_error_is_never_the_end_of_a_range<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for descending in [false, true] {
        for before in [0, 1, 100] {
            let backend = filled(fixture)?;
            let snapshot = snapshot(&backend)?;
            let mut taken = Vec::new();
            if before == 0 {
                fail(fixture, &backend);
            }
            let read = snapshot.range(KeyRange { descending, ..whole(Space::Records, false) }, |key, _| {
                taken.push(key.to_vec());
                if taken.len() == before {
                    fail(fixture, &backend);
                }
                ControlFlow::Continue(())
            });
            let numbers = (0..KEYS).map(|number| if descending { KEYS - 1 - number } else { number });
            let wanted: Vec<_> = numbers.map(|number| key(number).into_bytes()).collect();
            if read.is_ok() {
                is("keys of a range that did not fail, while reads of the library fail", &taken.len(), &KEYS)?;
            }
            is("whether the keys before an error are the first", &wanted.starts_with(&taken), &true)?;
        }
    }
    Ok(())
}

fn an_error_is_never_a_missing_key<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = filled(fixture)?;
    let snapshot = snapshot(&backend)?;
    fail(fixture, &backend);
    for number in (0..KEYS).step_by(97) {
        if let Ok(found) = get(&snapshot, Space::Records, key(number).as_bytes()) {
            is("whether a key exists, while reads of the library fail", &found.is_some(), &true)?;
        }
    }
    Ok(())
}
