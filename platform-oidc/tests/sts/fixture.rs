//! A platform on the memory store, issuers without a network, and helpers for the tests of the token service.

use std::sync::Arc;

use platform_core::{
    iam::{Bootstrap, Iam},
    resources::iam::{Group, Identity, RoleBinding},
    tokens::{Exchange, RawToken, Refresh, TokenPair, TokenService},
};
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
    platform::{Platform, Settings},
    seal::Secret,
    store::{Store, memory::MemoryStore},
    uid::Uid,
};
use platform_keys::{Algorithm, Keys, SigningKey, VerifyingKey};
use platform_oidc::{DiscoveryOptions, Issuer, SignInProvider, Sts, StsOptions, Verifier, jwks::KeySet};
use platform_outbound::Fetch;
use platform_testkit::TestClock;
use serde_json::{Map, Value, json};

use crate::common::{API, StubFetch, TRUSTED, claims, clock, entropy, issuer_of, key, own_keys, trusted, verifier};
use crate::guarded::GuardedStore;

pub const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// An operator with an organization, one trusted issuer, and a token service.
pub struct Fixture {
    pub clock: Arc<TestClock>,
    pub stub: Arc<StubFetch>,
    pub store: Arc<MemoryStore>,
    pub platform: Arc<Platform>,
    pub verifier: Arc<Verifier>,
    pub issuer: Arc<Issuer>,
    pub sts: Sts,
    pub operator: Caller,
    pub org: Uid,
    /// The key of the trusted issuer.
    pub key: SigningKey,
    /// The keys of the server's own tokens.
    pub own_keys: Arc<Keys>,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(None).await
    }

    /// As [`Fixture::new`], with another way to fetch the documents of issuers that tenants configure.
    pub async fn with(fetch: Option<Arc<dyn Fetch>>) -> Self {
        Self::build(fetch, Algorithm::Rs256).await
    }

    /// As [`Fixture::with`], with another algorithm for the server's own tokens.
    pub async fn build(fetch: Option<Arc<dyn Fetch>>, algorithm: Algorithm) -> Self {
        let (clock, stub, store) = (clock(), StubFetch::new(), Arc::new(MemoryStore::new()));
        let entropy = entropy();
        let operator = Uid::new_root(&*entropy);
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let platform =
            platform_core::builder(Arc::new(GuardedStore(store.clone())), (*clock).clone(), (*entropy).clone());
        let platform = Arc::new(platform.settings(settings).ephemeral_keys().build().unwrap());
        let org = Uid::new_root(&*entropy);
        let first =
            Bootstrap { organization: org.clone(), organization_name: "acme".to_owned(), operator: operator.clone() };
        Iam::of(&platform).bootstrap(&first).await.unwrap();
        let own_keys = own_keys(algorithm, &clock);
        let issuer = issuer_of(&own_keys, &clock);
        let verifier = Arc::new(verifier(Some(issuer.clone()), vec![trusted(&stub, &clock)], &clock));
        let discovery = DiscoveryOptions { allow_http: true, ..DiscoveryOptions::default() };
        let fetch = fetch.unwrap_or_else(|| stub.clone());
        let options = StsOptions {
            platform: platform.clone(),
            verifier: verifier.clone(),
            fetch,
            discovery,
            clock: clock.clone(),
        };
        let sts = Sts::new(options).unwrap().with_sign_in(operator_provider()).unwrap();
        let key = key(Algorithm::Es256);
        stub.publish(&[key.verifying()]);
        Self {
            clock,
            stub,
            store,
            platform,
            verifier,
            issuer,
            sts,
            operator: Caller::new(operator),
            org,
            key,
            own_keys,
        }
    }

    /// Publishes the keys of an issuer.
    pub fn publish(&self, issuer: &str, keys: &[&VerifyingKey]) {
        let set = KeySet::new(keys.iter().copied().cloned()).unwrap();
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
        self.stub.respond(&format!("{issuer}/.well-known/openid-configuration"), Ok(document));
        self.stub.respond(&format!("{issuer}/keys"), Ok(set.to_json()));
    }

    /// Returns a token of the trusted issuer, with changes.
    pub fn upstream(&self, changes: Value) -> String {
        token(&self.key, changes)
    }

    pub async fn group(&self, parent: &str, name: &str) -> Uid {
        let group = Group { name: name.to_owned(), ..Group::default() };
        self.platform.create(&self.operator, parent, &group).await.unwrap().uid
    }

    /// Creates an identity with this relationship.
    pub async fn identity(&self, group: &str, relationship: Value) -> Uid {
        let mut body = json!({ "name": "ci" });
        body.as_object_mut().unwrap().extend(relationship.as_object().unwrap().clone());
        let identity: Identity = serde_json::from_value(body).unwrap();
        self.platform.create(&self.operator, group, &identity).await.unwrap().uid
    }

    /// Creates an identity that matches tokens of the trusted issuer for `alice`, with a binding as viewer.
    pub async fn alice(&self) -> Uid {
        let alice = self.identity(&self.org, json!({ "claimMatch": { "issuer": TRUSTED, "subject": "alice" } })).await;
        self.bind(&alice, VIEWER, &self.org).await;
        alice
    }

    pub async fn bind(&self, identity: &str, role: &str, group: &str) -> Uid {
        let (identity_uid, role_uid) = (Uid::opaque(identity), Uid::opaque(role));
        let binding = RoleBinding { identity_uid, role_uid, ..RoleBinding::default() };
        self.platform.create(&self.operator, group, &binding).await.unwrap().uid
    }

    pub async fn exchange(&self, token: &str, request: Value) -> Result<RawToken> {
        self.sts.exchange(token, &Exchange::read(object(request))?).await
    }

    /// Exchanges a token for a token of an identity, with the API as audience.
    pub async fn assume(&self, token: &str, identity: &str) -> Result<RawToken> {
        self.exchange(token, json!({ "aud": [API], "identity": identity })).await
    }

    pub async fn refresh(&self, token: &str, request: Value) -> Result<TokenPair> {
        self.sts.refresh(token, &Refresh::read(object(request))?).await
    }

    /// Returns the caller that this token authenticates.
    pub async fn caller(&self, token: &str) -> Caller {
        self.verifier.authenticate(token).await.unwrap()
    }

    /// Returns whether a token grants access to a group.
    pub async fn sees(&self, token: &str, group: &str) -> bool {
        let caller = self.caller(token).await;
        match self.platform.get::<Group>(&caller, group).await {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(error.code(), Code::PermissionDenied | Code::Unauthenticated), "{error:?}");
                false
            }
        }
    }

    /// Removes the registration id from a person's record, as in records of earlier releases.
    pub async fn forget_registration(&self, person: &Uid) {
        use platform_engine::{
            kind::Resource,
            store::{Epoch, Key},
            write::Write,
        };
        let key = Key::new(Identity::KIND.name, person.clone());
        let record = self.store.get(&[key], &[]).await.unwrap().records.pop().flatten().unwrap();
        assert!(!record.private.is_empty());
        let identity: Identity = serde_json::from_slice(&record.body).unwrap();
        let mut write = Write::default();
        write.put(person, &identity, bytes::Bytes::new()).unwrap();
        write.raise(Epoch::new("grants", person.clone()));
        self.store.commit(write.into_commit()).await.unwrap();
    }

    /// Returns the contents of the store as text.
    pub async fn stored(&self) -> String {
        use platform_engine::store::{Key, Query, Scope};
        let mut contents = String::new();
        for kind in self.platform.kinds() {
            let page = self.store.list(&Query::new(kind.name, Scope::All)).await.unwrap();
            let keys: Vec<_> = page.items.into_iter().map(|item| Key::new(kind.name, item.uid())).collect();
            for record in self.store.get(&keys, &[]).await.unwrap().records.into_iter().flatten() {
                contents.push_str(&String::from_utf8_lossy(&record.body));
                contents.push_str(&String::from_utf8_lossy(&record.private));
            }
        }
        contents
    }
}

/// Returns the operator's provider for browser sign-ins: the trusted issuer.
fn operator_provider() -> SignInProvider {
    SignInProvider {
        issuer: TRUSTED.to_owned(),
        client_id: "server".to_owned(),
        client_secret: Some(Secret::new("server secret")),
    }
}

/// Returns a token signed with this key.
pub fn token(key: &SigningKey, changes: Value) -> String {
    key.sign("JWT", &claims(changes)).unwrap()
}

pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Returns the claims of a token without verifying it.
pub fn claims_of(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&crate::common::decode(payload)).unwrap()
}

/// Returns the code and message of an error.
#[track_caller]
pub fn error_of<T: std::fmt::Debug>(result: Result<T>) -> (Code, String) {
    let error: Error = result.unwrap_err();
    (error.code(), error.message().to_owned())
}

#[track_caller]
pub fn code_of<T: std::fmt::Debug>(result: Result<T>) -> Code {
    error_of(result).0
}
