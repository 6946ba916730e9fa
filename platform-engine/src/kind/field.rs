//! Fields: one row of a kind's table each.

use serde_json::Value;

use crate::store::KeyValue;

/// One field of a resource, request or nested message.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name in camelCase.
    pub name: &'static str,
    /// Its type in proto3 JSON.
    pub ty: Type,
    /// Who sets it, and when.
    pub access: Access,
    /// Whether a create must set it to something.
    pub required: bool,
    /// Whether text may have line breaks and tabs.
    pub multiline: bool,
    /// The names by which `order_by` knows it, in camelCase; none when lists are not ordered by it.
    pub sort: &'static [&'static str],
    /// The index key that lists are ordered by, where the value's own order is not the one that is meant.
    pub place: Option<Place>,
    /// How a query string writes it, where it is a list of messages.
    pub in_query: Option<InQuery>,
    /// Fields of one name exclude each other.
    pub oneof: Option<&'static str>,
    /// Whether protobuf has no such field (`docs/api.md`, Times).
    pub rest_only: bool,
    /// Whether the reply of the create alone has it: it is never stored.
    pub once: bool,
    /// Whether lists leave it out.
    pub unlisted: bool,
    /// The most bytes of a text in UTF-8, of each text of a list, and of each key and text of a map.
    pub max_len: usize,
    /// The most elements of a list, and the most entries of a map.
    pub max_items: usize,
    /// Whether a list is a set, without duplicates.
    pub distinct: bool,
    /// Whether its value can give somebody power: capabilities, or an identity to act as. A write that sets it must ask
    /// `iam::giving` (`docs/api.md`, Giving power).
    pub gives: bool,
    /// Whether replies have it even when it is empty.
    pub always: bool,
    /// Its meaning, in one or two sentences, for the documentation.
    pub about: &'static str,
    /// The regular expression (ECMA-262) that its text, or each element's, matches, for the documentation; empty for
    /// any text. The rule that is enforced is [`Field::check`].
    pub pattern: &'static str,
    /// Whether the rule may take a millisecond or more, so that it is checked by
    /// [`Offload`](crate::offload::Offload).
    pub costly: bool,
    /// A rule for a value that has the type and is within the bounds.
    pub check: Option<Check>,
}

/// A rule for a field's value, which it gets in canonical form. A refusal says what must hold, as a phrase.
pub type Check = fn(&Value) -> Result<(), String>;

/// Makes a sort key of a whole canonical body.
pub type Place = fn(&Value) -> KeyValue;

/// Makes an element of a list from text.
pub type InQuery = fn(&str) -> Value;

/// Who sets a field (AIP-203).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Callers, on create and update.
    Mutable,
    /// Callers, on create; an update with another value is refused.
    Immutable,
    /// The server; what a caller sends is ignored.
    OutputOnly,
    /// Callers; it is never returned.
    InputOnly,
}

/// A type of proto3 JSON.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// Text.
    String,
    /// `true` or `false`.
    Bool,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits, written as a string.
    Int64,
    /// Standard base64.
    Bytes,
    /// RFC 3339; see [`Timestamp`](crate::timestamp::Timestamp).
    Timestamp,
    /// Seconds with `s`, such as `3600s`.
    Duration,
    /// A name of these; the first means unspecified and is never written.
    Enum(&'static [&'static str]),
    /// A name or number of the capabilities' enum.
    Capability,
    /// Comma-separated paths.
    FieldMask,
    /// An object with these fields.
    Message(&'static [Field]),
    /// An array.
    List(&'static Self),
    /// An object with any keys.
    Map(&'static Self),
}

impl Field {
    /// The uid, by which lists are ordered unless a kind says otherwise.
    pub const UID: Self = Self::string("uid")
        .output_only()
        .sort(&["uid"])
        .about("The resource's identifier. It begins with the uid of its parent, if it has one.");
    /// When the resource was created.
    pub const CREATE_TIME: Self = Self::timestamp("createTime")
        .output_only()
        .sort(&["createTime", "createdAt"])
        .about("When the resource was created.");
    /// When the resource was last updated; at first, when it was created.
    pub const UPDATE_TIME: Self = Self::timestamp("updateTime")
        .output_only()
        .sort(&["updateTime", "updatedAt"])
        .about("When the resource was last updated; at first, when it was created.");

    /// The default of the most bytes of a text: as many as an index key can have.
    pub const MAX_LEN: usize = KeyValue::MAX_LEN;
    /// The default of the most bytes of a text with line breaks.
    pub const MAX_MULTILINE_LEN: usize = 64 << 10;
    /// The default of the most elements of a list, and of the most entries of a map.
    pub const MAX_ITEMS: usize = 100;

    /// A field of this type that callers set.
    pub const fn new(name: &'static str, ty: Type) -> Self {
        Self {
            name,
            ty,
            access: Access::Mutable,
            required: false,
            multiline: false,
            sort: &[],
            place: None,
            in_query: None,
            oneof: None,
            rest_only: false,
            once: false,
            unlisted: false,
            max_len: Self::MAX_LEN,
            max_items: Self::MAX_ITEMS,
            distinct: false,
            gives: false,
            always: false,
            about: "",
            pattern: "",
            costly: false,
            check: None,
        }
    }

    /// Text.
    pub const fn string(name: &'static str) -> Self {
        Self::new(name, Type::String)
    }

    /// A list of texts.
    pub const fn strings(name: &'static str) -> Self {
        Self::new(name, Type::List(&Type::String))
    }

    /// A map of texts.
    pub const fn string_map(name: &'static str) -> Self {
        Self::new(name, Type::Map(&Type::String))
    }

    /// A truth value.
    pub const fn bool(name: &'static str) -> Self {
        Self::new(name, Type::Bool)
    }

    /// A point in time.
    pub const fn timestamp(name: &'static str) -> Self {
        Self::new(name, Type::Timestamp)
    }

    /// A name of an enum.
    pub const fn enumeration(name: &'static str, names: &'static [&'static str]) -> Self {
        Self::new(name, Type::Enum(names))
    }

    /// A nested message.
    pub const fn message(name: &'static str, fields: &'static [Self]) -> Self {
        Self::new(name, Type::Message(fields))
    }

    /// A create must set it.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// It never changes after the create.
    pub const fn immutable(mut self) -> Self {
        self.access = Access::Immutable;
        self
    }

    /// The server sets it.
    pub const fn output_only(mut self) -> Self {
        self.access = Access::OutputOnly;
        self
    }

    /// It is never returned.
    pub const fn input_only(mut self) -> Self {
        self.access = Access::InputOnly;
        self
    }

    /// It may have line breaks and tabs, and up to [`Field::MAX_MULTILINE_LEN`] bytes.
    pub const fn multiline(mut self) -> Self {
        self.multiline = true;
        self.max_len = Self::MAX_MULTILINE_LEN;
        self
    }

    /// A text has at most so many bytes; in a list each element, in a map each key and each value.
    pub const fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// A list has at most so many elements, a map so many entries.
    pub const fn max_items(mut self, items: usize) -> Self {
        self.max_items = items;
        self
    }

    /// A list has no duplicates.
    pub const fn distinct(mut self) -> Self {
        self.distinct = true;
        self
    }

    /// Lists can be ordered by it, under these names.
    pub const fn sort(mut self, names: &'static [&'static str]) -> Self {
        self.sort = names;
        self
    }

    /// Lists that are ordered by it are ordered by this key.
    pub const fn place(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// A query string writes each of its elements as a text, of which this makes the element.
    pub const fn in_query(mut self, in_query: InQuery) -> Self {
        self.in_query = Some(in_query);
        self
    }

    /// It excludes the other fields of this oneof.
    pub const fn oneof(mut self, name: &'static str) -> Self {
        self.oneof = Some(name);
        self
    }

    /// Protobuf has no such field.
    pub const fn rest_only(mut self) -> Self {
        self.rest_only = true;
        self
    }

    /// The reply of the create shows it, once; it is never stored. For a resource's own fields, set by the server.
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Lists leave it out. For a resource's own fields.
    pub const fn unlisted(mut self) -> Self {
        self.unlisted = true;
        self
    }

    /// Its value can give somebody power.
    pub const fn gives(mut self) -> Self {
        self.gives = true;
        self
    }

    /// Replies have it even when it is empty: an empty text, list or map, an unspecified enum, or null. For fields that
    /// the contract requires in replies and that a create need not set. An input-only field is null, which its Rust
    /// type must be able to read.
    ///
    /// Resources of a kind whose bodies are stored as they are returned get the field when they are next written; to
    /// add it to stored ones, raise [`RENDERING`](crate::write::RENDERING).
    pub const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// Means this: one or two sentences in Markdown, for the documentation.
    pub const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Its text, or each element's, matches this regular expression (ECMA-262), for the documentation.
    pub const fn pattern(mut self, pattern: &'static str) -> Self {
        self.pattern = pattern;
        self
    }

    /// Returns whether every reply that shows the message has the field: numbers and truth values, fields that a create
    /// must set, and fields that are [always](Field::always) there.
    pub const fn is_written(&self) -> bool {
        let written = matches!(self.ty, Type::Bool | Type::Int32 | Type::Int64) || self.required;
        let shown = !matches!(self.access, Access::InputOnly) && !self.once && !self.unlisted;
        self.always || written && shown
    }

    /// Its rule may take a millisecond or more.
    pub const fn costly(mut self) -> Self {
        self.costly = true;
        self
    }

    /// Its value must pass this rule.
    pub const fn check(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }
}

impl Type {
    /// Returns the index key of a canonical value; the empty key for none.
    pub fn key(&self, value: Option<&Value>) -> KeyValue {
        let Some(value) = value else { return KeyValue::default() };
        match (self, value) {
            (Self::Timestamp, Value::String(text)) => {
                crate::timestamp::Timestamp::parse(text).map(|at| KeyValue::integer(at.millis())).unwrap_or_default()
            }
            (Self::Int64, Value::String(text)) => text.parse().map(KeyValue::integer).unwrap_or_default(),
            (_, Value::String(text)) => KeyValue::text(text),
            (_, Value::Bool(value)) => KeyValue::boolean(*value),
            (_, Value::Number(number)) => number.as_i64().map(KeyValue::integer).unwrap_or_default(),
            _ => KeyValue::default(),
        }
    }
}
