//! The store of a stopped server, to which an operator's command writes.

use anyhow::{Context, Result};
use platform_engine::{
    access::Caller,
    error::Error,
    kind::{Imported, Resource},
    platform::Platform,
    uid::Uid,
};
use platform_services::BLOB_GRACE_MILLIS;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::{
    config::Config,
    installation::{Installation, Shared, runtime},
    shared::send_last,
    stores::{Purpose, is_in_use, reject_memory},
};

/// The installation to write to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Open {
    /// One that exists.
    Existing,
    /// One that exists or is created.
    ToImport,
}

/// Writes as the operator to a store that no server has open.
pub(crate) struct Direct {
    pub(crate) runtime: Runtime,
    pub(crate) platform: Platform,
    pub(crate) operator: Caller,
    organization: Uid,
    shared: Option<Shared>,
}

impl Drop for Direct {
    /// Tells running servers of the events that the command recorded.
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            self.runtime.block_on(send_last(&*shared.store, &shared.wakeups));
        }
    }
}

impl Direct {
    /// Opens the store of an installation. `otherwise` is the advice to print when a
    /// server has the store open.
    pub(crate) fn open(config: &Config, open: Open, otherwise: &str) -> Result<Self> {
        reject_memory(config, otherwise)?;
        let runtime = runtime()?;
        let installation = runtime.block_on(async {
            match open {
                Open::Existing => Installation::open_existing(config).await,
                Open::ToImport => Installation::open_to_import(config).await,
            }
        })?;
        let url = installation.known_url(config);
        let opened = runtime.block_on(installation.platform(config, &url, Purpose::Load));
        let platform = opened.map_err(|error| {
            if is_in_use(&error) {
                error.context(format!("the store is open in another process; if that is a server, {otherwise}"))
            } else {
                error
            }
        })?;
        let Installation { bootstrap, shared, .. } = installation;
        let (operator, organization) = (Caller::new(bootstrap.operator), bootstrap.organization);
        Ok(Self { runtime, platform, operator, organization, shared })
    }

    /// Returns the uid of the first organization.
    pub(crate) fn organization(&self) -> &str {
        self.organization.as_str()
    }

    /// Runs an action of a kind as the operator.
    pub(crate) fn run<R: Resource>(&self, name: &str, request: &Map<String, Value>) -> Result<Value> {
        let action = R::ACTIONS.iter().find(|action| action.name == name);
        let action = action.with_context(|| format!("unknown action {name}"))?;
        let done = self.runtime.block_on(self.platform.run(Some(&self.operator), R::KIND, action, request));
        done.map_err(|error| match error.violations() {
            [] => error.into(),
            _ => anyhow::Error::msg(describe(&error)),
        })
    }

    /// Deletes the blobs that no resource names and that are older than the grace period, and returns their number.
    pub(crate) fn collect_blobs(&self) -> Result<u64> {
        Ok(self.runtime.block_on(self.platform.collect_blobs(BLOB_GRACE_MILLIS))?)
    }

    /// Removes all resources of a kind directly below a parent, and returns their number.
    pub(crate) fn remove<R: Imported>(&self, parent: &Uid) -> Result<u64> {
        Ok(self.runtime.block_on(self.platform.remove_all::<R>(&self.operator, parent))?)
    }
}

/// Returns all violations of an error on one line, or its message if it has none.
pub(crate) fn describe(error: &Error) -> String {
    let violations = error.violations().iter();
    let violations: Vec<_> = violations.map(|one| format!("{}: {}", one.field, one.description)).collect();
    if violations.is_empty() { error.message().to_owned() } else { violations.join("; ") }
}
