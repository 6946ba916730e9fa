//! JSON objects without duplicate keys.
//!
//! For a duplicate key, `serde_json` keeps the last value in a `Value`, while another parser may keep the first. A
//! document that parsers disagree about must not decide who a caller is, so a duplicate key at any depth is an error
//! here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses one JSON object without duplicate keys at any depth; returns `None` for any other input.
///
/// The maximum nesting depth is 127, `serde_json`'s limit; the caller bounds the length.
pub(crate) fn object(json: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(json) {
        Ok(NoDuplicates(Value::Object(object))) => Some(object),
        _ => None,
    }
}

struct NoDuplicates(Value);

impl<'de> Deserialize<'de> for NoDuplicates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NoDuplicatesVisitor).map(Self)
    }
}

struct NoDuplicatesVisitor;

impl<'de> Visitor<'de> for NoDuplicatesVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(NoDuplicates(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, NoDuplicates(value))) = entries.next_entry::<String, NoDuplicates>()? {
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("duplicate key"));
            }
        }
        Ok(object.into())
    }
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
