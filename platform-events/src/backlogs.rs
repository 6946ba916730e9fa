//! How many bytes of events wait, for each subscription and organization.

use std::collections::HashMap;

use platform_core::{store::Position, uid::Uid};

use crate::policy::Policy;

/// What waits for subscriptions, as far as their lanes have counted it; nothing is kept where nothing waits.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    subscriptions: HashMap<Uid, Backlog>,
    organizations: HashMap<String, Organization>,
}

#[derive(Debug, Clone, Default)]
struct Backlog {
    bytes: u64,
    /// Up to where it was counted.
    through: Option<Position>,
}

#[derive(Debug, Default)]
struct Organization {
    bytes: u64,
    subscriptions: u64,
}

impl Backlogs {
    /// Returns up to where a subscription's events were counted.
    pub(crate) fn through(&self, subscription: &Uid) -> Option<Position> {
        self.subscriptions.get(subscription).and_then(|backlog| backlog.through.clone())
    }

    /// Says what waits for a subscription in all.
    pub(crate) fn set(&mut self, subscription: &Uid, bytes: u64, through: Option<Position>) {
        self.forget(subscription);
        let organization = self.organizations.entry(subscription.root().to_owned()).or_default();
        organization.bytes = organization.bytes.saturating_add(bytes);
        organization.subscriptions += 1;
        self.subscriptions.insert(subscription.clone(), Backlog { bytes, through });
    }

    /// Says that more waits than was counted.
    pub(crate) fn add(&mut self, subscription: &Uid, bytes: u64, through: Option<Position>) {
        let counted = self.subscriptions.get(subscription).map_or(0, |backlog| backlog.bytes);
        self.set(subscription, counted.saturating_add(bytes), through);
    }

    /// Says that some waits no more.
    pub(crate) fn settled(&mut self, subscription: &Uid, bytes: u64) {
        if let Some(Backlog { bytes: counted, through }) = self.subscriptions.get(subscription).cloned() {
            self.set(subscription, counted.saturating_sub(bytes), through);
        }
    }

    /// Forgets what was counted, since nothing waits any more or somebody else delivers it.
    pub(crate) fn forget(&mut self, subscription: &Uid) {
        let Some(backlog) = self.subscriptions.remove(subscription) else { return };
        if let Some(organization) = self.organizations.get_mut(subscription.root()) {
            organization.bytes = organization.bytes.saturating_sub(backlog.bytes);
            organization.subscriptions -= 1;
            if organization.subscriptions == 0 {
                self.organizations.remove(subscription.root());
            }
        }
    }

    /// Returns how many bytes of a subscription's events are to be given up.
    pub(crate) fn excess(&self, subscription: &Uid, policy: &Policy) -> u64 {
        let Some(backlog) = self.subscriptions.get(subscription) else { return 0 };
        let own = backlog.bytes.saturating_sub(policy.backlog_bytes);
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
    fn too_much_is_what_is_above_the_bound_of_a_subscription_or_the_part_of_an_organization() {
        let policy = Policy { backlog_bytes: 100, organization_bytes: 120, ..Policy::default() };
        let (a, b, other) = (Uid::opaque("org/a"), Uid::opaque("org/g/b"), Uid::opaque("other/c"));
        let mut backlogs = Backlogs::default();
        backlogs.add(&a, 90, None);
        backlogs.set(&other, 70, None);
        assert_eq!(backlogs.excess(&a, &policy), 0);
        backlogs.add(&a, 25, None);
        assert_eq!((backlogs.excess(&a, &policy), backlogs.excess(&other, &policy)), (15, 0));
        backlogs.settled(&a, 15);
        backlogs.set(&b, 50, None);
        // 150 in all: the one that has more than 60 is to give up 30.
        assert_eq!((backlogs.excess(&a, &policy), backlogs.excess(&b, &policy)), (30, 0));
        backlogs.settled(&a, 30);
        assert_eq!(backlogs.excess(&a, &policy), 0);
        backlogs.forget(&a);
        backlogs.forget(&b);
        backlogs.forget(&other);
        assert!(backlogs.subscriptions.is_empty() && backlogs.organizations.is_empty());
    }
}
