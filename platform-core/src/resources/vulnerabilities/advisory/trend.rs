//! The days on which an advisory enters and leaves a state, as index keys.

use serde_json::Value;

use super::{event::EventType, filters};
use crate::{
    kind::DerivedKey,
    store::{KeyName, KeyValue},
    timestamp::Timestamp,
};

/// The name of the key.
pub(in super::super) const KEY: KeyName = "stateChange";

/// A day in milliseconds.
pub(in super::super) const DAY: i64 = 24 * 60 * 60 * 1000;

/// What the most recent approved event says of the vulnerability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum State {
    Open,
    Fixed,
    NotAffected,
    NotPlanned,
}

impl State {
    /// All states, in the order of the fields of the trend.
    pub(in super::super) const ALL: [Self; 4] = [Self::Open, Self::Fixed, Self::NotAffected, Self::NotPlanned];

    const fn of(event: EventType) -> Self {
        match event {
            EventType::Detection | EventType::TruePositiveDetermination | EventType::PendingUpstreamFix => Self::Open,
            EventType::Fixed | EventType::Patched => Self::Fixed,
            EventType::FalsePositiveDetermination => Self::NotAffected,
            EventType::AnalysisNotPlanned | EventType::FixNotPlanned => Self::NotPlanned,
        }
    }

    /// Returns the values of the key `latestEvent` of advisories in this state.
    pub(in super::super) fn events(self) -> Vec<KeyValue> {
        let events = EventType::ALL.into_iter().filter(|event| Self::of(*event) == self);
        events.map(|event| KeyValue::text(event.filter_name())).collect()
    }
}

/// Returns the number of days since 1970-01-01 in UTC.
pub(in super::super) fn day(at: Timestamp) -> i64 {
    at.millis().div_euclid(DAY)
}

/// Returns the value of the key of advisories that are in a state at the end of a day, and were not at the end of the
/// day before.
pub(in super::super) fn entered(day: i64, state: State) -> KeyValue {
    KeyValue::text(&format!("{day}+{state:?}"))
}

/// Returns the value of the key of advisories that are not in a state at the end of a day, and were at the end of the
/// day before.
pub(in super::super) fn left(day: i64, state: State) -> KeyValue {
    KeyValue::text(&format!("{day}-{state:?}"))
}

/// The key. A withdrawn advisory keeps its history, and leaves its state on the day on which it was withdrawn.
pub(super) const CHANGES: DerivedKey = DerivedKey::new(KEY, |body| {
    let time = |value: &Value, field: &str| Timestamp::parse(value.get(field)?.as_str()?).ok();
    let mut events: Vec<(Timestamp, Option<State>)> = filters::approved(body)
        .filter_map(|event| Some((time(event, "createTime")?, Some(State::of(filters::form(event)?)))))
        .collect();
    let withdrawn = time(body, "deleteTime");
    events.retain(|(at, _)| withdrawn.is_none_or(|withdrawn| *at <= withdrawn));
    // Of several at the same time, the last in the list counts.
    events.sort_by_key(|(at, _)| *at);
    events.extend(withdrawn.map(|at| (at, None)));
    let mut values = Vec::new();
    let mut before = None;
    for of_day in events.chunk_by(|(one, _), (next, _)| day(*one) == day(*next)) {
        let Some((at, now)) = of_day.last().copied() else { continue };
        if now != before {
            values.extend(before.map(|state| left(day(at), state)));
            values.extend(now.map(|state| entered(day(at), state)));
        }
        before = now;
    }
    values
});
