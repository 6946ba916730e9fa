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
    error::{Error, Result, Violations},
    event::Draft,
    fields::path::{self, join, named},
    kind::{Access, Action, Authorization, Body, Domain, Field, Http, ListPage, Resource, Run, Type, Verb, is_same},
    request::ListRequest,
    uid,
    verbs::{self, Once},
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

    /// The field of the message, and of the request of a create, that has the uid of the parent.
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

/// A conversion of the request of a list.
pub trait ListConversion: 'static {
    /// The message that shows a resource.
    type Item: Conversion;

    /// The fields of the request. A field has the parameter of the kind's list at [`Field::of`], such as `uidp.ids`;
    /// without a path there, the parameter of its own name.
    const REQUEST: &'static [Field];

    /// The fields of the response: the list of messages.
    const RESPONSE: &'static [Field];

    /// Completes the parameters of the kind's list.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for parameters that the list cannot express.
    fn to_parameters(_parameters: &mut Map<String, Value>) -> Result<()> {
        Ok(())
    }
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
        true => C::FIELDS,
        false => &[
            Field::string(C::PARENT).about("The uid of the parent."),
            Field::message(C::ITEM, C::FIELDS).about("The resource.").unread(),
        ],
    };
}

impl Action {
    /// Returns a create of a resource as a message of another version: a POST whose path has the parent.
    pub const fn create_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Post, path, Run::Once(create::<C>));
        let body = if C::ITEM.is_empty() { Body::Whole } else { Body::Field(C::ITEM) };
        let authorization = Authorization::As(C::Resource::KIND, Verb::Create, C::PARENT);
        action.request(CreateRequest::<C>::FIELDS).response(C::FIELDS).authorization(authorization).body(body)
    }

    /// Returns an update that replaces a resource by a message of another version: a PUT whose path has the uid, in the
    /// first field of the message. Fields that the request does not have are cleared.
    pub const fn replace_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Put, path, Run::Once(replace::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Update, id::<C>());
        action.request(C::FIELDS).response(C::FIELDS).authorization(authorization)
    }

    /// Returns a delete of a resource by its uid, in the first field of the message.
    pub const fn delete_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Delete, path, Run::Once(delete::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Delete, id::<C>());
        action.request(DeleteRequest::<C>::FIELDS).authorization(authorization)
    }

    /// Returns a list of all resources that match, as messages of another version, in the order of their uids.
    pub const fn list_as<L: ListConversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Get, path, Run::Pages(list::<L>));
        action.request(L::REQUEST).response(L::RESPONSE)
    }
}

impl Action {
    /// Returns an action with the messages of another version. Its HTTP method and authorization are those of the action.
    pub const fn action_as<A: ActionConversion>(name: &'static str, path: &'static str) -> Self {
        let of = const { action_of::<A>() };
        let authorization = match of.authorization {
            // The field of the uid has another name, and the action itself checks the access.
            Authorization::At(..) => Authorization::Authenticated,
            other => other,
        };
        let action = Self::new(name, of.http, path, Run::Once(run::<A>));
        action.request(A::REQUEST).response(A::RESPONSE).authorization(authorization)
    }
}

fn run<'a, A: ActionConversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let action = const { action_of::<A>() };
        let known = cx.platform().capabilities();
        let mut violations = Violations::default();
        let mut reader = Reader { known, violations: &mut violations };
        let request = reader.message(A::REQUEST, action.request, request, "");
        violations.none_or(())?;
        cx.convert_event(action_event::<A>);
        let renamed = |error: Error| error.rename_fields(|path| path_back(A::REQUEST, path));
        let response = verbs::action::run(cx, action, &request).await.map_err(renamed)?;
        let empty = Map::new();
        let response = response.as_object().unwrap_or(&empty);
        let mut response = to_message(known, A::RESPONSE, action.response, response);
        fill(A::RESPONSE, &mut response);
        Ok(response.into())
    })
}

fn action_event<A: ActionConversion>(known: &Capabilities, draft: &mut Draft) {
    let action = const { action_of::<A>() };
    let path = action.path.split("/{").next().unwrap_or_default();
    let response = draft.converted(&A::DOMAIN, path);
    draft.body = to_message(known, A::RESPONSE, action.response, &response);
    A::MESSAGE.clone_into(&mut draft.message);
}

/// The request of a delete: the uid.
struct DeleteRequest<C>(C);

impl<C: Conversion> DeleteRequest<C> {
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

fn list<'a, L: ListConversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
    page_token: &'a str,
) -> BoxFuture<'a, Result<ListPage>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<<L::Item as Conversion>::Resource>()?;
        let mut parameters = Map::new();
        for (name, value) in request {
            let Some(field) = path::named(L::REQUEST, &name) else { continue };
            let to = field.of.unwrap_or(field.name);
            // A list by one uid is a list by several.
            let value = if to == "uidp.ids" && value.is_string() { json!([value]) } else { value };
            set(&mut parameters, to, value);
        }
        L::to_parameters(&mut parameters)?;
        let named_back = |error: Error| error.rename_fields(|path| path_back(L::REQUEST, path));
        let request = ListRequest::from_json(registered.kind, parameters).map_err(named_back)?;
        let page = verbs::list::list(cx, registered, &request.by_uid_after(page_token)).await.map_err(named_back)?;
        let messages = messages::<L::Item>(cx, &page.items).await?;
        let items = messages.iter().map(|message| serde_json::to_vec(message).map(Bytes::from));
        let items = items.collect::<serde_json::Result<_>>().map_err(Error::internal)?;
        Ok(ListPage { items, next_page_token: page.next_page_token })
    })
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

/// Converts the message of a request.
fn resource<C: Conversion>(cx: &Context<'_>, message: Map<String, Value>) -> Result<Map<String, Value>> {
    let mut violations = Violations::default();
    let mut reader = Reader { known: cx.platform().capabilities(), violations: &mut violations };
    let mut resource = reader.message(C::FIELDS, C::Resource::KIND.fields, message, "");
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
    let paths = C::FIELDS.iter().map(|field| field.of.unwrap_or(field.name)).filter(is_replaced);
    paths.collect::<Vec<_>>().join(",")
}

/// Names the fields of an error of the kind as the messages do.
fn renamed<C: Conversion>(error: Error) -> Error {
    error.rename_fields(|path| match path {
        "parent" => C::PARENT.to_owned(),
        path => path_back(C::FIELDS, path),
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
                match name.and_then(|name| same_name(names, name, to)) {
                    Some(name) => name.into(),
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
/// differs by a prefix only, such as `BASE` and `CATALOG_TIER_BASE`.
fn same_name<'t>(names: &[&str], name: &str, to: &[&'t str]) -> Option<&'t str> {
    if names.first() == Some(&name) {
        return to.first().copied();
    }
    let ends_with = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|rest| rest.ends_with('_'));
    to.iter().copied().find(|other| *other == name || ends_with(other, name) || ends_with(name, other))
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
