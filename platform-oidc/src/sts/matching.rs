//! Whether a token's claims are those that an identity asks for.
//!
//! Patterns are matched against whole values, and a claim that the identity does not name is not looked at; but an
//! audience that it does not name is the installation's own, never any.

use platform_core::{
    pattern::Pattern,
    resources::iam::{ClaimMatch, StaticKeys, normalize_issuer},
};
use serde_json::Value;

use crate::claims::Claims;

/// Tells whether a token fits a claim match. `default` are the installation's own audiences.
pub(super) fn fits(asked: &ClaimMatch, claims: &Claims, default: &[String]) -> bool {
    let issuer = normalize_issuer(&claims.issuer);
    let any = |literal: &str, pattern: &str, values: &[&str]| match (literal, pattern) {
        ("", "") => false,
        ("", pattern) => any_matches(pattern, values),
        (literal, _) => values.contains(&literal),
    };
    any(normalize_issuer(&asked.issuer), &asked.issuer_pattern, &[issuer])
        && any(&asked.subject, &asked.subject_pattern, &[&claims.subject])
        && match (asked.audience.as_str(), asked.audience_pattern.as_str()) {
            ("", "") => any_in(&claims.audiences, default),
            (literal, pattern) => {
                let audiences: Vec<_> = claims.audiences.iter().map(String::as_str).collect();
                any(literal, pattern, &audiences)
            }
        }
        && asked.claims.iter().all(|(name, value)| claim(claims, name).is_some_and(|found| found == *value))
        && asked
            .claim_patterns
            .iter()
            .all(|(name, pattern)| claim(claims, name).is_some_and(|found| any_matches(pattern, &[&found])))
}

/// Tells whether a token is of the issuer and subject of static keys, and for their audience or, without one, for one
/// of the installation's own.
pub(super) fn fits_keys(asked: &StaticKeys, claims: &Claims, default: &[String]) -> bool {
    !asked.issuer.is_empty()
        && !asked.subject.is_empty()
        && normalize_issuer(&asked.issuer) == normalize_issuer(&claims.issuer)
        && asked.subject == claims.subject
        && any_in(&claims.audiences, if asked.audiences.is_empty() { default } else { &asked.audiences })
}

pub(super) fn any_in(found: &[String], wanted: &[String]) -> bool {
    found.iter().any(|audience| wanted.contains(audience))
}

/// Returns a claim as the text that it is compared as: texts as they are, truth values and whole numbers as JSON
/// writes them. Anything else is none.
fn claim(claims: &Claims, name: &str) -> Option<String> {
    match claims.all.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// Tells whether a pattern, which is compiled once, matches one of these.
fn any_matches(pattern: &str, values: &[&str]) -> bool {
    // It was compiled when it was written; one that no longer does matches nothing.
    Pattern::compile(pattern).is_ok_and(|pattern| values.iter().any(|value| pattern.is_match(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(changes: Value) -> Claims {
        let mut claims = json!({"iss": "https://a", "sub": "repo:org/app", "aud": "api", "exp": 1,
            "ref": "refs/heads/main", "protected": true, "run": 7, "ratio": 1.5, "groups": ["a"], "nested": {"a": "b"}});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        Claims::parse(claims.to_string().as_bytes()).unwrap()
    }

    fn asked(changes: Value) -> ClaimMatch {
        let mut asked = json!({"issuer": "https://a", "subject": "repo:org/app"});
        asked.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(asked).unwrap()
    }

    #[test]
    fn every_claim_that_is_asked_for_must_be_there_and_be_right() {
        let default = ["api".to_owned(), "host".to_owned()];
        for (change, fit) in [
            (json!({}), true),
            (json!({"issuer": "https://a/"}), false),
            (json!({"issuer": "https://A"}), false),
            (json!({"issuer": "", "issuerPattern": "https://.*"}), true),
            (json!({"issuer": "", "issuerPattern": "https:"}), false),
            (json!({"issuer": "", "issuerPattern": ""}), false),
            (json!({"issuer": "", "issuerPattern": "("}), false),
            (json!({"subject": "repo:org"}), false),
            (json!({"subject": "", "subjectPattern": "repo:org/.*"}), true),
            (json!({"subject": "", "subjectPattern": "repo:org/"}), false),
            (json!({"subject": "", "subjectPattern": ""}), false),
            (json!({"audience": "api"}), true),
            (json!({"audience": "host"}), false),
            (json!({"audiencePattern": "a.*"}), true),
            (json!({"audiencePattern": "b.*"}), false),
            (json!({"claims": {"ref": "refs/heads/main", "protected": "true", "run": "7"}}), true),
            (json!({"claims": {"ref": "refs/heads/mai"}}), false),
            (json!({"claims": {"missing": ""}}), false),
            (json!({"claims": {"ratio": "1.5"}}), false),
            (json!({"claims": {"groups": "a"}}), false),
            (json!({"claims": {"nested": "b"}}), false),
            (json!({"claimPatterns": {"ref": "refs/heads/.*"}}), true),
            (json!({"claimPatterns": {"ref": "refs"}}), false),
            (json!({"claimPatterns": {"missing": ".*"}}), false),
            (json!({"claimPatterns": {"ref": ".*", "run": "8"}}), false),
        ] {
            assert_eq!(fits(&asked(change.clone()), &token(json!({})), &default), fit, "{change}");
        }
    }

    #[test]
    fn trap_c14_an_audience_that_is_not_asked_for_is_the_installations_own_and_never_any() {
        let default = ["api".to_owned()];
        for (aud, fit) in [
            (json!("api"), true),
            (json!(["other", "api"]), true),
            (json!("other"), false),
            (json!([]), false),
            (json!("API"), false),
            (json!(""), false),
        ] {
            let token = token(json!({ "aud": aud }));
            assert_eq!(fits(&asked(json!({})), &token, &default), fit, "{aud}");
            let keys =
                StaticKeys { issuer: "https://a".into(), subject: "repo:org/app".into(), ..StaticKeys::default() };
            assert_eq!(fits_keys(&keys, &token, &default), fit, "{aud}");
            assert!(!fits(&asked(json!({})), &token, &[]), "no default is not any");
            let keys = StaticKeys { audiences: vec!["other".to_owned()], ..keys };
            assert_eq!(fits_keys(&keys, &token, &default), token.audiences.contains(&"other".to_owned()), "{aud}");
        }
    }

    #[test]
    fn the_two_names_of_one_issuer_are_one() {
        let claims = token(json!({"iss": "accounts.google.com"}));
        assert!(fits(&asked(json!({"issuer": "https://accounts.google.com"})), &claims, &["api".to_owned()]));
        let claims = token(json!({"iss": "https://accounts.google.com"}));
        assert!(fits(&asked(json!({"issuer": "accounts.google.com"})), &claims, &["api".to_owned()]));
    }
}
