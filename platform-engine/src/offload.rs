//! The interface for CPU-bound work that would block other requests for too long.

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
}

/// Runs the work immediately, in the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Offload for Inline {
    fn run<'a>(&'a self, _: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
        work();
        Box::pin(async { Ok(()) })
    }
}

/// Runs work that has a result.
pub(crate) async fn run<T: Send + 'static>(
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
