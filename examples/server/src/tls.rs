//! The server's certificate, and its being replaced.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use platform_http::Tls;

use crate::config::Config;

/// How often a server looks whether its certificate was replaced.
const INTERVAL: Duration = Duration::from_secs(1);

/// Returns what the configuration says, if anything, and follows its files from then on.
pub(crate) fn open(config: &Config) -> Result<Option<Arc<Tls>>> {
    let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
    let tls = Arc::new(Tls::from_files(certificate, key).context("cannot speak TLS")?);
    tokio::spawn(follow(Arc::clone(&tls)));
    Ok(Some(tls))
}

async fn follow(tls: Arc<Tls>) {
    let mut told = String::new();
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
                    tracing::info!("new connections get the certificate that replaced the old one");
                }
                told.clear();
            }
            // Once for each fault, and not each second.
            Ok(Err(error)) if error != told => {
                tracing::warn!(error, "the certificate was not replaced");
                told = error;
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
}
