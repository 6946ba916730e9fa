//! SIGHUP: reads the configuration again and applies the settings that can change while the server runs.

use std::{ffi::OsString, sync::Arc};

use anyhow::{Context, Result, anyhow};
use platform_http::{Shares, Tls};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Kinds, config,
    explain::{self, Setting},
    log::{Log, LogFilter},
};

/// Options that a reload applies, besides the contents of the TLS files.
const RELOADED: [&str; 5] = ["log", "slow-request", "open-rate", "identity-rate", "organization-rate"];

/// The settings that a reload changes.
pub(crate) struct Reload {
    /// The command line.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) log: Log,
    pub(crate) shares: Arc<Shares>,
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Reload {
    /// Spawns a task that reloads on each SIGHUP.
    pub(crate) fn on_hangup(self) -> Result<()> {
        let mut hangups = signal(SignalKind::hangup()).context("cannot wait for signals")?;
        let mut current = explain::settings(&self.arguments)?;
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                match self.reload() {
                    Ok(settings) => {
                        report(&current, &settings);
                        current = settings;
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        tracing::error!(error, "the configuration was not reloaded: nothing has changed");
                    }
                }
            }
        });
        Ok(())
    }

    /// Reads the configuration and applies it. On an error, nothing has changed.
    fn reload(&self) -> Result<Vec<Setting>> {
        let config = config::parse(self.arguments.clone(), Kinds::default())?.config;
        let settings = explain::settings(&self.arguments)?;
        let filter = LogFilter::parse(&config.log).map_err(|rule| anyhow!("invalid log filter: {rule}"))?;
        if let Some(tls) = &self.tls {
            tls.reload().context("cannot reload the TLS certificate")?;
        }
        self.log.filter.set(filter)?;
        self.log.slow.set(config.observe.slow_request);
        self.shares.set_rates(&config.limits.limits());
        Ok(settings)
    }
}

/// Logs the options that have changed.
fn report(before: &[Setting], after: &[Setting]) {
    let changed = after.iter().zip(before).filter(|(after, before)| after.value != before.value);
    let (reloaded, fixed): (Vec<_>, Vec<_>) =
        changed.map(|(setting, _)| setting.name.as_str()).partition(|name| RELOADED.contains(name));
    tracing::info!(changed = reloaded.join(", "), "reloaded the configuration");
    if !fixed.is_empty() {
        tracing::warn!(options = fixed.join(", "), "these changes take effect when the server is restarted");
    }
}
