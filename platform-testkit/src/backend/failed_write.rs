//! Rule 8: the outcome of a failed write is unknown, and the engine writes no more until the store is opened again.

use platform_engine::{
    store::{Commit, Key, Put, Store as _, StoreError},
    uid::Uid,
};
use platform_store_kv::{Backend, KvOptions, KvStore};
use pollster::block_on;

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, failed, is, snapshot, try_write, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![
        a_failed_write_is_an_error_and_all_of_its_batch_is_written_or_nothing,
        a_store_writes_no_more_until_it_is_opened_again,
    ]
}

fn fail<B: Backend>(fixture: &Fixture<'_, B>, backend: &B) {
    fixture.suite.failing_writes.iter().for_each(|fail| fail(backend));
}

fn a_failed_write_is_an_error_and_all_of_its_batch_is_written_or_nothing<B: Backend>(
    fixture: &Fixture<'_, B>,
) -> Outcome {
    for sync in [true, false] {
        let backend = fixture.open()?;
        let last = numbered::last(&snapshot(&backend)?)?;
        write(&backend, &numbered::batch(last + 1), true)?;
        fail(fixture, &backend);
        let written = try_write(&backend, &numbered::batch(last + 2), sync);
        if sync {
            is("whether a synced write that cannot write to the disk fails", &written.is_err(), &true)?;
        }
        // A snapshot may fail, too, but has no part of the batch.
        let shown = snapshot(&backend).ok().map(|snapshot| numbered::last(&snapshot)).transpose();
        let shown = shown.map_err(|error| failed("after a failed write", error))?;
        drop(backend);
        let found =
            numbered::last(&snapshot(&fixture.open()?)?).map_err(|error| failed("after opening again", error))?;
        is("whether the batches before a failed write exist", &(found > last), &true)?;
        if matches!(written, Err(StoreError::Full(_))) {
            is("the last batch in a snapshot, after a write that failed with `Full`", &shown, &Some(last + 1))?;
            is("the last batch after opening again, after a write that failed with `Full`", &found, &(last + 1))?;
        }
    }
    Ok(())
}

fn key(number: u32) -> Key {
    Key::new("Thing", Uid::opaque(format!("group/{number}")))
}

fn commit<B: Backend>(store: &KvStore<B>, number: u32) -> Result<(), StoreError> {
    let put = Put {
        key: key(number),
        sort: Vec::new(),
        filter: Vec::new(),
        unique: Vec::new(),
        search: Vec::new(),
        rendering: 1,
        body: vec![b'x'; 1_000].into(),
        private: bytes::Bytes::new(),
        queue: false,
        revision: None,
    };
    block_on(store.commit(Commit { put: vec![put], ..Commit::default() })).map(drop)
}

fn store<B: Backend>(fixture: &Fixture<'_, B>) -> Result<KvStore<B>, String> {
    let options = KvOptions::new("suite", fixture.directory().to_owned());
    KvStore::open(fixture.open()?, options).map_err(|error| failed("a store over the backend does not open", error))
}

fn a_store_writes_no_more_until_it_is_opened_again<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let opened = store(fixture)?;
    commit(&opened, 1).map_err(|error| failed("the first commit", error))?;
    fail(fixture, opened.backend());
    let outcome = commit(&opened, 2);
    if let Err(StoreError::Full(_)) = outcome {
        return Ok(());
    }
    let is_unknown = matches!(outcome, Err(StoreError::Unknown(_)));
    is(&format!("whether the outcome of a commit whose write fails is unknown ({outcome:?})"), &is_unknown, &true)?;
    let next = commit(&opened, 3);
    let is_stopped = matches!(next, Err(StoreError::Unavailable(_)));
    is(&format!("whether the next commit is refused ({next:?})"), &is_stopped, &true)?;
    drop(opened);
    let opened = store(fixture)?;
    commit(&opened, 4).map_err(|error| failed("a commit after opening again", error))?;
    let keys = [1, 3, 4].map(key);
    let read = block_on(opened.get(&keys, &[])).map_err(|error| failed("a get", error))?;
    let exist: Vec<_> = read.records.iter().map(Option::is_some).collect();
    is("whether the records of the first, the refused and the last commit exist", &exist, &vec![true, false, true])?;
    let findings = opened.check().map_err(|error| failed("the check of the store", error))?;
    is("findings of the check", &findings, &Vec::new())
}
