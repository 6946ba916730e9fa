//! The interface for CPU-bound work that would block other requests for too long: it runs on other threads, or in steps
//! with pauses.
//!
//! The work of a list runs in steps, and not on other threads: its amount is only known while it is done, a job for each
//! step would cost more than the step, and a job for the whole list would keep a thread of the pool from others.
//!
//! A pause has to go through the scheduler of the runtime. A future that wakes itself and returns `Pending`, such as
//! `futures_lite::future::yield_now`, is not enough: as long as there are tasks to poll, tokio looks at its sockets after
//! every 61st poll only.

use std::{fmt::Debug, sync::Arc};

use parking_lot::Mutex;

use crate::{
    BoxFuture,
    error::{Error, Result},
};

/// A unit of work that takes milliseconds of CPU time.
pub type Work = Box<dyn FnOnce() + Send>;

/// Runs CPU-bound work outside of the threads that serve requests, such as in the blocking thread pool of a runtime.
///
/// It runs the checks of fields that are [`costly`](crate::kind::Field::costly). The default is [`Inline`].
pub trait Offload: Debug + Send + Sync + 'static {
    /// Runs the work, and returns when it is finished. `share` is the uid of the organization that it is for, so that
    /// one organization cannot use all of the capacity.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with a RetryInfo ([`Error::exhausted`]) when too much work is queued. The work was not run.
    fn run<'a>(&'a self, share: &'a str, work: Work) -> BoxFuture<'a, Result<()>>;

    /// Returns to the scheduler of the runtime once, and is ready after the other tasks of the thread have been polled
    /// and events of sockets have been received.
    fn pause(&self) -> BoxFuture<'static, ()>;
}

/// Runs the work immediately, in the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Offload for Inline {
    fn run<'a>(&'a self, _: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
        work();
        Box::pin(async { Ok(()) })
    }

    /// Polls other tasks, and perhaps no events of sockets, because the runtime is not known.
    #[expect(clippy::disallowed_methods, reason = "the only pause that works in every runtime")]
    fn pause(&self) -> BoxFuture<'static, ()> {
        Box::pin(futures_lite::future::yield_now())
    }
}

/// Long work in steps: pauses whenever about 0.2 ms of work have been done since the last pause.
///
/// The work is counted in bytes of JSON that are read or written, so that the pauses do not depend on the clock.
#[derive(Debug)]
pub struct Pace<'o> {
    offload: &'o dyn Offload,
    done: usize,
}

/// The number of bytes of JSON between two pauses. Our choice: conversions between versions, which do most with each byte,
/// take 0.1 to 0.3 ms for them.
pub const SLICE: usize = 16 << 10;

/// The number of bytes that a step counts as, in addition to its own. Our choice.
const STEP: usize = 128;

impl<'o> Pace<'o> {
    /// Returns the pace of work that begins now.
    pub fn new(offload: &'o dyn Offload) -> Self {
        Self { offload, done: 0 }
    }

    /// Counts a step with this number of bytes, and pauses if it is time.
    pub async fn step(&mut self, bytes: usize) {
        self.done = self.done.saturating_add(bytes).saturating_add(STEP);
        if self.done >= SLICE {
            self.done = 0;
            self.offload.pause().await;
        }
    }
}

/// Runs work that has a result.
///
/// # Errors
/// As [`Offload::run`].
pub async fn run<T: Send + 'static>(
    offload: &dyn Offload,
    share: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let result = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&result);
    offload.run(share, Box::new(move || *slot.lock() = Some(work()))).await?;
    let result = result.lock().take();
    result.ok_or_else(|| Error::internal("the offloaded work was not run"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use pollster::block_on;

    use super::*;

    /// Counts the pauses.
    #[derive(Debug, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl Offload for Counting {
        fn run<'a>(&'a self, share: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
            Inline.run(share, work)
        }

        fn pause(&self) -> BoxFuture<'static, ()> {
            self.0.fetch_add(1, Relaxed);
            Inline.pause()
        }
    }

    #[test]
    fn work_pauses_after_each_slice_and_steps_without_bytes_are_work_too() {
        let offload = Counting::default();
        let pauses = |steps: usize, bytes: usize| {
            offload.0.store(0, Relaxed);
            let mut pace = Pace::new(&offload);
            block_on(async {
                for _ in 0..steps {
                    pace.step(bytes).await;
                }
            });
            offload.0.load(Relaxed)
        };
        assert_eq!(pauses(1, SLICE - STEP - 1), 0);
        assert_eq!(pauses(1, SLICE - STEP), 1);
        assert_eq!(pauses(10, SLICE / 2), 5);
        assert_eq!(pauses(10, usize::MAX), 10);
        assert_eq!(pauses(2 * SLICE / STEP, 0), 2);
    }
}
