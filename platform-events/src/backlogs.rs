//! Counts the bytes of pending events, for each subscription and organization.

use std::collections::HashMap;

use platform_engine::{store::Position, uid::Uid};

use crate::policy::Policy;

/// The sizes of the backlogs that lanes have counted so far. Has no entry for a subscription without pending events.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    subscriptions: HashMap<Uid, Backlog>,
    organizations: HashMap<String, Organization>,
}

#[derive(Debug, Clone, Default)]
struct Backlog {
    bytes: u64,
    /// The position up to which the events have been counted.
    through: Option<Position>,
}

#[derive(Debug, Default)]
struct Organization {
    bytes: u64,
    subscriptions: u64,
}

impl Backlogs {
    /// Returns the position up to which a subscription's events have been counted.
    pub(crate) fn through(&self, subscription: &Uid) -> Option<Position> {
        self.subscriptions.get(subscription).and_then(|backlog| backlog.through.clone())
    }

    /// Sets the size of a subscription's backlog.
    pub(crate) fn set(&mut self, subscription: &Uid, bytes: u64, through: Option<Position>) {
        self.remove(subscription);
        let organization = self.organizations.entry(subscription.root().to_owned()).or_default();
        organization.bytes = organization.bytes.saturating_add(bytes);
        organization.subscriptions += 1;
        self.subscriptions.insert(subscription.clone(), Backlog { bytes, through });
    }

    /// Adds newly counted events to a subscription's backlog.
    pub(crate) fn add(&mut self, subscription: &Uid, bytes: u64, through: Option<Position>) {
        let counted = self.subscriptions.get(subscription).map_or(0, |backlog| backlog.bytes);
        self.set(subscription, counted.saturating_add(bytes), through);
    }

    /// Subtracts events that are no longer pending.
    pub(crate) fn subtract(&mut self, subscription: &Uid, bytes: u64) {
        if let Some(Backlog { bytes: counted, through }) = self.subscriptions.get(subscription).cloned() {
            self.set(subscription, counted.saturating_sub(bytes), through);
        }
    }

    /// Removes a subscription that has no pending events, or whose lease another dispatcher holds.
    pub(crate) fn remove(&mut self, subscription: &Uid) {
        let Some(backlog) = self.subscriptions.remove(subscription) else { return };
        if let Some(organization) = self.organizations.get_mut(subscription.root()) {
            organization.bytes = organization.bytes.saturating_sub(backlog.bytes);
            organization.subscriptions -= 1;
            if organization.subscriptions == 0 {
                self.organizations.remove(subscription.root());
            }
        }
    }

    /// Returns how many bytes of a subscription's events must be given up.
    pub(crate) fn excess(&self, subscription: &Uid, policy: &Policy) -> u64 {
        let Some(backlog) = self.subscriptions.get(subscription) else { return 0 };
        let own = backlog.bytes.saturating_sub(policy.backlog_bytes);
        // When an organization is over its limit, each of its subscriptions gives up at most what exceeds an equal
        // share.
        let of_all = self.organizations.get(subscription.root()).map_or(0, |organization| {
            let part = policy.organization_bytes / organization.subscriptions.max(1);
            organization.bytes.saturating_sub(policy.organization_bytes).min(backlog.bytes.saturating_sub(part))
        });
        own.max(of_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_measured_against_the_bound_of_a_subscription_and_the_share_of_an_organization() {
        let policy = Policy { backlog_bytes: 100, organization_bytes: 120, ..Policy::default() };
        let (a, b, other) = (Uid::opaque("org/a"), Uid::opaque("org/g/b"), Uid::opaque("other/c"));
        let mut backlogs = Backlogs::default();
        backlogs.add(&a, 90, None);
        backlogs.set(&other, 70, None);
        assert_eq!(backlogs.excess(&a, &policy), 0);
        backlogs.add(&a, 25, None);
        assert_eq!((backlogs.excess(&a, &policy), backlogs.excess(&other, &policy)), (15, 0));
        backlogs.subtract(&a, 15);
        backlogs.set(&b, 50, None);
        // 150 in all: the subscription above its share of 60 must give up 30.
        assert_eq!((backlogs.excess(&a, &policy), backlogs.excess(&b, &policy)), (30, 0));
        backlogs.subtract(&a, 30);
        assert_eq!(backlogs.excess(&a, &policy), 0);
        backlogs.remove(&a);
        backlogs.remove(&b);
        backlogs.remove(&other);
        assert!(backlogs.subscriptions.is_empty() && backlogs.organizations.is_empty());
    }
}
