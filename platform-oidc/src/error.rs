//! Why a token is refused, in words that a client may read.
//!
//! No message quotes the token, a key or what an issuer answered: whoever sends a forged token learns which rule it
//! broke and nothing else. What the operator needs to know is logged where it happens.

/// Says why a token is refused.
///
/// Every variant but [`TokenError::Unavailable`] and [`TokenError::Busy`] is final for this token and means "not authenticated".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Longer than [`crate::jws::MAX_TOKEN`].
    #[error("the token is too long")]
    TooLong,
    /// Not a compact JWS as [`crate::jws::Jws::parse`] reads it; the text says what is wrong.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// The header's `alg` is outside the allow-list.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// The header's `typ` is that of another kind of token.
    #[error("the token is not an access token")]
    Kind,
    /// Nobody here trusts `iss`.
    #[error("the token's issuer is not trusted")]
    Issuer,
    /// The issuer has no key under this `kid` that fits this `alg`.
    #[error("the token's signing key is not known")]
    Key,
    /// The signature is not that key's over these bytes.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim is missing, of another type, or out of bounds; the text is its name.
    #[error("the token's claim `{0}` is missing or malformed")]
    Claim(&'static str),
    /// `exp` has passed, leeway included.
    #[error("the token has expired")]
    Expired,
    /// `nbf` or `iat` lies ahead, leeway included.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `aud` names no audience of this service.
    #[error("the token is for another audience")]
    Audience,
    /// The keys are not at hand, and too many issuers are being asked for theirs already; the same token may pass
    /// later.
    #[error("too many issuers are being asked for their keys")]
    Busy,
    /// The issuer's keys could not be fetched, and none are at hand; the same token may pass later.
    #[error("the token's issuer cannot be reached")]
    Unavailable,
}
