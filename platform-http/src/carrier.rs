//! Runs the rest of requests whose clients have gone, or that took too long
//! ([`Shielded`](platform_engine::request_scope::Shielded)).

use std::{sync::Arc, time::Duration};

use platform_engine::{
    BoxFuture,
    request_scope::{Shielded, Spawn},
};
use tokio::{
    runtime::Handle,
    time::{error::Elapsed, timeout},
};
use tokio_util::task::TaskTracker;

/// The requests that are carried to their end, as tasks of the runtime that serves them.
#[derive(Debug, Default)]
pub(crate) struct Carrier(TaskTracker);

impl Carrier {
    /// Waits until all requests have ended. New ones may begin until then.
    pub(crate) async fn ended(&self) {
        self.0.close();
        self.0.wait().await;
    }
}

impl Spawn for Carrier {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        // Without a runtime, the future is dropped: the process is ending.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.0.track_future(future));
        }
    }
}

/// Runs the part of a request that a time limit ends. If it has begun to change something by then, the rest of it is
/// carried to its end, so that its change has all of its effects.
///
/// # Errors
/// [`Elapsed`] when the limit has passed.
pub async fn within<F>(limit: Duration, part: F) -> Result<F::Output, Elapsed>
where
    F: Future<Output: Send> + Send + 'static,
{
    // A program that serves requests by a listener of its own does not wait for their rest when it stops.
    timeout(limit, Shielded::part(part, || Arc::new(Carrier::default()))).await
}
