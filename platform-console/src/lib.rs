//! A console in the browser for the kinds of a platform, generated from their tables.
//!
//! [`Console`] is a [`Mount`] of `platform_http::Rest`. It serves a page at `/console`, a landing page at `/`, the
//! tables of all kinds as JSON, and the endpoints that keep a user of the page signed in. Everything else that the page
//! shows comes from the REST API, with the user's own token.
//!
//! The page is generic over kinds. What is special to a few kinds of Platform API v2, such as the vulnerabilities of images
//! and pictures, has modules of its own, and platforms without these kinds do not show it.

mod assets;
mod document;
mod links;
mod markdown;
mod session;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY, VARY,
        X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};
use platform_engine::platform::Platform;
use platform_http::{
    Reply, ReplyBody,
    mount::{Body, Call, Mount, Refusal, base_path},
    preconditions,
};
use serde_json::{Value, json};

pub use links::{LINK_SECONDS, Links};
pub use session::{SESSION_SECONDS, ShortToken, Tokens};

use self::{assets::Asset, session::Sessions};

/// Content security policy of the console: its own scripts and styles only, requests to this server only, no frames,
/// and no markup from text (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The configuration of a [`Console`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The name of the service, which is the title of the pages.
    pub title: String,
    /// The URL by which browsers reach the server. With `https`, the cookie is only sent over TLS.
    pub url: String,
    /// What the service is and for whom, in a paragraph for the landing page; empty for none.
    pub about: String,
    /// The version that the pages show; empty for none.
    pub version: String,
    /// The path of a page that documents the API, such as `/docs`; empty for none.
    pub docs: String,
    /// Whether persons can sign in at `/oauth` with an identity provider.
    pub browser_sign_in: bool,
    /// Issues the short-lived tokens of the page. Without it, the page keeps the pasted token until it is closed.
    pub tokens: Option<Arc<dyn Tokens>>,
}

impl Options {
    /// Returns the options for a service with this name and URL, without a documentation page and without sessions.
    pub fn new(title: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            url: url.into(),
            about: String::new(),
            version: String::new(),
            docs: String::new(),
            browser_sign_in: false,
            tokens: None,
        }
    }
}

/// The console at `/console`, and the landing page at `/`. Clones share their one-time links.
#[derive(Debug, Clone)]
pub struct Console {
    landing: Asset,
    page: Asset,
    index: Value,
    document: Asset,
    sessions: Arc<Sessions>,
}

impl Console {
    /// Returns the console of a platform.
    pub fn new(platform: &Platform, options: &Options) -> Self {
        let below =
            |path: &str| if path.is_empty() { String::new() } else { base_path(&options.url).to_owned() + path };
        let index = json!({
            "name": options.title, "version": options.version, "docs": below(&options.docs),
            "openapi": below("/openapi.json"), "console": below("/console"),
        });
        Self {
            landing: assets::landing(options),
            page: assets::page(options),
            index,
            document: Asset::new("application/json", document::of(platform, options).to_string()),
            sessions: Arc::new(Sessions::new(options)),
        }
    }

    /// Returns the one-time links, so that the server can make one at its start.
    pub fn links(&self) -> &Links {
        &self.sessions.links
    }
}

/// A path of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint<'p> {
    Landing,
    Page,
    Document,
    Session,
    Links,
    Markdown,
    /// A file of the page, by its name.
    File(&'p str),
}

impl<'p> Endpoint<'p> {
    fn find(path: &'p str) -> Option<Self> {
        match path {
            "/" => Some(Self::Landing),
            "/console" | "/console/" => Some(Self::Page),
            "/console/document.json" => Some(Self::Document),
            "/console/session" => Some(Self::Session),
            "/console/links" => Some(Self::Links),
            "/console/markdown" => Some(Self::Markdown),
            path => path.strip_prefix("/console/").map(Self::File),
        }
    }

    const fn methods(self) -> &'static [Method] {
        match self {
            Self::Session | Self::Links | Self::Markdown => &[Method::POST],
            Self::Landing | Self::Page | Self::Document | Self::File(_) => &[Method::GET],
        }
    }
}

#[async_trait]
impl Mount for Console {
    fn has(&self, path: &str) -> bool {
        Endpoint::find(path).is_some()
    }

    async fn answer(&self, call: Call<'_>, body: Body<'_>) -> Result<Reply, Refusal> {
        let endpoint = Endpoint::find(call.path).ok_or_else(Refusal::no_path)?;
        match endpoint {
            Endpoint::Session | Endpoint::Links => call.origin.token_path()?,
            Endpoint::Markdown => {}
            _ => call.origin.open()?,
        }
        if let Some(reply) = call.check_method(endpoint.methods())? {
            return Ok(reply);
        }
        match endpoint {
            Endpoint::Session => self.sessions.answer(&call, body).await,
            Endpoint::Links => self.sessions.link(&call).await,
            Endpoint::Markdown => markdown::answer(&call, body).await,
            Endpoint::Landing => self.landing(&call),
            Endpoint::Page => self.page.reply(&call),
            Endpoint::Document => self.document.reply(&call),
            Endpoint::File(name) => {
                let file = assets::file(name).ok_or_else(|| call.origin.refused(Refusal::no_path()))?;
                file.reply(&call)
            }
        }
    }
}

impl Console {
    /// Answers `/`: a page for browsers, and JSON for other clients.
    fn landing(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        let accepts = call.head.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut reply = if accepts.into_iter().any(|accept| accept.contains("text/html")) {
            self.landing.reply(call)?
        } else {
            platform_http::mount::json(self.index.to_string())
        };
        set(&mut reply, VARY, "accept");
        Ok(reply)
    }
}

impl Asset {
    /// Answers a GET with this file, or with 304 if the client already has it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a malformed precondition.
    fn reply(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        let known = preconditions(&call.head.headers)?.if_none_match.and_then(|tags| tags.find(&self.etag));
        let body = if known.is_some() { Bytes::new() } else { self.body.clone() };
        let mut reply = Reply::new(ReplyBody::from(body));
        if known.is_some() {
            *reply.status_mut() = StatusCode::NOT_MODIFIED;
        }
        if let Ok(etag) = HeaderValue::from_str(known.as_deref().unwrap_or(&self.etag)) {
            reply.headers_mut().insert(ETAG, etag);
        }
        for (name, value) in [
            (CONTENT_TYPE, self.content_type),
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            set(&mut reply, name, value);
        }
        Ok(reply)
    }
}

fn set(reply: &mut Reply, name: HeaderName, value: &'static str) {
    reply.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
