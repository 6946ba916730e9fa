//! The destination of events.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use platform_core::{outbox::Exchange, resources::events::Subscription};
use platform_engine::event::Event;

/// Receives events. A dispatcher calls a sink for one event of a subscription at a time, and for many subscriptions
/// concurrently.
#[async_trait]
pub trait Sink: Debug + Send + Sync + 'static {
    /// Delivers an event and returns the result. Adds to `exchange` what it sends and receives, which the delivery log
    /// shows; a sink that has no headers and no response of its own leaves it as it is.
    ///
    /// May be called again with the same event, even after a crash: [`Event::id`] identifies duplicates. The future is
    /// dropped when it takes longer than [`Options::timeout`](crate::Options::timeout).
    async fn deliver(&self, subscription: &Subscription, event: &Event, exchange: &mut Exchange) -> DeliveryResult;
}

/// The result of delivering an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryResult {
    /// An HTTP status; 2xx acknowledges the event. A sink that does not use HTTP returns 200 to acknowledge, 400 for an
    /// event that it will never accept, 410 to receive no more events, and 503 to be called again later.
    Status(u16),
    /// The status of a failure, and the time after which the sink asks to be called again. The next attempt is not before
    /// this time, unless it is longer than the longest delay of the retry policy.
    Later(u16, Duration),
    /// The attempt failed without a response, for this reason.
    Failed(String),
}

impl DeliveryResult {
    /// Returns the HTTP status, if there was a response.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status(status) | Self::Later(status, _) => Some(*status),
            Self::Failed(_) => None,
        }
    }
}
