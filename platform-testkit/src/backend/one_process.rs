//! Rule 9: a second opener is refused, in this process and in another, without waiting.

use std::{sync::mpsc, thread, time::Duration};

use platform_store_kv::Backend;

use super::{
    Case, Outcome, cases,
    child::{Role, Running},
    fixture::{Fixture, is, snapshot, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        a_second_opener_in_this_process_is_refused,
        another_process_is_refused,
        it_opens_as_soon_as_another_process_was_killed,
    ]
}

/// After this time an opener counts as waiting for the lock. It is that long because a busy machine is slow to start a
/// process.
const WAITING: Duration = Duration::from_secs(10);

/// Verifies that the backend is as it was before another opener tried.
fn is_unharmed<B: Backend>(fixture: &Fixture<'_, B>, backend: B) -> Outcome {
    is("the last batch after another opener was refused", &numbered::last(&snapshot(&backend)?)?, &1)?;
    write(&backend, &numbered::batch(2), true)?;
    drop(backend);
    is("the last batch after opening again", &numbered::last(&snapshot(&fixture.open()?)?)?, &2)
}

fn a_second_opener_in_this_process_is_refused<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    write(&backend, &numbered::batch(1), true)?;
    thread::scope(|scope| {
        let (opened, is_opened) = mpsc::channel();
        scope.spawn(move || opened.send(fixture.open().is_ok()));
        let is_open = is_opened.recv_timeout(WAITING);
        let Ok(is_open) = is_open else {
            // Its lock is what the other opener waits for.
            drop(backend);
            return Err("a second opener waits for the lock, or for something else".to_owned());
        };
        is("whether a second opener in the same process succeeds", &is_open, &false)?;
        is_unharmed(fixture, backend)
    })
}

fn another_process_is_refused<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    write(&backend, &numbered::batch(1), true)?;
    let mut running = Running::start(fixture, Role::Open)?;
    let (said, is_said) = mpsc::channel();
    thread::spawn(move || said.send(running.next()));
    match is_said.recv_timeout(WAITING) {
        Ok(Ok(Some(_))) => Err("another process opens the backend, which is open here".to_owned()),
        Ok(Ok(None)) => Err("another process ended without a word".to_owned()),
        Ok(Err(_refused)) => is_unharmed(fixture, backend),
        Err(_) => Err("another process waits for the lock, or for something else".to_owned()),
    }
}

fn it_opens_as_soon_as_another_process_was_killed<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for _ in 0..3 {
        let mut running = Running::start(fixture, Role::Write)?;
        running.next()?;
        let refused = fixture.open();
        is("whether it opens while another process has it open", &refused.is_ok(), &false)?;
        drop(running);
        numbered::last(&snapshot(&fixture.open()?)?)?;
    }
    Ok(())
}
