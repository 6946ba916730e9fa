//! The number of advisories in each state and by severity, by day (`docs/api.md`, Advisory trends).

use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::{Action, Authorization, Field, Handler, Http, Kind, Resource, Type},
    store::{Filter, KeyName, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::VariantNames;

use super::super::{
    domain, field,
    vulnerabilities::{
        Advisory,
        advisory::{
            rating::Rating,
            trend::{self, State},
        },
    },
};
use crate::capabilities::cap;

/// The advisories of a group at the end of a day, in UTC. Our own kind, of which there are no resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdvisoryTrend {
    /// The day, at midnight UTC.
    pub date: Option<Timestamp>,
    /// The number of vulnerabilities that were found and not resolved.
    pub open: i32,
    /// The number of those that are fixed or patched.
    pub fixed: i32,
    /// The number of those that do not affect the artifact.
    pub not_affected: i32,
    /// The number of those for which no fix or no analysis is planned.
    pub not_planned: i32,
    /// The number of those in the state of the request whose severity is critical.
    pub critical: i32,
    /// The number of those in the state of the request whose severity is high.
    pub high: i32,
    /// The number of those in the state of the request whose severity is medium.
    pub medium: i32,
    /// The number of those in the state of the request whose severity is low.
    pub low: i32,
    /// The number of those in the state of the request without a known severity.
    pub unrated: i32,
}

const FIELDS: &[Field] = &[
    Field::timestamp("date").about("The day, at midnight UTC.").output_only(),
    Field::new("open", Type::Int32).about("The advisories about vulnerabilities that are not resolved.").output_only(),
    Field::new("fixed", Type::Int32).about("The advisories with a fix or a patch.").output_only(),
    Field::new("notAffected", Type::Int32).about("The advisories of false positives.").output_only(),
    Field::new("notPlanned", Type::Int32)
        .about("The advisories for which no fix or no analysis is planned.")
        .output_only(),
    Field::new("critical", Type::Int32).about("The advisories in `state` with a CVSS score from 9.0.").output_only(),
    Field::new("high", Type::Int32).about("The advisories in `state` with a CVSS score from 7.0 to 8.9.").output_only(),
    Field::new("medium", Type::Int32)
        .about("The advisories in `state` with a CVSS score from 4.0 to 6.9.")
        .output_only(),
    Field::new("low", Type::Int32).about("The advisories in `state` with a CVSS score below 4.0.").output_only(),
    Field::new("unrated", Type::Int32).about("The advisories in `state` without a known CVSS score.").output_only(),
];

/// The number of days of a request, by default and at most. Our choice.
const DEFAULT_DAYS: i32 = 30;
const MAX_DAYS: i32 = 92;

impl Resource for AdvisoryTrend {
    const KIND: &'static Kind =
        &Kind::new("AdvisoryTrend", "advisoryTrends", "AdvisoryTrendsService", domain::INSIGHTS)
            .fields(FIELDS)
            .cascade();

    const ACTIONS: &'static [Action] = &[Action::typed::<Count>("CountAdvisories", Http::Get, "advisoryTrends")
        .authorization(Authorization::At("uid", &[cap("advisories.list")]))];

    fn example() -> Self {
        let (open, fixed, not_affected, not_planned) = (4, 3, 2, 1);
        let (critical, high, medium, low, unrated) = (1, 1, 0, 0, 2);
        let date = Some(Timestamp::EPOCH);
        Self { date, open, fixed, not_affected, not_planned, critical, high, medium, low, unrated }
    }
}

/// `CountAdvisories`.
struct Count;

#[derive(Debug, Deserialize)]
struct Request {
    uid: Uid,
    #[serde(default)]
    days: i32,
    #[serde(default)]
    state: State,
}

impl Handler for Count {
    const REQUEST: &'static [Field] = &[
        field::uid("uid").about("The group whose advisories count, with those of all groups below it.").required(),
        Field::new("days", Type::Int32).about("The number of days up to today: 1 to 92, by default 30."),
        Field::enumeration("state", State::VARIANTS)
            .about("The state whose advisories are counted by severity, by default `OPEN`."),
    ];
    const RESPONSE: &'static [Field] = &[Field::new("days", Type::List(&Type::Message(FIELDS)))
        .about("The days, oldest first.")
        .max_items(MAX_DAYS as usize)];
    type Request = Request;
    type Response = Value;

    fn run<'a>(cx: &'a Context<'a>, request: Request) -> platform_engine::BoxFuture<'a, Result<Value>> {
        Box::pin(count(cx, request))
    }
}

/// Counts backwards from the current states, by the changes of each day. All counts are totals of one index key, so the
/// cost depends on the number of days alone.
async fn count(cx: &Context<'_>, request: Request) -> Result<Value> {
    let days = match request.days {
        0 => DEFAULT_DAYS,
        days @ 1..=MAX_DAYS => days,
        _ => return Err(Error::invalid_field("days", format!("must be between 1 and {MAX_DAYS}"))),
    };
    let (group, state) = (&request.uid, request.state);
    let (mut states, mut ratings) = ([0_i64; State::ALL.len()], [0_i64; Rating::ALL.len()]);
    for (count, state) in states.iter_mut().zip(State::ALL) {
        *count = total(cx, group, "latestEvent", state.events()).await?;
    }
    for (count, rating) in ratings.iter_mut().zip(Rating::ALL) {
        *count = total(cx, group, trend::KEY, vec![trend::rated(state, rating)]).await?;
    }
    let today = trend::day(cx.now());
    let mut found = Vec::new();
    for day in (today.saturating_sub(i64::from(days) - 1)..=today).rev() {
        // An advisory with an event in the future is counted in that event's state, without a change so far.
        let shown = |count: i64| i32::try_from(count.max(0)).unwrap_or(i32::MAX);
        let [open, fixed, not_affected, not_planned] = states.map(shown);
        let [critical, high, medium, low] = ratings.map(shown);
        let of_state = State::ALL.into_iter().zip(states).find(|(one, _)| *one == state).map_or(0, |(_, count)| count);
        let unrated = shown(of_state.saturating_sub(ratings.iter().sum()));
        let date = Some(Timestamp::from_millis(day.saturating_mul(trend::DAY)));
        found.push(AdvisoryTrend {
            date,
            open,
            fixed,
            not_affected,
            not_planned,
            critical,
            high,
            medium,
            low,
            unrated,
        });
        for (count, state) in states.iter_mut().zip(State::ALL) {
            *count = before(cx, group, *count, day, state, None).await?;
        }
        for (count, rating) in ratings.iter_mut().zip(Rating::ALL) {
            *count = before(cx, group, *count, day, state, Some(rating)).await?;
        }
    }
    found.reverse();
    Ok(json!({ "days": found }))
}

/// Returns a count at the end of the day before a day, from the one at its end.
async fn before(
    cx: &Context<'_>,
    group: &Uid,
    count: i64,
    day: i64,
    state: State,
    rating: Option<Rating>,
) -> Result<i64> {
    let entered = total(cx, group, trend::KEY, vec![trend::entered(day, state, rating)]).await?;
    let left = total(cx, group, trend::KEY, vec![trend::left(day, state, rating)]).await?;
    Ok(count.saturating_sub(entered).saturating_add(left))
}

/// Returns the number of advisories in a group and below with one of these values.
async fn total(cx: &Context<'_>, group: &Uid, key: KeyName, values: Vec<KeyValue>) -> Result<i64> {
    let query = Query {
        filters: vec![Filter::AnyOf { key, values }],
        limit: 0,
        count: true,
        ..Query::new(Advisory::KIND.name, Scope::Subtree(group.clone()))
    };
    Ok(i64::try_from(cx.page(query).await?.total.unwrap_or_default()).unwrap_or(i64::MAX))
}
