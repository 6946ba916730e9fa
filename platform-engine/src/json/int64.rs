//! 64-bit numbers as proto3 JSON writes them, for `#[serde(with = …)]`: strings.

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Writes the number as a string.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Reads the number from a string.
///
/// # Errors
/// When the text is no whole number of 64 bits.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}
