//! The dispatcher: which lanes have work, and when.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::Arc,
    time::Duration,
};

use platform_core::{platform::Platform, store, uid::Uid};
use platform_core::{
    kind::Resource,
    resources::events::PendingEvent,
    store::{Order, OrderBy, Query, Scope},
    timestamp::Timestamp,
};
use tokio::{
    task::{JoinSet, LocalSet},
    time::{Instant, sleep_until},
};

use crate::{
    lane::{Next, Shared},
    metrics,
    policy::Policy,
    sink::Sink,
};
