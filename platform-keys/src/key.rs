//! Signing keys: the public half, which verifies, and the private half, which signs.
//!
//! A key is for exactly one algorithm (RFC 8725 section 3.1), except an RSA key of an issuer that does not say which. The
//! key set or key file decides, never a token.

use std::fmt;

use aws_lc_rs::{
    encoding::AsDer,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
        ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED, ECDSA_P521_SHA512_FIXED_SIGNING, ED25519,
        EcdsaKeyPair, EcdsaSigningAlgorithm, EcdsaVerificationAlgorithm, Ed25519KeyPair, KeyPair as _, ParsedPublicKey,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256,
        RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
        RSA_PSS_2048_8192_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaParameters,
        RsaPublicKeyComponents, RsaSignatureEncoding,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::algorithm::Algorithm;

/// The accepted sizes of an RSA modulus, in bits: smaller is weak, larger makes verification too expensive. Our choice.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// A public key and the one algorithm that it may be used with, or all those of RSA.
#[derive(Clone)]
pub struct VerifyingKey {
    kid: Option<String>,
    algorithm: Algorithm,
    /// Whether it may be used with every algorithm of RSA.
    any_rsa: bool,
    public: Public,
    thumbprint: String,
    parsed: ParsedPublicKey,
}

#[derive(Clone)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Ec { curve: &'static Curve, x: Vec<u8>, y: Vec<u8> },
    Ed25519 { x: [u8; 32] },
}

/// An ECDSA curve with the one hash that JSON Web Algorithms pair with it (RFC 7518 section 3.4).
struct Curve {
    name: &'static str,
    algorithm: Algorithm,
    /// The length of a coordinate, in bytes.
    len: usize,
    verifying: &'static EcdsaVerificationAlgorithm,
    signing: &'static EcdsaSigningAlgorithm,
    not_a_point: UnusableKey,
}

static P256: Curve = Curve {
    name: "P-256",
    algorithm: Algorithm::Es256,
    len: 32,
    verifying: &ECDSA_P256_SHA256_FIXED,
    signing: &ECDSA_P256_SHA256_FIXED_SIGNING,
    not_a_point: UnusableKey("not a point on P-256"),
};

static P384: Curve = Curve {
    name: "P-384",
    algorithm: Algorithm::Es384,
    len: 48,
    verifying: &ECDSA_P384_SHA384_FIXED,
    signing: &ECDSA_P384_SHA384_FIXED_SIGNING,
    not_a_point: UnusableKey("not a point on P-384"),
};

static P521: Curve = Curve {
    name: "P-521",
    algorithm: Algorithm::Es512,
    len: 66,
    verifying: &ECDSA_P521_SHA512_FIXED,
    signing: &ECDSA_P521_SHA512_FIXED_SIGNING,
    not_a_point: UnusableKey("not a point on P-521"),
};

/// How signatures of an algorithm of RSA are verified and made; `None` for other algorithms.
const fn rsa_scheme(algorithm: Algorithm) -> Option<(&'static RsaParameters, &'static RsaSignatureEncoding)> {
    Some(match algorithm {
        Algorithm::Rs256 => (&RSA_PKCS1_2048_8192_SHA256, &RSA_PKCS1_SHA256),
        Algorithm::Rs384 => (&RSA_PKCS1_2048_8192_SHA384, &RSA_PKCS1_SHA384),
        Algorithm::Rs512 => (&RSA_PKCS1_2048_8192_SHA512, &RSA_PKCS1_SHA512),
        Algorithm::Ps256 => (&RSA_PSS_2048_8192_SHA256, &RSA_PSS_SHA256),
        Algorithm::Ps384 => (&RSA_PSS_2048_8192_SHA384, &RSA_PSS_SHA384),
        Algorithm::Ps512 => (&RSA_PSS_2048_8192_SHA512, &RSA_PSS_SHA512),
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 | Algorithm::EdDsa => return None,
    })
}

/// An error that says why a key cannot be used: malformed, too weak, too large, or a failure to generate it or sign
/// with it. Contains no key material.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key cannot be used: {0}")]
pub struct UnusableKey(pub &'static str);

impl VerifyingKey {
    /// Creates an RS256 key; the rules are those of [`VerifyingKey::rsa_for`].
    ///
    /// # Errors
    /// As [`VerifyingKey::rsa_for`].
    pub fn rsa(kid: Option<String>, n: &[u8], e: &[u8]) -> Result<Self, UnusableKey> {
        Self::rsa_for(Some(Algorithm::Rs256), kid, n, e)
    }

    /// Creates a PS256 key; the rules are those of [`VerifyingKey::rsa_for`].
    ///
    /// # Errors
    /// As [`VerifyingKey::rsa_for`].
    pub fn rsa_pss(kid: Option<String>, n: &[u8], e: &[u8]) -> Result<Self, UnusableKey> {
        Self::rsa_for(Some(Algorithm::Ps256), kid, n, e)
    }

    /// Creates an RSA key from a modulus and an exponent, both big-endian without leading zeros. Without an algorithm,
    /// the key may be used with every algorithm of RSA (RFC 7517 section 4.4: `alg` is optional).
    ///
    /// # Errors
    /// [`UnusableKey`] for an algorithm of other keys, for a modulus outside 2048 to 4096 bits, for one from a generator
    /// with the ROCA weakness (CVE-2017-15361), and for an even modulus or an even or tiny exponent.
    pub fn rsa_for(algorithm: Option<Algorithm>, kid: Option<String>, n: &[u8], e: &[u8]) -> Result<Self, UnusableKey> {
        const MALFORMED: UnusableKey = UnusableKey("not an RSA public key");
        let first = algorithm.unwrap_or(Algorithm::Rs256);
        let (parameters, _) = rsa_scheme(first).ok_or(UnusableKey("not an algorithm of RSA keys"))?;
        let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
        let exponent = e.iter().fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
        // Leading zeros are rejected, so that a key has only one encoding and thumbprint.
        if !is_odd(n) || !is_odd(e) || e.len() > 4 || exponent < 3 || e.first() == Some(&0) {
            return Err(MALFORMED);
        }
        let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
        if !RSA_BITS.contains(&bits) || n.first() == Some(&0) {
            return Err(UnusableKey("the RSA modulus must have 2048 to 4096 bits"));
        }
        if is_roca(n) {
            return Err(UnusableKey("the RSA key comes from a generator with a known weakness (ROCA)"));
        }
        let parsed = RsaPublicKeyComponents { n, e }.to_parsed_public_key(parameters).map_err(|_| MALFORMED)?;
        let key = Self::new(kid, first, Public::Rsa { n: n.to_vec(), e: e.to_vec() }, parsed);
        Ok(Self { any_rsa: algorithm.is_none(), ..key })
    }

    /// Creates an ES256 key from the coordinates of a point on P-256, 32 big-endian bytes each.
    ///
    /// # Errors
    /// [`UnusableKey`] for other lengths and for coordinates that are not a point on the curve.
    pub fn p256(kid: Option<String>, x: &[u8], y: &[u8]) -> Result<Self, UnusableKey> {
        Self::ec(&P256, kid, x, y)
    }

    /// Creates an ES384 key from the coordinates of a point on P-384, 48 big-endian bytes each.
    ///
    /// # Errors
    /// [`UnusableKey`] for other lengths and for coordinates that are not a point on the curve.
    pub fn p384(kid: Option<String>, x: &[u8], y: &[u8]) -> Result<Self, UnusableKey> {
        Self::ec(&P384, kid, x, y)
    }

    /// Creates an ES512 key from the coordinates of a point on P-521, 66 big-endian bytes each.
    ///
    /// # Errors
    /// [`UnusableKey`] for other lengths and for coordinates that are not a point on the curve.
    pub fn p521(kid: Option<String>, x: &[u8], y: &[u8]) -> Result<Self, UnusableKey> {
        Self::ec(&P521, kid, x, y)
    }

    fn ec(curve: &'static Curve, kid: Option<String>, x: &[u8], y: &[u8]) -> Result<Self, UnusableKey> {
        if x.len() != curve.len || y.len() != curve.len {
            return Err(UnusableKey("a coordinate does not have the length of the curve"));
        }
        let parsed = ParsedPublicKey::new(curve.verifying, [&[4], x, y].concat()).map_err(|_| curve.not_a_point)?;
        Ok(Self::new(kid, curve.algorithm, Public::Ec { curve, x: x.to_vec(), y: y.to_vec() }, parsed))
    }

    /// Creates an EdDSA key from a point on Ed25519, 32 bytes as RFC 8032 encodes it.
    ///
    /// # Errors
    /// [`UnusableKey`] for another length, and for the points of small order, with which anybody can forge signatures.
    /// Bytes that are not a point on the curve are accepted and yield a key that verifies nothing.
    pub fn ed25519(kid: Option<String>, x: &[u8]) -> Result<Self, UnusableKey> {
        let x: [u8; 32] = x.try_into().map_err(|_| UnusableKey("an Ed25519 key must have 32 bytes"))?;
        if has_small_order(&x) {
            return Err(UnusableKey("the Ed25519 key is a point of small order"));
        }
        let parsed = ParsedPublicKey::new(&ED25519, x).map_err(|_| UnusableKey("not an Ed25519 key"))?;
        Ok(Self::new(kid, Algorithm::EdDsa, Public::Ed25519 { x }, parsed))
    }

    fn new(kid: Option<String>, algorithm: Algorithm, public: Public, parsed: ParsedPublicKey) -> Self {
        // RFC 7638 and RFC 8037 appendix A.3: only the required members, in this order, without white space.
        let canonical = match &public {
            Public::Rsa { n, e } => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, encode(e), encode(n)),
            Public::Ec { curve, x, y } => {
                format!(r#"{{"crv":"{}","kty":"EC","x":"{}","y":"{}"}}"#, curve.name, encode(x), encode(y))
            }
            Public::Ed25519 { x } => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(x)),
        };
        Self { kid, algorithm, any_rsa: false, public, thumbprint: encode(&Sha256::digest(canonical)), parsed }
    }

    /// Returns the `kid` by which tokens select this key.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Returns the algorithm of this key; RS256 for a key of every algorithm of RSA.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns whether this key may be used with an algorithm.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithm == algorithm || (self.any_rsa && algorithm.is_rsa())
    }

    /// Returns the key's SHA-256 thumbprint (RFC 7638) in base64url. Equal keys have equal thumbprints, whatever their
    /// `kid`.
    pub fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Returns whether `signature` is a signature of `message` by this key with this algorithm; `false` for an algorithm
    /// that the key does not [allow](Self::allows).
    pub fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if algorithm == self.algorithm {
            return self.parsed.verify_sig(message, signature).is_ok();
        }
        // Parsed for each signature: few issuers omit `alg` and use another algorithm than RS256.
        match (&self.public, rsa_scheme(algorithm)) {
            (Public::Rsa { n, e }, Some((parameters, _))) if self.any_rsa => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            _ => false,
        }
    }

    /// Returns the key as a JSON Web Key with `kty`, `use`, `alg`, `kid` and its public members; without `alg` if it may
    /// be used with every algorithm of RSA.
    pub fn to_jwk(&self) -> Value {
        let alg = self.algorithm.name();
        let mut jwk = match &self.public {
            Public::Rsa { n, e } => json!({"kty": "RSA", "use": "sig", "alg": alg, "n": encode(n), "e": encode(e)}),
            Public::Ec { curve, x, y } => {
                json!({"kty": "EC", "use": "sig", "alg": alg, "crv": curve.name, "x": encode(x), "y": encode(y)})
            }
            Public::Ed25519 { x } => {
                json!({"kty": "OKP", "use": "sig", "alg": alg, "crv": "Ed25519", "x": encode(x)})
            }
        };
        if let Some(members) = jwk.as_object_mut() {
            members.retain(|name, _| name != "alg" || !self.any_rsa);
            members.extend(self.kid.iter().map(|kid| ("kid".into(), kid.as_str().into())));
        }
        jwk
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("kid", &self.kid).field("algorithm", &self.algorithm).finish()
    }
}

/// A private key with its public half. Its `kid` is the thumbprint of the public half.
pub struct SigningKey {
    pair: Pair,
    verifying: VerifyingKey,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// Generates a key: RSA with 2048 bits, which takes about a tenth of a second, or a key on the algorithm's curve.
    /// Uses aws-lc's random number generator.
    ///
    /// # Errors
    /// [`UnusableKey`] when the cryptographic library fails.
    pub fn generate(algorithm: Algorithm) -> Result<Self, UnusableKey> {
        const FAILED: UnusableKey = UnusableKey("key generation failed");
        let ec = |curve: &'static Curve| {
            EcdsaKeyPair::generate(curve.signing).map_err(|_| FAILED).and_then(|pair| Self::from_ec(curve, pair))
        };
        match algorithm {
            Algorithm::Es256 => ec(&P256),
            Algorithm::Es384 => ec(&P384),
            Algorithm::Es512 => ec(&P521),
            Algorithm::EdDsa => Ed25519KeyPair::generate().map_err(|_| FAILED).and_then(Self::from_ed25519),
            rsa => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| FAILED)?;
                Self::from_rsa(rsa, pair)
            }
        }
    }

    /// Reads a private key of this algorithm from PKCS #8.
    ///
    /// # Errors
    /// [`UnusableKey`] for any other input, and for keys that [`VerifyingKey::rsa`] rejects.
    pub fn from_pkcs8(algorithm: Algorithm, der: &[u8]) -> Result<Self, UnusableKey> {
        const MALFORMED: UnusableKey = UnusableKey("not a PKCS #8 key of this algorithm");
        let ec = |curve: &'static Curve| {
            let pair = EcdsaKeyPair::from_pkcs8(curve.signing, der).map_err(|_| MALFORMED)?;
            Self::from_ec(curve, pair)
        };
        match algorithm {
            Algorithm::Es256 => ec(&P256),
            Algorithm::Es384 => ec(&P384),
            Algorithm::Es512 => ec(&P521),
            Algorithm::EdDsa => Ed25519KeyPair::from_pkcs8(der).map_err(|_| MALFORMED).and_then(Self::from_ed25519),
            rsa => RsaKeyPair::from_pkcs8(der).map_err(|_| MALFORMED).and_then(|pair| Self::from_rsa(rsa, pair)),
        }
    }

    fn from_rsa(algorithm: Algorithm, pair: RsaKeyPair) -> Result<Self, UnusableKey> {
        let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
        let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
        let verifying = VerifyingKey::rsa_for(Some(algorithm), None, n, e)?;
        Ok(Self::new(Pair::Rsa(pair), verifying))
    }

    fn from_ec(curve: &'static Curve, pair: EcdsaKeyPair) -> Result<Self, UnusableKey> {
        let (x, y) = match pair.public_key().as_ref() {
            [4, coordinates @ ..] if coordinates.len() == 2 * curve.len => coordinates.split_at(curve.len),
            _ => return Err(curve.not_a_point),
        };
        let verifying = VerifyingKey::ec(curve, None, x, y)?;
        Ok(Self::new(Pair::Ec(pair), verifying))
    }

    fn from_ed25519(pair: Ed25519KeyPair) -> Result<Self, UnusableKey> {
        let verifying = VerifyingKey::ed25519(None, pair.public_key().as_ref())?;
        Ok(Self::new(Pair::Ed25519(pair), verifying))
    }

    fn new(pair: Pair, verifying: VerifyingKey) -> Self {
        let kid = Some(verifying.thumbprint.clone());
        Self { pair, verifying: VerifyingKey { kid, ..verifying } }
    }

    /// Returns the public half.
    pub fn verifying(&self) -> &VerifyingKey {
        &self.verifying
    }

    /// Returns the `kid` by which tokens select the public half.
    pub fn kid(&self) -> &str {
        self.verifying.thumbprint()
    }

    /// Returns the private key as PKCS #8. Only for writing the key file.
    pub(crate) fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, UnusableKey> {
        const FAILED: UnusableKey = UnusableKey("encoding as PKCS #8 failed");
        let der = match &self.pair {
            Pair::Rsa(pair) => pair.as_der().map(|der| der.as_ref().to_vec()).map_err(|_| FAILED),
            Pair::Ec(pair) => pair.to_pkcs8v1().map(|der| der.as_ref().to_vec()).map_err(|_| FAILED),
            Pair::Ed25519(pair) => pair.to_pkcs8().map(|der| der.as_ref().to_vec()).map_err(|_| FAILED),
        };
        der.map(Zeroizing::new)
    }

    /// Signs claims and returns a compact JWS with `alg`, `kid` and this `typ` in its header.
    ///
    /// # Errors
    /// [`UnusableKey`] when the cryptographic library fails.
    pub fn sign(&self, typ: &str, claims: &Map<String, Value>) -> Result<String, UnusableKey> {
        let header = Map::from_iter(
            [("alg", self.verifying.algorithm().name()), ("kid", self.kid()), ("typ", typ)]
                .map(|(name, value)| (name.to_owned(), Value::from(value))),
        );
        let input = signing_input(&header, claims);
        let signature = self.sign_bytes(input.as_bytes())?;
        Ok(input + "." + &encode(&signature))
    }

    fn sign_bytes(&self, message: &[u8]) -> Result<Vec<u8>, UnusableKey> {
        const FAILED: UnusableKey = UnusableKey("signing failed");
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let (_, padding) = rsa_scheme(self.verifying.algorithm).ok_or(FAILED)?;
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signature).map_err(|_| FAILED)?;
                Ok(signature)
            }
            Pair::Ec(pair) => {
                pair.sign(&random, message).map(|signature| signature.as_ref().to_vec()).map_err(|_| FAILED)
            }
            Pair::Ed25519(pair) => {
                pair.try_sign(message).map(|signature| signature.as_ref().to_vec()).map_err(|_| FAILED)
            }
        }
    }
}

/// Shows only the public half.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.verifying).finish()
    }
}

/// Returns whether a modulus has the fingerprint of the ROCA generator: its residue modulo each small prime is a power
/// of 65537.
///
/// Uses the published fingerprint (Nemec et al., 2017) over the primes below 168, which all such keys share. The
/// probability that another key has the fingerprint is below one in 2^27.
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

/// Returns whether an encoded Ed25519 point is one of the eight whose order divides the cofactor, or has a coordinate
/// that RFC 8032 does not allow. For such a key, anybody can make a valid signature without a secret.
fn has_small_order(point: &[u8; 32]) -> bool {
    /// The y-coordinates of the points of order 1, 4 and 8, little-endian. That of order 2 is the field's size minus
    /// one.
    const ONE: [u8; 32] =
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const ORDER_8: [[u8; 32]; 2] = [
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
            0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
            0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
        ],
    ];
    let mut y = *point;
    y[31] &= 0x7f;
    // The field's size is 2^255 - 19, so a coordinate of at least that size minus one has a first byte of at least 0xec
    // and these last bytes.
    let is_at_least_minus_one = y[0] >= 0xec && y[1..31].iter().all(|byte| *byte == 0xff) && y[31] == 0x7f;
    y == [0; 32] || y == ONE || ORDER_8.contains(&y) || is_at_least_minus_one
}

/// Returns the signing input: the header and the payload, encoded and joined by a dot.
fn signing_input(header: &Map<String, Value>, payload: &Map<String, Value>) -> String {
    let encode = |object: &Map<String, Value>| encode(Value::Object(object.clone()).to_string().as_bytes());
    encode(header) + "." + &encode(payload)
}

/// Encodes as base64url without padding.
fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests;
