//! JSON objects without duplicate keys.
//!
//! For a duplicate key, `serde_json` keeps the last value in a `Value`, while another parser may keep the first. A
//! document that parsers disagree about must not decide who a caller is, so a duplicate key at any depth is an error
//! here.

use platform_engine::json::read_object;
use serde_json::{Map, Value};

/// Parses one JSON object without duplicate keys at any depth; returns `None` for any other input.
///
/// The maximum nesting depth is 127, `serde_json`'s limit; the caller bounds the length.
pub(crate) fn object(json: &[u8]) -> Option<Map<String, Value>> {
    read_object(json, usize::MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_parse_as_with_serde_json() {
        let json = r#"{"a":null,"b":[true,-1,18446744073709551615,1.5,"\u00e9"],"c":{"a":{}}}"#;
        assert_eq!(object(json.as_bytes()).map(Value::Object), serde_json::from_str(json).ok());
    }

    #[test]
    fn non_objects_and_duplicate_keys_are_rejected() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let bad = [
            "",
            "null",
            "[]",
            "\"a\"",
            "{",
            "{}{}",
            "{} x",
            "\u{feff}{}",
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":{"a":1,"a":2}}"#,
            r#"{"x":[{"a":1,"a":2}]}"#,
            r#"{"a":NaN}"#,
            r#"{"a":1e999}"#,
            &format!(r#"{{"a":{deep}}}"#),
        ];
        for bad in bad {
            assert_eq!(object(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), None, "not UTF-8");
    }
}
