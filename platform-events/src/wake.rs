//! Wake-ups between the dispatchers of several processes over one store.

use std::{
    collections::BTreeSet,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use platform_core::outbox::Outbox;
use platform_engine::{error::Result, event::Wake, platform::Platform, uid::Uid};
use tokio::sync::Notify;

/// The maximum length of a message in bytes: PostgreSQL limits the payload of a notification to 7,999.
pub const MAX_MESSAGE: usize = 7_900;

/// The maximum number of subscriptions that wait for a message. With more, the next message wakes the other processes
/// for all subscriptions. Our choice.
const MAX_WAITING: usize = 10_000;

/// In a message: all subscriptions with pending events.
const ALL: &str = "*";

/// The number of subscriptions that are woken at once after messages were missed.
const PAGE: usize = 100;

/// Tells other processes over the same store of events to deliver, by messages that the embedder carries: over
/// PostgreSQL's NOTIFY, for example.
///
/// Pass it to [`Builder::wake`](platform_engine::platform::Builder::wake). One task sends what [`next`](Self::next)
/// returns, and another passes what it receives to [`received`](Self::received). Subscriptions that wait while a message
/// is being sent are merged into the next one. A lost message delays delivery until the next sweep of a dispatcher.
pub struct Wakeups {
    process: String,
    waiting: Mutex<BTreeSet<Uid>>,
    /// Whether subscriptions were dropped because too many waited.
    overflowed: AtomicBool,
    filled: Notify,
}

impl Wakeups {
    /// Creates the wake-ups of a process. `process` is a name that no other process has, without line breaks and of at
    /// most 200 bytes.
    pub fn new(process: impl Into<String>) -> Self {
        let (waiting, overflowed) = (Mutex::default(), AtomicBool::new(false));
        Self { process: process.into(), waiting, overflowed, filled: Notify::new() }
    }

    /// Waits for a message, and returns it, of at most [`MAX_MESSAGE`] bytes.
    ///
    /// Cancel safe. A message that is not sent is lost.
    pub async fn next(&self) -> String {
        loop {
            if let Some(message) = self.take() {
                return message;
            }
            self.filled.notified().await;
        }
    }

    /// Returns the next waiting message; `None` if none waits. Use it to send the last messages before the process
    /// ends.
    pub fn take(&self) -> Option<String> {
        let mut waiting = self.waiting.lock();
        let mut message = self.process.clone();
        if self.overflowed.swap(false, Ordering::SeqCst) {
            waiting.clear();
            return Some(message + "\n" + ALL);
        }
        let empty = message.len();
        while let Some(first) = waiting.first()
            && (message.len() == empty || message.len() + 1 + first.len() <= MAX_MESSAGE)
        {
            message.push('\n');
            message.push_str(first);
            waiting.pop_first();
        }
        (message.len() > empty).then_some(message)
    }

    /// Wakes the dispatchers of this process as a message says. Ignores this process's own messages and anything that
    /// is not a uid.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn received(&self, platform: &Platform, message: &str) -> Result<()> {
        let mut lines = message.lines();
        if lines.next() == Some(&self.process) {
            return Ok(());
        }
        let lines: Vec<&str> = lines.collect();
        if lines == [ALL] {
            return Self::missed(platform).await;
        }
        let subscriptions: Vec<Uid> = lines.into_iter().filter_map(|line| Uid::parse(line).ok()).collect();
        platform.woken(&subscriptions);
        Ok(())
    }

    /// Wakes the dispatchers of this process for all subscriptions with pending events, and all its watches, because
    /// messages may have been missed: after a connection was lost and made again.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn missed(platform: &Platform) -> Result<()> {
        platform.wake_watches();
        let mut last = None;
        loop {
            let page = Outbox::of(platform).subscriptions(last.as_ref(), PAGE).await?;
            let Some(end) = page.last().cloned() else { return Ok(()) };
            platform.woken(&page);
            last = Some(end);
        }
    }
}

impl Wake for Wakeups {
    fn wake_others(&self, subscriptions: &[Uid]) {
        let mut waiting = self.waiting.lock();
        for subscription in subscriptions {
            if waiting.len() >= MAX_WAITING && !waiting.contains(subscription) {
                self.overflowed.store(true, Ordering::SeqCst);
                break;
            }
            waiting.insert(subscription.clone());
        }
        drop(waiting);
        self.filled.notify_one();
    }
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups").field("process", &self.process).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(number: usize) -> Uid {
        Uid::opaque(format!("{number:040x}"))
    }

    #[test]
    fn subscriptions_that_wait_are_merged_into_messages_of_bounded_length() {
        let wakeups = Wakeups::new("one");
        assert_eq!(wakeups.take(), None);
        wakeups.wake_others(&[uid(2), uid(1)]);
        wakeups.wake_others(&[uid(2)]);
        assert_eq!(wakeups.take(), Some(format!("one\n{}\n{}", uid(1), uid(2))));
        let many: Vec<_> = (0..1000).map(uid).collect();
        wakeups.wake_others(&many);
        let mut seen = Vec::new();
        while let Some(message) = wakeups.take() {
            assert!(message.len() <= MAX_MESSAGE);
            seen.extend(message.lines().skip(1).map(Uid::opaque));
        }
        assert_eq!(seen, many);
    }

    #[test]
    fn too_many_subscriptions_become_a_message_for_all() {
        let wakeups = Wakeups::new("one");
        wakeups.wake_others(&(0..=MAX_WAITING).map(uid).collect::<Vec<_>>());
        assert_eq!(wakeups.take().as_deref(), Some("one\n*"));
        assert_eq!(wakeups.take(), None);
    }
}
