//! The issuer of upstream tokens: it replaces the identity providers of persons and workloads.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use platform_engine::{
    access::Capabilities,
    clock::Clock,
    entropy::Entropy,
    error::{Error, Result},
    fields,
    kind::Field,
};
use platform_keys::{Algorithm, Keys};
use platform_oidc::Issuer;
use platform_outbound::{
    Fetch,
    fetch::{FetchError, HttpFetch},
};
use serde_json::{Map, Value, json};

use crate::{
    StartError,
    aws::Aws,
    clock::EmulatorClock,
    input::{duration, text},
};

/// The URL of the issuer. No name below `.invalid` exists (RFC 6761): the emulator answers for it in process.
pub const UPSTREAM_ISSUER: &str = "https://issuer.emulator.invalid";

const DISCOVERY: &str = "https://issuer.emulator.invalid/.well-known/openid-configuration";
const JWKS: &str = "https://issuer.emulator.invalid/jwks.json";

/// The lifetime of an upstream token, unless a request says otherwise.
const TTL: Duration = Duration::from_secs(3600);

/// The maximum lifetime. Our choice: as that of the server's own tokens.
const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// A request for an upstream token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upstream {
    /// The subject: the person or the workload.
    pub subject: String,
    /// The verified email address; empty for none.
    pub email: String,
    /// The audience; empty for the emulator's URL.
    pub audience: String,
    /// The lifetime; zero for an hour.
    pub ttl: Duration,
    /// Other claims.
    pub claims: Map<String, Value>,
}

impl Upstream {
    const FIELDS: &'static [Field] = &[
        Field::string("subject").required(),
        Field::string("email"),
        Field::string("audience"),
        Field::new("ttl", platform_engine::kind::Type::Duration),
    ];

    /// Reads a request from JSON.
    pub(crate) fn read(mut object: Map<String, Value>) -> Result<Self> {
        let claims = match object.remove("claims") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(claims)) => claims,
            Some(_) => return Err(Error::invalid_field("claims", "must be an object")),
        };
        let mut input = fields::read(Self::FIELDS, &Capabilities::default(), object, None);
        input.require(Self::FIELDS);
        let ttl = duration(&mut input, "ttl", MAX_TTL).unwrap_or_default();
        let get = |name| text(&input, name).unwrap_or_default();
        let read = Self { subject: get("subject"), email: get("email"), audience: get("audience"), ttl, claims };
        input.checked()?;
        Ok(read)
    }
}

/// The keys and documents of the issuer in one tenant.
#[derive(Debug)]
pub(crate) struct UpstreamIssuer {
    keys: Arc<Keys>,
    documents: Arc<Documents>,
}

impl UpstreamIssuer {
    /// Generates keys. Documents of other issuers are fetched by `network`, and requests that are signed with a key of
    /// `aws` are answered in process.
    pub(crate) fn new(
        clock: &EmulatorClock,
        entropy: &Arc<dyn Entropy>,
        network: &Arc<HttpFetch>,
        aws: &Arc<Aws>,
    ) -> Result<Self, StartError> {
        let keys = Arc::new(Keys::generate(Algorithm::Es256, clock, &**entropy).map_err(StartError::of)?);
        let issuer = Issuer::new(UPSTREAM_ISSUER, Arc::clone(&keys), Arc::new(clock.clone()), Arc::clone(entropy));
        let jwks = issuer.map_err(StartError::of)?.jwks().into();
        Ok(Self { keys, documents: Arc::new(Documents { jwks, network: Arc::clone(network), aws: Arc::clone(aws) }) })
    }

    /// Returns the id of the key that signs the tokens.
    pub(crate) fn key_id(&self) -> &str {
        self.keys.signing().kid()
    }

    /// Returns a client that answers for this issuer in process, and fetches the documents of others over the network.
    pub(crate) fn fetch(&self) -> Arc<dyn Fetch> {
        Arc::clone(&self.documents) as _
    }

    /// Issues a token for an audience.
    pub(crate) fn token(&self, request: &Upstream, audience: &str, clock: &EmulatorClock) -> Result<String> {
        let issued = clock.now().seconds();
        let ttl = if request.ttl.is_zero() { TTL } else { request.ttl };
        let mut claims = Map::new();
        let audience = if request.audience.is_empty() { audience } else { &request.audience };
        for (name, value) in [
            ("iss", json!(UPSTREAM_ISSUER)),
            ("sub", json!(request.subject)),
            ("aud", json!(audience)),
            ("iat", json!(issued)),
            ("exp", json!(issued.saturating_add_unsigned(ttl.as_secs()))),
        ] {
            claims.insert(name.to_owned(), value);
        }
        if !request.email.is_empty() {
            claims.insert("email".to_owned(), json!(request.email));
            claims.insert("email_verified".to_owned(), json!(true));
        }
        claims.extend(request.claims.clone());
        self.keys.signing().sign("JWT", &claims).map_err(Error::internal)
    }
}

/// Answers for the issuer.
#[derive(Debug)]
struct Documents {
    jwks: Bytes,
    network: Arc<HttpFetch>,
    aws: Arc<Aws>,
}

#[async_trait]
impl Fetch for Documents {
    async fn get(&self, url: &str, max_bytes: usize) -> Result<Bytes, FetchError> {
        match url {
            DISCOVERY => Ok(json!({ "issuer": UPSTREAM_ISSUER, "jwks_uri": JWKS }).to_string().into()),
            JWKS => Ok(self.jwks.clone()),
            _ => self.network.get(url, max_bytes).await,
        }
    }

    async fn send(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, FetchError> {
        if self.aws.knows(request.headers()) {
            let (head, body) = request.into_parts();
            return Ok(self.aws.answer(&head, &body).await);
        }
        self.network.send(request, max_bytes).await
    }
}
