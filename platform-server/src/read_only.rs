//! Read-only mode: `serve --read-only`, and `/operator/read-only`, which switches it at run time.

use std::sync::Arc;

use axum::{Router, body::Body, extract::Request, routing::get};
use platform_engine::{
    error::{Error, Result},
    platform::Platform,
    store::switched::SwitchedStore,
};
use serde::{Deserialize, Serialize};

use crate::operator::{Json, Operators, read_json};

/// Maximum size of a request body in bytes.
const MAX_BODY: usize = 1024;

/// The body of requests and responses.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Mode {
    read_only: bool,
}

/// Returns the route: GET returns the mode, PUT sets it.
pub(crate) fn routes(operators: &Operators) -> Router {
    let (read, write) = (operators.clone(), operators.clone());
    let route = get(move |request: Request| {
        let platform = Arc::clone(&read.platform);
        read.answer(request, None, async move |_, _, _| Ok(mode(store(&platform)?)))
    })
    .put(move |request: Request| {
        let platform = Arc::clone(&write.platform);
        write.answer(request, None, async move |_, _, body| set(store(&platform)?, body).await)
    });
    Router::new().route("/operator/read-only", route)
}

fn store(platform: &Platform) -> Result<&SwitchedStore> {
    let store = platform.data::<Arc<SwitchedStore>>();
    Ok(store.ok_or_else(|| Error::internal("the store cannot be switched"))?)
}

fn mode(store: &SwitchedStore) -> Json<Mode> {
    Json(Mode { read_only: store.is_read_only() })
}

async fn set(store: &SwitchedStore, body: Body) -> Result<Json<Mode>> {
    let Mode { read_only } = read_json(body, MAX_BODY).await?;
    if read_only {
        store.refuse_writes().await;
    } else {
        store.allow_writes();
    }
    tracing::info!(read_only, "an operator has switched writes");
    Ok(mode(store))
}
