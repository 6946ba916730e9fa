//! Endpoints other than those of the kinds: the trait that an embedder implements so that [`Rest`](crate::Rest) serves
//! them, and functions that read requests and build replies.
//!
//! ```
//! use platform_http::mount::{self, Body, Call, Mount, Refusal};
//! use platform_http::Reply;
//!
//! /// Answers `GET /desk/whoami` with the uid of the caller.
//! #[derive(Debug)]
//! struct WhoAmI;
//!
//! #[async_trait::async_trait]
//! impl Mount for WhoAmI {
//!     fn has(&self, path: &str) -> bool {
//!         path == "/desk/whoami"
//!     }
//!
//!     fn domain(&self) -> &'static str {
//!         "desk"
//!     }
//!
//!     async fn answer(&self, call: Call<'_>, _body: Body<'_>) -> Result<Reply, Refusal> {
//!         if let Some(reply) = call.check_method(&[http::Method::GET])? {
//!             return Ok(reply);
//!         }
//!         let caller = call.caller().await?;
//!         Ok(mount::json(format!("\"{}\"", caller.identity)))
//!     }
//! }
//! ```

use std::{fmt, pin::Pin};

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use http::{Method, request::Parts};
use http_body_util::BodyExt;
use platform_engine::{
    access::{Authenticator, Caller},
    platform::Platform,
};
use serde_json::Value;

use crate::{
    BoxError, Reply,
    limits::{Limits, admission::Origin},
    reply, request,
};

pub use crate::{
    reply::{Refusal, close, deleted, json},
    request::{bytes, object, pairs, parameter, reject_parameters, reject_preconditions, target, variable},
    site::{Sender, base_path, host, sender},
};

/// Endpoints that [`Rest::mount`](crate::Rest::mount) serves, other than those of the kinds.
///
/// [`Rest`](crate::Rest) checks the limits of the address before it passes a request to a mount. It meters the body,
/// limits the time by [`Limits::request_time`], answers a panic as an internal error, and counts a reply to a read
/// against the budget of unread replies. The mount itself must count the request against the rate limits, by
/// [`Call::caller`] or by a method of [`Origin`].
#[async_trait]
pub trait Mount: fmt::Debug + Send + Sync + 'static {
    /// Returns whether a path belongs to this mount, with any HTTP method. It gets the path as it is in the request:
    /// percent-encoded, of any length, perhaps with a trailing slash. Called for every request, so it must be cheap.
    fn has(&self, path: &str) -> bool;

    /// Returns the name of this mount in metrics: that of a service, such as `Scim`; by default `other`.
    fn name(&self) -> &'static str {
        "other"
    }

    /// Returns the domain of errors, such as `iam`; by default none, so that errors name only the service domain.
    fn domain(&self) -> &'static str {
        ""
    }

    /// Handles a request.
    ///
    /// # Errors
    /// A refusal is answered in the format of AIP-193. A mount with a format of its own returns its errors as replies.
    async fn answer(&self, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal>;

    /// Renders the refusal of a request that is rejected before [`Mount::answer`]: its path or query is too long, or it
    /// announces a body that is too large.
    ///
    /// # Errors
    /// As [`Mount::answer`]; by default every refusal.
    fn refused(&self, refusal: Refusal) -> Result<Reply, Refusal> {
        Err(refusal)
    }

    /// Returns the part of the OpenAPI document for this mount, as [`OpenApi::with`](crate::openapi::OpenApi::with)
    /// takes it; by default nothing.
    fn openapi(&self) -> Value {
        Value::Null
    }
}

/// Body of a request to a [`Mount`], whose bytes are charged to a budget as they arrive.
pub type Body<'a> = Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send + 'a>>;

/// Returns the body for a mount.
pub(crate) fn body<'a, B>(body: B) -> Body<'a>
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'a,
{
    let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
    Box::pin(body.map_err(Into::into).map_frame(move |frame| frame.map_data(whole)))
}

/// Request to a [`Mount`], without its body.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The platform that [`Rest`](crate::Rest) serves.
    pub platform: &'a Platform,
    /// The authenticator of callers.
    pub authenticator: &'a dyn Authenticator,
    /// The limits on requests.
    pub limits: &'a Limits,
    /// The origin of the request, by which it is counted.
    pub origin: &'a Origin,
    /// Method, URI, version and headers.
    pub head: &'a Parts,
    /// The path, percent-encoded.
    pub path: &'a str,
    /// The query string without the question mark, percent-encoded; may be empty.
    pub query: &'a str,
}

impl Call<'_> {
    /// Authenticates the caller by the bearer token. Counts the request and charges its body as for the kinds.
    ///
    /// # Errors
    /// As [`bearer`](crate::bearer) and [`Origin::authenticate`].
    pub async fn caller(&self) -> Result<Caller, Refusal> {
        let token = request::bearer(&self.head.headers).map_err(|error| self.origin.refused(error))?;
        Ok(self.origin.authenticate(self.authenticator, token).await?)
    }

    /// Checks that a path has the method of the request; HEAD is treated as GET. Returns the reply to OPTIONS, and
    /// `None` for a method of the path.
    ///
    /// # Errors
    /// UNIMPLEMENTED with status 405 for any other method.
    pub fn check_method(&self, methods: &[Method]) -> Result<Option<Reply>, Refusal> {
        check_method(&self.head.method, methods)
    }
}

/// As [`Call::check_method`], for services that are not mounted.
///
/// # Errors
/// As [`Call::check_method`].
pub fn check_method(method: &Method, methods: &[Method]) -> Result<Option<Reply>, Refusal> {
    if methods.contains(if *method == Method::HEAD { &Method::GET } else { method }) {
        return Ok(None);
    }
    let allow = request::allow(methods.iter());
    if *method == Method::OPTIONS { Ok(Some(reply::options(&allow))) } else { Err(Refusal::other_methods(allow)) }
}
