//! The sessions of the page.
//!
//! The page holds a short-lived token in memory. A cookie contains the token that the user signed in with, sealed with
//! the keys of the platform, and does one thing: a POST to `/console/session` renews the short-lived token with it. No
//! other path reads a cookie. So a stolen page token is useless after minutes, a reload of the page keeps the user
//! signed in, and a forged request of another site has no effect: its answer is a token that the site cannot read, and
//! the checks here reject it anyway. The server stores nothing, so that any of several servers renews a session.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{
    HeaderMap, HeaderValue,
    header::{CACHE_CONTROL, COOKIE, HOST, ORIGIN, SET_COOKIE},
    request::Parts,
};
use platform_engine::{
    error::{Error, Result},
    json,
    platform::Platform,
    seal::Secret,
    timestamp::Timestamp,
};
use platform_http::{
    Reply, bearer,
    mount::{self, Body, Call, Refusal},
};
use serde::Serialize;
use serde_json::Value;

use crate::{LINK_SECONDS, Links, Options};

/// The maximum time in seconds for which a user stays signed in. Our choice: 12 hours.
pub const SESSION_SECONDS: i64 = 12 * 60 * 60;

/// The header that a page of another site cannot send without a CORS preflight, which is refused. Its value is the
/// step.
const STEP: &str = "x-console-session";

/// What sealed cookies are bound to.
const PLACE: &str = "console-session";

/// The maximum length of a cookie that browsers keep, in bytes, with its name and attributes (RFC 6265, 6.1).
const MAX_COOKIE: usize = 4096;

/// A token for the page.
#[derive(Debug, Clone)]
pub struct ShortToken {
    /// The token.
    pub token: Secret,
    /// When it expires.
    pub expires: Timestamp,
    /// When the token that it was made from expires, which ends the session.
    pub session_expires: Timestamp,
}

/// Issues the tokens of the page.
#[async_trait]
pub trait Tokens: Debug + Send + Sync + 'static {
    /// Verifies an access token and returns one for the same identity with the same limits, which expires within
    /// minutes and not after it.
    ///
    /// # Errors
    /// UNAUTHENTICATED for a token that the API does not accept.
    async fn shorten(&self, token: &str) -> Result<ShortToken>;
}

/// A request for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Signs in with the bearer token.
    Start,
    /// Signs in with the code of a one-time link, which is the body.
    Link,
    /// Renews the token with the cookie.
    Renew,
    /// Removes the cookie.
    End,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) links: Links,
    tokens: Option<Arc<dyn Tokens>>,
    url: String,
    name: &'static str,
    attributes: &'static str,
}

/// The answer to a step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Session<'a> {
    /// Empty if the user is not signed in.
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_time: Option<Timestamp>,
    /// Whether the cookie renews the token.
    renewable: bool,
}

impl Sessions {
    pub(crate) fn new(options: &Options) -> Self {
        // The prefix lets browsers accept the cookie only over TLS.
        let (name, attributes) = match options.url.starts_with("https:") {
            true => ("__Secure-platform-console", "Path=/console/session; HttpOnly; SameSite=Strict; Secure"),
            false => ("platform-console", "Path=/console/session; HttpOnly; SameSite=Strict"),
        };
        Self { links: Links::default(), tokens: options.tokens.clone(), url: options.url.clone(), name, attributes }
    }

    /// Answers `/console/session`.
    pub(crate) async fn answer(&self, call: &Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        mount::reject_parameters(call.query)?;
        let step = checked_step(call.head)?;
        let Some(tokens) = &self.tokens else { return Err(Refusal::no_path()) };
        match step {
            Step::Start => {
                let token = bearer(&call.head.headers)?.ok_or_else(Error::missing_token)?;
                self.begin(call, &**tokens, token).await
            }
            Step::Link => {
                let body = mount::bytes(body, &call.limits.of_tokens()).await?;
                let body = json::read_object(&body, call.limits.depth)?;
                let code = body.get("code").and_then(Value::as_str).unwrap_or_default();
                let spent = || Error::unauthenticated("The link was already opened, or it is older than 15 minutes");
                let token = self.links.take(call.platform.now(), code).ok_or_else(spent)?;
                self.begin(call, &**tokens, token.expose()).await
            }
            Step::Renew => self.renew(call, &**tokens).await,
            Step::End => self.signed_out(),
        }
    }

    /// Answers `/console/links`: makes a one-time link that signs its user in as the caller.
    pub(crate) async fn link(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        mount::reject_parameters(call.query)?;
        let Some(tokens) = &self.tokens else { return Err(Refusal::no_path()) };
        let token = bearer(&call.head.headers)?.ok_or_else(Error::missing_token)?;
        let caller = call.caller().await?;
        // The embedder's middleware may have established the caller without this token.
        shorten(call, &**tokens, token).await?;
        let (platform, now) = (call.platform, call.platform.now());
        let code = self.links.make(platform.entropy(), now, &caller.identity, Secret::new(token))?;
        let expires = now.plus_millis(LINK_SECONDS * 1000);
        let link = serde_json::json!({ "url": Links::url(&self.url, &code), "expireTime": expires });
        Ok(not_cached(mount::json(link.to_string())))
    }

    /// Signs a user in with a token.
    async fn begin(&self, call: &Call<'_>, tokens: &dyn Tokens, token: &str) -> Result<Reply, Refusal> {
        let short = shorten(call, tokens, token).await?;
        let (platform, now) = (call.platform, call.platform.now());
        let until = short.session_expires.min(now.plus_millis(SESSION_SECONDS * 1000));
        let sealed = seal(platform, until, token)?;
        let cookie = self.cookie(&sealed, until.seconds().saturating_sub(now.seconds()));
        let renewable = cookie.len() <= MAX_COOKIE;
        let mut reply = session(&short, renewable)?;
        if renewable {
            set_cookie(&mut reply, &cookie)?;
        }
        Ok(reply)
    }

    /// Returns a new short-lived token, or none without a valid cookie: a page that is opened for the first time asks,
    /// too.
    async fn renew(&self, call: &Call<'_>, tokens: &dyn Tokens) -> Result<Reply, Refusal> {
        let Some(token) = self.read_cookie(&call.head.headers).and_then(|sealed| open(call.platform, sealed)) else {
            return self.signed_out();
        };
        match shorten(call, tokens, token.expose()).await {
            Ok(short) => Ok(session(&short, true)?),
            Err(error) if error.code() == platform_engine::error::Code::Unauthenticated => self.signed_out(),
            Err(error) => Err(error.into()),
        }
    }

    fn signed_out(&self) -> Result<Reply, Refusal> {
        let mut reply = answer(&Session { token: "", expire_time: None, renewable: false })?;
        set_cookie(&mut reply, &self.cookie("", 0))?;
        Ok(reply)
    }

    fn cookie(&self, value: &str, seconds: i64) -> String {
        format!("{}={value}; Max-Age={seconds}; {}", self.name, self.attributes)
    }

    fn read_cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.name).map(|(_, value)| value)
    }
}

/// Returns a short-lived copy of a token that the API accepts now: its identity exists, and it is not revoked.
async fn shorten(call: &Call<'_>, tokens: &dyn Tokens, token: &str) -> Result<ShortToken> {
    let caller = call.authenticator.authenticate(token).await?;
    call.platform.current_grants(&caller).await?;
    tokens.shorten(token).await
}

/// Checks that a page of this server sent the request, and returns its step.
fn checked_step(head: &Parts) -> Result<Step> {
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let step = match header(STEP) {
        Some("start") => Step::Start,
        Some("link") => Step::Link,
        Some("renew") => Step::Renew,
        Some("end") => Step::End,
        _ => return Err(Error::invalid_field(STEP, "must be start, link, renew or end")),
    };
    let host = head.uri.authority().map(http::uri::Authority::as_str).or_else(|| header(HOST.as_str()));
    let origin = header(ORIGIN.as_str()).and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let is_own = host.is_some() && origin == host && header("sec-fetch-site").is_none_or(|site| site == "same-origin");
    if is_own { Ok(step) } else { Err(Error::denied()) }
}

/// Seals a token with the time until which the session lasts.
fn seal(platform: &Platform, until: Timestamp, token: &str) -> Result<String> {
    let text = Secret::new(format!("{}\n{token}", until.millis()));
    let sealed = platform.seal_keys().seal(platform.entropy(), PLACE, text.expose().as_bytes());
    Ok(BASE64_URL_SAFE_NO_PAD.encode(sealed.map_err(Error::internal)?))
}

/// Returns the token of a cookie whose session lasts.
fn open(platform: &Platform, sealed: &str) -> Option<Secret> {
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let text = Secret::new(String::from_utf8(platform.seal_keys().open(PLACE, &sealed).ok()?).ok()?);
    let (until, token) = text.expose().split_once('\n')?;
    let until = Timestamp::from_millis(until.parse().ok()?);
    (until > platform.now()).then(|| Secret::new(token))
}

fn session(short: &ShortToken, renewable: bool) -> Result<Reply> {
    answer(&Session { token: short.token.expose(), expire_time: Some(short.expires), renewable })
}

fn answer(session: &Session<'_>) -> Result<Reply> {
    Ok(not_cached(mount::json(serde_json::to_vec(session).map_err(Error::internal)?)))
}

fn not_cached(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn set_cookie(reply: &mut Reply, cookie: &str) -> Result<()> {
    let mut value = HeaderValue::try_from(cookie).map_err(Error::internal)?;
    value.set_sensitive(true);
    reply.headers_mut().insert(SET_COOKIE, value);
    Ok(())
}
