//! Long work of a request: it may block its thread, and only some of it runs at once.

use std::sync::Arc;

use platform_engine::{
    error::{Code, Detail, Error, Result},
    request_scope::RequestScope,
};

/// Runs a part of a request in a thread that it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    scope: Option<Arc<RequestScope>>,
    part: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let part = move || match scope {
        Some(scope) => scope.enter(part),
        None => part(),
    };
    tokio::task::spawn_blocking(part).await.map_err(Error::internal)
}

/// Retry delay in milliseconds for clients when too much work is in progress.
const RETRY_MILLIS: u64 = 1000;

/// Returns the error when the most that can run at once is running, such as `imports`.
pub(crate) fn at_most(what: &str, most: usize) -> Error {
    let error = Error::new(Code::ResourceExhausted, format!("At most {most} {what} can run at once"));
    error.with(Detail::RetryInfo { millis: RETRY_MILLIS })
}
