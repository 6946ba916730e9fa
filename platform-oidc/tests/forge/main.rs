//! Known forgeries, against both kinds of issuer and every kind of key: all are rejected.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test that cannot go on fails"
)]

#[path = "../common/mod.rs"]
mod common;
mod forger;

use aws_lc_rs::{
    hmac,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
        RSA_PSS_SHA512, RsaPssSaltLength, RsaSignatureEncoding,
    },
};
use common::*;
use forger::{Forger, Target, rsa_sign, valid_claims};
use platform_keys::VerifyingKey;
use platform_oidc::TokenError;
use serde_json::json;

#[tokio::test]
async fn the_unmodified_tokens_are_accepted() {
    let target = Target::new();
    for key in target.keys() {
        target.verifier.verify(&key.with_header(json!({}))).await.unwrap();
    }
}

#[tokio::test]
async fn unsigned_tokens_and_unknown_algorithms_are_rejected() {
    let target = Target::new();
    for key in target.keys() {
        for alg in
            ["none", "None", "NONE", "nOnE", "none ", "", "HS256", "HS512", "RS1", "RSA1_5", "ES256K", "Ed448", "dir"]
        {
            for signature in [vec![], vec![0], key.signature()] {
                let forged = raw_token(&key.header(json!({"alg": alg})), &valid_claims(), &signature);
                assert_eq!(target.assert_rejected(&forged).await, TokenError::Algorithm);
            }
        }
        for alg in [json!(null), json!(0), json!(["RS256"]), json!({"alg": "RS256"})] {
            target.assert_rejected(&key.with_header(json!({"alg": alg}))).await;
        }
    }
}

#[tokio::test]
async fn a_public_key_is_not_a_shared_secret() {
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
                let input = format!("{}.{}", encode(&header), encode(valid_claims()));
                let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), input.as_bytes());
                target.assert_rejected(&raw_token(&header, &valid_claims(), tag.as_ref())).await;
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
            let forged = raw_token(&key.header(json!({"alg": alg})), &valid_claims(), &signature);
            assert_eq!(
                target.assert_rejected(&forged).await,
                TokenError::Key,
                "the kid of one key, the algorithm of the other"
            );
            let forged = raw_token(&key.header(json!({"kid": other.kid()})), &valid_claims(), &signature);
            assert_eq!(
                target.assert_rejected(&forged).await,
                TokenError::Key,
                "the algorithm of one key, the kid of the other"
            );
        }
    }
}

#[tokio::test]
async fn a_key_published_for_one_padding_does_not_verify_another() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
    let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
    let kid = Some("one-key".to_owned());
    for (published, alg, padding) in [
        (VerifyingKey::rsa(kid.clone(), n, e).unwrap(), "PS256", &RSA_PSS_SHA256),
        (VerifyingKey::rsa_pss(kid.clone(), n, e).unwrap(), "RS256", &RSA_PKCS1_SHA256),
    ] {
        let (clock, stub) = (clock(), StubFetch::new());
        stub.publish(&[&published]);
        let verifier = verifier(None, vec![trusted(&stub, &clock)], &clock);
        for (claimed, error) in [(alg, TokenError::Key), (published.algorithm().name(), TokenError::Signature)] {
            let header = json!({"alg": claimed, "kid": "one-key"}).to_string();
            let input = format!("{}.{}", encode(&header), encode(valid_claims()));
            let forged = raw_token(&header, &valid_claims(), &rsa_sign(&pair, padding, input.as_bytes()));
            assert_eq!(verifier.verify(&forged).await.map(drop), Err(error), "{claimed}");
        }
    }
}

#[tokio::test]
async fn a_key_without_alg_verifies_every_algorithm_of_its_type_and_no_other() {
    static PADDINGS: [(&str, &RsaSignatureEncoding); 6] = [
        ("RS256", &RSA_PKCS1_SHA256),
        ("RS384", &RSA_PKCS1_SHA384),
        ("RS512", &RSA_PKCS1_SHA512),
        ("PS256", &RSA_PSS_SHA256),
        ("PS384", &RSA_PSS_SHA384),
        ("PS512", &RSA_PSS_SHA512),
    ];
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
    let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
    let rsa = VerifyingKey::rsa_for(None, Some("rsa".to_owned()), n, e).unwrap().to_jwk();
    assert!(rsa.get("alg").is_none());
    let [_, p256, p384, _, ed25519, p521, ..] = Forger::all();
    let mut published = vec![rsa];
    for key in [&p256, &p384, &ed25519, &p521] {
        let mut jwk = key.public.to_jwk();
        jwk.as_object_mut().unwrap().shift_remove("alg");
        published.push(jwk);
    }
    let (clock, stub) = (clock(), StubFetch::new());
    stub.publish(&[]);
    stub.respond(&format!("{TRUSTED}/keys"), Ok(json!({ "keys": published }).to_string()));
    let verifier = verifier(None, vec![trusted(&stub, &clock)], &clock);
    let signed = |alg: &str, padding: &'static RsaSignatureEncoding| {
        let header = json!({"alg": alg, "kid": "rsa"}).to_string();
        let input = format!("{}.{}", encode(&header), encode(valid_claims()));
        raw_token(&header, &valid_claims(), &rsa_sign(&pair, padding, input.as_bytes()))
    };
    for (alg, padding) in PADDINGS {
        verifier.verify(&signed(alg, padding)).await.unwrap();
        for (_, other) in PADDINGS.into_iter().filter(|(other, _)| *other != alg) {
            assert_eq!(verifier.verify(&signed(alg, other)).await.map(drop), Err(TokenError::Signature), "{alg}");
        }
    }
    for alg in ["ES256", "ES512", "EdDSA", "Ed25519"] {
        assert_eq!(verifier.verify(&signed(alg, &RSA_PKCS1_SHA256)).await.map(drop), Err(TokenError::Key), "{alg}");
    }
    for alg in ["HS256", "none"] {
        let refused = verifier.verify(&signed(alg, &RSA_PKCS1_SHA256)).await.map(drop);
        assert_eq!(refused, Err(TokenError::Algorithm), "{alg}");
    }
    for (key, algs) in
        [(&p256, &["ES256"][..]), (&p384, &["ES384"]), (&p521, &["ES512"]), (&ed25519, &["EdDSA", "Ed25519"])]
    {
        for alg in ["RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"] {
            let verified = verifier.verify(&key.with_header(json!({"alg": alg}))).await.map(drop);
            assert_eq!(
                verified,
                if algs.contains(&alg) { Ok(()) } else { Err(TokenError::Key) },
                "{} {alg}",
                key.kid()
            );
        }
    }
}

#[tokio::test]
async fn a_salt_length_other_than_the_hash_length_is_rejected() {
    static NONE: RsaSignatureEncoding = RSA_PSS_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(0));
    static SHORT: RsaSignatureEncoding = RSA_PSS_SHA256.with_pss_salt_length(RsaPssSaltLength::Custom(31));
    static LONG: RsaSignatureEncoding = RSA_PSS_SHA256.with_pss_salt_length(RsaPssSaltLength::Max);
    for padding in [&NONE, &SHORT, &LONG] {
        let mut keys = Forger::all();
        keys[3] = Forger::rsa_by(padding, |n, e| VerifyingKey::rsa_pss(Some("pss-key".into()), n, e).unwrap());
        let target = Target::with_keys(keys);
        let forged = target.keys[3].with_header(json!({}));
        assert_eq!(target.assert_rejected(&forged).await, TokenError::Signature, "{padding:?}");
    }
}

#[tokio::test]
async fn degenerate_signatures_are_rejected() {
    let target = Target::new();
    let order = |hex: &str| hex::decode(hex).unwrap();
    let orders = [
        order("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
        order("ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"),
        order(&format!("01{}fa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409", "ff".repeat(32))),
    ];
    let mut signatures = vec![vec![], vec![0], vec![0xff; 256], [&[0; 255][..], &[1]].concat()];
    for length in [63, 64, 65, 95, 96, 97, 131, 132, 133, 255, 256, 257] {
        signatures.extend([vec![0; length], vec![0xff; length]]);
    }
    for order in &orders {
        let one = [&vec![0; order.len() - 1][..], &[1]].concat();
        for (r, s) in [(order, order), (order, &one), (&one, order), (&one, &one)] {
            signatures.push([&r[..], &s[..]].concat());
        }
    }
    // DER: an empty sequence, and a sequence of two zeros.
    signatures.push(vec![0x30, 0x00]);
    signatures.push(vec![0x30, 0x06, 0x02, 0x01, 0x00, 0x02, 0x01, 0x00]);
    // The neutral element of Ed25519, and zero as the scalar.
    signatures.push([&[1][..], &[0; 63]].concat());
    for key in target.keys() {
        for signature in &signatures {
            let forged = raw_token(&key.header(json!({})), &valid_claims(), signature);
            assert_eq!(target.assert_rejected(&forged).await, TokenError::Signature);
        }
        let valid = key.signature();
        for changed in
            [&valid[1..], &valid[..valid.len() - 1], &[&valid[..], &[0]].concat(), &[&[0], &valid[..]].concat()]
        {
            target.assert_rejected(&raw_token(&key.header(json!({})), &valid_claims(), changed)).await;
        }
    }
}

/// Adds little-endian numbers; returns `None` on overflow.
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
async fn non_canonical_signatures_are_rejected() {
    let target = Target::new();
    let [_, p256, p384, _, ed25519, ..] = &target.keys;
    // DER, the encoding of ECDSA signatures in other protocols.
    for key in [p256, p384] {
        let valid = key.signature();
        let integer = |bytes: &[u8]| [&[0x02, bytes.len() as u8 + 1, 0], bytes].concat();
        let (r, s) = valid.split_at(valid.len() / 2);
        let body = [integer(r), integer(s)].concat();
        let der = [&[0x30, body.len() as u8], &body[..]].concat();
        assert_eq!(
            target.assert_rejected(&raw_token(&key.header(json!({})), &valid_claims(), &der)).await,
            TokenError::Signature
        );
        let swapped = [s, r].concat();
        let forged = raw_token(&key.header(json!({})), &valid_claims(), &swapped);
        assert_eq!(target.assert_rejected(&forged).await, TokenError::Signature);
    }
    // Ed25519 with the group order added to the scalar, which less strict verifiers accept (RFC 8032 section 8.4).
    let order = hex::decode("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010").unwrap();
    let valid = ed25519.signature();
    let (r, s) = valid.split_at(32);
    let mut shifted = s.to_vec();
    let mut encodings = 0;
    while let Some(next) = sum(&shifted, &order) {
        let forged = raw_token(&ed25519.header(json!({})), &valid_claims(), &[r, &next[..]].concat());
        assert_eq!(target.assert_rejected(&forged).await, TokenError::Signature);
        (shifted, encodings) = (next, encodings + 1);
    }
    assert!(encodings > 10, "{encodings}");
}

#[tokio::test]
async fn a_kid_is_never_a_path_or_a_query() {
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
            target.assert_rejected(&key.with_header(json!({"kid": kid}))).await;
        }
        let huge = key.header(json!({"kid": "k".repeat(1 << 20)}));
        assert_eq!(target.assert_rejected(&key.sign(&huge, &valid_claims())).await, TokenError::TooLong);
        // `null` counts as absent, and there are several keys.
        for kid in [json!(null), json!(0), json!([kid]), json!({"kid": kid})] {
            target.assert_rejected(&key.with_header(json!({"kid": kid}))).await;
        }
        let nameless = format!(r#"{{"alg":"{}"}}"#, key.alg());
        let forged = key.sign(&nameless, &valid_claims());
        assert_eq!(target.assert_rejected(&forged).await, TokenError::Key, "no kid, and several keys");
    }
}

#[tokio::test]
async fn keys_in_the_header_are_ignored() {
    let target = Target::new();
    for attacker in Forger::all() {
        for (name, value) in [
            ("jwk", attacker.public.to_jwk()),
            ("jku", json!("https://evil.example/keys")),
            ("x5u", json!("https://evil.example/chain")),
            ("x5c", json!(["MIIB"])),
        ] {
            for kid in ["attacker", "rsa-key", "ec-key", "p384-key", "pss-key", "ed-key"] {
                target.assert_rejected(&attacker.with_header(json!({"kid": kid, name: value}))).await;
            }
        }
    }
}

#[tokio::test]
async fn duplicate_header_keys_and_extensions_are_rejected() {
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
            let error = target.assert_rejected(&key.sign(&header, &valid_claims())).await;
            assert!(matches!(error, TokenError::Malformed(_)), "{header}: {error}");
        }
    }
}

#[tokio::test]
async fn only_the_canonical_encoding_of_a_token_is_accepted() {
    let target = Target::new();
    for key in target.keys() {
        let valid = key.with_header(json!({}));
        target.verifier.verify(&valid).await.unwrap();
        let parts: Vec<&str> = valid.split('.').collect();
        let [header, payload, signature] = parts[..] else { panic!("three parts") };
        for token in [
            format!("{valid}\n"),
            format!("\n{valid}"),
            format!("{valid} "),
            format!("Bearer {valid}"),
            format!("{valid}."),
            format!(".{valid}"),
            format!("{valid}.{signature}"),
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
            if token != valid {
                target.assert_rejected(&token).await;
            }
        }
    }
}

#[tokio::test]
async fn non_zero_trailing_bits_are_rejected() {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let target = Target::new();
    for key in target.keys() {
        let valid = key.with_header(json!({}));
        let last = valid.len() - 1;
        for digit in DIGITS.iter().filter(|digit| **digit != valid.as_bytes()[last]) {
            target.assert_rejected(&format!("{}{}", &valid[..last], char::from(*digit))).await;
        }
    }
}

#[tokio::test]
async fn signed_times_that_are_no_seconds_since_1970_are_rejected() {
    let target = Target::new();
    for key in target.keys() {
        for name in ["exp", "nbf", "iat"] {
            for value in [
                json!(format!("{}", NOW + 60)),
                json!("never"),
                json!(-0.5),
                json!(1e300),
                json!(u64::MAX),
                json!(i64::MIN),
                json!(-1),
                json!(true),
                json!([NOW]),
                json!({"seconds": NOW}),
            ] {
                let token = key.with_claims(json!({name: value}));
                assert_eq!(target.assert_rejected(&token).await, TokenError::Claim(name));
            }
        }
        for (changes, error) in [
            (json!({"exp": null}), TokenError::Claim("exp")),
            (json!({"exp": 0}), TokenError::Expired),
            (json!({"exp": NOW - 60}), TokenError::Expired),
            (json!({"nbf": NOW + 61}), TokenError::NotYetValid),
            (json!({"iat": NOW + 61}), TokenError::NotYetValid),
        ] {
            assert_eq!(target.assert_rejected(&key.with_claims(changes)).await, error);
        }
    }
}

#[tokio::test]
async fn similar_issuers_and_audiences_are_rejected() {
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
        assert_eq!(target.assert_rejected(&token).await, TokenError::Issuer, "{iss}");
    }
    let token = target.rsa().with_claims(json!({"iss": OWN, "sub": me()}));
    assert_eq!(target.assert_rejected(&token).await, TokenError::Key, "a key of another issuer");
    for aud in
        [json!("https://api.example/"), json!("https://api"), json!(""), json!([]), json!(["x"]), json!("customer")]
    {
        let token = target.rsa().with_claims(json!({"aud": aud}));
        assert_eq!(target.assert_rejected(&token).await, TokenError::Audience, "{aud}");
    }
    let token = target.rsa().with_claims(json!({"aud": null}));
    assert_eq!(target.assert_rejected(&token).await, TokenError::Claim("aud"));
    for typ in ["logout+jwt", "secevent+jwt", "dpop+jwt", "JWE", "jose+json", " ", "application/json"] {
        let token = target.rsa().with_header(json!({"typ": typ}));
        assert_eq!(target.assert_rejected(&token).await, TokenError::Kind, "{typ}");
    }
}

#[tokio::test]
async fn duplicate_claims_are_rejected() {
    let target = Target::new();
    for (one, other) in [("alice", "mallory"), ("mallory", "alice")] {
        let doubled = valid_claims().replace(r#""sub":"alice""#, &format!(r#""sub":"{one}","sub":"{other}""#));
        let forged = target.rsa().sign(&target.rsa().header(json!({})), &doubled);
        assert!(matches!(target.assert_rejected(&forged).await, TokenError::Malformed(_)));
    }
}

#[tokio::test]
async fn every_flipped_bit_invalidates_a_token() {
    let target = Target::new();
    for key in target.keys() {
        let valid = key.with_header(json!({}));
        target.verifier.verify(&valid).await.unwrap();
        for bit in 0..valid.len() * 8 {
            let mut bytes = valid.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A flipped top bit is not valid UTF-8, and so cannot be passed as a token.
            if let Ok(flipped) = std::str::from_utf8(&bytes) {
                target.assert_rejected(flipped).await;
            }
        }
        target.verifier.verify(&valid).await.unwrap();
    }
}
