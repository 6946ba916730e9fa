//! From JSON to protobuf: what is stored is written as it is read, without a tree between.
//!
//! A [`Plan`] is worked out once from a message's descriptor. It writes what proto3 JSON means, in the order of the
//! fields' numbers, so that the bytes are those that any other encoder makes. What a message has no field for is passed
//! over: REST shows it and protobuf does not (`docs/api.md`, gRPC).

use std::sync::Arc;

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};
use serde::de::DeserializeSeed;

mod read;
mod write;

pub(crate) use write::Writer;

/// How deep messages may lie in each other. Those of the contract lie five deep.
const DEPTH: usize = 16;

/// How a message is written.
#[derive(Debug)]
pub(crate) struct Plan {
    fields: Vec<Planned>,
}

/// How a field is written.
#[derive(Debug, Clone)]
struct Planned {
    /// The name in camelCase.
    name: Box<str>,
    number: u32,
    /// Whether it is written when it has its default.
    presence: bool,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    One(Scalar),
    /// Each element with a key of its own.
    Each(Scalar),
    /// All elements behind one key.
    Packed(Scalar),
    /// Keys and values, which are the fields 1 and 2 of their entries.
    Map(Box<(Planned, Planned)>),
}

#[derive(Debug, Clone)]
enum Scalar {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    /// Names and numbers, in the order of the names.
    Enum(Arc<[(Box<str>, i32)]>),
    Timestamp,
    Duration,
    Message(Arc<Plan>),
}

/// A message that cannot be written: a type that the contract does not use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field `{0}`: {1}")]
pub struct BadField(String, &'static str);

impl Plan {
    /// Works out how a message is written.
    pub(crate) fn of(message: &MessageDescriptor) -> Result<Arc<Self>, BadField> {
        Self::at(message, 0)
    }

    fn at(message: &MessageDescriptor, depth: usize) -> Result<Arc<Self>, BadField> {
        let mut fields = message.fields().map(|field| Planned::of(&field, depth)).collect::<Result<Vec<_>, _>>()?;
        fields.sort_by_key(|field| field.number);
        Ok(Arc::new(Self { fields }))
    }

    /// Writes JSON as a message.
    ///
    /// # Errors
    /// When it is no JSON object, or a field has a value that its type has not.
    pub(crate) fn encode(&self, json: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut writer = Writer::with_capacity(json.len());
        self.append(json, &mut writer)?;
        Ok(writer.into_bytes())
    }

    /// Writes JSON behind what is written, without key and length.
    ///
    /// # Errors
    /// As [`Plan::encode`].
    pub(crate) fn append(&self, json: &[u8], writer: &mut Writer) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_slice(json);
        read::Message { plan: self, writer }.deserialize(&mut json)?;
        json.end()
    }

    /// Writes a JSON value as a message.
    ///
    /// # Errors
    /// As [`Plan::encode`].
    pub(crate) fn encode_value(&self, value: &serde_json::Value) -> serde_json::Result<Vec<u8>> {
        let mut writer = Writer::with_capacity(64);
        read::Message { plan: self, writer: &mut writer }.deserialize(value)?;
        Ok(writer.into_bytes())
    }
}

impl Planned {
    fn of(field: &FieldDescriptor, depth: usize) -> Result<Self, BadField> {
        let shape = if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            Shape::Map(Box::new((Self::of(&key, depth)?, Self::of(&value, depth)?)))
        } else {
            let scalar = Scalar::of(field, depth)?;
            match field.cardinality() {
                Cardinality::Repeated if field.is_packed() => Shape::Packed(scalar),
                Cardinality::Repeated => Shape::Each(scalar),
                _ => Shape::One(scalar),
            }
        };
        let presence = field.supports_presence();
        Ok(Self { name: camel(field.name()).into(), number: field.number(), presence, shape })
    }
}

impl Scalar {
    fn of(field: &FieldDescriptor, depth: usize) -> Result<Self, BadField> {
        let bad = |why| BadField(field.full_name().to_owned(), why);
        Ok(match field.kind() {
            Kind::String => Self::String,
            Kind::Bytes => Self::Bytes,
            Kind::Bool => Self::Bool,
            Kind::Int32 => Self::Int32,
            Kind::Int64 => Self::Int64,
            Kind::Enum(names) => {
                let mut names: Vec<_> = names.values().map(|value| (value.name().into(), value.number())).collect();
                names.sort();
                Self::Enum(names.into())
            }
            Kind::Message(message) => match message.full_name() {
                "google.protobuf.Timestamp" => Self::Timestamp,
                "google.protobuf.Duration" => Self::Duration,
                _ if depth == DEPTH => return Err(bad("messages lie too deep in each other")),
                _ => Self::Message(Plan::at(&message, depth + 1)?),
            },
            _ => return Err(bad("has a type that is not known here")),
        })
    }
}

/// Returns a name of a `.proto` file in camelCase, as REST writes it: by the name alone, whatever the file says of its
/// JSON (`docs/api.md`, gRPC).
pub(crate) fn camel(snake: &str) -> String {
    let mut camel = String::with_capacity(snake.len());
    let mut upper = false;
    for c in snake.chars() {
        match c {
            '_' => upper = true,
            c if std::mem::take(&mut upper) => camel.push(c.to_ascii_uppercase()),
            c => camel.push(c),
        }
    }
    camel
}

#[cfg(test)]
mod tests;
