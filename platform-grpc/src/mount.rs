//! Methods other than those of the kinds.

use std::fmt;

use async_trait::async_trait;
use platform_engine::error::Result;
use serde_json::{Map, Value};

/// Methods that [`Grpc::mount`](crate::Grpc::mount) serves, other than those of the kinds: for example, the token
/// services of `platform-services`. Their messages are in the
/// [descriptors](platform_engine::platform::Builder::descriptors) of the platform.
///
/// Calls have the smaller limits of token paths, and count as calls without a token.
#[async_trait]
pub trait Mount: fmt::Debug + Send + Sync + 'static {
    /// Returns the number that identifies a method, such as `Exchange` of
    /// `chainguard.platform.oidc.SecurityTokenService`, in the other functions; `None` if the method is not of this
    /// mount.
    fn find(&self, service: &str, method: &str) -> Option<usize>;

    /// Returns the domain of errors, such as `iam`.
    fn domain(&self) -> &'static str;

    /// Returns whether calls of a method change nothing, so that a reply may be replaced by an error when the budget of
    /// unread replies is used up. By default false.
    fn is_read_only(&self, _method: usize) -> bool {
        false
    }

    /// Checks the bearer token of a call before its message is read, without I/O.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a token where one is needed, and for a malformed one.
    fn check_token(&self, method: usize, token: Option<&str>) -> Result<()>;

    /// Runs a method and returns its reply, as JSON for the message of the reply. The request has the populated fields
    /// of its message as proto3 JSON.
    ///
    /// # Errors
    /// The errors of the method.
    async fn call(&self, method: usize, token: Option<&str>, request: Map<String, Value>) -> Result<Value>;
}
