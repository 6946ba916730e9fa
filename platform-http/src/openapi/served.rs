//! Serves the OpenAPI document.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use http::{Method, Request};
use platform_core::platform::Rendered;
use serde_json::Value;
use tower::Service;

use crate::reply::{self, Refusal, Reply};

/// Answers GET and HEAD for any path with a document and its ETag. Mount it with axum's `route_service`, at
/// `/openapi.json`.
#[derive(Debug, Clone)]
pub struct ServedDocument {
    rendered: Rendered,
    service_domain: String,
}

impl ServedDocument {
    /// Renders a document once. Errors name this service domain.
    pub fn new(document: &Value, service_domain: impl Into<String>) -> Self {
        Self { rendered: Rendered::new(document.to_string()), service_domain: service_domain.into() }
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
        let rendered = || reply::rendered(self.rendered.clone(), request.headers());
        let reply = match *request.method() {
            Method::GET => rendered(),
            Method::HEAD => reply::without_body(rendered()),
            _ => Refusal::other_methods("GET, HEAD".to_owned()).into_reply(&self.service_domain),
        };
        ready(Ok(reply))
    }
}
