//! Serves gRPC and HTTP on one port, dispatching on the content type.

use std::{
    convert::Infallible,
    fmt,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{
    TryFutureExt,
    future::{Either, MapOk},
};
use http::{Request, Response, header::CONTENT_TYPE};
use http_body::Body as HttpBody;
use platform_engine::BoxFuture;
use platform_http::BoxError;
use tonic::body::Body;
use tower::Service;

use crate::Grpc;

/// A service that dispatches requests whose content type starts with `application/grpc` to [`Grpc`], and all others to
/// an HTTP service.
#[derive(Debug, Clone)]
pub struct Multiplexed<S> {
    grpc: Grpc,
    http: S,
    /// The full names of services whose calls go to the HTTP service.
    passed: &'static [&'static str],
}

impl<S> Multiplexed<S> {
    pub(crate) const fn new(grpc: Grpc, http: S) -> Self {
        Self { grpc, http, passed: &[] }
    }

    /// Passes gRPC calls of these services to the HTTP service, such as a router with tonic services of your own:
    /// full names, such as `acme.billing.v1.Billing`.
    #[must_use]
    pub const fn pass(mut self, services: &'static [&'static str]) -> Self {
        self.passed = services;
        self
    }

    fn passes(&self, path: &str) -> bool {
        let service = path.strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or_default();
        self.passed.contains(&service)
    }
}

type EraseBody<R> = fn(Response<R>) -> Response<Body>;

impl<S, B, R> Service<Request<B>> for Multiplexed<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError> + fmt::Display + Send> + Send + 'static,
    R: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Result<Response<Body>, Infallible>>, MapOk<S::Future, EraseBody<R>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The gRPC service is always ready.
        self.http.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let content_type = request.headers().get(CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
        if is_grpc && !self.passes(request.uri().path()) {
            return Either::Left(self.grpc.call(request));
        }
        let erase_body: EraseBody<R> = |response| response.map(Body::new);
        Either::Right(self.http.call(request).map_ok(erase_body))
    }
}
