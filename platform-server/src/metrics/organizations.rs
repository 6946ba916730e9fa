//! Requests of the organizations that the operator names. The names bound the number of series: those of all
//! organizations would need memory without a limit, here and in Prometheus.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Result, bail};
use async_trait::async_trait;
use metrics::{Counter, counter, describe_counter};
use platform_engine::{
    access::{Authenticator, Caller},
    error,
    uid::Uid,
};

const REQUESTS: &str = "platform_organization_requests_total";

/// The maximum number of organizations. Our choice.
const MAX: usize = 100;

pub(super) fn describe() {
    describe_counter!(REQUESTS, "Authenticated requests, by the organization of the caller");
}

/// An authenticator that counts the requests of each organization.
#[derive(Debug)]
pub(crate) struct Counting {
    authenticator: Arc<dyn Authenticator>,
    named: BTreeMap<Uid, Counter>,
    /// Of all other organizations together.
    other: Counter,
    /// Of persons and operators, who belong to no organization.
    none: Counter,
}

impl Counting {
    /// Returns the authenticator, with counters for the recorder that is installed now if any organization is named.
    ///
    /// # Errors
    /// Fails if too many organizations are named, or if one is not the uid of an organization.
    pub(crate) fn around(authenticator: Arc<dyn Authenticator>, named: &[Uid]) -> Result<Arc<dyn Authenticator>> {
        if named.is_empty() {
            return Ok(authenticator);
        }
        if named.len() > MAX {
            bail!("--metrics-organization: at most {MAX} organizations can be named");
        }
        if let Some(wrong) = named.iter().find(|uid| !uid.is_root()) {
            bail!("--metrics-organization: {wrong} must be the uid of an organization, which has one segment");
        }
        let count = |label: &str| counter!(REQUESTS, "organization" => label.to_owned());
        let named = named.iter().map(|uid| (uid.clone(), count(uid))).collect();
        Ok(Arc::new(Self { authenticator, named, other: count("other"), none: count("none") }))
    }
}

#[async_trait]
impl Authenticator for Counting {
    async fn authenticate(&self, token: &str) -> error::Result<Caller> {
        let caller = self.authenticator.authenticate(token).await?;
        let counter = if caller.identity.is_root() {
            &self.none
        } else {
            self.named.get(caller.identity.root()).unwrap_or(&self.other)
        };
        counter.increment(1);
        Ok(caller)
    }
}
