//! Deserializers that read JSON value by value and write each value as protobuf at once.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use platform_engine::{duration::Duration, timestamp::Timestamp};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor},
};

use super::{FieldPlan, Plan, Scalar, Shape, WireType, Writer};

/// Reads an object and writes it as a message, without a key and a length.
pub(super) struct Message<'a> {
    pub(super) plan: &'a Plan,
    pub(super) writer: &'a mut Writer,
}

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { plan, writer } = self;
        let open = writer.open();
        let mut next = 0;
        while let Some(found) = entries.next_key_seed(Name { plan, next })? {
            let Some((place, field)) = found else {
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            next = place + 1;
            writer.field(field.number);
            entries.next_value_seed(Value::of(field, writer))?;
        }
        writer.close(open);
        Ok(())
    }
}

/// Reads a name and finds its field, usually the one after the previous field.
struct Name<'a> {
    plan: &'a Plan,
    next: usize,
}

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<(usize, &'a FieldPlan)>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<(usize, &'a FieldPlan)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let fields = self.plan.fields.iter().enumerate();
        let ahead = fields.clone().skip(self.next);
        Ok(ahead.chain(fields).find(|(_, field)| *field.name == *name || *field.proto_name == *name))
    }
}

/// Reads a value and writes it as a field.
struct Value<'a> {
    field: &'a FieldPlan,
    form: Form<'a>,
    writer: &'a mut Writer,
}

/// The form in which a value is written.
#[derive(Clone, Copy)]
enum Form<'a> {
    /// With its key. A default value is written only if the field has explicit presence.
    Singular(&'a Scalar),
    /// With its key, even when it is the default value.
    Element(&'a Scalar),
    /// Without a key.
    Packed(&'a Scalar),
    /// A list or a map, which writes its own keys according to the shape of [`Value::field`].
    Composite,
}

impl<'a> Value<'a> {
    fn of(field: &'a FieldPlan, writer: &'a mut Writer) -> Self {
        let form = match &field.shape {
            Shape::Singular(scalar) => Form::Singular(scalar),
            _ => Form::Composite,
        };
        Self { field, form, writer }
    }

    fn scalar<E: Error>(&self, found: Unexpected<'_>) -> Result<&'a Scalar, E> {
        match self.form {
            Form::Singular(scalar) | Form::Element(scalar) | Form::Packed(scalar) => Ok(scalar),
            Form::Composite => Err(E::invalid_type(found, self)),
        }
    }

    /// Returns whether the value is written.
    fn is_written(&self, is_default: bool) -> bool {
        !is_default || self.field.presence || !matches!(self.form, Form::Singular(_))
    }

    fn key(&mut self, wire: WireType) {
        if !matches!(self.form, Form::Packed(_)) {
            self.writer.key(self.field.number, wire);
        }
    }

    fn varint<E>(mut self, value: i64) -> Result<(), E> {
        if self.is_written(value == 0) {
            self.key(WireType::Varint);
            self.writer.varint(value.cast_unsigned());
        }
        Ok(())
    }

    fn bytes<E>(mut self, bytes: &[u8]) -> Result<(), E> {
        if self.is_written(bytes.is_empty()) {
            self.key(WireType::LengthDelimited);
            self.writer.delimited(bytes);
        }
        Ok(())
    }

    /// Writes a timestamp or a duration.
    fn seconds<E>(mut self, seconds: i64, nanos: i32) -> Result<(), E> {
        self.key(WireType::LengthDelimited);
        let start = self.writer.length();
        for (number, value) in [(1, seconds), (2, i64::from(nanos))] {
            if value != 0 {
                self.writer.key(number, WireType::Varint);
                self.writer.varint(value.cast_unsigned());
            }
        }
        self.writer.end_length(start);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of the field `{}`", self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.scalar(Unexpected::Bool(value))? {
            Scalar::Bool => self.varint(value.into()),
            _ => Err(E::invalid_type(Unexpected::Bool(value), &self)),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.scalar(Unexpected::Signed(value))? {
            Scalar::Int64 => self.varint(value),
            Scalar::Int32 | Scalar::Enum(_) if i32::try_from(value).is_ok() => self.varint(value),
            _ => Err(E::invalid_type(Unexpected::Signed(value), &self)),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(E::invalid_type(Unexpected::Unsigned(value), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let scalar = self.scalar(Unexpected::Str(text))?;
        let parsed = match scalar {
            Scalar::String => return self.bytes(text.as_bytes()),
            Scalar::Bytes => match STANDARD.decode(text) {
                Ok(bytes) => return self.bytes(&bytes),
                Err(_) => None,
            },
            Scalar::Timestamp => match Timestamp::parse(text) {
                Ok(at) => {
                    let nanos = at.millis().rem_euclid(1000) * 1_000_000;
                    return self.seconds(at.seconds(), i32::try_from(nanos).unwrap_or_default());
                }
                Err(_) => None,
            },
            Scalar::Duration => match Duration::parse(text) {
                Ok(duration) => return self.seconds(duration.seconds(), duration.nanos()),
                Err(_) => None,
            },
            Scalar::Bool => text.parse().ok().map(|value: bool| value.into()),
            Scalar::Int32 => text.parse().ok().map(|value: i32| value.into()),
            Scalar::Int64 => text.parse().ok(),
            Scalar::Enum(names) => {
                let place = names.binary_search_by(|(name, _)| (**name).cmp(text)).ok();
                place.and_then(|place| names.get(place)).map(|(_, number)| i64::from(*number))
            }
            Scalar::Message(_) => None,
        };
        match parsed {
            Some(value) => self.varint(value),
            None => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        let Self { field, ref mut writer, .. } = self;
        match &field.shape {
            Shape::Repeated(scalar) => {
                let form = Form::Element(scalar);
                while elements.next_element_seed(Value { field, form, writer })?.is_some() {}
                Ok(())
            }
            Shape::Packed(scalar) => {
                let before = writer.len();
                writer.key(field.number, WireType::LengthDelimited);
                let start = writer.length();
                let form = Form::Packed(scalar);
                while elements.next_element_seed(Value { field, form, writer })?.is_some() {}
                if writer.len() == start {
                    writer.truncate(before);
                } else {
                    writer.end_length(start);
                }
                Ok(())
            }
            _ => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        match (self.form, &self.field.shape) {
            (Form::Singular(Scalar::Message(plan)) | Form::Element(Scalar::Message(plan)), _) => {
                self.key(WireType::LengthDelimited);
                let start = self.writer.length();
                Message { plan, writer: self.writer }.visit_map(entries)?;
                self.writer.end_length(start);
                Ok(())
            }
            (Form::Composite, Shape::Map(entry)) => {
                let (key, value) = &**entry;
                while let Some(name) = entries.next_key::<String>()? {
                    self.writer.key(self.field.number, WireType::LengthDelimited);
                    let start = self.writer.length();
                    Value::of(key, self.writer).visit_str(&name)?;
                    entries.next_value_seed(Value::of(value, self.writer))?;
                    self.writer.end_length(start);
                }
                Ok(())
            }
            _ => Err(A::Error::invalid_type(Unexpected::Map, &self)),
        }
    }
}
