//! The sessions of the page.
//!
//! The page holds a short-lived token in memory. A cookie contains the token that the user signed in with, sealed with
//! the keys of the platform, and does one thing: a POST to `/console/session` renews the short-lived token with it. No
//! other path reads a cookie. So a stolen page token is useless after minutes, a reload of the page keeps the user
//! signed in, and a forged request of another site has no effect: its answer is a token that the site cannot read, and
//! the checks here reject it anyway.
//!
//! A running session is not stored, so that any of several servers renews it and a sign-in writes nothing. The end of a
//! session is stored with the revocations of its identity ([`Revocations`]), which every check of a token compares with
//! the store. Rejected: a table of running sessions, which each sign-in would write; revoking the token itself, which its
//! user may also have in a terminal; and a time per identity before which cookies are invalid, which would sign out the
//! other browsers of an identity, and depends on clocks.
//!
//! [`Revocations`]: platform_engine::access::Revocations

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{
    HeaderMap, HeaderValue,
    header::{CACHE_CONTROL, COOKIE, SET_COOKIE},
    request::Parts,
};
use platform_engine::{
    access::Grants,
    error::{Code, Error, Result},
    json,
    platform::Platform,
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_http::{
    Reply, bearer,
    mount::{self, Body, Call, Refusal, Sender},
};
use serde::Serialize;
use serde_json::Value;

use crate::{LINK_SECONDS, Links, Options};

/// The maximum time in seconds for which a user stays signed in. Our choice: 12 hours.
pub const SESSION_SECONDS: i64 = 12 * 60 * 60;

/// The header that a page of another site cannot send without a CORS preflight, which is refused. Its value is the
/// step.
const STEP: &str = "x-console-session";

/// The place that sealed cookies are bound to.
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

    /// Returns what the page calls an identity, such as a name and an email address.
    ///
    /// # Errors
    /// Those of the store.
    async fn name(&self, platform: &Platform, identity: &Uid) -> Result<String>;

    /// Ends the session with this id, whose cookie expires at `until` at the latest. Afterwards, the identity's grants
    /// must not [admit](platform_engine::access::Revocations::admit_session) it at any server.
    ///
    /// # Errors
    /// Those of the store.
    async fn end(&self, platform: &Platform, identity: &Uid, session: &str, until: Timestamp) -> Result<()>;
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
    /// Ends the session of the cookie, and removes the cookie.
    End,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) links: Links,
    tokens: Option<Arc<dyn Tokens>>,
    url: String,
    name: &'static str,
    attributes: String,
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
    /// The question that must be answered before a link signs its user in.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<Question>,
}

/// Whether a link of another identity may replace the running session.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    /// The id of the running session, which a page of another site does not know. An answer replaces this session only.
    replaces: String,
    current: Named,
    next: Named,
}

#[derive(Debug, Serialize)]
struct Named {
    uid: Uid,
    name: String,
}

/// The contents of a cookie.
#[derive(Debug)]
struct Cookie {
    /// When the session ends.
    until: Timestamp,
    /// How often all sessions of the identity had been ended when it began.
    generation: u64,
    id: String,
    token: Secret,
}

/// A session that lasts.
#[derive(Debug)]
struct Running {
    cookie: Cookie,
    identity: Uid,
}

impl Sessions {
    pub(crate) fn new(options: &Options) -> Self {
        // The prefix lets browsers accept the cookie only over TLS.
        let attributes = format!("Path={}/console/session; HttpOnly; SameSite=Strict", mount::base_path(&options.url));
        let (name, attributes) = if options.url.starts_with("https:") {
            ("__Secure-platform-console", attributes + "; Secure")
        } else {
            ("platform-console", attributes)
        };
        Self { links: Links::default(), tokens: options.tokens.clone(), url: options.url.clone(), name, attributes }
    }

    /// Answers `/console/session`.
    pub(crate) async fn answer(&self, call: &Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        mount::reject_parameters(call.query)?;
        let step = checked_step(call.head, &self.url)?;
        let Some(tokens) = &self.tokens else { return Err(Refusal::no_path()) };
        match step {
            Step::Start => {
                let token = bearer(&call.head.headers)?.ok_or_else(Error::missing_token)?;
                self.begin(call, &**tokens, token, self.running(call).await?).await
            }
            Step::Link => self.open_link(call, &**tokens, body).await,
            Step::Renew => self.renew(call, &**tokens).await,
            Step::End => self.end(call, &**tokens).await,
        }
    }

    /// Answers `/console/links`: makes a one-time link that signs its user in as the caller.
    pub(crate) async fn link(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        mount::reject_parameters(call.query)?;
        let Some(tokens) = &self.tokens else { return Err(Refusal::no_path()) };
        let token = bearer(&call.head.headers)?.ok_or_else(Error::missing_token)?;
        let caller = call.caller().await?;
        // The embedder's middleware may have established the caller without this token.
        current_grants(call, token).await?;
        tokens.shorten(token).await?;
        let (platform, now) = (call.platform, call.platform.now());
        let code = self.links.make(platform.entropy(), now, &caller.identity, Secret::new(token))?;
        let expires = now.plus_millis(LINK_SECONDS * 1000);
        let link = serde_json::json!({ "url": Links::url(&self.url, &code), "expireTime": expires });
        Ok(not_cached(mount::json(link.to_string())))
    }

    /// Signs a user in with the code of a link. Asks before it replaces the session of another identity: otherwise,
    /// an attacker who makes a user open a link would see what the user does next.
    async fn open_link(&self, call: &Call<'_>, tokens: &dyn Tokens, body: Body<'_>) -> Result<Reply, Refusal> {
        let body = mount::bytes(body, &call.limits.of_tokens()).await?;
        let body = json::read_object(&body, call.limits.depth)?;
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let spent = || Error::unauthenticated("The link was already opened, or it is older than 15 minutes");
        let (now, code) = (call.platform.now(), text("code"));
        let next = self.links.identity(now, code).ok_or_else(spent)?;
        let running = self.running(call).await?;
        if let Some(running) = &running
            && running.identity != next
            && running.cookie.id != text("replaces")
        {
            let named = async |uid: Uid| Ok::<_, Error>(Named { name: tokens.name(call.platform, &uid).await?, uid });
            let (replaces, current) = (running.cookie.id.clone(), named(running.identity.clone()).await?);
            let question = Some(Question { replaces, current, next: named(next).await? });
            return Ok(answer(&Session { token: "", expire_time: None, renewable: false, question })?);
        }
        let token = self.links.take(now, code).ok_or_else(spent)?;
        self.begin(call, tokens, token.expose(), running).await
    }

    /// Signs a user in with a token. Ends the session that the new cookie replaces.
    async fn begin(
        &self,
        call: &Call<'_>,
        tokens: &dyn Tokens,
        token: &str,
        replaced: Option<Running>,
    ) -> Result<Reply, Refusal> {
        let (_, grants) = current_grants(call, token).await?;
        let short = tokens.shorten(token).await?;
        if let Some(replaced) = replaced {
            replaced.end(call, tokens).await?;
        }
        let (platform, now) = (call.platform, call.platform.now());
        let until = short.session_expires.min(now.plus_millis(SESSION_SECONDS * 1000));
        let sealed = Cookie::new(platform, until, grants.revocations().session_generation(), token).seal(platform)?;
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
        let Some(running) = self.running(call).await? else { return self.signed_out() };
        match tokens.shorten(running.cookie.token.expose()).await {
            Ok(short) => Ok(session(&short, true)?),
            Err(error) if error.code() == Code::Unauthenticated => self.signed_out(),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the session at every server. The browser forgets the cookie even if that fails.
    async fn end(&self, call: &Call<'_>, tokens: &dyn Tokens) -> Result<Reply, Refusal> {
        let ended = async {
            match self.running(call).await? {
                Some(running) => running.end(call, tokens).await,
                None => Ok(()),
            }
        };
        let Err(error) = ended.await else { return self.signed_out() };
        let mut reply = Refusal::from(error).into_reply(&call.platform.settings().service_domain);
        set_cookie(&mut reply, &self.cookie("", 0))?;
        Ok(reply)
    }

    /// Returns the session of the request's cookie, if it lasts.
    async fn running(&self, call: &Call<'_>) -> Result<Option<Running>> {
        let Some(cookie) = self.read_cookie(&call.head.headers).and_then(|cookie| Cookie::open(call.platform, cookie))
        else {
            return Ok(None);
        };
        match current_grants(call, cookie.token.expose()).await {
            Ok((identity, grants)) if grants.revocations().admit_session(&cookie.id, cookie.generation) => {
                Ok(Some(Running { identity, cookie }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.code() == Code::Unauthenticated => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn signed_out(&self) -> Result<Reply, Refusal> {
        let mut reply = answer(&Session { token: "", expire_time: None, renewable: false, question: None })?;
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

impl Running {
    async fn end(&self, call: &Call<'_>, tokens: &dyn Tokens) -> Result<()> {
        tokens.end(call.platform, &self.identity, &self.cookie.id, self.cookie.until).await
    }
}

/// Returns the identity and the grants of a token that the API accepts now: its identity exists, and it is not revoked.
async fn current_grants(call: &Call<'_>, token: &str) -> Result<(Uid, Arc<Grants>)> {
    let caller = call.authenticator.authenticate(token).await?;
    let grants = call.platform.current_grants(&caller).await?;
    Ok((caller.identity, grants))
}

/// Checks that a page of this server sent the request, and returns its step.
fn checked_step(head: &Parts, url: &str) -> Result<Step> {
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let step = match header(STEP) {
        Some("start") => Step::Start,
        Some("link") => Step::Link,
        Some("renew") => Step::Renew,
        Some("end") => Step::End,
        _ => return Err(Error::invalid_field(STEP, "must be start, link, renew or end")),
    };
    if mount::sender(head, url) == Sender::OwnPage {
        return Ok(step);
    }
    Err(Error::new(
        Code::PermissionDenied,
        format!("Permission denied: Origin must be that of {url}, the URL of this server; see --public-url"),
    ))
}

impl Cookie {
    fn new(platform: &Platform, until: Timestamp, generation: u64, token: &str) -> Self {
        let mut id = [0; 16];
        platform.entropy().fill(&mut id);
        Self { until, generation, id: hex::encode(id), token: Secret::new(token) }
    }

    fn seal(&self, platform: &Platform) -> Result<String> {
        let Self { until, generation, id, token } = self;
        let text = Secret::new(format!("{}\n{generation}\n{id}\n{}", until.millis(), token.expose()));
        let sealed = platform.seal_keys().seal(platform.entropy(), PLACE, text.expose().as_bytes());
        Ok(BASE64_URL_SAFE_NO_PAD.encode(sealed.map_err(Error::internal)?))
    }

    /// Returns the contents of a sealed cookie that has not expired.
    fn open(platform: &Platform, sealed: &str) -> Option<Self> {
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let text = Secret::new(String::from_utf8(platform.seal_keys().open(PLACE, &sealed).ok()?).ok()?);
        let mut parts = text.expose().splitn(4, '\n');
        let until = Timestamp::from_millis(parts.next()?.parse().ok()?);
        let (generation, id) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let token = Secret::new(parts.next()?);
        (until > platform.now()).then_some(Self { until, generation, id, token })
    }
}

fn session(short: &ShortToken, renewable: bool) -> Result<Reply> {
    answer(&Session { token: short.token.expose(), expire_time: Some(short.expires), renewable, question: None })
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

#[cfg(test)]
mod tests;
