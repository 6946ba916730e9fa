//! Import into the store of a stopped server.

use anyhow::{Context, Result};
use platform_core::{
    access::Caller,
    error::Error,
    kind::{Imported, Resource},
    platform::Platform,
    uid::Uid,
};
use platform_import::{Done, Sink};
#[cfg(feature = "sled")]
use platform_store_sled::OpenError as SledError;
use platform_store_sqlite::OpenError as SqliteError;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::{
    config::Config,
    installation::{Installation, known_url},
};

/// Writes as the operator to a store that no server has open.
pub(crate) struct Direct {
    runtime: Runtime,
    platform: Platform,
    operator: Caller,
    organization: Uid,
}

impl Direct {
    /// Opens the store of the installation that `open` finds or creates. `otherwise` is the advice to print when a
    /// server has the store open.
    pub(crate) fn open(config: &Config, open: fn(&Config) -> Result<Installation>, otherwise: &str) -> Result<Self> {
        super::reject_memory(config, otherwise)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        let installation = open(config)?;
        let opened = runtime.block_on(installation.platform(config, &known_url(config)));
        let platform = opened.map_err(|error| match is_in_use(&error) {
            true => error.context(format!("the store is open in another process; if that is a server, {otherwise}")),
            false => error,
        })?;
        let Installation { bootstrap, .. } = installation;
        Ok(Self { runtime, platform, operator: Caller::new(bootstrap.operator), organization: bootstrap.organization })
    }

    /// Returns the uid of the first organization.
    pub(super) fn organization(&self) -> &str {
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

    /// Removes all resources of a kind directly below a parent, and returns their number.
    pub(super) fn remove<R: Imported>(&self, parent: &Uid) -> Result<u64> {
        Ok(self.runtime.block_on(self.platform.remove_all::<R>(&self.operator, parent))?)
    }
}

impl Sink for Direct {
    type Error = anyhow::Error;

    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done> {
        let reply = self.runtime.block_on(self.platform.put(&self.operator, parent, resources))?;
        let refused = reply.refused.into_iter();
        Ok(Done {
            created: reply.created,
            updated: reply.updated,
            unchanged: reply.unchanged,
            refused: refused
                .map(|refused| (usize::try_from(refused.index).unwrap_or(usize::MAX), describe(&refused.error)))
                .collect(),
        })
    }
}

/// Returns all violations of an error on one line, or its message if it has none.
fn describe(error: &Error) -> String {
    let violations = error.violations().iter();
    let violations: Vec<_> = violations.map(|one| format!("{}: {}", one.field, one.description)).collect();
    if violations.is_empty() { error.message().to_owned() } else { violations.join("; ") }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    #[cfg(feature = "sled")]
    if matches!(error.downcast_ref(), Some(SledError::InUse { .. })) {
        return true;
    }
    matches!(error.downcast_ref(), Some(SqliteError::InUse { .. }))
}
