//! The state of an advisory and the days on which it enters and leaves states, by severity too, as index keys.

use platform_engine::{
    kind::DerivedKey,
    store::{KeyName, KeyValue},
    timestamp::Timestamp,
};
use serde::Deserialize;
use serde_json::Value;
use strum::VariantNames;

use super::{event::EventType, filters, rating::Rating};

/// The name of the key.
pub(crate) const KEY: KeyName = "stateChange";

/// A day in milliseconds.
pub(crate) const DAY: i64 = 24 * 60 * 60 * 1000;

/// The state of the vulnerability by the most recent approved event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum State {
    #[default]
    Open,
    Fixed,
    NotAffected,
    NotPlanned,
}

impl State {
    /// All states, in the order of the fields of the trend.
    pub(crate) const ALL: [Self; 4] = [Self::Open, Self::Fixed, Self::NotAffected, Self::NotPlanned];

    const fn of(event: EventType) -> Self {
        match event {
            EventType::Detection | EventType::TruePositiveDetermination | EventType::PendingUpstreamFix => Self::Open,
            EventType::Fixed | EventType::Patched => Self::Fixed,
            EventType::FalsePositiveDetermination => Self::NotAffected,
            EventType::AnalysisNotPlanned | EventType::FixNotPlanned => Self::NotPlanned,
        }
    }

    /// Returns the values of the key `latestEvent` of advisories in this state.
    pub(crate) fn events(self) -> Vec<KeyValue> {
        let events = EventType::ALL.into_iter().filter(|event| Self::of(*event) == self);
        events.map(|event| KeyValue::text(event.filter_name())).collect()
    }
}

/// Returns the number of days since 1970-01-01 in UTC.
pub(crate) fn day(at: Timestamp) -> i64 {
    at.millis().div_euclid(DAY)
}

/// Returns the value of the key of live advisories in a state with a rating.
pub(crate) fn rated(state: State, rating: Rating) -> KeyValue {
    KeyValue::text(&format!("{state:?}/{rating:?}"))
}

/// Returns the value of the key of advisories that are in a state at the end of a day, and were not at the end of the
/// day before: of all of them, or of those with a rating.
pub(crate) fn entered(day: i64, state: State, rating: Option<Rating>) -> KeyValue {
    change(day, '+', state, rating)
}

/// Returns the value of the key of advisories that are not in a state at the end of a day, and were at the end of the
/// day before: of all of them, or of those with a rating.
pub(crate) fn left(day: i64, state: State, rating: Option<Rating>) -> KeyValue {
    change(day, '-', state, rating)
}

fn change(day: i64, sign: char, state: State, rating: Option<Rating>) -> KeyValue {
    KeyValue::text(&match rating {
        Some(rating) => format!("{day}{sign}{state:?}/{rating:?}"),
        None => format!("{day}{sign}{state:?}"),
    })
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
    let rating = Rating::of(body);
    let ratings: &[_] = if rating.is_some() { &[None, rating] } else { &[None] };
    let mut values = Vec::new();
    if let (None, Some(rating), Some((_, Some(state)))) = (withdrawn, rating, events.last()) {
        values.push(rated(*state, rating));
    }
    let mut before = None;
    for of_day in events.chunk_by(|(one, _), (next, _)| day(*one) == day(*next)) {
        let Some((at, now)) = of_day.last().copied() else { continue };
        if now != before {
            for rating in ratings {
                values.extend(before.map(|state| left(day(at), state, *rating)));
                values.extend(now.map(|state| entered(day(at), state, *rating)));
            }
        }
        before = now;
    }
    values
});
