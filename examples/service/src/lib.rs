//! A planner: an axum service that mounts the platform with kinds of its own.
//!
//! - [`project`] and [`task`] are kinds with an action, a rule that reads state of the service, names that are unique
//!   in a group, and capabilities in the built-in roles.
//! - [`app`] serves the service's own routes, the REST API of the platform with its OpenAPI document, gRPC, and a gRPC
//!   service of its own, on one port.
//! - The service authenticates callers itself, here by a session cookie: the platform takes the caller from the
//!   extensions of the request.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use futures_util::TryStreamExt;
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Error, Result},
    platform::{Builder, Platform},
    request::ListRequest,
    uid::Uid,
};
use platform_grpc::{Grpc, Multiplexed};
use platform_http::{Limits, Rest, openapi::Info};

pub mod billing;
pub mod project;
pub mod task;

use project::Project;
use task::Task;

/// Adds the kinds and the state of the planner to a platform.
#[must_use]
pub fn planner(builder: Builder) -> Builder {
    builder.kind::<Project>().kind::<Task>().data(task::Limits { tasks_per_project: 1_000 })
}

/// Returns the whole service over a platform.
///
/// # Errors
/// When two kinds have the same path, or the descriptors of the platform are invalid.
pub fn app(platform: Arc<Platform>) -> anyhow::Result<Multiplexed<Router>> {
    let limits = Limits::default();
    let rest = Rest::new(Arc::clone(&platform), Arc::new(NoTokens), limits.clone())?;
    let info = Info::new("Planner", env!("CARGO_PKG_VERSION")).description("Projects and their tasks.");
    let grpc = Grpc::new(Arc::clone(&platform), Arc::new(NoTokens), limits)?;
    let router = Router::new()
        .route("/projects/{*uid}", get(summary))
        .with_state(platform)
        .merge(billing::routes())
        .fallback_service(rest.with_openapi(move |rest| rest.openapi(info)))
        .layer(from_fn(session));
    Ok(grpc.or_else_http(router).pass(&[billing::NAME]))
}

/// A route of the service itself: counts the tasks of a project, on all pages, as the caller sees them.
async fn summary(
    State(platform): State<Arc<Platform>>,
    Path(uid): Path<String>,
    request: Request,
) -> Result<String, StatusCode> {
    let caller = request.extensions().get::<Caller>().ok_or(StatusCode::UNAUTHORIZED)?;
    let tasks = async {
        let project: Project = platform.get(caller, &uid).await?;
        let tasks = ListRequest::of::<Task>().children_of(&uid).order_by("createTime desc").page_size(100).build()?;
        let (mut done, mut all) = (0, 0);
        let mut tasks = std::pin::pin!(platform.list_all::<Task>(caller, tasks));
        while let Some(task) = tasks.try_next().await? {
            (done, all) = (done + u32::from(task.done), all + 1);
        }
        Ok::<_, Error>(format!("{}: {done} of {all} tasks are done", project.name))
    };
    tasks.await.map_err(|_| StatusCode::NOT_FOUND)
}

/// Puts the caller of a session into the extensions of the request. A real service looks the session up; here the
/// cookie is the uid of the identity.
async fn session(mut request: Request<Body>, next: Next) -> Response {
    let cookie = request.headers().get("cookie").and_then(|cookie| cookie.to_str().ok());
    let identity = cookie.and_then(|cookie| cookie.strip_prefix("session=")).and_then(|uid| Uid::parse(uid).ok());
    if let Some(identity) = identity {
        request.extensions_mut().insert(Caller::new(identity));
    }
    next.run(request).await
}

/// Accepts no bearer tokens: callers have sessions.
#[derive(Debug)]
struct NoTokens;

#[async_trait::async_trait]
impl Authenticator for NoTokens {
    async fn authenticate(&self, _token: &str) -> Result<Caller> {
        Err(Error::unauthenticated("Sign in to get a session cookie"))
    }
}
