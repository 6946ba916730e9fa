//! A store that holds one call back until a test lets it go, so that a test decides who comes first.

use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
};

use platform_core::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, memory::MemoryStore};

/// The methods of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Get,
    List,
    Commit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    /// Such a call on another thread is held back, after as many that are not.
    Armed(Call, usize),
    Held,
}

/// A memory store with a gate.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    store: MemoryStore,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Paused {
    pub(crate) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }
}

impl Gate {
    /// Runs one thing until it makes this call, then another as a whole, then the rest of the first; returns what the
    /// first returned. The first may end without such a call.
    pub(crate) fn between<T: Send>(&self, call: Call, first: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
        self.between_nth(call, 0, first, then)
    }

    /// As [`Self::between`], with as many such calls before the one that waits.
    pub(crate) fn between_nth<T: Send>(
        &self,
        call: Call,
        nth: usize,
        first: impl FnOnce() -> T + Send,
        then: impl FnOnce(),
    ) -> T {
        *self.state.lock().unwrap() = State::Armed(call, nth);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let done = first();
                self.open();
                done
            });
            self.wait(|state| matches!(state, State::Armed(..)));
            then();
            self.open();
            first.join().expect("the first does not panic")
        })
    }

    fn wait(&self, while_so: impl Fn(State) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| while_so(*state)).unwrap());
    }

    fn open(&self) {
        *self.state.lock().unwrap() = State::Open;
        self.changed.notify_all();
    }

    fn pass(&self, call: Call) {
        {
            let mut state = self.state.lock().unwrap();
            match *state {
                State::Armed(armed, 0) if armed == call => *state = State::Held,
                State::Armed(armed, nth) if armed == call => {
                    *state = State::Armed(call, nth - 1);
                    return;
                }
                _ => return,
            }
        }
        self.changed.notify_all();
        self.wait(|state| state == State::Held);
    }
}

#[async_trait::async_trait]
impl Store for Paused {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        self.gate.pass(Call::Get);
        self.store.get(keys, epochs).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.gate.pass(Call::List);
        self.store.list(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.gate.pass(Call::Commit);
        self.store.commit(commit).await
    }
}
