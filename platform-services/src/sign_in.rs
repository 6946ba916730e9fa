//! Browser sign-in: the pages at `/oauth`, and `/orgcheck` (`docs/api.md`, Browser sign-in).
//!
//! This module only reads requests and renders pages; a [`SignInService`] does the rest. The pages have no scripts.
//! Texts from outside are escaped.

mod cookie;
mod html;
mod openapi;
mod page;

use std::sync::Arc;

use async_trait::async_trait;
use form_urlencoded::Serializer;
use http::{HeaderMap, Method, StatusCode};
use platform_core::{
    resources::domain,
    tokens::{Failure, Finished, Held, Loopback, ProviderResponse, RawToken, SignIn, SignInService, Target},
};
use platform_engine::{
    error::{Code, Error, Violations},
    kind::Field,
    request::from_query,
    seal::Secret,
    uid::Uid,
};
use platform_http::{
    Reply, log_fault,
    mount::{self, Body, Call, Mount, Refusal},
    oauth_description, status,
};
use serde_json::Value;

use self::{cookie::Cookie, page::Pages};
use crate::tokens::{error_name, parameter};

/// The pages at `/oauth`, where a person signs in with an identity provider and confirms that a program gets tokens,
/// and `/orgcheck`. Each request counts against the rate limit for requests without a verified token.
#[derive(Debug)]
pub struct BrowserSignIn {
    service: Arc<dyn SignInService>,
    cookie: Cookie,
    pages: Pages,
}

/// The memory that is charged to the address of a sign-in, in bytes: from its start, and in addition after the
/// provider's response, which has an id token. Our choice: upper bounds of the stored state.
const BEGUN_BYTES: usize = 8 << 10;
const COMPLETED_BYTES: usize = 32 << 10;

/// The maximum length of the query that begins a sign-in, in bytes; our choice. It bounds the stored parameters.
const MAX_BEGIN_QUERY: usize = 4 << 10;

/// The parameters of `/orgcheck`.
const ORG_CHECK: &[Field] = &[Field::string("name").required().about("The name of an organization.")];

impl BrowserSignIn {
    /// Returns the pages of a service.
    pub fn new(service: Arc<dyn SignInService>) -> Self {
        let cookie = Cookie::new(service.url().starts_with("https:"));
        let pages = Pages::new(service.url());
        Self { service, cookie, pages }
    }
}

/// A page, or the organization check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Endpoint {
    Begin,
    /// With the uid of the identity provider; `None` for the operator's.
    Callback(Option<Uid>),
    Confirm,
    Style,
    OrgCheck,
}

impl Endpoint {
    fn find(path: &str) -> Option<Self> {
        // One trailing slash is ignored, as on all other paths.
        match path.strip_suffix('/').unwrap_or(path) {
            "/oauth" => Some(Self::Begin),
            "/oauth/callback" => Some(Self::Callback(None)),
            "/oauth/confirm" => Some(Self::Confirm),
            "/oauth/style.css" => Some(Self::Style),
            "/orgcheck" => Some(Self::OrgCheck),
            path => {
                let uid = Uid::parse(path.strip_prefix("/oauth/callback/")?).ok()?;
                Some(Self::Callback(Some(uid)))
            }
        }
    }

    const fn methods(&self) -> &'static [Method] {
        match self {
            Self::Confirm => &[Method::GET, Method::POST],
            _ => &[Method::GET],
        }
    }
}

#[async_trait]
impl Mount for BrowserSignIn {
    fn name(&self) -> &'static str {
        "BrowserSignIn"
    }

    fn has(&self, path: &str) -> bool {
        Endpoint::find(path).is_some()
    }

    fn domain(&self) -> &'static str {
        domain::IAM.name
    }

    async fn answer(&self, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        let endpoint = Endpoint::find(call.path).ok_or_else(Refusal::no_path)?;
        call.origin.token_path()?;
        if let Some(reply) = call.check_method(endpoint.methods())? {
            return Ok(reply);
        }
        // A HEAD request must not take a step of a sign-in.
        let is_head = call.head.method == Method::HEAD;
        match endpoint {
            Endpoint::OrgCheck => self.check_organization(call.query).await,
            Endpoint::Style => Ok(page::style()),
            _ if is_head => Ok(self.pages.message(StatusCode::OK, "Sign-in", "")),
            Endpoint::Begin => Ok(self.begin(&call).await.unwrap_or_else(|error| self.pages.error(&error))),
            Endpoint::Callback(provider) => Ok(self.complete(&call, provider).await),
            Endpoint::Confirm if call.head.method == Method::POST => self.confirm(&call, body).await,
            Endpoint::Confirm => Ok(self.ask(&call).await.unwrap_or_else(|error| self.pages.error(&error))),
        }
    }

    fn openapi(&self) -> Value {
        openapi::part()
    }
}

impl BrowserSignIn {
    /// Redirects the browser to the identity provider. An error goes to the program if its callback is valid, as it would
    /// otherwise wait forever, and else to a page.
    async fn begin(&self, call: &Call<'_>) -> Result<Reply, Error> {
        if call.query.len() > MAX_BEGIN_QUERY {
            return Err(Error::invalid_field("query", format!("must be at most {MAX_BEGIN_QUERY} bytes long")));
        }
        let pairs = mount::pairs(call.query)?;
        let begun = async {
            let request = SignIn::read(&pairs).map_err(|error| (error, SignIn::callback_of_errors(&pairs)))?;
            let callback = match &request.target {
                Target::Loopback(callback) => Some(callback.clone()),
                Target::Headless(_) => None,
            };
            let held = self.hold(call, BEGUN_BYTES);
            let begun = async { self.service.begin(request, held?).await };
            begun.await.map_err(|error| (error, callback))
        };
        match begun.await {
            Ok(begun) => {
                let mut reply = page::redirect(begun.url.expose())?;
                self.cookie.set(&mut reply, &begun.browser)?;
                Ok(reply)
            }
            // The cookie stays, as it is that of another sign-in.
            Err((error, Some(callback))) => {
                log_fault(&error);
                page::redirect(self.with_error(&callback, &error.rename_fields(parameter)).expose())
            }
            Err((error, None)) => Err(error),
        }
    }

    /// Takes the provider's response and leads to the confirmation. The redirect removes the code from the address.
    async fn complete(&self, call: &Call<'_>, provider: Option<Uid>) -> Reply {
        let completed = async {
            let response = provider_response(call.query, provider)?;
            let held = self.hold(call, COMPLETED_BYTES)?;
            self.service.complete(response, self.cookie.read(&call.head.headers), held).await
        };
        let led = completed.await.and_then(|browser| {
            let mut reply = page::redirect(&self.pages.confirm_path())?;
            self.cookie.set(&mut reply, &browser)?;
            Ok(reply)
        });
        led.unwrap_or_else(|failure| self.failed(&failure))
    }

    /// Returns the page where the person confirms.
    async fn ask(&self, call: &Call<'_>) -> Result<Reply, Error> {
        mount::reject_parameters(call.query)?;
        let confirmation = self.service.confirmation(self.cookie.read(&call.head.headers)).await?;
        self.pages.confirmation(&confirmation)
    }

    /// Ends the sign-in with the person's answer.
    async fn confirm(&self, call: &Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        let body = mount::bytes(body, &call.limits.of_tokens()).await?;
        let finished = async {
            let (form_token, agrees) = read_form(&call.head.headers, &body)?;
            let browser = self.cookie.read(&call.head.headers);
            self.service.confirm(browser, form_token.expose(), agrees).await
        };
        let ended = finished.await.and_then(|finished| {
            let mut reply = match finished {
                Finished::Tokens(callback, tokens) => page::redirect(self.with_tokens(&callback, &tokens).expose())?,
                Finished::Code(callback, code) => page::redirect(self.with_code(&callback, &code).expose())?,
                Finished::Headless => self.pages.message(
                    StatusCode::OK,
                    "Signed in",
                    "The program gets its token within seconds. You can close this page.",
                ),
            };
            self.cookie.remove(&mut reply)?;
            Ok(reply)
        });
        Ok(ended.unwrap_or_else(|failure| self.failed(&failure)))
    }

    /// Reports a failure to the program that began the sign-in, if it has a callback and the browser is the one that
    /// began it, and otherwise on a page.
    fn failed(&self, failure: &Failure) -> Reply {
        log_fault(&failure.error);
        match &failure.target {
            Some(Target::Loopback(callback)) => {
                let reply = page::redirect(self.with_error(callback, &failure.error).expose());
                let reply = reply.and_then(|mut reply| self.cookie.remove(&mut reply).map(|()| reply));
                reply.unwrap_or_else(|error| self.pages.error(&error))
            }
            _ => self.pages.error(&failure.error),
        }
    }

    /// Holds memory for a sign-in, charged to the address that the request came from.
    fn hold(&self, call: &Call<'_>, bytes: usize) -> Result<Held, Error> {
        // Sign-ins that have expired hold memory until they are forgotten.
        self.service.forget_expired();
        Ok(Box::new(call.origin.hold(bytes)?))
    }

    /// Returns the callback with the tokens.
    fn with_tokens(&self, callback: &Loopback, tokens: &RawToken) -> Secret {
        let mut query = Serializer::new(String::new());
        query.append_pair("token", tokens.token.expose());
        if !tokens.refresh_token.is_empty() {
            query.append_pair("refresh_token", tokens.refresh_token.expose());
        }
        self.with_query(callback, query)
    }

    /// Returns the callback with the code for its tokens.
    fn with_code(&self, callback: &Loopback, code: &Secret) -> Secret {
        let mut query = Serializer::new(String::new());
        query.append_pair("code", code.expose());
        self.with_query(callback, query)
    }

    /// Returns the callback with an error: its message and its HTTP status or, in OAuth 2.0, its value and its message
    /// (RFC 6749 section 4.1.2.1).
    fn with_error(&self, callback: &Loopback, error: &Error) -> Secret {
        let mut query = Serializer::new(String::new());
        if callback.is_standard() {
            let concerns = |name: &str| error.violations().iter().all(|violation| violation.field == name);
            let is_of_type = error.code() == Code::InvalidArgument && concerns("response_type");
            let name = if is_of_type { "unsupported_response_type" } else { error_name(error, "access_denied") };
            query.append_pair("error", name).append_pair("error_description", &oauth_description(error.message()));
        } else {
            query.append_pair("error", error.message()).append_pair("status_code", status::of(error.code()).as_str());
        }
        self.with_query(callback, query)
    }

    /// Returns the callback with the parameters that every response has: `state` and, in OAuth 2.0, `iss` (RFC 9207).
    fn with_query(&self, callback: &Loopback, mut query: Serializer<'_, String>) -> Secret {
        if !callback.state().is_empty() {
            query.append_pair("state", callback.state());
        }
        if callback.is_standard() {
            query.append_pair("iss", self.service.url());
        }
        Secret::new(format!("{}?{}", callback.url(), query.finish()))
    }

    async fn check_organization(&self, query: &str) -> Result<Reply, Refusal> {
        let read = from_query(ORG_CHECK, &mount::pairs(query)?)?;
        let name = read.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| Error::invalid_field("name", "is required"))?;
        let mut reply = mount::json(self.service.has_verified_organization(name).await?.to_string());
        page::not_cached(&mut reply);
        Ok(reply)
    }
}

/// Reads the provider's response. Providers add parameters of their own, which are ignored.
fn provider_response(query: &str, provider: Option<Uid>) -> Result<ProviderResponse, Error> {
    let mut violations = Violations::default();
    let mut response = ProviderResponse { provider, ..ProviderResponse::default() };
    let (mut state, mut seen) = (None, Vec::new());
    for (name, value) in mount::pairs(query)? {
        match name.as_str() {
            "state" => state = Some(Secret::new(value)),
            "code" => response.code = Some(Secret::new(value)),
            "iss" => response.issuer = Some(value),
            "error" => response.error = Some(value),
            _ => continue,
        }
        if seen.contains(&name) {
            violations.add(name.as_str(), "is specified more than once");
        }
        seen.push(name);
    }
    match state {
        Some(state) => response.state = state,
        None => violations.add("state", "is required"),
    }
    violations.none_or(response)
}

/// Reads the confirmation form: its token, and whether the person agrees.
fn read_form(headers: &HeaderMap, body: &[u8]) -> Result<(Secret, bool), Error> {
    // Browsers say where a form comes from; the token in the form is required in any case.
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return Err(Error::denied());
    }
    let body = std::str::from_utf8(body).map_err(|_| Error::invalid_field("body", "is not valid UTF-8"))?;
    let (mut token, mut answer) = (Secret::default(), String::new());
    for (name, value) in mount::pairs(body)? {
        match name.as_str() {
            "token" => token = Secret::new(value),
            "answer" => answer = value,
            _ => return Err(Error::invalid_field(name, "unknown parameter")),
        }
    }
    match answer.as_str() {
        "allow" => Ok((token, true)),
        "refuse" => Ok((token, false)),
        _ => Err(Error::invalid_field("answer", "must be allow or refuse")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_one_endpoint() {
        let (organization, segment) = ("1".repeat(40), "0123456789abcdef");
        let provider = format!("{organization}/{segment}");
        for (path, endpoint) in [
            ("/oauth", Some(Endpoint::Begin)),
            ("/oauth/", Some(Endpoint::Begin)),
            ("/oauth/callback", Some(Endpoint::Callback(None))),
            (&format!("/oauth/callback/{provider}"), Some(Endpoint::Callback(Some(Uid::opaque(provider.clone()))))),
            ("/oauth/callback/x", None),
            ("/oauth/confirm", Some(Endpoint::Confirm)),
            ("/oauth/style.css", Some(Endpoint::Style)),
            ("/oauth/token", None),
            ("/orgcheck", Some(Endpoint::OrgCheck)),
            ("/oauth//", None),
            ("/oauthx", None),
            ("/orgcheck/x", None),
        ] {
            assert_eq!(Endpoint::find(path), endpoint, "{path}");
        }
    }

    #[test]
    fn a_form_of_another_site_is_rejected() {
        let with = |site: &str| HeaderMap::from_iter([("sec-fetch-site".parse().unwrap(), site.parse().unwrap())]);
        let body = b"token=t&answer=allow";
        assert!(read_form(&HeaderMap::new(), body).is_ok_and(|(token, agrees)| agrees && token.expose() == "t"));
        assert!(read_form(&with("same-origin"), body).is_ok());
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(read_form(&with(site), body).is_err(), "{site}");
        }
        for bad in ["", "token=t", "token=t&answer=yes", "token=t&answer=allow&x=1", "token=%ff&answer=allow"] {
            assert!(read_form(&HeaderMap::new(), bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
