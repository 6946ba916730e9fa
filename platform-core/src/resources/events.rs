//! Subscriptions to events, pending events, delivery status and log, and dead letters.

pub mod dead_letter;
pub mod delivery;
pub mod delivery_status;
pub mod event_body;
pub mod pending_event;
pub mod requests;
pub mod subscription;

pub use dead_letter::{DeadLetter, DeadReason};
pub use delivery::{Delivery, DeliveryState};
pub use delivery_status::{DeliveryStatus, Mode};
pub use event_body::EventBody;
pub use pending_event::PendingEvent;
pub use subscription::{SinkPolicy, Subscription, is_test_event};
