//! The collection of blobs that no resource names.

use std::{sync::Arc, time::Duration};

use platform_engine::platform::Platform;
use platform_services::BLOB_GRACE_MILLIS;
use tokio::{
    sync::Mutex,
    time::{Instant, MissedTickBehavior, interval_at},
};

/// Time from the start of a server to the first collection.
const FIRST: Duration = Duration::from_secs(60 * 60);

/// Time between collections. Each one reads all images and charts.
const INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Collects unused blobs once a day, until the runtime stops. Holds `turn` until it has finished, so that none is deleted while a backup is made.
pub(crate) fn collect_daily(platform: Arc<Platform>, turn: Arc<Mutex<()>>) {
    tokio::spawn(async move {
        let mut interval = interval_at(Instant::now() + FIRST, INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let _turn = turn.lock().await;
            match platform.collect_blobs(BLOB_GRACE_MILLIS).await {
                Ok(deleted) => tracing::info!(deleted, "collected unused blobs"),
                Err(error) => tracing::error!(%error, "cannot collect unused blobs"),
            }
        }
    });
}
