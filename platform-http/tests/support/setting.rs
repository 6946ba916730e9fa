//! Platform on the memory store whose tokens are uids. The tests of other transports and of imports include this file
//! too.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::sync::Arc;

use async_trait::async_trait;
use platform_core::{
    iam::{Bootstrap, Iam},
    resources::advisory::PublicAdvisories,
    tokens::{
        Begun, Confirmation, CredentialOf, Exchange, Failure, Finished, Held, ProviderResponse, RawToken, Refresh,
        Register, Registration, SignIn, SignInService, TokenPair, TokenService, WhoAmI,
    },
};
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Error, Result},
    kind::Registered,
    platform::{Platform, Settings},
    seal::Secret,
    store::{Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{SeededEntropy, TestClock};

/// Uid of the organization that every test platform has.
pub const ORG: &str = "63921b2c44617e3f2603851537be0123af4a57d7";
/// Uid of its operator.
pub const OPERATOR: &str = "7f0c2b1d44617e3f2603851537be0123af4a57d8";

/// Accepts the uid of an identity as its token. `panic` and `stall` are the faults of an authenticator.
#[derive(Debug)]
pub struct UidIsToken;

#[async_trait]
impl Authenticator for UidIsToken {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        match token {
            "panic" => panic!("a secret of the authenticator"),
            "stall" => std::future::pending().await,
            token => platform_testkit::UidIsToken.authenticate(token).await,
        }
    }
}

/// Token service that accepts no credential, rejects `malformed` by its form, and begins no sign-in.
#[derive(Debug)]
pub struct NoTokens;

fn refused<T>() -> Result<T> {
    Err(Error::unauthenticated("The token is invalid"))
}

#[async_trait]
impl TokenService for NoTokens {
    fn check_form(&self, credential: &str, _: CredentialOf) -> Result<()> {
        if credential == "malformed" { refused() } else { Ok(()) }
    }
    async fn exchange(&self, _: &str, _: &Exchange) -> Result<RawToken> {
        refused()
    }
    async fn refresh(&self, _: &str, _: &Refresh) -> Result<TokenPair> {
        refused()
    }
    async fn who_am_i(&self, _: &str) -> Result<WhoAmI> {
        refused()
    }
    async fn register(&self, _: &str, _: &Register) -> Result<Registration> {
        refused()
    }
    async fn unregister(&self, _: &str, _: &str) -> Result<()> {
        refused()
    }
}

#[async_trait]
impl SignInService for NoTokens {
    fn url(&self) -> &str {
        "http://localhost:8080"
    }
    fn forget_expired(&self) {}
    async fn begin(&self, _: SignIn, _: Held) -> Result<Begun> {
        refused()
    }
    async fn complete(&self, _: ProviderResponse, _: &str, _: Held) -> Result<Secret, Failure> {
        Ok(refused()?)
    }
    async fn confirmation(&self, _: &str) -> Result<Confirmation> {
        refused()
    }
    async fn confirm(&self, _: &str, _: &str, _: bool) -> Result<Finished, Failure> {
        Ok(refused()?)
    }
    async fn has_verified_organization(&self, _: &str) -> Result<bool> {
        Ok(false)
    }
}

/// Returns a platform with one organization and its operator.
pub async fn platform() -> Platform {
    platform_over(Arc::new(MemoryStore::new())).await
}

/// Returns such a platform on an empty store.
pub async fn platform_over(store: Arc<dyn Store>) -> Platform {
    platform_of(store, &[]).await
}

/// Returns such a platform with further services.
pub async fn platform_of(store: Arc<dyn Store>, services: &[Registered]) -> Platform {
    let settings = Settings {
        service_domain: "platform.test".to_owned(),
        operators: [Uid::parse(OPERATOR).unwrap()].into(),
        ..Settings::default()
    };
    let clock = TestClock::ticking(Timestamp::from_millis(1_700_000_000_000), 1000);
    let platform = platform_v1::builder(store, clock, SeededEntropy::new(1))
        .kinds(services)
        .settings(settings)
        .data(PublicAdvisories::of([Uid::parse(ORG).unwrap()]))
        .ephemeral_keys()
        .build()
        .unwrap();
    let first = Bootstrap {
        organization: Uid::parse(ORG).unwrap(),
        organization_name: "acme".to_owned(),
        operator: Uid::parse(OPERATOR).unwrap(),
    };
    Iam::of(&platform).bootstrap(&first).await.unwrap();
    platform
}
