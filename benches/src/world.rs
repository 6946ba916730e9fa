//! A platform on a store, a caller with a token, and the calls that a transport makes for it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use platform_core::resources::registry::Repo;
use platform_engine::{
    access::{Authenticator, Caller},
    aip::page_token::PageKeys,
    kind::{Kind, Registered, Resource},
    options::RequestOptions,
    platform::{ListReply, Platform, Settings},
    request::ListRequest,
    store::Store,
};
use platform_keys::{Algorithm, Keys};
use platform_oidc::{AccessToken, Issuer, Verifier, VerifierOptions};
use platform_system::{SystemClock, SystemEntropy};
use pollster::block_on;

use crate::data::{directory, operator};

const URL: &str = "http://127.0.0.1:8080";

/// A platform and a caller that owns the first organization.
#[derive(Debug)]
pub struct World {
    /// The platform.
    pub platform: Platform,
    /// The caller, authenticated by its token.
    pub caller: Caller,
    listed: Registered,
    verifier: Verifier,
    token: String,
}

impl World {
    /// Opens a platform on a store with repos.
    pub fn over(store: Arc<dyn Store>) -> Self {
        Self::with(store, Settings::default())
    }

    /// Opens a platform with these settings on a store with repos.
    pub fn with(store: Arc<dyn Store>, settings: Settings) -> Self {
        Self::of(store, settings, Repo::KIND)
    }

    /// Opens a platform on a store with resources of a kind, which [`World::list`] and [`World::get`] then use.
    pub fn listing(store: Arc<dyn Store>, kind: &Kind) -> Self {
        Self::of(store, Settings::default(), kind)
    }

    fn of(store: Arc<dyn Store>, settings: Settings, kind: &Kind) -> Self {
        let (verifier, token) = verifier();
        let platform = platform_v1::builder(store, SystemClock, SystemEntropy)
            .settings(settings)
            // The same in all processes, so that one can issue the page tokens that another uses.
            .page_keys(PageKeys::new([(1, [7; 32])]))
            .ephemeral_keys()
            .build()
            .unwrap();
        let listed = *platform.registered().iter().find(|registered| registered.kind.name == kind.name).unwrap();
        let caller = block_on(verifier.authenticate(&token)).unwrap();
        Self { platform, caller, listed, verifier, token }
    }

    /// Lists like REST: checks the bearer token, the query parameters, access and the page token.
    pub fn list(&self, pairs: &[(String, String)]) -> ListReply {
        let list = async {
            let caller = self.verifier.authenticate(&self.token).await.unwrap();
            let request = ListRequest::from_query(self.listed.kind, pairs).unwrap();
            self.platform.list_erased(Some(&caller), &self.listed, &request).await.unwrap()
        };
        block_on(list)
    }

    /// Lists, and writes the page to one buffer as in the body of a response.
    pub fn page(&self, pairs: &[(String, String)]) -> Vec<u8> {
        let reply = self.list(pairs);
        let mut json = Vec::with_capacity(20_000);
        json.extend_from_slice(format!("{{\"{}\":[", self.listed.kind.plural).as_bytes());
        for (index, item) in reply.items.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            json.extend_from_slice(item);
        }
        let token = reply.next_page_token.map(|token| format!("\"nextPageToken\":\"{token}\",")).unwrap_or_default();
        let tail = format!("],{token}\"totalCount\":\"{}\",\"skipped\":{}}}", reply.total_count, reply.skipped);
        json.extend_from_slice(tail.as_bytes());
        json
    }

    /// Gets a resource for the authenticated caller.
    pub fn get(&self, uid: &str) -> Bytes {
        block_on(self.platform.get_erased(&self.caller, &self.listed, uid, RequestOptions::none())).unwrap().body
    }

    /// Checks the bearer token and gets a resource.
    pub fn get_with_token(&self, uid: &str) -> Bytes {
        let get = async {
            let caller = self.verifier.authenticate(&self.token).await.unwrap();
            self.platform.get_erased(&caller, &self.listed, uid, RequestOptions::none()).await.unwrap().body
        };
        block_on(get)
    }
}

/// Returns the verifier of this machine's benchmarks, and a token of the operator that it accepts.
pub fn verifier() -> (Verifier, String) {
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let keys = directory().join("keys");
    std::fs::create_dir_all(&keys).unwrap();
    let keys = Keys::read_or_create(&keys, Algorithm::Rs256, &SystemClock, &SystemEntropy).unwrap();
    let issuer = Arc::new(Issuer::new(URL, Arc::new(keys), clock.clone(), entropy).unwrap());
    let request = AccessToken {
        subject: &operator(),
        audiences: &[URL],
        ttl: Duration::from_secs(24 * 60 * 60),
        claims: serde_json::Map::new(),
    };
    let token = issuer.access_token(&request).unwrap().token;
    let options = VerifierOptions {
        own: Some(issuer),
        trusted: Vec::new(),
        audiences: vec![URL.to_owned()],
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    (Verifier::new(options, clock).unwrap(), token)
}

/// Returns the parameters of a query string.
pub fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}
