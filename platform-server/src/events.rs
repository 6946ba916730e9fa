//! Delivery of events while the server runs, and `platform-server events`, with which an operator inspects it.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use platform_engine::platform::Platform;
use platform_events::{Dispatcher, Options, Policy, Wakeups, Webhook, WebhookOptions};
use platform_oidc::Issuer;
use platform_outbound::Network;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    cli,
    config::Config,
    installation::Shared,
    otlp::{self, Otlp},
    shared::{SharedStore, carry_wakeups, random_name, send_last},
};

mod command;
mod operator;

pub(crate) use operator::routes;

pub(crate) fn run(config: &Config, events: &cli::Events) -> Result<ExitCode> {
    command::run(config, events)
}

/// Handle of the task that delivers events.
pub(crate) struct Delivery {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    shared: Option<(Arc<dyn SharedStore>, Arc<Wakeups>)>,
}

impl Delivery {
    /// Starts the delivery task, which traces deliveries for the collector, if there is one. `shared` is the store, if several servers share it.
    pub(crate) fn start(
        (config, otlp): (&Config, Option<&Otlp>),
        platform: Arc<Platform>,
        (issuer, network): (Arc<Issuer>, Network),
        shared: Option<&Shared>,
    ) -> Result<Self> {
        let options = &config.events;
        let webhook = WebhookOptions {
            allow_http: options.allow_http_sinks,
            allow_private: options.allow_private_sinks,
            network,
            stamp: otlp.and(otlp::STAMP),
            ..WebhookOptions::default()
        };
        let webhook = Webhook::new(issuer, webhook).context("cannot set up TLS")?;
        let options = Options {
            name: dispatcher_name(config, shared.is_some()),
            policy: Policy { backlog: options.max_backlog, ..Policy::default() },
            timeout: options.sink_timeout,
            // A lease must outlast a delivery attempt, by more than a second however short the attempt is.
            lease: options.sink_timeout.saturating_mul(2).saturating_add(Duration::from_secs(10)),
            ..Options::default()
        };
        let shared = shared.map(|shared| (Arc::clone(&shared.store), Arc::clone(&shared.wakeups)));
        if let Some((store, wakeups)) = &shared {
            carry_wakeups(store, wakeups, &platform);
        }
        let (stop, stopped) = oneshot::channel();
        let dispatcher = Dispatcher::new(platform, otlp::sink(webhook, otlp), options);
        let task = tokio::spawn(dispatcher.run(async { drop::<Result<(), _>>(stopped.await) }));
        Ok(Self { stop, task, shared })
    }

    /// Stops the delivery task after the deliveries in flight.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
        if let Some((store, wakeups)) = &self.shared {
            send_last(&**store, wakeups).await;
        }
    }
}

/// Returns the name under which this server leases subscriptions.
fn dispatcher_name(config: &Config, is_shared: bool) -> String {
    match (&config.instance, is_shared) {
        (Some(name), _) => name.clone(),
        // Another server may be running, so the name must be this one's alone.
        (None, true) => random_name(),
        // Only one process at a time can open the store, so an earlier dispatcher of this name has ended and its leases
        // can be taken over.
        (None, false) => "platform-server".to_owned(),
    }
}
