//! `/operator/events/…`: the endpoints of a running server that `platform-server events --api` uses.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, Request},
    http::{HeaderValue, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{Stream, stream};
use platform_core::{
    access::{Authenticator, Caller},
    error::{Error, Result},
    event::StreamItem,
    platform::Platform,
    uid::Uid,
};
use platform_events::overview;
use platform_http::{operator, status};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

/// Maximum number of lines in a response; the parameter `after` continues with the next page.
const PAGE: usize = 1000;

/// How often a stream without events checks that its caller may still read it. Our choice.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the routes, which only operators may call.
pub(crate) fn routes(platform: &Arc<Platform>, authenticator: Arc<dyn Authenticator>) -> Router {
    let operator = Operator { platform: Arc::clone(platform), authenticator };
    let [pending, dead, redeliver, tail] = std::array::from_fn(|_| operator.clone());
    Router::new()
        .route("/operator/events/pending", get(move |request| pending.respond(request, Endpoint::Pending)))
        .route("/operator/events/dead", get(move |request| dead.respond(request, Endpoint::Dead)))
        .route("/operator/events/tail", get(move |request| tail.respond(request, Endpoint::Tail)))
        .route("/operator/events/redeliver", post(move |request| redeliver.respond(request, Endpoint::Redeliver)))
}

#[derive(Clone)]
struct Operator {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
}

#[derive(Clone, Copy)]
enum Endpoint {
    Pending,
    Dead,
    Redeliver,
    Tail,
}

impl Operator {
    async fn respond(self, request: Request, endpoint: Endpoint) -> Response {
        let (head, _) = request.into_parts();
        self.handle(&head, endpoint).await.unwrap_or_else(|error| {
            let body = serde_json::to_vec(&error.status(&self.platform.settings().service_domain)).unwrap_or_default();
            let mut response = (status::of(error.code()), body).into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        })
    }

    async fn handle(&self, request: &Parts, endpoint: Endpoint) -> Result<Response> {
        let caller = operator(&self.platform, &*self.authenticator, request).await?;
        let platform = &self.platform;
        let uid = uid_param(request, endpoint)?;
        let body = match endpoint {
            Endpoint::Pending => lines(&overview::pending(platform, uid.as_ref(), PAGE).await?)?,
            Endpoint::Dead => lines(&overview::dead(platform, uid.as_ref(), PAGE).await?)?,
            Endpoint::Redeliver => {
                let count = overview::redeliver(platform, uid.as_ref()).await?;
                lines(&[json!({ "redelivered": count })])?
            }
            Endpoint::Tail => Body::from_stream(tail(Arc::clone(platform), caller)),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        Ok(response)
    }
}

/// Returns the events of this server as lines, until the caller is no longer an operator or the token is revoked.
fn tail(platform: Arc<Platform>, caller: Caller) -> impl Stream<Item = Result<Bytes>> {
    let events = platform.subscribe_to_all();
    stream::try_unfold((events, platform, caller), |(mut events, platform, caller)| async move {
        loop {
            let heard = timeout(CHECK_INTERVAL, events.next()).await;
            platform.demand_operator(&caller).await?;
            let line = match heard {
                Err(_) => continue,
                Ok(None) => return Ok::<_, Error>(None),
                Ok(Some(StreamItem::Event { sequence, event })) => json!({ "sequence": sequence, "event": &*event }),
                Ok(Some(StreamItem::Missed(count))) => json!({ "missed": count }),
            };
            return Ok(Some((Bytes::from(format!("{line}\n")), (events, platform, caller))));
        }
    })
}

/// The query parameters of all endpoints.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// Lists only: the uid after which the page starts.
    after: Option<String>,
    /// Redelivery only: the subscription, or the group at and below which dead letters are redelivered.
    below: Option<String>,
}

/// Returns the value of the one parameter that the endpoint has, if it is given.
fn uid_param(request: &Parts, endpoint: Endpoint) -> Result<Option<Uid>> {
    let given: Query<Params> =
        Query::try_from_uri(&request.uri).map_err(|rule| Error::invalid_field("query", rule.body_text()))?;
    let mut uid = None;
    for (name, text, has) in [
        ("after", given.0.after, matches!(endpoint, Endpoint::Pending | Endpoint::Dead)),
        ("below", given.0.below, matches!(endpoint, Endpoint::Redeliver)),
    ] {
        let Some(text) = text else { continue };
        if !has {
            return Err(Error::invalid_field(name, "unknown parameter"));
        }
        uid = Some(Uid::parse(&text).map_err(|rule| Error::invalid_field(name, rule.to_string()))?);
    }
    Ok(uid)
}

fn lines<T: Serialize>(items: &[T]) -> Result<Body> {
    let mut text = String::new();
    for item in items {
        text.push_str(&serde_json::to_string(item).map_err(Error::internal)?);
        text.push('\n');
    }
    Ok(Body::from(text))
}
