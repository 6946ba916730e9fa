//! A stub issuer, times, and tokens assembled by hand.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this")]

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use platform_engine::{timestamp::Timestamp, uid::Uid};
use platform_keys::{Algorithm, Keys, SigningKey, VerifyingKey};
use platform_oidc::{AccessToken, DiscoveryOptions, Issuer, TrustedIssuer, Verifier, VerifierOptions, jwks::KeySet};
use platform_outbound::{Fetch, fetch::FetchError};
use platform_testkit::{SeededEntropy, TestClock};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

pub const OWN: &str = "http://localhost:8080";
pub const API: &str = "https://api.example";
pub const TRUSTED: &str = "https://issuer.example";
/// 2027-01-15T08:00:00Z.
pub const NOW: i64 = 1_800_000_000;

pub fn clock() -> Arc<TestClock> {
    Arc::new(TestClock::at(at(NOW)))
}

pub fn entropy() -> Arc<SeededEntropy> {
    Arc::new(SeededEntropy::new(1))
}

/// Returns the time at a number of seconds since 1970.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// A [`Fetch`] without a network, which serves stored responses. Every fetch waits for the gate, which is open at
/// first.
pub struct StubFetch {
    responses: Mutex<HashMap<String, Result<String, u16>>>,
    requested: Mutex<Vec<String>>,
    respond_to: Mutex<Option<Respond>>,
    pub gate: Semaphore,
}

/// Returns the response to a request that is sent.
type Respond = Box<dyn FnMut(&Request<Bytes>) -> Response<Bytes> + Send>;

impl fmt::Debug for StubFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubFetch").field("requested", &self.requested).finish_non_exhaustive()
    }
}

impl StubFetch {
    pub fn new() -> Arc<Self> {
        let gate = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { responses: Mutex::default(), requested: Mutex::default(), respond_to: Mutex::default(), gate })
    }

    pub fn respond(&self, url: &str, response: Result<String, u16>) {
        self.responses.lock().insert(url.to_owned(), response);
    }

    /// Sets the responses to requests that are sent, other than fetches.
    pub fn respond_to(&self, respond: impl FnMut(&Request<Bytes>) -> Response<Bytes> + Send + 'static) {
        *self.respond_to.lock() = Some(Box::new(respond));
    }

    pub fn publish(&self, keys: &[&VerifyingKey]) {
        let keys = KeySet::new(keys.iter().copied().cloned()).unwrap();
        let jwks = format!("{TRUSTED}/keys");
        self.respond(&configuration(), Ok(json!({"issuer": TRUSTED, "jwks_uri": jwks}).to_string()));
        self.respond(&jwks, Ok(keys.to_json()));
    }

    pub fn fail(&self) {
        self.respond(&configuration(), Err(503));
    }

    /// Returns the number of fetches of the discovery document.
    pub fn fetches(&self) -> usize {
        self.requested.lock().iter().filter(|url| **url == configuration()).count()
    }

    /// Returns the requested URLs, in order.
    pub fn requested(&self) -> Vec<String> {
        self.requested.lock().clone()
    }

    pub fn close_gate(&self) {
        self.gate.forget_permits(usize::MAX);
    }

    pub fn open_gate(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS);
    }
}

pub fn configuration() -> String {
    format!("{TRUSTED}/.well-known/openid-configuration")
}

#[async_trait]
impl Fetch for StubFetch {
    async fn get(&self, url: &str, _max_bytes: usize) -> Result<Bytes, FetchError> {
        self.requested.lock().push(url.to_owned());
        let _open = self.gate.acquire().await.unwrap();
        let response = self.responses.lock().get(url).cloned().unwrap_or(Err(404));
        response.map(Bytes::from).map_err(FetchError::Status)
    }

    async fn send(&self, request: Request<Bytes>, _max_bytes: usize) -> Result<Response<Bytes>, FetchError> {
        self.requested.lock().push(request.uri().to_string());
        self.respond_to.lock().as_mut().map(|respond| respond(&request)).ok_or(FetchError::TimedOut)
    }
}

pub fn key(algorithm: Algorithm) -> SigningKey {
    SigningKey::generate(algorithm).unwrap()
}

pub fn trusted(stub: &Arc<StubFetch>, clock: &Arc<TestClock>) -> TrustedIssuer {
    TrustedIssuer::new(TRUSTED, DiscoveryOptions::default(), stub.clone(), clock.clone()).unwrap()
}

pub fn own_issuer(algorithm: Algorithm, clock: &Arc<TestClock>) -> Arc<Issuer> {
    issuer_of(&own_keys(algorithm, clock), clock)
}

/// Returns the keys of the server's own issuer. Those of an algorithm are generated once for all tests of a program,
/// because generating RSA keys takes long.
pub fn own_keys(algorithm: Algorithm, clock: &Arc<TestClock>) -> Arc<Keys> {
    static KEYS: Mutex<Vec<(Algorithm, Arc<Keys>)>> = Mutex::new(Vec::new());
    let mut known = KEYS.lock();
    if let Some((_, keys)) = known.iter().find(|(of, _)| *of == algorithm) {
        return Arc::clone(keys);
    }
    let keys = Arc::new(Keys::generate(algorithm, &**clock, &*entropy()).unwrap());
    known.push((algorithm, Arc::clone(&keys)));
    keys
}

/// Returns the server's own issuer with these keys.
pub fn issuer_of(keys: &Arc<Keys>, clock: &Arc<TestClock>) -> Arc<Issuer> {
    Arc::new(Issuer::new(OWN, Arc::clone(keys), clock.clone(), entropy()).unwrap())
}

pub fn verifier(own: Option<Arc<Issuer>>, trusted: Vec<TrustedIssuer>, clock: &Arc<TestClock>) -> Verifier {
    let options = VerifierOptions {
        own,
        trusted,
        audiences: vec![API.into(), OWN.into()],
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    Verifier::new(options, clock.clone()).unwrap()
}

pub fn me() -> Uid {
    Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef")
}

pub fn own_token(issuer: &Issuer) -> String {
    let (subject, ttl) = (me(), Duration::from_secs(3600));
    let request = AccessToken { subject: &subject, audiences: &[API], ttl, claims: Map::new() };
    issuer.access_token(&request).unwrap().token
}

/// Returns the claims of a valid token of the trusted issuer, with changes; `null` removes a claim.
pub fn claims(changes: Value) -> Map<String, Value> {
    let mut claims = json!({"iss": TRUSTED, "sub": "alice", "aud": API, "iat": NOW, "exp": NOW + 3600});
    let claims = claims.as_object_mut().unwrap();
    claims.extend(changes.as_object().unwrap().clone());
    claims.retain(|_, value| !value.is_null());
    claims.clone()
}

pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn decode(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

/// Returns a token with exactly these parts.
pub fn raw_token(header: &str, claims: &str, signature: &[u8]) -> String {
    format!("{}.{}.{}", encode(header), encode(claims), encode(signature))
}
