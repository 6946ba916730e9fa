//! Who subscribed in an organisation, remembered until that changes.

use std::sync::Arc;

use crate::{
    error::Result,
    kind::Resource,
    resources::events::Subscription,
    store::{Epoch, Query, Require, Scope, Store},
    uid::{self, Uid},
};

/// What the names of the epochs of subscriptions begin with; the organisation's uid follows.
pub(crate) const SUBSCRIPTIONS_EPOCH: &str = "subscriptions/";

/// The approximate overhead of an allocation, in bytes.
const OVERHEAD: usize = 64;

/// Returns the epoch that every change of who subscribed in an organisation raises.
pub(crate) fn subscriptions_epoch(root: &str) -> Epoch {
    format!("{SUBSCRIPTIONS_EPOCH}{root}").into()
}

/// The subscriptions of an organisation, as of an epoch. A commit that requires the epoch to have this value records
/// its event for exactly those who subscribed before it.
#[derive(Debug)]
pub(crate) struct Listeners {
    epoch: Epoch,
    as_of: u64,
    pub(crate) subscriptions: Vec<Uid>,
}

impl Listeners {
    /// Reads them as they stand.
    pub(crate) async fn read(store: &dyn Store, root: &str) -> Result<Self> {
        let epoch = subscriptions_epoch(root);
        let all = Query::new(Subscription::KIND.name, Scope::Subtree(Uid::opaque(root)));
        let page = store.list(&Query { epochs: Arc::new([Arc::clone(&epoch)]), ..all }).await?;
        Ok(Self {
            epoch,
            as_of: page.epochs.first().copied().unwrap_or_default(),
            subscriptions: page.items.into_iter().map(|item| item.uid).collect(),
        })
    }

    /// Returns the approximate size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let subscriptions = self.subscriptions.iter().map(|uid| size_of::<Uid>() + uid.len() + OVERHEAD);
        size_of::<Self>() + self.epoch.len() + OVERHEAD + subscriptions.sum::<usize>()
    }

    /// Returns what must hold so that they are still those.
    pub(crate) fn still(&self) -> Require {
        Require::Epoch(Arc::clone(&self.epoch), self.as_of)
    }

    /// Returns the subscriptions at a group and at those above it.
    pub(crate) fn of_group(&self, group: &str) -> impl Iterator<Item = &Uid> {
        let above = move |top: &str| uid::is_at_or_below(group, top);
        self.subscriptions.iter().filter(move |subscription| uid::parent(subscription).is_some_and(above))
    }
}
