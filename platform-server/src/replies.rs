//! The deletion of replies that were kept for idempotency keys and have expired.

use std::{sync::Arc, time::Duration};

use platform_engine::platform::Platform;
use tokio::time::{MissedTickBehavior, interval};

/// Time between searches for expired replies. Each one reads at most 500 records if none has expired.
const INTERVAL: Duration = Duration::from_secs(60);

/// Deletes expired replies once a minute, until the runtime stops.
pub(crate) fn delete_expired(platform: Arc<Platform>) {
    tokio::spawn(async move {
        let mut interval = interval(INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if platform.is_read_only() {
                continue;
            }
            // Each step is one small commit, between which those of requests are made.
            while let Some(true) = step(&platform).await {}
        }
    });
}

/// Deletes some expired replies, and returns whether there may be more; `None` after an error.
async fn step(platform: &Platform) -> Option<bool> {
    let deleted = platform.delete_expired_replies().await;
    deleted.inspect_err(|error| tracing::warn!(%error, "cannot delete expired replies")).ok()
}
