//! Tenants: each is a platform of its own.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::Method;
use parking_lot::Mutex;
use platform_console::{Console, Links};
use platform_core::{
    iam::{self, Iam},
    outbox::Outbox,
    resources::{advisory::PublicAdvisories, events::SinkPolicy, iam::StaticKeyPolicy},
};
use platform_engine::{
    access::Caller,
    clock::Clock,
    entropy::Entropy,
    error::{Code, Error, Result},
    platform::{Platform, Settings},
    seal::Secret,
    store::memory::{MemorySnapshot, MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_events::{Dispatcher, Options, Webhook, WebhookOptions};
use platform_grpc::Grpc;
use platform_http::{Limits, Rest, mount::Mount};
use platform_keys::{Algorithm, Bootstrap, Keys};
use platform_oidc::{
    AccessToken, DiscoveryOptions, Issuer, Sts, StsOptions, TrustedIssuer, Verifier, VerifierOptions, offline_claims,
};
use platform_outbound::{HttpFetch, Network};
use platform_services::{BrowserSignIn, Feeds, Import, Scim, Tokens};
use platform_system::{Pool, SystemEntropy};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    StartError,
    aws::{self, Aws},
    clock::EmulatorClock,
    console,
    faults::{Fault, Faults, matches},
    requests::{LoggedRequest, RequestLog},
    seed::{self, Preset, Seed, Seeded},
    service::Operation,
    upstream::{UPSTREAM_ISSUER, Upstream, UpstreamIssuer},
};

/// The name of the first organization of a tenant.
pub const ORGANIZATION: &str = "platform";

/// The lifetime of a token, unless a call says otherwise.
pub(crate) const TTL: Duration = Duration::from_secs(12 * 60 * 60);

/// The maximum number of snapshots of a tenant. Our choice.
const MAX_SNAPSHOTS: usize = 100;

/// The maximum length of the name of a tenant or a snapshot. Our choice.
const MAX_NAME: usize = 100;

/// The state that all tenants of an emulator share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) url: String,
    pub(crate) runtime: Handle,
    network: Arc<HttpFetch>,
    pub(crate) limits: Limits,
    /// Those of every tenant, set by the first one.
    services: OnceLock<Vec<Operation>>,
    /// That of every tenant, set by the first one.
    console: OnceLock<Console>,
}

impl Shared {
    pub(crate) fn new(url: &str, runtime: Handle) -> Result<Self, StartError> {
        let network = Arc::new(HttpFetch::new(&Network::default()).map_err(StartError::of)?);
        // Tests of one machine send all requests from one address.
        let limits = Limits { open_rate: None, ..Limits::default() };
        Ok(Self { url: url.to_owned(), runtime, network, limits, services: OnceLock::new(), console: OnceLock::new() })
    }
}

/// A tenant of an emulator: a platform with a store, a clock, faults and a log of requests of its own. Clones are the
/// same tenant.
///
/// A request belongs to the tenant whose key signed its token.
#[derive(Debug, Clone)]
pub struct Tenant(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    name: String,
    shared: Arc<Shared>,
    uids: Bootstrap,
    store: MemoryStore,
    clock: EmulatorClock,
    platform: Arc<Platform>,
    issuer: Arc<Issuer>,
    keys: Arc<Keys>,
    upstream: UpstreamIssuer,
    verifier: Arc<Verifier>,
    tokens: Arc<Sts>,
    pub(crate) rest: Rest,
    pub(crate) import: Import,
    /// Built by the first call, because it decodes the descriptors of the whole contract.
    grpc: OnceLock<Result<GrpcApi, String>>,
    initial: MemorySnapshot,
    snapshots: Mutex<BTreeMap<String, MemorySnapshot>>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) log: Arc<RequestLog>,
    pub(crate) aws: Arc<Aws>,
    /// Held while a seed is applied, which must not be mixed with another one.
    seeding: tokio::sync::Mutex<()>,
    /// Dropped to end the delivery of events.
    _stop: oneshot::Sender<()>,
}

/// The gRPC API of a tenant.
#[derive(Debug)]
pub(crate) struct GrpcApi {
    pub(crate) service: Grpc,
    /// The names of its methods, such as `ReposService.ListRepos`.
    pub(crate) methods: HashSet<String>,
}

impl Tenant {
    /// Creates a tenant with an organization and its operator.
    pub(crate) async fn new(shared: &Arc<Shared>, name: String) -> Result<Self, StartError> {
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let (store, clock) = (MemoryStore::pausing(Pool::default()), EmulatorClock::default());
        let keys = Arc::new(Keys::generate(Algorithm::Es256, &clock, &*entropy).map_err(StartError::of)?);
        let uids = Bootstrap::draw(&*entropy);
        let settings = Settings {
            public_url: shared.url.clone(),
            operators: [uids.operator.clone()].into(),
            ..Settings::default()
        };
        let platform = platform_v1::builder(Arc::new(store.clone()), clock.clone(), SystemEntropy)
            .offload(Pool::default())
            .settings(settings)
            .data(SinkPolicy::default().allow_http(true))
            .data(StaticKeyPolicy::default().check(platform_oidc::jwks::check_static_keys))
            .data(PublicAdvisories::of([uids.organization.clone()]))
            .page_keys(keys.page_keys())
            .seal_keys(keys.seal_keys())
            .build();
        let platform = Arc::new(platform.map_err(StartError::of)?);
        let first = iam::Bootstrap {
            organization: uids.organization.clone(),
            organization_name: ORGANIZATION.to_owned(),
            operator: uids.operator.clone(),
        };
        Iam::of(&platform).bootstrap(&first).await.map_err(StartError::of)?;

        let clock_of_tokens: Arc<dyn Clock> = Arc::new(clock.clone());
        let issuer = Issuer::new(&*shared.url, Arc::clone(&keys), Arc::clone(&clock_of_tokens), Arc::clone(&entropy));
        let issuer = Arc::new(issuer.map_err(StartError::of)?);
        let (faults, log) = (Arc::new(Faults::default()), Arc::new(RequestLog::default()));
        let aws = Arc::new(Aws::new(clock.clone(), Arc::clone(&faults), Arc::clone(&log)));
        let upstream = UpstreamIssuer::new(&clock, &entropy, &shared.network, &aws)?;
        let discovery = DiscoveryOptions { allow_http: true, ..DiscoveryOptions::default() };
        let trusted =
            TrustedIssuer::new(UPSTREAM_ISSUER, discovery.clone(), upstream.fetch(), Arc::clone(&clock_of_tokens));
        let options = VerifierOptions {
            own: Some(Arc::clone(&issuer)),
            trusted: vec![trusted.map_err(StartError::of)?],
            audiences: vec![shared.url.clone()],
            cache_bytes: VerifierOptions::CACHE_BYTES,
        };
        let verifier = Arc::new(Verifier::new(options, Arc::clone(&clock_of_tokens)).map_err(StartError::of)?);
        let options = StsOptions {
            platform: Arc::clone(&platform),
            verifier: Arc::clone(&verifier),
            fetch: upstream.fetch(),
            discovery,
            clock: clock_of_tokens,
        };
        let tokens = Arc::new(Sts::new(options).map_err(StartError::of)?);
        let rest = Rest::new(Arc::clone(&platform), verifier.clone(), shared.limits.clone());
        let of_tokens = Tokens::new(tokens.clone()).redeeming(tokens.clone());
        let sign_ins = BrowserSignIn::new(tokens.clone());
        let import = Import::all(Arc::clone(&platform), verifier.clone(), shared.limits.clone());
        let feeds = Feeds::new(Arc::clone(&platform), shared.url.clone());
        shared.services.get_or_init(|| {
            let parts = [of_tokens.openapi(), sign_ins.openapi(), Scim.openapi(), import.openapi(), feeds.openapi()];
            parts.iter().flat_map(Operation::of).collect()
        });
        let rest = rest.map_err(StartError::of)?.mount(of_tokens).mount(sign_ins).mount(Scim).mount(feeds);
        let console = shared.console.get_or_init(|| console::open(&platform, &shared.url));
        let rest = rest.mount(console.clone());
        let stop = deliver_events(shared, &platform, &issuer)?;
        Ok(Self(Arc::new(Inner {
            name,
            shared: Arc::clone(shared),
            uids,
            initial: store.snapshot(),
            store,
            clock,
            platform,
            issuer,
            keys,
            upstream,
            verifier,
            tokens,
            rest,
            import,
            grpc: OnceLock::new(),
            snapshots: Mutex::default(),
            faults,
            log,
            aws,
            seeding: tokio::sync::Mutex::default(),
            _stop: stop,
        })))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the URL of the emulator, which all tenants share.
    pub fn url(&self) -> &str {
        &self.0.shared.url
    }

    /// Returns the uid of the first organization, whose name is [`ORGANIZATION`].
    pub fn organization(&self) -> &Uid {
        &self.0.uids.organization
    }

    /// Returns the uid of the operator, who owns the organization and may do everything.
    pub fn operator(&self) -> &Uid {
        &self.0.uids.operator
    }

    /// Returns the platform, for calls in process.
    pub fn platform(&self) -> &Arc<Platform> {
        &self.0.platform
    }

    /// Returns the operator as the caller of a call in process.
    pub fn caller(&self) -> Caller {
        Caller::new(self.operator().clone())
    }

    /// Returns a new access token of the operator, which is valid for 12 hours by the tenant's clock.
    ///
    /// # Errors
    /// As [`Tenant::token_for`].
    pub fn token(&self) -> Result<String> {
        self.token_for(self.operator(), TTL)
    }

    /// Returns a new access token of an identity, which need not exist.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when the lifetime is not from 1 second to 30 days.
    pub fn token_for(&self, identity: &Uid, ttl: Duration) -> Result<String> {
        let audiences = [self.url()];
        let request = AccessToken { subject: identity, audiences: &audiences, ttl, claims: offline_claims() };
        let issued = self.0.issuer.access_token(&request);
        issued.map(|issued| issued.token).map_err(|error| Error::invalid_field("ttl", error.to_string()))
    }

    /// Returns a token of the issuer [`UPSTREAM_ISSUER`], with which a person registers, or which an identity with this
    /// issuer exchanges for an access token.
    ///
    /// # Errors
    /// INTERNAL when the cryptographic library fails.
    pub fn upstream_token(&self, request: &Upstream) -> Result<String> {
        self.0.upstream.token(request, self.url(), &self.0.clock)
    }

    /// Returns to the initial state: the data, the principals of AWS, the time, the faults and the log of requests. Snapshots and tokens are
    /// kept, and the coverage is that of all tenants.
    pub fn reset(&self) {
        self.0.store.restore(&self.0.initial);
        self.0.clock.reset();
        self.0.faults.clear();
        self.0.log.clear();
        self.0.aws.clear();
        self.wake_deliveries();
    }

    /// Takes a snapshot of the data under a name, which replaces an earlier one of that name. Neither the time nor the
    /// faults are part of it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a name that is not 1 to 100 letters, digits, `-`, `_` and `.`; RESOURCE_EXHAUSTED when
    /// there are 100 snapshots.
    pub fn snapshot(&self, name: &str) -> Result<()> {
        check_name("name", name)?;
        let mut snapshots = self.0.snapshots.lock();
        if snapshots.len() >= MAX_SNAPSHOTS && !snapshots.contains_key(name) {
            let error = format!("A tenant has at most {MAX_SNAPSHOTS} snapshots; delete one first");
            return Err(Error::new(Code::ResourceExhausted, error));
        }
        snapshots.insert(name.to_owned(), self.0.store.snapshot());
        Ok(())
    }

    /// Returns to the data of a snapshot. Requests that are in progress see the data of either, and writes that were
    /// decided with the data before are repeated.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn restore(&self, name: &str) -> Result<()> {
        let snapshot = self.0.snapshots.lock().get(name).cloned().ok_or_else(|| no_snapshot(name))?;
        self.0.store.restore(&snapshot);
        self.wake_deliveries();
        Ok(())
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.0.snapshots.lock().remove(name).map(drop).ok_or_else(|| no_snapshot(name))
    }

    /// Returns the names of the snapshots, sorted.
    pub fn snapshots(&self) -> Vec<String> {
        self.0.snapshots.lock().keys().cloned().collect()
    }

    /// Creates the resources of a YAML document, as the operator. All of them are created, or none.
    ///
    /// Nobody else should write to the tenant at the same time: if a resource is rejected, the data is that of the
    /// beginning.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a document of another form, and those of the creates. The fields of violations begin with
    /// the resource, such as `repos[2].name`.
    pub async fn seed(&self, yaml: &str) -> Result<Seeded> {
        self.apply(Seed::Document(seed::parse(yaml.as_bytes())?)).await
    }

    /// Creates the resources of a preset, as [`Tenant::seed`] does.
    ///
    /// # Errors
    /// As [`Tenant::seed`].
    pub async fn seed_preset(&self, preset: Preset) -> Result<Seeded> {
        self.apply(Seed::Preset(preset)).await
    }

    pub(crate) async fn apply(&self, seed: Seed) -> Result<Seeded> {
        let tenant = self.clone();
        // On the emulator's runtime, which costly checks need, whatever runs this call.
        let applied = self.0.shared.runtime.spawn(async move {
            let _turn = tenant.0.seeding.lock().await;
            let before = tenant.0.store.snapshot();
            let applied = seed.apply(&tenant).await;
            if applied.is_err() {
                tenant.0.store.restore(&before);
            }
            applied
        });
        applied.await.map_err(Error::internal)?
    }

    /// Returns the clock.
    pub fn clock(&self) -> &EmulatorClock {
        &self.0.clock
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Sets the time. Tokens that were issued later than this time are not valid yet.
    pub fn set_time(&self, time: Timestamp) {
        self.0.clock.set(time);
        self.wake_deliveries();
    }

    /// Advances the time. Page tokens, invites, access tokens and leases expire, and deliveries of events are retried.
    pub fn advance(&self, by: Duration) {
        self.0.clock.advance(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
        self.wake_deliveries();
    }

    /// Freezes the time, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        self.0.clock.freeze(frozen);
    }

    /// Makes a link that signs a browser in to the console as the operator, once and within 15 minutes. Only for the
    /// default tenant, to which requests without a token belong.
    ///
    /// # Errors
    /// INTERNAL when the token cannot be signed.
    pub fn console_link(&self) -> Result<String> {
        let platform = self.platform();
        let Some(console) = self.0.shared.console.get() else { return Err(Error::internal("there is no console")) };
        let token = Secret::new(self.token()?);
        let code = console.links().make(platform.entropy(), platform.now(), self.operator(), token)?;
        Ok(Links::url(self.url(), &code))
    }

    /// Adds a fault. The first of the faults that matches a call applies to it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if its pattern matches no method, and RESOURCE_EXHAUSTED when there are 100.
    pub fn inject(&self, fault: Fault) -> Result<()> {
        let methods = self.methods()?;
        let mut methods = methods.iter().map(String::as_str).chain([aws::METHOD]);
        if !methods.any(|method| matches(&fault.method, method)) {
            let rule = format!("matches no method of the API: {}; GET /_emulator/coverage lists them", fault.method);
            return Err(Error::invalid_field("method", rule));
        }
        self.0.faults.add(fault)
    }

    /// Returns the faults that are left, in their order.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.faults.all()
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.0.faults.clear();
    }

    /// Returns the last 1,000 requests at most, oldest first, whose method matches a pattern such as
    /// `ReposService.*`. `*` matches all, also those of unknown paths.
    pub fn requests(&self, pattern: &str) -> Vec<LoggedRequest> {
        self.0.log.of(pattern)
    }

    /// Clears the log of requests.
    pub fn clear_requests(&self) {
        self.0.log.clear();
    }

    /// Returns the ids of the keys that sign the tenant's tokens.
    pub(crate) fn key_ids(&self) -> [String; 2] {
        [self.0.keys.signing().kid().to_owned(), self.0.upstream.key_id().to_owned()]
    }

    /// Returns the public keys of the tenant's tokens, as a JSON Web Key Set.
    pub(crate) fn jwks(&self) -> String {
        self.0.issuer.jwks()
    }

    /// Returns the OpenID configuration of the emulator's issuer, which is the same in all tenants.
    pub(crate) fn discovery_document(&self) -> String {
        self.0.issuer.discovery_document()
    }

    /// Returns the gRPC API, which the first call builds.
    ///
    /// # Errors
    /// INTERNAL when the descriptors are invalid.
    pub(crate) fn grpc(&self) -> Result<&GrpcApi> {
        let build = || {
            let Inner { platform, verifier, tokens, shared, .. } = &*self.0;
            let grpc = Grpc::new(Arc::clone(platform), verifier.clone(), shared.limits.clone())
                .and_then(|grpc| grpc.mount(Tokens::new(tokens.clone())))
                .map_err(|error| error.to_string())?;
            let methods = grpc.paths().into_iter().filter_map(rpc).collect();
            Ok(GrpcApi { service: grpc, methods })
        };
        self.0.grpc.get_or_init(build).as_ref().map_err(|error| Error::internal(error.clone()))
    }

    /// Returns all methods that the tenant serves, of kinds and of services.
    pub(crate) fn methods(&self) -> Result<BTreeSet<String>> {
        let grpc = self.grpc()?.methods.iter().cloned();
        let services = self.services().map(|service| service.name.clone());
        Ok(self.0.rest.methods().into_iter().chain(grpc).chain(services).collect())
    }

    fn services(&self) -> impl Iterator<Item = &Operation> {
        self.0.shared.services.get().into_iter().flatten()
    }

    /// Returns the name of the service's method that a request over REST is for.
    pub(crate) fn service_at(&self, method: &Method, path: &str) -> Option<&str> {
        self.services().find(|service| service.is_at(method, path)).map(|service| &*service.name)
    }

    /// Makes the lanes that wait for a time look at it again.
    fn wake_deliveries(&self) {
        let platform = Arc::clone(&self.0.platform);
        self.0.shared.runtime.spawn(async move {
            let mut last = None;
            while let Ok(page) = Outbox::of(&platform).subscriptions(last.as_ref(), 100).await
                && let Some(end) = page.last()
            {
                platform.wake(&page);
                last = Some(end.clone());
            }
        });
    }
}

/// Returns the names of the service and the method in the path of a call, such as `ReposService.ListRepos`.
pub(crate) fn rpc(path: &str) -> Option<String> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    Some(format!("{}.{method}", service.rsplit('.').next().unwrap_or(service)))
}

/// Starts the delivery of events, also to sinks on this machine.
fn deliver_events(
    shared: &Shared,
    platform: &Arc<Platform>,
    issuer: &Arc<Issuer>,
) -> Result<oneshot::Sender<()>, StartError> {
    let options = WebhookOptions { allow_http: true, allow_private: true, ..WebhookOptions::default() };
    let webhook = Webhook::new(Arc::clone(issuer), options).map_err(StartError::of)?;
    let dispatcher = Dispatcher::new(Arc::clone(platform), Arc::new(webhook), Options::default());
    let (stop, stopped) = oneshot::channel::<()>();
    shared.runtime.spawn(dispatcher.run(async { drop(stopped.await) }));
    Ok(stop)
}

fn no_snapshot(name: &str) -> Error {
    Error::new(Code::NotFound, format!("Snapshot not found: {name}"))
}

/// Checks the name of a tenant or a snapshot.
pub(crate) fn check_name(field: &str, name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_plain) {
        Ok(())
    } else {
        Err(Error::invalid_field(field, "must be 1 to 100 letters, digits, `-`, `_` and `.`"))
    }
}
