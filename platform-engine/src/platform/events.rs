//! Events at the platform: who is to hear of a change, and telling them once it is committed.

use std::{fmt, sync::Arc};

use quick_cache::{Weighter, sync::Cache};

use super::Platform;
use crate::{
    error::Result,
    event::{EventLog, EventStream, Recorded, Streams, Subscribers, Watch, Watches},
    uid::Uid,
};

/// The size of the cache of subscribers in bytes, approximately, and the number of organizations of the usual size that
/// fit.
const REMEMBERED_BYTES: u64 = 16 << 20;
const REMEMBERED: usize = 10_000;

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Uid, Arc<Subscribers>> for Weight {
    fn weight(&self, organization: &Uid, subscribers: &Arc<Subscribers>) -> u64 {
        (organization.len() + subscribers.bytes()) as u64
    }
}

/// What a platform keeps in memory for events.
pub(super) struct Events {
    subscribers: Cache<Uid, Arc<Subscribers>, Weight>,
    streams: Streams,
    watches: Watches,
}

impl Default for Events {
    fn default() -> Self {
        let subscribers = Cache::with_weighter(REMEMBERED, REMEMBERED_BYTES, Weight);
        Self { subscribers, streams: Streams::default(), watches: Watches::default() }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("subscribers", &self.subscribers.len()).finish_non_exhaustive()
    }
}

impl Platform {
    /// Begins to hear the events of a group and of all below it, as this process commits them; what has passed is not
    /// told. Regardless of who asks.
    pub fn subscribe(&self, group: &Uid) -> EventStream {
        self.events.streams.begin(Some(group.clone()))
    }

    /// Begins to hear all events, those for the installation alone among them.
    pub fn subscribe_to_all(&self) -> EventStream {
        self.events.streams.begin(None)
    }

    /// Returns a watch for the subscriptions that this process records events for.
    pub fn watch_subscriptions(&self) -> Watch {
        self.events.watches.begin()
    }

    /// Wakes the watches of subscriptions: there are events to deliver for these.
    pub fn wake(&self, subscriptions: &[Uid]) {
        self.events.watches.tell(subscriptions);
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.events.streams
    }

    pub(crate) fn event_log(&self) -> Option<&dyn EventLog> {
        self.event_log.as_deref()
    }

    /// Returns the subscriptions of an organization, from the cache or the store. None without an [`EventLog`].
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subscribers(&self, organization: &str) -> Result<Option<Arc<Subscribers>>> {
        let Some(log) = self.event_log() else { return Ok(None) };
        if let Some(subscribers) = self.events.subscribers.get(organization) {
            return Ok(Some(subscribers));
        }
        let subscribers = Arc::new(log.subscribers(self.store(), organization).await?);
        self.events.subscribers.insert(Uid::opaque(organization), Arc::clone(&subscribers));
        Ok(Some(subscribers))
    }

    /// Invalidates the cached subscriptions of an organization.
    pub(crate) fn forget_subscribers(&self, organization: &Uid) {
        self.events.subscribers.remove(organization);
    }

    /// Publishes the events of a commit to the streams and watches of this process.
    pub(crate) fn publish(&self, sequence: u64, recorded: Vec<Recorded>) {
        for Recorded { event, subscriptions } in recorded {
            self.wake(&subscriptions);
            self.events.streams.tell(sequence, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_subscribers_is_bounded_in_bytes() {
        let events = Events::default();
        for organization in 0..300 {
            let uid = Uid::opaque(format!("{organization:040x}"));
            let subscriptions = (0..1_000).map(|number| Uid::opaque(format!("{uid}/{number:016x}"))).collect();
            let subscribers = Subscribers::new(uid.clone(), "an epoch".into(), 0, subscriptions);
            events.subscribers.insert(uid, Arc::new(subscribers));
        }
        assert!(events.subscribers.weight() <= REMEMBERED_BYTES);
        let remembered = events.subscribers.len();
        assert!((50..250).contains(&remembered), "{remembered}");
    }
}
