//! The seam to whatever proves identities.

use std::fmt::Debug;

use async_trait::async_trait;

use super::Caller;
use crate::error::Result;

/// Turns bearer tokens into callers. Transports call it on each request, so what it has verified it should remember.
#[async_trait]
pub trait Authenticator: Debug + Send + Sync + 'static {
    /// Returns the caller that the token proves.
    ///
    /// # Errors
    /// UNAUTHENTICATED when it proves none; the message tells the client no more than which rule the token breaks.
    async fn authenticate(&self, token: &str) -> Result<Caller>;
}
