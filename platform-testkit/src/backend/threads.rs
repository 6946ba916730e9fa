//! Rule 12: one thread writes; snapshots are sent between threads, and each is read within ranges of it.

use std::{ops::ControlFlow, thread};

use platform_store_kv::{
    Backend,
    backend::{Snapshot as _, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, failed, get, is, put, range, snapshot, whole, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        a_thread_has_many_snapshots_at_once,
        snapshots_are_sent_between_threads,
        threads_read_at_the_same_time,
        a_snapshot_is_read_within_a_range_of_it,
    ]
}

const MANY: u64 = 20;

fn a_thread_has_many_snapshots_at_once<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    write(&backend, &numbered::batch(1), true)?;
    let mut snapshots = (0..MANY).map(|_| snapshot(&backend)).collect::<Result<Vec<_>, _>>()?;
    while !snapshots.is_empty() {
        for snapshot in &snapshots {
            is("the last batch of one of many snapshots", &numbered::last(snapshot)?, &1)?;
        }
        // Neither the oldest one nor the newest.
        snapshots.swap_remove(snapshots.len() / 2);
    }
    write(&backend, &numbered::batch(2), true)
}

fn snapshots_are_sent_between_threads<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = &fixture.open()?;
    for number in 1..=MANY {
        // A thread writes, another makes the snapshot, a third reads it, and the fourth drops it.
        let joined = || "a thread panicked".to_owned();
        thread::scope(|scope| {
            scope.spawn(|| write(backend, &numbered::batch(number), true)).join().map_err(|_| joined())
        })??;
        let made = thread::scope(|scope| scope.spawn(|| snapshot(backend)).join().map_err(|_| joined()))??;
        let read = move || numbered::last(&made).map(|last| (last, made));
        let (last, made) = thread::scope(|scope| scope.spawn(read).join().map_err(|_| joined()))??;
        is("the last batch of a snapshot of another thread", &last, &number)?;
        thread::scope(|scope| scope.spawn(move || drop(made)).join().map_err(|_| joined()))?;
    }
    Ok(())
}

fn threads_read_at_the_same_time<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = &fixture.open()?;
    write(backend, &numbered::batch(1), true)?;
    thread::scope(|scope| {
        let read = || (0..MANY).try_for_each(|_| is("the last batch", &numbered::last(&snapshot(backend)?)?, &1));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a read panicked".to_owned())?)
    })
}

fn a_snapshot_is_read_within_a_range_of_it<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    let keys = (0..100_u8).flat_map(|key| [put(Space::Sequence, [key], [key]), put(Space::Records, [key], [key, key])]);
    write(&backend, &keys.collect::<Vec<_>>(), true)?;
    let snapshot = snapshot(&backend)?;
    for descending in [false, true] {
        let (mut count, mut result) = (0, Ok(()));
        let read = snapshot.range(whole(Space::Sequence, descending), |key, value| {
            let within = || {
                is("a value", &get(&snapshot, Space::Records, value)?, &Some([key, key].concat()))?;
                is("keys of a range within a range", &range(&snapshot, whole(Space::Records, descending))?.len(), &100)
            };
            count += 1;
            result = within();
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        read.map_err(|error| failed("a range", error))?;
        is("keys of a range", &count, &100)?;
    }
    Ok(())
}
