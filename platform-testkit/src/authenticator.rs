//! Tokens without cryptography.

use async_trait::async_trait;

use platform_engine::{
    access::{Authenticator, Caller},
    error::{Error, Result},
    uid::Uid,
};

/// Accepts the uid of an identity as its token. It proves nothing, so a server must never use it.
#[derive(Debug, Clone, Copy, Default)]
pub struct UidIsToken;

#[async_trait]
impl Authenticator for UidIsToken {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        let uid = Uid::parse(token).map_err(|_| Error::unauthenticated("The token is not a uid"))?;
        Ok(Caller::new(uid))
    }
}
