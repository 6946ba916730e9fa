//! The filters of advisory lists (`docs/api.md`, Advisories).
//!
//! A withdrawn advisory has none of these index keys, so a filter by any of them excludes it. Only lists without such
//! a filter need the key `live`.

use platform_engine::{
    kind::{By, DerivedKey, Field, Param, Type},
    store::{Filter, KeyName, KeyValue},
    timestamp::Timestamp,
};
use serde_json::{Map, Value};
use strum::VariantNames;

use super::{
    event::{EVENT_TYPE_FILTERS, EventType, MOVED, ReviewState},
    trend,
};

const fn any_of(name: &'static str, key: KeyName) -> Param {
    Param::new(Field::strings(name).max_items(1000), By::Value(key))
}

const fn any_event_type(name: &'static str, key: KeyName) -> Param {
    let field = Field::new(name, Type::List(&Type::Enum(EVENT_TYPE_FILTERS))).check(specified);
    Param::new(field, By::Value(key))
}

/// The parameters of lists.
pub(super) const PARAMS: &[Param] = &[
    any_of("advisoryIds", "id").about("Only advisories with one of these identifiers."),
    any_of("legacyAdvisoryIds", "legacyId").about("Only advisories with one of these legacy identifiers."),
    Param::narrow(Field::strings("artifactNames").max_items(1000))
        .about("Only advisories about one of these artifacts."),
    any_of("artifactTypes", "ofType").about("Only advisories about artifacts of one of these types."),
    any_of("artifactArchitectures", "architecture")
        .about("Only advisories about artifacts for one of these architectures."),
    any_of("componentNames", "component").about("Only advisories about one of these components."),
    any_of("componentTypes", "componentOfType").about("Only advisories about components of one of these types."),
    any_of("componentLocations", "location").about("Only advisories about components at one of these paths."),
    any_of("aliases", "alias").about("Only advisories with one of these aliases."),
    Param::narrow(Field::string("origin"))
        .about("Only advisories about packages made by the build of this package; `artifactNames` is then ignored."),
    Param::new(
        Field::new("eventReviewStates", Type::List(&Type::Enum(ReviewState::VARIANTS)))
            .about("Only advisories with an event in one of these review states.")
            .check(specified),
        By::Value("eventReviewState"),
    ),
    any_of("eventAuthors", "eventAuthor").about("Only advisories with an event of one of these authors."),
    Param::narrow(Field::strings("excludeEventAuthors"))
        .about("Only advisories without an event of one of these authors."),
    any_of("eventReviewers", "eventReviewer")
        .about("Only advisories with an event reviewed by one of these reviewers."),
    any_event_type("eventTypes", "eventType").about("Only advisories with an event of one of these types."),
    Param::new(
        Field::enumeration("latestEventType", EVENT_TYPE_FILTERS)
            .about("Only advisories whose most recent approved event is of this type."),
        By::Value("latestEvent"),
    ),
    Param::narrow(Field::string("query")).about(
        "Only advisories with this text in the artifact's name, the component's name or an alias, regardless \
         of case.",
    ),
];

/// The index keys of advisories.
pub(super) const KEYS: &[DerivedKey] = &[
    DerivedKey::new("live", |body| if is_live(body) { vec![KeyValue::boolean(true)] } else { vec![] }),
    DerivedKey::new("id", |body| one(body, "advisoryId")),
    DerivedKey::new("legacyId", |body| one(body, "legacyAdvisoryId")),
    DerivedKey::new("artifact", |body| one(body, "artifactName")),
    DerivedKey::new("ofType", |body| one(body, "artifactType")),
    DerivedKey::new("architecture", |body| one(body, "artifactArchitecture")),
    DerivedKey::new("component", |body| one(body, "componentName")),
    DerivedKey::new("componentOfType", |body| one(body, "componentType")),
    DerivedKey::new("location", |body| one(body, "componentLocation")),
    DerivedKey::new("alias", |body| live(body, aliases(body).map(KeyValue::text))),
    DerivedKey::new("madeBy", |body| one(body, "origin")),
    DerivedKey::new("eventReviewState", |body| of_events(body, "reviewState")),
    DerivedKey::new("eventAuthor", |body| of_events(body, "author")),
    DerivedKey::new("eventReviewer", |body| of_events(body, "reviewer")),
    DerivedKey::new("eventType", |body| live(body, events(body).filter_map(any_type))),
    DerivedKey::new("latestEvent", |body| live(body, latest(body).and_then(event_type))),
    DerivedKey::new("search", searched),
    trend::CHANGES,
];

/// Returns the filters of parameters that do not map to one key: `origin`, which replaces `artifactNames`, excluded
/// authors and the text query. Adds a filter that excludes withdrawn advisories unless another filter does.
pub(super) fn narrow(params: &Map<String, Value>) -> Vec<Filter> {
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let values = |name: &str| -> Vec<KeyValue> {
        let values = params.get(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(KeyValue::text).collect()
    };
    let mut filters = Vec::new();
    match (text("origin"), values("artifactNames")) {
        (Some(origin), _) => filters.push(Filter::AnyOf { key: "madeBy", values: vec![KeyValue::text(origin)] }),
        (None, names) if !names.is_empty() => filters.push(Filter::AnyOf { key: "artifact", values: names }),
        _ => {}
    }
    let by_value = |param: &Param| matches!(param.by, By::Value(_)) && params.contains_key(param.field.name);
    if filters.is_empty() && !PARAMS.iter().any(by_value) {
        filters.push(Filter::AnyOf { key: "live", values: vec![KeyValue::boolean(true)] });
    }
    let excluded = values("excludeEventAuthors");
    if !excluded.is_empty() {
        filters.push(Filter::NoneOf { key: "eventAuthor", values: excluded });
    }
    if let Some(query) = text("query") {
        filters.push(Filter::Contains { keys: vec!["search"], bytes: KeyValue::text(&query.to_lowercase()) });
    }
    filters
}

/// Requires that no element is the unspecified value of its enum.
fn specified(values: &Value) -> Result<(), String> {
    let unspecified = |name: &str| name.ends_with("_UNSPECIFIED");
    if values.as_array().into_iter().flatten().filter_map(Value::as_str).any(unspecified) {
        Err("must not contain an unspecified value".to_owned())
    } else {
        Ok(())
    }
}

fn is_live(body: &Value) -> bool {
    body.get("deleteTime").is_none()
}

/// Returns these values without duplicates; none if the advisory is withdrawn.
fn live(body: &Value, values: impl IntoIterator<Item = KeyValue>) -> Vec<KeyValue> {
    if !is_live(body) {
        return Vec::new();
    }
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort();
    values.dedup();
    values
}

fn one(body: &Value, field: &str) -> Vec<KeyValue> {
    live(body, body.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(KeyValue::text))
}

fn aliases(body: &Value) -> impl Iterator<Item = &str> {
    body.get("aliases").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn events(body: &Value) -> impl Iterator<Item = &Value> {
    body.get("events").and_then(Value::as_array).into_iter().flatten()
}

fn of_events(body: &Value, field: &str) -> Vec<KeyValue> {
    live(
        body,
        events(body).filter_map(|event| event.get(field)?.as_str()).filter(|text| !text.is_empty()).map(KeyValue::text),
    )
}

/// Returns the type of an event, if this version has it.
pub(super) fn form(event: &Value) -> Option<EventType> {
    EventType::ALL.into_iter().find(|form| event.get(form.field()).is_some())
}

fn event_type(event: &Value) -> Option<KeyValue> {
    form(event).map(|form| KeyValue::text(form.filter_name()))
}

/// Returns the type of an event, even if this version does not have it.
fn any_type(event: &Value) -> Option<KeyValue> {
    event_type(event).or_else(|| event.get("componentLocationChanged").map(|_| KeyValue::text(MOVED)))
}

/// Returns the approved events that have a type of this version.
pub(super) fn approved(body: &Value) -> impl Iterator<Item = &Value> {
    let is_approved = |event: &Value| event.get("reviewState").and_then(Value::as_str) == Some("REVIEW_STATE_APPROVED");
    events(body).filter(move |event| is_approved(event) && event.get("componentLocationChanged").is_none())
}

/// Returns the most recent approved event that has a type of this version; of several at the same time, the last in
/// the list.
pub(super) fn latest(body: &Value) -> Option<&Value> {
    approved(body).max_by_key(|event| Timestamp::parse(event.get("createTime")?.as_str()?).ok())
}

/// Returns the texts that `query` searches, in lower case, as separate values, so that a match never spans two of them.
fn searched(body: &Value) -> Vec<KeyValue> {
    let names = ["artifactName", "componentName"].into_iter().filter_map(|field| body.get(field)?.as_str());
    live(
        body,
        names.chain(aliases(body)).filter(|text| !text.is_empty()).map(|text| KeyValue::text(&text.to_lowercase())),
    )
}
