//! Metrics, for the process's recorder of the crate `metrics`.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use platform_core::resources::events::DeadReason;
use platform_engine::{event::Event, timestamp::Timestamp};

const ATTEMPTS: &str = "platform_events_attempts_total";
const ATTEMPT_TIME: &str = "platform_events_attempt_seconds";
const LAG: &str = "platform_events_lag_seconds";
const DEAD: &str = "platform_events_dead_total";
const PAUSED: &str = "platform_events_paused_total";
const PENDING: &str = "platform_events_pending";
const OLDEST: &str = "platform_events_oldest_pending_seconds";
const WORKING: &str = "platform_events_lanes_working";

/// Registers the descriptions of all metrics. Call this once, after installing the recorder.
pub fn describe() {
    describe_counter!(
        ATTEMPTS,
        "Attempts to deliver an event, by the class of the response status: 2xx to 5xx, or none"
    );
    describe_histogram!(ATTEMPT_TIME, Unit::Seconds, "Duration of an attempt");
    describe_histogram!(LAG, Unit::Seconds, "Time from a change to the acknowledgement of its event");
    describe_counter!(DEAD, "Events that became dead letters, by reason");
    describe_counter!(PAUSED, "Subscriptions paused by a 410 response");
    describe_gauge!(PENDING, "Pending events");
    describe_gauge!(OLDEST, Unit::Seconds, "Age of the oldest pending event");
    describe_gauge!(WORKING, "Subscriptions with a running delivery");
}

pub(crate) fn attempted(class: &'static str, took: Duration) {
    counter!(ATTEMPTS, "response" => class).increment(1);
    histogram!(ATTEMPT_TIME).record(took.as_secs_f64());
}

pub(crate) fn acknowledged(event: &Event, now: Timestamp) {
    let lag = event.time.map_or(0, |time| now.millis().saturating_sub(time.millis()).max(0));
    histogram!(LAG).record(Duration::from_millis(lag.unsigned_abs()).as_secs_f64());
}

pub(crate) fn dead(reason: DeadReason) {
    let reason = match reason {
        DeadReason::DeadReasonUnspecified => "unspecified",
        DeadReason::Expired => "expired",
        DeadReason::Rejected => "rejected",
        DeadReason::BacklogFull => "backlog_full",
    };
    counter!(DEAD, "reason" => reason).increment(1);
}

pub(crate) fn paused() {
    counter!(PAUSED).increment(1);
}

pub(crate) fn working(lanes: usize) {
    gauge!(WORKING).set(f64::from(u32::try_from(lanes).unwrap_or(u32::MAX)));
}

pub(crate) fn pending(total: u64, oldest_millis: i64) {
    gauge!(PENDING).set(f64::from(u32::try_from(total).unwrap_or(u32::MAX)));
    gauge!(OLDEST).set(Duration::from_millis(oldest_millis.max(0).unsigned_abs()).as_secs_f64());
}
