//! Which keys are accepted, and what survives encoding.

use super::*;

#[test]
fn a_key_survives_a_pkcs8_round_trip_only_with_its_algorithm() {
    for algorithm in Algorithm::ALL {
        let key = SigningKey::generate(algorithm).unwrap();
        let der = key.to_pkcs8().unwrap();
        assert_eq!(SigningKey::from_pkcs8(algorithm, &der).unwrap().kid(), key.kid());
        // PKCS #8 does not record the padding of an RSA key.
        for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
            let read = SigningKey::from_pkcs8(other, &der);
            assert_eq!(read.is_ok(), algorithm.is_rsa() && other.is_rsa(), "{algorithm:?} as {other:?}");
        }
        assert!(SigningKey::from_pkcs8(algorithm, &der[..der.len() - 1]).is_err());
    }
}

#[test]
fn thumbprints_match_the_examples_of_the_rfcs() {
    // The example key of RFC 7638 section 3.1; the expected thumbprint was computed with another tool.
    let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3\
             oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA\
             ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-\
             kEgU8awapJzKnqDKgw";
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let key = VerifyingKey::rsa(None, &decode(n), &decode("AQAB")).unwrap();
    assert_eq!(key.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    // RFC 8037 appendix A.3.
    let key = VerifyingKey::ed25519(None, &decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")).unwrap();
    assert_eq!(key.thumbprint(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
}

#[test]
fn weak_and_malformed_rsa_keys_are_rejected() {
    let strong = SigningKey::generate(Algorithm::Rs256).unwrap();
    let Public::Rsa { n, e } = &strong.verifying().public else { unreachable!("an RSA key") };
    assert!(VerifyingKey::rsa(None, n, e).is_ok());
    let even = [&n[..255], &[n[255] & 0xfe]].concat();
    let padded = [&[0], &n[..]].concat();
    let huge = [&[0xff; 257][..], &n[..]].concat();
    let malformed = UnusableKey("not an RSA public key");
    let size = UnusableKey("the RSA modulus must have 2048 to 4096 bits");
    for (n, e, reason) in [
        (&n[128..], &e[..], size),
        (&[], e, malformed),
        (&even, e, malformed),
        (&padded, e, size),
        (&huge, e, size),
        (n, &[], malformed),
        (n, &[1], malformed),
        (n, &[2], malformed),
        (n, &[4], malformed),
        (n, &[0, 1, 0, 1], malformed),
        (n, &[1, 0, 0, 0, 1], malformed),
    ] {
        assert_eq!(VerifyingKey::rsa(None, n, e).map(drop), Err(reason), "{} {e:?}", n.len());
        assert_eq!(VerifyingKey::rsa_pss(None, n, e).map(drop), Err(reason), "{} {e:?}", n.len());
    }
}

#[test]
fn a_key_is_for_its_algorithm_and_an_rsa_key_without_one_for_all_of_rsa() {
    for algorithm in Algorithm::ALL {
        let key = SigningKey::generate(algorithm).unwrap();
        let signature = key.sign_bytes(b"message").unwrap();
        let jwk = key.verifying().to_jwk();
        assert_eq!((&jwk["alg"], &jwk["kid"]), (&algorithm.name().into(), &key.kid().into()));
        let any = match &key.verifying().public {
            Public::Rsa { n, e } => Some(VerifyingKey::rsa_for(None, None, n, e).unwrap()),
            _ => None,
        };
        if let Some(any) = &any {
            let mut members = any.to_jwk();
            let members = members.as_object_mut().unwrap();
            assert!(members.remove("alg").is_none() && members.remove("kid").is_none());
            assert!(["kty", "use", "n", "e"].iter().all(|name| members.get(*name) == jwk.get(*name)));
        }
        for other in Algorithm::ALL {
            let verifying = key.verifying();
            assert_eq!(verifying.allows(other), other == algorithm, "{algorithm:?} as {other:?}");
            assert_eq!(
                verifying.verifies(other, b"message", &signature),
                other == algorithm,
                "{algorithm:?} as {other:?}"
            );
            if let Some(any) = &any {
                assert_eq!(any.allows(other), other.is_rsa(), "{other:?}");
                assert_eq!(
                    any.verifies(other, b"message", &signature),
                    other == algorithm,
                    "{algorithm:?} as {other:?}"
                );
            }
        }
    }
}

#[test]
fn a_modulus_with_the_roca_fingerprint_is_rejected() {
    // 65537^128 has 2049 bits and is a power of 65537 modulo every prime.
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
        Err(UnusableKey("the RSA key comes from a generator with a known weakness (ROCA)"))
    );
}

#[test]
fn points_off_the_curve_are_rejected() {
    for (x, y) in [([0; 32], [0; 32]), ([1; 32], [1; 32]), ([0xff; 32], [0xff; 32])] {
        assert!(VerifyingKey::p256(None, &x, &y).is_err());
    }
    assert!(VerifyingKey::p256(None, &[0; 31], &[0; 32]).is_err());
    for (x, y) in [([0; 48], [0; 48]), ([1; 48], [1; 48]), ([0xff; 48], [0xff; 48])] {
        assert!(VerifyingKey::p384(None, &x, &y).is_err());
    }
    for (x, y) in [([0; 66], [0; 66]), ([1; 66], [1; 66]), ([0xff; 66], [0xff; 66])] {
        assert!(VerifyingKey::p521(None, &x, &y).is_err());
    }
    let of_p256 = SigningKey::generate(Algorithm::Es256).unwrap();
    let Public::Ec { x, y, .. } = &of_p256.verifying().public else { unreachable!("an EC key") };
    let padded = |coordinate: &[u8]| [&[0; 16], coordinate].concat();
    for (x, y) in
        [(&x[1..], &y[..]), (x, &y[1..]), (&padded(x), y), (x, &padded(y)), (&x[1..], &[&y[..], &[0]].concat())]
    {
        let reason = UnusableKey("a coordinate does not have the length of the curve");
        assert_eq!(VerifyingKey::p256(None, x, y).map(drop), Err(reason));
    }
    assert!(VerifyingKey::p384(None, x, y).is_err());
    assert!(VerifyingKey::p384(None, &padded(x), &padded(y)).is_err(), "a point of another curve");
    assert!(VerifyingKey::ed25519(None, &[0; 31]).is_err() && VerifyingKey::ed25519(None, &[0; 33]).is_err());
}

#[test]
fn ed25519_points_of_small_order_are_rejected() {
    let order_8 = [
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ];
    let zeros = "00".repeat(31);
    let full = "ff".repeat(30);
    let orders = [
        format!("01{zeros}"),
        format!("00{zeros}"),
        format!("ec{full}7f"),
        // At least the field's size: non-canonical encodings of 0, 1 and 18.
        format!("ed{full}7f"),
        format!("ee{full}7f"),
        format!("ff{full}7f"),
    ];
    for point in order_8.map(str::to_owned).into_iter().chain(orders) {
        let mut bytes = hex::decode(&point).unwrap();
        for _ in 0..2 {
            assert!(VerifyingKey::ed25519(None, &bytes).is_err(), "{point}");
            bytes[31] ^= 0x80;
        }
    }
    // One byte less is another point, or none.
    for point in [format!("eb{full}7f"), format!("ec{}fe7f", &full[2..]), format!("ec{full}7e")] {
        assert!(VerifyingKey::ed25519(None, &hex::decode(&point).unwrap()).is_ok(), "{point}");
    }
}

#[test]
fn debug_omits_secrets() {
    let key = SigningKey::generate(Algorithm::Es256).unwrap();
    assert_eq!(
        format!("{key:?}"),
        format!("SigningKey(VerifyingKey {{ kid: {:?}, algorithm: Es256 }})", Some(key.kid()))
    );
}
