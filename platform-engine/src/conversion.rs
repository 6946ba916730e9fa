//! Other versions of the API: messages with other names for the same resources.
//!
//! A [`Conversion`] is a message of another version that shows a resource of a kind: a table of fields, each with the path
//! of its value in the resource ([`Field::of`]). [`Action`]s that are made for a conversion convert their requests, call
//! the standard methods of the kind, and convert the replies, the errors and the events. So a kind has one
//! implementation, and only its conversions know the names of the other version.
//!
//! A service of another version is a [`Kind`] without fields, whose actions are all of its methods.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    BoxFuture,
    access::Capabilities,
    context::Context,
    error::{Code, Error, Result, Violations},
    event::Draft,
    fields::path::{self, join, named},
    kind::{
        Access, Action, Authorization, Domain, Field, Http, Kind, ListPage, Method, Part, Resource, Run, Type, Verb,
        canonical, is_same,
    },
    request::{ListRequest, MAX_PAGE_SIZE, list_fields},
    uid,
    verbs::{self, ListReply, Once},
};

/// A message of another version of the API that shows a resource of a kind.
pub trait Conversion: 'static {
    /// The kind.
    type Resource: Resource;

    /// The domain of the other version.
    const DOMAIN: Domain;

    /// The path of the collection, after the domain and the version: the source of events.
    const PATH: &'static str;

    /// The name of the message.
    const MESSAGE: &'static str;

    /// The fields of the message. A field has the value at [`Field::of`] in the resource; without a path there, at its own
    /// name. The values of enums are matched by name: `BASE` is `CATALOG_TIER_BASE` of the kind, and the first of one is
    /// the first of the other.
    const FIELDS: &'static [Field];

    /// The fields that requests may set; by default those of the message.
    const REQUEST: &'static [Field] = Self::FIELDS;

    /// The field of the request of a create that has the uid of the parent.
    const PARENT: &'static str = "parentId";

    /// The field of the request of a create that has the message. Empty if the message is the request.
    const ITEM: &'static str = "";

    /// Completes the resource that a request creates or replaces, in the form of the kind.
    fn to_resource(_resource: &mut Map<String, Value>) {}

    /// Completes the messages of a page of resources, in the order of the resources.
    fn complete<'a>(_cx: &'a Context<'a>, _messages: &'a mut [Map<String, Value>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// The messages of a list in another version of the API.
pub trait ListConversion: 'static {
    /// The message that shows a resource.
    type Item: Conversion;

    /// The fields of the request. A field has the parameter of the kind's list at [`Field::of`], such as `uidp.ids`;
    /// without a path there, the parameter of its own name. A text for a parameter that is a list is its only element.
    const REQUEST: &'static [Field];

    /// The fields of the response: the list of messages first. The other fields have the value of that name, or at
    /// [`Field::of`], in the page of the kind's list: `nextPageToken`, `totalCount`, `skipped`.
    const RESPONSE: &'static [Field];

    /// The order of a list that returns everything that matches.
    const ORDER_BY: &'static str = "uid";

    /// Completes the parameters of the kind's list.
    fn to_parameters(_request: &Map<String, Value>, _parameters: &mut Map<String, Value>) {}
}

/// The messages of an action in another version of the API.
pub trait ActionConversion: 'static {
    /// The kind of the action.
    type Resource: Resource;

    /// The name of the action.
    const ACTION: &'static str;

    /// The domain of the other version.
    const DOMAIN: Domain;

    /// The name of the message of the response.
    const MESSAGE: &'static str;

    /// The path after the domain and the version, without variables: the source of its event, if it records one.
    const PATH: &'static str = "";

    /// The fields of the request, as in [`Conversion::FIELDS`].
    const REQUEST: &'static [Field];

    /// The fields of the response, as in [`Conversion::FIELDS`].
    const RESPONSE: &'static [Field];
}

/// Returns the action that a conversion is for. In a constant, an unknown name is a compile error.
#[expect(clippy::panic, reason = "evaluated at compile time, where it is a compile error")]
const fn action_of<A: ActionConversion>() -> &'static Action {
    let mut rest = A::Resource::ACTIONS;
    while let [action, tail @ ..] = rest {
        if is_same(action.name.as_bytes(), A::ACTION.as_bytes()) {
            return action;
        }
        rest = tail;
    }
    panic!("the kind has no action of this name")
}

/// The request of a create: the parent, and the message or its fields.
struct CreateRequest<C>(C);

impl<C: Conversion> CreateRequest<C> {
    const FIELDS: &'static [Field] = match C::ITEM.is_empty() {
        true => C::REQUEST,
        false => &[
            Field::string(C::PARENT).about("The uid of the parent."),
            Field::message(C::ITEM, C::REQUEST).about("The resource.").unread(),
        ],
    };
}

impl Action {
    /// Returns a create of a resource as a message of another version: a POST whose path has the parent.
    pub const fn create_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Post, path, Run::Once(create::<C>));
        let body = if C::ITEM.is_empty() { Part::Whole } else { Part::Field(C::ITEM) };
        let authorization = Authorization::As(C::Resource::KIND, Verb::Create, C::PARENT);
        let action = Self { event: event_of(C::Resource::KIND, Verb::Create), ..action };
        action.request(CreateRequest::<C>::FIELDS).response(C::FIELDS).authorization(authorization).body(body)
    }

    /// Returns an update that replaces a resource by a message of another version: a PUT whose path has the uid, in the
    /// first field of the message. Fields that the request does not have are cleared.
    pub const fn replace_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Put, path, Run::Once(replace::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Update, id::<C>());
        let action = Self { event: event_of(C::Resource::KIND, Verb::Update), ..action };
        action.request(C::REQUEST).response(C::FIELDS).authorization(authorization)
    }

    /// Returns a delete of a resource by its uid, in the first field of the message.
    pub const fn delete_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Delete, path, Run::Once(delete::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Delete, id::<C>());
        let action = Self { event: event_of(C::Resource::KIND, Verb::Delete), ..action };
        action.request(UidRequest::<C>::FIELDS).authorization(authorization)
    }

    /// Returns a get of a resource by its uid, in this field of the request, as a message of another version.
    pub const fn get_as<C: Conversion>(name: &'static str, path: &'static str, request: &'static [Field]) -> Self {
        let action = Self::new(name, Http::Get, path, Run::Once(get::<C>));
        let id = if let [id, ..] = request { id.name } else { "id" };
        let authorization = Authorization::As(C::Resource::KIND, Verb::Get, id);
        action.request(request).response(C::FIELDS).authorization(authorization)
    }

    /// Returns a list of all resources that match, as messages of another version.
    pub const fn list_as<L: ListConversion>(name: &'static str, path: &'static str) -> Self {
        Self::new(name, Http::Get, path, Run::Pages(list::<L>))
            .request(L::REQUEST)
            .response(L::RESPONSE)
            .authorization(list_authorization::<L>())
    }

    /// Returns a list of a page of resources, as messages of another version.
    pub const fn page_as<L: ListConversion>(name: &'static str, path: &'static str) -> Self {
        Self::new(name, Http::Get, path, Run::Once(page::<L>))
            .request(L::REQUEST)
            .response(L::RESPONSE)
            .authorization(list_authorization::<L>())
    }
}

impl Action {
    /// Returns an action with the messages of another version. Its HTTP method and authorization are those of the action.
    pub const fn action_as<A: ActionConversion>(name: &'static str, path: &'static str) -> Self {
        let of = const { action_of::<A>() };
        let authorization = match of.authorization {
            Authorization::At(field, capabilities) => Authorization::At(shown_name(A::REQUEST, field), capabilities),
            other => other,
        };
        let run = Run::Once(run::<A>);
        let action = Self { event: of.event, ..Self::new(name, of.http, path, run) };
        action.request(A::REQUEST).response(A::RESPONSE).authorization(authorization)
    }

    /// Returns an action that returns all pages of a list, as [`Action::action_as`]. The first field of the response is
    /// the list.
    pub const fn pages_as<A: ActionConversion>(name: &'static str, path: &'static str) -> Self {
        Self { run: Run::Pages(run_pages::<A>), ..Self::action_as::<A>(name, path) }
    }
}

fn run<'a, A: ActionConversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let response = respond::<A>(cx, request, None).await?;
        Ok(action_response::<A>(cx, &response).into())
    })
}

fn run_pages<'a, A: ActionConversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
    page_token: &'a str,
) -> BoxFuture<'a, Result<ListPage>> {
    Box::pin(async move {
        let response = respond::<A>(cx, request, Some(page_token)).await?;
        let items = match action_response::<A>(cx, &response).into_iter().next() {
            Some((_, Value::Array(items))) => items,
            _ => Vec::new(),
        };
        let items = items.iter().map(|item| serde_json::to_vec(item).map(Bytes::from));
        let items = items.collect::<serde_json::Result<_>>().map_err(Error::internal)?;
        Ok(ListPage { items, next_page_token: Some(text(&response, "nextPageToken")).filter(|next| !next.is_empty()) })
    })
}

/// Runs the action, for a page if there is a page token, and returns its response.
async fn respond<A: ActionConversion>(
    cx: &Context<'_>,
    request: Map<String, Value>,
    page_token: Option<&str>,
) -> Result<Map<String, Value>> {
    let action = const { action_of::<A>() };
    let mut violations = Violations::default();
    let mut reader = Reader { known: cx.platform().capabilities(), violations: &mut violations };
    let mut request = reader.message(A::REQUEST, action.request, request, "");
    violations.none_or(())?;
    if let Some(page_token) = page_token {
        request.insert("pageSize".to_owned(), MAX_PAGE_SIZE.into());
        request.insert("pageToken".to_owned(), page_token.into());
    }
    cx.convert_event(action_event::<A>);
    let renamed = |error: Error| error.rename_fields(|path| path_back(A::REQUEST, path));
    match verbs::action::run(cx, action, &request).await.map_err(renamed)? {
        Value::Object(response) => Ok(response),
        _ => Err(Error::internal("an action whose response is not a JSON object")),
    }
}

fn action_response<A: ActionConversion>(cx: &Context<'_>, response: &Map<String, Value>) -> Map<String, Value> {
    let action = const { action_of::<A>() };
    let mut response = to_message(cx.platform().capabilities(), A::RESPONSE, action.response, response);
    fill(A::RESPONSE, &mut response);
    response
}

fn action_event<A: ActionConversion>(known: &Capabilities, draft: &mut Draft) {
    let action = const { action_of::<A>() };
    let response = draft.converted(&A::DOMAIN, A::PATH);
    draft.body = to_message(known, A::RESPONSE, action.response, &response);
    A::MESSAGE.clone_into(&mut draft.message);
}

/// The request of a delete: the uid.
struct UidRequest<C>(C);

impl<C: Conversion> UidRequest<C> {
    const FIELDS: &'static [Field] = &[Field::string(id::<C>()).about("The uid of the resource.")];
}

/// Returns the name of the message's first field, which is the uid.
const fn id<C: Conversion>() -> &'static str {
    match C::FIELDS {
        [id, ..] => id.name,
        [] => "id",
    }
}

fn create<'a, C: Conversion>(cx: &'a Context<'a>, mut request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<C::Resource>()?;
        let parent = text(&request, C::PARENT);
        let sent = match C::ITEM {
            "" => request,
            item => match request.remove(item) {
                Some(Value::Object(sent)) => sent,
                None | Some(Value::Null) => Map::new(),
                Some(_) => return Err(Error::invalid_field(item, "must be an object")),
            },
        };
        let body = resource::<C>(cx, sent)?;
        cx.convert_event(event::<C>);
        let reply = verbs::create::create(cx, registered, &parent, &body, &Once::default()).await;
        message::<C>(cx, reply.map_err(renamed::<C>)?).await
    })
}

fn replace<'a, C: Conversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<C::Resource>()?;
        let uid = text(&request, id::<C>());
        let body = resource::<C>(cx, request)?;
        cx.convert_event(event::<C>);
        let mask = mask::<C>(&body);
        let reply = verbs::update::update(cx, registered, &uid, &body, Some(&mask), &Once::default()).await;
        message::<C>(cx, reply.map_err(renamed::<C>)?).await
    })
}

fn delete<'a, C: Conversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<C::Resource>()?;
        cx.convert_event(event::<C>);
        verbs::delete::delete(cx, registered, &text(&request, id::<C>())).await.map_err(renamed::<C>)?;
        Ok(json!({}))
    })
}

fn get<'a, C: Conversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<C::Resource>()?;
        // The uid is the only field.
        let (name, uid) = request.into_iter().next().unwrap_or_default();
        let renamed = |error: Error| error.rename_fields(|_| name.clone());
        let reply = verbs::get::get(cx, registered, uid.as_str().unwrap_or_default()).await;
        message::<C>(cx, reply.map_err(renamed)?).await
    })
}

const fn list_authorization<L: ListConversion>() -> Authorization {
    match method_of(<L::Item as Conversion>::Resource::KIND, Verb::List) {
        Some(Method { open: true, .. }) => Authorization::Public,
        Some(method) => Authorization::FiltersResult(method.capabilities),
        None => Authorization::FiltersResult(&[]),
    }
}

/// Returns the event of a standard method.
const fn event_of(kind: &'static Kind, verb: Verb) -> Option<&'static str> {
    match method_of(kind, verb) {
        Some(method) => method.event,
        None => None,
    }
}

/// Returns the method of a kind for a verb, in constants.
const fn method_of(kind: &'static Kind, verb: Verb) -> Option<&'static Method> {
    let mut rest = kind.methods;
    while let [method, tail @ ..] = rest {
        if method.verb as u8 == verb as u8 {
            return Some(method);
        }
        rest = tail;
    }
    None
}

/// Returns the name of the field that shows the field of this name, in constants.
const fn shown_name(fields: &'static [Field], name: &'static str) -> &'static str {
    let mut rest = fields;
    while let [field, tail @ ..] = rest {
        let of = match field.of {
            Some(of) => of,
            None => field.name,
        };
        if is_same(of.as_bytes(), name.as_bytes()) {
            return field.name;
        }
        rest = tail;
    }
    name
}

fn list<'a, L: ListConversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
    page_token: &'a str,
) -> BoxFuture<'a, Result<ListPage>> {
    Box::pin(async move {
        let mut parameters = parameters::<L>(cx, request)?;
        parameters.insert("orderBy".to_owned(), L::ORDER_BY.into());
        parameters.insert("pageSize".to_owned(), MAX_PAGE_SIZE.into());
        parameters.insert("pageToken".to_owned(), page_token.into());
        let reply = match list_page::<L>(cx, parameters).await {
            // The resource that the list belongs to does not exist.
            Err(error) if error.code() == Code::NotFound => {
                return Ok(ListPage { items: Vec::new(), next_page_token: None });
            }
            reply => reply?,
        };
        let messages = messages::<L::Item>(cx, &reply.items).await?;
        let items = messages.iter().map(|message| serde_json::to_vec(message).map(Bytes::from));
        let items = items.collect::<serde_json::Result<_>>().map_err(Error::internal)?;
        Ok(ListPage { items, next_page_token: reply.next_page_token })
    })
}

fn page<'a, L: ListConversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let parameters = parameters::<L>(cx, request)?;
        let reply = list_page::<L>(cx, parameters).await?;
        let items = messages::<L::Item>(cx, &reply.items).await?;
        let mut response = Map::new();
        for (at, field) in L::RESPONSE.iter().enumerate() {
            let value = match (at, field.of.unwrap_or(field.name)) {
                (0, _) => items.iter().cloned().collect(),
                (_, "nextPageToken") => reply.next_page_token.clone().unwrap_or_default().into(),
                (_, "totalCount") if matches!(field.ty, Type::Int64) => reply.total_count.to_string().into(),
                (_, "totalCount") => reply.total_count.into(),
                (_, "skipped") => reply.skipped.into(),
                _ => unset(&field.ty),
            };
            response.insert(field.name.to_owned(), value);
        }
        Ok(response.into())
    })
}

/// Converts the request of a list into the parameters of the kind's list.
fn parameters<L: ListConversion>(cx: &Context<'_>, request: Map<String, Value>) -> Result<Map<String, Value>> {
    let known: Vec<Field> = list_fields(<L::Item as Conversion>::Resource::KIND).copied().collect();
    let mut violations = Violations::default();
    let mut reader = Reader { known: cx.platform().capabilities(), violations: &mut violations };
    let mut parameters = reader.message(L::REQUEST, &known, request.clone(), "");
    violations.none_or(())?;
    L::to_parameters(&request, &mut parameters);
    Ok(parameters)
}

async fn list_page<L: ListConversion>(cx: &Context<'_>, parameters: Map<String, Value>) -> Result<ListReply> {
    let registered = cx.platform().registered_of::<<L::Item as Conversion>::Resource>()?;
    let renamed = |error: Error| error.rename_fields(|path| path_back(L::REQUEST, path));
    let request = ListRequest::from_json(registered.kind, parameters).map_err(renamed)?;
    verbs::list::list(cx, registered, &request).await.map_err(renamed)
}

/// Returns a resource as a reply shows it: with all fields, those without a value too.
async fn message<C: Conversion>(cx: &Context<'_>, resource: Bytes) -> Result<Value> {
    let message = messages::<C>(cx, &[resource]).await?.pop();
    message.map(Value::Object).ok_or_else(|| Error::internal("a conversion returned no message"))
}

/// Returns resources as replies show them.
async fn messages<C: Conversion>(cx: &Context<'_>, resources: &[Bytes]) -> Result<Vec<Map<String, Value>>> {
    let resources = resources.iter().map(|body| serde_json::from_slice(body).map_err(Error::internal));
    let known = cx.platform().capabilities();
    let mut messages = resources
        .map(|resource| resource.map(|resource| to_message(known, C::FIELDS, C::Resource::KIND.fields, &resource)))
        .collect::<Result<Vec<_>>>()?;
    C::complete(cx, &mut messages).await?;
    messages.iter_mut().for_each(|message| fill(C::FIELDS, message));
    Ok(messages)
}

/// Returns a resource as a reply shows it, without what [`Conversion::complete`] adds.
///
/// # Errors
/// INTERNAL when it cannot be written as JSON.
pub fn shown<C: Conversion>(cx: &Context<'_>, resource: &C::Resource) -> Result<Map<String, Value>> {
    let resource = canonical(resource)?;
    let empty = Map::new();
    let resource = resource.as_object().unwrap_or(&empty);
    let mut message = to_message(cx.platform().capabilities(), C::FIELDS, C::Resource::KIND.fields, resource);
    fill(C::FIELDS, &mut message);
    Ok(message)
}

/// Converts the message of a request.
fn resource<C: Conversion>(cx: &Context<'_>, message: Map<String, Value>) -> Result<Map<String, Value>> {
    let mut violations = Violations::default();
    let mut reader = Reader { known: cx.platform().capabilities(), violations: &mut violations };
    let mut resource = reader.message(C::REQUEST, C::Resource::KIND.fields, message, "");
    violations.none_or(())?;
    C::to_resource(&mut resource);
    Ok(resource)
}

/// Returns the mask of an update that replaces the fields of the message. An immutable field is part of it only if the
/// request has a value, which must then be the stored one.
fn mask<C: Conversion>(resource: &Map<String, Value>) -> String {
    let kind = C::Resource::KIND.fields;
    let is_replaced = |path: &&str| {
        let (first, _) = path.split_once('.').unwrap_or((path, ""));
        match kind.iter().find(|field| field.name == first).map(|field| field.access) {
            Some(Access::Mutable | Access::InputOnly) => true,
            Some(Access::Immutable) => resource.contains_key(first),
            Some(Access::OutputOnly) | None => false,
        }
    };
    let paths = C::REQUEST.iter().map(|field| field.of.unwrap_or(field.name)).filter(is_replaced);
    paths.collect::<Vec<_>>().join(",")
}

/// Names the fields of an error of the kind as the messages do.
fn renamed<C: Conversion>(error: Error) -> Error {
    error.rename_fields(|path| match path {
        "parent" => C::PARENT.to_owned(),
        path => path_back(C::REQUEST, path),
    })
}

/// Shows the event of a standard method as the other version does: with the request of a create or delete, and with the
/// message of an update.
fn event<C: Conversion>(known: &Capabilities, draft: &mut Draft) {
    let resource = draft.converted(&C::DOMAIN, C::PATH);
    let shown = to_message(known, C::FIELDS, C::Resource::KIND.fields, &resource);
    let subject = draft.subject.as_str();
    (draft.message, draft.body) = match draft.verb {
        Some(Verb::Create) if !C::ITEM.is_empty() => {
            let parent = uid::parent(subject).unwrap_or_default();
            let request = [(C::PARENT.to_owned(), parent.into()), (C::ITEM.to_owned(), shown.into())];
            (format!("Create{}Request", C::MESSAGE), request.into_iter().collect())
        }
        Some(Verb::Delete) => {
            let request = [(id::<C>().to_owned(), subject.into())];
            (format!("Delete{}Request", C::MESSAGE), request.into_iter().collect())
        }
        _ => (C::MESSAGE.to_owned(), shown),
    };
}

/// Converts requests, and collects the rules that they break.
struct Reader<'a> {
    known: &'a Capabilities,
    violations: &'a mut Violations,
}

impl Reader<'_> {
    /// Converts a message with these fields into one with the fields `to`. Fields that the resource does not have are left
    /// out. Values are not validated, except that the names of fields, enums and capabilities must be known.
    fn message(
        &mut self,
        fields: &[Field],
        to: &[Field],
        message: Map<String, Value>,
        prefix: &str,
    ) -> Map<String, Value> {
        let mut resource = Map::new();
        for (key, value) in message {
            let path = join(prefix, &key);
            let Some(field) = named(fields, &key) else {
                self.violations.add(path, "unknown field");
                continue;
            };
            let of = field.of.unwrap_or(field.name);
            let Some(ty) = type_at(to, of) else { continue };
            if path::at(&resource, of).is_some() {
                self.violations.add(join(prefix, field.name), "is given twice");
                continue;
            }
            if let Some(value) = self.value(&field.ty, ty, value, &path) {
                set(&mut resource, of, value);
            }
        }
        resource
    }

    fn value(&mut self, ty: &Type, to: &Type, value: Value, path: &str) -> Option<Value> {
        Some(match (ty, to, value) {
            (Type::Enum(names), Type::Enum(to), value) if !value.is_null() => {
                // The numbers of the two enums differ.
                let name = value.as_str().filter(|name| names.contains(name));
                match name.map(|name| same_name(names, name, to)) {
                    Some(Some(name)) => name.into(),
                    Some(None) => {
                        self.violations.add(path, "is not supported by this installation");
                        return None;
                    }
                    None => {
                        self.violations.add(path, format!("must be one of {}", names.join(", ")));
                        return None;
                    }
                }
            }
            (Type::String, Type::Capability, Value::String(name)) => match self.known.by_name(&name) {
                Some(capability) => capability.id().into(),
                None => {
                    self.violations.add(path, "must be a capability, such as repo.list");
                    return None;
                }
            },
            (Type::Message(fields), Type::Message(to), Value::Object(message)) => {
                self.message(fields, to, message, path).into()
            }
            (Type::List(ty), Type::List(to), Value::Array(values)) => {
                let element = |(at, value)| self.value(ty, to, value, &format!("{path}[{at}]"));
                values.into_iter().enumerate().filter_map(element).collect::<Vec<_>>().into()
            }
            (Type::Map(ty), Type::Map(to), Value::Object(values)) => {
                let entry = |(key, value): (String, _)| {
                    let value = self.value(ty, to, value, &join(path, &key))?;
                    Some((key, value))
                };
                values.into_iter().filter_map(entry).collect::<Map<_, _>>().into()
            }
            // A list by one value is a list by several.
            (Type::String, Type::List(_), value @ Value::String(_)) => json!([value]),
            (_, _, value) => value,
        })
    }
}

/// Converts a resource, or a message in it, with the fields `from` into a message with these fields. Fields without a
/// value are left out.
fn to_message(
    known: &Capabilities,
    fields: &[Field],
    from: &[Field],
    resource: &Map<String, Value>,
) -> Map<String, Value> {
    let shown = |field: &Field| {
        let of = field.of.unwrap_or(field.name);
        let value = path::at(resource, of)?;
        Some((field.name.to_owned(), to_value(known, &field.ty, type_at(from, of)?, value)?))
    };
    fields.iter().filter_map(shown).collect()
}

fn to_value(known: &Capabilities, ty: &Type, from: &Type, value: &Value) -> Option<Value> {
    Some(match (ty, from, value) {
        (Type::Enum(names), Type::Enum(from), Value::String(name)) => same_name(from, name, names)?.into(),
        (Type::String, Type::Capability, Value::String(id)) => known.by_id(id)?.name().into(),
        (Type::Int32, Type::Int64, Value::String(number)) => number.parse::<i32>().unwrap_or(i32::MAX).into(),
        (Type::Message(fields), Type::Message(from), Value::Object(message)) => {
            to_message(known, fields, from, message).into()
        }
        (Type::List(ty), Type::List(from), Value::Array(values)) => {
            values.iter().filter_map(|value| to_value(known, ty, from, value)).collect::<Vec<_>>().into()
        }
        (Type::Map(ty), Type::Map(from), Value::Object(values)) => {
            let entry = |(key, value): (&String, _)| Some((key.clone(), to_value(known, ty, from, value)?));
            values.iter().filter_map(entry).collect::<Map<_, _>>().into()
        }
        (_, _, value) => value.clone(),
    })
}

/// Returns the name of an enum that corresponds to a name of another: the first to the first, and otherwise the one that
/// differs in the prefix, the case and underscores only, such as `BASE` and `CATALOG_TIER_BASE`.
fn same_name<'t>(names: &[&str], name: &str, to: &[&'t str]) -> Option<&'t str> {
    if names.first() == Some(&name) {
        return to.first().copied();
    }
    let letters = |names: &[&str], name: &str| {
        // The first name is the prefix and `UNSPECIFIED`.
        let prefix =
            names.first().and_then(|first| first.strip_suffix("UNSPECIFIED").or(first.strip_suffix("UNKNOWN")));
        let name = prefix.and_then(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_uppercase()).collect::<String>()
    };
    let name = letters(names, name);
    to.iter().copied().find(|other| letters(to, other) == name)
}

/// Adds the fields that have no value, as the other version writes them: empty, 0, false or null. A field of a oneof and a
/// field with presence stay left out.
fn fill(fields: &[Field], message: &mut Map<String, Value>) {
    for field in fields {
        match message.get_mut(field.name) {
            Some(value) => fill_within(&field.ty, value),
            None if field.oneof.is_some() => {}
            None => drop(message.insert(field.name.to_owned(), unset(&field.ty))),
        }
    }
}

fn fill_within(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Message(fields), Value::Object(message)) => fill(fields, message),
        (Type::List(element), Value::Array(values)) => values.iter_mut().for_each(|value| fill_within(element, value)),
        (Type::Map(element), Value::Object(values)) => {
            values.values_mut().for_each(|value| fill_within(element, value))
        }
        _ => {}
    }
}

/// Returns a value in proto3 JSON that is not set.
fn unset(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => "".into(),
        Type::Bool => false.into(),
        Type::Int32 => 0.into(),
        Type::Int64 => "0".into(),
        Type::Enum(names) => names.first().copied().unwrap_or_default().into(),
        Type::List(_) => json!([]),
        Type::Map(_) => json!({}),
        Type::Timestamp | Type::Duration | Type::Message(_) | Type::Capability | Type::FieldMask => Value::Null,
    }
}

/// Returns the type of the field at a dotted path.
fn type_at<'f>(fields: &'f [Field], path: &str) -> Option<&'f Type> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let ty = &fields.iter().find(|field| field.name == first)?.ty;
    match (rest, ty) {
        (None, ty) => Some(ty),
        (Some(rest), Type::Message(inner)) => type_at(inner, rest),
        (Some(_), _) => None,
    }
}

/// Returns the path of the field that shows a path of the resource; the same path if no field does.
fn path_back(fields: &[Field], path: &str) -> String {
    let end = |of: &str| path.strip_prefix(of).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let found = fields.iter().find_map(|field| Some((field, end(field.of.unwrap_or(field.name))?)));
    let Some((field, rest)) = found else { return path.to_owned() };
    let mut ty = &field.ty;
    while let Type::List(element) | Type::Map(element) = ty {
        ty = element;
    }
    match (ty, rest.split_once('.')) {
        (Type::Message(inner), Some((index, rest))) => format!("{}{index}.{}", field.name, path_back(inner, rest)),
        _ => format!("{}{rest}", field.name),
    }
}

/// Sets the value at a dotted path.
fn set(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(object.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

fn text(request: &Map<String, Value>, name: &str) -> String {
    request.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
