//! Where events go.

use std::fmt::Debug;

use async_trait::async_trait;
use platform_core::{event::Event, resources::events::Subscription};

/// Takes events. A dispatcher calls it for one event of a subscription at a time, and for many subscriptions at once.
#[async_trait]
pub trait Sink: Debug + Send + Sync + 'static {
    /// Hands an event over and returns what came of it.
    ///
    /// It may be called again with the same event, after a crash too: [`Event::id`] tells. It is dropped when it takes
    /// longer than [`Options::timeout`](crate::Options::timeout).
    async fn deliver(&self, subscription: &Subscription, event: &Event) -> Answer;
}

/// What came of handing over an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// An HTTP status: 2xx acknowledges. A sink that knows no HTTP says 200, 400 for what it will never take, 410 for
    /// no more of these, and 503 for later.
    Status(u16),
    /// There was no answer, for this reason.
    Failed(String),
}
