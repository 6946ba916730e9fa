//! What a process hears of its own changes: events as they are committed, and that there is something to deliver.

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

/// How many events wait for a reader of a stream before it misses some. Our choice.
const BUFFER: usize = 1024;

/// How many bytes of events wait for a reader of a stream before it misses some, but for a single one that is longer.
/// Our choice.
const BUFFER_BYTES: u64 = 16 << 20;

/// What a stream hears.
#[derive(Debug, Clone)]
pub enum Heard {
    /// An event, and the sequence of the commit that it is of.
    Event {
        /// Of two changes of one resource, the later has the greater.
        sequence: u64,
        /// The event.
        event: Arc<Event>,
    },
    /// The reader was so slow that it missed this many.
    Missed(u64),
}

/// Events of this process as they are committed, from the moment that the stream was begun.
///
/// Each comes at most once: what a reader does not take is lost with it, and of changes that overlap either may come
/// first. A write returns after its event is in the stream. What must not be lost is for a subscription.
#[derive(Debug)]
pub struct EventStream {
    receiver: Receiver<(u64, Arc<Event>)>,
    missed: Arc<AtomicU64>,
    /// How many bytes of events wait.
    bytes: Arc<AtomicU64>,
}

impl EventStream {
    /// Waits for what comes next; none when the platform is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for EventStream {
    type Item = Heard;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Heard>> {
        match Pin::new(&mut self.receiver).poll_next(cx) {
            Poll::Ready(Some((sequence, event))) => {
                self.bytes.fetch_sub(event.weight(), Ordering::SeqCst);
                Poll::Ready(Some(Heard::Event { sequence, event }))
            }
            // Told behind what was there before.
            other => match self.missed.swap(0, Ordering::SeqCst) {
                0 => other.map(|_| None),
                missed => Poll::Ready(Some(Heard::Missed(missed))),
            },
        }
    }
}

/// The readers of a platform's events.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    readers: Mutex<Vec<Reader>>,
    /// How many there are, so that a write without any takes no lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Reader {
    /// None hears all.
    group: Option<Uid>,
    sender: Sender<(u64, Arc<Event>)>,
    missed: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Reader {
    /// Hands an event to the reader, or counts it as missed.
    fn hand(&mut self, sequence: u64, event: &Arc<Event>) {
        let weight = event.weight();
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

    pub(crate) fn tell(&self, sequence: u64, event: Event) {
        if !self.any() {
            return;
        }
        let event = Arc::new(event);
        let mut readers = self.readers.lock();
        readers.retain_mut(|reader| {
            if reader.wants(&event.group) {
                reader.hand(sequence, &event);
            }
            !reader.sender.is_closed()
        });
        self.count.store(readers.len(), Ordering::SeqCst);
    }
}

/// Tells whoever delivers events for which subscriptions there is something new. What is told several times before it
/// is asked for counts once, so that it needs little memory.
#[derive(Debug)]
pub struct Watch {
    receiver: Receiver<()>,
    fresh: Arc<Mutex<HashSet<Uid>>>,
}

impl Watch {
    /// Waits until there is something, and returns the subscriptions, which may be none; `None` when the platform is
    /// gone.
    pub async fn next(&mut self) -> Option<Vec<Uid>> {
        std::future::poll_fn(|cx| {
            let woken = Pin::new(&mut self.receiver).poll_next(cx);
            woken.map(|woken| woken.map(|()| self.fresh.lock().drain().collect()))
        })
        .await
    }
}

/// Those who watch.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Vec<Watcher>>);

#[derive(Debug)]
struct Watcher {
    sender: Sender<()>,
    fresh: Arc<Mutex<HashSet<Uid>>>,
}

impl Watches {
    pub(crate) fn begin(&self) -> Watch {
        let (sender, receiver) = channel(0);
        let fresh = Arc::<Mutex<HashSet<Uid>>>::default();
        self.0.lock().push(Watcher { sender, fresh: Arc::clone(&fresh) });
        Watch { receiver, fresh }
    }

    pub(crate) fn tell(&self, subscriptions: &[Uid]) {
        if subscriptions.is_empty() {
            return;
        }
        self.0.lock().retain_mut(|Watcher { sender, fresh }| {
            fresh.lock().extend(subscriptions.iter().cloned());
            // When it is full, it is woken already.
            let _ = sender.try_send(());
            !sender.is_closed()
        });
    }
}
