//! The REST service: dispatches requests to the platform and renders responses.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::FutureExt;
use http::{Method, Request, Version, request::Parts};
use http_body::Body;
use platform_engine::{
    BoxFuture,
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
    kind::{Action, Authorization, Kind, Part, Registered, Run, Verb},
    options::RequestOptions,
    platform::{ActionReply, Platform},
    request::{ListRequest, from_query},
    watch::is_watchable,
};
use serde_json::{Map, Value};
use tower::Service;

use crate::{
    BoxError,
    calls::{ApiMethod, Called},
    carrier::within,
    event_stream,
    limits::{
        Limits,
        admission::{Origin, Shares},
    },
    long_list,
    mount::{self, Call, Mount},
    openapi::{Info, OpenApi, ServedDocument},
    reply::{self, Refusal, Reply},
    request::{self, READ_MASK, UPDATE_MASK},
    routes::{BadRoute, Endpoint, Found, Routes},
};

/// REST API of a platform, as one tower service. Clones share their state.
///
/// It answers every path, so mount it as the fallback, with axum's `fallback_service`. A request is first routed, then
/// authenticated, then read. Every failure, including a panic, is answered in the format of AIP-193. Requires a tokio
/// runtime for its timers.
#[derive(Debug, Clone)]
pub struct Rest(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    platform: Arc<Platform>,
    authenticator: Arc<dyn Authenticator>,
    mounts: Vec<Arc<dyn Mount>>,
    /// The API methods of the mounts, in their order.
    mount_calls: Vec<Arc<ApiMethod>>,
    routes: Routes,
    limits: Limits,
    shares: Arc<Shares>,
}

impl Rest {
    /// Returns the REST API of a platform. The paths are derived from the tables of its kinds.
    ///
    /// # Errors
    /// When two kinds use the same path, or the path of an action is invalid.
    pub fn new(
        platform: Arc<Platform>,
        authenticator: Arc<dyn Authenticator>,
        limits: Limits,
    ) -> Result<Self, BadRoute> {
        let routes = Routes::of(platform.registered())?;
        let shares = Shares::new(&limits);
        let (mounts, mount_calls) = (Vec::new(), Vec::new());
        Ok(Self(Arc::new(Inner { platform, authenticator, mounts, mount_calls, routes, limits, shares })))
    }

    /// Adds these endpoints. A path belongs to the first mount that contains it, and otherwise to the kinds.
    #[must_use]
    pub fn mount(mut self, mount: impl Mount) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.mount_calls.push(ApiMethod::new("rest", mount.name()));
        inner.mounts.push(Arc::new(mount));
        self
    }

    /// Returns the OpenAPI document of all kinds and mounts, for a service with this title and description.
    pub fn openapi(&self, info: Info<'_>) -> OpenApi {
        let Inner { platform, routes, mounts, .. } = &*self.0;
        mounts.iter().fold(OpenApi::new(platform, routes, info), |document, mount| document.with(mount.openapi()))
    }

    /// Adds an OpenAPI document at `/openapi.json`, which needs no token: the result of [`Rest::openapi`], perhaps with
    /// parts for other paths. It is made and rendered once, at the first request for it.
    #[must_use]
    pub fn with_openapi(self, document: impl FnOnce(&Self) -> OpenApi + Send + 'static) -> Self {
        let rest = self.clone();
        let render = move || document(&rest).into_value();
        let served = ServedDocument::deferred(render, &self.platform().settings().service_domain);
        self.mount(served)
    }

    /// Returns the platform.
    pub fn platform(&self) -> &Arc<Platform> {
        &self.0.platform
    }

    /// Returns the method of a kind that a request calls, by its HTTP method and its path: the names of its service and
    /// its RPC, such as `ReposService.ListRepos`. `None` for the paths of mounts and for unknown ones.
    pub fn method_of(&self, method: &Method, path: &str) -> Option<String> {
        match self.0.routes.find(method, path) {
            Found::Endpoint(.., call) if self.0.mount(path).is_none() => Some(call.name().to_owned()),
            _ => None,
        }
    }

    /// Returns the methods of all kinds, as [`Rest::method_of`] names them, sorted.
    pub fn methods(&self) -> BTreeSet<String> {
        let endpoints = self.0.routes.paths().flat_map(|path| path.methods);
        endpoints.map(|(_, endpoint)| endpoint.rpc()).collect()
    }

    /// Returns those of [`Rest::methods`] that can change something, by their HTTP methods.
    pub fn writing_methods(&self) -> BTreeSet<String> {
        let endpoints = self.0.routes.paths().flat_map(|path| path.methods);
        let is_write =
            |(http, endpoint): &(Method, Endpoint)| !http.is_safe() && !matches!(endpoint, Endpoint::BatchGet(_));
        endpoints.filter(|one| is_write(one)).map(|(_, endpoint)| endpoint.rpc()).collect()
    }

    /// Returns the reply to a request for this path that middleware rejects, in the format of AIP-193.
    pub fn refuse(&self, path: &str, error: Error) -> Reply {
        let refusal = Refusal::from(error.of_domain(self.0.domain(path)));
        refusal.into_reply(&self.0.platform.settings().service_domain)
    }
}

impl<B> Service<Request<B>> for Rest
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        let (method, uri, version) = (request.method().clone(), request.uri().clone(), request.version());
        // The future is large, so it is boxed instead of being moved into each of the futures around it.
        let answered = {
            let inner = Arc::clone(&inner);
            Box::pin(async move { inner.answer(request).await })
        };
        Box::pin(async move {
            let reply = within(inner.limits.request_time, answered).await;
            Ok(reply.unwrap_or_else(|_| inner.overdue(&method, uri.path(), version)))
        })
    }
}

impl Inner {
    /// Returns the reply to a request that took too long.
    fn overdue(&self, method: &Method, path: &str, version: Version) -> Reply {
        tracing::error!("a request took too long");
        let refusal = Refusal::deadline("The request took too long");
        let code = Some(refusal.code());
        let mut reply = refusal.of_domain(self.domain(path)).into_reply(&self.platform.settings().service_domain);
        let call = match self.mounts.iter().position(|mount| mount.has(path)) {
            Some(mount) => self.mount_calls.get(mount),
            None => match self.routes.find(method, path) {
                Found::Endpoint(.., call) => Some(call),
                Found::OtherMethods(_) | Found::LeftOut(_) | Found::Nothing => None,
            },
        };
        if let Some(method) = call {
            reply.extensions_mut().insert(Called { method: Arc::clone(method), code, received: 0 });
        }
        // A part of the body may be unread.
        reply::close(version, &mut reply);
        if *method == Method::HEAD {
            return reply::without_body(reply);
        }
        reply::record_length(&mut reply);
        reply
    }

    async fn answer<B>(&self, request: Request<B>) -> Reply
    where
        B: Body<Data: Send, Error: Into<BoxError>> + Send,
    {
        let (head, body) = request.into_parts();
        let origin = Origin::of(&head.extensions, &self.shares);
        let mut body = pin!(origin.metered(body));
        // Unwinding is safe: the platform's state is guarded by locks, and a panic cannot leave it half changed,
        // because every write is one commit.
        let mut call = None;
        let handled = AssertUnwindSafe(self.handle(&head, &origin, body.as_mut(), &mut call)).catch_unwind();
        let reply = handled.await.unwrap_or_else(|panic| Err(Error::panicked(&*panic).into()));
        // A reply to a read can be dropped when it does not fit into the budget; a reply to a write must be sent.
        let reply = reply.and_then(|reply| {
            if head.method.is_safe() {
                origin.reply(reply::length(&reply)).map(|()| reply).map_err(Refusal::from)
            } else {
                Ok(reply)
            }
        });
        // Metrics and the audit log have the code of a client that is put off, too.
        let code = match &reply {
            Ok(reply) => reply.extensions().get::<Code>().copied(),
            Err(refusal) => Some(refusal.code()),
        };
        let refused = |refusal: Refusal| {
            let domain = self.domain(head.uri.path());
            refusal.of_domain(domain).into_reply(&self.platform.settings().service_domain)
        };
        let mut reply = reply.unwrap_or_else(refused);
        if !request::drain(&head, body).await {
            reply::close(head.version, &mut reply);
        }
        if let Some(method) = call {
            reply.extensions_mut().insert(Called { method: Arc::clone(method), code, received: origin.received() });
        }
        if head.method == Method::HEAD {
            return reply::without_body(reply);
        }
        reply::record_length(&mut reply);
        reply
    }

    /// Handles a request, and sets `call` to the method that it calls as soon as that is known.
    async fn handle<'s, B>(
        &'s self,
        head: &Parts,
        origin: &Origin,
        body: B,
        call: &mut Option<&'s Arc<ApiMethod>>,
    ) -> Result<Reply, Refusal>
    where
        B: Body<Data: Send, Error: Into<BoxError>> + Send,
    {
        origin.admit()?;
        let mount = self.mounts.iter().position(|mount| mount.has(head.uri.path()));
        *call = mount.and_then(|mount| self.mount_calls.get(mount));
        let mount = mount.and_then(|mount| self.mounts.get(mount));
        let target = request::target(head, &self.limits);
        let (path, query) =
            match target.and_then(|target| request::check_expect(head, &body, &self.limits).map(|()| target)) {
                Ok(target) => target,
                Err(refusal) => {
                    let refusal = origin.refused(refusal);
                    return match mount {
                        Some(mount) => mount.refused(refusal),
                        None => Err(refusal),
                    };
                }
            };
        if let Some(mount) = mount {
            let Self { platform, authenticator, limits, .. } = self;
            let call = Call { platform, authenticator: &**authenticator, limits, origin, head, path, query };
            return mount.answer(call, mount::body(body)).await;
        }
        let (endpoint, variables, version) = match self.routes.find(&head.method, path) {
            Found::Endpoint(endpoint, variables, version, method) => {
                *call = Some(method);
                (endpoint, variables, version)
            }
            Found::OtherMethods(allow) if head.method == Method::OPTIONS => {
                return Ok(origin.open().map(|()| reply::options(&allow))?);
            }
            Found::OtherMethods(allow) => return Err(origin.refused(Refusal::other_methods(allow))),
            Found::LeftOut(reason) => return Err(origin.refused(Error::new(Code::Unimplemented, reason).into())),
            Found::Nothing => return Err(origin.refused(Refusal::no_path())),
        };
        let token = request::bearer(&head.headers).map_err(|error| origin.refused(error))?;
        let incoming = Incoming { head, origin, token, version, query, body };
        match endpoint {
            Endpoint::Standard(Verb::List, registered, names) => {
                let variables = names.iter().map(String::as_str).zip(variables);
                let listed = self.list(registered, variables, incoming).await;
                listed.or_else(|refusal| event_stream::put_off(&head.headers, query, refusal))
            }
            Endpoint::Standard(verb, registered, _) => {
                let uid = variables.first().copied().unwrap_or_default();
                self.standard(*verb, registered, uid, incoming).await
            }
            Endpoint::BatchGet(registered) => self.batch_get(registered, incoming).await,
            Endpoint::Action(kind, action, names) => {
                let variables = names.iter().map(String::as_str).zip(variables);
                self.action(kind, action, variables, incoming).await
            }
        }
    }

    /// Authenticates the caller of a method of this version.
    async fn authenticate(&self, origin: &Origin, token: Option<&str>, version: &'static str) -> Result<Caller> {
        Ok(origin.authenticate(&*self.authenticator, token).await?.calling(version))
    }

    /// Returns the mount that has a path.
    fn mount(&self, path: &str) -> Option<&dyn Mount> {
        self.mounts.iter().find(|mount| mount.has(path)).map(|mount| &**mount)
    }

    /// Returns the domain of the errors of a path: that of its mount or its kinds, empty for unknown paths.
    fn domain(&self, path: &str) -> &'static str {
        self.mount(path).map_or_else(|| self.routes.domain(path), |mount| mount.domain())
    }

    /// Handles a list. Its path variables are parameters.
    async fn list<'v, B>(
        &self,
        registered: &Registered,
        variables: impl Iterator<Item = (&'v str, &'v str)>,
        incoming: Incoming<'_, B>,
    ) -> Result<Reply, Refusal> {
        let Incoming { head, origin, token, version, query, .. } = incoming;
        let kind = registered.kind;
        let open = kind.method(Verb::List).is_some_and(|list| list.open);
        let caller =
            if open { origin.open().map(|()| None)? } else { Some(self.authenticate(origin, token, version).await?) };
        let mut pairs = Vec::new();
        for (name, raw) in variables {
            pairs.push((name.to_owned(), request::variable(name, raw)?));
        }
        pairs.extend(request::pairs(query)?);
        let watch = if is_watchable(kind) { event_stream::Parameters::take(&mut pairs)? } else { None };
        let list = ListRequest::from_query(kind, &pairs)?;
        if let (Some(watch), Some(caller)) = (watch, &caller) {
            let from = (origin, &head.headers);
            return event_stream::reply(&self.platform, caller, registered, list, watch, from).await;
        }
        let page = self.platform.list_erased(caller.as_ref(), registered, &list).await?;
        Ok(reply::list(kind.plural, &page).await)
    }

    /// Handles a standard method except list. `uid` is still percent-encoded; for a create it is the parent's uid and
    /// may be empty.
    async fn standard<B>(
        &self,
        verb: Verb,
        registered: &Registered,
        uid: &str,
        incoming: Incoming<'_, B>,
    ) -> Result<Reply, Refusal>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let (platform, head) = (&self.platform, incoming.head);
        let caller = &self.authenticate(incoming.origin, incoming.token, incoming.version).await?;
        let uid = &request::variable(if verb == Verb::Create { "parent" } else { "uid" }, uid)?;
        // A get and a delete have no body that could be read in vain, and the method itself checks access.
        if let Verb::Create | Verb::Update = verb {
            platform.admit(caller, registered, verb, uid).await?;
        }
        let (options, mask, body) = match self.rest_of_request(verb, incoming).await {
            Ok(rest) => rest,
            Err(refusal) => {
                // A caller without access, or whose access was revoked since then, must not learn what is wrong with
                // the rest of the request.
                platform.current_grants(caller).await?;
                platform.admit(caller, registered, verb, uid).await?;
                return Err(refusal);
            }
        };
        match verb {
            // The path of a list has no uid.
            Verb::List => Err(Refusal::no_path()),
            Verb::Get => {
                let resource = platform.get_erased(caller, registered, uid, &options).await?;
                Ok(reply::read(resource, &options.preconditions))
            }
            Verb::Create => Ok(reply::written(platform.create_erased(caller, registered, uid, &body, &options).await?)),
            Verb::Update => {
                let update = platform.update_erased(caller, registered, uid, &body, mask.as_deref(), &options);
                Ok(reply::written(update.await?))
            }
            Verb::Delete => {
                let deleted = platform.delete_erased(caller, registered, uid, &options).await?;
                Ok(reply::replayed(reply::deleted(&head.headers), deleted.is_replayed))
            }
        }
    }

    /// Reads the rest of the request for a standard method: its options, the mask of an update, and the body.
    async fn rest_of_request<B>(
        &self,
        verb: Verb,
        Incoming { head, query, body, .. }: Incoming<'_, B>,
    ) -> Result<(RequestOptions, Option<String>, Map<String, Value>), Refusal>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let mut parameters = request::pairs(query)?;
        let mut options = request::options(head, &mut parameters)?;
        let mask = match verb {
            Verb::Update => request::mask(UPDATE_MASK, parameters)?,
            Verb::Get => {
                options.read_mask = request::mask(READ_MASK, parameters)?.unwrap_or_default();
                None
            }
            _ => request::reject_pairs(parameters).map(|()| None)?,
        };
        match verb {
            Verb::Create | Verb::Update => Ok((options, mask, request::object(body, &self.limits).await?)),
            Verb::List | Verb::Get | Verb::Delete => Ok((options, mask, Map::new())),
        }
    }

    async fn batch_get<B>(&self, registered: &Registered, incoming: Incoming<'_, B>) -> Result<Reply, Refusal>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let Incoming { origin, token, version, query, body, .. } = incoming;
        let caller = self.authenticate(origin, token, version).await?;
        request::reject_parameters(query)?;
        let request = request::object(body, &self.limits).await?;
        let items = self.platform.batch_get_erased(&caller, registered, &request).await?;
        Ok(reply::items(registered.kind.plural, &items).await)
    }

    async fn action<'v, B>(
        &self,
        kind: &'static Kind,
        action: &'static Action,
        variables: impl Iterator<Item = (&'v str, &'v str)>,
        incoming: Incoming<'_, B>,
    ) -> Result<Reply, Refusal>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let Incoming { head, origin, token, version, .. } = incoming;
        let caller = match action.authorization {
            Authorization::Public => origin.open().map(|()| None)?,
            Authorization::Authenticated
            | Authorization::At(..)
            | Authorization::Anywhere(_)
            | Authorization::FiltersResult(_)
            | Authorization::As(..) => Some(self.authenticate(origin, token, version).await?),
        };
        let mut in_path = Map::new();
        for (name, raw) in variables {
            in_path.insert(name.to_owned(), request::variable(name, raw)?.into());
        }
        if let Some(caller) = &caller {
            self.platform.admit_action(caller, kind, action, &in_path).await?;
        }
        let (options, mut request_message) = match self.action_request(action, incoming).await {
            Ok(rest) => rest,
            Err(refusal) => {
                if let Some(caller) = &caller {
                    self.platform.current_grants(caller).await?;
                    self.platform.admit_action(caller, kind, action, &in_path).await?;
                }
                return Err(refusal);
            }
        };
        for (name, value) in &in_path {
            request::bind(&mut request_message, name, value.as_str().unwrap_or_default().to_owned())?;
        }
        if let Run::Pages(_) = action.run {
            let from = (origin, &self.limits);
            return Ok(long_list::reply(&self.platform, caller.as_ref(), kind, action, request_message, from).await?);
        }
        match self.platform.run_rendered(caller.as_ref(), kind, action, &request_message, &options).await? {
            ActionReply::Value(value) => Ok(reply::value(&value)?),
            ActionReply::Encoded(body) => Ok(reply::json(body)),
            ActionReply::Rendered(rendered) => Ok(reply::rendered(rendered, &head.headers)?),
            ActionReply::Resource(resource) if action.http.is_safe() => {
                Ok(reply::read(resource, &options.preconditions))
            }
            ActionReply::Resource(resource) => Ok(reply::written(resource)),
        }
    }

    /// Reads the options and the request message of an action from the headers, and from the query or the body.
    async fn action_request<B>(
        &self,
        action: &Action,
        Incoming { head, query, body, .. }: Incoming<'_, B>,
    ) -> Result<(RequestOptions, Map<String, Value>), Refusal>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let mut parameters = request::pairs(query)?;
        let options = request::options(head, &mut parameters)?;
        let message = match action.body {
            _ if !action.http.has_body() => from_query(action.request, &parameters)?,
            Part::Whole => {
                request::reject_pairs(parameters)?;
                request::object(body, &self.limits).await?
            }
            Part::Field(field) => {
                let mut message = from_query(action.request, &parameters)?;
                request::bind_body(&mut message, field, request::value(body, &self.limits).await?)?;
                message
            }
        };
        Ok((options, message))
    }
}

/// A request whose endpoint is known. The query and the path variables are still percent-encoded.
struct Incoming<'r, B> {
    head: &'r Parts,
    origin: &'r Origin,
    token: Option<&'r str>,
    version: &'static str,
    query: &'r str,
    body: B,
}
