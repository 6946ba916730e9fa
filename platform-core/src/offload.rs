//! Where work is done that keeps a processor busy for longer than other requests should wait.

use std::{fmt::Debug, sync::Arc};

use parking_lot::Mutex;

use crate::{
    BoxFuture,
    error::{Error, Result},
};

/// Work that takes milliseconds of a processor's time.
pub type Work = Box<dyn FnOnce() + Send>;

/// Does work beside the requests of an asynchronous runtime, which this crate does not know.
///
/// The values of fields with [`costly`](crate::kind::Field::costly) checks are checked by it. Without one, a platform
/// does the work where it comes up, as [`Inline`] does.
pub trait Offload: Debug + Send + Sync + 'static {
    /// Does the work, and returns when it is done. `share` names the organization that it is for, so that the work of
    /// one cannot keep out that of the others.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with a RetryInfo ([`Error::exhausted`]) when too much waits already: nothing was done.
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
