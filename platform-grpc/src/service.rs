//! The gRPC service: routes a call, runs it on the platform and encodes the reply.

use std::{
    borrow::Cow,
    collections::HashMap,
    convert::Infallible,
    fmt,
    future::ready,
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
use platform_engine::{
    BoxFuture,
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
    etag::Reply,
    kind::{self, Authorization, ListPage, Run},
    offload::{Pace, SLICE},
    options::RequestOptions,
    platform::{ActionReply, Platform},
    request::{FILTER, ListRequest, READ_MASK},
};
use platform_http::{
    BoxError, Called, Limits, Origin, Shares, bearer, idempotency_key, preconditions, validate_only, within,
};
use prost_reflect::DescriptorPool;
use serde_json::{Map, Value};
use tonic::{body::Body, metadata::MetadataMap};
use tonic_web::GrpcWebLayer;
use tower::{Layer, Service, service_fn};

use crate::{
    batch,
    codec::AsBytes,
    deadline, decode,
    encode::Plan,
    frame,
    item_cache::ItemCache,
    metadata,
    methods::{self, BadContract, Method, Operation},
    mount::Mount,
    multiplex::Multiplexed,
    own,
    parts::Parts,
    reflection_health::ReflectionHealth,
    response_cache::ResponseCache,
    status::Statuses,
    watch,
};

mod call;

use self::call::{Call, Message, Shown};

/// The gRPC API of a platform, as one tower service. Cloning is cheap: clones share all state.
///
/// Serves every method of the platform's descriptors that belongs to one of its kinds, plus gRPC-Web, reflection and
/// health. Use [`or_else_http`](Grpc::or_else_http) to serve REST on the same port. Each call is routed, then
/// authenticated, then read. Every failure, a panic included, becomes a status with the same details as over REST.
/// Requires a tokio runtime, for its timers.
#[derive(Debug, Clone)]
pub struct Grpc(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
    /// The descriptors of the kinds.
    pool: DescriptorPool,
    mounts: Vec<Arc<dyn Mount>>,
    methods: Arc<HashMap<String, Arc<Method>>>,
    statuses: Arc<Statuses>,
    reflection_health: ReflectionHealth,
    watched: Arc<own::Kinds>,
    responses: Arc<ResponseCache>,
    items: Arc<ItemCache>,
    limits: Limits,
    token_limits: Limits,
    shares: Arc<Shares>,
}

impl Grpc {
    /// Creates the service with the methods of the platform's [descriptors](Platform::descriptors) that belong to its
    /// kinds. Kinds without descriptors are served by REST only.
    ///
    /// # Errors
    /// For descriptors that cannot be decoded, or whose messages do not have the form that a standard method requires.
    pub fn new(
        platform: Arc<Platform>,
        authenticator: Arc<dyn Authenticator>,
        limits: Limits,
    ) -> Result<Self, BadContract> {
        let pool = methods::descriptors(&platform)?;
        let details = DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET)?;
        let methods = Arc::new(methods::all(&pool, &platform, &[])?);
        let statuses = Arc::new(Statuses::new(&platform.settings().service_domain, &[&pool, &details])?);
        let reflection_health = ReflectionHealth::new(&platform, &methods);
        let watched = Arc::new(own::Kinds::of(&methods));
        let (shares, token_limits) = (Shares::new(&limits), limits.of_tokens());
        let (mounts, responses, items) = (Vec::new(), Arc::default(), Arc::default());
        let inner = Inner {
            platform,
            authenticator,
            pool,
            mounts,
            methods,
            statuses,
            reflection_health,
            watched,
            responses,
            items,
            limits,
            token_limits,
            shares,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Adds these methods, which do not belong to a kind.
    ///
    /// # Errors
    /// As [`Grpc::new`].
    pub fn mount(mut self, mount: impl Mount) -> Result<Self, BadContract> {
        let inner = Arc::make_mut(&mut self.0);
        inner.mounts.push(Arc::new(mount));
        let methods = methods::all(&inner.pool, &inner.platform, &inner.mounts)?;
        inner.reflection_health = ReflectionHealth::new(&inner.platform, &methods);
        inner.methods = Arc::new(methods);
        Ok(self)
    }

    /// Serves gRPC and HTTP on one port: every request that is not gRPC goes to `http`.
    pub fn or_else_http<S>(self, http: S) -> Multiplexed<S> {
        Multiplexed::new(self, http)
    }

    /// Sets the state that the health service reports; it is serving at first. Calls are answered in either state.
    pub async fn set_serving(&self, serving: bool) {
        self.0.reflection_health.set_serving(serving).await;
    }

    /// Reports every service as not serving from now on, and ends the streams of clients that watch the health. Calls
    /// in progress are still answered.
    pub async fn drain(&self) {
        self.0.reflection_health.drain().await;
    }

    /// Returns the reply to a call that middleware rejects with an error, over gRPC or gRPC-Web.
    pub async fn refuse<B>(&self, call: Request<B>, error: Error) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + fmt::Display + Send> + Send + 'static,
    {
        let domain = self.0.methods.get(call.uri().path()).map_or("", |method| method.domain);
        let response = self.0.error_response(&error.of_domain(domain));
        if !is_grpc_web(&call) {
            return response;
        }
        let mut response = Some(response);
        let inner = service_fn(move |_: Request<Body>| ready(Ok::<_, Infallible>(response.take().unwrap_or_default())));
        GrpcWebLayer::new().layer(inner).call(call).await.unwrap_or_else(|never| match never {})
    }

    /// Returns the paths of all methods that are served, sorted.
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
        if is_grpc_web(&request) {
            if request.method() != Verb::POST {
                let counted = Origin::of(request.extensions(), &inner.shares).open();
                return Box::pin(async move {
                    Ok(counted.map_or_else(|error| inner.error_response(&error), |()| inner.method_not_allowed()))
                });
            }
            return Box::pin(GrpcWebLayer::new().layer(GrpcWebService(inner)).call(request));
        }
        if request.version() < Version::HTTP_2 {
            let error = Error::new(Code::Unimplemented, "gRPC requires HTTP/2; use gRPC-Web over HTTP/1.1");
            let origin = Origin::of(request.extensions(), &inner.shares);
            return Box::pin(async move { Ok(inner.error_response(&origin.refused(error))) });
        }
        Box::pin(async move { Ok(inner.respond(request).await) })
    }
}

fn is_grpc_web<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc-web"))
}

/// The inner service of gRPC-Web: the layer translates a request to plain gRPC and calls this.
#[derive(Debug, Clone)]
struct GrpcWebService(Arc<Inner>);

impl Service<Request<Body>> for GrpcWebService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { Ok(inner.respond(request).await) })
    }
}

impl Inner {
    async fn respond<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let origin = Origin::of(request.extensions(), &self.shares);
        if let Err(error) = origin.admit() {
            return self.error_response(&error);
        }
        let path = request.uri().path();
        if path == watch::PATH {
            return self.watch(request, &origin).await.unwrap_or_else(|error| self.error_response(&error));
        }
        let Some(method) = self.methods.get(path).cloned() else {
            let response = match self.reflection_health.find(path) {
                Ok(Some(endpoint)) => endpoint.respond(request, &origin, &self.limits).await,
                Ok(None) => Err(origin.refused(self.no_method(path))),
                Err(error) => Err(error),
            };
            return response.unwrap_or_else(|error| self.error_response(&error));
        };
        if request.method() != Verb::POST {
            let error = Error::new(Code::Unimplemented, "gRPC calls must use POST").of_domain(method.domain);
            return self.error_response(&origin.refused(error));
        }
        let limit = self.limits.request_time;
        // A client deadline beyond the server's limit does not extend that limit.
        let time = deadline::of(request.headers()).map_or(limit, |time| time.min(limit));
        // Unwind safe: the platform's state is guarded by locks, and no panic leaves it half changed, since every write
        // is one commit. Boxed, since the future is large and would be moved into each of the futures around it.
        let handled = {
            let (inner, method, origin) = (Arc::clone(&self), Arc::clone(&method), origin.clone());
            Box::pin(async move { AssertUnwindSafe(inner.handle(&method, &origin, request)).catch_unwind().await })
        };
        let called = |mut response: Response<Body>, code| {
            let received = origin.received();
            response.extensions_mut().insert(Called { method: Arc::clone(&method.call), code, received });
            response
        };
        let error = match within(time, handled).await {
            Ok(Ok(Ok(response))) => return called(response, None),
            Ok(Ok(Err(error))) => error,
            Ok(Err(panic)) => Error::panicked(&*panic),
            Err(_) => {
                if time == limit {
                    tracing::error!("a request took too long");
                }
                Error::new(Code::DeadlineExceeded, "The request took too long")
            }
        };
        let code = Some(error.code());
        called(self.error_response(&error.of_domain(method.domain)), code)
    }

    /// Begins a watch of a list.
    async fn watch<B>(&self, request: Request<B>, origin: &Origin) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        if request.method() != Verb::POST {
            return Err(origin.refused(Error::new(Code::Unimplemented, "gRPC calls must use POST")));
        }
        let token = bearer(request.headers()).map_err(|error| origin.refused(error))?;
        let caller = origin.authenticate(&*self.authenticator, token).await?;
        let message = frame::read(origin.metered(request.into_body()), &self.limits).await?;
        watch::respond(&self.watched, &self.platform, &caller, origin, &message).await
    }

    async fn handle<B>(&self, method: &Method, origin: &Origin, request: Request<B>) -> Result<Response<Body>>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let principal = self.authenticate(method, origin, request.headers()).await?;
        let options = RequestOptions::default().preconditions(preconditions(request.headers())?);
        let is_read = method.operation.is_read_only();
        let key = if is_read { None } else { idempotency_key(request.headers())? };
        let options = options.validate_only(validate_only(request.headers())?).idempotency_key(key);
        let is_mounted = matches!(method.operation, Operation::Mounted(..));
        let limits = if is_mounted { &self.token_limits } else { &self.limits };
        let (head, body) = request.into_parts();
        let message = frame::read(origin.metered(body), limits).await?;
        let request = Request::from_parts(head, Full::new(message));
        let mut grpc = tonic::server::Grpc::new(AsBytes).max_decoding_message_size(limits.body);
        let mut parts = None;
        let call = Call { inner: self, method, origin, principal, options: &options, parts: Some(&mut parts) };
        let response = grpc.unary(call, request).await;
        Ok(match parts {
            Some(parts) => Response::from_parts(response.into_parts().0, parts.into_body()?),
            None => response,
        })
    }

    /// Authenticates the caller before the message is read. For a mounted method, checks only the form of the token.
    async fn authenticate(&self, method: &Method, origin: &Origin, headers: &HeaderMap) -> Result<Principal> {
        let token = bearer(headers).map_err(|error| origin.refused(error))?;
        let open = match &method.operation {
            Operation::Mounted(mount, number) => {
                origin.token_path()?;
                mount.check_token(*number, token)?;
                return Ok(Principal::Credential(token.map(str::to_owned)));
            }
            Operation::Action(_, action) => matches!(action.authorization, Authorization::Public),
            Operation::List(registered, _) => registered.kind.method(kind::Verb::List).is_some_and(|list| list.open),
            Operation::Get(_) | Operation::BatchGet(_) => false,
            Operation::Create(..) | Operation::Update(..) | Operation::Delete(_) => false,
        };
        if open {
            return origin.open().map(|()| Principal::Anonymous);
        }
        origin.authenticate(&*self.authenticator, token).await.map(Principal::Caller)
    }

    /// Runs a call and returns its reply as protobuf, with its metadata.
    async fn reply(
        &self,
        method: &Method,
        origin: &Origin,
        principal: Principal,
        options: &RequestOptions,
        metadata: &MetadataMap,
        bytes: Bytes,
    ) -> Result<(Message, Shown)> {
        let Self { platform, .. } = self;
        let filter = metadata::filter(&method.operation, metadata)?;
        let read_mask = metadata::read_mask(&method.operation, metadata)?;
        if bytes.len() > SLICE {
            // Receiving the message has taken as long as a slice of work.
            platform.offload().pause().await;
        }
        decode::check_elements(&method.input, &bytes)?;
        let mut message = decode::message(&method.input, bytes)?;
        let (caller, credential) = match principal {
            Principal::Anonymous => (None, None),
            Principal::Caller(mut caller) => {
                caller.version = method.version;
                (Some(caller), None)
            }
            Principal::Credential(credential) => (None, credential),
        };
        let demand_caller = || caller.as_ref().ok_or_else(Error::missing_token);
        let resource = match &method.operation {
            Operation::List(registered, page) => {
                let mut request = decode::object(message)?;
                let added = [(FILTER, filter), (READ_MASK, read_mask)].into_iter();
                request.extend(added.filter_map(|(field, text)| Some((field.name.to_owned(), Value::String(text?)))));
                let request = ListRequest::from_json(registered.kind, request)?;
                let reply = platform.list_erased(caller.as_ref(), registered, &request).await?;
                let mut parts = Parts::new(origin);
                page.encode(&reply, &self.items, Pace::new(platform.offload()), &mut parts).await?;
                return Ok((parts.into(), Shown::default()));
            }
            Operation::Get(registered) => {
                let uid = decode::text(&message, "uid");
                let masked = |mask| Cow::Owned(options.clone().read_mask(mask));
                let options = &*read_mask.map_or(Cow::Borrowed(options), masked);
                let resource = platform.get_erased(demand_caller()?, registered, &uid, options).await?;
                check_modified(&resource, options)?;
                return Ok((into_bytes(self.items.encode(&method.output, &resource.body))?, Shown::of(&resource)));
            }
            Operation::BatchGet(kinds) => {
                let request = decode::object(message)?;
                let found = batch::get(kinds, &self.items, platform, demand_caller()?, origin, request).await?;
                return Ok((found.into(), Shown::default()));
            }
            Operation::Create(registered, field) => {
                let parent = decode::text(&message, "parent");
                let body = decode::object(decode::take(&mut message, field)?)?;
                platform.create_erased(demand_caller()?, registered, &parent, &body, options).await?
            }
            Operation::Update(registered, field) => {
                let mask = decode::take_mask(&mut message)?.map(|(_, mask)| mask);
                let resource = decode::take(&mut message, field)?;
                let uid = decode::text(&resource, "uid");
                let body = decode::object(resource)?;
                platform.update_erased(demand_caller()?, registered, &uid, &body, mask.as_deref(), options).await?
            }
            Operation::Delete(registered) => {
                let uid = decode::text(&message, "uid");
                let deleted = platform.delete_erased(demand_caller()?, registered, &uid, options).await?;
                return Ok((Bytes::new().into(), Shown::of(&deleted)));
            }
            Operation::Action(kind, action) => {
                let mut request = decode::object(message)?;
                decode::add_unset(action.request, &mut request);
                if let Run::Pages(_) = action.run {
                    let list = self.long_list(caller.as_ref(), origin, kind, action, &request, &method.output).await;
                    return Ok((list?, Shown::default()));
                }
                match platform.run_rendered(caller.as_ref(), kind, action, &request, options).await? {
                    ActionReply::Rendered(rendered) => {
                        let bytes = self.responses.get(platform, action.name, rendered, &method.output).await?;
                        return Ok((Parts::of(origin, bytes)?.into(), Shown::default()));
                    }
                    ActionReply::Resource(resource) => {
                        if action.http.is_safe() {
                            check_modified(&resource, options)?;
                        }
                        resource
                    }
                    ActionReply::Encoded(body) => {
                        return Ok((into_bytes(method.output.encode(&body))?, Shown::default()));
                    }
                    ActionReply::Value(value) => {
                        return Ok((into_bytes(method.output.encode_value(&value))?, Shown::default()));
                    }
                }
            }
            Operation::Mounted(mount, number) => {
                let reply = mount.call(*number, credential.as_deref(), decode::object(message)?).await?;
                return Ok((into_bytes(method.output.encode_value(&reply))?, Shown::default()));
            }
        };
        Ok((into_bytes(method.output.encode(&resource.body))?, Shown::of(&resource)))
    }

    /// Runs an action that returns pages, and returns all of them as one message.
    async fn long_list(
        &self,
        caller: Option<&Caller>,
        origin: &Origin,
        kind: &'static kind::Kind,
        action: &'static kind::Action,
        request: &Map<String, Value>,
        output: &Plan,
    ) -> Result<Message> {
        let most = self.limits.long_list_message;
        let (mut parts, mut page_token) = (Parts::new(origin), String::new());
        let mut pace = Pace::new(self.platform.offload());
        loop {
            let page = self.platform.run_page(caller, kind, action, request, &page_token).await?;
            for items in page.slices() {
                let mut json = format!("{{\"{}\":[", action.list_field()).into_bytes();
                ListPage::append(items, &mut json, true);
                json.extend_from_slice(b"]}");
                // The elements of a repeated field may be anywhere in a message.
                parts.push(output.encode(&json).map_err(Error::internal)?)?;
                if parts.len() > most {
                    let error =
                        format!("the list is longer than {most} bytes; restrict it, or use version 2, which has pages");
                    return Err(Error::new(Code::ResourceExhausted, error));
                }
                pace.step(json.len()).await;
            }
            match page.next_page_token {
                Some(next) => page_token = next,
                None => return Ok(parts.into()),
            }
        }
    }

    /// Returns the error of a path without a method: why its service is left out, if it is one of those.
    fn no_method(&self, path: &str) -> Error {
        let left_out = |kind: &kind::Kind| Some((kind.domain.name, kind.domain.why_left_out(path)?));
        match self.platform.kinds().find_map(left_out) {
            Some((domain, reason)) => Error::new(Code::Unimplemented, reason).of_domain(domain),
            None => Error::new(Code::Unimplemented, "Unknown method"),
        }
    }

    /// Rejects an HTTP method that gRPC-Web does not use, as REST does.
    fn method_not_allowed(&self) -> Response<Body> {
        let error = Error::new(Code::Unimplemented, "This path does not have this method");
        let body = serde_json::to_vec(&error.status(&self.platform.settings().service_domain)).unwrap_or_default();
        let mut response = Response::new(Body::new(Full::from(body)));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        response
    }

    fn error_response(&self, error: &Error) -> Response<Body> {
        self.statuses.of(error).into_http()
    }
}

/// Rejects a read whose precondition names the representation that it would return: gRPC has no status for this, and a
/// reply without a resource would look like an empty one (`docs/api.md`, Conditional requests).
fn check_modified(resource: &Reply, options: &RequestOptions) -> Result<()> {
    let known = options.preconditions.if_none_match.as_ref().zip(resource.tag);
    match known.and_then(|(tags, tag)| tags.find(&tag.to_string())) {
        Some(_) => Err(Error::not_modified(resource.tag)),
        None => Ok(()),
    }
}

fn into_bytes(bytes: serde_json::Result<Vec<u8>>) -> Result<Message> {
    bytes.map(|bytes| Message::Whole(bytes.into())).map_err(Error::internal)
}

/// The result of authentication.
#[derive(Debug, Default)]
enum Principal {
    /// The method is open: the caller does not matter.
    #[default]
    Anonymous,
    Caller(Caller),
    /// A token that the mount verifies.
    Credential(Option<String>),
}
