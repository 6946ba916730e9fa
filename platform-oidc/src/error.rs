//! Errors of token verification, worded for clients.
//!
//! No message quotes the token, a key or an issuer's response: the sender of a forged token learns which rule it or the
//! issuer broke, and nothing else. Details for the operator are logged where they occur.

use platform_outbound::fetch::FetchError;

/// The reason why a token is rejected.
///
/// Every variant except [`TokenError::Unavailable`], [`TokenError::Busy`] and [`TokenError::Document`] means "not
/// authenticated". After the first two, retrying the same token may succeed.
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
    #[error("the token's algorithm is not accepted; use RS, PS or ES with 256, 384 or 512, or EdDSA with Ed25519")]
    Algorithm,
    /// The header's `typ` belongs to another kind of token.
    #[error("the token is not an access token: its `typ` is that of another kind of token")]
    Kind,
    /// `iss` is not a trusted issuer.
    #[error("the token's issuer is not trusted")]
    Issuer,
    /// The issuer has no key with this `kid` and `alg`.
    #[error("the token's signing key is unknown")]
    Key,
    /// The issuer publishes a key with this `kid`, which cannot be used; the text says why.
    #[error("the issuer's key with the token's `kid` cannot be used: {0}")]
    UnusableKey(&'static str),
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
    /// The issuer's documents were refused, so that there are no keys. Retrying does not help: the issuer's URL or its
    /// documents have to be corrected.
    #[error(
        "the {document} of the token's issuer is refused: {rule}. Correct the issuer's URL as it is configured here, or \
         the issuer"
    )]
    Document {
        /// `discovery document` or `key set`.
        document: &'static str,
        /// The violated rule.
        rule: DocumentRule,
    },
    /// The issuer's keys could not be fetched and are not cached; retrying the same token may succeed.
    #[error("the token's issuer cannot be reached")]
    Unavailable,
}

/// The rule that a document of an issuer violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentRule {
    /// A rule about the contents.
    #[error("{0}")]
    Contents(&'static str),
    /// The response has this status, which a repetition does not change.
    #[error("the issuer answers with status {0}, and it must be 200 without a redirect")]
    Status(u16),
}

impl DocumentRule {
    /// Returns the rule that a response violates which could not be read, if a repetition does not change it.
    pub(crate) fn of(error: &FetchError) -> Option<Self> {
        const CERTIFICATE: &str = "the certificate of its server must be valid for the host and of a certification \
                                   authority that this server trusts";
        match error {
            FetchError::TooLong => Some(Self::Contents("it is too long")),
            error if error.is_certificate() => Some(Self::Contents(CERTIFICATE)),
            _ => None,
        }
    }
}
