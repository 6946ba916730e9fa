//! Publishes the events of commits to the streams and watches of this process, and caches subscriptions.

use std::sync::Arc;

use super::{
    EventLog, Recorded, Subscribers, Wake,
    stream::{Streams, Watches},
};
use crate::{cache::OrganizationCache, error::Result, store::Store, uid::Uid};

/// The approximate capacity of the cache of subscriptions, in bytes, and the size of a typical organization.
const CACHE_BYTES: u64 = 16 << 20;
const TYPICAL_BYTES: u64 = 1_600;

/// The cached subscriptions, the streams and the watches of a process.
#[derive(Debug)]
pub(crate) struct Publisher {
    subscribers: OrganizationCache<Subscribers>,
    pub(crate) streams: Streams,
    pub(crate) watches: Watches,
    wake: Option<Arc<dyn Wake>>,
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Publisher {
    /// Creates a publisher that also wakes other processes by `wake`.
    pub(crate) fn new(wake: Option<Arc<dyn Wake>>) -> Self {
        let bytes_of = |organization: &Uid, (_, subscribers): &(u64, Arc<Subscribers>)| {
            (organization.len() + subscribers.bytes()) as u64
        };
        let subscribers = OrganizationCache::new(CACHE_BYTES, TYPICAL_BYTES, bytes_of);
        Self { subscribers, streams: Streams::default(), watches: Watches::default(), wake }
    }

    /// Returns the subscriptions of an organization, from the cache or from `log`.
    pub(crate) async fn subscribers(
        &self,
        log: &dyn EventLog,
        store: &dyn Store,
        organization: &str,
    ) -> Result<Arc<Subscribers>> {
        self.subscribers.get_or_read(store, organization, log.subscribers(store, organization)).await
    }

    /// Invalidates the cached subscriptions of an organization.
    pub(crate) fn forget_subscribers(&self, organization: &Uid) {
        self.subscribers.forget(organization);
    }

    /// Wakes the watches of this process and of the others for these subscriptions.
    pub(crate) fn wake(&self, subscriptions: &[Uid]) {
        self.watches.wake(subscriptions);
        self.wake_others(subscriptions);
    }

    /// Wakes the other processes for these subscriptions, or for watches of these organizations.
    pub(crate) fn wake_others(&self, uids: &[Uid]) {
        if let Some(wake) = self.wake.as_ref().filter(|_| !uids.is_empty()) {
            wake.wake_others(uids);
        }
    }

    /// Publishes the events of a commit to the streams of this process and to the watches of all.
    pub(crate) fn publish(&self, sequence: u64, recorded: Vec<Recorded>) {
        for Recorded { event, subscriptions } in recorded {
            self.wake(&subscriptions);
            self.streams.publish(sequence, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;

    use super::*;
    use crate::store::{Epoch, memory::MemoryStore};

    #[test]
    fn the_cache_of_subscriptions_is_bounded_in_bytes() {
        let (store, events) = (MemoryStore::new(), Publisher::default());
        for organization in 0..300 {
            let uid = Uid::opaque(format!("{organization:040x}"));
            let subscriptions = (0..1_000).map(|number| Uid::opaque(format!("{uid}/{number:016x}"))).collect();
            let subscribers = Subscribers::new(uid.clone(), Epoch::new("subscriptions", uid.clone()), 0, subscriptions);
            block_on(events.subscribers.get_or_read(&store, &uid, async { Ok(subscribers) })).unwrap();
        }
        assert!(events.subscribers.cached().bytes() <= CACHE_BYTES);
        let cached = events.subscribers.cached().entries();
        assert!((50..250).contains(&cached), "{cached}");
    }
}
