//! JSON objects that say each thing once.
//!
//! `serde_json` reads a key given twice into a `Value` as the last one, while another reader may take the first. What
//! two readers understand differently must not decide who somebody is, so a duplicate at any depth is an error here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads one JSON object in which no key stands twice, at any depth; `None` for anything else.
///
/// Nesting is at most 127 deep, which is `serde_json`'s limit; the caller bounds the length.
pub(crate) fn object(json: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(json) {
        Ok(Once(Value::Object(object))) => Some(object),
        _ => None,
    }
}

struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor).map(Self)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
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
        while let Some(Once(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Once(value))) = entries.next_entry::<String, Once>()? {
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
    fn an_object_reads_as_serde_json_reads_it() {
        let json = r#"{"a":null,"b":[true,-1,18446744073709551615,1.5,"\u00e9"],"c":{"a":{}}}"#;
        assert_eq!(object(json.as_bytes()).map(Value::Object), serde_json::from_str(json).ok());
    }

    #[test]
    fn what_is_no_object_or_says_something_twice_is_refused() {
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
