//! Paths of the token services: token exchange and refresh, and registration, inspection and deletion of persons
//! (`docs/api.md`, Token exchange).
//!
//! This module only reads and writes HTTP; a [`TokenService`] does the rest.

mod oauth;
mod openapi;

use std::sync::Arc;

use async_trait::async_trait;
use http::{
    HeaderValue, Method,
    header::{CACHE_CONTROL, HeaderName},
};
use platform_core::{
    resources::domain,
    tokens::{
        CredentialOf, Exchange, HeadlessSession, Refresh, Register, SignInService, TokenService, without_unknown,
    },
};
use platform_engine::{error::Error, json, kind::Field, request::from_query};
use platform_http::{
    Limits, Reply, bearer,
    mount::{self, Body, Call, Mount, Refusal},
};
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use self::oauth::{error_name, parameter};

/// The token services, at `/sts/…`, `/auth/v1/…` and `/oauth/token`. Their bodies are limited by [`Limits::of_tokens`] and charged to
/// the budget of token paths, and each request counts against the rate limit for requests without a verified token.
#[derive(Debug)]
pub struct Tokens {
    service: Arc<dyn TokenService>,
    sign_ins: Option<Arc<dyn SignInService>>,
}

impl Tokens {
    /// Returns the endpoints of a service.
    pub fn new(service: Arc<dyn TokenService>) -> Self {
        Self { service, sign_ins: None }
    }

    /// Accepts the codes of a browser sign-in at `/oauth/token`, too.
    #[must_use]
    pub fn redeeming(self, sign_ins: Arc<dyn SignInService>) -> Self {
        Self { sign_ins: Some(sign_ins), ..self }
    }

    #[cfg(feature = "grpc")]
    pub(crate) fn service(&self) -> &dyn TokenService {
        &*self.service
    }
}

#[async_trait]
impl Mount for Tokens {
    fn name(&self) -> &'static str {
        "Tokens"
    }

    fn has(&self, path: &str) -> bool {
        Endpoint::find(path).is_some()
    }

    fn domain(&self) -> &'static str {
        domain::IAM.name
    }

    async fn answer(&self, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        let endpoint = Endpoint::find(call.path).ok_or_else(Refusal::no_path)?;
        let answered = self.answer_at(endpoint, call, body).await;
        if endpoint == Endpoint::OAuth { answered.map_err(oauth::refusal) } else { answered }
    }

    fn openapi(&self) -> Value {
        openapi::part()
    }
}

impl Tokens {
    async fn answer_at(&self, endpoint: Endpoint<'_>, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        call.origin.token_path()?;
        match call.check_method(endpoint.methods())? {
            Some(reply) => Ok(reply),
            None if endpoint == Endpoint::OAuth => {
                oauth::answer(&*self.service, self.sign_ins.as_deref(), &call, body).await
            }
            None => answer(&*self.service, endpoint, call, body).await,
        }
    }
}

/// Endpoint of a token service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint<'p> {
    Exchange,
    Refresh,
    HeadlessSession,
    WhoAmI,
    Register,
    /// The token endpoint of OAuth 2.0, whose credentials are parameters.
    OAuth,
    /// With the person's uid, still percent-encoded.
    Unregister(&'p str),
}

impl<'p> Endpoint<'p> {
    /// Finds the endpoint of a path.
    fn find(path: &'p str) -> Option<Self> {
        // One trailing slash is ignored, as on all other paths.
        match path.strip_suffix('/').unwrap_or(path) {
            "/sts/exchange" => Some(Self::Exchange),
            "/sts/exchange_refresh_token" => Some(Self::Refresh),
            "/sts/headless_sessions" => Some(Self::HeadlessSession),
            "/auth/v1/ok" => Some(Self::WhoAmI),
            "/auth/v1/register" => Some(Self::Register),
            "/oauth/token" => Some(Self::OAuth),
            "/auth/v1/delete" => Some(Self::Unregister("")),
            path => path.strip_prefix("/auth/v1/delete/").map(Self::Unregister),
        }
    }

    const fn methods(self) -> &'static [Method] {
        match self {
            Self::Exchange => &[Method::GET, Method::POST],
            Self::HeadlessSession | Self::WhoAmI => &[Method::GET],
            Self::Refresh | Self::Register | Self::OAuth => &[Method::POST],
            Self::Unregister(_) => &[Method::DELETE],
        }
    }
}

/// Handles a request whose method was checked. A missing or malformed credential is rejected before the body is read.
async fn answer(
    service: &dyn TokenService,
    endpoint: Endpoint<'_>,
    call: Call<'_>,
    body: Body<'_>,
) -> Result<Reply, Refusal> {
    let Call { head, query, .. } = call;
    let (credential, limits) = (bearer(&head.headers)?, &call.limits.of_tokens());
    if endpoint == Endpoint::HeadlessSession {
        let read = from_query(HeadlessSession::REQUEST, &mount::pairs(query)?)?;
        let code = read.get("code").and_then(Value::as_str).unwrap_or_default();
        return json_not_cached(&service.headless_session(code).await?);
    }
    let credential = credential.ok_or_else(Error::missing_token)?;
    let of = if endpoint == Endpoint::Refresh { CredentialOf::Refresh } else { CredentialOf::Token };
    service.check_form(credential, of)?;
    match endpoint {
        Endpoint::Exchange => {
            let request = Exchange::read(parameters(Exchange::FIELDS, Unknown::Rejected, query, body, limits).await?)?;
            json_not_cached(&service.exchange(credential, &request).await?)
        }
        Endpoint::Refresh => {
            let request = Refresh::read(parameters(Refresh::FIELDS, Unknown::Rejected, query, body, limits).await?)?;
            json_not_cached(&service.refresh(credential, &request).await?)
        }
        Endpoint::Register => {
            mount::reject_preconditions(head)?;
            let request = Register::read(parameters(Register::FIELDS, Unknown::Rejected, query, body, limits).await?)?;
            json_not_cached(&service.register(credential, &request).await?)
        }
        Endpoint::Unregister(id) => {
            mount::reject_preconditions(head)?;
            mount::reject_parameters(query)?;
            if id.is_empty() {
                return Err(Error::invalid_field("id", "is required").into());
            }
            service.unregister(credential, &mount::variable("id", id)?).await?;
            Ok(mount::deleted(&head.headers))
        }
        Endpoint::WhoAmI | Endpoint::HeadlessSession | Endpoint::OAuth => {
            mount::reject_parameters(query)?;
            json_not_cached(&service.who_am_i(credential).await?)
        }
    }
}

/// The handling of a parameter that an endpoint does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Rejected,
    /// As OAuth 2.0 requires it ([`without_unknown`]).
    Ignored,
}

/// Reads parameters from the query and the body, which is a form or a JSON object. The body's first character decides
/// which of the two, because clients send both formats with either content type.
async fn parameters(
    fields: &'static [Field],
    unknown: Unknown,
    query: &str,
    body: Body<'_>,
    limits: &Limits,
) -> Result<Map<String, Value>, Refusal> {
    let bytes = mount::bytes(body, limits).await?;
    let is_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let mut pairs = mount::pairs(query)?;
    if is_json {
        let mut sent = json::read_object(&bytes, limits.depth)?;
        if unknown == Unknown::Ignored {
            sent.retain(|name, _| fields.iter().any(|field| field.is_named(name)));
        }
        for (name, value) in from_query(fields, &pairs)? {
            if sent.insert(name.clone(), value).is_some() {
                return Err(Error::invalid_field(name, "is specified more than once").into());
            }
        }
        return Ok(sent);
    }
    let form = std::str::from_utf8(&bytes).map_err(|_| Error::invalid_field("body", "is not valid UTF-8"))?;
    pairs.extend(mount::pairs(form.trim())?);
    if unknown == Unknown::Ignored {
        pairs = without_unknown(fields, pairs)?;
    }
    Ok(from_query(fields, &pairs)?)
}

/// Returns a JSON response that must not be cached.
fn json_not_cached(value: &impl Serialize) -> Result<Reply, Refusal> {
    let body = serde_json::to_vec(value).map_err(Error::internal)?;
    let mut reply = mount::json(body);
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
            ("/sts/exchange", Some(Endpoint::Exchange), "GET, POST"),
            ("/sts/exchange_refresh_token", Some(Endpoint::Refresh), "POST"),
            ("/sts/headless_sessions", Some(Endpoint::HeadlessSession), "GET"),
            ("/auth/v1/ok", Some(Endpoint::WhoAmI), "GET"),
            ("/auth/v1/register", Some(Endpoint::Register), "POST"),
            ("/auth/v1/delete/a", Some(Endpoint::Unregister("a")), "DELETE"),
            ("/auth/v1/delete/a/b", Some(Endpoint::Unregister("a/b")), "DELETE"),
            ("/auth/v1/delete/", Some(Endpoint::Unregister("")), "DELETE"),
            ("/auth/v1/delete", Some(Endpoint::Unregister("")), "DELETE"),
            ("/oauth/token", Some(Endpoint::OAuth), "POST"),
            ("/sts/exchange/", Some(Endpoint::Exchange), "GET, POST"),
            ("/sts/exchange//", None, ""),
            ("//sts/exchange", None, ""),
            ("/sts/%65xchange", None, ""),
            ("/auth/v2/ok", None, ""),
        ] {
            assert_eq!(Endpoint::find(path), endpoint, "{path}");
            let found = endpoint.map_or(&[][..], Endpoint::methods).iter().map(Method::as_str).collect::<Vec<_>>();
            assert_eq!(found.join(", "), methods, "{path}");
        }
    }
}
