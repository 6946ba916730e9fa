//! Notifications within a process: streams of events as they are committed, and watches that wake the delivery of
//! events to subscriptions.
//!
//! Each reader has a channel of its own, because a broadcast channel such as `async-broadcast` bounds the number of
//! events but not their bytes, and would wake every reader for the events of all groups.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{self, Poll},
};

use futures_channel::mpsc::{Receiver, Sender, channel};
use futures_core::Stream;
use parking_lot::Mutex;

use super::Event;
use crate::uid::{self, Uid};

/// The number of events that a stream buffers for its reader. Further events are dropped and counted. Our choice.
const BUFFER: usize = 1024;

/// The number of bytes of events that a stream buffers for its reader; a single event may be longer. Our choice.
const BUFFER_BYTES: u64 = 16 << 20;

/// An item of an [`EventStream`].
///
/// Exhaustive, so that readers handle missed events.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// An event, and the sequence of its commit.
    Event {
        /// The sequence of the commit. Of two changes of one resource, the later one has the greater sequence.
        sequence: u64,
        /// The event.
        event: Arc<Event>,
    },
    /// The reader was too slow, and this many events were dropped.
    Missed(u64),
}

/// The events of this process as they are committed, from the creation of the stream on. Those that other processes over
/// the same store commit are not among them.
///
/// Delivery is at most once: buffered events are lost when the stream is dropped, and the order of concurrent changes
/// is not defined. A write returns after its event is in the stream. For delivery at least once, use a subscription.
#[derive(Debug)]
pub struct EventStream {
    receiver: Receiver<(u64, Arc<Event>)>,
    missed: Arc<AtomicU64>,
    /// How many bytes of events are buffered.
    bytes: Arc<AtomicU64>,
}

impl EventStream {
    /// Waits for the next item; `None` when the platform was dropped.
    pub async fn next(&mut self) -> Option<StreamItem> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for EventStream {
    type Item = StreamItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<StreamItem>> {
        match Pin::new(&mut self.receiver).poll_next(cx) {
            Poll::Ready(Some((sequence, event))) => {
                self.bytes.fetch_sub(event.weight(), Ordering::SeqCst);
                Poll::Ready(Some(StreamItem::Event { sequence, event }))
            }
            // Missed events are reported when the buffer is empty, after the events that were buffered before them.
            other => match self.missed.swap(0, Ordering::SeqCst) {
                0 => other.map(|_| None),
                missed => Poll::Ready(Some(StreamItem::Missed(missed))),
            },
        }
    }
}

/// The readers of a platform's events.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    readers: Mutex<Vec<Reader>>,
    /// The number of readers, so that a write takes no lock if there are none.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Reader {
    /// The group whose events the reader receives, including those below it; `None` for all events.
    group: Option<Uid>,
    sender: Sender<(u64, Arc<Event>)>,
    missed: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Reader {
    /// Buffers an event for the reader, or counts it as missed.
    fn send(&mut self, sequence: u64, event: &Arc<Event>) {
        let weight = event.weight();
        // Added before the event is sent, so that the reader never subtracts bytes that were not added yet.
        let before = self.bytes.fetch_add(weight, Ordering::SeqCst);
        let fits = before == 0 || before.saturating_add(weight) <= BUFFER_BYTES;
        let is_full = !fits || self.sender.try_send((sequence, Arc::clone(event))).is_err_and(|error| error.is_full());
        if is_full {
            self.bytes.fetch_sub(weight, Ordering::SeqCst);
            self.missed.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn wants(&self, group: &str) -> bool {
        self.group.as_ref().is_none_or(|top| uid::is_at_or_below(group, top))
    }
}

impl Streams {
    pub(crate) fn begin(&self, group: Option<Uid>) -> EventStream {
        let (sender, receiver) = channel(BUFFER);
        let missed = Arc::<AtomicU64>::default();
        let mut readers = self.readers.lock();
        let bytes = Arc::<AtomicU64>::default();
        readers.push(Reader { group, sender, missed: Arc::clone(&missed), bytes: Arc::clone(&bytes) });
        self.count.store(readers.len(), Ordering::SeqCst);
        EventStream { receiver, missed, bytes }
    }

    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn wants(&self, group: &str) -> bool {
        self.any() && self.readers.lock().iter().any(|reader| reader.wants(group))
    }

    /// Sends an event to the readers of its group, and removes readers whose streams were dropped.
    pub(crate) fn publish(&self, sequence: u64, event: Event) {
        if !self.any() {
            return;
        }
        let event = Arc::new(event);
        let mut readers = self.readers.lock();
        readers.retain_mut(|reader| {
            if reader.wants(&event.group) {
                reader.send(sequence, &event);
            }
            !reader.sender.is_closed()
        });
        self.count.store(readers.len(), Ordering::SeqCst);
    }
}

/// Wakes a dispatcher when there are new events for subscriptions. Repeated notifications for a subscription are merged
/// until they are read, so a watch needs little memory.
#[derive(Debug)]
pub struct Watch {
    receiver: Receiver<()>,
    fresh: Arc<Mutex<HashSet<Uid>>>,
}

impl Watch {
    /// Waits for a notification, and returns the subscriptions with new events, of which there may be none; `None` when
    /// the platform was dropped.
    pub async fn next(&mut self) -> Option<Vec<Uid>> {
        std::future::poll_fn(|cx| {
            let woken = Pin::new(&mut self.receiver).poll_next(cx);
            woken.map(|woken| woken.map(|()| self.fresh.lock().drain().collect()))
        })
        .await
    }
}

/// The watches of a platform.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Vec<Watcher>>);

#[derive(Debug)]
struct Watcher {
    sender: Sender<()>,
    fresh: Arc<Mutex<HashSet<Uid>>>,
}

impl Watches {
    pub(crate) fn begin(&self) -> Watch {
        // Holds one notification: a channel has a slot for each sender in addition to its capacity.
        let (sender, receiver) = channel(0);
        let fresh = Arc::<Mutex<HashSet<Uid>>>::default();
        self.0.lock().push(Watcher { sender, fresh: Arc::clone(&fresh) });
        Watch { receiver, fresh }
    }

    /// Wakes all watches for these subscriptions, and removes watches that were dropped.
    pub(crate) fn wake(&self, subscriptions: &[Uid]) {
        if subscriptions.is_empty() {
            return;
        }
        self.0.lock().retain_mut(|Watcher { sender, fresh }| {
            fresh.lock().extend(subscriptions.iter().cloned());
            // If the channel is full, the watch was already woken and has not read yet.
            let _ = sender.try_send(());
            !sender.is_closed()
        });
    }
}
