//! A strict reader of untrusted JSON: a duplicate key is an error (`docs/api.md`, JSON).

use std::{cell::Cell, collections::HashSet, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, map::Entry};

use crate::error::{Error, Result};

pub mod int64;

/// The maximum number of values in the message of a request, including the keys of JSON, so that no message keeps a thread
/// busy for a millisecond. Our choice: no method takes as many.
pub const MAX_VALUES: usize = 8 << 10;

/// Parses one JSON object of at most `depth` nested levels and [`MAX_VALUES`] values and keys.
///
/// # Errors
/// INVALID_ARGUMENT with line and column when the text is not JSON, is nested too deep, has too many values, or has a
/// duplicate key; INVALID_ARGUMENT when it is not an object.
pub fn read_object(bytes: &[u8], depth: usize) -> Result<Map<String, Value>> {
    match read_value(bytes, depth)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::invalid_field("body", "must be a JSON object")),
    }
}

/// Parses one JSON value of at most `depth` nested levels and [`MAX_VALUES`] values and keys.
///
/// # Errors
/// As [`read_object`], for a value of any type.
pub fn read_value(bytes: &[u8], depth: usize) -> Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let left = Cell::new(MAX_VALUES);
    Strict { depth, left: &left }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| Error::invalid_field("body", error.to_string()))
}

/// Checks that these bytes are one JSON object that [`read_object`] accepts, with at most `values` values and keys in
/// total, and with only known keys at the top level. Only the keys of objects are kept in memory, so that a long text
/// costs little memory before it is known to be valid.
///
/// # Errors
/// INVALID_ARGUMENT as [`read_object`], and for the first unknown key.
pub fn check_object(bytes: &[u8], depth: usize, values: usize, is_known: impl Fn(&str) -> bool) -> Result<()> {
    let state = State { most: values, left: Cell::new(values), unknown: Cell::default(), is_known: &is_known };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let checked = Skim { depth, is_top: true, state: &state }
        .deserialize(&mut deserializer)
        .and_then(|is_object| deserializer.end().map(|()| is_object));
    if let Some(key) = state.unknown.take() {
        return Err(Error::invalid_field(key, "unknown field"));
    }
    match checked {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::invalid_field("body", "must be a JSON object")),
        Err(error) => Err(Error::invalid_field("body", error.to_string())),
    }
}

/// The state of a check.
struct State<'a> {
    most: usize,
    /// How many more values and keys the text may have.
    left: Cell<usize>,
    /// The unknown key at the top level that ended the check.
    unknown: Cell<Option<String>>,
    is_known: &'a dyn Fn(&str) -> bool,
}

/// Takes one of the values that are left of this maximum.
fn count<E: serde::de::Error>(left: &Cell<usize>, most: usize) -> Result<(), E> {
    left.set(left.get().checked_sub(1).ok_or_else(|| E::custom(format!("has more than {most} values")))?);
    Ok(())
}

/// Parses a value without storing it, and returns whether it is an object.
#[derive(Clone, Copy)]
struct Skim<'a> {
    depth: usize,
    is_top: bool,
    state: &'a State<'a>,
}

impl Skim<'_> {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, is_top: false, ..self }),
            None => Err(E::custom("nested too deep")),
        }
    }

    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        count(&self.state.left, self.state.most)
    }
}

impl<'de> DeserializeSeed<'de> for Skim<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skim<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<bool, A::Error> {
        let inner = self.inner()?;
        while elements.next_element_seed(inner)?.is_some() {}
        Ok(false)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<bool, A::Error> {
        let inner = self.inner()?;
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.count()?;
            if self.is_top && !(self.state.is_known)(&key) {
                // The error only ends the check, before the rest of the text is read: `check_object` reports the key.
                self.state.unknown.set(Some(key));
                return Err(A::Error::custom("unknown key"));
            }
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format!("`{twice}` is specified more than once")));
            }
            entries.next_value_seed(inner)?;
        }
        Ok(true)
    }
}

/// Parses a value with at most `depth` nested levels and without duplicate keys.
#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    /// How many more values and keys the text may have.
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        count(self.left, MAX_VALUES)?;
        deserializer.deserialize_any(self)
    }
}

impl Strict<'_> {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Self { depth, ..self }),
            None => Err(E::custom("nested too deep")),
        }
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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
            count(self.left, MAX_VALUES)?;
            match object.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(entries.next_value_seed(inner)?)),
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format!("`{}` is specified more than once", entry.key())));
                }
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn an_object_is_read_with_its_keys_in_order() {
        let text = br#"{"b":1,"a":{"x":[null,true,-2,1.5,"\u00e9"]}}"#;
        let read = read_object(text, 3).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"b":1,"a":{"x":[null,true,-2,1.5,"é"]}}"#);
    }

    #[test]
    fn check_object_and_read_object_accept_the_same_texts() {
        let check = |text: &[u8], values| check_object(text, 3, values, |key| key.len() == 1);
        assert!(check(br#"{"b":1,"a":{"x":[null,true,-2,1.5,"\u00e9"]}}"#, 12).is_ok());
        let error = check(br#"{"b":1,"a":{"x":[null,true,-2,1.5,"\u00e9"]}}"#, 11).unwrap_err();
        assert!(error.message().contains("has more than 11 values"), "{error}");
        for text in [
            &br#"{"a":1,"a":2}"#[..],
            br#"{"x":{"a":1,"b":2,"a":2}}"#,
            br#"[1]"#,
            br#"{"a":1} x"#,
            br#"{"a":"#,
            b"",
            b"{\"a\":\"\xff\"}",
            br#"{"a":{"b":{"c":{}}}}"#,
            br#"{"a":1e999}"#,
        ] {
            let (checked, read) = (check(text, 100).unwrap_err(), read_object(text, 3).unwrap_err());
            assert_eq!((checked.code(), checked.message()), (read.code(), read.message()));
        }
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        // The object, the key, the list, and its elements.
        let list = |elements: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(elements - 1));
        assert!(read_object(list(MAX_VALUES - 3).as_bytes(), 3).is_ok());
        let error = read_object(list(MAX_VALUES - 2).as_bytes(), 3).unwrap_err();
        assert!(error.message().contains("has more than 8192 values"), "{error}");
    }

    #[test]
    fn the_check_ends_at_the_first_unknown_key() {
        let error = check_object(br#"{"a":1,"versions":[{},{},"#, 9, 4, |key| key == "a").unwrap_err();
        assert_eq!(error.violations()[0].field, "versions", "neither counted nor read to its end");
        let inner = check_object(br#"{"a":{"b":1}}"#, 9, 100, |key| key == "a");
        assert!(inner.is_ok(), "only at the top");
    }

    #[test]
    fn texts_that_are_not_one_object_without_duplicate_keys_are_rejected_with_the_position() {
        for (text, says) in [
            (&br#"{"a":1,"a":2}"#[..], "`a` is specified more than once at line 1"),
            (br#"{"x":{"a":1,"b":2,"a":2}}"#, "`a` is specified more than once"),
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
