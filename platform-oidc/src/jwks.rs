//! JSON Web Key Sets (RFC 7517): strict parsing and serialization.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use crate::{json, jws::MAX_KID};
use platform_keys::{Algorithm, UnusableKey, VerifyingKey};

/// The maximum length of a key set, in bytes; our choice: 256 KiB.
pub const MAX_KEY_SET: usize = 256 * 1024;
/// The maximum number of keys in a set, including unusable ones; our choice.
pub const MAX_KEYS: usize = 100;

/// Members that occur only in private or shared keys (RFC 7518 section 6, RFC 8037 section 2).
const SECRET_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// The public keys of one issuer, in the order of publication. Clones share the keys.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<Arc<VerifyingKey>>,
}

/// The reason why a key set is rejected. The message quotes no part of the key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKeySet {
    /// Longer than [`MAX_KEY_SET`] or with more than [`MAX_KEYS`] keys.
    #[error("the key set is too large")]
    TooLarge,
    /// Not a JSON object with an array `keys` of objects, or a JSON object with duplicate keys.
    #[error("the key set must be a JSON object with an array `keys`, without duplicate keys")]
    Malformed,
    /// Contains a shared secret or a private key. A published secret is compromised.
    #[error("the key set contains a secret key")]
    Secret,
    /// Two usable keys of one algorithm have the same `kid`, so that the `kid` in a token is ambiguous.
    #[error("two keys of the set have the same `kid` and algorithm")]
    DuplicateKid,
}

impl KeySet {
    /// Creates a set of keys.
    ///
    /// # Errors
    /// [`InvalidKeySet::DuplicateKid`], [`InvalidKeySet::TooLarge`].
    pub fn new(keys: impl IntoIterator<Item = VerifyingKey>) -> Result<Self, InvalidKeySet> {
        let mut set = Self::default();
        for key in keys {
            if set.keys.len() == MAX_KEYS {
                return Err(InvalidKeySet::TooLarge);
            }
            if key.kid().is_some() && set.find(key.kid(), key.algorithm()).is_some() {
                return Err(InvalidKeySet::DuplicateKid);
            }
            set.keys.push(Arc::new(key));
        }
        Ok(set)
    }

    /// Creates a set of the server's own keys, without validation: the server generated them.
    pub(crate) fn own<'a>(keys: impl Iterator<Item = &'a VerifyingKey>) -> Self {
        Self { keys: keys.cloned().map(Arc::new).collect() }
    }

    /// Parses a key set.
    ///
    /// Skips a key when its `kty`, `crv` or `alg` does not belong to one of [`Algorithm::ALL`], when `use` is not `sig`
    /// or `key_ops` lacks `verify`, and when the key is invalid or weak (RFC 7517 section 5). An RSA key is for PS256
    /// if its `alg` says so, and for RS256 otherwise. The set may end up empty.
    ///
    /// # Errors
    /// [`InvalidKeySet`]; a single secret key rejects the whole set.
    pub fn parse(json: &[u8]) -> Result<Self, InvalidKeySet> {
        if json.len() > MAX_KEY_SET {
            return Err(InvalidKeySet::TooLarge);
        }
        let set = json::object(json).ok_or(InvalidKeySet::Malformed)?;
        let Some(Value::Array(entries)) = set.get("keys") else { return Err(InvalidKeySet::Malformed) };
        if entries.len() > MAX_KEYS {
            return Err(InvalidKeySet::TooLarge);
        }
        let mut keys = Vec::new();
        for entry in entries {
            let Value::Object(jwk) = entry else { return Err(InvalidKeySet::Malformed) };
            if jwk.get("kty") == Some(&json!("oct")) || SECRET_MEMBERS.iter().any(|name| jwk.contains_key(*name)) {
                return Err(InvalidKeySet::Secret);
            }
            keys.extend(parse_key(jwk));
        }
        Self::new(keys)
    }

    /// Returns the key with exactly this `kid` and algorithm. Without a `kid`, returns the key of a set that has only
    /// one, whatever its algorithm (OpenID Connect Core section 10.1).
    pub fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Arc<VerifyingKey>> {
        match (kid, self.keys.as_slice()) {
            (Some(_), keys) => keys.iter().find(|key| key.kid() == kid && key.algorithm() == algorithm),
            // `Jws::verify` rejects a key of another algorithm.
            (None, [key]) => Some(key),
            (None, _) => None,
        }
    }

    /// Returns whether this set has every key of `other`, with the same `kid`.
    pub fn contains_all(&self, other: &Self) -> bool {
        let is_same = |a: &VerifyingKey, b: &VerifyingKey| {
            a.kid() == b.kid() && a.thumbprint() == b.thumbprint() && a.algorithm() == b.algorithm()
        };
        other.keys.iter().all(|key| self.keys.iter().any(|mine| is_same(mine, key)))
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[Arc<VerifyingKey>] {
        &self.keys
    }

    /// Returns the set as JSON, with only the public members.
    pub fn to_json(&self) -> String {
        json!({"keys": self.keys.iter().map(|key| key.to_jwk()).collect::<Vec<_>>()}).to_string()
    }
}

/// Parses one public key; returns `None` if it is unusable.
fn parse_key(jwk: &Map<String, Value>) -> Option<VerifyingKey> {
    let kid = match jwk.get("kid") {
        None => None,
        Some(Value::String(kid)) if kid.len() <= MAX_KID => Some(kid.clone()),
        Some(_) => return None,
    };
    let key = match (jwk.get("kty")?.as_str()?, jwk.get("crv")) {
        ("RSA", None) if jwk.get("alg").is_some_and(|alg| alg == Algorithm::Ps256.name()) => {
            VerifyingKey::rsa_pss(kid, &bytes(jwk, "n")?, &bytes(jwk, "e")?)
        }
        ("RSA", None) => VerifyingKey::rsa(kid, &bytes(jwk, "n")?, &bytes(jwk, "e")?),
        ("EC", Some(crv)) if crv == "P-256" => VerifyingKey::p256(kid, &bytes(jwk, "x")?, &bytes(jwk, "y")?),
        ("EC", Some(crv)) if crv == "P-384" => VerifyingKey::p384(kid, &bytes(jwk, "x")?, &bytes(jwk, "y")?),
        ("OKP", Some(crv)) if crv == "Ed25519" => VerifyingKey::ed25519(kid, &bytes(jwk, "x")?),
        _ => return None,
    };
    key.inspect_err(|UnusableKey(reason)| tracing::debug!(reason, "skipped an unusable key of a key set"))
        .ok()
        .filter(|key| is_for_verifying(jwk, key.algorithm()))
}

/// Returns whether `use`, `key_ops` and `alg` allow a key to verify signatures of this algorithm. An absent member
/// allows it.
fn is_for_verifying(jwk: &Map<String, Value>, algorithm: Algorithm) -> bool {
    let allows = |name, allowed: &dyn Fn(&Value) -> bool| jwk.get(name).is_none_or(allowed);
    allows("use", &|usage| usage == "sig")
        && allows("alg", &|alg| alg == algorithm.name())
        && allows("key_ops", &|ops| {
            ops.as_array().is_some_and(|ops| ops.iter().all(Value::is_string) && ops.contains(&json!("verify")))
        })
}

fn bytes(jwk: &Map<String, Value>, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(jwk.get(name)?.as_str()?).ok()
}

#[cfg(test)]
mod tests {
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
                with(&jwk, "alg", json!("PS384")),
                with(&jwk, "alg", json!("RS384")),
                with(&jwk, "alg", json!("ES512")),
                with(&jwk, "alg", json!("Ed25519")),
                with(&jwk, "alg", json!("RSA-OAEP")),
                with(&jwk, "alg", json!(null)),
                with(&jwk, "kid", json!(7)),
                with(&jwk, "kid", json!("k".repeat(MAX_KID + 1))),
                with(&jwk, "kty", json!("AKP")),
                with(&jwk, "kty", json!("rsa")),
                with(&jwk, "kty", json!(null)),
                with(&jwk, "crv", json!("P-521")),
                with(&jwk, "crv", json!("secp256k1")),
                with(&jwk, "crv", json!("Ed448")),
                without(&jwk, "kty"),
                without(&without(&jwk, "n"), "x"),
                with(&with(&jwk, "n", json!("AQAB")), "x", json!("AQAB")),
                with(&with(&jwk, "n", json!("AQAB=")), "x", json!("AQAB=")),
            ] {
                assert_eq!(parse(&[&skipped]).unwrap().keys().len(), 0, "{skipped}");
            }
        }
        let [rsa, p256, p384, pss, ed25519] = Algorithm::ALL.map(jwk);
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
    fn alg_decides_the_only_padding_of_an_rsa_key() {
        let pss = jwk(Algorithm::Ps256);
        let algorithm = |jwk: &Value| parse(&[jwk]).unwrap().keys()[0].algorithm();
        assert_eq!(algorithm(&pss), Algorithm::Ps256);
        assert_eq!(algorithm(&with(&pss, "alg", json!("RS256"))), Algorithm::Rs256);
        assert_eq!(algorithm(&without(&pss, "alg")), Algorithm::Rs256);
        // One key that is published for both paddings counts as two keys with the same `kid`.
        let both = parse(&[&pss, &with(&pss, "alg", json!("RS256"))]).unwrap();
        let kid = pss["kid"].as_str();
        assert_eq!(both.find(kid, Algorithm::Ps256).unwrap().algorithm(), Algorithm::Ps256);
        assert_eq!(both.find(kid, Algorithm::Rs256).unwrap().algorithm(), Algorithm::Rs256);
        assert!(!both.contains_all(&parse(&[&with(&jwk(Algorithm::Es384), "kid", pss["kid"].clone())]).unwrap()));
        assert!(!parse(&[&pss]).unwrap().contains_all(&parse(&[&without(&pss, "alg")]).unwrap()));
    }

    #[test]
    fn a_secret_key_rejects_the_whole_set() {
        let key = jwk(Algorithm::Es256);
        for secret in SECRET_MEMBERS {
            assert_eq!(parse(&[&key, &with(&key, secret, json!("AQAB"))]).unwrap_err(), InvalidKeySet::Secret);
        }
        let shared = json!({"kty": "oct", "kid": "a", "alg": "HS256"});
        assert_eq!(parse(&[&key, &shared]).unwrap_err(), InvalidKeySet::Secret);
    }

    #[test]
    fn sets_are_bounded_and_unambiguous() {
        let (a, b) = (jwk(Algorithm::Es256), jwk(Algorithm::Es256));
        assert_eq!(parse(&[&a, &with(&b, "kid", a["kid"].clone())]).unwrap_err(), InvalidKeySet::DuplicateKid);
        assert_eq!(parse(&[&a, &a]).unwrap_err(), InvalidKeySet::DuplicateKid);
        assert_eq!(parse(&[]).unwrap().keys().len(), 0);
        let other = json!({"kty": "AKP"});
        assert!(parse(&[&other; MAX_KEYS]).is_ok());
        assert_eq!(parse(&[&other; MAX_KEYS + 1]).unwrap_err(), InvalidKeySet::TooLarge);
        let mut wide = format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(MAX_KEY_SET - 18));
        assert!(KeySet::parse(wide.as_bytes()).is_ok());
        wide.push_str("          ");
        assert_eq!(KeySet::parse(wide.as_bytes()).unwrap_err(), InvalidKeySet::TooLarge);
        for malformed in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[1]}"#, r#"{"keys":[],"keys":[]}"#] {
            assert_eq!(KeySet::parse(malformed.as_bytes()).unwrap_err(), InvalidKeySet::Malformed, "{malformed}");
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
}
