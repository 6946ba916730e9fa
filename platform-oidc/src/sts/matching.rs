//! Matches a token's claims against the relationship of an identity.
//!
//! Patterns match whole values. A claim that the identity does not name is ignored, except the audience: an identity
//! that names no audience requires one of the default audiences and never accepts any other.

use platform_core::{
    pattern::Pattern,
    resources::iam::{AwsIdentity, ClaimMatch, StaticKeys, normalize_issuer},
};
use serde_json::Value;

use crate::claims::{Claims, find};

/// The caller that made a signed request, according to AWS.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallerIdentity {
    pub(super) account: String,
    pub(super) arn: String,
    pub(super) user_id: String,
}

/// How a token differs from the relationship of an identity.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The caller must not learn how.
    Hidden,
    /// In this claim, while the issuer and the subject are literally those of the identity.
    Claim(String),
}

/// Checks that a token satisfies a claim match. `default_audiences` apply if it names no audience.
pub(super) fn check_claims(
    requested: &ClaimMatch,
    claims: &Claims,
    default_audiences: &[String],
) -> Result<(), Mismatch> {
    let issuer = normalize_issuer(&claims.issuer);
    let any = |literal: &str, pattern: &str, values: &[&str]| match (literal, pattern) {
        ("", "") => false,
        ("", pattern) => any_matches(pattern, values),
        (literal, _) => values.contains(&literal),
    };
    if !any(normalize_issuer(&requested.issuer), &requested.issuer_pattern, &[issuer])
        || !any(&requested.subject, &requested.subject_pattern, &[&claims.subject])
    {
        return Err(Mismatch::Hidden);
    }
    // A pattern may match subjects that do not belong to the owner of the identity.
    let is_literal = !requested.issuer.is_empty() && !requested.subject.is_empty();
    let mismatch = |claim: &str| if is_literal { Mismatch::Claim(claim.to_owned()) } else { Mismatch::Hidden };
    match (requested.audience.as_str(), requested.audience_pattern.as_str()) {
        // A service that receives tokens for itself must not learn the other audiences for which they are valid.
        ("", "") if !intersects(&claims.audiences, default_audiences) => return Err(Mismatch::Hidden),
        ("", "") => {}
        (literal, pattern) => {
            let audiences: Vec<_> = claims.audiences.iter().map(String::as_str).collect();
            if !any(literal, pattern, &audiences) {
                return Err(mismatch("aud"));
            }
        }
    }
    if let Some((name, _)) = requested.claims.iter().find(|(name, value)| !texts(claims, name).contains(value)) {
        return Err(mismatch(name));
    }
    let is_pattern_unmet = |(name, pattern): &(&String, &String)| {
        let found = texts(claims, name);
        !any_matches(pattern, &found.iter().map(String::as_str).collect::<Vec<_>>())
    };
    match requested.claim_patterns.iter().find(is_pattern_unmet) {
        Some((name, _)) => Err(mismatch(name)),
        None => Ok(()),
    }
}

/// Returns whether a token has the issuer and subject of static keys, and one of their audiences or, if they have none,
/// one of `default_audiences`.
pub(super) fn matches_static_keys(requested: &StaticKeys, claims: &Claims, default_audiences: &[String]) -> bool {
    // Neither is empty in a token, so that empty ones match none.
    normalize_issuer(&requested.issuer) == normalize_issuer(&claims.issuer)
        && requested.subject == claims.subject
        && intersects(
            &claims.audiences,
            if requested.audiences.is_empty() { default_audiences } else { &requested.audiences },
        )
}

/// Returns whether the identity that AWS named is the required one.
pub(super) fn matches_aws(requested: &AwsIdentity, found: &CallerIdentity) -> bool {
    let is = |literal: &str, pattern: &str, found: &str| match (literal, pattern) {
        ("", "") => false,
        ("", pattern) => any_matches(pattern, &[found]),
        (literal, _) => literal == found,
    };
    !requested.aws_account.is_empty()
        && requested.aws_account == found.account
        && is(&requested.arn, &requested.arn_pattern, &found.arn)
        && is(&requested.user_id, &requested.user_id_pattern, &found.user_id)
}

pub(super) fn intersects(found: &[String], wanted: &[String]) -> bool {
    found.iter().any(|audience| wanted.contains(audience))
}

/// Returns the strings to compare of a claim by its name or path: strings unchanged, booleans and integers as in JSON, of
/// a list those of its elements, and none for any other type.
fn texts(claims: &Claims, name: &str) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    };
    match find(&claims.all, name) {
        Some(Value::Array(values)) => values.iter().filter_map(text).collect(),
        Some(value) => text(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Returns whether a pattern matches one of the values. Compiles the pattern only once for all of them.
fn any_matches(pattern: &str, values: &[&str]) -> bool {
    // The pattern was validated when it was stored. If it does not compile any more, it matches nothing.
    Pattern::compile(pattern).is_ok_and(|pattern| values.iter().any(|value| pattern.is_match(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(changes: Value) -> Claims {
        let mut claims = json!({"iss": "https://a", "sub": "repo:org/app", "aud": "api", "exp": 1,
            "ref": "refs/heads/main", "protected": true, "run": 7, "ratio": 1.5, "groups": ["group/a", 7, true, ["deep"]],
            "nested": {"a": "b", "list": ["c"]}, "kubernetes.io": {"namespace": "prod", "pod": {"name": "p-1"}},
            "nested.literal": "d", "nothing": null, "big": 1e300, "negative": -7, "huge": u64::MAX});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        Claims::parse(claims.to_string().as_bytes()).unwrap()
    }

    fn requested(changes: Value) -> ClaimMatch {
        let mut requested = json!({"issuer": "https://a", "subject": "repo:org/app"});
        requested.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(requested).unwrap()
    }

    #[test]
    fn every_requested_claim_must_match() {
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
            (json!({"claims": {"negative": "-7", "huge": "18446744073709551615"}}), true),
            (json!({"claims": {"ref": "refs/heads/mai"}}), false),
            (json!({"claims": {"missing": ""}}), false),
            (json!({"claims": {"ratio": "1.5"}}), false),
            (json!({"claims": {"groups": "group/a"}}), true),
            (json!({"claims": {"groups": "7"}}), true),
            (json!({"claims": {"groups": "true"}}), true),
            (json!({"claims": {"groups": "group"}}), false),
            (json!({"claims": {"groups": "deep"}}), false),
            (json!({"claims": {"groups": r#"["group/a"]"#}}), false),
            (json!({"claims": {"nested": "b"}}), false),
            (json!({"claims": {"nested.a": "b", "nested.list": "c", "nested.literal": "d"}}), true),
            (json!({"claims": {"kubernetes.io.namespace": "prod", "kubernetes.io.pod.name": "p-1"}}), true),
            (json!({"claims": {"kubernetes.io.namespace": "dev"}}), false),
            (json!({"claims": {"kubernetes.io": "prod"}}), false),
            (json!({"claims": {"nothing": ""}}), false),
            (json!({"claims": {"nothing": "null"}}), false),
            (json!({"claims": {"big": "1e300"}}), false),
            (json!({"claimPatterns": {"groups": "group/.*", "kubernetes.io.pod.name": "p-[0-9]"}}), true),
            (json!({"claimPatterns": {"groups": "group"}}), false),
            (json!({"claimPatterns": {"nested": ".*"}}), false),
            (json!({"claimPatterns": {"groups": ".*deep.*"}}), false),
            (json!({"claimPatterns": {"ref": "refs/heads/.*"}}), true),
            (json!({"claimPatterns": {"ref": "refs"}}), false),
            (json!({"claimPatterns": {"missing": ".*"}}), false),
            (json!({"claimPatterns": {"ref": ".*", "run": "8"}}), false),
        ] {
            assert_eq!(check_claims(&requested(change.clone()), &token(json!({})), &default).is_ok(), fit, "{change}");
        }
    }

    #[test]
    fn a_mismatch_is_named_only_with_the_literal_issuer_and_subject() {
        let claim = |name: &str| Mismatch::Claim(name.to_owned());
        for (change, mismatch) in [
            (json!({"audience": "host"}), claim("aud")),
            (json!({"audiencePattern": "b.*"}), claim("aud")),
            (json!({"claims": {"ref": "refs/heads/dev"}}), claim("ref")),
            (json!({"claimPatterns": {"ref": ".*", "run": "8"}}), claim("run")),
            (json!({"subject": "a", "audience": "host"}), Mismatch::Hidden),
            (json!({"issuer": "https://b", "audience": "host"}), Mismatch::Hidden),
            (json!({"subject": "", "subjectPattern": "repo:org/.*", "audience": "host"}), Mismatch::Hidden),
            (json!({"issuer": "", "issuerPattern": "https://.*", "claims": {"run": "8"}}), Mismatch::Hidden),
        ] {
            let found = check_claims(&requested(change.clone()), &token(json!({})), &["api".to_owned()]);
            assert_eq!(found, Err(mismatch), "{change}");
        }
        let found = check_claims(&requested(json!({})), &token(json!({})), &["other".to_owned()]);
        assert_eq!(found, Err(Mismatch::Hidden), "the audience is not named");
    }

    #[test]
    fn without_a_requested_audience_only_the_default_audiences_match() {
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
            assert_eq!(check_claims(&requested(json!({})), &token, &default).is_ok(), fit, "{aud}");
            let keys =
                StaticKeys { issuer: "https://a".into(), subject: "repo:org/app".into(), ..StaticKeys::default() };
            assert_eq!(matches_static_keys(&keys, &token, &default), fit, "{aud}");
            assert!(
                check_claims(&requested(json!({})), &token, &[]).is_err(),
                "without default audiences nothing matches"
            );
            let keys = StaticKeys { audiences: vec!["other".to_owned()], ..keys };
            assert_eq!(
                matches_static_keys(&keys, &token, &default),
                token.audiences.contains(&"other".to_owned()),
                "{aud}"
            );
        }
    }

    #[test]
    fn static_keys_are_for_one_issuer_and_one_subject() {
        let keys = StaticKeys { issuer: "https://a/".into(), subject: "s".into(), ..StaticKeys::default() };
        for (iss, sub, fit) in [
            ("https://a/", "s", true),
            ("https://b/", "s", false),
            ("https://a", "s", false),
            ("https://a/", "t", false),
        ] {
            let token = token(json!({ "iss": iss, "sub": sub }));
            assert_eq!(matches_static_keys(&keys, &token, &["api".to_owned()]), fit, "{iss} {sub}");
        }
    }

    #[test]
    fn a_caller_of_aws_has_the_account_the_arn_and_the_user_id_of_the_identity() {
        let identity = AwsIdentity {
            aws_account: "1".to_owned(),
            arn_pattern: "arn:.*".to_owned(),
            user_id: "u".to_owned(),
            ..AwsIdentity::default()
        };
        let matches = |account: &str, arn: &str, user: &str| {
            let [account, arn, user_id] = [account, arn, user].map(str::to_owned);
            let found = CallerIdentity { account, arn, user_id };
            // An identity without an account, which no request can create, matches no caller.
            let without = AwsIdentity { aws_account: String::new(), ..identity.clone() };
            assert!(!matches_aws(&without, &found));
            matches_aws(&identity, &found)
        };
        assert!(matches("1", "arn:a", "u"));
        for (account, arn, user) in [("2", "arn:a", "u"), ("", "arn:a", "u"), ("1", "a", "u"), ("1", "arn:a", "v")] {
            assert!(!matches(account, arn, user), "{account} {arn} {user}");
        }
    }

    #[test]
    fn both_spellings_of_an_issuer_match() {
        let claims = token(json!({"iss": "accounts.google.com"}));
        let of = |issuer: &str, claims: &Claims| {
            check_claims(&requested(json!({ "issuer": issuer })), claims, &["api".to_owned()])
        };
        assert_eq!(of("https://accounts.google.com", &claims), Ok(()));
        let claims = token(json!({"iss": "https://accounts.google.com"}));
        assert_eq!(of("accounts.google.com", &claims), Ok(()));
    }
}
