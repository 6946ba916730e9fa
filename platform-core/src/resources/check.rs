//! Validation rules that several kinds share (`docs/api.md`, Names and texts).

use std::sync::LazyLock;

use platform_engine::uid::Uid;
use regex::Regex;
use serde_json::Value;

/// The maximum length of a name in characters; our choice, so that names can be indexed as a whole.
pub(super) const MAX_NAME: usize = 512;

/// The maximum length in bytes of a description of 512 characters.
pub(super) const MAX_DESCRIPTION: usize = 4 * 512;

/// Requires `^[a-z0-9 ._-]{1,}$` and at most [`MAX_NAME`] characters.
pub(super) fn name(value: &Value) -> Result<(), String> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b' ' | b'.' | b'_' | b'-');
    let text = text(value);
    if text.is_empty() || !text.bytes().all(allowed) {
        return Err("name must match \"^[a-z0-9 ._-]{1,}$\"".to_owned());
    }
    if text.len() > MAX_NAME {
        return Err(format!("name must have at most {MAX_NAME} characters"));
    }
    Ok(())
}

/// Requires `^[\S ]{0,512}$` as in RE2, where `\s` is only ASCII white space, counted in characters. Other control
/// characters are rejected earlier, for every string field.
pub(super) fn description(value: &Value) -> Result<(), String> {
    let text = text(value);
    if text.chars().count() > 512 || text.contains(['\t', '\n', '\x0C', '\r']) {
        return Err("description must match \"^[\\\\S ]{0,512}$\"".to_owned());
    }
    Ok(())
}

/// Requires `^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`, as in the OCI distribution specification.
pub(super) fn tag(value: &Value) -> Result<(), String> {
    static TAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$").ok());
    matches(&TAG, text(value), "tag must match \"^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$\"")
}

/// Requires that every element passes [`tag`].
pub(super) fn tags(value: &Value) -> Result<(), String> {
    elements(value).try_for_each(tag)
}

/// The names of all bundles.
pub(super) const BUNDLES: &[&str] =
    &["application", "base", "byol", "ai", "ai-gpu", "featured", "fips", "commercial", "emeritoss"];

/// Requires that every element is one of [`BUNDLES`].
pub(super) fn bundles(value: &Value) -> Result<(), String> {
    if elements(value).all(|bundle| BUNDLES.contains(&text(bundle))) {
        Ok(())
    } else {
        Err(format!("only the following keywords are valid: {}", BUNDLES.join(", ")))
    }
}

/// Requires that every element is a repo's path, a colon and a tag.
pub(super) fn aliases(value: &Value) -> Result<(), String> {
    const PATTERN: &str = "^[a-zA-Z0-9_.\\-/]*[a-zA-Z0-9_.\\-]:[a-zA-Z0-9_.\\-]+$";
    static ALIAS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN).ok());
    elements(value).try_for_each(|alias| matches(&ALIAS, text(alias), &format!("each alias must match {PATTERN:?}")))
}

/// Requires 12 digits.
pub(super) fn aws_account(value: &Value) -> Result<(), String> {
    let text = text(value);
    if text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit()) {
        Ok(())
    } else {
        Err("AWS account ID must match \"^[0-9]{12}$\"".to_owned())
    }
}

/// Requires a uid of the resource hierarchy.
pub(super) fn uid(value: &Value) -> Result<(), String> {
    match text(value) {
        "" => Err("is required".to_owned()),
        text => Uid::parse(text).map(drop).map_err(|rule| rule.to_string()),
    }
}

/// Returns the last segment of the body's uid.
pub(super) fn last_segment(body: &Value) -> &str {
    body.get("uid").and_then(Value::as_str).and_then(|uid| uid.rsplit('/').next()).unwrap_or_default()
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str, rule: &str) -> Result<(), String> {
    match pattern.as_ref() {
        Some(pattern) if pattern.is_match(text) => Ok(()),
        _ => Err(rule.to_owned()),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::registry::Digest;

    type Rule = fn(&Value) -> Result<(), String>;

    #[test]
    fn each_rule_accepts_and_rejects_values_by_its_pattern() {
        let digest_of = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let good: &[(Rule, &[&str])] = &[
            (name, &["a", "my repo", "a.b_c-d 0", " "]),
            (description, &["", "Größe: 5 µm", "a\u{b}b", &"é".repeat(512)]),
            (tag, &["latest", "1.2.3-r0", "_x", &"a".repeat(128)]),
            (Digest::check, &[&digest_of("0"), &digest_of("f")]),
            (aws_account, &["123456789012"]),
        ];
        let bad: &[(Rule, &[&str])] = &[
            (name, &["", "A", "a/b", "ä", "a\n", "a\u{0}", &"a".repeat(513)]),
            (description, &["a\nb", "a\tb", &"é".repeat(513)]),
            (tag, &["", "-a", ".a", "a/b", "a:b", "latest\n", &"a".repeat(129)]),
            (Digest::check, &["", "sha256:", &digest_of("F"), &digest_of("0")[..70], "sha512:00"]),
            (aws_account, &["", "12345678901", "1234567890123", "12345678901a"]),
        ];
        for (rule, values) in good {
            for value in *values {
                assert_eq!(rule(&(*value).into()), Ok(()), "{value:?}");
            }
        }
        for (rule, values) in bad {
            for value in *values {
                assert!(rule(&(*value).into()).is_err(), "{value:?}");
            }
        }
    }

    #[test]
    fn a_list_must_satisfy_the_rule_of_its_elements() {
        assert!(bundles(&serde_json::json!(["base", "fips"])).is_ok() && bundles(&serde_json::json!([])).is_ok());
        assert!(bundles(&serde_json::json!(["base", ""])).is_err());
        assert!(aliases(&serde_json::json!(["nginx:latest", "a/b:1.2"])).is_ok());
        assert!(aliases(&serde_json::json!(["nginx"])).is_err() && aliases(&serde_json::json!(["a/:x"])).is_err());
    }
}
