//! The emulator: tenants, and one service for all of their requests.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header::CONTENT_TYPE, request::Parts};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use parking_lot::RwLock;
use platform_engine::{
    BoxFuture,
    error::{Code, Error, Result},
};
use platform_http::{
    BoxError, Layers, bearer,
    mount::{self, Refusal},
    openapi::ServedDocument,
    read_body, serve,
};
use platform_services::openapi::{self, INFO, NAME};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, runtime::Handle};
use tower::Service;

use crate::{
    StartError, admin, aws,
    coverage::{Counter, Coverage},
    input,
    requests::{Beginning, Copied, LoggedRequest},
    tenant::{Shared, Tenant, check_name, rpc},
};

/// The body of requests and replies within the emulator.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The name of the tenant of requests that name no other one.
pub const DEFAULT_TENANT: &str = "default";

/// The header that names the tenant of a request. It overrides the token. Requests without one of the tenant's tokens
/// need it, such as those with a refresh token or a SCIM token.
pub const TENANT_HEADER: &str = "x-emulator-tenant";

/// The maximum number of tenants. Our choice.
const MAX_TENANTS: usize = 1000;

/// An emulator of Platform API v2: a tower service, and the control of its tenants. Clones share all state.
#[derive(Clone)]
pub struct Emulator(Arc<Core>);

struct Core {
    shared: Arc<Shared>,
    default: Tenant,
    tenants: RwLock<Tenants>,
    next_number: AtomicU64,
    coverage: Counter,
    document: ServedDocument,
}

#[derive(Default)]
struct Tenants {
    by_name: BTreeMap<String, Tenant>,
    by_key: HashMap<String, Tenant>,
}

impl Tenants {
    fn insert(&mut self, tenant: &Tenant) {
        self.by_name.insert(tenant.name().to_owned(), tenant.clone());
        self.by_key.extend(tenant.key_ids().map(|key| (key, tenant.clone())));
    }
}

impl Emulator {
    /// Creates an emulator with the tenant [`DEFAULT_TENANT`]. `url` is the URL by which clients reach it, and the
    /// issuer and audience of its tokens. Must be called within a tokio runtime, which delivers events.
    ///
    /// # Errors
    /// For a URL that is not that of an issuer.
    pub async fn new(url: &str) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new(url, Handle::current())?);
        let default = Tenant::new(&shared, DEFAULT_TENANT.to_owned()).await?;
        let mut tenants = Tenants::default();
        tenants.insert(&default);
        let domain = default.platform().settings().service_domain.clone();
        let of_default = default.clone();
        let document = move || {
            let document = of_default.0.rest.openapi(INFO).with(of_default.0.import.openapi());
            document.with(openapi::well_known()).with(openapi::health()).into_value()
        };
        Ok(Self(Arc::new(Core {
            shared,
            default,
            tenants: RwLock::new(tenants),
            next_number: AtomicU64::new(1),
            coverage: Counter::default(),
            document: ServedDocument::deferred(document, domain),
        })))
    }

    /// Serves the emulator until `shutdown` is ready. Logs a warning if other machines can connect.
    ///
    /// # Errors
    /// As [`serve`], and when the listener's address is unknown.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            tracing::warn!("everyone who can connect to {address} controls the emulator: listen on 127.0.0.1 instead");
        }
        serve(listener, Layers::default().around(self.clone()), &self.0.shared.limits, shutdown).await
    }

    /// Returns the URL by which clients reach the emulator.
    pub fn url(&self) -> &str {
        &self.0.shared.url
    }

    /// Returns the tenant [`DEFAULT_TENANT`].
    pub fn default_tenant(&self) -> &Tenant {
        &self.0.default
    }

    /// Returns a tenant by its name.
    pub fn tenant(&self, name: &str) -> Option<Tenant> {
        self.0.tenants.read().by_name.get(name).cloned()
    }

    /// Returns all tenants, by name.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.0.tenants.read().by_name.values().cloned().collect()
    }

    /// Creates a tenant with this name, or with a new name if it is empty.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a name that is not up to 100 letters, digits, `-`, `_` and `.`; ALREADY_EXISTS;
    /// RESOURCE_EXHAUSTED when there are 1,000.
    pub async fn create_tenant(&self, name: &str) -> Result<Tenant> {
        let name = match name {
            "" => format!("tenant-{}", self.0.next_number.fetch_add(1, Ordering::Relaxed)),
            name => name.to_owned(),
        };
        check_name("name", &name)?;
        self.check_new(&name, &self.0.tenants.read())?;
        let tenant = Tenant::new(&self.0.shared, name).await.map_err(Error::internal)?;
        let mut tenants = self.0.tenants.write();
        self.check_new(tenant.name(), &tenants)?;
        tenants.insert(&tenant);
        Ok(tenant)
    }

    fn check_new(&self, name: &str, tenants: &Tenants) -> Result<()> {
        if tenants.by_name.contains_key(name) {
            return Err(Error::already_exists(format!("Tenant already exists: {name}")));
        }
        if tenants.by_name.len() >= MAX_TENANTS {
            let error = format!("An emulator has at most {MAX_TENANTS} tenants; delete one first");
            return Err(Error::new(Code::ResourceExhausted, error));
        }
        Ok(())
    }

    /// Deletes a tenant with all of its data. Its tokens are no longer accepted.
    ///
    /// # Errors
    /// NOT_FOUND, and FAILED_PRECONDITION for the tenant [`DEFAULT_TENANT`].
    pub fn delete_tenant(&self, name: &str) -> Result<()> {
        if name == DEFAULT_TENANT {
            return Err(Error::blocked("DEFAULT_TENANT", "the default tenant cannot be deleted; reset it instead"));
        }
        let mut tenants = self.0.tenants.write();
        let not_found = || Error::new(Code::NotFound, format!("Tenant not found: {name}"));
        let tenant = tenants.by_name.remove(name).ok_or_else(not_found)?;
        for key in tenant.key_ids() {
            tenants.by_key.remove(&key);
        }
        Ok(())
    }

    /// Returns the coverage of the API by the calls to all tenants, deleted ones included, since the start or the last
    /// [`Emulator::clear_coverage`].
    ///
    /// # Errors
    /// INTERNAL when the descriptors of the contract are invalid.
    pub fn coverage(&self) -> Result<Coverage> {
        Ok(self.0.coverage.report(&self.0.default.methods()?))
    }

    /// Begins to count the coverage again.
    pub fn clear_coverage(&self) {
        self.0.coverage.clear();
    }

    /// Returns the tenant of a request: that of the header, or else that whose key signed the token or whose principal of AWS
    /// signed the request, or else the default.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a header that does not name a tenant.
    pub(crate) fn tenant_of(&self, headers: &HeaderMap) -> Result<Tenant> {
        let tenants = self.0.tenants.read();
        if let Some(name) = headers.get(TENANT_HEADER) {
            let found = name.to_str().ok().and_then(|name| tenants.by_name.get(name));
            return found.cloned().ok_or_else(|| Error::invalid_field(TENANT_HEADER, "must be the name of a tenant"));
        }
        if aws::access_key(headers).is_some() {
            let known = tenants.by_name.values().find(|tenant| tenant.0.aws.knows(headers));
            return Ok(known.unwrap_or(&self.0.default).clone());
        }
        let key = token_part(headers, 0).and_then(|header| Some(header.get("kid")?.as_str()?.to_owned()));
        Ok(key.and_then(|key| tenants.by_key.get(&key)).unwrap_or(&self.0.default).clone())
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        if admin::has(request.uri().path()) {
            return admin::answer(self, request).await.map(boxed);
        }
        if aws::is_for(&request) {
            return self.answer_for_aws(request).await;
        }
        match self.open(request).await {
            Ok(response) => response,
            Err(request) => match self.tenant_of(request.headers()) {
                Ok(tenant) => self.run(&tenant, request).await,
                Err(error) => refuse(&self.0.default, request, error).await,
            },
        }
    }

    /// Answers a request to the STS of AWS.
    async fn answer_for_aws(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let limits = &self.0.shared.limits;
        let body = read_body(body, limits.body, limits.body_time).await;
        match (self.tenant_of(&head.headers), body) {
            (Ok(tenant), Ok(body)) => tenant.0.aws.answer(&head, &body).await.map(|body| boxed(Full::new(body))),
            (Err(error), _) => refuse(&self.0.default, Request::from_parts(head, Body::default()), error).await,
            (_, Err(_)) => {
                let error = Error::invalid_field("body", "must be complete, in time and within the limit");
                refuse(&self.0.default, Request::from_parts(head, Body::default()), error).await
            }
        }
    }

    /// Answers a request that belongs to no tenant; returns others.
    async fn open(&self, request: Request<Body>) -> Result<Response<Body>, Request<Body>> {
        let default = &self.0.default;
        let domain = &default.platform().settings().service_domain;
        let reply = match request.uri().path() {
            "/" => {
                let landing = json!({
                    "name": NAME, "version": env!("CARGO_PKG_VERSION"), "docs": "/docs", "openapi": "/openapi.json",
                    "emulator": admin::PREFIX,
                });
                let Ok(reply) = ServedDocument::new(&landing, domain).call(request).await;
                reply
            }
            "/openapi.json" => {
                let Ok(reply) = self.0.document.clone().call(request).await;
                reply
            }
            "/livez" | "/readyz" | "/startupz" => mount::json(r#"{"status":"SERVING"}"#),
            "/.well-known/openid-configuration" | "/.well-known/oauth-authorization-server" => {
                mount::json(default.discovery_document())
            }
            "/.well-known/jwks.json" => mount::json(self.jwks()),
            #[cfg(feature = "docs")]
            path if path == "/docs" || path.starts_with("/docs/") => {
                let rest = path.strip_prefix("/docs").filter(|rest| !rest.is_empty()).unwrap_or("/").to_owned();
                let mut request = request;
                *request.uri_mut() = rest.parse().unwrap_or_default();
                let mut docs = platform_http::Docs::new(NAME, "/docs", "/openapi.json")
                    .session("/console/session")
                    .link("Console", "/console");
                let Ok(reply) = docs.call(request).await;
                reply
            }
            _ => return Err(request),
        };
        Ok(reply.map(boxed))
    }

    /// Returns the public keys of all tenants.
    fn jwks(&self) -> String {
        let of_tenant = |tenant: &Tenant| {
            let keys: Value = serde_json::from_str(&tenant.jwks()).unwrap_or_default();
            keys.get("keys").and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let keys: Vec<Value> = self.tenants().iter().flat_map(of_tenant).collect();
        json!({ "keys": keys }).to_string()
    }

    /// Runs a request on a tenant with its faults, and logs it.
    async fn run(&self, tenant: &Tenant, request: Request<Body>) -> Response<Body> {
        let (started, is_grpc, beginning) = (Instant::now(), is_grpc(request.headers()), Beginning::default());
        let (head, body) = request.into_parts();
        let method = self.method_of(tenant, &head, is_grpc);
        let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let subject = token_part(&head.headers, 1).and_then(|claims| Some(claims.get("sub")?.as_str()?.to_owned()));
        let mut logged = LoggedRequest {
            time: tenant.now(),
            protocol: if is_grpc { "GRPC" } else { "REST" },
            method,
            http_method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: String::new(),
            identity: subject,
            request_id: text("x-request-id"),
            status: 0,
            grpc_status: None,
            fault: false,
            micros: 0,
        };
        let fault = logged.method.as_deref().and_then(|method| tenant.0.faults.next(method));
        logged.fault = fault.is_some();
        if let Some(fault) = &fault
            && !fault.delay.is_zero()
        {
            tokio::time::sleep(fault.delay).await;
        }
        let body = Body::new(Copied::new(body, beginning.clone()));
        let response = match fault.and_then(|fault| Some((fault.error()?, fault.after))) {
            None => dispatch(tenant, Request::from_parts(head, body)).await,
            Some((error, after)) => {
                let lost = Request::from_parts(head.clone(), Body::default());
                if after {
                    drop(dispatch(tenant, Request::from_parts(head, body)).await);
                } else {
                    // Clients may send all of the body before they read the reply.
                    let limits = &self.0.shared.limits;
                    drop(read_body(body, limits.body, limits.body_time).await);
                }
                refuse(tenant, lost, error).await
            }
        };
        logged.status = response.status().as_u16();
        if is_grpc {
            let code = response.headers().get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
            logged.grpc_status = Some(code.unwrap_or(0));
        } else {
            logged.body = beginning.text();
        }
        logged.micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(method) = &logged.method {
            self.0.coverage.add(method, is_grpc, logged.is_error());
        }
        tenant.0.log.add(logged);
        response
    }

    /// Returns the method of a request, such as `ReposService.ListRepos`; `None` for an unknown one.
    fn method_of(&self, tenant: &Tenant, head: &Parts, is_grpc: bool) -> Option<String> {
        let path = head.uri.path();
        if is_grpc {
            let name = rpc(path)?;
            return tenant.grpc().ok()?.methods.get(&name).cloned();
        }
        tenant.0.rest.method_of(&head.method, path).or_else(|| tenant.service_at(&head.method, path).map(str::to_owned))
    }
}

impl<B> Service<Request<B>> for Emulator
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let emulator = self.clone();
        let request = request.map(boxed);
        Box::pin(async move { Ok(emulator.answer(request).await) })
    }
}

/// Answers a request on a tenant.
async fn dispatch(tenant: &Tenant, request: Request<Body>) -> Response<Body> {
    if is_grpc(request.headers()) {
        return match tenant.grpc() {
            Ok(grpc) => {
                let Ok(response) = grpc.service.clone().call(request).await;
                response.map(boxed)
            }
            Err(error) => tenant.0.rest.refuse(request.uri().path(), error).map(boxed),
        };
    }
    if request.uri().path().starts_with("/import/") {
        let Ok(reply) = tenant.0.import.clone().call(request).await;
        return reply.map(boxed);
    }
    let Ok(reply) = tenant.0.rest.clone().call(request).await;
    reply.map(boxed)
}

/// Rejects a request, in the form of its protocol.
async fn refuse(tenant: &Tenant, request: Request<Body>, error: Error) -> Response<Body> {
    match tenant.grpc() {
        Ok(grpc) if is_grpc(request.headers()) => grpc.service.refuse(request, error).await.map(boxed),
        _ => tenant.0.rest.refuse(request.uri().path(), error).map(boxed),
    }
}

fn boxed<B>(body: B) -> Body
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Body::new(body.map_err(Into::into))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns a part of the token of a request, which is not verified: 0 is the header, 1 the claims.
fn token_part(headers: &HeaderMap, number: usize) -> Option<Map<String, Value>> {
    let token = bearer(headers).ok()??;
    input::token_part(token, number)
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// Returns the reply to a request of the administration that was rejected.
pub(crate) fn rejected(emulator: &Emulator, refusal: Refusal) -> platform_http::Reply {
    refusal.into_reply(&emulator.0.default.platform().settings().service_domain)
}

impl Emulator {
    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }
}
