//! A store that blocks one call until a test releases it, so that a test controls the interleaving.

use std::thread;

use parking_lot::{Condvar, Mutex};
use platform_engine::store::StoreError;

use super::watched_store::{Call, Watch, WatchedStore};

/// A store with a [`Gate`], which blocks one call until a test releases it.
///
/// ```
/// use platform_engine::{store::{Commit, Epoch, Store}, uid::Uid};
/// use platform_testkit::{Call, GatedStore};
/// use pollster::block_on;
///
/// let (store, gate) = GatedStore::in_memory();
/// let epoch = Epoch::new("changes", Uid::opaque("a"));
/// let raise = || block_on(store.commit(Commit { raise: vec![epoch.clone()], ..Commit::default() })).unwrap();
/// let read = || block_on(store.get(&[], &[epoch.clone()])).unwrap().epochs;
/// // The read begins before the epoch is raised, and is blocked until it is.
/// assert_eq!(gate.interleave(Call::Get, read, || drop(raise())), [1]);
/// ```
pub type GatedStore = WatchedStore<Gate>;

/// Blocks one call of a [`GatedStore`] until a test releases it.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
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

impl Gate {
    /// Runs `first` on another thread until it makes this call, then all of `then`, then the rest of `first`; returns
    /// the result of `first`, which may end without such a call.
    pub fn interleave<T: Send>(&self, call: Call, first: impl FnOnce() -> T + Send, then: impl FnOnce()) -> T {
        self.interleave_nth(call, 0, first, then)
    }

    /// Like [`Gate::interleave`], but `nth` such calls pass before one is blocked.
    pub fn interleave_nth<T: Send>(
        &self,
        call: Call,
        nth: usize,
        first: impl FnOnce() -> T + Send,
        then: impl FnOnce(),
    ) -> T {
        *self.state.lock() = State::Armed(call, nth);
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
        self.changed.wait_while(&mut self.state.lock(), |state| condition(*state));
    }

    fn open(&self) {
        *self.state.lock() = State::Open;
        self.changed.notify_all();
    }
}

impl Watch for Gate {
    fn before(&self, call: Call) -> Result<(), StoreError> {
        {
            let mut state = self.state.lock();
            match *state {
                State::Armed(armed, 0) if armed == call => *state = State::Held,
                State::Armed(armed, nth) if armed == call => {
                    *state = State::Armed(call, nth - 1);
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
        self.changed.notify_all();
        self.wait_while(|state| state == State::Held);
        Ok(())
    }
}
