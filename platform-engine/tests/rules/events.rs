//! Events (`docs/api.md`, Events): recording, recipients and delivery by the outbox.

use platform_core::{
    outbox::{LeaseResult, Outcome},
    resources::events::{DeadReason, PendingEvent},
};
use platform_engine::{access::Caller, error::Code, uid::Uid};
use serde_json::{Value, json};

use crate::common::{World, block_on, code, text, uid_of, violated_fields};

pub(crate) use crate::deliveries::*;

mod attempts;
mod bodies;
mod delivered;
mod recorded;
mod streams;
