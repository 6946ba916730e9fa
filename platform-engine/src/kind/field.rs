//! Fields: the rows of a kind's table.

use serde_json::Value;

use super::Kind;
use crate::{
    fields,
    store::{KeyValue, KindName},
};

/// One field of a resource, request or nested message.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Field {
    /// The name in camelCase.
    pub name: &'static str,
    /// Its type in proto3 JSON.
    pub ty: Type,
    /// Whether callers or the server set it.
    pub access: Access,
    /// Whether a create must set it to a value that is not empty.
    pub required: bool,
    /// Whether text may have line breaks and tabs.
    pub multiline: bool,
    /// The names of the field in `order_by`, in camelCase; empty if lists cannot be ordered by it.
    pub sort: &'static [&'static str],
    /// Computes the sort key, if the order of the field's own value is not the intended one.
    pub sort_key: Option<SortKey>,
    /// Whether stores index the parts of its text, for filters such as `name:*ngi*`. Only for texts that lists can be
    /// ordered by, in their own order.
    pub searched: bool,
    /// Whether searches over all kinds look for it, as for the name ([`Field::findable`]).
    pub findable: bool,
    /// Parses an element of a query string, for a list of messages.
    pub in_query: Option<InQuery>,
    /// The oneof that the field belongs to: at most one field of a oneof can be set.
    pub oneof: Option<&'static str>,
    /// Whether the field is absent from the protobuf message (`docs/api.md`, gRPC).
    pub rest_only: bool,
    /// Whether only the reply of a create shows the field. It is never stored.
    pub once: bool,
    /// Whether lists omit the field.
    pub unlisted: bool,
    /// The maximum length of a text in bytes of UTF-8: of each text of a list, and of each key and text of a map.
    pub max_len: usize,
    /// The maximum number of elements of a list or entries of a map.
    pub max_items: usize,
    /// Whether a list is a set, without duplicates.
    pub distinct: bool,
    /// Whether its value can grant power: capabilities, or an identity to act as. A write that sets it must be checked
    /// with `iam::giving` (`docs/api.md`, Giving power).
    pub privileged: bool,
    /// The kind of the resources that it is the uid of, and the effect of their deletes.
    pub reference: Option<Reference>,
    /// The name of the kind of the resources that it has the uids of: a text, the elements of a list or the values of a
    /// map. Clients may let people name these resources; [`Field::references`] is what the server enforces.
    pub uid_of: Option<KindName>,
    /// Whether its value, or each of its values, is the digest of a [blob](crate::blob).
    pub blob: bool,
    /// Whether replies have it even if it is empty.
    pub always: bool,
    /// Its description for the documentation, in one or two sentences.
    pub about: &'static str,
    /// The regular expression that the text, or each text of a list or map, matches; empty for any text.
    pub pattern: &'static str,
    /// Whether the pattern only documents a rule that is enforced elsewhere.
    pub pattern_is_documentation: bool,
    /// Whether the check may take a millisecond or more, in which case [`Offload`](crate::offload::Offload) runs it.
    pub costly: bool,
    /// A rule for values of the right type that are within the bounds.
    pub check: Option<Check>,
    /// The value of a resource without one.
    pub default: Option<MakeDefault>,
    /// The names that the field had before, the last one first; the empty ones are unused.
    former: [&'static str; Self::MAX_FORMER],
    /// For a field of a [conversion](crate::conversion): the path of its value in the resource.
    pub of: Option<&'static str>,
    /// Whether a request has the value as the client sent it, because another method reads it.
    pub unread: bool,
    /// For a field of a conversion: whether a reply leaves it out, too, when it has no value (`optional` in proto3).
    pub optional: bool,
}

/// A rule for a field's value in canonical form. The error is a phrase that states the rule.
pub type Check = fn(&Value) -> Result<(), String>;

/// Makes the default of a field, in canonical form.
pub type MakeDefault = fn() -> Value;

/// Computes a sort key from a canonical body.
pub type SortKey = fn(&Value) -> KeyValue;

/// Parses an element of a list from text.
pub type InQuery = fn(&str) -> Value;

/// The access of callers to a field (AIP-203).
///
/// Exhaustive, because documents and transports must handle every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Callers set it on create and update.
    Mutable,
    /// Callers set it on create; an update with another value is rejected.
    Immutable,
    /// The server sets it; values in requests are ignored.
    OutputOnly,
    /// Callers set it, and it is never returned.
    InputOnly,
}

/// The resources that a field references ([`Field::references`]).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Reference {
    /// Their kind.
    pub kind: &'static Kind,
    /// The effect of deleting one.
    pub on_delete: OnDelete,
}

/// The effect on a resource of deleting one that it references (`docs/api.md`, References).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDelete {
    /// The delete is rejected: FAILED_PRECONDITION, RESOURCE_IN_USE.
    Restrict,
    /// The field is cleared and `updateTime` set, without an event and without running hooks.
    Clear,
    /// It is deleted too, with its own dependents, without an event of its own and without running hooks.
    Cascade,
}

/// A type of proto3 JSON.
///
/// Exhaustive, because each transport must encode every case.
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
    /// One of these names; the first means unspecified and is never written. In JSON, the number of a name is its
    /// index.
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

    /// The default maximum length of a text in bytes: that of an index key.
    pub const MAX_LEN: usize = KeyValue::MAX_LEN;
    /// The default maximum length of a text with line breaks in bytes.
    pub const MAX_MULTILINE_LEN: usize = 64 << 10;
    /// The default maximum number of elements of a list or entries of a map.
    pub const MAX_ITEMS: usize = 100;
    /// The maximum number of former names.
    const MAX_FORMER: usize = 4;

    /// Returns a mutable field of this type.
    pub const fn new(name: &'static str, ty: Type) -> Self {
        Self {
            name,
            ty,
            access: Access::Mutable,
            required: false,
            multiline: false,
            sort: &[],
            sort_key: None,
            searched: false,
            findable: false,
            in_query: None,
            oneof: None,
            rest_only: false,
            once: false,
            unlisted: false,
            max_len: Self::MAX_LEN,
            max_items: Self::MAX_ITEMS,
            distinct: false,
            privileged: false,
            reference: None,
            uid_of: None,
            blob: false,
            always: false,
            about: "",
            pattern: "",
            pattern_is_documentation: false,
            costly: false,
            check: None,
            default: None,
            former: [""; Self::MAX_FORMER],
            of: None,
            unread: false,
            optional: false,
        }
    }

    /// Returns a text field.
    pub const fn string(name: &'static str) -> Self {
        Self::new(name, Type::String)
    }

    /// Returns a field that is a list of texts.
    pub const fn strings(name: &'static str) -> Self {
        Self::new(name, Type::List(&Type::String))
    }

    /// Returns a field that is a map of texts.
    pub const fn string_map(name: &'static str) -> Self {
        Self::new(name, Type::Map(&Type::String))
    }

    /// Returns a boolean field.
    pub const fn bool(name: &'static str) -> Self {
        Self::new(name, Type::Bool)
    }

    /// Returns a timestamp field.
    pub const fn timestamp(name: &'static str) -> Self {
        Self::new(name, Type::Timestamp)
    }

    /// Returns an enum field; the first name means unspecified.
    pub const fn enumeration(name: &'static str, names: &'static [&'static str]) -> Self {
        Self::new(name, Type::Enum(names))
    }

    /// Returns a field that is a nested message.
    pub const fn message(name: &'static str, fields: &'static [Self]) -> Self {
        Self::new(name, Type::Message(fields))
    }

    /// Requires a value in creates.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Makes the field immutable after the create.
    pub const fn immutable(mut self) -> Self {
        self.access = Access::Immutable;
        self
    }

    /// Lets only the server set the field.
    pub const fn output_only(mut self) -> Self {
        self.access = Access::OutputOnly;
        self
    }

    /// Omits the field from replies.
    pub const fn input_only(mut self) -> Self {
        self.access = Access::InputOnly;
        self
    }

    /// Allows line breaks and tabs, and up to [`Field::MAX_MULTILINE_LEN`] bytes.
    pub const fn multiline(mut self) -> Self {
        self.multiline = true;
        self.max_len = Self::MAX_MULTILINE_LEN;
        self
    }

    /// Sets the maximum length of a text in bytes: of each element of a list, and of each key and value of a map.
    pub const fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// Sets the maximum number of elements of a list or entries of a map.
    pub const fn max_items(mut self, items: usize) -> Self {
        self.max_items = items;
        self
    }

    /// Rejects duplicates in a list.
    pub const fn distinct(mut self) -> Self {
        self.distinct = true;
        self
    }

    /// Allows lists to be ordered by the field, with these names in `order_by`.
    pub const fn sort(mut self, names: &'static [&'static str]) -> Self {
        self.sort = names;
        self
    }

    /// Sets the function that computes the sort key.
    pub const fn sort_key(mut self, sort_key: SortKey) -> Self {
        self.sort_key = Some(sort_key);
        self
    }

    /// Lets searches over all kinds (`platformctl find`, and that of the console) find resources by a part of this text, as
    /// by a part of the name: for an email address, or an identifier in another system. They filter the list, and say so if
    /// it has more resources than a filter without an index reads.
    pub const fn findable(mut self) -> Self {
        self.findable = true;
        self
    }

    /// Lets filters find the text by any part of at least three bytes ([`Field::searched`]).
    pub const fn searched(mut self) -> Self {
        self.searched = true;
        self
    }

    /// Sets the function that parses an element from the text in a query string.
    pub const fn in_query(mut self, in_query: InQuery) -> Self {
        self.in_query = Some(in_query);
        self
    }

    /// Adds the field to a oneof.
    pub const fn oneof(mut self, name: &'static str) -> Self {
        self.oneof = Some(name);
        self
    }

    /// Declares that the field is absent from the protobuf message.
    pub const fn rest_only(mut self) -> Self {
        self.rest_only = true;
        self
    }

    /// Shows the field only in the reply of the create, and never stores it. For top-level fields that the server sets.
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Omits the field from lists. For top-level fields.
    pub const fn unlisted(mut self) -> Self {
        self.unlisted = true;
        self
    }

    /// Declares that the value can grant power ([`Field::privileged`]).
    pub const fn privileged(mut self) -> Self {
        self.privileged = true;
        self
    }

    /// Declares that the field, a top-level text, is empty or the uid of an existing resource of a kind.
    ///
    /// A write that sets the field requires that the referenced resource exists and belongs to the same organization or
    /// to none; the caller need not be able to read it. When the referenced resource is deleted, by itself or with
    /// another, `on_delete` applies in the same commit. All of this holds for the methods, for imports, and for each
    /// [`Write`](crate::write::Write) of a hook or an action.
    ///
    /// The field gets a filter key, also if no list parameter filters by it. Resources that were stored before the
    /// field became a reference do not have the key until they are written again, and until then deletes do not find
    /// them.
    pub const fn references(mut self, kind: &'static Kind, on_delete: OnDelete) -> Self {
        self.reference = Some(Reference { kind, on_delete });
        self.uid_of = Some(kind.name);
        self
    }

    /// Declares that the field has the uids of resources of this kind, for clients ([`Field::uid_of`]).
    pub const fn uid_of(mut self, kind: KindName) -> Self {
        self.uid_of = Some(kind);
        self
    }

    /// Declares that the field, a text or a list of texts at any depth, is empty or has the digest of a
    /// [blob](crate::blob) of the resource's parent. An import rejects a resource whose blobs do not exist, and blobs
    /// that a resource names are not deleted.
    pub const fn blob(mut self) -> Self {
        self.blob = true;
        self
    }

    /// Shows the field in replies even if it is empty: an empty text, list or map, an unspecified enum, or null. For
    /// fields that the contract requires in replies and that are optional in creates. An input-only field is null,
    /// which its Rust type must be able to deserialize.
    ///
    /// A stored body that needs no rendering gets the field when the resource is next written. To add it to all stored
    /// bodies, raise [`CURRENT_RENDERING`](crate::write::CURRENT_RENDERING).
    pub const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// Returns whether a key of a request names this field, in camelCase or snake_case.
    pub fn is_named(&self, key: &str) -> bool {
        fields::is_named(key, self.name)
    }

    /// Sets the description for the documentation: one or two sentences in Markdown.
    pub const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Sets a regular expression that the text matches, or each text of a list or map. An empty text is not a value and
    /// need not match.
    ///
    /// The syntax and the meaning are those of JSON Schema (ECMA-262 without flags), so that clients and the server
    /// agree: the pattern may match anywhere in the text, and `^` and `$` are its start and its end. Matching takes time
    /// linear in the text. Look-around, back-references and what else the [`regex`] crate does not have are errors of
    /// [`Builder::build`](crate::platform::Builder::build).
    pub const fn pattern(mut self, pattern: &'static str) -> Self {
        self.pattern = pattern;
        self.pattern_is_documentation = false;
        self
    }

    /// Documents a rule as a regular expression. The rule itself is enforced elsewhere, such as by [`Field::check`],
    /// whose error says more than that a pattern does not match.
    pub const fn documented_pattern(mut self, pattern: &'static str) -> Self {
        self.pattern = pattern;
        self.pattern_is_documentation = true;
        self
    }

    /// Returns whether every reply that shows the message has the field: numbers and booleans, required fields, fields
    /// with a [default](Field::default), and fields that are shown [always](Field::always).
    pub const fn is_written(&self) -> bool {
        let is_number = matches!(self.ty, Type::Bool | Type::Int32 | Type::Int64);
        let written = is_number || self.required || self.default.is_some();
        self.always || written && self.is_shown()
    }

    /// Returns whether lists show the field.
    pub const fn is_shown(&self) -> bool {
        !matches!(self.access, Access::InputOnly) && !self.once && !self.unlisted
    }

    /// Declares that the check may take a millisecond or more.
    pub const fn costly(mut self) -> Self {
        self.costly = true;
        self
    }

    /// Sets a rule for the value.
    pub const fn check(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// Sets the value of a resource without one, in canonical form, so that no resource lacks the field: one that was
    /// stored before the field existed, one whose create does not set it, and one whose update clears it. If the field
    /// is [required](Field::required), creates and updates still have to set it.
    ///
    /// Stored resources get the default when they are read. If lists are ordered or filtered by the field, their index
    /// keys follow by [`shape::rewrite`](crate::shape::rewrite).
    pub const fn default(mut self, default: MakeDefault) -> Self {
        self.default = Some(default);
        self
    }

    /// Declares that the field had another name before: stored resources have their value under it until they are next
    /// written. A field that was renamed more than once has this several times, with the last name first.
    ///
    /// # Panics
    /// For the fifth former name; in a constant, that is a compile error.
    #[expect(clippy::panic, reason = "evaluated at compile time, where it is a compile error")]
    #[expect(clippy::indexing_slicing, reason = "a constant function cannot use `get_mut`; the index is in bounds")]
    pub const fn was(mut self, former: &'static str) -> Self {
        let mut at = 0;
        while at < Self::MAX_FORMER {
            if self.former[at].is_empty() {
                self.former[at] = former;
                return self;
            }
            at += 1;
        }
        panic!("a field has at most four former names")
    }

    /// Returns the names that the field had before, the last one first.
    pub fn former_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.former.into_iter().filter(|name| !name.is_empty())
    }

    /// Returns whether stored values differ from those that replies have, at any depth.
    pub(super) const fn has_history(&self) -> bool {
        if self.default.is_some() || !self.former[0].is_empty() {
            return true;
        }
        let mut ty = &self.ty;
        while let Type::List(element) | Type::Map(element) = ty {
            ty = element;
        }
        match ty {
            Type::Message(fields) => Self::any_has_history(fields),
            _ => false,
        }
    }

    pub(super) const fn any_has_history(mut fields: &[Self]) -> bool {
        while let [field, rest @ ..] = fields {
            if field.has_history() {
                return true;
            }
            fields = rest;
        }
        false
    }

    /// Leaves the field out of the replies of another version of the API when it has no value.
    pub const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Lets callers set the field, in a table of another version of the API
    /// ([`Conversion::WRITES`](crate::conversion::Conversion::WRITES)).
    pub const fn mutable(mut self) -> Self {
        self.access = Access::Mutable;
        self
    }

    /// Does not require a value in creates, as [`Field::mutable`].
    pub const fn not_required(mut self) -> Self {
        self.required = false;
        self
    }

    /// Converts the field from and to the value at this path of the resource ([conversion](crate::conversion)). With an
    /// empty path, the resource has no such value: requests cannot set it, and
    /// [`Conversion::complete`](crate::conversion::Conversion::complete) may.
    pub const fn of(mut self, path: &'static str) -> Self {
        self.of = Some(path);
        self
    }

    /// Passes the value of a request to the action as the client sent it, without any rules.
    pub const fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Sets the type, for another version of the API that has another.
    pub const fn ty(mut self, ty: Type) -> Self {
        self.ty = ty;
        self
    }

    /// Returns the field for another version of the API, under another name, with the same value, type and description.
    /// The rules for its value are those of the resource, which the conversion applies.
    pub const fn named(self, name: &'static str) -> Self {
        let of = match self.of {
            Some(of) => of,
            None => self.name,
        };
        Self { name, of: Some(of), access: Access::Mutable, required: false, check: None, unread: true, ..self }
    }
}

impl Type {
    /// Returns the index key of a canonical value; the empty key for `None`.
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
