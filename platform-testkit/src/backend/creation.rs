//! Rule 10: a creation that is interrupted leaves an empty store or none.

use std::{
    thread,
    time::{Duration, Instant},
};

use platform_store_kv::Backend;

use super::{
    Case, Outcome, cases,
    child::{Role, Running},
    fixture::{Fixture, failed, is, snapshot, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![an_interrupted_creation_leaves_a_directory_that_opens, a_store_that_was_created_is_not_created_again]
}

/// The time between the moments at which processes are killed, and their number: within the start of a process.
const STEP: Duration = Duration::from_micros(500);
const MOMENTS: u32 = 80;

fn an_interrupted_creation_leaves_a_directory_that_opens<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for moment in 0..fixture.suite.kills as u32 * 3 {
        let fixture = Fixture::new(fixture.suite)?;
        // Twice, so that the next opening is interrupted, too.
        for _ in 0..2 {
            let mut running = Running::start(&fixture, Role::Open)?;
            let started = Instant::now();
            while started.elapsed() < STEP * (moment % MOMENTS) {
                thread::yield_now();
            }
            running.kill()?;
            // It says that it has opened, or nothing.
            running.next().map_err(|error| failed("an opening after one that was interrupted", error))?;
        }
        let backend = fixture.open().map_err(|error| failed("after a creation that was interrupted", error))?;
        is("the last batch of a new backend", &numbered::last(&snapshot(&backend)?)?, &0)?;
        write(&backend, &numbered::batch(1), true)?;
        drop(backend);
        is("the last batch after opening again", &numbered::last(&snapshot(&fixture.open()?)?)?, &1)?;
    }
    Ok(())
}

fn a_store_that_was_created_is_not_created_again<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    drop(fixture.open()?);
    write(&fixture.open()?, &numbered::batch(1), true)?;
    for _ in 0..3 {
        is("the last batch", &numbered::last(&snapshot(&fixture.open()?)?)?, &1)?;
    }
    Ok(())
}
