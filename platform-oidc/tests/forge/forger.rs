//! Keys that sign whatever they are asked to, and the verifier that must reject it.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
        RsaEncoding,
    },
};
use platform_keys::{Algorithm, VerifyingKey};
use platform_oidc::{TokenError, Verifier};
use serde_json::{Value, json};

use crate::common::{StubFetch, claims, clock, decode, encode, own_issuer, trusted, verifier};

/// The number of keys of a target.
pub const KEYS: usize = 8;

pub type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A key that can sign any header, including headers that the library never generates.
pub struct Forger {
    pub public: VerifyingKey,
    pub sign: Sign,
}

impl Forger {
    pub fn rsa() -> Self {
        Self::rsa_by(&RSA_PKCS1_SHA256, |n, e| VerifyingKey::rsa(Some("rsa-key".into()), n, e).unwrap())
    }

    pub fn pss() -> Self {
        Self::rsa_by(&RSA_PSS_SHA256, |n, e| VerifyingKey::rsa_pss(Some("pss-key".into()), n, e).unwrap())
    }

    pub fn rsa_for(algorithm: Algorithm, padding: &'static dyn RsaEncoding) -> Self {
        let kid = format!("{}-key", algorithm.name());
        Self::rsa_by(padding, |n, e| VerifyingKey::rsa_for(Some(algorithm), Some(kid.clone()), n, e).unwrap())
    }

    pub fn rsa_by(padding: &'static dyn RsaEncoding, public: impl Fn(&[u8], &[u8]) -> VerifyingKey) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
        let (n, e) = (n.big_endian_without_leading_zero().to_vec(), e.big_endian_without_leading_zero().to_vec());
        Self { public: public(&n, &e), sign: Box::new(move |message| rsa_sign(&pair, padding, message)) }
    }

    pub fn p256() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let public = VerifyingKey::p256(Some("ec-key".into()), x, y).unwrap();
        let sign = move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec();
        Self { public, sign: Box::new(sign) }
    }

    pub fn p384() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
        let public = VerifyingKey::p384(Some("p384-key".into()), x, y).unwrap();
        let sign = move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec();
        Self { public, sign: Box::new(sign) }
    }

    pub fn p521() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(66);
        let public = VerifyingKey::p521(Some("p521-key".into()), x, y).unwrap();
        let sign = move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec();
        Self { public, sign: Box::new(sign) }
    }

    pub fn ed25519() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let public = VerifyingKey::ed25519(Some("ed-key".into()), pair.public_key().as_ref()).unwrap();
        Self { public, sign: Box::new(move |message| pair.sign(message).as_ref().to_vec()) }
    }

    pub fn all() -> [Self; KEYS] {
        let (rs512, ps384) =
            (Self::rsa_for(Algorithm::Rs512, &RSA_PKCS1_SHA512), Self::rsa_for(Algorithm::Ps384, &RSA_PSS_SHA384));
        [Self::rsa(), Self::p256(), Self::p384(), Self::pss(), Self::ed25519(), Self::p521(), rs512, ps384]
    }

    pub fn kid(&self) -> &str {
        self.public.kid().unwrap()
    }

    pub fn alg(&self) -> &'static str {
        self.public.algorithm().name()
    }

    pub fn sign(&self, header: &str, claims: &str) -> String {
        let input = format!("{}.{}", encode(header), encode(claims));
        let signature = (self.sign)(input.as_bytes());
        format!("{input}.{}", encode(signature))
    }

    /// Returns a valid header, with changes.
    pub fn header(&self, changes: Value) -> String {
        let mut header = json!({"alg": self.alg(), "kid": self.kid(), "typ": "JWT"});
        header.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        header.to_string()
    }

    /// Returns a token with valid claims and a valid signature, and changes to its header.
    pub fn with_header(&self, changes: Value) -> String {
        self.sign(&self.header(changes), &valid_claims())
    }

    /// Returns a token with a valid signature and changes to its claims.
    pub fn with_claims(&self, changes: Value) -> String {
        self.sign(&self.header(json!({})), &Value::Object(claims(changes)).to_string())
    }

    /// Returns the signature of a valid token, to attach to another one.
    pub fn signature(&self) -> Vec<u8> {
        decode(self.with_header(json!({})).rsplit('.').next().unwrap())
    }
}

pub fn rsa_sign(pair: &RsaKeyPair, padding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(padding, &SystemRandom::new(), message, &mut signature).unwrap();
    signature
}

pub fn valid_claims() -> String {
    Value::Object(claims(json!({}))).to_string()
}

/// A verifier that trusts its own issuer and another one with a key of each algorithm.
pub struct Target {
    pub verifier: Verifier,
    pub keys: [Forger; KEYS],
}

impl Target {
    pub fn new() -> Self {
        Self::with_keys(Forger::all())
    }

    pub fn with_keys(keys: [Forger; KEYS]) -> Self {
        let (clock, stub) = (clock(), StubFetch::new());
        stub.publish(&keys.each_ref().map(|key| &key.public));
        let own = own_issuer(Algorithm::Rs256, &clock);
        let verifier = verifier(Some(own), vec![trusted(&stub, &clock)], &clock);
        Self { verifier, keys }
    }

    pub fn keys(&self) -> &[Forger] {
        &self.keys
    }

    pub fn rsa(&self) -> &Forger {
        &self.keys[0]
    }

    pub async fn assert_rejected(&self, token: &str) -> TokenError {
        let shown: String = token.chars().take(200).collect();
        match self.verifier.verify(token).await {
            Ok(_) => panic!("accepted {shown:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(!message.contains("eyJ") && !message.contains("alice"), "{message}");
                error
            }
        }
    }
}
