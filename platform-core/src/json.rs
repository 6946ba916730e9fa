//! Reads JSON from outside, strictly: a key given twice is an error and never last-wins (`docs/api.md`, JSON).

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::error::{Code, Error, Result};

pub mod int64;

/// Reads one JSON object of at most `depth` nested levels.
///
/// # Errors
/// INVALID_ARGUMENT with the place, when it is no JSON, no object, too deep, or has a key twice in one object.
pub fn read_object(bytes: &[u8], depth: usize) -> Result<Map<String, Value>> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| Error::new(Code::InvalidArgument, format!("Invalid argument: body: {error}")))?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(Error::new(Code::InvalidArgument, "Invalid argument: body: must be a JSON object")),
    }
}

/// Reads a value that has no key twice and is not deeper than this.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Strict {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth }),
            None => Err(E::custom("nested too deep")),
        }
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
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
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(inner)? {
            array.push(element);
        }
        Ok(array.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("`{key}` is given twice")));
            }
            object.insert(key, entries.next_value_seed(inner)?);
        }
        Ok(object.into())
    }
}

/// Returns a name in camelCase as snake_case has it, which is read too.
pub fn snake_case(camel: &str) -> String {
    camel.chars().fold(String::new(), |mut snake, c| {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        snake
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_read_as_it_stands() {
        let text = br#"{"b":1,"a":{"x":[null,true,-2,1.5,"\u00e9"]}}"#;
        let read = read_object(text, 3).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"b":1,"a":{"x":[null,true,-2,1.5,"é"]}}"#);
    }

    #[test]
    fn what_is_no_single_object_without_repeated_keys_is_refused_with_the_place() {
        for (text, says) in [
            (&br#"{"a":1,"a":2}"#[..], "`a` is given twice at line 1"),
            (br#"{"x":{"a":1,"b":2,"a":2}}"#, "`a` is given twice"),
            (br#"[1]"#, "must be a JSON object"),
            (br#"{"a":1} x"#, "trailing characters at line 1 column 9"),
            (br#"{"a":"#, "EOF"),
            (b"", "EOF"),
            (b"{\"a\":\"\xff\"}", "invalid unicode"),
            (br#"{"a":{"b":{"c":{}}}}"#, "nested too deep"),
            (br#"{"a":1e999}"#, "number out of range"),
        ] {
            let error = read_object(text, 3).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.message().contains(says), "{}", error.message());
        }
    }
}
