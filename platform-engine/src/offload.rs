//! Where work is done that keeps a processor busy for longer than other requests can wait.

use std::{fmt::Debug, sync::Arc};

use parking_lot::Mutex;

use crate::{
    BoxFuture,
    error::{Error, Result},
};

/// Work that takes milliseconds of a processor's time.
pub type Work = Box<dyn FnOnce() + Send>;

/// Does work apart from the requests of an asynchronous runtime, which this crate does not depend on.
///
/// It runs the checks of fields that are [`costly`](crate::kind::Field::costly). Without one, a platform does the work
/// in the calling thread, as [`Inline`] does.
pub trait Offload: Debug + Send + Sync + 'static {
    /// Does the work, and returns when it is done. `share` names the organization that it is for, so that one
    /// organization cannot take all of the capacity.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with a RetryInfo ([`Error::exhausted`]) when too much work is queued: nothing was done.
    fn run<'a>(&'a self, share: &'a str, work: Work) -> BoxFuture<'a, Result<()>>;
}

/// Does the work at once, in the caller's thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Offload for Inline {
    fn run<'a>(&'a self, _: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
        work();
        Box::pin(async { Ok(()) })
    }
}

/// Does work that has a result.
pub(crate) async fn run<T: Send + 'static>(
    offload: &dyn Offload,
    share: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let result = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&result);
    offload.run(share, Box::new(move || *slot.lock() = Some(work()))).await?;
    let result = result.lock().take();
    result.ok_or_else(|| Error::internal("work was not done"))
}
