//! Errors of token verification, worded for clients.
//!
//! No message quotes the token, a key or an issuer's response: the sender of a forged token learns which rule it broke
//! and nothing else. Details for the operator are logged where they occur.

/// The reason why a token is rejected.
///
/// Every variant except [`TokenError::Unavailable`] and [`TokenError::Busy`] means "not authenticated": clients should
/// not retry with the same token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Longer than [`crate::jws::MAX_TOKEN`].
    #[error("the token is too long")]
    TooLong,
    /// Not a compact JWS that [`crate::jws::Jws::parse`] accepts; the text says what is wrong.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// The header's `alg` is outside the allow-list.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// The header's `typ` belongs to another kind of token.
    #[error("the token is not an access token")]
    Kind,
    /// `iss` is not a trusted issuer.
    #[error("the token's issuer is not trusted")]
    Issuer,
    /// The issuer has no key with this `kid` and `alg`.
    #[error("the token's signing key is unknown")]
    Key,
    /// The signature does not verify with that key.
    #[error("the token's signature is invalid")]
    Signature,
    /// A claim is missing, of the wrong type, or out of bounds; the text is its name.
    #[error("the token's claim `{0}` is missing or malformed")]
    Claim(&'static str),
    /// `exp` has passed, leeway included.
    #[error("the token has expired")]
    Expired,
    /// `nbf` or `iat` is in the future, leeway included.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `aud` does not contain an audience of this service.
    #[error("the token is for another audience")]
    Audience,
    /// The issuer's keys are not cached, and too many fetches of keys are in progress; retrying the same token may
    /// succeed.
    #[error("too many fetches of issuers' keys are in progress")]
    Busy,
    /// The issuer's keys could not be fetched and are not cached; retrying the same token may succeed.
    #[error("the token's issuer cannot be reached")]
    Unavailable,
}
