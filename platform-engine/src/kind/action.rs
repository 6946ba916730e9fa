//! Actions: methods that are not one of the five standard ones.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Authorization, Field, Http};
use crate::{
    BoxFuture,
    context::Context,
    error::{Error, Result},
};

/// A method that is not one of the five standard ones (AIP-136).
#[derive(Debug)]
#[non_exhaustive]
pub struct Action {
    /// The RPC's name, such as `LookupGroup`.
    pub name: &'static str,
    /// The HTTP method.
    pub http: Http,
    /// The path after the domain and version: literals, `{name=**}` for uids, `{name}` for a segment, `:verb`.
    pub path: &'static str,
    /// The fields of its request; with [`Http::Get`] from path and query, otherwise from path and body.
    pub request: &'static [Field],
    /// The fields of its response.
    pub response: &'static [Field],
    /// The callers that may run it.
    pub authorization: Authorization,
    /// The event that it records.
    pub event: Option<&'static str>,
    /// The implementation. The request is in canonical form.
    pub run: Run,
}

/// The implementation of an action: maps a request to a response, both JSON objects.
pub type Run = for<'a> fn(&'a Context<'a>, Map<String, Value>) -> BoxFuture<'a, Result<Value>>;

impl Action {
    const fn new(name: &'static str, http: Http, path: &'static str, run: Run) -> Self {
        let (request, response): (&[Field], &[Field]) = (&[], &[]);
        Self { name, http, path, request, response, authorization: Authorization::Authenticated, event: None, run }
    }

    /// Returns a GET, with an empty request and response, for any authenticated caller.
    pub const fn get(name: &'static str, path: &'static str, run: Run) -> Self {
        Self::new(name, Http::Get, path, run)
    }

    /// Returns a POST, as [`Action::get`].
    pub const fn post(name: &'static str, path: &'static str, run: Run) -> Self {
        Self::new(name, Http::Post, path, run)
    }

    /// Returns a PATCH, as [`Action::get`].
    pub const fn patch(name: &'static str, path: &'static str, run: Run) -> Self {
        Self::new(name, Http::Patch, path, run)
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

    /// Sets the event that it records.
    #[must_use]
    pub const fn event(mut self, event: &'static str) -> Self {
        self.event = Some(event);
        self
    }
}

/// The implementation of an action with typed messages, which [`handle`] turns into a [`Run`].
///
/// The serde forms of the messages must match the action's tables of fields, as that of a resource does.
pub trait Handler: 'static {
    /// The request: its fields have passed the rules of [`Action::request`].
    type Request: DeserializeOwned + Send;
    /// The response, often a resource.
    type Response: Serialize;

    /// Runs the action. It may run several times, if what it read has changed before its commit.
    fn run<'a>(cx: &'a Context<'a>, request: Self::Request) -> BoxFuture<'a, Result<Self::Response>>;
}

/// Runs an action with typed messages: `Action::post("CloseTicket", "tickets/{uid=**}:close", handle::<CloseTicket>)`.
pub fn handle<'a, H: Handler>(cx: &'a Context<'a>, request: Map<String, Value>) -> BoxFuture<'a, Result<Value>> {
    Box::pin(async move {
        let request = serde_json::from_value(Value::Object(request)).map_err(Error::internal)?;
        let response = H::run(cx, request).await?;
        serde_json::to_value(response).map_err(Error::internal)
    })
}
