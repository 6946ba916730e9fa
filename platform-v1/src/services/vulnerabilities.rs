//! Advisories and their events, which version 1 can write.

mod writes;

use platform_core::{
    capabilities::cap,
    resources::vulnerabilities::{Advisory, AdvisoryEvent, advisory::event},
};
use platform_engine::{
    BoxFuture,
    context::Context,
    conversion::{self, Conversion, ListConversion},
    error::{Error, Result},
    kind::{Action, Authorization, Domain, Field, Kind, Registered, Resource, Type},
    request::PAGE_TOKEN,
    store::{Filter as StoreFilter, Key, KeyValue},
    uid::Uid,
};
use serde_json::{Map, Value, json};

use super::{UIDP, VULNERABILITIES};

/// The service.
pub const ADVISORIES: Registered = Registered::service(
    &Kind::service_of("AdvisoriesV1", "advisories", "Advisories", VULNERABILITIES),
    &[
        Action::post("Create", "advisories", |cx, request| Box::pin(create(cx, request)))
            .previewed()
            .request(&[PARENT_ID, Field::message("advisory", FIELDS).about("The advisory to create.").unread()])
            .response(FIELDS)
            .authorization(Authorization::At("parentId", &[cap("advisories.create")])),
        Action::page_as::<Filter>("List", "advisories"),
        Action::put("Update", "advisories/{id=**}", |cx, request| Box::pin(update(cx, request)))
            .previewed()
            .request(FIELDS)
            .response(FIELDS)
            .authorization(Authorization::At("id", &[cap("advisories.update")])),
        Action::delete("Delete", "advisories/{id=**}", |cx, request| Box::pin(delete(cx, request)))
            .previewed()
            .request(&[Field::string("id").about("The uid of the advisory.")])
            .authorization(Authorization::At("id", &[cap("advisories.delete")])),
        Action::post("CreateAdvisoryEvent", "advisories/{parentId=**}/events", |cx, request| {
            Box::pin(create_event(cx, request))
        })
        .previewed()
        .request(&[
            Field::string("parentId").about("The uid of the advisory."),
            Field::message("advisoryEvent", EVENT).about("The event to add.").unread(),
        ])
        .response(EVENT)
        .authorization(Authorization::At("parentId", &[cap("advisories.create")])),
        Action::get("ListAdvisoryEvents", "advisories/{parentId=**}/events", |cx, request| {
            Box::pin(list_events(cx, request))
        })
        .request(&[Field::string("parentId").about("The uid of the advisory, or of one of its events.")])
        .response(&[
            Field::string("parentId").about("The `parentId` of the request."),
            Field::new("items", Type::List(&Type::Message(EVENT))).about("The events, oldest first."),
        ])
        .authorization(Authorization::At("parentId", &[cap("advisories.list")])),
        Action::put("UpdateAdvisoryEvent", "advisory_events/{id=**}", |cx, request| {
            Box::pin(update_event(cx, request))
        })
        .previewed()
        .request(EVENT)
        .response(EVENT)
        .authorization(Authorization::At("id", &[cap("advisories.update")])),
    ],
);

const PARENT_ID: Field = Field::string("parentId").about("The group of the advisory.");

const FIELDS: &[Field] = &[
    // Read for the access check.
    Field::string("id").of("uid").about("The uid."),
    Advisory::KIND.show("artifactType"),
    Advisory::KIND.show("artifactName"),
    Advisory::KIND.show("artifactArchitecture"),
    Advisory::KIND.show("componentName").optional(),
    Advisory::KIND.show("componentLocation").optional(),
    Advisory::KIND.show("componentType").optional(),
    Advisory::KIND.show("createTime").named("createdAt"),
    Advisory::KIND.show("updateTime").named("updatedAt"),
    Advisory::KIND.show("deleteTime").named("deletedAt").optional(),
    Advisory::KIND.show("aliases"),
    Advisory::KIND.show("events").ty(Type::List(&Type::Message(EVENT))),
    Advisory::KIND.show("advisoryId"),
    Advisory::KIND.show("author"),
    Advisory::KIND.show("legacyAdvisoryId").named("legacyAdvisoryID").optional(),
];

const EVENT: &[Field] = &[
    Field::string("id").of("uid").about("The uid of the advisory and a segment."),
    Field::timestamp("timestamp").of("createTime").about("When the event was added.").unread(),
    event::detection(DETECTED).oneof("type").unread(),
    event::fixed(FIXED).oneof("type").unread(),
    event::FALSE_POSITIVE_DETERMINATION
        .ty(Type::Message(&[
            Field::enumeration("type", FALSE_POSITIVE).about("Why the artifact is not vulnerable."),
            NOTE,
        ]))
        .oneof("type")
        .unread(),
    event::ANALYSIS_NOT_PLANNED.oneof("type").unread(),
    event::FIX_NOT_PLANNED.oneof("type").unread(),
    event::PENDING_UPSTREAM_FIX.oneof("type").unread(),
    event::TRUE_POSITIVE_DETERMINATION.oneof("type").unread(),
    Field::message("patched", &[Field::strings("patchedVersions").about("The versions that were patched."), NOTE])
        .about("Set when released versions were patched.")
        .oneof("type")
        .unread(),
    Field::message(
        "componentLocationChanged",
        &[
            Field::string("previousLocation").about("The path before."),
            Field::string("newLocation").about("The path now."),
            NOTE,
        ],
    )
    .about("Set when the component was found at another path.")
    .oneof("type")
    .unread(),
    Field::new("findings", Type::Bytes).about("The findings of tools: JSON in base64.").unread(),
    Field::string("author").about("The author of the event; by default the caller.").unread(),
    Field::string("reviewer").about("The reviewer of the event.").unread(),
    Field::enumeration("status", STATUS)
        .of("reviewState")
        .about("The state of the review; `PENDING` for a new event without one.")
        .unread(),
    Field::string("issue").about("The address of the discussion.").unread().optional(),
];

const NOTE: Field = Field::string("note").about("A note about the event.");
const FIXED: &[Field] =
    &[event::FIXED_VERSION, NOTE, event::SCANNER_VERSION, event::GRYPE_DB_BUILT, event::GRYPE_DB_CHECKSUM];
const DETECTED: &[Field] = &event::detected(SCAN);
const SCAN: &[Field] = &{
    let [scanner, subpackage, id, component, version, ty, location, artifact, of_scanner, built, checksum] =
        event::scan("subpackageName", "componentName");
    let (subpackage, component) = (subpackage.of("subpackage"), component.of("component"));
    [scanner, subpackage, id, component, version, ty, location, artifact, of_scanner, built, checksum]
};

const STATUS: &[&str] = &["UNKNOWN", "PENDING", "APPROVED", "REQUEST_CHANGES", "REJECTED"];

const FALSE_POSITIVE: &[&str] = &[
    "UNSPECIFIED",
    "VULNERABILITY_RECORD_ANALYSIS_CONTESTED",
    "COMPONENT_VULNERABILITY_MISMATCH",
    "VULNERABLE_CODE_VERSION_NOT_USED",
    "VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE",
    "VULNERABLE_CODE_NOT_IN_EXECUTION_PATH",
    "VULNERABLE_CODE_CANNOT_BE_CONTROLLED_BY_ADVERSARY",
    "INLINE_MITIGATIONS_EXIST",
];

/// The types of version 2, and one more.
const EVENT_TYPES: &[&str] = &[
    "EVENT_TYPE_FILTER_UNSPECIFIED",
    "EVENT_TYPE_FILTER_DETECTION",
    "EVENT_TYPE_FILTER_TRUE_POSITIVE_DETERMINATION",
    "EVENT_TYPE_FILTER_FIXED",
    "EVENT_TYPE_FILTER_FALSE_POSITIVE_DETERMINATION",
    "EVENT_TYPE_FILTER_ANALYSIS_NOT_PLANNED",
    "EVENT_TYPE_FILTER_FIX_NOT_PLANNED",
    "EVENT_TYPE_FILTER_PENDING_UPSTREAM_FIX",
    "EVENT_TYPE_FILTER_PATCHED",
    "EVENT_TYPE_FILTER_COMPONENT_LOCATION_CHANGED",
];

const ORDERS: &[&str] = &[
    "ORDER_BY_UNSPECIFIED",
    "ID_ASC",
    "ID_DESC",
    "CREATED_AT_ASC",
    "CREATED_AT_DESC",
    "ALIASES_ASC",
    "ALIASES_DESC",
    "UPDATED_AT_ASC",
    "UPDATED_AT_DESC",
    "DELETED_AT_ASC",
    "DELETED_AT_DESC",
];

/// Returns the order of version 2. Only advisories that are not deleted are listed, so all have the same time of
/// deletion.
fn order(name: &str) -> Option<&'static str> {
    Some(match name {
        "ID_ASC" | "DELETED_AT_ASC" | "DELETED_AT_DESC" => "uid",
        "ID_DESC" => "uid desc",
        "CREATED_AT_ASC" => "createTime",
        "CREATED_AT_DESC" => "createTime desc",
        "ALIASES_ASC" => "aliases",
        "ALIASES_DESC" => "aliases desc",
        "UPDATED_AT_ASC" => "updateTime",
        "UPDATED_AT_DESC" => "updateTime desc",
        _ => return None,
    })
}

struct Message;

/// The number of advisories that are read at once. Our choice.
const AT_ONCE: usize = 50;

impl Conversion for Message {
    type Resource = Advisory;
    const DOMAIN: Domain = VULNERABILITIES;
    const PATH: &'static str = "advisories";
    const MESSAGE: &'static str = "Advisory";
    const FIELDS: &'static [Field] = FIELDS;

    /// Shows the stored advisories, because lists of version 2 omit events that only version 1 has.
    fn complete<'a>(cx: &'a Context<'a>, messages: &'a mut [Map<String, Value>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut pace = cx.pace();
            // A store reads all records of a call in one step, and advisories are long.
            for messages in messages.chunks_mut(AT_ONCE) {
                let keys = messages.iter().map(|message| Key::new(Advisory::KIND.name, uid_in(message, "id")));
                let records = cx.records(&keys.collect::<Vec<_>>()).await?;
                for (message, record) in messages.iter_mut().zip(records) {
                    if let Some(record) = record {
                        let advisory = serde_json::from_slice(&record.body).map_err(Error::internal)?;
                        *message = shown(cx, &advisory)?;
                        // One is read and written, and the message that it replaces is dropped.
                        pace.step(2 * record.body.len()).await;
                    }
                }
            }
            Ok(())
        })
    }
}

struct Filter;

impl ListConversion for Filter {
    type Item = Message;
    const REQUEST: &'static [Field] = &[
        Field::strings("advisoryIds").about("Only advisories with one of these identifiers.").max_items(1000),
        Field::strings("legacyAdvisoryIds")
            .about("Only advisories with one of these legacy identifiers.")
            .max_items(1000),
        Field::string("id").of("uidp.ids").about("Only the advisory with this uid."),
        UIDP,
        any_of("artifactType", "artifactTypes").about("Only advisories about artifacts of one of these types."),
        any_of("artifactName", "artifactNames").about("Only advisories about one of these artifacts."),
        any_of("componentName", "componentNames").about("Only advisories about one of these components."),
        any_of("componentType", "componentTypes").about("Only advisories about components of one of these types."),
        any_of("componentLocation", "componentLocations")
            .about("Only advisories about components at one of these paths."),
        Field::strings("aliases").about("Only advisories with one of these aliases.").max_items(1000),
        any_of("artifactArchitecture", "artifactArchitectures")
            .about("Only advisories about artifacts for one of these architectures."),
        PAGE_TOKEN,
        Field::new("pageSize", Type::Int64).about("The maximum number of advisories on the page."),
        Field::new("eventStatuses", Type::List(&Type::Enum(STATUS)))
            .of("eventReviewStates")
            .about("Only advisories with an event in one of these review states."),
        any_of("eventAuthor", "eventAuthors").about("Only advisories with an event of one of these authors."),
        any_of("eventReviewer", "eventReviewers")
            .about("Only advisories with an event reviewed by one of these reviewers."),
        Field::new("eventTypes", Type::List(&Type::Enum(EVENT_TYPES)))
            .of("")
            .check(specified)
            .about("Only advisories with an event of one of these types."),
        Field::enumeration("orderBy", ORDERS).of("").about("The order; by default by uid."),
        any_of("excludeEventAuthor", "excludeEventAuthors")
            .max_items(100)
            .about("Only advisories without an event of one of these authors."),
        Field::enumeration("latestEventType", EVENT_TYPES)
            .about("Only advisories whose most recent approved event is of this type."),
        Field::string("origin")
            .about("Only advisories about packages made by the build of this package; `artifactName` is then ignored."),
    ];
    const RESPONSE: &'static [Field] = &[
        Field::string("id").of("").about("Empty: a list can have advisories of several groups."),
        Field::new("items", Type::List(&Type::Message(FIELDS))).about("The advisories of the page."),
        Field::string("nextPageToken").about("Asks for the next page; empty on the last page."),
        Field::new("totalCount", Type::Int64).about("The number of advisories on all pages."),
    ];

    fn to_parameters(request: &Map<String, Value>, parameters: &mut Map<String, Value>) {
        if let Some(order) = request.get("orderBy").and_then(Value::as_str).and_then(order) {
            parameters.insert("orderBy".to_owned(), order.into());
        }
    }

    fn filters(request: &Map<String, Value>) -> Vec<StoreFilter> {
        let types = request.get("eventTypes").and_then(Value::as_array).into_iter().flatten();
        let values: Vec<_> = types.filter_map(Value::as_str).map(KeyValue::text).collect();
        if values.is_empty() { Vec::new() } else { vec![StoreFilter::AnyOf { key: "eventType", values }] }
    }
}

const fn any_of(name: &'static str, of: &'static str) -> Field {
    Field::strings(name).of(of).max_items(1000)
}

/// Requires that no element is the unspecified type.
fn specified(types: &Value) -> std::result::Result<(), String> {
    let mut types = types.as_array().into_iter().flatten().filter_map(Value::as_str);
    if types.any(|name| name.ends_with("_UNSPECIFIED")) {
        Err("must not contain an unspecified value".to_owned())
    } else {
        Ok(())
    }
}

async fn create(cx: &Context<'_>, mut request: Map<String, Value>) -> Result<Value> {
    let within = |error: Error| {
        if error.violations().iter().any(|violation| violation.field == "parent") {
            error.rename_fields(|_| "parentId".to_owned())
        } else {
            error.rename_fields(|path| format!("advisory.{path}"))
        }
    };
    let advisory = advisory(cx, message(&mut request, "advisory")?).map_err(within)?;
    let created = writes::create(cx, &uid_in(&request, "parentId"), advisory).await;
    let created = created.map_err(|error| within(conversion::renamed(error, FIELDS)))?;
    shown(cx, &created).map(Value::from)
}

async fn update(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = uid_in(&request, "id");
    let replaced = writes::replace(cx, &uid, advisory(cx, request)?).await;
    let replaced = replaced.map_err(|error| conversion::renamed(error, FIELDS))?;
    shown(cx, &replaced).map(Value::from)
}

async fn delete(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    writes::withdraw(cx, &uid_in(&request, "id")).await?;
    Ok(json!({}))
}

async fn create_event(cx: &Context<'_>, mut request: Map<String, Value>) -> Result<Value> {
    let within = |error: Error| error.rename_fields(|path| format!("advisoryEvent.{path}"));
    let event = event_of(cx, message(&mut request, "advisoryEvent")?).map_err(within)?;
    let added = writes::add_event(cx, &uid_in(&request, "parentId"), event).await;
    let added = added.map_err(|error| within(conversion::renamed(error, EVENT)))?;
    shown_event(cx, &added).map(Value::from)
}

async fn list_events(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = uid_in(&request, "parentId");
    let events = writes::events_of(cx, &uid).await?;
    let items = events.iter().map(|event| shown_event(cx, event)).collect::<Result<Vec<_>>>()?;
    Ok(json!({ "parentId": uid, "items": items }))
}

async fn update_event(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = uid_in(&request, "id");
    let replaced = writes::replace_event(cx, &uid, event_of(cx, request)?).await;
    let replaced = replaced.map_err(|error| conversion::renamed(error, EVENT))?;
    shown_event(cx, &replaced).map(Value::from)
}

/// Returns the message in a field of a request.
fn message(request: &mut Map<String, Value>, field: &str) -> Result<Map<String, Value>> {
    match request.remove(field) {
        Some(Value::Object(message)) => Ok(message),
        None | Some(Value::Null) => Ok(Map::new()),
        Some(_) => Err(Error::invalid_field(field, "must be an object")),
    }
}

fn advisory(cx: &Context<'_>, message: Map<String, Value>) -> Result<Advisory> {
    let advisory = conversion::read(cx, FIELDS, Advisory::KIND.fields, message)?;
    serde_json::from_value(advisory.into()).map_err(Error::internal)
}

fn event_of(cx: &Context<'_>, message: Map<String, Value>) -> Result<AdvisoryEvent> {
    let event = conversion::read(cx, EVENT, event::FIELDS, message)?;
    serde_json::from_value(event.into()).map_err(Error::internal)
}

fn shown(cx: &Context<'_>, advisory: &Advisory) -> Result<Map<String, Value>> {
    conversion::show(cx, FIELDS, Advisory::KIND.fields, advisory)
}

fn shown_event(cx: &Context<'_>, event: &AdvisoryEvent) -> Result<Map<String, Value>> {
    conversion::show(cx, EVENT, event::FIELDS, event)
}

fn uid_in(message: &Map<String, Value>, field: &str) -> Uid {
    Uid::opaque(message.get(field).and_then(Value::as_str).unwrap_or_default())
}
