//! Writes messages as replies show them, directly from their structs: the same bytes as those of the pruned JSON value
//! ([`prune`](super::prune)), without building that value.

use serde::ser::{self, Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct};
use serde_json::{Error, Result};

use crate::kind::{Access, Field, Type};

/// Serializes a struct with these fields, in the struct's order.
///
/// # Errors
/// Those of its own serialization, and when it or a message in it does not serialize as a struct.
pub(crate) fn to_bytes<T: Serialize>(fields: &'static [Field], message: &T) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(512);
    write(Type::Message(fields), message, &mut out)?;
    Ok(out)
}

fn write<T: Serialize + ?Sized>(ty: Type, value: &T, out: &mut Vec<u8>) -> Result<()> {
    if holds_messages(ty) { value.serialize(Writer { ty, out }) } else { serde_json::to_writer(out, value) }
}

/// Returns whether values of a type contain messages. Other values have nothing to prune and are serialized directly.
fn holds_messages(ty: Type) -> bool {
    match ty {
        Type::Message(_) => true,
        Type::List(element) | Type::Map(element) => holds_messages(*element),
        _ => false,
    }
}

/// Returns the same as [`is_empty`](super::prune::is_empty), for a value that was written as these bytes.
fn is_empty(ty: Type, written: &[u8]) -> bool {
    match (ty, written) {
        (_, b"null" | b"\"\"" | b"[]") | (Type::Map(_), b"{}") => true,
        (Type::Enum([unspecified, ..]), [b'"', name @ .., b'"']) => name == unspecified.as_bytes(),
        _ => false,
    }
}

/// Appends a comma before an element or a field, unless it is the first after the opening bracket.
fn divide(bracket: u8, out: &mut Vec<u8>) {
    // No value ends with an opening bracket, so the last byte is one only before the first element.
    if out.last() != Some(&bracket) {
        out.push(b',');
    }
}

/// Serializes messages, and lists and maps of messages.
struct Writer<'a> {
    ty: Type,
    out: &'a mut Vec<u8>,
}

/// Defines methods that fail: a message serializes as a struct.
macro_rules! no_message {
    ($($method:ident($($ty:ty),*);)*) => {
        $(fn $method(self, $(_: $ty),*) -> Result<()> { Err(Error::custom("a message is written as a struct")) })*
    };
}

impl<'a> ser::Serializer for Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = List<'a>;
    type SerializeTuple = Impossible<(), Error>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Map<'a>;
    type SerializeStruct = Message<'a>;
    type SerializeStructVariant = Impossible<(), Error>;

    no_message! {
        serialize_bool(bool); serialize_i8(i8); serialize_i16(i16); serialize_i32(i32); serialize_i64(i64);
        serialize_u8(u8); serialize_u16(u16); serialize_u32(u32); serialize_u64(u64); serialize_f32(f32);
        serialize_f64(f64); serialize_char(char); serialize_str(&str); serialize_bytes(&[u8]);
        serialize_unit_struct(&'static str); serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }
    fn serialize_unit(self) -> Result<()> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<()> {
        self.serialize_str("")
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<List<'a>> {
        let Type::List(element) = self.ty else { return Err(Error::custom("a list where the table has none")) };
        self.out.push(b'[');
        Ok(List { element: *element, out: self.out })
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Map<'a>> {
        let Type::Map(element) = self.ty else { return Err(Error::custom("a map where the table has none")) };
        self.out.push(b'{');
        Ok(Map { element: *element, out: self.out })
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Message<'a>> {
        let Type::Message(fields) = self.ty else { return Err(Error::custom("a struct where the table has none")) };
        self.out.push(b'{');
        Ok(Message { fields, ahead: fields, out: self.out })
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple> {
        Err(Error::custom("a message is written as a struct"))
    }
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Self::SerializeTupleStruct> {
        self.serialize_tuple(len)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant> {
        self.serialize_tuple(len)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant> {
        self.serialize_tuple(len)
    }
}

struct Message<'a> {
    fields: &'static [Field],
    /// The fields from the next one on, if the struct has the table's order. Most structs have it, so the next
    /// field is usually found without a search.
    ahead: &'static [Field],
    out: &'a mut Vec<u8>,
}

impl SerializeStruct for Message<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        let is_it = |field: &&Field| field.name == name;
        let field = self.ahead.first().filter(is_it).or_else(|| self.fields.iter().find(is_it));
        self.ahead = self.ahead.get(1..).unwrap_or_default();
        let hidden = field.is_some_and(|field| field.access == Access::InputOnly);
        if hidden && !field.is_some_and(|field| field.always) {
            return Ok(());
        }
        let before = self.out.len();
        divide(b'{', self.out);
        serde_json::to_writer(&mut *self.out, name)?;
        self.out.push(b':');
        // A field that the table does not have is written unchanged.
        let Some(field) = field else { return serde_json::to_writer(&mut *self.out, value) };
        let start = self.out.len();
        if hidden {
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        write(field.ty, value, self.out)?;
        // Only its output shows whether a value is empty, so the field is written first and removed again.
        if !field.always && is_empty(field.ty, self.out.get(start..).unwrap_or_default()) {
            self.out.truncate(before);
        }
        Ok(())
    }
    fn end(self) -> Result<()> {
        self.out.push(b'}');
        Ok(())
    }
}

struct List<'a> {
    element: Type,
    out: &'a mut Vec<u8>,
}

impl SerializeSeq for List<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        divide(b'[', self.out);
        write(self.element, value, self.out)
    }
    fn end(self) -> Result<()> {
        self.out.push(b']');
        Ok(())
    }
}

struct Map<'a> {
    element: Type,
    out: &'a mut Vec<u8>,
}

impl SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        divide(b'{', self.out);
        serde_json::to_writer(&mut *self.out, key)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.out.push(b':');
        write(self.element, value, self.out)
    }
    fn end(self) -> Result<()> {
        self.out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{option, prelude::*};

    use super::*;
    use crate::fields::prune;

    #[derive(Debug, Clone, Default, serde::Serialize)]
    struct Inner {
        text: String,
        secret: String,
        still: String,
        number: i32,
        ttl: String,
        deeper: Option<Box<Self>>,
    }

    #[derive(Debug, Clone, Default, serde::Serialize)]
    struct Outer {
        list: Vec<Inner>,
        text: String,
        texts: Vec<String>,
        tier: &'static str,
        message: Option<Inner>,
        map: BTreeMap<String, Inner>,
        truth: bool,
        unknown: Option<String>,
    }

    const DEEPEST: &[Field] = &[Field::string("text"), Field::string("secret").input_only()];
    const INNER: &[Field] = &[
        Field::string("text"),
        Field::string("secret").input_only(),
        Field::string("still").always(),
        Field::new("number", Type::Int32),
        Field::new("ttl", Type::Duration).input_only().always(),
        Field::message("deeper", DEEPEST),
    ];
    // Not in the struct's order.
    const FIELDS: &[Field] = &[
        Field::string("text"),
        Field::new("list", Type::List(&Type::Message(INNER))),
        Field::strings("texts").always(),
        Field::enumeration("tier", &["TIER_UNSPECIFIED", "TIER_BASE"]).always(),
        Field::message("message", INNER).always(),
        Field::new("map", Type::Map(&Type::Message(INNER))),
        Field::bool("truth"),
    ];

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), ".{0,4}", Just("\"\\\0{".to_owned())]
    }

    fn inner() -> impl Strategy<Value = Inner> {
        let flat = (text(), text(), text(), text(), any::<i32>());
        let inner = |(text, secret, still, ttl, number)| Inner { text, secret, still, number, ttl, deeper: None };
        let flat = flat.prop_map(inner).boxed();
        (flat.clone(), option::of(flat)).prop_map(|(inner, deeper)| Inner { deeper: deeper.map(Box::new), ..inner })
    }

    proptest! {
        #[test]
        fn a_struct_is_written_like_its_pruned_json_value(
            list in prop::collection::vec(inner(), 0..3),
            text in text(),
            texts in prop::collection::vec(text(), 0..3),
            tier in prop::sample::select(vec!["TIER_UNSPECIFIED", "TIER_BASE", ""]),
            message in option::of(inner()),
            map in prop::collection::btree_map(text(), inner(), 0..3),
            truth in any::<bool>(),
            unknown in option::of(text()),
        ) {
            let outer = Outer { list, text, texts, tier, message, map, truth, unknown };
            let mut value = serde_json::to_value(&outer).unwrap();
            prune(FIELDS, &mut value);
            let written = to_bytes(FIELDS, &outer).unwrap();
            prop_assert_eq!(String::from_utf8(written).unwrap(), value.to_string());
        }
    }

    #[test]
    fn a_struct_that_does_not_match_the_table_is_an_error() {
        const TEXT: &[Field] = &[Field::message("text", INNER)];
        const LIST: &[Field] = &[Field::message("list", INNER)];
        assert!(to_bytes(TEXT, &Outer::default()).is_err());
        assert!(to_bytes(LIST, &Outer::default()).is_err());
        assert!(to_bytes(FIELDS, &[1]).is_err());
    }
}
