//! The server's TLS certificate, reloaded when its files change.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use platform_http::Tls;

use crate::config::Config;

/// Interval at which a server checks for a new certificate.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns the configured TLS settings, if any, and spawns a task that reloads their files when they change.
pub(crate) fn open(config: &Config) -> Result<Option<Arc<Tls>>> {
    let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
    let tls = Arc::new(Tls::from_files(certificate, key).context("cannot set up TLS")?);
    tokio::spawn(watch(Arc::clone(&tls)));
    Ok(Some(tls))
}

async fn watch(tls: Arc<Tls>) {
    let mut reported = String::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let read = Arc::clone(&tls);
        let reloaded = tokio::task::spawn_blocking(move || {
            read.reload().map_err(|error| format!("{:#}", anyhow::Error::from(error)))
        })
        .await;
        match reloaded {
            Ok(Ok(is_new)) => {
                if is_new {
                    tracing::info!("reloaded the TLS certificate for new connections");
                }
                reported.clear();
            }
            // Logs each error once and not every second.
            Ok(Err(error)) if error != reported => {
                tracing::warn!(error, "cannot reload the TLS certificate");
                reported = error;
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}
