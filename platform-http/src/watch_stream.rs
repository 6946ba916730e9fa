//! A watch that is being sent, whatever the transport: when it ends, and what happens at intervals.

use std::{sync::Arc, time::Duration};

use platform_engine::{
    access::Caller,
    error::{Code, Result},
    kind::Registered,
    platform::Platform,
    watch::{Closing, WatchEvent, WatchRequest, Watcher},
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Origin, StreamPermit};

/// The interval between two events or keep-alives. Our choice, below the 5 s after which some clients give up.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// The number of keep-alives after which an idle watch sends a bookmark, so that its token does not become too old.
const KEEP_ALIVES: u32 = 20;

/// The maximum age of a stream: then the client authenticates again. Our choice.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// A watch that is being sent.
#[derive(Debug)]
pub struct WatchStream {
    watcher: Watcher<Arc<Platform>>,
    origin: Origin,
    next_keep_alive: Instant,
    end: Instant,
    keep_alives: u32,
    _permit: StreamPermit,
}

/// An item of a [`WatchStream`].
#[derive(Debug)]
pub enum Sent {
    /// An event.
    Event(WatchEvent),
    /// Nothing has happened for 3 seconds.
    KeepAlive,
}

impl WatchStream {
    /// Begins a watch of a list.
    ///
    /// # Errors
    /// Those of [`Watcher::open`], and RESOURCE_EXHAUSTED when too many watches are open, in total or for this caller or
    /// address.
    pub async fn begin(
        platform: &Arc<Platform>,
        caller: &Caller,
        registered: &Registered,
        request: WatchRequest,
        origin: &Origin,
    ) -> Result<Self> {
        let permit = origin.watch(caller)?;
        let watcher = Watcher::open(Arc::clone(platform), caller, registered, request).await?;
        let now = Instant::now();
        Ok(Self {
            watcher,
            origin: origin.clone(),
            next_keep_alive: now + KEEP_ALIVE,
            end: now + MAX_AGE,
            keep_alives: 0,
            _permit: permit,
        })
    }

    /// Waits for the next item; `None` after the closing event. The watch is closed when the server stops and when it
    /// has reached its maximum age.
    pub async fn next(&mut self) -> Option<Sent> {
        loop {
            let wake_at = self.next_keep_alive.min(self.end);
            let event = tokio::select! {
                biased;
                () = self.origin.stopping() => {
                    self.watcher.close(Closing::retryable(Code::Unavailable, "The server stops"));
                    self.watcher.next().await
                }
                event = self.watcher.next_paced(sleep) => event,
                () = sleep_until(wake_at) => {
                    let now = Instant::now();
                    if now >= self.end {
                        self.watcher.close(Closing::retryable(Code::Unavailable, "The stream has reached its maximum age"));
                        continue;
                    }
                    self.next_keep_alive = now + KEEP_ALIVE;
                    Box::pin(self.watcher.tick()).await;
                    self.keep_alives += 1;
                    if self.keep_alives < KEEP_ALIVES {
                        return Some(Sent::KeepAlive);
                    }
                    self.keep_alives = 0;
                    Some(self.watcher.bookmark())
                }
            };
            self.next_keep_alive = Instant::now() + KEEP_ALIVE;
            return event.map(Sent::Event);
        }
    }
}
