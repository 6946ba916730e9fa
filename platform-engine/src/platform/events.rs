//! Events of a platform: subscribing within the process, and publishing the events of commits.

use std::sync::Arc;

use super::Platform;
use crate::{
    error::Result,
    event::{EventLog, EventStream, Recorded, Streams, Subscribers, Watch},
    uid::Uid,
};

impl Platform {
    /// Subscribes to the events of a group and its descendants that this process commits from now on. Access is not
    /// checked.
    pub fn subscribe(&self, group: &Uid) -> EventStream {
        self.events.streams.begin(Some(group.clone()))
    }

    /// Subscribes to all events, including those of [`Audience::Internal`](crate::event::Audience::Internal).
    pub fn subscribe_to_all(&self) -> EventStream {
        self.events.streams.begin(None)
    }

    /// Returns a watch of the subscriptions that this process records events for, and others by
    /// [`Wake`](crate::event::Wake).
    pub fn watch_subscriptions(&self) -> Watch {
        self.events.watches.begin()
    }

    /// Wakes the watches of this process and, with [`Builder::wake`](super::Builder::wake), those of the others, because
    /// there are events to deliver to these subscriptions.
    pub fn wake(&self, subscriptions: &[Uid]) {
        self.events.wake(subscriptions);
    }

    /// Wakes this process alone, because another one has [said](crate::event::Wake) that there are events to deliver to
    /// these subscriptions, or that the resources of these organizations have changed.
    pub fn woken(&self, uids: &[Uid]) {
        let (organizations, subscriptions): (Vec<_>, Vec<_>) = uids.iter().cloned().partition(Uid::is_root);
        self.hub().wake(&organizations);
        self.events.watches.wake(&subscriptions);
    }

    /// Wakes the watches of this process, because [messages](crate::event::Wake) of others may have been missed.
    pub fn wake_watches(&self) {
        self.hub().wake_all();
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.events.streams
    }

    pub(crate) fn event_log(&self) -> Option<&dyn EventLog> {
        self.event_log.as_deref()
    }

    /// Returns the subscriptions of an organization, from the cache or the store; `None` without an [`EventLog`]. They
    /// may be stale: a commit must require that they are [unchanged](crate::write::Write::require_subscribers).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn subscribers(&self, organization: &str) -> Result<Option<Arc<Subscribers>>> {
        match self.event_log() {
            Some(log) => self.events.subscribers(log, self.store(), organization).await.map(Some),
            None => Ok(None),
        }
    }

    /// Publishes the events of a commit to the streams of this process and to the watches.
    pub(crate) fn publish(&self, sequence: u64, recorded: Vec<Recorded>) {
        self.events.publish(sequence, recorded);
    }
}
