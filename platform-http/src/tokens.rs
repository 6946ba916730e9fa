//! Paths of the contract's token services, which are not kinds: token exchange and refresh, and registration,
//! inspection and deletion of persons (`docs/api.md`, Token exchange).
//!
//! This module only reads and writes HTTP; a [`TokenService`] does the rest.

use http::{
    HeaderValue, Method,
    header::{CACHE_CONTROL, HeaderName},
    request::Parts,
};
use http_body::Body;
use platform_core::{
    error::{Code, Error, Result},
    kind::Field,
    request::from_query,
    tokens::{CredentialOf, Exchange, Refresh, Register, TokenService},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    BoxError,
    limits::Limits,
    reply::{self, Refusal, Reply},
    request,
};

/// Endpoint of a token service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint<'p> {
    Exchange,
    Refresh,
    HeadlessSession,
    WhoAmI,
    Register,
    /// With the person's uid, still percent-encoded.
    Unregister(&'p str),
}

impl<'p> Endpoint<'p> {
    /// Finds the endpoint of a path.
    pub(crate) fn find(path: &'p str) -> Option<Self> {
        // One trailing slash is ignored, as on all other paths.
        match path.strip_suffix('/').unwrap_or(path) {
            "/sts/exchange" => Some(Self::Exchange),
            "/sts/exchange_refresh_token" => Some(Self::Refresh),
            "/sts/headless_sessions" => Some(Self::HeadlessSession),
            "/auth/v1/ok" => Some(Self::WhoAmI),
            "/auth/v1/register" => Some(Self::Register),
            "/auth/v1/delete" => Some(Self::Unregister("")),
            path => path.strip_prefix("/auth/v1/delete/").map(Self::Unregister),
        }
    }

    const fn methods(self) -> &'static [Method] {
        match self {
            Self::Exchange => &[Method::GET, Method::POST],
            Self::HeadlessSession | Self::WhoAmI => &[Method::GET],
            Self::Refresh | Self::Register => &[Method::POST],
            Self::Unregister(_) => &[Method::DELETE],
        }
    }

    /// Checks the HTTP method of a request. Returns the response to OPTIONS; rejects a method that the path does not
    /// have.
    pub(crate) fn check_method(self, method: &Method) -> Result<Option<Reply>, Refusal> {
        let methods = self.methods();
        let method_or_get = if *method == Method::HEAD { &Method::GET } else { method };
        if methods.contains(method_or_get) {
            return Ok(None);
        }
        let mut allow: Vec<_> = methods.iter().map(Method::as_str).collect();
        if methods.contains(&Method::GET) {
            allow.push("HEAD");
        }
        allow.push("OPTIONS");
        let allow = allow.join(", ");
        if *method == Method::OPTIONS { Ok(Some(reply::options(&allow))) } else { Err(Refusal::other_methods(allow)) }
    }
}

/// Handles a request whose method was checked. A missing or malformed credential is rejected before the body is read.
pub(crate) async fn answer<B>(
    service: &dyn TokenService,
    endpoint: Endpoint<'_>,
    head: &Parts,
    credential: Option<&str>,
    query: &str,
    body: B,
    limits: &Limits,
) -> Result<Reply, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    if endpoint == Endpoint::HeadlessSession {
        let message = "Browser sign-in is not supported, so headless sessions are not available";
        return Err(Error::new(Code::Unimplemented, message).into());
    }
    let credential = credential.ok_or_else(|| Error::unauthenticated("A bearer token is needed"))?;
    let of = if endpoint == Endpoint::Refresh { CredentialOf::Refresh } else { CredentialOf::Token };
    service.check_form(credential, of)?;
    match endpoint {
        Endpoint::Exchange => {
            let request = Exchange::read(parameters(Exchange::FIELDS, query, body, limits).await?)?;
            json_not_cached(&service.exchange(credential, &request).await?)
        }
        Endpoint::Refresh => {
            let request = Refresh::read(parameters(Refresh::FIELDS, query, body, limits).await?)?;
            json_not_cached(&service.refresh(credential, &request).await?)
        }
        Endpoint::Register => {
            request::reject_preconditions(head)?;
            let request = Register::read(parameters(Register::FIELDS, query, body, limits).await?)?;
            json_not_cached(&service.register(credential, &request).await?)
        }
        Endpoint::Unregister(id) => {
            request::reject_preconditions(head)?;
            request::reject_parameters(query)?;
            if id.is_empty() {
                return Err(Error::invalid_field("id", "is required").into());
            }
            service.unregister(credential, &request::variable("id", id)?).await?;
            Ok(reply::deleted(&head.headers))
        }
        Endpoint::WhoAmI | Endpoint::HeadlessSession => {
            request::reject_parameters(query)?;
            json_not_cached(&service.who_am_i(credential).await?)
        }
    }
}

/// Reads parameters from the query and the body, which is a form or a JSON object. The body's first character decides
/// which, because clients send either with either content type.
async fn parameters<B>(
    fields: &'static [Field],
    query: &str,
    body: B,
    limits: &Limits,
) -> Result<Map<String, Value>, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let bytes = request::bytes(body, limits).await?;
    let is_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let mut pairs = request::pairs(query)?;
    if is_json {
        let mut sent = request::parse_object(&bytes, limits)?;
        for (name, value) in from_query(fields, &pairs)? {
            if sent.insert(name.clone(), value).is_some() {
                return Err(Error::invalid_field(name, "is given twice").into());
            }
        }
        return Ok(sent);
    }
    let form = std::str::from_utf8(&bytes).map_err(|_| Error::invalid_field("body", "is not valid UTF-8"))?;
    pairs.extend(request::pairs(form.trim())?);
    Ok(from_query(fields, &pairs)?)
}

/// Returns a JSON response that must not be cached.
fn json_not_cached(value: &impl Serialize) -> Result<Reply, Refusal> {
    let body = serde_json::to_vec(value).map_err(Error::internal)?;
    let mut reply = reply::json(body);
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply.headers_mut().insert(HeaderName::from_static("pragma"), HeaderValue::from_static("no-cache"));
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_one_endpoint_with_its_methods() {
        for (path, endpoint, methods) in [
            ("/sts/exchange", Some(Endpoint::Exchange), "GET, POST, HEAD, OPTIONS"),
            ("/sts/exchange_refresh_token", Some(Endpoint::Refresh), "POST, OPTIONS"),
            ("/sts/headless_sessions", Some(Endpoint::HeadlessSession), "GET, HEAD, OPTIONS"),
            ("/auth/v1/ok", Some(Endpoint::WhoAmI), "GET, HEAD, OPTIONS"),
            ("/auth/v1/register", Some(Endpoint::Register), "POST, OPTIONS"),
            ("/auth/v1/delete/a", Some(Endpoint::Unregister("a")), "DELETE, OPTIONS"),
            ("/auth/v1/delete/a/b", Some(Endpoint::Unregister("a/b")), "DELETE, OPTIONS"),
            ("/auth/v1/delete/", Some(Endpoint::Unregister("")), "DELETE, OPTIONS"),
            ("/auth/v1/delete", Some(Endpoint::Unregister("")), "DELETE, OPTIONS"),
            ("/sts/exchange/", Some(Endpoint::Exchange), "GET, POST, HEAD, OPTIONS"),
            ("/sts/exchange//", None, ""),
            ("//sts/exchange", None, ""),
            ("/sts/%65xchange", None, ""),
            ("/auth/v2/ok", None, ""),
        ] {
            assert_eq!(Endpoint::find(path), endpoint, "{path}");
            if let Some(endpoint) = endpoint {
                let options = endpoint.check_method(&Method::OPTIONS).unwrap().unwrap();
                assert_eq!(options.headers()["allow"], methods, "{path}");
                assert!(endpoint.check_method(&Method::PATCH).is_err());
            }
        }
    }
}
