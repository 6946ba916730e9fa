//! Webhooks: CloudEvents 1.0 in HTTP's binary mode, each with a token that vouches for it.

use std::{fmt, fmt::Write, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use platform_core::{event::Event, resources::events::Subscription, timestamp::Timestamp};
use platform_oidc::{
    Issuer,
    fetch::causes,
    reach::{self, HttpClient, Resolver},
};
use rustls::RootCertStore;
use sha2::{Digest, Sha256};

use crate::sink::{Answer, Sink};

/// The most bytes of an answer that are read, so that its connection can be used again; what is longer is cut off.
/// Our choice.
const MAX_ANSWER: usize = 64 * 1024;

/// How long to wait for the end of an answer whose status is known. Our choice.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The most characters of a failure's reason that are kept.
const MAX_REASON: usize = 200;

/// How webhooks are called.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Whether `http` sinks are posted to.
    pub allow_http: bool,
    /// Whether sinks at addresses that are not of the public network are connected to.
    pub allow_private: bool,
    /// The certificate authorities to trust.
    pub roots: RootCertStore,
    /// Who looks up names; tests put their own in its place.
    pub lookup: Option<Arc<dyn reach::Lookup>>,
}

impl Default for WebhookOptions {
    /// Neither `http` nor private addresses; Mozilla's authorities; the system's resolver.
    fn default() -> Self {
        Self { allow_http: false, allow_private: false, roots: reach::mozilla(), lookup: None }
    }
}

/// Refuses the URL of a sink whose host is an address that is not of the public network. For
/// [`SinkPolicy::check`](platform_core::resources::events::SinkPolicy::check) where [`WebhookOptions::allow_private`] is not
/// set: a webhook would never connect to it. A name passes, wherever it leads; that is decided by each connection.
///
/// # Errors
/// The rule that it breaks, as a phrase.
pub fn check_public_sink(url: &str) -> Result<(), String> {
    let url: Uri = url.parse().map_err(|_| "must be a URL such as https://receiver.example.com/events")?;
    reach::check_host(url.host().unwrap_or_default())
        .map_err(|_| "must not be at a private, loopback or otherwise special address".to_owned())
}

/// Posts events to the URLs of their subscriptions.
///
/// No redirect is followed and no proxy asked. Unless the options say otherwise, only addresses of the public network
/// are connected to, which is decided by each connection's own address after its name was looked up.
pub struct Webhook {
    issuer: Arc<Issuer>,
    client: HttpClient<Full<Bytes>>,
    options: WebhookOptions,
}

impl Webhook {
    /// Makes a sink whose tokens are of this issuer.
    ///
    /// # Errors
    /// When the cryptographic library supports no common version of TLS.
    pub fn new(issuer: Arc<Issuer>, options: WebhookOptions) -> Result<Self, rustls::Error> {
        let resolver = match &options.lookup {
            Some(lookup) => Resolver::with(Arc::clone(lookup), !options.allow_private),
            None => Resolver::new(!options.allow_private),
        };
        let client = reach::client(resolver, options.roots.clone(), 2)?;
        Ok(Self { issuer, client, options })
    }

    async fn post(&self, subscription: &Subscription, event: &Event) -> Result<u16, String> {
        let request = self.request(subscription, event)?;
        let answer = self.client.request(request).await.map_err(|error| causes(&error))?;
        let status = answer.status().as_u16();
        // What it says beside its status is of no interest; an end within bounds lets the connection be used again.
        let rest = Limited::new(answer.into_body(), MAX_ANSWER).collect();
        drop(tokio::time::timeout(ANSWER_TIME, rest).await);
        Ok(status)
    }

    fn request(&self, subscription: &Subscription, event: &Event) -> Result<Request<Full<Bytes>>, String> {
        let url: Uri = subscription.sink.parse().map_err(|_| "the sink is no URL")?;
        if url.scheme_str() != Some("https") && !self.options.allow_http {
            return Err("the sink is no https URL".to_owned());
        }
        if !self.options.allow_private {
            reach::check_host(url.host().unwrap_or_default()).map_err(|error| error.to_string())?;
        }
        let body = Bytes::copy_from_slice(event.data.as_bytes());
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&body)));
        let group = subscription.uid.parent().unwrap_or_default();
        let token = self.issuer.webhook_token(&group, &digest).map_err(|error| error.to_string())?;
        let mut request = Request::post(url);
        let mut add = |name: &str, value: &str| {
            let (name, value) = (HeaderName::try_from(name), HeaderValue::try_from(value));
            if let (Some(headers), Ok(name), Ok(value)) = (request.headers_mut(), name, value) {
                headers.insert(name, value);
            }
        };
        add(AUTHORIZATION.as_str(), &format!("Bearer {}", token.token));
        add(CONTENT_TYPE.as_str(), "application/json");
        add(USER_AGENT.as_str(), concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")));
        let time = event.time.unwrap_or(Timestamp::EPOCH).to_string();
        let own = [
            ("specversion", "1.0"),
            ("id", &event.id),
            ("type", &event.ty),
            ("source", &event.source),
            ("subject", &event.subject),
            ("time", &time),
            ("group", &event.group),
            ("audience", event.audience.name()),
        ];
        let further = event.extensions.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.into_iter().chain(further) {
            add(&format!("ce-{name}"), &escaped(value));
        }
        request.body(Full::new(body)).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Sink for Webhook {
    async fn deliver(&self, subscription: &Subscription, event: &Event) -> Answer {
        match self.post(subscription, event).await {
            Ok(status) => Answer::Status(status),
            Err(reason) => Answer::Failed(reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()),
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("issuer", &self.issuer).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns an attribute as a header has it: everything but printable ASCII, and space, quote and percent, as percent
/// and hex (CloudEvents HTTP binding, section 3.1.3.2).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'"' | b'%') => escaped.push(char::from(byte)),
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}
