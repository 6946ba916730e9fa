//! Other versions of the API: messages with other names for the same resources.
//!
//! A [`Conversion`] is a message of another version that shows a resource of a kind: a table of fields, each with the
//! path of its value in the resource ([`Field::of`]). [`Action`]s that are made for a conversion convert their
//! requests, call the standard methods of the kind, and convert the replies, the errors and the events. So a kind has
//! one implementation, and only its conversions know the names of the other version.
//!
//! A service of another version is a [`Kind`] without fields, whose actions are all of its methods.

use serde_json::{Map, Value};

use crate::{
    BoxFuture,
    context::Context,
    error::Result,
    kind::{Action, Authorization, Domain, Field, Http, Kind, Method, Part, Resource, Run, Verb},
    store::Filter,
    uid::Uid,
    write::Write,
};

mod methods;
mod tables;
mod translate;

use tables::is_same;

use methods::{create, delete, get, list, page, replace, run, run_pages};
pub use methods::{read, renamed, show, shown, shown_all};
pub use tables::fields_with;

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

    /// The fields of the message. A field has the value at [`Field::of`] in the resource; without a path there, at its
    /// own name. The values of enums are matched by name: `BASE` is `CATALOG_TIER_BASE` of the kind, and the first of
    /// one is the first of the other.
    const FIELDS: &'static [Field];

    /// The fields that requests may set; by default those of the message.
    const REQUEST: &'static [Field] = Self::FIELDS;

    /// The field of the request of a create that has the uid of the parent.
    const PARENT: &'static str = "parentId";

    /// The field of the request of a create that has the message. Empty if the message is the request.
    const ITEM: &'static str = "";

    /// Whether the body of the event of a create is the request with the parent, and not the message.
    const CREATED_AS_REQUEST: bool = false;

    /// The fields of the kind with their rules for requests of the other version, which may set fields that are
    /// output-only in the kind's own version, or leave out required ones.
    const WRITES: &'static [Field] = Self::Resource::KIND.fields;

    /// The name of the field of the kind by which a create replaces an existing resource of the same parent; empty to
    /// reject the create.
    const UPSERT: &'static str = "";

    /// The boolean field of the request of a create that rejects it if the resource exists. Empty if there is none.
    const PREVENT_UPSERT: &'static str = "";

    /// The names of the fields of the kind that a replacement retains when the request does not have them.
    const RETAINED: &'static [&'static str] = &[];

    /// Adds further changes to the commit of a create or replacement: those of another kind that the message shows,
    /// too. `message` is as the client sent it, except that its fields have passed no rules.
    fn prepare<'a>(
        _cx: &'a Context<'a>,
        _uid: &'a Uid,
        _message: &'a Map<String, Value>,
        _write: &'a mut Write,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

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

    /// The fields of the response: one list of messages, which is first if the list returns everything. The other
    /// fields have the value of that name, or at [`Field::of`], in the page of the kind's list: `nextPageToken`,
    /// `totalCount`, `skipped`. Fields of other names are not set.
    const RESPONSE: &'static [Field];

    /// The order of a list that returns everything that matches.
    const ORDER_BY: &'static str = "uid";

    /// Completes the parameters of the kind's list, in canonical form. `request` is as the client sent it.
    fn to_parameters(_request: &Map<String, Value>, _parameters: &mut Map<String, Value>) {}

    /// Returns further filters, by keys of the kind for which its list has no parameter.
    fn filters(_request: &Map<String, Value>) -> Vec<Filter> {
        Vec::new()
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

    /// The path after the domain and the version, without variables: the source of its event, if it records one.
    const PATH: &'static str = "";

    /// The list in the response whose resources are the subject of its event: their uids, joined by commas. Empty for
    /// the subject of the action.
    const SUBJECTS: &'static str = "";

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
    const FIELDS: &'static [Field] = match (C::ITEM.is_empty(), C::PREVENT_UPSERT.is_empty()) {
        (true, _) => C::REQUEST,
        (false, true) => &[Self::PARENT, Self::ITEM],
        (false, false) => &[
            Self::PARENT,
            Self::ITEM,
            Field::bool(C::PREVENT_UPSERT).about("Whether to reject the create if the resource exists."),
        ],
    };
    const PARENT: Field = Field::string(C::PARENT).about("The uid of the parent.");
    const ITEM: Field = Field::message(C::ITEM, C::REQUEST).about("The resource.").unread();
}

impl Action {
    /// Returns a create of a resource as a message of another version: a POST whose path has the parent.
    pub const fn create_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Post, path, Run::Resource(create::<C>));
        let body = if C::ITEM.is_empty() { Part::Whole } else { Part::Field(C::ITEM) };
        let authorization = Authorization::As(C::Resource::KIND, Verb::Create, C::PARENT);
        let action = Self { event: event_of(C::Resource::KIND, Verb::Create), ..action };
        action.request(CreateRequest::<C>::FIELDS).response(C::FIELDS).authorization(authorization).body(body)
    }

    /// Returns an update that replaces a resource by a message of another version: a PUT whose path has the uid, in the
    /// first field of the request. Fields that the request does not have are cleared.
    pub const fn replace_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Put, path, Run::Resource(replace::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Update, first(C::REQUEST));
        let action = Self { event: event_of(C::Resource::KIND, Verb::Update), ..action };
        action.request(C::REQUEST).response(C::FIELDS).authorization(authorization)
    }

    /// Returns a delete of a resource by its uid, in the first field of the message.
    pub const fn delete_as<C: Conversion>(name: &'static str, path: &'static str) -> Self {
        let action = Self::new(name, Http::Delete, path, Run::Resource(delete::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Delete, id::<C>());
        let action = Self { event: event_of(C::Resource::KIND, Verb::Delete), ..action };
        action.request(UidRequest::<C>::FIELDS).authorization(authorization)
    }

    /// Returns a get of a resource by its uid, in this field of the request, as a message of another version.
    pub const fn get_as<C: Conversion>(name: &'static str, path: &'static str, request: &'static [Field]) -> Self {
        let action = Self::new(name, Http::Get, path, Run::Resource(get::<C>));
        let authorization = Authorization::As(C::Resource::KIND, Verb::Get, first(request));
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
        Self::new(name, Http::Get, path, Run::Encoded(page::<L>))
            .request(L::REQUEST)
            .response(L::RESPONSE)
            .authorization(list_authorization::<L>())
    }
}

impl Action {
    /// Returns an action with the messages of another version. Its HTTP method and authorization are those of the
    /// action.
    pub const fn action_as<A: ActionConversion>(name: &'static str, path: &'static str) -> Self {
        let of = const { action_of::<A>() };
        let authorization = match of.authorization {
            Authorization::At(field, capabilities) => Authorization::At(shown_name(A::REQUEST, field), capabilities),
            other => other,
        };
        let run = Run::Once(run::<A>);
        let (event, has_preview, is_one_commit) = (of.event, of.has_preview, of.is_one_commit);
        let action = Self { event, has_preview, is_one_commit, ..Self::new(name, of.http, path, run) };
        action.request(A::REQUEST).response(A::RESPONSE).authorization(authorization)
    }

    /// Returns an action that returns all pages of a list, as [`Action::action_as`]. The first field of the response is
    /// the list.
    pub const fn pages_as<A: ActionConversion>(name: &'static str, path: &'static str) -> Self {
        Self { run: Run::Pages(run_pages::<A>), ..Self::action_as::<A>(name, path) }
    }
}

/// The request of a delete: the uid.
struct UidRequest<C>(C);

impl<C: Conversion> UidRequest<C> {
    const FIELDS: &'static [Field] = &[Field::string(id::<C>()).about("The uid of the resource.")];
}

/// Returns the name of the message's first field, which is the uid.
const fn id<C: Conversion>() -> &'static str {
    first(C::FIELDS)
}

/// Returns the name of the first field.
const fn first(fields: &'static [Field]) -> &'static str {
    match fields {
        [first, ..] => first.name,
        [] => "id",
    }
}

const fn list_authorization<L: ListConversion>() -> Authorization {
    match method_of(<L::Item as Conversion>::Resource::KIND, Verb::List) {
        Some(Method { open: true, .. }) => Authorization::Public,
        Some(method) => Authorization::FiltersResult(method.capabilities),
        None => Authorization::Authenticated,
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
