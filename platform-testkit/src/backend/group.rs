//! Rule 7: a snapshot shows a synced batch only after it is durable.

use platform_store_kv::{Backend, backend::Space};

use super::{
    Case, Outcome, cases,
    child::{Role, kill_each},
    fixture::{Fixture, snapshot},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![a_killed_process_loses_no_synced_batch_that_a_snapshot_has_shown]
}

fn a_killed_process_loses_no_synced_batch_that_a_snapshot_has_shown<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    kill_each(fixture, Role::Watch, |backend, seen| {
        let last = numbered::last_of(&snapshot(backend)?, Space::State)?;
        if last >= seen {
            Ok(())
        } else {
            Err(format!("a snapshot has shown batch {seen}, and the last batch is {last}"))
        }
    })
}
