//! The subscriptions of an organization, and the interface to the stored events.

use std::fmt::Debug;

use async_trait::async_trait;

use super::Event;
use crate::{
    entropy::Entropy,
    error::Result,
    store::{Epoch, Require, Store},
    timestamp::Timestamp,
    uid::{self, Uid},
    write::Write,
};

/// Stores subscriptions, and the events that wait for delivery to them.
///
/// Without an event log, events reach only the streams of this process.
#[async_trait]
pub trait EventLog: Debug + Send + Sync + 'static {
    /// Reads the subscriptions of an organization. The platform caches them until a commit finds that their epoch has
    /// another value.
    ///
    /// # Errors
    /// Those of the store.
    async fn subscribers(&self, store: &dyn Store, organization: &str) -> Result<Subscribers>;

    /// Adds records of an event for each of these subscriptions, at least one, to the write of its change.
    ///
    /// # Errors
    /// INTERNAL when the event cannot be written as JSON.
    fn record(
        &self,
        entropy: &dyn Entropy,
        now: Timestamp,
        write: &mut Write,
        event: &Event,
        subscriptions: &[Uid],
    ) -> Result<()>;
}

/// The approximate overhead of an allocation, in bytes.
const OVERHEAD: usize = 64;

/// The subscriptions of an organization, as of the value of an epoch. A commit that requires this value records its
/// event for exactly the subscriptions that existed before it.
#[derive(Debug)]
pub struct Subscribers {
    organization: Uid,
    epoch: Epoch,
    as_of: u64,
    subscriptions: Vec<Uid>,
}

impl Subscribers {
    /// Returns the subscriptions of an organization, read when the epoch had this value. Every change of the
    /// organization's subscriptions must raise the epoch.
    pub fn new(organization: Uid, epoch: Epoch, as_of: u64, subscriptions: Vec<Uid>) -> Self {
        Self { organization, epoch, as_of, subscriptions }
    }

    /// Returns the uids of all subscriptions, in no particular order.
    pub fn all(&self) -> &[Uid] {
        &self.subscriptions
    }

    /// Returns the organization.
    pub(crate) fn organization(&self) -> &Uid {
        &self.organization
    }

    /// Returns the approximate size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let subscriptions = self.subscriptions.iter().map(|uid| size_of::<Uid>() + uid.len() + OVERHEAD);
        size_of::<Self>() + self.epoch.uid.len() + OVERHEAD + subscriptions.sum::<usize>()
    }

    /// Returns the requirement that the subscriptions have not changed.
    pub(crate) fn unchanged(&self) -> Require {
        Require::Epoch(self.epoch.clone(), self.as_of)
    }

    /// Returns the subscriptions to a group: those in the group and in its ancestors.
    pub(crate) fn of_group(&self, group: &str) -> impl Iterator<Item = &Uid> {
        let above = move |top: &str| uid::is_at_or_below(group, top);
        self.subscriptions.iter().filter(move |subscription| uid::parent(subscription).is_some_and(above))
    }
}
