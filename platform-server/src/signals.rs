//! Signals that stop the process.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that completes at the first SIGTERM or SIGINT. A second signal ends the process at once.
pub(crate) fn stopped() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: draining open requests");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    })
}
