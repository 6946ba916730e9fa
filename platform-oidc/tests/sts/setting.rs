//! A platform over the memory store, issuers on no network, and short ways to say what these tests say often.

use std::sync::Arc;

use platform_core::{
    access::{Authenticator, Caller},
    clock::Clock,
    entropy::Entropy,
    error::{Code, Error, Result},
    iam::{Bootstrap, Iam},
    platform::{Platform, Settings},
    resources::iam::{Group, Identity, RoleBinding},
    store::{Store, memory::MemoryStore},
    timestamp::Timestamp,
    tokens::{Exchange, RawToken, Refresh, TokenPair, TokenService},
    uid::Uid,
};
use platform_oidc::{
    Algorithm, DiscoveryOptions, Fetch, Issuer, Sts, StsOptions, Verifier,
    jwks::KeySet,
    key::{SigningKey, VerifyingKey},
};
use serde_json::{Map, Value, json};

use crate::common::{
    API, Stub, TRUSTED, TestClock, TestEntropy, claims, clock, entropy, key, own_issuer, trusted, verifier,
};

#[derive(Debug)]
struct SharedClock(Arc<TestClock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

#[derive(Debug)]
struct SharedEntropy(Arc<TestEntropy>);

impl Entropy for SharedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

pub const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// The operator and their organisation, one issuer that the operator trusts, and a token service.
pub struct Setting {
    pub clock: Arc<TestClock>,
    pub stub: Arc<Stub>,
    pub store: Arc<MemoryStore>,
    pub platform: Arc<Platform>,
    pub verifier: Arc<Verifier>,
    pub issuer: Arc<Issuer>,
    pub sts: Sts,
    pub operator: Caller,
    pub org: Uid,
    /// The key of the trusted issuer.
    pub key: SigningKey,
}

impl Setting {
    pub async fn new() -> Self {
        Self::with(None).await
    }

    /// As [`Setting::new`], with another way to reach the issuers that tenants name.
    pub async fn with(fetch: Option<Arc<dyn Fetch>>) -> Self {
        Self::build(fetch, Algorithm::Rs256).await
    }

    /// As [`Setting::with`], with a server that signs by this algorithm.
    pub async fn build(fetch: Option<Arc<dyn Fetch>>, algorithm: Algorithm) -> Self {
        let (clock, stub, store) = (clock(), Stub::new(), Arc::new(MemoryStore::new()));
        let dice = entropy();
        let operator = Uid::new_root(&*dice);
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let platform = platform_core::builder(store.clone(), SharedClock(clock.clone()), SharedEntropy(dice.clone()));
        let platform = Arc::new(platform.settings(settings).build());
        let org = Uid::new_root(&*dice);
        let first =
            Bootstrap { organization: org.clone(), organization_name: "acme".to_owned(), operator: operator.clone() };
        Iam::of(&platform).bootstrap(&first).await.unwrap();
        let issuer = own_issuer(algorithm, &clock);
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
        let sts = Sts::new(options).unwrap();
        let key = key(Algorithm::Es256);
        stub.publish(&[key.verifying()]);
        Self { clock, stub, store, platform, verifier, issuer, sts, operator: Caller::new(operator), org, key }
    }

    /// Lets an issuer publish its keys.
    pub fn publish(&self, issuer: &str, keys: &[&VerifyingKey]) {
        let set = KeySet::new(keys.iter().copied().cloned()).unwrap();
        let document = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
        self.stub.answer(&format!("{issuer}/.well-known/openid-configuration"), Ok(document));
        self.stub.answer(&format!("{issuer}/keys"), Ok(set.to_json()));
    }

    /// A token of the trusted issuer, with changes.
    pub fn upstream(&self, changes: Value) -> String {
        token(&self.key, changes)
    }

    pub async fn group(&self, parent: &str, name: &str) -> Uid {
        let group = Group { name: name.to_owned(), ..Group::default() };
        self.platform.create(&self.operator, parent, &group).await.unwrap().uid
    }

    /// Creates an identity of this relationship.
    pub async fn identity(&self, group: &str, relationship: Value) -> Uid {
        let mut body = json!({ "name": "ci" });
        body.as_object_mut().unwrap().extend(relationship.as_object().unwrap().clone());
        let identity: Identity = serde_json::from_value(body).unwrap();
        self.platform.create(&self.operator, group, &identity).await.unwrap().uid
    }

    /// Creates an identity that tokens of the trusted issuer for `alice` match, bound as viewer.
    pub async fn alice(&self) -> Uid {
        let alice = self.identity(&self.org, json!({ "claimMatch": { "issuer": TRUSTED, "subject": "alice" } })).await;
        self.bind(&alice, VIEWER, &self.org).await;
        alice
    }

    pub async fn bind(&self, identity: &str, role: &str, group: &str) -> Uid {
        let (identity_uid, role_uid) = (identity.to_owned(), role.to_owned());
        let binding = RoleBinding { identity_uid, role_uid, ..RoleBinding::default() };
        self.platform.create(&self.operator, group, &binding).await.unwrap().uid
    }

    pub async fn exchange(&self, token: &str, request: Value) -> Result<RawToken> {
        self.sts.exchange(token, &Exchange::read(object(request))?).await
    }

    /// Exchanges a token for one of an identity, for the API.
    pub async fn assume(&self, token: &str, identity: &str) -> Result<RawToken> {
        self.exchange(token, json!({ "aud": [API], "identity": identity })).await
    }

    pub async fn refresh(&self, token: &str, request: Value) -> Result<TokenPair> {
        self.sts.refresh(token, &Refresh::read(object(request))?).await
    }

    /// What a request with this token acts as.
    pub async fn caller(&self, token: &str) -> Caller {
        self.verifier.authenticate(token).await.unwrap()
    }

    /// Tells whether a token lets its bearer see a group.
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

    /// Makes a person's record one of before there were registration ids.
    pub async fn forget_registration(&self, person: &Uid) {
        use platform_core::{kind::Resource, store::Key, write::Write};
        let key = Key::new(Identity::KIND.name, person.clone());
        let record = self.store.get(&[key], &[]).await.unwrap().records.pop().flatten().unwrap();
        assert!(!record.private.is_empty());
        let identity: Identity = serde_json::from_slice(&record.body).unwrap();
        let mut write = Write::default();
        write.put(person, &identity, bytes::Bytes::new()).unwrap();
        write.raise(format!("grants/{person}").into());
        self.store.commit(write.into_commit()).await.unwrap();
    }

    /// What is in the store, as text.
    pub async fn stored(&self) -> String {
        use platform_core::store::{Key, Query, Scope};
        let mut all = String::new();
        for kind in self.platform.kinds() {
            let page = self.store.list(&Query::new(kind.name, Scope::All)).await.unwrap();
            let keys: Vec<_> = page.items.into_iter().map(|item| Key::new(kind.name, item.uid)).collect();
            for record in self.store.get(&keys, &[]).await.unwrap().records.into_iter().flatten() {
                all.push_str(&String::from_utf8_lossy(&record.body));
                all.push_str(&String::from_utf8_lossy(&record.private));
            }
        }
        all
    }
}

/// A token signed by this key.
pub fn token(key: &SigningKey, changes: Value) -> String {
    key.sign("JWT", &claims(changes)).unwrap()
}

pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// The claims of a token, unverified.
pub fn said(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&crate::common::decode(payload)).unwrap()
}

/// Code and message of a refusal.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(done: Result<T>) -> (Code, String) {
    let error: Error = done.unwrap_err();
    (error.code(), error.message().to_owned())
}

#[track_caller]
pub fn code<T: std::fmt::Debug>(done: Result<T>) -> Code {
    refusal(done).0
}
