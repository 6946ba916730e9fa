//! Fuzz targets: each reads bytes that strangers send, and panics when a rule is broken.
//!
//! `cargo fuzz` runs them with bytes of its own (CONTRIBUTING.md, Fuzzing); an ordinary test replays `fuzz/corpora`
//! with the same functions, so that this file is compiled by both.

#[path = "imported.rs"]
mod imported;
#[path = "served.rs"]
mod served;

use std::sync::{Arc, LazyLock};

pub use imported::{advisories, artifacts, oci_documents, oci_layout, osv_json, osv_yaml, spdx};

use platform_core::{
    aip::{field_mask::Mask, order_by, page_token::PageKeys},
    json,
    pattern::Pattern,
    resources::KINDS,
    uid::Uid,
};
use platform_http::{SystemClock, SystemEntropy};
use platform_oidc::{Algorithm, Issuer, Keys, Verifier, VerifierOptions, jwks::KeySet, jws::Jws};
use serde_json::{Map, Value};

/// What is done with one input; it panics where something does not hold.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its folder in `fuzz/corpora`.
pub const TARGETS: &[(&str, Target)] = &[
    ("advisories", advisories),
    ("artifacts", artifacts),
    ("claim_pattern", claim_pattern),
    ("json_body", json_body),
    ("jwks", jwks),
    ("jwt", jwt),
    ("mask", mask),
    ("oci_documents", oci_documents),
    ("oci_layout", oci_layout),
    ("order_by", order_by_text),
    ("osv_json", osv_json),
    ("osv_yaml", osv_yaml),
    ("page_token", page_token),
    ("path", path),
    ("query", query),
    ("spdx", spdx),
    ("uid", uid),
];

/// A uid that is read is written the same, and every ancestor is one too.
pub fn uid(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(uid) = Uid::parse(text) {
        assert_eq!(uid.as_str(), text);
        assert!(uid.ancestry().all(|ancestor| Uid::parse(ancestor).is_ok()));
    }
}

/// An order is read or refused for every kind.
pub fn order_by_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for registered in KINDS {
        let _ = order_by::parse(text, registered.kind.fields);
    }
}

/// The paths of a mask that is read are a mask that is read the same, and it can be applied.
pub fn mask(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for registered in KINDS {
        let fields = registered.kind.fields;
        let Ok(mask) = Mask::parse(text, fields) else { continue };
        if let Mask::Paths(paths) = &mask {
            assert_eq!(Mask::parse(&paths.join(","), fields).ok().as_ref(), Some(&mask));
        }
        let Value::Object(example) = (registered.example)() else { continue };
        let _ = mask.apply(fields, &example, &Map::new());
    }
}

/// A page token is opened, or refused, whatever it says and even if these keys had signed it.
pub fn page_token(data: &[u8]) {
    static KEYS: LazyLock<PageKeys> = LazyLock::new(|| PageKeys::new([(1, [7; 32])]));
    KEYS.open_signed(data);
}

/// A body is read or refused; what is read is written so that it is read the same.
pub fn json_body(data: &[u8]) {
    if let Ok(object) = json::read_object(data, 32) {
        let written = serde_json::to_vec(&object).expect("JSON is written");
        assert_eq!(json::read_object(&written, 32).expect("and read"), object);
    }
    served::body(data);
}

/// Any path is answered, and not by a fault of ours.
pub fn path(data: &[u8]) {
    served::path(data);
}

/// Any query is answered by every list and lookup, and not by a fault of ours.
pub fn query(data: &[u8]) {
    served::query(data);
}

/// A key set that is read is written so that it is read the same.
pub fn jwks(data: &[u8]) {
    if let Ok(keys) = KeySet::parse(data) {
        let again = KeySet::parse(keys.to_json().as_bytes()).expect("what was written is read");
        assert!(again.contains_all(&keys) && keys.contains_all(&again));
    }
}

/// No bytes are a token; and claims that were signed, whatever they are, are believed or refused.
pub fn jwt(data: &[u8]) {
    static SERVER: LazyLock<(Verifier, Arc<Keys>)> = LazyLock::new(|| {
        let keys = Keys::generate(Algorithm::Es256, &SystemClock, &SystemEntropy).expect("keys");
        let keys = Arc::new(keys);
        let clock = Arc::new(SystemClock);
        let issuer = Issuer::new("http://localhost", Arc::clone(&keys), clock.clone(), Arc::new(SystemEntropy));
        let options = VerifierOptions {
            own: Some(Arc::new(issuer.expect("an issuer"))),
            trusted: Vec::new(),
            audiences: vec!["http://localhost".to_owned()],
            cache_bytes: 1 << 16,
        };
        (Verifier::new(options, clock).expect("a verifier"), keys)
    });
    let (verifier, keys) = &*SERVER;
    if let Ok(token) = std::str::from_utf8(data) {
        let _ = Jws::parse(token);
        assert!(served::wait(verifier.verify(token)).is_err(), "a token out of nothing");
    }
    if let Ok(Value::Object(claims)) = serde_json::from_slice(data) {
        let token = keys.signing().sign("at+jwt", &claims).expect("a signature");
        if let Ok(verified) = served::wait(verifier.verify(&token)) {
            assert_eq!(verified.issuer, "http://localhost");
            Uid::parse(verified.principal.as_str()).expect("a principal is a uid");
        }
    }
}

/// A pattern, a line break and a value: it matches or not, quickly.
pub fn claim_pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, value) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(pattern) = Pattern::compile(pattern) {
        let _ = pattern.is_match(value);
    }
}
