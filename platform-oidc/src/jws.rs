//! JSON Web Signatures in the compact form (RFC 7515), as far as access tokens need them.
//!
//! Why not a JWT crate: the common one takes its cryptography from a process-wide provider, which another dependency of
//! an embedder may have chosen, and leaves a key's `alg`, `use` and `key_ops` and strict base64url to its caller. This
//! module implements only the framing; aws-lc-rs does the signatures.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_keys::{Algorithm, VerifyingKey};
use serde_json::{Map, Value};

use crate::{error::TokenError, json};

/// Selects the key of an issuer that verifies a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySelector<'a> {
    /// The header's `kid`.
    pub(crate) kid: Option<&'a str>,
    /// The header's `alg`.
    pub(crate) algorithm: Algorithm,
}

/// The maximum length of a token, in bytes; our choice: 16 KiB.
pub const MAX_TOKEN: usize = 16 * 1024;
/// The maximum length of a header, in bytes of JSON; our choice: 8 KiB, since some issuers put certificate chains
/// there.
const MAX_HEADER: usize = 8 * 1024;
/// The maximum length of a `kid`, in bytes; our choice.
pub(crate) const MAX_KID: usize = 512;

/// A parsed compact JWS. It is not verified: do not trust its contents yet.
pub struct Jws<'a> {
    /// The algorithm that the header names.
    pub algorithm: Algorithm,
    /// The header's `kid`.
    pub kid: Option<String>,
    /// The header's `typ`.
    pub typ: Option<String>,
    /// The payload's bytes.
    pub payload: Vec<u8>,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    /// Parses a token without verifying it.
    ///
    /// A token has three base64url parts without padding, without non-zero trailing bits and without any other
    /// character. The header is a JSON object without duplicate keys; `kid` and `typ` may be `null`, which counts as
    /// absent (our choice). `crit` and `b64` are rejected, since no extension is supported; `jwk`, `jku`, `x5c`, `x5t`
    /// and `x5u` are ignored, since keys come only from the issuer.
    ///
    /// # Errors
    /// [`TokenError::TooLong`], [`TokenError::Malformed`], [`TokenError::Algorithm`].
    pub fn parse(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN {
            return Err(TokenError::TooLong);
        }
        let parts = TokenError::Malformed("expected three parts separated by dots");
        let (signed, signature) = token.rsplit_once('.').ok_or(parts)?;
        let (header, payload) = signed.split_once('.').ok_or(parts)?;
        // A fourth part would leave a dot in the payload, which is not base64url.
        let header = decode(header)?;
        if header.len() > MAX_HEADER {
            return Err(TokenError::Malformed("the header is too long"));
        }
        let header = json::object(&header)
            .ok_or(TokenError::Malformed("the header must be a JSON object without duplicate keys"))?;
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(TokenError::Malformed("the header requires an extension"));
        }
        let name = text(&header, "alg")?.ok_or(TokenError::Algorithm)?;
        let kid = text(&header, "kid")?.map(str::to_owned);
        if kid.as_ref().is_some_and(|kid| kid.len() > MAX_KID) {
            return Err(TokenError::Malformed("the key id is too long"));
        }
        Ok(Self {
            algorithm: Algorithm::from_name(name).ok_or(TokenError::Algorithm)?,
            kid,
            typ: text(&header, "typ")?.map(str::to_owned),
            payload: decode(payload)?,
            signed: signed.as_bytes(),
            signature: decode(signature)?,
        })
    }

    /// Returns the `kid` and algorithm that select the issuer's key.
    pub(crate) fn key_selector(&self) -> KeySelector<'_> {
        KeySelector { kid: self.kid.as_deref(), algorithm: self.algorithm }
    }

    /// Verifies the signature with a key, which must allow the header's algorithm.
    ///
    /// # Errors
    /// [`TokenError::Key`] for a key that does not allow the algorithm, [`TokenError::Signature`] for an invalid signature.
    pub fn verify(&self, key: &VerifyingKey) -> Result<(), TokenError> {
        if !key.allows(self.algorithm) {
            return Err(TokenError::Key);
        }
        let is_valid = key.verifies(self.algorithm, self.signed, &self.signature);
        if is_valid { Ok(()) } else { Err(TokenError::Signature) }
    }
}

/// Omits the payload and the signature.
impl std::fmt::Debug for Jws<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jws").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed("a part is not base64url"))
}

fn text<'a>(header: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, TokenError> {
    match header.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenError::Malformed("a header parameter is not a string")),
    }
}

#[cfg(test)]
mod tests {
    use platform_keys::SigningKey;

    use super::*;

    fn encode(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    #[test]
    fn algorithm_names_are_exact() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name("Ed25519"), Some(Algorithm::EdDsa), "the name of RFC 9864");
        for name in [
            "", "none", "None", "nOnE", "rs256", "RS256 ", "HS256", "HS384", "HS512", "ES256K", "EDDSA", "ed25519",
            "Ed448", "RSA-OAEP",
        ] {
            assert_eq!(Algorithm::from_name(name), None, "{name}");
        }
    }

    fn parse_with_header(header: &str) -> Result<(), TokenError> {
        Jws::parse(&format!("{}.e30.AAAA", encode(header.as_bytes()))).map(drop)
    }

    #[test]
    fn headers_and_key_ids_are_bounded() {
        let header = |len: usize| {
            let empty = r#"{"alg":"RS256","x":""}"#;
            empty.replace(r#":""}"#, &format!(r#":"{}"}}"#, "x".repeat(len - empty.len())))
        };
        assert_eq!(parse_with_header(&header(8192)), Ok(()));
        assert_eq!(parse_with_header(&header(8193)), Err(TokenError::Malformed("the header is too long")));
        let kid = |len: usize| format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "x".repeat(len));
        assert_eq!(parse_with_header(&kid(512)), Ok(()));
        assert_eq!(parse_with_header(&kid(513)), Err(TokenError::Malformed("the key id is too long")));
    }

    #[test]
    fn headers_with_unsupported_extensions_are_rejected() {
        assert_eq!(parse_with_header(r#"{"alg":"RS256"}"#), Ok(()));
        assert_eq!(parse_with_header(r#"{"alg":"ES256","kid":"a","typ":"JWT","x5t":"x","jku":"https://a/"}"#), Ok(()));
        for header in [
            r#"{"alg":"RS256","crit":["exp"],"exp":1}"#,
            r#"{"alg":"RS256","crit":[]}"#,
            r#"{"alg":"RS256","b64":false}"#,
            r#"{"alg":"RS256","b64":true}"#,
            r#"{"alg":"RS256","alg":"RS256"}"#,
            r#"{"alg":"none","alg":"RS256"}"#,
            r#"{"alg":["RS256"]}"#,
            r#"{"alg":"RS256","kid":1}"#,
            r#"{"alg":"RS256","typ":{}}"#,
            r#"["RS256"]"#,
            "",
        ] {
            assert!(matches!(parse_with_header(header), Err(TokenError::Malformed(_))), "{header}");
        }
        assert_eq!(parse_with_header(r#"{"alg":"RS256","kid":null,"typ":null}"#), Ok(()));
        for header in
            ["{}", r#"{"alg":null}"#, r#"{"alg":""}"#, r#"{"alg":"none"}"#, r#"{"alg":"HS256"}"#, r#"{"ALG":"RS256"}"#]
        {
            assert_eq!(parse_with_header(header), Err(TokenError::Algorithm), "{header}");
        }
        let long = |length| format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "k".repeat(length));
        assert_eq!(parse_with_header(&long(MAX_KID)), Ok(()));
        assert!(parse_with_header(&long(MAX_KID + 1)).is_err());
        assert_eq!(parse_with_header(&long(1 << 20)), Err(TokenError::TooLong));
        let wide = format!(r#"{{"alg":"RS256","x5c":"{}"}}"#, "k".repeat(MAX_HEADER));
        assert_eq!(parse_with_header(&wide), Err(TokenError::Malformed("the header is too long")));
    }

    #[test]
    fn only_three_strictly_encoded_parts_are_accepted() {
        let header = encode(br#"{"alg":"RS256"}"#);
        assert!(Jws::parse(&format!("{header}.e30.AAAA")).is_ok());
        for token in [
            String::new(),
            ".".into(),
            "..".into(),
            header.clone(),
            format!("{header}.e30"),
            format!("{header}.e30.AAAA."),
            format!("{header}.e30.AAAA.AAAA"),
            format!("{header}.e30.AAAA.AAAA.AAAA"),
            format!("{header}.e30.AAAA\n"),
            format!(" {header}.e30.AAAA"),
            format!("{header}.e30.AAA="),
            format!("{header}.e30=.AAAA"),
            format!("{header}.e31.AAAA"),
            format!("{header}.e30.AAB"),
            format!("{header}.e30.A"),
            format!("{header}.e30.AA+/"),
            format!("{header}.e30.AA AA"),
            format!("{header}\0.e30.AAAA"),
            format!("{}.e30.AAAA", encode(b"\xff")),
            format!(r#"{{"protected":"{header}","payload":"e30","signature":"AAAA"}}"#),
        ] {
            assert!(Jws::parse(&token).is_err(), "{token:?}");
        }
    }

    /// Returns an RSA key as its issuer publishes it without `alg`.
    fn for_any_algorithm(key: &VerifyingKey) -> Option<VerifyingKey> {
        let jwk = key.to_jwk();
        let number = |name: &str| jwk.get(name)?.as_str().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        VerifyingKey::rsa_for(None, None, &number("n")?, &number("e")?).ok()
    }

    #[test]
    fn a_signature_verifies_only_with_the_public_half_of_its_key() {
        let keys = Algorithm::ALL.map(|algorithm| SigningKey::generate(algorithm).unwrap());
        let claims = Map::from_iter([("sub".to_owned(), Value::from("me"))]);
        for key in &keys {
            let token = key.sign("JWT", &claims).unwrap();
            let jws = Jws::parse(&token).unwrap();
            assert_eq!(jws.kid.as_deref(), Some(key.kid()));
            assert_eq!(jws.payload, br#"{"sub":"me"}"#);
            assert_eq!(jws.verify(key.verifying()), Ok(()));
            let stranger = SigningKey::generate(key.verifying().algorithm()).unwrap();
            assert_eq!(jws.verify(stranger.verifying()), Err(TokenError::Signature));
            let algorithm = key.verifying().algorithm();
            for other in keys.iter().filter(|other| other.verifying().algorithm() != algorithm) {
                assert_eq!(jws.verify(other.verifying()), Err(TokenError::Key));
            }
            let any = for_any_algorithm(key.verifying());
            assert_eq!(any.map(|any| jws.verify(&any)), algorithm.is_rsa().then_some(Ok(())), "{algorithm:?}");
        }
    }
}
