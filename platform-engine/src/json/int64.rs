//! 64-bit integers as strings, as in proto3 JSON, for `#[serde(with = …)]`.

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Serializes the number as a string.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Deserializes the number from a string.
///
/// # Errors
/// When the text is not a 64-bit integer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
