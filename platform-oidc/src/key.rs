//! Keys: the public half, which verifies, and the private half, which signs.
//!
//! A key is for exactly one algorithm (RFC 8725 section 3.1), decided when the key is read and never by a token.

use std::fmt;

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, ParsedPublicKey,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaPublicKeyComponents,
    },
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::jws::{self, Algorithm, encode};

/// The size of an RSA modulus, in bits: below it is weak, above it costs a verifier too much. Our choice.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// A public key, and what it may be used for.
#[derive(Clone)]
pub struct VerifyingKey {
    kid: Option<String>,
    public: Public,
    thumbprint: String,
    parsed: ParsedPublicKey,
}

#[derive(Clone)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256 { x: Vec<u8>, y: Vec<u8> },
}

/// Says that a key cannot be used: malformed, too weak, too large, or not made. No key material in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key cannot be used: {0}")]
pub struct UnusableKey(pub(crate) &'static str);

impl VerifyingKey {
    /// Makes an RS256 key of a modulus and an exponent, big-endian without leading zeros.
    ///
    /// # Errors
    /// [`UnusableKey`] for a modulus outside 2048 to 4096 bits, one made by the generator of the ROCA weakness
    /// (CVE-2017-15361), or an even or tiny number.
    pub fn rsa(kid: Option<String>, n: &[u8], e: &[u8]) -> Result<Self, UnusableKey> {
        let odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
        let exponent = e.iter().fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
        if !odd(n) || !odd(e) || e.len() > 4 || exponent < 3 || e.first() == Some(&0) {
            return Err(UnusableKey("not an RSA public key"));
        }
        let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
        if !RSA_BITS.contains(&bits) || n.first() == Some(&0) {
            return Err(UnusableKey("the RSA modulus must have 2048 to 4096 bits"));
        }
        if is_roca(n) {
            return Err(UnusableKey("the RSA key was made by a generator that is known to be weak"));
        }
        let parsed = RsaPublicKeyComponents { n, e }
            .to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256)
            .map_err(|_| UnusableKey("not an RSA public key"))?;
        Ok(Self::new(kid, Public::Rsa { n: n.to_vec(), e: e.to_vec() }, parsed))
    }

    /// Makes an ES256 key of the coordinates of a point on P-256, 32 big-endian bytes each.
    ///
    /// # Errors
    /// [`UnusableKey`] for other lengths or no point of the curve.
    pub fn p256(kid: Option<String>, x: &[u8], y: &[u8]) -> Result<Self, UnusableKey> {
        if x.len() != 32 || y.len() != 32 {
            return Err(UnusableKey("coordinates of P-256 have 32 bytes"));
        }
        let point = [&[4], x, y].concat();
        let parsed =
            ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point).map_err(|_| UnusableKey("not a point on P-256"))?;
        Ok(Self::new(kid, Public::P256 { x: x.to_vec(), y: y.to_vec() }, parsed))
    }

    fn new(kid: Option<String>, public: Public, parsed: ParsedPublicKey) -> Self {
        // RFC 7638: the required members alone, in this order, without white space.
        let canonical = match &public {
            Public::Rsa { n, e } => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, encode(e), encode(n)),
            Public::P256 { x, y } => {
                format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, encode(x), encode(y))
            }
        };
        Self { kid, public, thumbprint: encode(&Sha256::digest(canonical)), parsed }
    }

    /// Returns the name by which tokens ask for this key.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Returns the one algorithm that this key verifies.
    pub fn algorithm(&self) -> Algorithm {
        match self.public {
            Public::Rsa { .. } => Algorithm::Rs256,
            Public::P256 { .. } => Algorithm::Es256,
        }
    }

    /// Returns the key's SHA-256 thumbprint (RFC 7638) in base64url: equal for equal keys, whatever their names.
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Tells whether `signature` is this key's over `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.parsed.verify_sig(message, signature).is_ok()
    }

    /// Returns the key as a JSON Web Key with `kty`, `use`, `alg`, `kid` and its public members.
    pub fn to_jwk(&self) -> Value {
        let alg = self.algorithm().name();
        let mut jwk = match &self.public {
            Public::Rsa { n, e } => json!({"kty": "RSA", "use": "sig", "alg": alg, "n": encode(n), "e": encode(e)}),
            Public::P256 { x, y } => {
                json!({"kty": "EC", "use": "sig", "alg": alg, "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
        };
        if let (Some(kid), Some(members)) = (&self.kid, jwk.as_object_mut()) {
            members.insert("kid".into(), kid.as_str().into());
        }
        jwk
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("kid", &self.kid).field("algorithm", &self.algorithm()).finish()
    }
}

/// A private key with its public half. Its `kid` is the public half's thumbprint.
pub struct SigningKey {
    pair: Pair,
    verifying: VerifyingKey,
}

enum Pair {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
}

impl SigningKey {
    /// Makes a new key: RSA of 2048 bits, which takes about a tenth of a second, or P-256. Randomness is aws-lc's.
    ///
    /// # Errors
    /// [`UnusableKey`] when the cryptographic library fails.
    pub fn generate(algorithm: Algorithm) -> Result<Self, UnusableKey> {
        const FAILED: UnusableKey = UnusableKey("it could not be made");
        match algorithm {
            Algorithm::Rs256 => RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| FAILED).and_then(Self::from_rsa),
            Algorithm::Es256 => {
                EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| FAILED).and_then(Self::from_p256)
            }
        }
    }

    /// Reads a private key of this algorithm from PKCS #8.
    ///
    /// # Errors
    /// [`UnusableKey`] for anything else, and for what [`VerifyingKey::rsa`] refuses.
    pub fn from_pkcs8(algorithm: Algorithm, der: &[u8]) -> Result<Self, UnusableKey> {
        const MALFORMED: UnusableKey = UnusableKey("not a PKCS #8 key of this algorithm");
        match algorithm {
            Algorithm::Rs256 => RsaKeyPair::from_pkcs8(der).map_err(|_| MALFORMED).and_then(Self::from_rsa),
            Algorithm::Es256 => EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der)
                .map_err(|_| MALFORMED)
                .and_then(Self::from_p256),
        }
    }

    fn from_rsa(pair: RsaKeyPair) -> Result<Self, UnusableKey> {
        let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
        let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
        let verifying = VerifyingKey::rsa(None, n, e)?;
        Ok(Self::new(Pair::Rsa(pair), verifying))
    }

    fn from_p256(pair: EcdsaKeyPair) -> Result<Self, UnusableKey> {
        let (x, y) = match pair.public_key().as_ref() {
            [4, coordinates @ ..] if coordinates.len() == 64 => coordinates.split_at(32),
            _ => return Err(UnusableKey("not a point on P-256")),
        };
        let verifying = VerifyingKey::p256(None, x, y)?;
        Ok(Self::new(Pair::P256(pair), verifying))
    }

    fn new(pair: Pair, verifying: VerifyingKey) -> Self {
        let kid = Some(verifying.thumbprint.clone());
        Self { pair, verifying: VerifyingKey { kid, ..verifying } }
    }

    /// Returns the public half.
    pub fn verifying(&self) -> &VerifyingKey {
        &self.verifying
    }

    /// Returns the name by which tokens ask for the public half.
    pub fn kid(&self) -> &str {
        self.verifying.thumbprint()
    }

    /// Returns the private key as PKCS #8, for the key file alone.
    pub(crate) fn to_pkcs8(&self) -> Result<Vec<u8>, UnusableKey> {
        let failed = |_| UnusableKey("it could not be written");
        match &self.pair {
            Pair::Rsa(pair) => pair.as_der().map(|der| der.as_ref().to_vec()).map_err(failed),
            Pair::P256(pair) => pair.to_pkcs8v1().map(|der| der.as_ref().to_vec()).map_err(failed),
        }
    }

    /// Signs claims as a compact JWS whose header has `alg`, `kid` and this `typ`.
    ///
    /// # Errors
    /// [`UnusableKey`] when the cryptographic library fails.
    pub fn sign(&self, typ: &str, claims: &Map<String, Value>) -> Result<String, UnusableKey> {
        let header = Map::from_iter(
            [("alg", self.verifying.algorithm().name()), ("kid", self.kid()), ("typ", typ)]
                .map(|(name, value)| (name.to_owned(), Value::from(value))),
        );
        let input = jws::signing_input(&header, claims);
        let signature = self.sign_bytes(input.as_bytes())?;
        Ok(input + "." + &encode(&signature))
    }

    fn sign_bytes(&self, message: &[u8]) -> Result<Vec<u8>, UnusableKey> {
        const FAILED: UnusableKey = UnusableKey("it does not sign");
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(|_| FAILED)?;
                Ok(signature)
            }
            Pair::P256(pair) => {
                pair.sign(&random, message).map(|signature| signature.as_ref().to_vec()).map_err(|_| FAILED)
            }
        }
    }
}

/// Shows the public half only.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.verifying).finish()
    }
}

/// Tells whether a modulus bears the mark of the ROCA generator: its residue by each small prime is a power of 65537.
///
/// The published fingerprint (Nemec and others, 2017) over the primes below 168, which all such keys share; a sound
/// key bears it with a chance below one in 2^27.
fn is_roca(n: &[u8]) -> bool {
    const PRIMES: [u32; 38] = [
        3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107,
        109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
    ];
    PRIMES.into_iter().all(|prime| {
        let residue = n.iter().fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % prime);
        let powers = std::iter::successors(Some(1), |power| Some(power * 65537 % prime));
        powers.take(prime as usize).any(|power| power == residue)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_signs_its_public_half_verifies_and_no_other() {
        let keys = Algorithm::ALL.map(|algorithm| SigningKey::generate(algorithm).unwrap());
        let claims = Map::from_iter([("sub".to_owned(), Value::from("me"))]);
        for key in &keys {
            let token = key.sign("JWT", &claims).unwrap();
            let jws = jws::Jws::parse(&token).unwrap();
            assert_eq!(jws.kid.as_deref(), Some(key.kid()));
            assert_eq!(jws.payload, br#"{"sub":"me"}"#);
            assert_eq!(jws.verify(key.verifying()), Ok(()));
            let stranger = SigningKey::generate(key.verifying().algorithm()).unwrap();
            assert_eq!(jws.verify(stranger.verifying()), Err(crate::TokenError::Signature));
            for other in keys.iter().filter(|other| other.kid() != key.kid()) {
                assert_eq!(jws.verify(other.verifying()), Err(crate::TokenError::Key));
            }
        }
    }

    #[test]
    fn pkcs8_gives_the_same_key_back_and_only_for_its_algorithm() {
        for algorithm in Algorithm::ALL {
            let key = SigningKey::generate(algorithm).unwrap();
            let der = key.to_pkcs8().unwrap();
            assert_eq!(SigningKey::from_pkcs8(algorithm, &der).unwrap().kid(), key.kid());
            for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
                assert!(SigningKey::from_pkcs8(other, &der).is_err());
            }
            assert!(SigningKey::from_pkcs8(algorithm, &der[..der.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_thumbprint_is_that_of_rfc_7638() {
        // The example key of RFC 7638 section 3.1, made with another tool from the same numbers.
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3\
                 oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA\
                 ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-\
                 kEgU8awapJzKnqDKgw";
        let decode =
            |text: &str| base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text).unwrap();
        let key = VerifyingKey::rsa(None, &decode(n), &decode("AQAB")).unwrap();
        assert_eq!(key.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }

    #[test]
    fn weak_and_malformed_rsa_keys_are_refused() {
        let sound = SigningKey::generate(Algorithm::Rs256).unwrap();
        let Public::Rsa { n, e } = &sound.verifying().public else { unreachable!("an RSA key") };
        assert!(VerifyingKey::rsa(None, n, e).is_ok());
        let even = [&n[..255], &[n[255] & 0xfe]].concat();
        let padded = [&[0], &n[..]].concat();
        let huge = [&[0xff; 257][..], &n[..]].concat();
        for (n, e) in [
            (&n[..128], &e[..]),
            (&[], e),
            (&even, e),
            (&padded, e),
            (&huge, e),
            (n, &[]),
            (n, &[1]),
            (n, &[2]),
            (n, &[0, 1, 0, 1]),
            (n, &[1, 0, 0, 0, 1]),
        ] {
            assert!(VerifyingKey::rsa(None, n, e).is_err(), "{} {e:?}", n.len());
        }
    }

    #[test]
    fn the_mark_of_the_roca_generator_is_seen() {
        // 65537^128 has 2049 bits and is a power of 65537 by every prime.
        let mut number = vec![1u8];
        for _ in 0..128 {
            let mut product = vec![0u32; number.len() + 2];
            for (index, byte) in number.iter().enumerate() {
                product[index + 2] += u32::from(*byte);
                product[index] += u32::from(*byte);
            }
            let carried = product.iter().rev().scan(0, |carry, digit| {
                let sum = digit + *carry;
                *carry = sum >> 8;
                Some(sum as u8)
            });
            number = carried.collect::<Vec<_>>().into_iter().rev().skip_while(|byte| *byte == 0).collect();
        }
        assert_eq!(
            VerifyingKey::rsa(None, &number, &[1, 0, 1]).map(drop),
            Err(UnusableKey("the RSA key was made by a generator that is known to be weak"))
        );
    }

    #[test]
    fn points_off_the_curve_are_refused() {
        for (x, y) in [([0; 32], [0; 32]), ([1; 32], [1; 32]), ([0xff; 32], [0xff; 32])] {
            assert!(VerifyingKey::p256(None, &x, &y).is_err());
        }
        assert!(VerifyingKey::p256(None, &[0; 31], &[0; 32]).is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = SigningKey::generate(Algorithm::Es256).unwrap();
        assert_eq!(
            format!("{key:?}"),
            format!("SigningKey(VerifyingKey {{ kid: {:?}, algorithm: Es256 }})", Some(key.kid()))
        );
    }
}
