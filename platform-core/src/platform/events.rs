//! Events at the platform: who is to hear of a change, and telling them once it is committed.

use std::{fmt, sync::Arc};

use quick_cache::{Weighter, sync::Cache};

use super::Platform;
use crate::{
    error::Result,
    event::{EventStream, Listeners, Streams, Told, Watch, Watches},
    uid::Uid,
};

/// The size of the cache of subscribers in bytes, approximately, and the number of organizations of the usual size that
/// fit.
const REMEMBERED_BYTES: u64 = 16 << 20;
const REMEMBERED: usize = 10_000;

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Uid, Arc<Listeners>> for Weight {
    fn weight(&self, organisation: &Uid, listeners: &Arc<Listeners>) -> u64 {
        (organisation.len() + listeners.bytes()) as u64
    }
}

/// What a platform keeps in memory for events.
pub(super) struct Events {
    listeners: Cache<Uid, Arc<Listeners>, Weight>,
    streams: Streams,
    watches: Watches,
}

impl Default for Events {
    fn default() -> Self {
        let listeners = Cache::with_weighter(REMEMBERED, REMEMBERED_BYTES, Weight);
        Self { listeners, streams: Streams::default(), watches: Watches::default() }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("listeners", &self.listeners.len()).finish_non_exhaustive()
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

    /// Begins to hear for which subscriptions there is something to deliver.
    pub(super) fn watch(&self) -> Watch {
        self.events.watches.begin()
    }

    /// Wakes whoever delivers for these subscriptions.
    pub(super) fn wake(&self, subscriptions: &[Uid]) {
        self.events.watches.tell(subscriptions);
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.events.streams
    }

    /// Returns who subscribed in an organisation, as it was last read.
    pub(crate) async fn listeners(&self, root: &str) -> Result<Arc<Listeners>> {
        if let Some(listeners) = self.events.listeners.get(root) {
            return Ok(listeners);
        }
        let listeners = Arc::new(Listeners::read(self.store(), root).await?);
        self.events.listeners.insert(Uid::opaque(root), Arc::clone(&listeners));
        Ok(listeners)
    }

    /// Has who subscribed read anew, after they turned out to have changed.
    pub(crate) fn forget_listeners(&self, root: &Uid) {
        self.events.listeners.remove(root);
    }

    /// Tells of what was committed.
    pub(crate) fn told(&self, sequence: u64, told: Vec<Told>) {
        for Told { event, subscriptions } in told {
            self.wake(&subscriptions);
            self.events.streams.tell(sequence, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;

    #[test]
    fn the_cache_of_subscribers_is_bounded_in_bytes() {
        let (events, store) = (Events::default(), MemoryStore::new());
        for organization in 0..300 {
            let uid = Uid::opaque(format!("{organization:040x}"));
            let mut listeners = pollster::block_on(Listeners::read(&store, &uid)).unwrap();
            let subscription = |number: usize| Uid::opaque(format!("{uid}/{number:016x}"));
            listeners.subscriptions = (0..1_000).map(subscription).collect();
            events.listeners.insert(uid, Arc::new(listeners));
        }
        assert!(events.listeners.weight() <= REMEMBERED_BYTES);
        let remembered = events.listeners.len();
        assert!((50..250).contains(&remembered), "{remembered}");
    }
}
