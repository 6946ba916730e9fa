//! Implements the [`Authenticator`] that the platform's transports call, with the verifier.

use async_trait::async_trait;
use platform_core::{
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
};

use crate::{error::TokenError, verifier::Verifier};

#[async_trait]
impl Authenticator for Verifier {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        match self.verify(token).await {
            Ok(verified) => Ok(verified.caller()),
            Err(error @ TokenError::Unavailable) => {
                Err(Error::new(Code::Unavailable, format!("Not authenticated: {error}")))
            }
            Err(error) => Err(Error::unauthenticated(format!("Not authenticated: {error}"))),
        }
    }
}
