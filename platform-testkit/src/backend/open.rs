//! Rule 2: a snapshot keeps the library open.

use std::ops::ControlFlow;

use platform_store_kv::{
    Backend,
    backend::{KeyRange, Snapshot as _, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, failed, get, is, put, snapshot, whole, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        a_snapshot_outlives_the_backend,
        a_range_goes_on_when_the_backend_is_dropped_in_it,
        a_backend_opens_again_after_its_snapshots_are_dropped,
    ]
}

fn a_snapshot_outlives_the_backend<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    write(&backend, &numbered::batch(1), true)?;
    let snapshot = snapshot(&backend)?;
    drop(backend);
    let number = numbered::last(&snapshot).map_err(|error| failed("a snapshot of a dropped backend", error))?;
    is("the batch of a snapshot of a dropped backend", &number, &1)
}

fn a_range_goes_on_when_the_backend_is_dropped_in_it<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    const KEYS: usize = 5_000;
    for descending in [false, true] {
        let backend = fixture.open()?;
        let keys = (0..KEYS).map(|key| put(Space::Records, format!("{key:06}"), vec![b'x'; 200]));
        write(&backend, &keys.collect::<Vec<_>>(), true)?;
        drop(backend);
        // Opened again, so that no cache has the keys.
        let backend = fixture.open()?;
        let snapshot = snapshot(&backend)?;
        let (mut backend, mut count) = (Some(backend), 0);
        let read = snapshot.range(KeyRange { descending, ..whole(Space::Records, false) }, |_, _| {
            count += 1;
            if count == 10 {
                backend = None;
            }
            ControlFlow::Continue(())
        });
        read.map_err(|error| failed("a range in which the backend is dropped fails", error))?;
        is("keys of a range in which the backend is dropped", &count, &KEYS)?;
    }
    Ok(())
}

fn a_backend_opens_again_after_its_snapshots_are_dropped<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for number in 0..10_u8 {
        let backend = fixture.open()?;
        write(&backend, &[put(Space::Lists, "key", [number])], true)?;
        let snapshot = snapshot(&backend)?;
        drop(backend);
        is("the value of a dropped backend", &get(&snapshot, Space::Lists, b"key")?, &Some(vec![number]))?;
    }
    Ok(())
}
