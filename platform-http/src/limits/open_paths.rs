//! Limits on unauthenticated paths, for an embedder's own routes.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{
    TryFutureExt,
    future::{Either as EitherFuture, MapOk, Ready, ready},
};
use http::{Request, Response};
use http_body_util::Either;
use tower::{Layer, Service};

use super::{
    Limits,
    admission::{Origin, Shares},
};
use crate::reply::{Refusal, ReplyBody};

/// Layer that applies the limits of unauthenticated paths to an embedder's routes: the rate limit per address, the
/// number of concurrent requests per address, and the budget for unread replies. [`Rest`](crate::Rest) applies them
/// itself.
#[derive(Debug, Clone)]
pub struct OpenPaths {
    shares: Arc<Shares>,
    service_domain: Arc<str>,
}

impl OpenPaths {
    /// Returns the layer. Its errors name this service domain.
    pub fn new(limits: &Limits, service_domain: &str) -> Self {
        Self { shares: Shares::new(limits), service_domain: service_domain.into() }
    }
}

impl<S> Layer<S> for OpenPaths {
    type Service = OpenPath<S>;

    fn layer(&self, service: S) -> OpenPath<S> {
        OpenPath { service, bounds: self.clone() }
    }
}

/// Service wrapped by [`OpenPaths`].
#[derive(Debug, Clone)]
pub struct OpenPath<S> {
    service: S,
    bounds: OpenPaths,
}

type Refused<R> = Either<R, ReplyBody>;

impl<S, B, R> Service<Request<B>> for OpenPath<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    type Response = Response<Refused<R>>;
    type Error = Infallible;
    type Future = EitherFuture<
        MapOk<S::Future, fn(Response<R>) -> Response<Refused<R>>>,
        Ready<Result<Response<Refused<R>>, Infallible>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let origin = Origin::of(request.extensions(), &self.bounds.shares);
        match origin.admit().and_then(|()| origin.open()) {
            Ok(()) => {
                let map: fn(Response<R>) -> Response<Refused<R>> = |response| response.map(Either::Left);
                EitherFuture::Left(self.service.call(request).map_ok(map))
            }
            Err(error) => {
                let reply = Refusal::from(error).into_reply(&self.bounds.service_domain);
                EitherFuture::Right(ready(Ok(reply.map(Either::Right))))
            }
        }
    }
}
