//! The console of the emulator.

use std::sync::Arc;

use async_trait::async_trait;
use platform_console::{Console, Options, ShortToken, Tokens};
use platform_core::iam::Iam;
use platform_engine::{
    error::{Error, Result},
    platform::Platform,
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_services::openapi::{INFO, NAME};

use crate::input::token_part;

/// Returns the console of all tenants, whose kinds are the same.
pub(crate) fn open(platform: &Platform, url: &str) -> Console {
    let mut options = Options::new(NAME, url);
    options.about = INFO.about().to_owned();
    options.version = env!("CARGO_PKG_VERSION").to_owned();
    if cfg!(feature = "docs") {
        options.docs = "/docs".to_owned();
    }
    options.tokens = Some(Arc::new(Same));
    Console::new(platform, &options)
}

/// Gives the page the user's own token: those of the emulator need no protection, and the page of a tenant other than the
/// default one could not renew a shorter one, because a request without a token is for the default tenant.
#[derive(Debug)]
struct Same;

#[async_trait]
impl Tokens for Same {
    /// The console has verified the token.
    async fn shorten(&self, token: &str) -> Result<ShortToken> {
        let expires = token_part(token, 1).and_then(|claims| claims.get("exp")?.as_i64()?.checked_mul(1000));
        let expires = Timestamp::from_millis(expires.ok_or_else(|| Error::unauthenticated("The token never expires"))?);
        Ok(ShortToken { token: Secret::new(token), expires, session_expires: expires })
    }

    async fn name(&self, platform: &Platform, identity: &Uid) -> Result<String> {
        Iam::of(platform).label(identity).await
    }

    async fn end(&self, platform: &Platform, identity: &Uid, session: &str, until: Timestamp) -> Result<()> {
        Iam::of(platform).end_session(identity, session, until).await
    }
}
