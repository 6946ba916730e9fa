//! Everything known that a forger tries, at both kinds of issuer with every kind of key: nothing is accepted.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod common;

use aws_lc_rs::{
    hmac,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaPssSaltLength, RsaSignatureEncoding,
    },
};
use common::*;
use platform_oidc::{TokenError, Verifier, key::VerifyingKey};
use serde_json::{Value, json};

type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A key that signs any header, also those that the library would not write.
struct Forger {
    public: VerifyingKey,
    sign: Sign,
}

impl Forger {
    fn rsa() -> Self {
        Self::rsa_by(&RSA_PKCS1_SHA256, |n, e| VerifyingKey::rsa(Some("rsa-key".into()), n, e).unwrap())
    }

    fn pss() -> Self {
        Self::rsa_by(&RSA_PSS_SHA256, |n, e| VerifyingKey::rsa_pss(Some("pss-key".into()), n, e).unwrap())
    }

    fn rsa_by(padding: &'static dyn RsaEncoding, public: impl Fn(&[u8], &[u8]) -> VerifyingKey) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
        let (n, e) = (n.big_endian_without_leading_zero().to_vec(), e.big_endian_without_leading_zero().to_vec());
        Self { public: public(&n, &e), sign: Box::new(move |message| padded(&pair, padding, message)) }
    }

    fn p256() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let public = VerifyingKey::p256(Some("ec-key".into()), x, y).unwrap();
        let sign = move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec();
        Self { public, sign: Box::new(sign) }
    }

    fn p384() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
        let public = VerifyingKey::p384(Some("p384-key".into()), x, y).unwrap();
        let sign = move |message: &[u8]| pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec();
        Self { public, sign: Box::new(sign) }
    }

    fn ed25519() -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        let public = VerifyingKey::ed25519(Some("ed-key".into()), pair.public_key().as_ref()).unwrap();
        Self { public, sign: Box::new(move |message| pair.sign(message).as_ref().to_vec()) }
    }

    fn all() -> [Self; 5] {
        [Self::rsa(), Self::p256(), Self::p384(), Self::pss(), Self::ed25519()]
    }

    fn kid(&self) -> &str {
        self.public.kid().unwrap()
    }

    fn alg(&self) -> &'static str {
        self.public.algorithm().name()
    }

    fn sign(&self, header: &str, claims: &str) -> String {
        let input = format!("{}.{}", encode(header), encode(claims));
        let signature = (self.sign)(input.as_bytes());
        format!("{input}.{}", encode(signature))
    }

    /// A good header, with changes.
    fn header(&self, changes: Value) -> String {
        let mut header = json!({"alg": self.alg(), "kid": self.kid(), "typ": "JWT"});
        header.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        header.to_string()
    }

    /// A token with good claims, rightly signed under a header with these changes.
    fn with_header(&self, changes: Value) -> String {
        self.sign(&self.header(changes), &good_claims())
    }

    /// A token with these changes to the claims, rightly signed.
    fn with_claims(&self, changes: Value) -> String {
        self.sign(&self.header(json!({})), &Value::Object(claims(changes)).to_string())
    }

    /// The signature of a good token, for use where it does not belong.
    fn signature(&self) -> Vec<u8> {
        decode(self.with_header(json!({})).rsplit('.').next().unwrap())
    }
}

fn padded(pair: &RsaKeyPair, padding: &'static dyn RsaEncoding, message: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(padding, &SystemRandom::new(), message, &mut signature).unwrap();
    signature
}

fn good_claims() -> String {
    Value::Object(claims(json!({}))).to_string()
}

/// A verifier that trusts an issuer with a key of each algorithm, and its own.
struct Target {
    verifier: Verifier,
    keys: [Forger; 5],
}

impl Target {
    fn new() -> Self {
        Self::of(Forger::all())
    }

    fn of(keys: [Forger; 5]) -> Self {
        let (clock, stub) = (clock(), Stub::new());
        stub.publish(&keys.each_ref().map(|key| &key.public));
        let own = own_issuer(platform_oidc::Algorithm::Rs256, &clock);
        let verifier = verifier(Some(own), vec![trusted(&stub, &clock)], &clock);
        Self { verifier, keys }
    }

    fn keys(&self) -> &[Forger] {
        &self.keys
    }

    fn rsa(&self) -> &Forger {
        &self.keys[0]
    }

    async fn refuses(&self, token: &str) -> TokenError {
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

#[tokio::test]
async fn the_tokens_that_forgeries_start_from_are_good() {
    let target = Target::new();
    for key in target.keys() {
        target.verifier.verify(&key.with_header(json!({}))).await.unwrap();
    }
}

#[tokio::test]
async fn unsigned_and_unknown_algorithms_are_refused() {
    let target = Target::new();
    for key in target.keys() {
        for alg in
            ["none", "None", "NONE", "nOnE", "none ", "", "HS256", "HS512", "RS1", "PS512", "RS512", "ES512", "Ed25519"]
        {
            for signature in [vec![], vec![0], key.signature()] {
                let forged = token(&key.header(json!({"alg": alg})), &good_claims(), &signature);
                assert_eq!(target.refuses(&forged).await, TokenError::Algorithm);
            }
        }
        for alg in [json!(null), json!(0), json!(["RS256"]), json!({"alg": "RS256"})] {
            target.refuses(&key.with_header(json!({"alg": alg}))).await;
        }
    }
}

#[tokio::test]
async fn a_public_key_is_no_shared_secret() {
    let target = Target::new();
    for key in target.keys() {
        let jwk = key.public.to_jwk();
        let members = ["n", "x", "y"].iter().filter_map(|name| jwk[*name].as_str().map(decode));
        let texts = [jwk.to_string(), key.public.thumbprint().to_owned(), String::new()];
        let mut secrets: Vec<Vec<u8>> = members.chain(texts.map(String::into_bytes)).collect();
        secrets.push([&[4], &decode(jwk["x"].as_str().unwrap_or("AA"))[..]].concat());
        let body = jwk["n"].as_str().or(jwk["x"].as_str()).unwrap();
        secrets.push(format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n").into_bytes());
        for secret in secrets {
            for alg in ["HS256", key.alg()] {
                let header = key.header(json!({"alg": alg}));
                let input = format!("{}.{}", encode(&header), encode(good_claims()));
                let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), input.as_bytes());
                target.refuses(&token(&header, &good_claims(), tag.as_ref())).await;
            }
        }
    }
}

#[tokio::test]
async fn keys_and_algorithms_cannot_be_swapped() {
    let target = Target::new();
    let pairs = target.keys().iter().flat_map(|key| target.keys().iter().map(move |other| (key, other)));
    for (key, other) in pairs.filter(|(key, other)| key.alg() != other.alg()) {
        let alg = other.alg();
        for signature in [key.signature(), other.signature()] {
            let forged = token(&key.header(json!({"alg": alg})), &good_claims(), &signature);
            assert_eq!(target.refuses(&forged).await, TokenError::Key, "the key's name, the other's algorithm");
            let forged = token(&key.header(json!({"kid": other.kid()})), &good_claims(), &signature);
            assert_eq!(target.refuses(&forged).await, TokenError::Key, "the key's algorithm, the other's name");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_published_for_one_padding_verifies_no_other() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
    let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
    let kid = Some("one-key".to_owned());
    for (published, alg, padding) in [
        (VerifyingKey::rsa(kid.clone(), n, e).unwrap(), "PS256", &RSA_PSS_SHA256),
        (VerifyingKey::rsa_pss(kid.clone(), n, e).unwrap(), "RS256", &RSA_PKCS1_SHA256),
    ] {
        let (clock, stub) = (clock(), Stub::new());
        stub.publish(&[&published]);
        let verifier = verifier(None, vec![trusted(&stub, &clock)], &clock);
        for (claimed, error) in [(alg, TokenError::Key), (published.algorithm().name(), TokenError::Signature)] {
            let header = json!({"alg": claimed, "kid": "one-key"}).to_string();
            let input = format!("{}.{}", encode(&header), encode(good_claims()));
            let forged = token(&header, &good_claims(), &padded(&pair, padding, input.as_bytes()));
            assert_eq!(verifier.verify(&forged).await.map(drop), Err(error), "{claimed}");
        }
    }
}

#[tokio::test]
async fn a_salt_of_another_length_than_the_hash_is_refused() {
    static NONE: RsaSignatureEncoding = RSA_PSS_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(0));
    static SHORT: RsaSignatureEncoding = RSA_PSS_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(31));
    static LONG: RsaSignatureEncoding = RSA_PSS_SHA256.with_pss_salt_length(RsaPssSaltLength::Max);
    for padding in [&NONE, &SHORT, &LONG] {
        let [rsa, p256, p384, _, ed25519] = Forger::all();
        let pss = Forger::rsa_by(padding, |n, e| VerifyingKey::rsa_pss(Some("pss-key".into()), n, e).unwrap());
        let target = Target::of([rsa, p256, p384, pss, ed25519]);
        let forged = target.keys[3].with_header(json!({}));
        assert_eq!(target.refuses(&forged).await, TokenError::Signature, "{padding:?}");
    }
}

#[tokio::test]
async fn signatures_that_mean_nothing_are_refused() {
    let target = Target::new();
    let order = |hex: &str| hex::decode(hex).unwrap();
    let orders = [
        order("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
        order("ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"),
    ];
    let mut signatures = vec![vec![], vec![0], vec![0xff; 256], [&[0; 255][..], &[1]].concat()];
    for length in [63, 64, 65, 95, 96, 97, 255, 256, 257] {
        signatures.extend([vec![0; length], vec![0xff; length]]);
    }
    for order in &orders {
        let one = [&vec![0; order.len() - 1][..], &[1]].concat();
        for (r, s) in [(order, order), (order, &one), (&one, order), (&one, &one)] {
            signatures.push([&r[..], &s[..]].concat());
        }
    }
    // Empty, and one of two zeros, in DER.
    signatures.push(vec![0x30, 0x00]);
    signatures.push(vec![0x30, 0x06, 0x02, 0x01, 0x00, 0x02, 0x01, 0x00]);
    // The neutral element of Ed25519, with zero for the scalar.
    signatures.push([&[1][..], &[0; 63]].concat());
    for key in target.keys() {
        for signature in &signatures {
            let forged = token(&key.header(json!({})), &good_claims(), signature);
            assert_eq!(target.refuses(&forged).await, TokenError::Signature);
        }
        let good = key.signature();
        for changed in [&good[1..], &good[..good.len() - 1], &[&good[..], &[0]].concat(), &[&[0], &good[..]].concat()] {
            target.refuses(&token(&key.header(json!({})), &good_claims(), changed)).await;
        }
    }
}

/// Adds little-endian numbers; none when the sum is longer.
fn sum(a: &[u8], b: &[u8]) -> Option<Vec<u8>> {
    let mut carry = 0;
    let add = |(a, b): (&u8, &u8)| {
        let sum = u16::from(*a) + u16::from(*b) + carry;
        carry = sum >> 8;
        sum.to_le_bytes()[0]
    };
    let sum: Vec<u8> = a.iter().zip(b).map(add).collect();
    (carry == 0).then_some(sum)
}

#[tokio::test]
async fn another_spelling_of_a_good_signature_is_refused() {
    let target = Target::new();
    let [_, p256, p384, _, ed25519] = &target.keys;
    // In DER, as other uses of ECDSA have it.
    for key in [p256, p384] {
        let good = key.signature();
        let integer = |bytes: &[u8]| [&[0x02, bytes.len() as u8 + 1, 0], bytes].concat();
        let (r, s) = good.split_at(good.len() / 2);
        let body = [integer(r), integer(s)].concat();
        let der = [&[0x30, body.len() as u8], &body[..]].concat();
        assert_eq!(target.refuses(&token(&key.header(json!({})), &good_claims(), &der)).await, TokenError::Signature);
        let swapped = [s, r].concat();
        let forged = token(&key.header(json!({})), &good_claims(), &swapped);
        assert_eq!(target.refuses(&forged).await, TokenError::Signature);
    }
    // Ed25519 with the scalar raised by the order of the group, which less strict readers take (RFC 8032 section 8.4).
    let order = hex::decode("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010").unwrap();
    let good = ed25519.signature();
    let (r, s) = good.split_at(32);
    let mut raised = s.to_vec();
    let mut spellings = 0;
    while let Some(next) = sum(&raised, &order) {
        let forged = token(&ed25519.header(json!({})), &good_claims(), &[r, &next[..]].concat());
        assert_eq!(target.refuses(&forged).await, TokenError::Signature);
        (raised, spellings) = (next, spellings + 1);
    }
    assert!(spellings > 10, "{spellings}");
}

#[tokio::test]
async fn a_kid_is_a_name_and_never_a_path_or_a_query() {
    let target = Target::new();
    for key in target.keys() {
        let kid = key.kid();
        for kid in [
            "../../../../dev/null".to_owned(),
            "/dev/null".into(),
            "file:///dev/null".into(),
            format!("./{kid}"),
            format!("../keys/{kid}"),
            format!("{kid}/../{kid}"),
            format!("{kid}\0"),
            format!("{kid}%00"),
            format!("{kid} "),
            kid.to_uppercase(),
            kid[1..].to_owned(),
            String::new(),
            "' union select 'key' --".into(),
            "$(sleep 1)".into(),
            "x".repeat(513),
        ] {
            target.refuses(&key.with_header(json!({"kid": kid}))).await;
        }
        let huge = key.header(json!({"kid": "k".repeat(1 << 20)}));
        assert_eq!(target.refuses(&key.sign(&huge, &good_claims())).await, TokenError::TooLong);
        for kid in [json!(null), json!(0), json!([kid]), json!({"kid": kid})] {
            target.refuses(&key.with_header(json!({"kid": kid}))).await;
        }
        let nameless = format!(r#"{{"alg":"{}"}}"#, key.alg());
        let forged = key.sign(&nameless, &good_claims());
        assert_eq!(target.refuses(&forged).await, TokenError::Key, "no name, and several keys");
    }
}

#[tokio::test]
async fn a_key_that_comes_with_the_token_is_not_looked_at() {
    let target = Target::new();
    for mine in Forger::all() {
        for (name, value) in [
            ("jwk", mine.public.to_jwk()),
            ("jku", json!("https://evil.example/keys")),
            ("x5u", json!("https://evil.example/chain")),
            ("x5c", json!(["MIIB"])),
        ] {
            for kid in ["mine", "rsa-key", "ec-key", "p384-key", "pss-key", "ed-key"] {
                target.refuses(&mine.with_header(json!({"kid": kid, name: value}))).await;
            }
        }
    }
}

#[tokio::test]
async fn headers_say_nothing_twice_and_ask_for_no_extension() {
    let target = Target::new();
    for key in target.keys() {
        let (alg, kid) = (key.alg(), key.kid());
        for header in [
            format!(r#"{{"alg":"none","alg":"{alg}","kid":"{kid}"}}"#),
            format!(r#"{{"alg":"{alg}","alg":"none","kid":"{kid}"}}"#),
            format!(r#"{{"alg":"{alg}","\u0061lg":"{alg}","kid":"{kid}"}}"#),
            format!(r#"{{"alg":"{alg}","kid":"{kid}","kid":"{kid}"}}"#),
            format!(r#"{{"alg":"{alg}","kid":"{kid}","crit":["b64"],"b64":false}}"#),
            format!(r#"{{"alg":"{alg}","kid":"{kid}","b64":false}}"#),
            format!(r#"{{"alg":"{alg}","kid":"{kid}","crit":[]}}"#),
            format!(r#"{{"alg":"{alg}","kid":"{kid}","crit":["exp"],"exp":1}}"#),
            format!("\u{feff}{{\"alg\":\"{alg}\",\"kid\":\"{kid}\"}}"),
            format!(r#"{{"alg":"{alg}","kid":"{kid}"}}{{}}"#),
            format!(r#"[{{"alg":"{alg}","kid":"{kid}"}}]"#),
        ] {
            let error = target.refuses(&key.sign(&header, &good_claims())).await;
            assert!(matches!(error, TokenError::Malformed(_)), "{header}: {error}");
        }
    }
}

#[tokio::test]
async fn only_the_one_spelling_of_a_token_is_read() {
    let target = Target::new();
    for key in target.keys() {
        let good = key.with_header(json!({}));
        target.verifier.verify(&good).await.unwrap();
        let parts: Vec<&str> = good.split('.').collect();
        let [header, payload, signature] = parts[..] else { panic!("three parts") };
        for token in [
            format!("{good}\n"),
            format!("\n{good}"),
            format!("{good} "),
            format!("Bearer {good}"),
            format!("{good}."),
            format!(".{good}"),
            format!("{good}.{signature}"),
            format!("{header}.{payload}"),
            format!("{header}.{payload}."),
            format!("{header}..{signature}"),
            format!(".{payload}.{signature}"),
            format!("..{signature}"),
            format!("{header}.{payload}.{signature}.{signature}.{signature}"),
            format!("{header}=.{payload}.{signature}"),
            format!("{header}.{payload}=.{signature}"),
            format!("{header}.{payload}.{signature}="),
            format!("{header}.{payload}.{signature}=="),
            format!("{header}.{payload}.{}", signature.replace(['-', '_'], "+")),
            format!("{header}.{payload}.{signature}\u{200b}"),
            format!("{header}%2E{payload}%2E{signature}"),
            json!({"payload": payload, "protected": header, "signature": signature}).to_string(),
            json!({"payload": payload, "signatures": [{"protected": header, "signature": signature}]}).to_string(),
        ] {
            if token != good {
                target.refuses(&token).await;
            }
        }
    }
}

#[tokio::test]
async fn bits_of_the_last_character_that_mean_nothing_are_not_ignored() {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let target = Target::new();
    for key in target.keys() {
        let good = key.with_header(json!({}));
        let last = good.len() - 1;
        for digit in DIGITS.iter().filter(|digit| **digit != good.as_bytes()[last]) {
            target.refuses(&format!("{}{}", &good[..last], char::from(*digit))).await;
        }
    }
}

#[tokio::test]
async fn times_that_are_no_whole_seconds_are_refused_though_signed() {
    let target = Target::new();
    for key in target.keys() {
        for name in ["exp", "nbf", "iat"] {
            for value in [
                json!(format!("{}", NOW + 60)),
                json!("never"),
                json!(NOW as f64 + 0.5),
                json!(1e300),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(-1),
                json!(true),
                json!([NOW]),
                json!({"seconds": NOW}),
            ] {
                let token = key.with_claims(json!({name: value}));
                assert_eq!(target.refuses(&token).await, TokenError::Claim(name));
            }
        }
        for (changes, error) in [
            (json!({"exp": null}), TokenError::Claim("exp")),
            (json!({"exp": 0}), TokenError::Expired),
            (json!({"exp": NOW - 60}), TokenError::Expired),
            (json!({"nbf": NOW + 61}), TokenError::NotYetValid),
            (json!({"iat": NOW + 61}), TokenError::NotYetValid),
        ] {
            assert_eq!(target.refuses(&key.with_claims(changes)).await, error);
        }
    }
}

#[tokio::test]
async fn issuers_and_audiences_that_look_alike_are_others() {
    let target = Target::new();
    for iss in [
        "https://issuer.example/",
        "https://issuer.example:443",
        "https://Issuer.example",
        "HTTPS://issuer.example",
        "http://issuer.example",
        "https://user@issuer.example",
        "https://issuer.example.evil",
        "https://issuer.example@evil.example",
        "https://issuer.example ",
        "https://issuer\u{3002}example",
        "https://issuer.exampl",
        "issuer.example",
        "accounts.google.com",
        "*",
    ] {
        let token = target.rsa().with_claims(json!({"iss": iss}));
        assert_eq!(target.refuses(&token).await, TokenError::Issuer, "{iss}");
    }
    let token = target.rsa().with_claims(json!({"iss": OWN, "sub": me()}));
    assert_eq!(target.refuses(&token).await, TokenError::Key, "one issuer's key is not another's");
    for aud in
        [json!("https://api.example/"), json!("https://api"), json!(""), json!([]), json!(["x"]), json!("customer")]
    {
        let token = target.rsa().with_claims(json!({"aud": aud}));
        assert_eq!(target.refuses(&token).await, TokenError::Audience, "{aud}");
    }
    let token = target.rsa().with_claims(json!({"aud": null}));
    assert_eq!(target.refuses(&token).await, TokenError::Claim("aud"));
    for typ in ["logout+jwt", "secevent+jwt", "dpop+jwt", "JWE", "", "application/json"] {
        let token = target.rsa().with_header(json!({"typ": typ}));
        assert_eq!(target.refuses(&token).await, TokenError::Kind, "{typ}");
    }
}

#[tokio::test]
async fn claims_say_nothing_twice() {
    let target = Target::new();
    for (one, other) in [("alice", "mallory"), ("mallory", "alice")] {
        let doubled = good_claims().replace(r#""sub":"alice""#, &format!(r#""sub":"{one}","sub":"{other}""#));
        let forged = target.rsa().sign(&target.rsa().header(json!({})), &doubled);
        assert!(matches!(target.refuses(&forged).await, TokenError::Malformed(_)));
    }
}

#[tokio::test]
async fn no_flipped_bit_leaves_a_token_good() {
    let target = Target::new();
    for key in target.keys() {
        let good = key.with_header(json!({}));
        target.verifier.verify(&good).await.unwrap();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A flipped top bit leaves no UTF-8, and so nothing that could be asked about.
            if let Ok(flipped) = std::str::from_utf8(&bytes) {
                target.refuses(flipped).await;
            }
        }
        target.verifier.verify(&good).await.unwrap();
    }
}
