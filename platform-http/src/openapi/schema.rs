//! JSON Schemas of field tables (draft 2020-12, as in OpenAPI 3.1).

use platform_engine::{
    access::Capability,
    kind::{Access, Field, Kind, Type},
    platform::Platform,
};
use serde_json::{Map, Value, json};

/// Purpose of a message, which decides its fields and which of them are required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Reply: without input-only fields, except those that the contract requires (`Field::always`). Numbers and
    /// booleans are always written.
    Reply,
    /// Reply of a service of another version of the API, which writes null for messages and times that are not set.
    ReplyWithNulls,
    /// Body of a create or an action: the fields that callers can set.
    Request,
    /// Body of an update: the fields that callers can set, none of them required.
    Update,
}

impl For {
    fn has(self, field: &Field) -> bool {
        match self {
            Self::Reply | Self::ReplyWithNulls => field.access != Access::InputOnly || field.always,
            Self::Request | Self::Update => field.access != Access::OutputOnly,
        }
    }

    fn is_reply(self) -> bool {
        matches!(self, Self::Reply | Self::ReplyWithNulls)
    }

    /// Returns whether the field is required; in a reply, this means that it is always written (`docs/api.md`, JSON).
    fn requires(self, field: &Field) -> bool {
        match self {
            Self::Reply | Self::ReplyWithNulls => field.is_written(),
            Self::Request => field.required,
            Self::Update => false,
        }
    }
}

/// Builds schemas of field tables. A message that is a known kind becomes a reference to the kind's schema.
#[derive(Debug, Default)]
pub(crate) struct Schemas<'k> {
    kinds: Vec<&'k Kind>,
}

impl<'k> Schemas<'k> {
    /// Returns a builder for the kinds of a platform. Kinds with standard methods have a schema of their own.
    pub(crate) fn of(kinds: impl Iterator<Item = &'k Kind>) -> Self {
        Self { kinds: kinds.filter(|kind| kind.served().next().is_some()).collect() }
    }

    /// Returns the inline schema of an object with these fields.
    pub(crate) fn object(&self, fields: &[Field], purpose: For) -> Value {
        let mut properties = Map::new();
        for field in fields.iter().filter(|field| purpose.has(field)) {
            properties.insert(field.name.to_owned(), self.field(field, purpose));
        }
        let mut object = json!({ "type": "object", "properties": properties });
        // A later release may add fields to replies; unknown keys in requests are rejected.
        if !purpose.is_reply() {
            set(&mut object, "additionalProperties", false);
        }
        let required = fields.iter().filter(|field| purpose.has(field) && purpose.requires(field));
        let required: Vec<_> = required.map(|field| field.name).collect();
        if !required.is_empty() {
            set(&mut object, "required", required);
        }
        if let Some(text) = exclusions(fields) {
            set(&mut object, "description", text);
        }
        object
    }

    /// Returns the schema of a message: a reference if it is a kind in a reply, otherwise an inline schema.
    pub(crate) fn message(&self, fields: &[Field], purpose: For) -> Value {
        let is_kind = |kind: &&&Kind| !fields.is_empty() && is_same_table(kind.fields, fields);
        match self.kinds.iter().find(is_kind) {
            Some(kind) if purpose == For::Reply => reference(kind.name),
            _ => self.object(fields, purpose),
        }
    }

    /// Returns the schema of a field, with its description and access.
    pub(crate) fn field(&self, field: &Field, purpose: For) -> Value {
        let mut schema = self.of_type(field, &field.ty, purpose);
        let (mut about, mut access) = (vec![field.about.to_owned()], "");
        match field.access {
            Access::OutputOnly => set(&mut schema, "readOnly", true),
            // Always null in replies; the contract requires the field to be present. Many generators cannot read the
            // type null alone.
            Access::InputOnly if purpose.is_reply() => nullable(&mut schema),
            Access::InputOnly => set(&mut schema, "writeOnly", true),
            Access::Immutable => access = "Set on create; cannot be changed by an update.",
            Access::Mutable => {}
        }
        about.extend(schema.get("description").and_then(Value::as_str).map(str::to_owned));
        about.push(access.to_owned());
        about.retain(|text| !text.is_empty());
        if !about.is_empty() {
            set(&mut schema, "description", about.join(" "));
        }
        if !purpose.is_reply() {
            add_pattern(&mut schema, field);
        }
        // That of a required field is for resources that were stored before, and not for requests.
        if let (For::Request, false, Some(default)) = (purpose, field.required, field.default) {
            set(&mut schema, "default", default());
        }
        let is_null_if_unset = matches!(field.ty, Type::Timestamp | Type::Duration | Type::Message(_));
        if purpose == For::ReplyWithNulls && is_null_if_unset && field.oneof.is_none() && !field.optional {
            nullable(&mut schema);
        }
        schema
    }

    /// Returns the schema of a query or path parameter, in which the messages of a list are strings.
    pub(crate) fn parameter(&self, field: &Field) -> Value {
        match (field.in_query, &field.ty) {
            (Some(_), Type::List(_)) => {
                json!({ "type": "array", "items": { "type": "string" }, "maxItems": field.max_items })
            }
            (_, ty) => {
                let mut schema = self.of_type(field, ty, For::Request);
                add_pattern(&mut schema, field);
                schema
            }
        }
    }

    /// Returns the schema of a field's type or of its elements. Requests include the limits of the field. The limit of
    /// a string is in bytes, which is also an upper limit on its characters.
    fn of_type(&self, field: &Field, ty: &Type, purpose: For) -> Value {
        let mut schema = self.unlimited_type(field, ty, purpose);
        if !purpose.is_reply() {
            match ty {
                Type::String => set(&mut schema, "maxLength", field.max_len),
                Type::Bytes => set(&mut schema, "maxLength", field.max_len.div_ceil(3) * 4),
                Type::List(_) => {
                    set(&mut schema, "maxItems", field.max_items);
                    if field.distinct {
                        set(&mut schema, "uniqueItems", true);
                    }
                    // An empty list counts as none.
                    if field.required && purpose == For::Request {
                        set(&mut schema, "minItems", 1);
                    }
                }
                Type::Map(_) => set(&mut schema, "maxProperties", field.max_items),
                _ => {}
            }
        }
        schema
    }

    fn unlimited_type(&self, field: &Field, ty: &Type, purpose: For) -> Value {
        match ty {
            Type::String => json!({ "type": "string" }),
            Type::Bool => json!({ "type": "boolean" }),
            Type::Int32 => json!({ "type": "integer", "format": "int32" }),
            Type::Int64 => json!({ "type": "string", "format": "int64", "pattern": "^-?[0-9]{1,19}$" }),
            Type::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Type::Timestamp => json!({ "type": "string", "format": "date-time" }),
            Type::Duration => json!({ "type": "string", "pattern": "^-?[0-9]{1,12}(\\.[0-9]{1,9})?s$" }),
            Type::Enum(names) => json!({ "type": "string", "enum": names }),
            Type::Capability => reference("Capability"),
            Type::FieldMask => json!({ "type": "string", "description": "Field paths, separated by commas." }),
            Type::Message(fields) => self.message(fields, purpose),
            Type::List(element) => json!({ "type": "array", "items": self.of_type(field, element, purpose) }),
            Type::Map(element) => {
                json!({ "type": "object", "additionalProperties": self.of_type(field, element, purpose) })
            }
        }
    }
}

/// Returns the enum of capabilities.
pub(crate) fn capability(platform: &Platform) -> Value {
    let all: Vec<_> = platform.capabilities().iter().map(Capability::id).collect();
    json!({ "type": "string", "description": "A capability, which roles grant.", "enum": all })
}

/// Returns a reference to a schema component.
pub(crate) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Adds the field's pattern: to the items of a list, to the values of a map, or to the schema itself.
fn add_pattern(schema: &mut Value, field: &Field) {
    if field.pattern.is_empty() {
        return;
    }
    match (&field.ty, schema.get_mut("items")) {
        (Type::List(_), Some(items)) => set(items, "pattern", field.pattern),
        (Type::Map(_), None) => {
            if let Some(values) = schema.get_mut("additionalProperties") {
                set(values, "pattern", field.pattern);
            }
        }
        _ => set(schema, "pattern", field.pattern),
    }
}

/// Sets a key of an object.
pub(crate) fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Value::Object(object) = object {
        object.insert(key.to_owned(), value.into());
    }
}

/// Allows null in place of a value.
fn nullable(schema: &mut Value) {
    let ty = schema.get("type").cloned().unwrap_or_default();
    set(schema, "type", json!([ty, "null"]));
}

/// Describes which fields exclude each other. JSON Schema could express it, but not readably.
fn exclusions(fields: &[Field]) -> Option<String> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for field in fields {
        let Some(oneof) = field.oneof else { continue };
        let name = format!("`{}`", field.name);
        match groups.iter_mut().find(|(group, _)| *group == oneof) {
            Some((_, names)) => names.push(name),
            None => groups.push((oneof, vec![name])),
        }
    }
    let text: Vec<_> =
        groups.iter().map(|(_, names)| format!("At most one of {} can be set.", names.join(", "))).collect();
    (!text.is_empty()).then(|| text.join(" "))
}

/// Returns whether two tables are the same, by field names. Addresses cannot be compared, because a constant has none.
fn is_same_table(one: &[Field], other: &[Field]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.name == other.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field::UID,
        Field::string("name").required(),
        Field::new("size", Type::Int64).output_only(),
        Field::string("secret").input_only(),
        Field::message("one", &[Field::string("issuer").required()]).oneof("form"),
        Field::enumeration("two", &["TWO_UNSPECIFIED", "TWO_A"]).oneof("form"),
    ];

    #[test]
    fn each_purpose_has_its_allowed_and_required_fields() {
        let of = |purpose| {
            let schema = Schemas::of(std::iter::empty()).object(FIELDS, purpose);
            let names: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
            (names.join(" "), schema["required"].clone(), schema["properties"]["one"]["required"].clone())
        };
        let (all, none) = (json!(["issuer"]), Value::Null);
        assert_eq!(of(For::Reply), ("uid name size one two".to_owned(), json!(["name", "size"]), all.clone()));
        assert_eq!(of(For::Request), ("name secret one two".to_owned(), json!(["name"]), all));
        assert_eq!(of(For::Update), ("name secret one two".to_owned(), none.clone(), none));
    }

    #[test]
    fn replies_allow_additional_properties_and_requests_do_not() {
        let of = |purpose| Schemas::of(std::iter::empty()).object(FIELDS, purpose)["additionalProperties"].clone();
        assert_eq!((of(For::Reply), of(For::Request), of(For::Update)), (Value::Null, false.into(), false.into()));
    }

    #[test]
    fn an_input_only_field_that_is_always_written_is_null_in_replies() {
        const TTL: &[Field] = &[Field::new("ttl", Type::Duration).input_only().always()];
        let schema = Schemas::of(std::iter::empty()).object(TTL, For::Reply);
        let ty = &schema["properties"]["ttl"]["type"];
        assert_eq!((&schema["required"], ty), (&json!(["ttl"]), &json!(["string", "null"])));
    }

    #[test]
    fn fields_document_their_access_and_messages_their_exclusive_fields() {
        let schema = Schemas::of(std::iter::empty()).object(FIELDS, For::Reply);
        assert_eq!(schema["description"], "At most one of `one`, `two` can be set.");
        let size = &schema["properties"]["size"];
        assert_eq!((&size["readOnly"], &size["type"]), (&json!(true), &json!("string")));
        let schema = Schemas::of(std::iter::empty()).object(FIELDS, For::Request);
        assert_eq!(schema["properties"]["secret"]["writeOnly"], true);
        assert_eq!(schema["properties"]["two"]["enum"], json!(["TWO_UNSPECIFIED", "TWO_A"]));
    }

    #[test]
    fn requests_document_the_limits_of_fields_and_replies_do_not() {
        const BOUNDED: &[Field] = &[
            Field::strings("tags").max_len(5).max_items(3).distinct(),
            Field::string_map("labels").max_len(7).max_items(2),
            Field::new("blob", Type::Bytes).max_len(4),
        ];
        let properties = |purpose| Schemas::of(std::iter::empty()).object(BOUNDED, purpose)["properties"].clone();
        let text = |len: Value| json!({ "type": "string", "maxLength": len });
        assert_eq!(
            properties(For::Update),
            json!({
                "tags": { "type": "array", "items": text(json!(5)), "maxItems": 3, "uniqueItems": true },
                "labels": { "type": "object", "additionalProperties": text(json!(7)), "maxProperties": 2 },
                "blob": { "type": "string", "contentEncoding": "base64", "maxLength": 8 },
            })
        );
        assert!(!properties(For::Reply).to_string().contains("max"));
    }
}
