//! Publishes the events of commits to the streams and watches of this process, and caches subscriptions.

use std::{fmt, sync::Arc};

use quick_cache::{Weighter, sync::Cache};

use super::{
    EventLog, Recorded, Subscribers, Wake,
    stream::{Streams, Watches},
};
use crate::{error::Result, store::Store, uid::Uid};

/// The capacity of the cache of subscriptions: approximately, in bytes, and as the number of typical organizations.
const CACHE_BYTES: u64 = 16 << 20;
const CACHE_ENTRIES: usize = 10_000;

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Uid, (u64, Arc<Subscribers>)> for Weight {
    fn weight(&self, organization: &Uid, (_, subscribers): &(u64, Arc<Subscribers>)) -> u64 {
        (organization.len() + subscribers.bytes()) as u64
    }
}

/// The cached subscriptions, the streams and the watches of a process.
pub(crate) struct Publisher {
    /// Each with the lineage of the store before it was read.
    subscribers: Cache<Uid, (u64, Arc<Subscribers>), Weight>,
    pub(crate) streams: Streams,
    pub(crate) watches: Watches,
    wake: Option<Arc<dyn Wake>>,
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new(None)
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("subscribers", &self.subscribers.len()).finish_non_exhaustive()
    }
}

impl Publisher {
    /// Creates a publisher that also wakes other processes by `wake`.
    pub(crate) fn new(wake: Option<Arc<dyn Wake>>) -> Self {
        let subscribers = Cache::with_weighter(CACHE_ENTRIES, CACHE_BYTES, Weight);
        Self { subscribers, streams: Streams::default(), watches: Watches::default(), wake }
    }

    /// Returns the subscriptions of an organization, from the cache or from `log`.
    pub(crate) async fn subscribers(
        &self,
        log: &dyn EventLog,
        store: &dyn Store,
        organization: &str,
    ) -> Result<Arc<Subscribers>> {
        let lineage = store.lineage();
        if let Some((_, subscribers)) = self.subscribers.get(organization).filter(|cached| cached.0 == lineage) {
            return Ok(subscribers);
        }
        // A concurrent change may make the entry stale before it is inserted. The next commit that requires its epoch
        // then fails and removes it.
        let subscribers = Arc::new(log.subscribers(store, organization).await?);
        self.subscribers.insert(Uid::opaque(organization), (lineage, Arc::clone(&subscribers)));
        Ok(subscribers)
    }

    /// Invalidates the cached subscriptions of an organization.
    pub(crate) fn forget_subscribers(&self, organization: &Uid) {
        self.subscribers.remove(organization);
    }

    /// Wakes the watches of this process and of the others for these subscriptions.
    pub(crate) fn wake(&self, subscriptions: &[Uid]) {
        self.watches.wake(subscriptions);
        if let Some(wake) = self.wake.as_ref().filter(|_| !subscriptions.is_empty()) {
            wake.wake_others(subscriptions);
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
    use super::*;
    use crate::store::Epoch;

    #[test]
    fn the_cache_of_subscriptions_is_bounded_in_bytes() {
        let events = Publisher::default();
        for organization in 0..300 {
            let uid = Uid::opaque(format!("{organization:040x}"));
            let subscriptions = (0..1_000).map(|number| Uid::opaque(format!("{uid}/{number:016x}"))).collect();
            let subscribers = Subscribers::new(uid.clone(), Epoch::new("subscriptions", uid.clone()), 0, subscriptions);
            events.subscribers.insert(uid, (0, Arc::new(subscribers)));
        }
        assert!(events.subscribers.weight() <= CACHE_BYTES);
        let cached = events.subscribers.len();
        assert!((50..250).contains(&cached), "{cached}");
    }
}
