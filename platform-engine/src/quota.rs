//! Quotas: the maximum numbers of resources that organizations may have, by kind.
//!
//! The platform adds a requirement for each quota to the commits that create resources, so quotas hold exactly, whatever
//! else is written concurrently and however many servers share the store.

use std::{collections::BTreeMap, fmt::Debug};

use async_trait::async_trait;

use crate::{
    error::Result,
    store::{Epoch, Require, Store},
    uid::Uid,
};

/// Reads the quotas of organizations.
///
/// Without a source, nothing has a quota.
#[async_trait]
pub trait QuotaSource: Debug + Send + Sync + 'static {
    /// Reads the quotas of an organization: the first segment of uids, whether or not such an organization exists. The
    /// platform caches them until a commit finds that their epoch has another value.
    ///
    /// # Errors
    /// Those of the store.
    async fn quotas(&self, store: &dyn Store, organization: &str) -> Result<Quotas>;
}

/// The quotas of an organization, as of the value of an epoch. A commit that requires this value has exactly these
/// quotas.
#[derive(Debug)]
pub struct Quotas {
    organization: Uid,
    epoch: Epoch,
    as_of: u64,
    most: BTreeMap<String, u64>,
}

impl Quotas {
    /// Returns the quotas of an organization, read when the epoch had this value: the maximum number of resources at or
    /// below it, by the names of their kinds. Kinds without a number are unlimited. Every change of the organization's
    /// quotas must raise the epoch.
    ///
    /// Creates cost least if the epoch is one that they require anyway, such as that of subscriptions.
    pub fn new(organization: Uid, epoch: Epoch, as_of: u64, most: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self { organization, epoch, as_of, most: most.into_iter().collect() }
    }

    /// Returns the maximum number of resources of the kind; `None` without a quota.
    pub fn of(&self, kind: &str) -> Option<u64> {
        self.most.get(kind).copied()
    }

    /// Returns the organization.
    pub(crate) fn organization(&self) -> &Uid {
        &self.organization
    }

    /// Returns the requirement that the quotas have not changed.
    pub(crate) fn unchanged(&self) -> Require {
        Require::Epoch(self.epoch.clone(), self.as_of)
    }

    /// Returns the approximate size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let most = self.most.keys().map(|kind| kind.len() + OVERHEAD);
        size_of::<Self>() + 2 * self.organization.len() + OVERHEAD + most.sum::<usize>()
    }
}

/// The approximate overhead of an entry, in bytes.
const OVERHEAD: usize = 64;
