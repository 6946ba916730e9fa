//! Which keys of a set are used, which are skipped, and why.

use super::*;
use platform_keys::SigningKey;

fn jwk(algorithm: Algorithm) -> Value {
    SigningKey::generate(algorithm).unwrap().verifying().to_jwk()
}

fn parse(keys: &[&Value]) -> Result<KeySet, InvalidKeySet> {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes())
}

fn with(jwk: &Value, name: &str, value: Value) -> Value {
    let mut jwk = jwk.clone();
    jwk[name] = value;
    jwk
}

fn without(jwk: &Value, name: &str) -> Value {
    let mut jwk = jwk.clone();
    jwk.as_object_mut().unwrap().remove(name);
    jwk
}

#[test]
fn a_key_set_survives_a_round_trip() {
    let keys = Algorithm::ALL.map(jwk);
    let set = parse(&keys.each_ref()).unwrap();
    assert_eq!(set.skipped(), []);
    assert_eq!(set.to_json(), json!({"keys": keys}).to_string());
    assert!(KeySet::parse(set.to_json().as_bytes()).unwrap().contains_all(&set));
}

#[test]
fn a_key_is_found_only_by_its_exact_kid() {
    let (rsa, p256) = (with(&jwk(Algorithm::Rs256), "kid", json!("key")), jwk(Algorithm::Es256));
    let set = parse(&[&rsa, &p256]).unwrap();
    let find = |set: &KeySet, kid: Option<&str>| set.find(kid, Algorithm::Rs256).is_some();
    assert!(find(&set, Some("key")));
    assert!(set.find(Some("key"), Algorithm::Es256).is_none(), "another algorithm");
    for kid in ["", "Key", "key ", "./key", "../key", "key\0", "key%00", "ke", "keys", "' or 1=1 --"] {
        assert!(!find(&set, Some(kid)), "{kid:?}");
    }
    assert!(!find(&set, None), "no kid, and two keys");
    assert!(find(&parse(&[&rsa]).unwrap(), None), "no kid, and one key");
    let nameless = parse(&[&without(&rsa, "kid")]).unwrap();
    assert!(find(&nameless, None) && !find(&nameless, Some("key")));
}

#[test]
fn keys_for_other_purposes_are_skipped() {
    for jwk in Algorithm::ALL.map(jwk) {
        for usable in [
            without(&jwk, "use"),
            without(&jwk, "alg"),
            without(&jwk, "kid"),
            with(&jwk, "key_ops", json!(["verify"])),
            with(&jwk, "key_ops", json!(["sign", "verify"])),
            with(&jwk, "issuer", json!("x")),
            with(&jwk, "x5c", json!(["ignored"])),
        ] {
            assert_eq!(parse(&[&usable]).unwrap().keys().len(), 1, "{usable}");
        }
        for skipped in [
            with(&jwk, "use", json!("enc")),
            with(&jwk, "use", json!("Sig")),
            with(&jwk, "use", json!(null)),
            with(&jwk, "use", json!(["sig"])),
            with(&jwk, "key_ops", json!([])),
            with(&jwk, "key_ops", json!("verify")),
            with(&jwk, "key_ops", json!(["encrypt"])),
            with(&jwk, "key_ops", json!(["sign"])),
            with(&jwk, "key_ops", json!(["verify", 1])),
            with(&jwk, "alg", json!("HS256")),
            with(&jwk, "alg", json!("none")),
            with(&jwk, "alg", json!("ES256K")),
            with(&jwk, "alg", json!("Ed448")),
            with(&jwk, "alg", json!("RSA-OAEP")),
            with(&jwk, "alg", json!(null)),
            with(&jwk, "kid", json!(7)),
            with(&jwk, "kid", json!("k".repeat(MAX_KID + 1))),
            with(&jwk, "kty", json!("AKP")),
            with(&jwk, "kty", json!("rsa")),
            with(&jwk, "kty", json!(null)),
            with(&jwk, "crv", json!("P-192")),
            with(&jwk, "crv", json!("secp256k1")),
            with(&jwk, "crv", json!("Ed448")),
            without(&jwk, "kty"),
            without(&without(&jwk, "n"), "x"),
            with(&with(&jwk, "n", json!("AQAB")), "x", json!("AQAB")),
            with(&with(&jwk, "n", json!("AQAB=")), "x", json!("AQAB=")),
        ] {
            let set = parse(&[&skipped]).unwrap();
            assert_eq!((set.keys().len(), set.skipped().len()), (0, 1), "{skipped}");
        }
    }
    let [rsa, p256, p384, pss, ed25519, ..] = Algorithm::ALL.map(jwk);
    for jwk in [&rsa, &pss] {
        for skipped in [without(jwk, "e"), with(jwk, "e", json!("AQAB="))] {
            assert_eq!(parse(&[&skipped]).unwrap().keys().len(), 0, "{skipped}");
        }
    }
    for jwk in [&p256, &p384] {
        for skipped in [without(jwk, "y"), with(jwk, "y", json!("AQAB=")), with(jwk, "y", jwk["x"].clone())] {
            assert_eq!(parse(&[&skipped]).unwrap().keys().len(), 0, "{skipped}");
        }
    }
    for (jwk, name, other) in [
        (&rsa, "alg", "ES256"),
        (&rsa, "alg", "EdDSA"),
        (&p256, "alg", "RS256"),
        (&p256, "alg", "ES384"),
        (&p256, "crv", "P-384"),
        (&p256, "crv", "Ed25519"),
        (&p384, "alg", "ES256"),
        (&p384, "crv", "P-256"),
        (&pss, "alg", "EdDSA"),
        (&pss, "kty", "OKP"),
        (&ed25519, "alg", "ES256"),
        (&ed25519, "crv", "X25519"),
        (&ed25519, "crv", "P-256"),
        (&ed25519, "kty", "EC"),
    ] {
        let swapped = with(jwk, name, json!(other));
        assert_eq!(parse(&[&swapped]).unwrap().keys().len(), 0, "{swapped}");
    }
}

#[test]
fn alg_decides_the_only_padding_and_hash_of_an_rsa_key() {
    let pss = jwk(Algorithm::Ps256);
    let algorithm = |jwk: &Value| parse(&[jwk]).unwrap().keys()[0].algorithm();
    assert_eq!(algorithm(&pss), Algorithm::Ps256);
    assert_eq!(algorithm(&with(&pss, "alg", json!("RS256"))), Algorithm::Rs256);
    assert_eq!(algorithm(&with(&pss, "alg", json!("PS512"))), Algorithm::Ps512);
    let any = without(&pss, "alg");
    let allowed = |jwk: &Value| Algorithm::ALL.map(|algorithm| parse(&[jwk]).unwrap().keys()[0].allows(algorithm));
    assert_eq!(allowed(&any), Algorithm::ALL.map(Algorithm::is_rsa));
    assert_eq!(allowed(&pss), Algorithm::ALL.map(|algorithm| algorithm == Algorithm::Ps256));
    // One key that is published for both paddings counts as two keys with the same `kid`.
    let both = parse(&[&pss, &with(&pss, "alg", json!("RS256"))]).unwrap();
    let kid = pss["kid"].as_str();
    assert_eq!(both.find(kid, Algorithm::Ps256).unwrap().algorithm(), Algorithm::Ps256);
    assert_eq!(both.find(kid, Algorithm::Rs256).unwrap().algorithm(), Algorithm::Rs256);
    assert!(!both.contains_all(&parse(&[&with(&jwk(Algorithm::Es384), "kid", pss["kid"].clone())]).unwrap()));
    assert!(!parse(&[&pss]).unwrap().contains_all(&parse(&[&any]).unwrap()));
    assert!(parse(&[&any]).unwrap().contains_all(&parse(&[&pss]).unwrap()));
    // The names of RFC 9864 and of RFC 8037 are one algorithm.
    let ed25519 = jwk(Algorithm::EdDsa);
    assert_eq!(algorithm(&with(&ed25519, "alg", json!("Ed25519"))), Algorithm::EdDsa);
}

#[test]
fn a_secret_key_is_never_used_and_disables_no_other() {
    let key = jwk(Algorithm::Es256);
    let used = |set: &KeySet| set.keys().iter().map(|key| key.kid().map(str::to_owned)).collect::<Vec<_>>();
    let only = vec![key["kid"].as_str().map(str::to_owned)];
    for secret in SECRET_MEMBERS {
        let other = with(&jwk(Algorithm::Es256), secret, json!("AQAB"));
        for keys in [[&key, &other], [&other, &key]] {
            let set = parse(&keys).unwrap();
            assert_eq!((used(&set), set.skipped().len()), (only.clone(), 1), "{secret}");
        }
        assert_eq!(parse(&[&with(&key, secret, json!("AQAB"))]).unwrap().keys().len(), 0, "{secret}");
    }
    let shared = json!({"kty": "oct", "kid": key["kid"], "alg": "HS256", "k": "AQAB"});
    let set = parse(&[&shared, &key]).unwrap();
    assert_eq!(used(&set), only);
    assert_eq!(set.skipped()[0].reason, "a symmetric key is never used");
}

#[test]
fn equal_entries_are_one_key_and_different_ones_with_one_kid_are_the_first() {
    let (rsa, p256) = (jwk(Algorithm::Rs256), jwk(Algorithm::Es256));
    for (entries, keys) in [
        (vec![&p256, &p256], 1),
        (vec![&rsa, &p256, &p256], 2),
        (vec![&p256, &with(&p256, "x5c", json!(["MIIB"]))], 1),
        (vec![&p256, &with(&p256, "x5t", json!("AQAB"))], 1),
        (vec![&p256, &without(&p256, "alg")], 1),
        (vec![&without(&rsa, "alg"), &rsa], 1),
        // The second one allows more algorithms.
        (vec![&rsa, &without(&rsa, "alg")], 2),
        (vec![&without(&p256, "kid"), &without(&p256, "kid")], 1),
    ] {
        let set = parse(&entries).unwrap();
        assert_eq!((set.keys().len(), set.skipped()), (keys, &[][..]), "{entries:?}");
        for entry in entries {
            assert!(set.find(entry["kid"].as_str(), parse(&[entry]).unwrap().keys()[0].algorithm()).is_some());
        }
    }
    let other = with(&jwk(Algorithm::Es256), "kid", p256["kid"].clone());
    let set = parse(&[&p256, &other]).unwrap();
    let found = set.find(p256["kid"].as_str(), Algorithm::Es256).unwrap().thumbprint();
    assert_eq!(found, parse(&[&p256]).unwrap().keys()[0].thumbprint());
    assert_eq!(set.skipped()[0].index, 1);
    assert_eq!(set.skipped()[0].reason, "another key of the set has the same `kid` and algorithm");
    // One `kid` for keys of different types is not ambiguous.
    let of_rsa = with(&rsa, "kid", p256["kid"].clone());
    assert_eq!(parse(&[&p256, &of_rsa]).unwrap().keys().len(), 2);
}

#[test]
fn a_key_without_kid_can_only_be_the_only_key() {
    let (a, b) = (without(&jwk(Algorithm::Es256), "kid"), without(&jwk(Algorithm::Es256), "kid"));
    let set = parse(&[&a]).unwrap();
    assert!(set.find(None, Algorithm::Es256).is_some() && set.skipped().is_empty());
    let set = parse(&[&a, &b]).unwrap();
    assert_eq!((set.keys().len(), set.skipped().len()), (0, 2));
    let named = jwk(Algorithm::Rs256);
    let set = parse(&[&a, &named]).unwrap();
    assert_eq!((set.keys().len(), set.skipped()[0].index), (1, 0));
    assert!(set.skipped()[0].reason.contains("no `kid`"), "{}", set.skipped()[0]);
}

#[test]
fn numbers_with_leading_zeros_and_padding_are_the_same_numbers() {
    let encode = |bytes: &[u8]| json!(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes));
    let (rsa, ed25519) = (jwk(Algorithm::Rs256), jwk(Algorithm::EdDsa));
    let changed = |jwk: &Value, name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let number = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
        with(jwk, name, encode(&change(number)))
    };
    let zero = |number: Vec<u8>| [vec![0], number].concat();
    let padded = |jwk: &Value, name: &str| {
        let text = jwk[name].as_str().unwrap();
        with(jwk, name, json!(format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4))))
    };
    let mut same = vec![
        (&rsa, changed(&rsa, "n", &zero)),
        (&rsa, changed(&rsa, "n", &|number| zero(zero(number)))),
        (&rsa, with(&rsa, "e", json!("AAEAAQ"))),
        (&rsa, padded(&rsa, "n")),
        (&ed25519, padded(&ed25519, "x")),
    ];
    // Keys one of whose coordinates has a leading zero octet: the curve of P-521 has half an octet to spare.
    let mut short = jwk(Algorithm::Es512);
    for _ in 0..64 {
        if short["x"].as_str().unwrap().starts_with("AA") {
            break;
        }
        short = jwk(Algorithm::Es512);
    }
    let p256 = jwk(Algorithm::Es256);
    let strip = |number: Vec<u8>| number.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<_>>();
    same.extend([
        (&p256, changed(&p256, "x", &zero)),
        (&p256, changed(&p256, "y", &zero)),
        (&p256, padded(&p256, "y")),
        (&short, changed(&short, "x", &strip)),
        (&short, changed(&short, "x", &zero)),
    ]);
    for (jwk, changed) in &same {
        let (expected, found) = (parse(&[jwk]).unwrap(), parse(&[changed]).unwrap());
        assert_eq!(found.skipped(), [], "{changed}");
        assert_eq!(found.keys()[0].thumbprint(), expected.keys()[0].thumbprint(), "{changed}");
        assert_eq!(parse(&[jwk, changed]).unwrap().keys().len(), 1, "they are one key");
    }
    for other in [
        changed(&ed25519, "x", &zero),
        changed(&p256, "x", &|number| [number, vec![0]].concat()),
        changed(&rsa, "n", &|number| [number, vec![0]].concat()),
        with(&rsa, "e", json!("AAAA")),
        with(&rsa, "n", json!("")),
        with(&p256, "x", json!("")),
        with(&rsa, "n", json!(rsa["n"].as_str().unwrap().replace(['-', '_'], "+") + "+")),
    ] {
        assert_eq!(parse(&[&other]).unwrap().keys().len(), 0, "{other}");
    }
}

#[test]
fn an_unusable_entry_disables_no_other_and_has_its_reason() {
    let good = jwk(Algorithm::Es256);
    for (entry, reason) in [
        (json!({"kty": "AKP", "alg": "ML-DSA-44", "kid": "a", "pub": "AQAB"}), "its `alg` is not supported"),
        (json!({"kty": "OKP", "crv": "X25519", "kid": "a", "x": "AQAB"}), "its `kty` or `crv` is not supported"),
        (json!({"kty": "EC", "kid": "a"}), "its `kty` or `crv` is not supported"),
        (json!({"kid": "a"}), "its `kty` is missing or not a string"),
        (json!({"kty": "RSA", "kid": "a", "use": "enc"}), "its `use` is not `sig`"),
        (json!({"kty": "RSA", "kid": "a", "e": "AQAB"}), "a member of the key is missing or not a string"),
        (json!({"kty": "RSA", "kid": "a", "n": "AQAB", "e": "AQAB"}), "the RSA modulus must have 2048 to 4096 bits"),
        (json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": "AQAB", "y": "AQAB"}), "not a point on P-256"),
    ] {
        for keys in [[&entry, &good], [&good, &entry]] {
            let set = parse(&keys).unwrap();
            assert!(set.find(good["kid"].as_str(), Algorithm::Es256).is_some(), "{entry}");
            let index = usize::from(keys[0] == &good);
            assert_eq!((set.skipped()[0].index, set.skipped()[0].reason), (index, reason), "{entry}");
        }
    }
    for odd in [json!(1), json!(null), json!([]), json!("x")] {
        let set = parse(&[&odd, &good]).unwrap();
        assert_eq!((set.keys().len(), set.skipped()[0].reason), (1, "it must be a JSON object"));
    }
    let long = json!({"kty": "RSA", "kid": "\n".repeat(600), "use": "enc"});
    let shown = parse(&[&long]).unwrap().describe_skipped();
    assert!(shown.starts_with(r#"keys[0] (kid "\n\n"#) && shown.len() < 200, "{shown}");
    let many = parse(&[&long; 20]).unwrap().describe_skipped();
    assert!(many.ends_with("; and 15 more") && many.len() < 1200, "{many}");
}

#[test]
fn sets_are_bounded() {
    let key = jwk(Algorithm::Es256);
    assert_eq!(parse(&[]).unwrap().keys().len(), 0);
    let other = json!({"kty": "AKP"});
    let set = parse(&[&[&other; MAX_SKIPPED + 1][..], &[&key]].concat()).unwrap();
    assert_eq!((set.keys().len(), set.skipped().len()), (1, MAX_SKIPPED));
    // One more key than are used.
    let named = (0..=MAX_KEYS).map(|kid| with(&key, "kid", json!(kid.to_string()))).collect::<Vec<_>>();
    let set = parse(&named.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(set.keys().len(), MAX_KEYS);
    assert_eq!((set.skipped()[0].index, set.skipped()[0].reason), (MAX_KEYS, "the set has more than 100 keys"));
    let keys =
        |count: usize| named.iter().take(count).map(|jwk| VerifyingKey::clone(&parse(&[jwk]).unwrap().keys()[0]));
    assert!(KeySet::new(keys(MAX_KEYS)).is_ok());
    assert_eq!(KeySet::new(keys(MAX_KEYS + 1)).unwrap_err(), InvalidKeySet::TooLarge);
    let different = [&key, &with(&jwk(Algorithm::Es256), "kid", key["kid"].clone())];
    let different = different.map(|jwk| VerifyingKey::clone(&parse(&[jwk]).unwrap().keys()[0]));
    assert_eq!(KeySet::new(different).unwrap_err(), InvalidKeySet::DuplicateKid);
    let mut wide = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(MAX_KEY_SET - 18));
    assert!(KeySet::parse(wide.as_bytes()).is_ok());
    wide.push_str("          ");
    assert_eq!(KeySet::parse(wide.as_bytes()).unwrap_err(), InvalidKeySet::TooLarge);
    for malformed in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#, "\u{feff}{\"keys\":[]}"] {
        assert_eq!(KeySet::parse(malformed.as_bytes()).unwrap_err(), InvalidKeySet::Malformed, "{malformed}");
    }
}

#[test]
fn static_keys_that_no_token_could_pass_are_named_with_the_rule() {
    let check = |keys: &[&Value]| check_static_keys(&json!({ "keys": keys }).to_string());
    let (rsa, p256) = (jwk(Algorithm::Rs256), jwk(Algorithm::Es256));
    let other = with(&jwk(Algorithm::Es256), "kid", p256["kid"].clone());
    let base64 = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let modulus = base64.decode(rsa["n"].as_str().unwrap()).unwrap();
    let small = with(&rsa, "n", json!(base64.encode([&modulus[..127], &[1]].concat())));
    let nameless = without(&rsa, "kid");
    for algorithm in Algorithm::ALL {
        assert_eq!(check(&[&jwk(algorithm)]), Ok(()), "{algorithm:?}");
    }
    let akp = json!({"kty": "AKP", "alg": "ML-DSA-44"});
    for good in [
        vec![&p256, &p256],
        vec![&rsa, &p256],
        vec![&nameless],
        vec![&rsa, &akp],
        vec![&rsa, &json!({"kid": "a"})],
        vec![&rsa, &json!({"kty": "EC"})],
        vec![&rsa, &with(&p256, "use", json!("enc"))],
        vec![&with(&p256, "alg", json!("ES256"))],
        vec![&with(&jwk(Algorithm::EdDsa), "alg", json!("Ed25519"))],
        vec![&with(&rsa, "alg", json!("RS512"))],
    ] {
        assert_eq!(check(&good), Ok(()), "{good:?}");
    }
    let kid = p256["kid"].as_str().unwrap();
    for (bad, named) in [
        (vec![], "it has none".to_owned()),
        (vec![&with(&p256, "use", json!("enc"))], format!("keys[0] (kid {kid:?}): its `use` is not `sig`")),
        (vec![&akp], "keys[0]: its `alg` is not supported".to_owned()),
        (vec![&small], "the RSA modulus must have 2048 to 4096 bits".to_owned()),
        (vec![&p256, &small], "keys[1] (kid ".to_owned()),
        (vec![&with(&p256, "y", p256["x"].clone())], "not a point on P-256".to_owned()),
        (vec![&rsa, &p256, &other], format!("keys[2] (kid {kid:?}): another key")),
        (vec![&nameless, &p256], "keys[0]: it has no `kid`".to_owned()),
        (vec![&with(&rsa, "alg", json!("ES256"))], "not an algorithm of RSA keys".to_owned()),
        (vec![&with(&p256, "alg", json!("RS256"))], "its `alg` is for keys of another type".to_owned()),
        (vec![&rsa, &json!({"kty": "oct", "kid": "s", "k": "AQAB"})], r#"keys[1] (kid "s"): a symmetric"#.to_owned()),
        (vec![&rsa, &with(&p256, "d", json!("AQAB"))], format!("keys[1] (kid {kid:?}): it has the private")),
    ] {
        let error = check(&bad).unwrap_err();
        assert!(error.contains(&named), "{named}: {error}");
    }
    for malformed in ["", "keys", "{}", r#"{"keys":[],"keys":[]}"#] {
        assert!(check_static_keys(malformed).unwrap_err().starts_with("must be a JWK Set: it must be"), "{malformed}");
    }
}

#[test]
fn contains_all_compares_kids_too() {
    let (a, b) = (jwk(Algorithm::Es256), jwk(Algorithm::Es256));
    let (both, one) = (parse(&[&a, &b]).unwrap(), parse(&[&b]).unwrap());
    assert!(both.contains_all(&one) && !one.contains_all(&both));
    assert!(!both.contains_all(&parse(&[&with(&b, "kid", json!("new"))]).unwrap()));
    assert!(!both.contains_all(&parse(&[&with(&jwk(Algorithm::Es256), "kid", b["kid"].clone())]).unwrap()));
}
