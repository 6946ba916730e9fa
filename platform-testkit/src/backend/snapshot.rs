//! Rule 1: all reads of a snapshot are of one state of all spaces.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use platform_store_kv::{
    Backend,
    backend::{KeyRange, Snapshot as _, Space},
};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, failed, get, is, put, snapshot, whole, write},
    numbered,
};
use crate::on_drop::SetOnDrop;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        a_later_batch_does_not_change_it,
        it_is_of_one_state_of_all_spaces_while_batches_are_written,
        a_range_does_not_see_what_is_written_while_it_is_read,
        it_has_the_last_batch_that_was_written,
    ]
}

/// How long a batch may wait for a snapshot: a library without snapshots has a lock between them.
const LOCKED: Duration = Duration::from_secs(1);

fn a_later_batch_does_not_change_it<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = &fixture.open()?;
    write(backend, &numbered::batch(1), true)?;
    let before = snapshot(backend)?;
    thread::scope(|scope| {
        let (written, is_written) = mpsc::channel();
        let writing = scope.spawn(move || {
            let done = (2..=4).try_for_each(|number| write(backend, &numbered::batch(number), true));
            // The case may have failed.
            let _ = written.send(());
            done
        });
        let _ = is_written.recv_timeout(LOCKED);
        let number = numbered::last(&before).map_err(|error| failed("a snapshot of batch 1, after others", error));
        drop(before);
        writing.join().map_err(|_| "a write panicked".to_owned())??;
        is("the last batch of a snapshot that is older than the others", &number?, &1)
    })?;
    is("the last batch of a new snapshot", &numbered::last(&snapshot(backend)?)?, &4)
}

fn it_is_of_one_state_of_all_spaces_while_batches_are_written<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    const BATCHES: u64 = 200;
    let backend = &fixture.open()?;
    let is_done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(move || {
            let _done = SetOnDrop(is_done);
            (1..=BATCHES).try_for_each(|number| write(backend, &numbered::batch(number), number % 20 == 0))
        });
        let mut seen = 0;
        let read = loop {
            let was_done = is_done.load(Ordering::Acquire);
            match snapshot(backend).and_then(|snapshot| numbered::last(&snapshot)) {
                Ok(number) if number < seen => break Err(format!("batch {number} is the last one after {seen}")),
                Ok(number) => seen = number,
                Err(error) => break Err(error),
            }
            if was_done {
                break is("the last batch, after all", &seen, &BATCHES);
            }
            thread::yield_now();
        };
        writing.join().map_err(|_| "a write panicked".to_owned())??;
        read
    })
}

fn a_range_does_not_see_what_is_written_while_it_is_read<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = &fixture.open()?;
    for descending in [false, true] {
        let keys = |round: u8| (0..200_u8).map(move |key| put(Space::Entries, [key, 0], [round]));
        write(backend, &keys(0).collect::<Vec<_>>(), true)?;
        let before = snapshot(backend)?;
        let next = if descending { [99, 1] } else { [101, 1] };
        thread::scope(|scope| {
            let (written, is_written) = mpsc::channel();
            let mut writing = None;
            let mut taken = Vec::new();
            let read = before.range(KeyRange { descending, ..whole(Space::Entries, false) }, |key, value| {
                taken.push((key.to_vec(), value.to_vec()));
                if taken.len() == 100 {
                    let written = written.clone();
                    writing = Some(scope.spawn(move || {
                        let changed: Vec<_> = keys(1).chain([put(Space::Entries, next, [1])]).collect();
                        let done = write(backend, &changed, true);
                        // The case may have failed.
                        let _ = written.send(());
                        done
                    }));
                    let _ = is_written.recv_timeout(LOCKED);
                }
                std::ops::ControlFlow::Continue(())
            });
            drop(before);
            if let Some(writing) = writing {
                writing.join().map_err(|_| "a write panicked".to_owned())??;
            }
            read.map_err(|error| failed("a range fails while a batch is written", error))?;
            is("pairs of a range during which others were written", &taken.len(), &200)?;
            let new = taken.iter().filter(|(_, value)| value != &[0]).count();
            is("later values in a range of an earlier snapshot", &new, &0)
        })?;
        write(backend, &[super::fixture::delete(Space::Entries, next)], true)?;
    }
    Ok(())
}

fn it_has_the_last_batch_that_was_written<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    for number in 0..50_u8 {
        write(&backend, &[put(Space::Names, "key", [number])], number % 2 == 0)?;
        let found = get(&snapshot(&backend)?, Space::Names, b"key")?;
        is("the value that was just written", &found, &Some(vec![number]))?;
    }
    Ok(())
}
