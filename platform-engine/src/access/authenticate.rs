//! The interface to the authentication of bearer tokens.

use std::fmt::Debug;

use async_trait::async_trait;

use super::Caller;
use crate::error::Result;

/// Authenticates bearer tokens. Transports call [`authenticate`](Self::authenticate) for each request, so an
/// implementation should cache the tokens that it has verified.
#[async_trait]
pub trait Authenticator: Debug + Send + Sync + 'static {
    /// Returns the caller that the token proves.
    ///
    /// # Errors
    /// UNAUTHENTICATED when the token is invalid. The message is sent to the client and names only the rule that the
    /// token breaks.
    async fn authenticate(&self, token: &str) -> Result<Caller>;
}
