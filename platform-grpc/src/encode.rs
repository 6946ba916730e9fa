//! Encodes stored JSON as protobuf in one pass, without an intermediate tree.
//!
//! A [`Plan`] is built once from a message's descriptor. It implements the proto3 JSON mapping and writes fields in the
//! order of their numbers, so that the bytes equal those of any other encoder. It skips JSON names without a field in
//! the message: those that only REST shows (`docs/api.md`, gRPC).

use std::sync::Arc;

use heck::ToLowerCamelCase;
use platform_engine::access::Capability;
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};
use serde::de::DeserializeSeed;

mod read;
mod write;

pub(crate) use write::{WireType, Writer};

/// The maximum nesting depth of messages. The contract uses five levels.
const MAX_DEPTH: usize = 16;

/// The encoding of a message.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The full name of the message.
    message: Arc<str>,
    fields: Vec<FieldPlan>,
}

/// The encoding of a field.
#[derive(Debug, Clone)]
struct FieldPlan {
    /// The name in camelCase.
    name: Box<str>,
    /// The name in the `.proto` file, which is that in JSON if it cannot be derived: `legacyAdvisoryID`.
    proto_name: Box<str>,
    number: u32,
    /// Whether a default value is written (explicit presence).
    presence: bool,
    shape: Shape,
}

#[derive(Debug, Clone)]
enum Shape {
    Singular(Scalar),
    /// Each element has its own key.
    Repeated(Scalar),
    /// One key precedes all elements.
    Packed(Scalar),
    /// The plans of the key and the value, which are the fields 1 and 2 of each entry.
    Map(Box<(FieldPlan, FieldPlan)>),
}

#[derive(Debug, Clone)]
enum Scalar {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    /// Names with their numbers, sorted by name.
    Enum(Arc<[(Box<str>, i32)]>),
    Timestamp,
    Duration,
    Message(Arc<Plan>),
}

/// Error for a message that cannot be encoded because it uses a type that the contract does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field `{0}`: {1}")]
pub struct BadField(String, &'static str);

impl Plan {
    /// Builds the plan of a message. The `own` capabilities of the platform extend the enum of capabilities.
    pub(crate) fn of(message: &MessageDescriptor, own: &[Capability]) -> Result<Arc<Self>, BadField> {
        Self::at(message, own, 0)
    }

    fn at(message: &MessageDescriptor, own: &[Capability], depth: usize) -> Result<Arc<Self>, BadField> {
        let mut fields =
            message.fields().map(|field| FieldPlan::of(&field, own, depth)).collect::<Result<Vec<_>, _>>()?;
        fields.sort_by_key(|field| field.number);
        Ok(Arc::new(Self { message: message.full_name().into(), fields }))
    }

    /// Returns the full name of the message.
    pub(crate) const fn message(&self) -> &Arc<str> {
        &self.message
    }

    /// Encodes JSON as a message.
    ///
    /// # Errors
    /// When the JSON is not an object, or a value does not match the type of its field.
    pub(crate) fn encode(&self, json: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut writer = Writer::with_capacity(json.len());
        self.append(json, &mut writer)?;
        Ok(writer.into_bytes())
    }

    /// Appends JSON as a message to the writer, without a key and a length.
    ///
    /// # Errors
    /// As [`Plan::encode`].
    pub(crate) fn append(&self, json: &[u8], writer: &mut Writer) -> serde_json::Result<()> {
        // One check of the whole text costs less than one of each string in it.
        let json = std::str::from_utf8(json).map_err(serde::de::Error::custom)?;
        let mut json = serde_json::Deserializer::from_str(json);
        read::Message { plan: self, writer }.deserialize(&mut json)?;
        json.end()
    }

    /// Encodes a JSON value as a message.
    ///
    /// # Errors
    /// As [`Plan::encode`].
    pub(crate) fn encode_value(&self, value: &serde_json::Value) -> serde_json::Result<Vec<u8>> {
        let mut writer = Writer::with_capacity(64);
        read::Message { plan: self, writer: &mut writer }.deserialize(value)?;
        Ok(writer.into_bytes())
    }
}

impl FieldPlan {
    fn of(field: &FieldDescriptor, own: &[Capability], depth: usize) -> Result<Self, BadField> {
        let shape = if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            Shape::Map(Box::new((Self::of(&key, own, depth)?, Self::of(&value, own, depth)?)))
        } else {
            let scalar = Scalar::of(field, own, depth)?;
            match field.cardinality() {
                Cardinality::Repeated if field.is_packed() => Shape::Packed(scalar),
                Cardinality::Repeated => Shape::Repeated(scalar),
                _ => Shape::Singular(scalar),
            }
        };
        let presence = field.supports_presence();
        let (name, proto_name) = (field.name().to_lower_camel_case().into(), field.name().into());
        Ok(Self { name, proto_name, number: field.number(), presence, shape })
    }
}

impl Scalar {
    fn of(field: &FieldDescriptor, own: &[Capability], depth: usize) -> Result<Self, BadField> {
        let bad = |why| BadField(field.full_name().to_owned(), why);
        Ok(match field.kind() {
            Kind::String => Self::String,
            Kind::Bytes => Self::Bytes,
            Kind::Bool => Self::Bool,
            // The tables have one type for numbers of 32 bits, and no field of the type uint32 allows large numbers.
            Kind::Int32 | Kind::Uint32 => Self::Int32,
            Kind::Int64 => Self::Int64,
            Kind::Enum(names) => {
                let mut names: Vec<_> = names.values().map(|value| (value.name().into(), value.number())).collect();
                // Added to every enum, because descriptors do not show which of them is the enum of capabilities. This
                // does no harm: only fields for capabilities can have these values.
                let number = |capability: &Capability| i32::try_from(capability.number()).ok();
                names.extend(own.iter().filter_map(|own| Some((own.id().into(), number(own)?))));
                names.sort();
                Self::Enum(names.into())
            }
            Kind::Message(message) => match message.full_name() {
                "google.protobuf.Timestamp" => Self::Timestamp,
                "google.protobuf.Duration" => Self::Duration,
                _ if depth == MAX_DEPTH => return Err(bad("messages are nested too deeply")),
                _ => Self::Message(Plan::at(&message, own, depth + 1)?),
            },
            _ => return Err(bad("has an unsupported type")),
        })
    }
}

#[cfg(test)]
mod tests;
