//! Serves the OpenAPI document.

use std::{
    convert::Infallible,
    fmt,
    future::{Ready, ready},
    sync::{Arc, LazyLock},
    task::{Context, Poll},
};

use async_trait::async_trait;
use http::{HeaderMap, Method, Request};
use platform_engine::platform::Rendered;
use serde_json::Value;
use tower::Service;

use crate::{
    mount::{self, Body, Call, Mount},
    reply::{self, Refusal, Reply},
};

/// Answers GET and HEAD with a document and its ETag: as a tower service for any path, and as a [`Mount`] at
/// `/openapi.json`.
#[derive(Clone)]
pub struct ServedDocument {
    rendered: Arc<LazyLock<Rendered, Render>>,
    service_domain: String,
}

type Render = Box<dyn FnOnce() -> Rendered + Send>;

impl ServedDocument {
    /// Returns the service of a document, which is rendered once. Errors name this service domain.
    pub fn new(document: &Value, service_domain: impl Into<String>) -> Self {
        let rendered = Rendered::new(document.to_string());
        Self::of(Box::new(|| rendered), service_domain.into())
    }

    /// Like [`ServedDocument::new`], but the document is made at the first request for it: that of a large API needs
    /// some megabytes of memory and milliseconds of time, and many servers are never asked for it.
    pub fn deferred(document: impl FnOnce() -> Value + Send + 'static, service_domain: impl Into<String>) -> Self {
        Self::of(Box::new(|| Rendered::new(document().to_string())), service_domain.into())
    }

    fn of(render: Render, service_domain: String) -> Self {
        Self { rendered: Arc::new(LazyLock::new(render)), service_domain }
    }

    fn reply(&self, method: &Method, headers: &HeaderMap) -> Result<Reply, Refusal> {
        let options = mount::check_method(method, &[Method::GET])?;
        match options {
            Some(options) => Ok(options),
            None => Ok(reply::rendered(LazyLock::force(&self.rendered).clone(), headers)?),
        }
    }
}

impl fmt::Debug for ServedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedDocument").field("service_domain", &self.service_domain).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for ServedDocument {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reply = match self.reply(request.method(), request.headers()) {
            Ok(reply) if request.method() == Method::HEAD => reply::without_body(reply),
            Ok(reply) => reply,
            Err(refusal) => refusal.into_reply(&self.service_domain),
        };
        ready(Ok(reply))
    }
}

#[async_trait]
impl Mount for ServedDocument {
    fn has(&self, path: &str) -> bool {
        path == "/openapi.json"
    }

    async fn answer(&self, call: Call<'_>, _: Body<'_>) -> Result<Reply, Refusal> {
        call.origin.open()?;
        self.reply(&call.head.method, &call.head.headers)
    }
}
