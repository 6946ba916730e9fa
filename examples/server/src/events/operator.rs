//! What the running server tells its operator of events: `/operator/events/…`, for `platform-server events --api`.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, Request},
    http::{HeaderValue, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::StreamExt;
use platform_core::{
    access::Authenticator,
    error::{Error, Result},
    event::Heard,
    platform::Platform,
    uid::Uid,
};
use platform_events::overview;
use platform_http::{operator, status};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most lines of an answer; `after` leads to the next.
const MOST: usize = 1000;

/// Returns the routes, which answer operators alone.
pub(crate) fn routes(platform: &Arc<Platform>, authenticator: Arc<dyn Authenticator>) -> Router {
    let operator = Operator { platform: Arc::clone(platform), authenticator };
    let [pending, dead, redeliver, tail] = std::array::from_fn(|_| operator.clone());
    Router::new()
        .route("/operator/events/pending", get(move |request| pending.answer(request, What::Pending)))
        .route("/operator/events/dead", get(move |request| dead.answer(request, What::Dead)))
        .route("/operator/events/tail", get(move |request| tail.answer(request, What::Tail)))
        .route("/operator/events/redeliver", post(move |request| redeliver.answer(request, What::Redeliver)))
}

#[derive(Clone)]
struct Operator {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
}

#[derive(Clone, Copy)]
enum What {
    Pending,
    Dead,
    Redeliver,
    Tail,
}

impl Operator {
    async fn answer(self, request: Request, what: What) -> Response {
        let (head, _) = request.into_parts();
        self.carry_out(&head, what).await.unwrap_or_else(|error| {
            let told = serde_json::to_vec(&error.status(&self.platform.settings().service_domain)).unwrap_or_default();
            let mut response = (status::of(error.code()), told).into_response();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        })
    }

    async fn carry_out(&self, request: &Parts, what: What) -> Result<Response> {
        operator(&self.platform, &*self.authenticator, request).await?;
        let platform = &self.platform;
        let uid = uid_of(request, what)?;
        let body = match what {
            What::Pending => lines(&overview::pending(platform, uid.as_ref(), MOST).await?)?,
            What::Dead => lines(&overview::dead(platform, uid.as_ref(), MOST).await?)?,
            What::Redeliver => {
                let count = overview::redeliver(platform, uid.as_ref()).await?;
                lines(&[json!({ "redelivered": count })])?
            }
            What::Tail => Body::from_stream(platform.subscribe_to_all().map(|heard| {
                let line = match heard {
                    Heard::Event { sequence, event } => json!({ "sequence": sequence, "event": event }),
                    Heard::Missed(count) => json!({ "missed": count }),
                };
                Ok::<_, std::convert::Infallible>(Bytes::from(format!("{line}\n")))
            })),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        Ok(response)
    }
}

/// The parameters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// Of a list: behind which uid it begins.
    after: Option<String>,
    /// Of what is delivered again: where.
    below: Option<String>,
}

/// Returns the uid of the one parameter that the method has, if it is given.
fn uid_of(request: &Parts, what: What) -> Result<Option<Uid>> {
    let given: Query<Params> =
        Query::try_from_uri(&request.uri).map_err(|rule| Error::invalid_field("query", rule.body_text()))?;
    let mut uid = None;
    for (name, text, has) in [
        ("after", given.0.after, matches!(what, What::Pending | What::Dead)),
        ("below", given.0.below, matches!(what, What::Redeliver)),
    ] {
        let Some(text) = text else { continue };
        if !has {
            return Err(Error::invalid_field(name, "is not a parameter of this method"));
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
