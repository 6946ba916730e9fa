//! The service: from a call to the platform and back.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderValue, Method as Verb, Request, Response, StatusCode, Version,
    header::{ALLOW, CONTENT_TYPE},
};
use http_body::Body as HttpBody;
use http_body_util::Full;
use platform_core::{
    BoxFuture,
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
    kind::{self, Needs},
    platform::{Answer, Platform},
    request::ListRequest,
    tokens::TokenService,
    uid::Uid,
};
use platform_http::{BoxError, Limits, Origin, Shares, bearer};
use prost_reflect::DescriptorPool;
use tonic::{Status, body::Body, server::UnaryService};
use tonic_web::GrpcWebLayer;
use tower::{Layer, Service};

use crate::{
    beside::Beside,
    codec::AsBytes,
    contract, deadline, decode, frame,
    kept::Kept,
    methods::{self, BadContract, Method, What},
    standard::Standard,
    status::Statuses,
    tokens::TokenMethod,
};

/// The gRPC API of a platform, as one tower service. Clones are handles of one and the same.
///
/// It answers every method of the contract that a kind of the platform has, gRPC-Web, reflection and health. Put it
/// [beside](Grpc::beside) what answers everything else on the port. Calls are routed first, then authenticated, then
/// read; whatever goes wrong, panics included, is a status with the details that REST shows. It runs within a tokio
/// runtime, for its timers.
#[derive(Debug, Clone)]
pub struct Grpc(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
    tokens: Option<Arc<dyn TokenService>>,
    methods: Arc<HashMap<String, Method>>,
    statuses: Arc<Statuses>,
    standard: Standard,
    kept: Arc<Kept>,
    limits: Limits,
    token_limits: Limits,
    shares: Arc<Shares>,
}

impl Grpc {
    /// Finds the methods of the contract that the platform's kinds have. Kinds that the contract does not know are
    /// served by REST alone.
    ///
    /// # Errors
    /// None with the contract as it is compiled in, as a test shows.
    pub fn new(
        platform: Arc<Platform>,
        authenticator: Arc<dyn Authenticator>,
        limits: Limits,
    ) -> Result<Self, BadContract> {
        let pool = contract::descriptors()?;
        let details = DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET)?;
        let methods = Arc::new(methods::all(&pool, platform.registered())?);
        let statuses = Arc::new(Statuses::new(&platform.settings().service_domain, &[&pool, &details])?);
        let standard = Standard::new(&methods)?;
        let (shares, token_limits) = (Shares::new(&limits), limits.of_tokens());
        let (tokens, kept) = (None, Arc::default());
        let inner =
            Inner { platform, authenticator, tokens, methods, statuses, standard, kept, limits, token_limits, shares };
        Ok(Self(Arc::new(inner)))
    }

    /// Answers the token services too.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<dyn TokenService>) -> Self {
        Arc::make_mut(&mut self.0).tokens = Some(tokens);
        self
    }

    /// Puts what answers everything that is not gRPC beside this, on one port.
    pub fn beside<S>(self, other: S) -> Beside<S> {
        Beside::new(self, other)
    }

    /// Sets the state that the health service reports, which is serving at first. Calls are answered either way.
    pub async fn set_serving(&self, serving: bool) {
        self.0.standard.set_serving(serving).await;
    }

    /// Says from now on that nothing is served, and ends the streams by which clients watch that. What was called is
    /// still answered.
    pub async fn drain(&self) {
        self.0.standard.drain().await;
    }

    /// Returns the paths of all methods that are served, in order.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<_> = self.0.methods.keys().map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }
}

impl<B> Service<Request<B>> for Grpc
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError> + fmt::Display + Send> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if content_type.starts_with(b"application/grpc-web") {
            if request.method() != Verb::POST {
                let counted = Origin::of(request.extensions(), &inner.shares).open();
                return Box::pin(async move {
                    Ok(counted.map_or_else(|error| inner.refuse(&error), |()| inner.other_method()))
                });
            }
            return Box::pin(GrpcWebLayer::new().layer(Unframed(inner)).call(request));
        }
        if request.version() < Version::HTTP_2 {
            let error = Error::new(Code::Unimplemented, "gRPC takes HTTP/2; on HTTP/1.1 there is gRPC-Web");
            let origin = Origin::of(request.extensions(), &inner.shares);
            return Box::pin(async move { Ok(inner.refuse(&origin.refused(error))) });
        }
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}

/// The service behind gRPC-Web.
#[derive(Debug, Clone)]
struct Unframed(Arc<Inner>);

impl Service<Request<Body>> for Unframed {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { Ok(inner.answer(request).await) })
    }
}

impl Inner {
    async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let origin = Origin::of(request.extensions(), &self.shares);
        if let Err(error) = origin.admit() {
            return self.refuse(&error);
        }
        let path = request.uri().path();
        let Some(method) = self.methods.get(path) else {
            let answered = match self.standard.find(path) {
                Some(service) => service.answer(request, &origin, &self.limits).await,
                None => Err(origin.refused(Error::new(Code::Unimplemented, "There is no such method"))),
            };
            return answered.unwrap_or_else(|error| self.refuse(&error));
        };
        if request.method() != Verb::POST {
            let error = Error::new(Code::Unimplemented, "gRPC calls are POST").of_domain(method.domain);
            return self.refuse(&origin.refused(error));
        }
        let limit = self.limits.request_time;
        // A deadline of the client beyond the limit does not extend it.
        let time = deadline::of(request.headers()).map_or(limit, |time| time.min(limit));
        // The platform's state is behind locks that no panic leaves half changed: every write is one commit. What is
        // to be done is large, and is in a box so that it need not be moved into each of what stands around it.
        let handled = AssertUnwindSafe(Box::pin(self.handle(method, &origin, request))).catch_unwind();
        let error = match tokio::time::timeout(time, handled).await {
            Ok(Ok(Ok(response))) => return response,
            Ok(Ok(Err(error))) => error,
            Ok(Err(panic)) => Error::panicked(&*panic),
            Err(_) => {
                if time == limit {
                    tracing::error!("a request took too long");
                }
                Error::new(Code::DeadlineExceeded, "The request took too long")
            }
        };
        self.refuse(&error.of_domain(method.domain))
    }

    async fn handle<B>(&self, method: &Method, origin: &Origin, request: Request<B>) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let who = self.who(method, origin, request.headers()).await?;
        let limits = if matches!(method.what, What::Token(_)) { &self.token_limits } else { &self.limits };
        let (head, body) = request.into_parts();
        let message = frame::read(origin.metered(body), limits).await?;
        let request = Request::from_parts(head, Full::new(message));
        let mut grpc = tonic::server::Grpc::new(AsBytes).max_decoding_message_size(limits.body);
        Ok(grpc.unary(Call { inner: self, method, origin, who }, request).await)
    }

    /// Authenticates the caller before the message is read. The token service verifies the credential of a token
    /// method; here it is refused when it is missing or malformed.
    async fn who(&self, method: &Method, origin: &Origin, headers: &HeaderMap) -> Result<Who> {
        let token = bearer(headers).map_err(|error| origin.refused(error))?;
        if matches!(method.what, What::Token(_)) {
            origin.token_path()?;
        }
        let open = match &method.what {
            What::Token(TokenMethod::HeadlessSession) => return Ok(Who::Credential(None)),
            What::Token(what) => {
                let token = token.ok_or_else(|| Error::unauthenticated("A bearer token is needed"))?;
                if let Some(service) = self.tokens.as_deref() {
                    service.check_form(token, what.credential())?;
                }
                return Ok(Who::Credential(Some(token.to_owned())));
            }
            What::Action(_, action) => matches!(action.needs, Needs::Nothing),
            What::List(registered, _) => registered.kind.method(kind::Verb::List).is_some_and(|list| list.open),
            What::Get(_) | What::Create(..) | What::Update(..) | What::Delete(_) => false,
        };
        if open {
            return origin.open().map(|()| Who::Anybody);
        }
        origin.authenticate(&*self.authenticator, token).await.map(Who::Caller)
    }

    /// Answers a call in protobuf.
    async fn reply(&self, method: &Method, who: Who, bytes: Bytes) -> Result<Bytes> {
        let Self { platform, .. } = self;
        decode::check_elements(&method.input, &bytes)?;
        let mut message = decode::message(&method.input, bytes)?;
        let (caller, credential) = match who {
            Who::Anybody => (None, None),
            Who::Caller(caller) => (Some(caller), None),
            Who::Credential(credential) => (None, credential),
        };
        // Where anybody may call, nobody's rights are asked for.
        let caller_or_nobody = || caller.clone().unwrap_or_else(|| Caller::new(Uid::default()));
        let resource = match &method.what {
            What::List(registered, page) => {
                let request = ListRequest::from_json(registered.kind, decode::object(message)?)?;
                let reply = platform.list_erased(&caller_or_nobody(), registered, &request).await?;
                return encoded(page.encode(&reply));
            }
            What::Get(registered) => {
                let uid = decode::text(&message, "uid");
                platform.get_erased(&caller_or_nobody(), registered, &uid).await?
            }
            What::Create(registered, field) => {
                let parent = decode::text(&message, "parent");
                let body = decode::object(decode::take(&mut message, field)?)?;
                platform.create_erased(&caller_or_nobody(), registered, &parent, &body).await?
            }
            What::Update(registered, field) => {
                let mask = decode::take_mask(&mut message)?.map(|(_, mask)| mask);
                let resource = decode::take(&mut message, field)?;
                let uid = decode::text(&resource, "uid");
                let body = decode::object(resource)?;
                platform.update_erased(&caller_or_nobody(), registered, &uid, &body, mask.as_deref()).await?
            }
            What::Delete(registered) => {
                let uid = decode::text(&message, "uid");
                platform.delete_erased(&caller_or_nobody(), registered, &uid).await?;
                return Ok(Bytes::new());
            }
            What::Action(kind, action) => {
                let request = decode::object(message)?;
                match platform.run_rendered(caller.as_ref(), kind, action, &request).await? {
                    Answer::Rendered(rendered) => return self.kept.get(action.name, &rendered, &method.output),
                    Answer::Value(value) => return encoded(method.output.encode_value(&value)),
                }
            }
            What::Token(token) => {
                let none = || Error::new(Code::Unimplemented, "This server has no token service");
                let service = self.tokens.as_deref().ok_or_else(none)?;
                let reply = token.answer(service, credential.as_deref(), decode::object(message)?).await?;
                return encoded(method.output.encode_value(&reply));
            }
        };
        encoded(method.output.encode(&resource))
    }

    /// Refuses a method that gRPC-Web does not have, as REST does.
    fn other_method(&self) -> Response<Body> {
        let error = Error::new(Code::Unimplemented, "This path does not have this method");
        let body = serde_json::to_vec(&error.status(&self.platform.settings().service_domain)).unwrap_or_default();
        let mut response = Response::new(Body::new(Full::from(body)));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        response
    }

    fn refuse(&self, error: &Error) -> Response<Body> {
        self.statuses.of(error).into_http()
    }
}

fn encoded(bytes: serde_json::Result<Vec<u8>>) -> Result<Bytes> {
    bytes.map(Bytes::from).map_err(Error::internal)
}

/// Who calls.
#[derive(Debug, Default)]
enum Who {
    /// It does not matter.
    #[default]
    Anybody,
    Caller(Caller),
    /// Whoever this token proves, which is for the token service to see.
    Credential(Option<String>),
}

/// A call whose caller is known.
struct Call<'a> {
    inner: &'a Inner,
    method: &'a Method,
    origin: &'a Origin,
    who: Who,
}

impl<'a> UnaryService<Bytes> for Call<'a> {
    type Response = Bytes;
    type Future = BoxFuture<'a, Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let Self { inner, method, origin, ref mut who } = *self;
        let who = std::mem::take(who);
        Box::pin(async move {
            let reply = inner.reply(method, who, request.into_inner()).await;
            // Of what was only read, nothing is lost when it cannot be kept until it is taken.
            let reply = reply.and_then(|reply| match method.what.reads() {
                true => origin.reply(reply.len()).map(|()| reply),
                false => Ok(reply),
            });
            reply.map(tonic::Response::new).map_err(|error| inner.statuses.of(&error.of_domain(method.domain)))
        })
    }
}
