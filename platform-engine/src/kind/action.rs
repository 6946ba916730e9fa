//! Actions: the methods of a kind other than the standard ones, and their implementations.

use std::{fmt::Debug, iter};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Authorization, Field, Http};
use crate::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
    etag::Reply,
    fields::Checked,
    offload::SLICE,
    platform::Rendered,
};

/// A method that is not one of the five standard ones (AIP-136).
#[derive(Debug)]
#[non_exhaustive]
pub struct Action {
    /// The RPC's name, such as `LookupGroup`.
    pub name: &'static str,
    /// The HTTP method.
    pub http: Http,
    /// The path after the domain and version: literals, `{name=**}` for uids, `{name}` for a segment, `:verb`. Empty if
    /// REST does not have the action.
    pub path: &'static str,
    /// The fields of its request; with [`Http::Get`] from path and query, otherwise from path and body.
    pub request: &'static [Field],
    /// The fields of its response.
    pub response: &'static [Field],
    /// The callers that may run it.
    pub authorization: Authorization,
    /// The event that it records.
    pub event: Option<&'static str>,
    /// The part of a request that is the body of the HTTP request.
    pub body: Part,
    /// Whether it has a preview ([`Action::previewed`]).
    pub has_preview: bool,
    /// The implementation. The request is in canonical form.
    pub run: Run,
}

/// The part of the request of an action that is the body of the HTTP request, if its method has a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All fields that are not in the path.
    Whole,
    /// One field. The others are in the path or the query.
    Field(&'static str),
}

/// The implementation of an action.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// Maps a request to a response, both JSON objects.
    Once(RunOnce),
    /// Maps a request to an encoded response, for long ones: a value of megabytes is encoded and dropped in one step.
    Encoded(RunEncoded),
    /// Maps a request to an encoded response with an ETag: REST replies 304 to a request whose If-None-Match has it.
    Rendered(RunRendered),
    /// Runs a standard method, with messages of another version. The reply has the ETag of the resource, and the
    /// preconditions of the request are those of the method.
    Resource(RunResource),
    /// Returns everything that matches a request, page by page.
    Pages(RunPages),
}

/// Maps a request to a response, both JSON objects.
pub type RunOnce = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Value>>;

/// Maps a request to an encoded response, a JSON object.
pub type RunEncoded = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Bytes>>;

/// Maps a request to an encoded response, a JSON object, with its ETag.
pub type RunRendered = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Rendered>>;

/// Maps a request to a resource, as a standard method returns it.
pub type RunResource = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Reply>>;

/// Maps a request, and the token of the page before, to a page. The token is empty for the first page.
pub type RunPages = for<'a> fn(&'a Context<'a>, Map<String, Value>, &'a str) -> BoxFuture<'a, Result<ListPage>>;

/// A page of an action that returns everything that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The elements of the only list in the response, each as its JSON.
    pub items: Vec<Bytes>,
    /// The token of the next page; `None` on the last page.
    pub next_page_token: Option<String>,
}

impl ListPage {
    /// Appends the items as elements of a JSON array, separated by commas. `is_empty` says that the array has no element
    /// yet, which is also so after empty pages.
    pub fn append_to(&self, array: &mut Vec<u8>, is_empty: bool) {
        Self::append(&self.items, array, is_empty);
    }

    /// Returns the items in slices, each of about as much work as [`Pace`](crate::offload::Pace) allows between two
    /// pauses.
    pub fn slices(&self) -> impl Iterator<Item = &[Bytes]> {
        let mut rest = self.items.as_slice();
        iter::from_fn(move || {
            let mut bytes = 0_usize;
            let is_over = |item: &Bytes| {
                bytes = bytes.saturating_add(item.len());
                bytes >= SLICE
            };
            let end = rest.iter().position(is_over).map_or(rest.len(), |last| last + 1);
            let (slice, others) = rest.split_at_checked(end)?;
            rest = others;
            (!slice.is_empty()).then_some(slice)
        })
    }

    /// Appends items of a page, as [`ListPage::append_to`] does.
    pub fn append(items: &[Bytes], array: &mut Vec<u8>, is_empty: bool) {
        array.reserve(items.iter().map(|item| item.len() + 1).sum());
        for (at, item) in items.iter().enumerate() {
            if at > 0 || !is_empty {
                array.push(b',');
            }
            array.extend_from_slice(item);
        }
    }
}

impl Action {
    pub(crate) const fn new(name: &'static str, http: Http, path: &'static str, run: Run) -> Self {
        let (request, response): (&[Field], &[Field]) = (&[], &[]);
        let authorization = Authorization::Authenticated;
        let (event, body, has_preview) = (None, Part::Whole, false);
        Self { name, http, path, request, response, authorization, event, body, has_preview, run }
    }

    /// Returns an action with typed messages.
    pub const fn typed<H: Handler>(name: &'static str, http: Http, path: &'static str) -> Self {
        Self { request: H::REQUEST, response: H::RESPONSE, ..Self::new(name, http, path, Run::Once(handle::<H>)) }
    }

    /// Returns a GET, with an empty request and response, for any authenticated caller.
    pub const fn get(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Get, path, Run::Once(run))
    }

    /// Returns a GET, as [`Action::get`], with an encoded response: for long ones, and those that are cached.
    pub const fn get_rendered(name: &'static str, path: &'static str, run: RunRendered) -> Self {
        Self::new(name, Http::Get, path, Run::Rendered(run))
    }

    /// Returns a GET, as [`Action::get`], that returns pages. The first field of the response is the list.
    pub const fn get_pages(name: &'static str, path: &'static str, run: RunPages) -> Self {
        Self::new(name, Http::Get, path, Run::Pages(run))
    }

    /// Returns a POST, as [`Action::get`].
    pub const fn post(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Post, path, Run::Once(run))
    }

    /// Returns a PATCH, as [`Action::get`].
    pub const fn patch(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Patch, path, Run::Once(run))
    }

    /// Returns an action that only gRPC has, otherwise as [`Action::get`].
    pub const fn rpc(name: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Post, "", Run::Once(run))
    }

    /// Returns a PUT, as [`Action::get`].
    pub const fn put(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Put, path, Run::Once(run))
    }

    /// Returns a DELETE, as [`Action::get`].
    pub const fn delete(name: &'static str, path: &'static str, run: RunOnce) -> Self {
        Self::new(name, Http::Delete, path, Run::Once(run))
    }

    /// Returns the name of the first field of the response: the list, for an action that returns pages.
    pub fn list_field(&self) -> &'static str {
        self.response.first().map_or("items", |field| field.name)
    }

    /// Sets the fields of the request.
    #[must_use]
    pub const fn request(mut self, request: &'static [Field]) -> Self {
        self.request = request;
        self
    }

    /// Sets the fields of the response.
    #[must_use]
    pub const fn response(mut self, response: &'static [Field]) -> Self {
        self.response = response;
        self
    }

    /// Sets the callers that may run it.
    #[must_use]
    pub const fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Sets the part of a request that is the body of the HTTP request.
    #[must_use]
    pub const fn body(mut self, body: Part) -> Self {
        self.body = body;
        self
    }

    /// Gives it a preview (`validateOnly`; AIP-163), in which [`Context::commit`] checks the write and does not apply it.
    /// For an action whose only effect is one commit by its context, such as [`Context::modify`], and whose reply has no
    /// secret.
    #[must_use]
    pub const fn previewed(mut self) -> Self {
        self.has_preview = true;
        self
    }

    /// Sets the event that it records.
    #[must_use]
    pub const fn event(mut self, event: &'static str) -> Self {
        self.event = Some(event);
        self
    }
}

/// The implementation of an action with typed messages, for [`Action::typed`].
///
/// The serde forms of the messages must match their fields, as that of a resource does.
pub trait Handler: 'static {
    /// The fields of the request, which have passed their rules when the action runs.
    const REQUEST: &'static [Field];
    /// The fields of the response.
    const RESPONSE: &'static [Field];
    /// The request.
    type Request: DeserializeOwned + Send;
    /// The response, often a resource.
    type Response: Serialize;

    /// Runs the action. It runs again, from the start, when data that it has read changes before its commit.
    fn run<'a>(cx: &'a Context<'a>, request: Self::Request) -> BoxFuture<'a, Result<Self::Response>>;
}

fn handle<'a, H: Handler>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let request = serde_json::from_value(Value::Object(request)).map_err(Error::internal)?;
        let response = H::run(cx, request).await?;
        Checked::made(H::RESPONSE, &response).map(Checked::into_inner)
    })
}
