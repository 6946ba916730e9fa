//! A store that blocks one call until a test releases it, so that a test controls the interleaving.

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
    /// The next such call is blocked, after this number of such calls has passed.
    Armed(Call, usize),
    /// A call is blocked.
    Held,
}

/// A memory store with a gate.
#[derive(Debug, Default)]
pub(crate) struct GatedStore {
    store: MemoryStore,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl GatedStore {
    pub(crate) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }
}

impl Gate {
    /// Runs `first` on another thread until it makes this call, then all of `then`, then the rest of `first`; returns
    /// the result of `first`, which may end without such a call.
    pub(crate) fn interleave<T: Send>(&self, call: Call, first: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
        self.interleave_nth(call, 0, first, then)
    }

    /// Like [`Self::interleave`], but `nth` such calls pass before one is blocked.
    pub(crate) fn interleave_nth<T: Send>(
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
            self.wait_while(|state| matches!(state, State::Armed(..)));
            then();
            self.open();
            first.join().expect("`first` does not panic")
        })
    }

    fn wait_while(&self, condition: impl Fn(State) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| condition(*state)).unwrap());
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
        self.wait_while(|state| state == State::Held);
    }
}

#[async_trait::async_trait]
impl Store for GatedStore {
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
