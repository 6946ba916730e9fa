//! The keys that sign tokens for one identity: what a JWK Set must have (`docs/api.md`, Identities).

use platform_engine::{
    context::Context,
    error::{Result, Violations},
    json::read_object,
};
use serde_json::Value;

use super::StaticKeys;

/// The rules of an installation for the static keys of identities.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StaticKeyPolicy {
    /// Checks a JWK Set when it is set: rejects one whose keys the token service could not use, with a rule that names the
    /// key. Accepts every set by default, because this crate has no cryptography.
    pub check: fn(&str) -> std::result::Result<(), String>,
}

impl Default for StaticKeyPolicy {
    fn default() -> Self {
        Self { check: |_| Ok(()) }
    }
}

impl StaticKeyPolicy {
    /// Sets the check of a JWK Set, such as `platform_oidc::jwks::check_static_keys`.
    #[must_use]
    pub fn check(self, check: fn(&str) -> std::result::Result<(), String>) -> Self {
        Self { check }
    }
}

/// Checks new keys by the rules of the installation. Keys that are stored already are not checked again, so that an
/// update of another field does not fail.
pub(super) fn check(cx: &Context<'_>, old: Option<&StaticKeys>, new: &StaticKeys) -> Result<()> {
    let is_same = old.is_some_and(|old| old.issuer_keys == new.issuer_keys);
    let Some(policy) = cx.platform().data::<StaticKeyPolicy>().filter(|_| !is_same) else { return Ok(()) };
    let mut violations = Violations::default();
    if let Err(rule) = (policy.check)(&new.issuer_keys) {
        violations.add("staticKeys.issuerKeys", rule);
    }
    violations.none_or(())
}

/// Requires a JWK Set without secret parts, of which at least one key has one of the types RSA, EC and OKP. Other types
/// are ignored (RFC 7517 section 5).
pub(super) fn public_keys(value: &Value) -> std::result::Result<(), String> {
    const SECRET: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
    let rule = || "must be a JWK Set of public RSA, EC or OKP keys, as JSON".to_owned();
    let set = read_object(value.as_str().unwrap_or_default().as_bytes(), usize::MAX).map_err(|_| rule())?;
    let keys = set.get("keys").and_then(Value::as_array).ok_or_else(rule)?;
    let is_type =
        |key: &Value, types: &[&str]| key.get("kty").and_then(Value::as_str).is_some_and(|kty| types.contains(&kty));
    if let Some(index) =
        keys.iter().position(|key| is_type(key, &["oct"]) || SECRET.iter().any(|secret| key.get(*secret).is_some()))
    {
        return Err(format!("must have public keys only: keys[{index}] is secret; remove it, and use another key"));
    }
    if keys.iter().any(|key| is_type(key, &["RSA", "EC", "OKP"])) { Ok(()) } else { Err(rule()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_keys_must_have_a_public_key_and_no_secret_one() {
        for good in [
            r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#,
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQAB"}]}"#,
            r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"AKP","alg":"ML-DSA-44","pub":"AQAB"}]}"#,
            r#"{"keys":[{"n":"AQAB"},{"kty":"EC"}]}"#,
        ] {
            assert_eq!(public_keys(&good.into()), Ok(()), "{good}");
        }
        for bad in [
            "",
            "{}",
            "keys",
            r#"{"keys":{}}"#,
            r#"{"keys":[]}"#,
            r#"{"keys":[{"kty":"AKP"}]}"#,
            r#"{"keys":[{"kty":"EC"}],"keys":[]}"#,
            r#"{"keys":[{"kty":"oct","k":"AA"}]}"#,
            r#"{"keys":[{"kty":"EC"},{"kty":"oct"}]}"#,
            r#"{"keys":[{"kty":"RSA","d":"AA"}]}"#,
            r#"{"keys":[{"kty":"RSA","qi":"AA"}]}"#,
            r#"{"keys":[{"kty":"EC"},{"kty":"AKP","d":"AA"}]}"#,
        ] {
            assert!(public_keys(&bad.into()).is_err(), "{bad}");
        }
    }
}
