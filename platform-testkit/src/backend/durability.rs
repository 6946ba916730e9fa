//! Rule 6: with `sync`, a batch and all before it are durable when the write returns.
//!
//! A process that is killed loses what it has not passed to the system. The losses of a power cut are found by a recorder of
//! file operations only.

use platform_store_kv::{Backend, backend::Space};

use super::{
    Case, Outcome, cases,
    child::{Role, kill_each},
    fixture::{Fixture, is, snapshot, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        a_synced_batch_exists_after_the_backend_is_opened_again,
        a_killed_process_loses_no_synced_batch,
        a_synced_batch_makes_earlier_ones_durable_and_others_are_lost_from_the_end,
    ]
}

fn a_synced_batch_exists_after_the_backend_is_opened_again<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for number in 1..=12 {
        let backend = fixture.open()?;
        is("the last batch, after opening again", &numbered::last(&snapshot(&backend)?)?, &(number - 1))?;
        write(&backend, &numbered::batch(number), true)?;
    }
    Ok(())
}

fn is_kept(last: u64, said: u64) -> Outcome {
    if last >= said { Ok(()) } else { Err(format!("batch {said} was synced, and the last batch is {last}")) }
}

fn a_killed_process_loses_no_synced_batch<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    kill_each(fixture, Role::Write, |backend, said| {
        is_kept(numbered::last_of(&snapshot(backend)?, Space::State)?, said)
    })
}

/// The process ends without a sync of its last batches, so that these may be missing, but none before another.
fn a_synced_batch_makes_earlier_ones_durable_and_others_are_lost_from_the_end<B: Backend>(
    fixture: &Fixture<'_, B>,
) -> Outcome {
    let backend = fixture.open()?;
    (1..=3).try_for_each(|number| write(&backend, &numbered::batch(number), true))?;
    drop(backend);
    kill_each(fixture, Role::Abort, |backend, said| is_kept(numbered::last(&snapshot(backend)?)?, said))
}
