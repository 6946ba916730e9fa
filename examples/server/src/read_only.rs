//! Read-only mode: `serve --read-only`, and `/operator/read-only`, which switches it at run time.

use std::sync::Arc;

use axum::{
    Router,
    body::to_bytes,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use platform_core::{
    access::Authenticator,
    error::{Error, Result},
    platform::Platform,
    store::switched::SwitchedStore,
};
use platform_http::{operator, status};
use serde::{Deserialize, Serialize};

/// Maximum size of a request body in bytes.
const MAX_BODY: usize = 1024;

/// The body of requests and responses.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Mode {
    read_only: bool,
}

/// Returns the route, which only operators may call: GET returns the mode, PUT sets it.
pub(crate) fn routes(platform: &Arc<Platform>, authenticator: Arc<dyn Authenticator>) -> Router {
    let endpoint = Endpoint { platform: Arc::clone(platform), authenticator };
    let read = endpoint.clone();
    let route = get(move |request| read.respond(request)).put(move |request| endpoint.respond(request));
    Router::new().route("/operator/read-only", route)
}

#[derive(Clone)]
struct Endpoint {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
}

impl Endpoint {
    async fn respond(self, request: Request) -> Response {
        let (status, body) = match self.handle(request).await {
            Ok(mode) => (StatusCode::OK, serde_json::to_vec(&mode)),
            Err(error) => {
                let body = error.status(&self.platform.settings().service_domain);
                (status::of(error.code()), serde_json::to_vec(&body))
            }
        };
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (status, json, body.unwrap_or_default()).into_response()
    }

    async fn handle(&self, request: Request) -> Result<Mode> {
        let (head, body): (Parts, _) = request.into_parts();
        operator(&self.platform, &*self.authenticator, &head).await?;
        let store = self.platform.data::<Arc<SwitchedStore>>();
        let store = store.ok_or_else(|| Error::internal("the store cannot be switched"))?;
        if head.method == Method::PUT {
            let invalid = |rule: String| Error::invalid_field("body", rule);
            let body =
                to_bytes(body, MAX_BODY).await.map_err(|_| invalid(format!("must have at most {MAX_BODY} bytes")))?;
            let Mode { read_only } = serde_json::from_slice(&body).map_err(|rule| invalid(rule.to_string()))?;
            match read_only {
                true => store.refuse_writes().await,
                false => store.allow_writes(),
            }
            tracing::info!(read_only, "an operator has switched writes");
        }
        Ok(Mode { read_only: store.is_read_only() })
    }
}
