//! Implements the [`Authenticator`] that the platform's transports call, with the verifier.

use async_trait::async_trait;
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Code, Error, Result},
};

use crate::{error::TokenError, verifier::Verifier};

#[async_trait]
impl Authenticator for Verifier {
    async fn authenticate(&self, token: &str) -> Result<Caller> {
        self.verify(token).await.map(|verified| verified.caller()).map_err(refusal)
    }
}

/// Returns the error of the API for a token that is not accepted.
pub(crate) fn refusal(error: TokenError) -> Error {
    let message = format!("Not authenticated: {error}");
    match error {
        TokenError::Unavailable => Error::new(Code::Unavailable, message),
        TokenError::Document { .. } => Error::blocked("ISSUER_DOCUMENT", error.to_string()),
        _ => Error::unauthenticated(message),
    }
}
