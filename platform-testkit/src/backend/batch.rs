//! Rule 5: a batch is written entirely or not at all, and all spaces exist from the opening on.

use platform_store_kv::{Backend, backend::Space};

use super::{
    Case, Outcome, cases,
    child::{Role, kill_each},
    fixture::{Fixture, all, delete, failed, get, is, pairs_are, put, snapshot, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        spaces_that_were_never_written_are_empty,
        it_sets_and_deletes_keys_of_all_spaces,
        keys_that_do_not_exist_can_be_deleted,
        it_can_be_empty_and_it_can_be_large,
        a_killed_process_leaves_no_part_of_it,
    ]
}

fn spaces_that_were_never_written_are_empty<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for round in ["new", "opened again"] {
        let backend = fixture.open()?;
        let snapshot = snapshot(&backend)?;
        for space in Space::ALL {
            let what = format!("{} of a {round} backend", space.name());
            pairs_are(&what, &all(&snapshot, space)?, &[])?;
            is(&what, &get(&snapshot, space, b"key")?, &None)?;
        }
    }
    let backend = fixture.open()?;
    write(&backend, &[put(Space::Records, "key", "value")], true)?;
    for space in Space::ALL.into_iter().filter(|space| *space != Space::Records) {
        pairs_are(space.name(), &all(&snapshot(&backend)?, space)?, &[])?;
    }
    Ok(())
}

fn it_sets_and_deletes_keys_of_all_spaces<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    for _ in 0..2 {
        let backend = fixture.open()?;
        let first = numbered::last(&snapshot(&backend)?)?;
        for number in first + 1..=first + 20 {
            write(&backend, &numbered::batch(number), true)?;
            is("the last batch", &numbered::last(&snapshot(&backend)?)?, &number)?;
        }
    }
    Ok(())
}

fn keys_that_do_not_exist_can_be_deleted<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let backend = fixture.open()?;
    for space in Space::ALL {
        write(&backend, &[delete(space, "missing")], true)?;
        write(&backend, &[delete(space, "missing"), put(space, "key", "value"), delete(space, "other")], true)?;
        pairs_are(space.name(), &all(&snapshot(&backend)?, space)?, &[(b"key".to_vec(), b"value".to_vec())])?;
    }
    Ok(())
}

fn it_can_be_empty_and_it_can_be_large<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    const KEYS: u32 = 20_000;
    let backend = fixture.open()?;
    for sync in [false, true] {
        write(&backend, &[], sync).map_err(|error| failed("an empty batch", error))?;
    }
    let key = |number: u32| number.to_be_bytes().to_vec();
    write(&backend, &(0..KEYS).map(|number| put(Space::Nodes, key(number), [7; 100])).collect::<Vec<_>>(), true)?;
    is("keys of a large batch", &all(&snapshot(&backend)?, Space::Nodes)?.len(), &(KEYS as usize))?;
    write(&backend, &(0..KEYS).map(|number| delete(Space::Nodes, key(number))).collect::<Vec<_>>(), true)?;
    write(&backend, &[], true)?;
    is("keys after a large batch of deletes", &all(&snapshot(&backend)?, Space::Nodes)?.len(), &0)
}

fn a_killed_process_leaves_no_part_of_it<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    kill_each(fixture, Role::Write, |backend, _| numbered::last(&snapshot(backend)?).map(drop))
}
