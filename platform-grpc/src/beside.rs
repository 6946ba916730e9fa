//! gRPC and everything else on one port, told apart by the content type.

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
use platform_core::BoxFuture;
use platform_http::BoxError;
use tonic::body::Body;
use tower::Service;

use crate::Grpc;

/// One service of [`Grpc`] and another: requests whose content type begins with `application/grpc` are for the first.
#[derive(Debug, Clone)]
pub struct Beside<S> {
    grpc: Grpc,
    other: S,
}

impl<S> Beside<S> {
    pub(crate) const fn new(grpc: Grpc, other: S) -> Self {
        Self { grpc, other }
    }
}

type Erase<R> = fn(Response<R>) -> Response<Body>;

impl<S, B, R> Service<Request<B>> for Beside<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError> + fmt::Display + Send> + Send + 'static,
    R: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Result<Response<Body>, Infallible>>, MapOk<S::Future, Erase<R>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.other.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let content_type = request.headers().get(CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            return Either::Left(self.grpc.call(request));
        }
        let erase: Erase<R> = |response| response.map(Body::new);
        Either::Right(self.other.call(request).map_ok(erase))
    }
}
