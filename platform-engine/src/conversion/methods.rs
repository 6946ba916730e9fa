//! The methods of another version: they convert the request, call the method of the kind, and convert the reply.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    ActionConversion, Conversion, ListConversion, action_of, first, id,
    translate::{fill, path_back, to_message, to_resource, unset},
};
use crate::{
    BoxFuture,
    access::Capabilities,
    context::Context,
    error::{Code, Error, Result},
    etag::{Reply, Tag},
    event::Draft,
    fields::{self, Values},
    kind::{Access, Field, ListPage, Resource, Type, Verb, WriteRules, canonical},
    request::{ListRequest, MAX_PAGE_SIZE, list_fields},
    store::{Filter, Key, Record},
    uid::{self, Uid},
    verbs::{self, ListReply, Once},
};

pub(super) fn run<'a, A: ActionConversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let response = respond::<A>(cx, request, None).await?;
        Ok(action_response::<A>(cx, &response).into())
    })
}

pub(super) fn run_pages<'a, A: ActionConversion>(
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
        let items = encoded(cx, items).await?;
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
    let mut request = to_resource(cx.platform().capabilities(), A::REQUEST, action.request, request)?;
    if let Some(page_token) = page_token {
        request.insert("pageSize".to_owned(), MAX_PAGE_SIZE.into());
        request.insert("pageToken".to_owned(), page_token.into());
    }
    let renamed = |error: Error| error.rename_fields(|path| path_back(A::REQUEST, path));
    let response = verbs::action::run(&cx.converting(action_event::<A>), action, &request).await.map_err(renamed)?;
    match response.into_value()? {
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
    if let Some(Value::Array(resources)) = draft.body.get(A::SUBJECTS) {
        // The uid is the first field of each.
        let uids = resources.iter().filter_map(|resource| resource.as_object()?.values().next()?.as_str());
        draft.subject = uids.collect::<Vec<_>>().join(",");
    }
    A::MESSAGE.clone_into(&mut draft.message);
}

pub(super) fn create<'a, C: Conversion>(
    cx: &'a Context<'a>,
    mut request: Map<String, Value>,
) -> BoxFuture<'a, Result<Reply>> {
    Box::pin(async move {
        let cx = &cx.converting(event::<C>);
        let registered = cx.platform().registered_of::<C::Resource>()?;
        let parent = text(&request, C::PARENT);
        let is_prevented = request.get(C::PREVENT_UPSERT).and_then(Value::as_bool).unwrap_or_default();
        let upsert = Some(C::UPSERT).filter(|field| !field.is_empty() && !is_prevented);
        let sent = match C::ITEM {
            "" => request,
            item => match request.remove(item) {
                Some(Value::Object(sent)) => sent,
                None | Some(Value::Null) => Map::new(),
                Some(_) => return Err(Error::invalid_field(item, "must be an object")),
            },
        };
        let body = resource::<C>(cx, sent.clone())?;
        let rules = WriteRules { upsert, replaces: false, ..rules::<C>() };
        let prepared = verbs::create::prepare(cx, registered, &parent, &body, &Once::default(), rules).await;
        let mut prepared = prepared.map_err(renamed_by::<C>)?;
        let puts = prepared.write.puts().len();
        let after = cx.after(&prepared.write);
        C::prepare(&after, &prepared.uid, &sent, &mut prepared.write).await?;
        if prepared.write.puts().len() > puts {
            prepared.unchanged = None;
        }
        let after = (!cx.applies()).then(|| cx.after(&prepared.write));
        let reply = verbs::create::commit(cx, registered, prepared).await;
        message::<C>(after.as_ref().unwrap_or(cx), reply.map_err(renamed_by::<C>)?).await
    })
}

pub(super) fn replace<'a, C: Conversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
) -> BoxFuture<'a, Result<Reply>> {
    Box::pin(async move {
        let cx = &cx.converting(event::<C>);
        let registered = cx.platform().registered_of::<C::Resource>()?;
        let uid = verbs::uid_in(first(C::REQUEST), &text(&request, first(C::REQUEST)))?;
        cx.demand_method(C::Resource::KIND, Verb::Update, &uid)?;
        let body = resource::<C>(cx, request.clone())?;
        let mask = mask::<C>(&body);
        let once = Once::default();
        let prepared = verbs::update::prepare(cx, registered, uid, &body, Some(&mask), &once, rules::<C>()).await;
        let mut prepared = prepared.map_err(renamed_by::<C>)?;
        let after = cx.after(&prepared.write);
        C::prepare(&after, &prepared.uid, &request, &mut prepared.write).await?;
        let after = (!cx.applies()).then(|| cx.after(&prepared.write));
        let reply = verbs::update::commit(cx, registered, prepared).await;
        message::<C>(after.as_ref().unwrap_or(cx), reply.map_err(renamed_by::<C>)?).await
    })
}

pub(super) fn delete<'a, C: Conversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
) -> BoxFuture<'a, Result<Reply>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<C::Resource>()?;
        verbs::delete::delete(&cx.converting(event::<C>), registered, &text(&request, id::<C>()))
            .await
            .map_err(renamed_by::<C>)?;
        Ok(Reply::empty())
    })
}

pub(super) fn get<'a, C: Conversion>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Reply>> {
    Box::pin(async move {
        let registered = cx.platform().registered_of::<C::Resource>()?;
        // The uid is the only field.
        let (name, uid) = request.into_iter().next().unwrap_or_default();
        let renamed = |error: Error| error.rename_fields(|_| name.clone());
        let reply = verbs::get::get(cx, registered, uid.as_str().unwrap_or_default()).await;
        message::<C>(cx, reply.map_err(renamed)?).await
    })
}

pub(super) fn list<'a, L: ListConversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
    page_token: &'a str,
) -> BoxFuture<'a, Result<ListPage>> {
    Box::pin(async move {
        let filters = L::filters(&request);
        let mut parameters = parameters::<L>(cx, request)?;
        parameters.insert("orderBy".to_owned(), L::ORDER_BY.into());
        parameters.insert("pageSize".to_owned(), MAX_PAGE_SIZE.into());
        parameters.insert("pageToken".to_owned(), page_token.into());
        let reply = match list_page::<L>(cx, parameters, filters).await {
            // The resource that the list belongs to does not exist.
            Err(error) if error.code() == Code::NotFound => {
                return Ok(ListPage { items: Vec::new(), next_page_token: None });
            }
            reply => reply?,
        };
        let items = encoded(cx, messages::<L::Item>(cx, &reply.items).await?).await?;
        Ok(ListPage { items, next_page_token: reply.next_page_token })
    })
}

pub(super) fn page<'a, L: ListConversion>(
    cx: &'a Context<'a>,
    request: Map<String, Value>,
) -> BoxFuture<'a, Result<Bytes>> {
    Box::pin(async move {
        let filters = L::filters(&request);
        let parameters = parameters::<L>(cx, request)?;
        let reply = list_page::<L>(cx, parameters, filters).await?;
        let items = encoded(cx, messages::<L::Item>(cx, &reply.items).await?).await?;
        let mut response = b"{".to_vec();
        for (number, field) in L::RESPONSE.iter().enumerate() {
            if number > 0 {
                response.push(b',');
            }
            serde_json::to_writer(&mut response, field.name).map_err(Error::internal)?;
            response.push(b':');
            if let Type::List(_) = field.ty {
                append(cx, &items, &mut response).await;
                continue;
            }
            let value: Value = match (&field.ty, field.of.unwrap_or(field.name)) {
                (_, "nextPageToken") => reply.next_page_token.clone().unwrap_or_default().into(),
                (Type::Int64, "totalCount") => reply.total_count.to_string().into(),
                (_, "totalCount") => reply.total_count.into(),
                (_, "skipped") => reply.skipped.into(),
                _ => unset(&field.ty),
            };
            serde_json::to_writer(&mut response, &value).map_err(Error::internal)?;
        }
        response.push(b'}');
        Ok(response.into())
    })
}

/// Appends an array of these items, in steps.
async fn append(cx: &Context<'_>, items: &[Bytes], response: &mut Vec<u8>) {
    response.reserve(items.iter().map(|item| item.len() + 1).sum());
    response.push(b'[');
    let mut pace = cx.pace();
    for (number, item) in items.iter().enumerate() {
        ListPage::append(std::slice::from_ref(item), response, number == 0);
        // A copy takes a small part of the time of a conversion.
        pace.step(item.len() / 16).await;
    }
    response.push(b']');
}

/// Converts the request of a list into the parameters of the kind's list.
fn parameters<L: ListConversion>(cx: &Context<'_>, request: Map<String, Value>) -> Result<Map<String, Value>> {
    let known: Vec<Field> = list_fields(<L::Item as Conversion>::Resource::KIND).copied().collect();
    let mut parameters = to_resource(cx.platform().capabilities(), L::REQUEST, &known, request.clone())?;
    L::to_parameters(&request, &mut parameters);
    Ok(parameters)
}

async fn list_page<L: ListConversion>(
    cx: &Context<'_>,
    parameters: Map<String, Value>,
    filters: Vec<Filter>,
) -> Result<ListReply> {
    let registered = cx.platform().registered_of::<<L::Item as Conversion>::Resource>()?;
    let renamed = |error: Error| error.rename_fields(|path| parameter_back(L::REQUEST, path));
    let request = ListRequest::from_json(registered.kind, parameters).map_err(renamed)?.with_filters(filters);
    verbs::list::list(cx, registered, &request).await.map_err(renamed)
}

/// Returns the name of the field for a parameter of the kind's list. Errors have the names of common parameters in
/// snake_case.
fn parameter_back(fields: &[Field], path: &str) -> String {
    let mut camel = String::with_capacity(path.len());
    let mut after_underscore = false;
    for c in path.chars() {
        match c {
            '_' => after_underscore = true,
            c if std::mem::take(&mut after_underscore) => camel.push(c.to_ascii_uppercase()),
            c => camel.push(c),
        }
    }
    let back = path_back(fields, &camel);
    if back == camel { path.to_owned() } else { back }
}

/// Returns a resource as a reply shows it: with all fields, those without a value too. [`Conversion::complete`] may look up
/// some at each read.
async fn message<C: Conversion>(cx: &Context<'_>, resource: Reply) -> Result<Reply> {
    let message = messages::<C>(cx, &[resource.body]).await?.pop();
    let body = verbs::encode(&message.ok_or_else(|| Error::internal("a conversion returned no message"))?)?;
    let tag = resource.tag.map(|tag| Tag::of_completed(tag.revision(), &body));
    Ok(Reply { body, tag, is_replayed: false })
}

/// Returns resources as replies show them.
async fn messages<C: Conversion>(cx: &Context<'_>, resources: &[Bytes]) -> Result<Vec<Value>> {
    let (known, mut pace) = (cx.platform().capabilities(), cx.pace());
    let mut messages = Vec::with_capacity(resources.len());
    for body in resources {
        let resource = serde_json::from_slice(body).map_err(Error::internal)?;
        messages.push(to_message(known, C::FIELDS, C::Resource::KIND.fields, &resource));
        pace.step(body.len()).await;
    }
    C::complete(cx, &mut messages).await?;
    let mut filled = Vec::with_capacity(messages.len());
    for (mut message, body) in messages.into_iter().zip(resources) {
        fill(C::FIELDS, &mut message);
        filled.push(Value::Object(message));
        pace.step(body.len()).await;
    }
    Ok(filled)
}

/// Returns the JSON of messages. Each is dropped in the step that encodes it: a drop of a whole page takes milliseconds.
async fn encoded(cx: &Context<'_>, messages: Vec<Value>) -> Result<Vec<Bytes>> {
    let (mut items, mut pace) = (Vec::with_capacity(messages.len()), cx.pace());
    for message in messages {
        let item = verbs::encode(&message)?;
        drop(message);
        pace.step(item.len()).await;
        items.push(item);
    }
    Ok(items)
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

/// Returns these resources as replies show them, without what [`Conversion::complete`] adds, in the order of the uids;
/// `None` for each that does not exist. Access is not checked.
///
/// # Errors
/// As [`Context::records`] and [`shown`].
pub async fn shown_all<C: Conversion>(
    cx: &Context<'_>,
    uids: impl IntoIterator<Item = Uid>,
) -> Result<Vec<Option<Map<String, Value>>>> {
    let keys: Vec<_> = uids.into_iter().map(|uid| Key::new(C::Resource::KIND.name, uid)).collect();
    let records = cx.records(&keys).await?;
    let (mut all, mut pace) = (Vec::with_capacity(records.len()), cx.pace());
    for record in records {
        let Some(Record { body, .. }) = record else {
            all.push(None);
            continue;
        };
        let resource = serde_json::from_slice(&body).map_err(Error::internal)?;
        all.push(Some(shown::<C>(cx, &resource)?));
        // It is read and written.
        pace.step(2 * body.len()).await;
    }
    Ok(all)
}

/// Reads a message of a request with these fields, as [`Conversion::FIELDS`], into one with the fields `to`, by the
/// rules of those.
///
/// # Errors
/// INVALID_ARGUMENT with each rule that the message breaks; fields have their names in the message.
pub fn read(
    cx: &Context<'_>,
    fields: &[Field],
    to: &'static [Field],
    message: Map<String, Value>,
) -> Result<Map<String, Value>> {
    let known = cx.platform().capabilities();
    let read = to_resource(known, fields, to, message)?;
    let mut input = fields::read(to, known, read, None);
    input.require(to);
    input.checked().map(Values::into_inner).map_err(|error| renamed(error, fields))
}

/// Returns a message with these fields that shows a value with the fields `from`, input-only ones too.
///
/// # Errors
/// INTERNAL when the value cannot be written as JSON.
pub fn show(
    cx: &Context<'_>,
    fields: &[Field],
    from: &'static [Field],
    value: &impl Serialize,
) -> Result<Map<String, Value>> {
    let mut value = serde_json::to_value(value).map_err(Error::internal)?;
    fields::prune_empty(from, &mut value);
    let empty = Map::new();
    let mut message = to_message(cx.platform().capabilities(), fields, from, value.as_object().unwrap_or(&empty));
    fill(fields, &mut message);
    Ok(message)
}

/// Names the fields of an error as a message with these fields does.
pub fn renamed(error: Error, fields: &[Field]) -> Error {
    error.rename_fields(|path| path_back(fields, path))
}

/// Converts the message of a request.
fn resource<C: Conversion>(cx: &Context<'_>, message: Map<String, Value>) -> Result<Map<String, Value>> {
    to_resource(cx.platform().capabilities(), C::REQUEST, C::Resource::KIND.fields, message)
}

/// Returns the rules of a PUT of this version.
fn rules<C: Conversion>() -> WriteRules {
    let own = WriteRules::converted(C::Resource::KIND);
    WriteRules { fields: C::WRITES, upsert: None, retained: C::RETAINED, replaces: true, ..own }
}

/// Returns the mask of an update that replaces the fields of the message. An immutable field is part of it only if the
/// request has a value, which must then be the stored one.
fn mask<C: Conversion>(resource: &Map<String, Value>) -> String {
    let kind = C::WRITES;
    let is_replaced = |path: &&str| {
        let (first, _) = path.split_once('.').unwrap_or((path, ""));
        match kind.iter().find(|field| field.name == first).map(|field| field.access) {
            Some(Access::Mutable | Access::InputOnly) => !C::RETAINED.contains(&first) || resource.contains_key(first),
            Some(Access::Immutable) => resource.contains_key(first),
            Some(Access::OutputOnly) | None => false,
        }
    };
    let paths = C::REQUEST.iter().map(|field| field.of.unwrap_or(field.name)).filter(is_replaced);
    paths.collect::<Vec<_>>().join(",")
}

/// Names the fields of an error of the kind as the messages do.
fn renamed_by<C: Conversion>(error: Error) -> Error {
    error.rename_fields(|path| match path {
        "parent" => C::PARENT.to_owned(),
        path => path_back(C::REQUEST, path),
    })
}

/// Shows the event of a standard method as the other version does: with the request of a delete and of some creates, and
/// otherwise with the message.
fn event<C: Conversion>(known: &Capabilities, draft: &mut Draft) {
    let resource = draft.converted(&C::DOMAIN, C::PATH);
    let shown = to_message(known, C::FIELDS, C::Resource::KIND.fields, &resource);
    let subject = draft.subject.as_str();
    (draft.message, draft.body) = match draft.verb {
        Some(Verb::Create) if C::CREATED_AS_REQUEST => {
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

fn text(request: &Map<String, Value>, name: &str) -> String {
    request.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
