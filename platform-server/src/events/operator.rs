//! `/operator/events/…`: the endpoints of a running server that `platform-server events --api` uses.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{Stream, stream};
use platform_engine::{
    access::Caller,
    error::{Error, Result},
    event::StreamItem,
    platform::Platform,
    uid::Uid,
};
use platform_events::overview;
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;

use crate::operator::Operators;

/// Maximum number of lines in a response; the parameter `after` continues with the next page.
const PAGE: usize = 1000;

/// How often a stream without events checks that its caller may still read it. Our choice.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the routes.
pub(crate) fn routes(operators: &Operators) -> Router {
    let route = |endpoint: Endpoint| {
        let operators = operators.clone();
        move |request: Request| {
            let platform = Arc::clone(&operators.platform);
            let name = endpoint.parameter();
            operators
                .answer(request, name, async move |caller, value, _| respond(platform, caller, endpoint, value).await)
        }
    };
    Router::new()
        .route("/operator/events/pending", get(route(Endpoint::Pending)))
        .route("/operator/events/dead", get(route(Endpoint::Dead)))
        .route("/operator/events/tail", get(route(Endpoint::Tail)))
        .route("/operator/events/redeliver", post(route(Endpoint::Redeliver)))
}

#[derive(Clone, Copy)]
enum Endpoint {
    Pending,
    Dead,
    Redeliver,
    Tail,
}

impl Endpoint {
    /// Returns the name of the parameter: of lists, the uid after which the page starts; of a redelivery, the subscription,
    /// or the group at and below which dead letters are redelivered.
    const fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Pending | Self::Dead => Some("after"),
            Self::Redeliver => Some("below"),
            Self::Tail => None,
        }
    }
}

async fn respond(
    platform: Arc<Platform>,
    caller: Caller,
    endpoint: Endpoint,
    value: Option<String>,
) -> Result<Response> {
    let uid = value.map(|text| Uid::parse(&text)).transpose();
    let name = endpoint.parameter().unwrap_or_default();
    let uid = uid.map_err(|rule| Error::invalid_field(name, rule.to_string()))?;
    let body = match endpoint {
        Endpoint::Pending => lines(&overview::pending(&platform, uid.as_ref(), PAGE).await?)?,
        Endpoint::Dead => lines(&overview::dead(&platform, uid.as_ref(), PAGE).await?)?,
        Endpoint::Redeliver => {
            let count = overview::redeliver(&platform, uid.as_ref()).await?;
            lines(&[json!({ "redelivered": count })])?
        }
        Endpoint::Tail => Body::from_stream(tail(platform, caller)),
    };
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))], body).into_response())
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

fn lines<T: Serialize>(items: &[T]) -> Result<Body> {
    let mut text = String::new();
    for item in items {
        text.push_str(&serde_json::to_string(item).map_err(Error::internal)?);
        text.push('\n');
    }
    Ok(Body::from(text))
}
