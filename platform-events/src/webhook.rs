//! Webhooks: CloudEvents 1.0 in HTTP binary mode, each with a token that vouches for the event.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, DATE, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use platform_core::{outbox::Exchange, resources::events::Subscription};
use platform_engine::{event::Event, timestamp::Timestamp};
use platform_oidc::Issuer;
use platform_outbound::{
    Network,
    fetch::causes,
    reach::{self, HttpClient, Resolver},
};
use sha2::{Digest, Sha256};

use crate::sink::{DeliveryResult, Sink};

/// The maximum size of a response body that is read, in bytes. A longer body is cut off. Our choice.
const MAX_RESPONSE_BODY: usize = 64 * 1024;

/// The time limit for the end of a response body. Our choice.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// The ASCII characters that are percent-encoded in the header of an attribute. All other characters outside ASCII are
/// encoded too (CloudEvents HTTP binding, section 3.1.3.2).
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The maximum length of the stored reason of a failure, in characters.
const MAX_REASON: usize = 200;

/// Options of webhooks.
///
/// Fields will be added: write a value as `WebhookOptions { …, ..WebhookOptions::default() }`.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Whether to post to `http` sinks.
    pub allow_http: bool,
    /// Whether to connect to sinks at addresses that are not publicly routable.
    pub allow_private: bool,
    /// The certificate authorities to trust, and the proxy.
    pub network: Network,
    /// Called with the headers of each request, to add to them, such as the trace of the delivery. None by default. The
    /// log of deliveries shows them, except those that are marked as sensitive or have the name of a secret.
    pub stamp: Option<fn(&mut HeaderMap)>,
    /// The resolver of names; None for the system's. Tests substitute their own.
    pub lookup: Option<Arc<dyn reach::Lookup>>,
}

impl Default for WebhookOptions {
    /// Returns options with neither `http` nor private addresses, with the default [`Network`], and with the system's
    /// resolver.
    fn default() -> Self {
        Self { allow_http: false, allow_private: false, network: Network::default(), stamp: None, lookup: None }
    }
}

/// Rejects the URL of a sink whose host is an address that is not publicly routable. Meant for
/// [`SinkPolicy::check`](platform_core::resources::events::SinkPolicy::check) when [`WebhookOptions::allow_private`] is
/// not set, since a webhook would never connect to such a sink. Accepts any host name: each connection checks the
/// address that the name resolves to.
///
/// # Errors
/// The violated rule, as a phrase.
pub fn check_public_sink(url: &str) -> Result<(), String> {
    let url: Uri = url.parse().map_err(|_| "must be a URL such as https://receiver.example.com/events")?;
    reach::check_host(url.host().unwrap_or_default())
        .map_err(|_| "must not be at a private, loopback or otherwise special address".to_owned())
}

/// Returns the status of a response, and that of a failure with its `Retry-After` (RFC 9110, section 10.2.3). A date there is
/// compared with the `Date` of the response, so that the clocks need not agree.
fn result<B>(response: &Response<B>) -> DeliveryResult {
    let status = response.status();
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let date = |text| httpdate::parse_http_date(text).ok();
    let later = text(RETRY_AFTER).and_then(|later| match later.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => date(later)?.duration_since(text(DATE).and_then(date)?).ok(),
    });
    match later {
        Some(later) if !status.is_success() => DeliveryResult::Later(status.as_u16(), later),
        _ => DeliveryResult::Status(status.as_u16()),
    }
}

/// Returns the value of a header as text; nothing of one that is marked as sensitive.
fn text(value: &HeaderValue) -> Cow<'_, str> {
    if value.is_sensitive() { "(removed)".into() } else { String::from_utf8_lossy(value.as_bytes()) }
}

/// Posts events to the URLs of their subscriptions.
///
/// Does not follow redirects. Unless the options allow private addresses, it connects only to
/// publicly routable addresses, which is checked for each connection after the DNS lookup.
pub struct Webhook {
    issuer: Arc<Issuer>,
    client: HttpClient<Full<Bytes>>,
    options: WebhookOptions,
}

impl Webhook {
    /// Creates a sink that signs its tokens with this issuer.
    ///
    /// # Errors
    /// When the cryptographic library does not support any common version of TLS.
    pub fn new(issuer: Arc<Issuer>, options: WebhookOptions) -> Result<Self, rustls::Error> {
        let resolver = match &options.lookup {
            Some(lookup) => Resolver::with(Arc::clone(lookup), !options.allow_private),
            None => Resolver::new(!options.allow_private),
        };
        let client = reach::client(resolver, &options.network, 2)?;
        Ok(Self { issuer, client, options })
    }

    async fn post(
        &self,
        subscription: &Subscription,
        event: &Event,
        exchange: &mut Exchange,
    ) -> Result<DeliveryResult, String> {
        let request = self.request(subscription, event)?;
        for (name, value) in request.headers() {
            exchange.sent(name.as_str(), &text(value));
        }
        let answer = self.client.request(request).await.map_err(|error| causes(&error))?;
        for (name, value) in answer.headers() {
            exchange.received(name.as_str(), &text(value));
        }
        let result = result(&answer);
        // The result does not depend on the body. It is read, within bounds, for the log of deliveries and so that the
        // connection can be reused.
        let mut rest = Limited::new(answer.into_body(), MAX_RESPONSE_BODY);
        let read = async {
            while let Some(Ok(frame)) = rest.frame().await {
                if let Some(bytes) = frame.data_ref() {
                    exchange.received_body(bytes);
                }
            }
        };
        // The time limit is not a failure.
        let _ = tokio::time::timeout(RESPONSE_BODY_TIMEOUT, read).await;
        Ok(result)
    }

    fn request(&self, subscription: &Subscription, event: &Event) -> Result<Request<Full<Bytes>>, String> {
        let url: Uri = subscription.sink.parse().map_err(|_| "the sink is not a valid URL")?;
        if url.scheme_str() != Some("https") && !self.options.allow_http {
            return Err("the sink must be an https URL".to_owned());
        }
        if !self.options.allow_private {
            reach::check_host(url.host().unwrap_or_default()).map_err(|error| error.to_string())?;
        }
        let body = Bytes::copy_from_slice(event.data.as_bytes());
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&body)));
        let group = subscription.uid.parent().ok_or("the subscription has no group")?;
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
        let context = [
            ("specversion", "1.0"),
            ("id", &event.id),
            ("type", &event.ty),
            ("source", &event.source),
            ("subject", &event.subject),
            ("time", &time),
            ("group", &event.group),
            ("audience", event.audience.name()),
        ];
        let extensions = event.extensions.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in context.into_iter().chain(extensions) {
            add(&format!("ce-{name}"), &utf8_percent_encode(value, ENCODED).to_string());
        }
        if let (Some(stamp), Some(headers)) = (self.options.stamp, request.headers_mut()) {
            stamp(headers);
        }
        request.body(Full::new(body)).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Sink for Webhook {
    async fn deliver(&self, subscription: &Subscription, event: &Event, exchange: &mut Exchange) -> DeliveryResult {
        match self.post(subscription, event, exchange).await {
            Ok(result) => result,
            Err(reason) => {
                DeliveryResult::Failed(reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect())
            }
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("issuer", &self.issuer).field("options", &self.options).finish_non_exhaustive()
    }
}
