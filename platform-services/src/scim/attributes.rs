//! The attributes of SCIM resources and messages: one table for discovery and the OpenAPI document.

use serde_json::{Map, Value, json};

/// URN of the schema of users.
pub(super) const SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:User";

/// Maximum number of operations in one patch; our choice.
pub(super) const MAX_OPERATIONS: usize = 100;
/// Maximum length of a filter in bytes; our choice.
pub(super) const MAX_FILTER: usize = 8 << 10;

/// Attribute of a resource or of a message (RFC 7643 section 7).
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute {
    pub(super) name: &'static str,
    pub(super) ty: Type,
    /// Description without the period at its end.
    about: &'static str,
    pub(super) required: bool,
    pub(super) read_only: bool,
    /// Whether every reply has it, whatever the client selects.
    pub(super) always: bool,
    /// Whether no two resources may have the same value.
    unique: bool,
    pub(super) case_exact: bool,
}

/// Type of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    String,
    /// A string of at most this number of bytes.
    Bounded(usize),
    /// A time, as a string in the form of RFC 3339.
    Time,
    Boolean,
    Integer,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// Any JSON value.
    Any,
    /// An object; without attributes, any object.
    Complex(&'static [Attribute]),
    /// Several values.
    Many(&'static Self),
    /// 1 to this number of values.
    AtMost(usize, &'static Self),
}

/// Attributes of a user, in the order in which they are written.
pub(super) const USER: &[Attribute] = &[
    SCHEMAS.about("The URNs of the schemas (RFC 7643)").always(),
    Attribute::string("id").about("The user's uid").read_only().always().case_exact(),
    Attribute::string("externalId")
        .about("The directory's identifier of the user, unique in the directory")
        .unique()
        .case_exact(),
    Attribute::string("userName")
        .about("The name with which the user signs in, unique in the directory and case-insensitive")
        .required()
        .unique(),
    Attribute::new("name", Type::Complex(NAME)).about("The parts of the user's name"),
    Attribute::string("displayName").about("The display name"),
    Attribute::new("active", Type::Boolean).about("Whether the user may sign in"),
    Attribute::new("emails", Type::Many(&Type::Complex(EMAIL)))
        .about("Email addresses, of which only the primary one, or else the first, is stored"),
    Attribute::new("meta", Type::Complex(META)).about("Type, times and location of the resource").read_only(),
];

const SCHEMAS: Attribute = Attribute::new("schemas", Type::Many(&Type::String));

const NAME: &[Attribute] =
    &[Attribute::string("givenName").about("The given name"), Attribute::string("familyName").about("The family name")];

const EMAIL: &[Attribute] = &[
    Attribute::string("value").about("The address"),
    Attribute::new("type", Type::OneOf(&["work"])).about("The purpose of the address").read_only(),
    Attribute::new("primary", Type::Boolean).about("Whether it is the primary address").read_only(),
];

const META: &[Attribute] = &[
    Attribute::string("resourceType").about("The name of the resource type").read_only().case_exact(),
    Attribute::new("created", Type::Time).about("The time when the resource was created").read_only(),
    Attribute::new("lastModified", Type::Time).about("The time when the resource was last changed").read_only(),
    Attribute::string("location").about("The URL of the resource").read_only().case_exact(),
];

/// Attributes of a list response.
pub(super) const LIST: &[Attribute] = &[
    SCHEMAS.about("The URN of list responses").required(),
    Attribute::new("totalResults", Type::Integer).about("The number of matching resources").required(),
    Attribute::new("startIndex", Type::Integer)
        .about("The index of the first resource on the page, starting at 1")
        .required(),
    Attribute::new("itemsPerPage", Type::Integer).about("The number of resources on the page").required(),
    Attribute::new("Resources", Type::Many(&Type::Complex(&[]))).about("The resources of the page").required(),
];

/// Attributes of a patch.
pub(super) const PATCH: &[Attribute] = &[
    SCHEMAS.about("The URN of patch requests"),
    Attribute::new("Operations", Type::AtMost(MAX_OPERATIONS, &Type::Complex(OPERATION)))
        .about("The operations, applied in order and atomically")
        .required(),
];

/// Attributes of an operation of a patch.
pub(super) const OPERATION: &[Attribute] = &[
    Attribute::new("op", Type::OneOf(&["add", "replace", "remove"]))
        .about("The operation; case-insensitive")
        .required(),
    Attribute::string("path").about("The attribute to change. Without a path, the value is an object of attributes"),
    Attribute::new("value", Type::Any).about("The new value; not for `remove`"),
];

/// Attributes of an error.
pub(super) const ERROR: &[Attribute] = &[
    SCHEMAS.about("The URN of errors").required(),
    Attribute::string("status").about("The HTTP status").required(),
    Attribute::string("scimType").about("The type of error (RFC 7644, 3.12)"),
    Attribute::string("detail").about("The error message, for people").required(),
];

/// Attributes of a search.
pub(super) const SEARCH: &[Attribute] = &[
    SCHEMAS.about("The URN of search requests"),
    ATTRIBUTES,
    EXCLUDED_ATTRIBUTES,
    FILTER,
    START_INDEX,
    COUNT,
    Attribute::string("sortBy").about("Ignored: users have the order of their ids"),
    Attribute::string("sortOrder").about("Ignored, as `sortBy`"),
];

/// Query parameters of a list of users.
pub(super) const LIST_QUERY: &[Attribute] = &[ATTRIBUTES, EXCLUDED_ATTRIBUTES, FILTER, START_INDEX, COUNT];

/// Query parameters of a reply with one user.
pub(super) const USER_QUERY: &[Attribute] = &[ATTRIBUTES, EXCLUDED_ATTRIBUTES];

const ATTRIBUTES: Attribute = Attribute::new("attributes", Type::Many(&Type::String))
    .about("The attributes to return, such as `userName` or `name.familyName`; `id` and `schemas` are returned, too");
const EXCLUDED_ATTRIBUTES: Attribute = Attribute::new("excludedAttributes", Type::Many(&Type::String))
    .about("The attributes to leave out, other than `id` and `schemas`; not together with `attributes`");
const FILTER: Attribute = Attribute::new("filter", Type::Bounded(MAX_FILTER))
    .about("The condition that the users must meet (RFC 7644, 3.4.2.2)");
const START_INDEX: Attribute =
    Attribute::new("startIndex", Type::Integer).about("The index of the first user, starting at 1");
const COUNT: Attribute =
    Attribute::new("count", Type::Integer).about("The maximum number of users on the page, at most 200");

impl Attribute {
    const fn new(name: &'static str, ty: Type) -> Self {
        Self { name, ty, about: "", required: false, read_only: false, always: false, unique: false, case_exact: false }
    }

    const fn string(name: &'static str) -> Self {
        Self::new(name, Type::String)
    }

    const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    const fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    const fn case_exact(mut self) -> Self {
        self.case_exact = true;
        self
    }

    /// Returns the attributes of a complex attribute, or of its values.
    pub(super) fn parts(&self) -> &'static [Self] {
        match self.ty {
            Type::Complex(parts) => parts,
            Type::Many(Type::Complex(parts)) => parts,
            _ => &[],
        }
    }

    /// Returns the definition of the attribute in a schema of discovery (RFC 7643 section 7).
    pub(super) fn definition(&self) -> Value {
        let (ty, multi_valued) = match self.ty {
            Type::Many(ty) => (*ty, true),
            ty => (ty, false),
        };
        let parts = self.parts();
        let ty = match ty {
            Type::Complex(_) => "complex",
            Type::Boolean => "boolean",
            Type::Time => "dateTime",
            _ => "string",
        };
        let mut definition = json!({
            "name": self.name,
            "type": ty,
            "multiValued": multi_valued,
            "description": self.about,
            "required": self.required,
            "caseExact": self.case_exact,
            "mutability": if self.read_only { "readOnly" } else { "readWrite" },
            "returned": if self.always { "always" } else { "default" },
            "uniqueness": if self.unique { "server" } else { "none" },
        });
        if let Some(definition) = definition.as_object_mut() {
            if let Type::OneOf(values) = self.ty {
                definition.insert("canonicalValues".to_owned(), values.into());
            }
            if !parts.is_empty() {
                definition.insert("subAttributes".to_owned(), parts.iter().map(Self::definition).collect());
            }
        }
        definition
    }

    /// Returns the attribute as a query parameter of an OpenAPI operation.
    pub(super) fn parameter(&self) -> Value {
        let mut parameter = json!({
            "name": self.name, "in": "query", "description": format!("{}.", self.about), "schema": self.ty.schema(),
        });
        if let (Some(parameter), Type::Many(_)) = (parameter.as_object_mut(), self.ty) {
            // Separated by commas.
            parameter.insert("explode".to_owned(), false.into());
        }
        parameter
    }

    /// Returns the OpenAPI schema of the attribute.
    fn property(&self) -> Value {
        let mut property = self.ty.schema();
        if let Some(property) = property.as_object_mut() {
            if self.read_only {
                property.insert("readOnly".to_owned(), true.into());
            }
            property.insert("description".to_owned(), format!("{}.", self.about).into());
        }
        property
    }
}

impl Type {
    fn schema(self) -> Value {
        match self {
            Self::String => json!({ "type": "string" }),
            Self::Bounded(bytes) => json!({ "type": "string", "maxLength": bytes }),
            Self::Time => json!({ "type": "string", "format": "date-time" }),
            Self::Boolean => json!({ "type": "boolean" }),
            Self::Integer => json!({ "type": "integer" }),
            Self::OneOf(names) => json!({ "type": "string", "enum": names }),
            Self::Any => json!({}),
            Self::Complex([]) => json!({ "type": "object" }),
            Self::Complex(attributes) => schema(attributes),
            Self::Many(ty) => json!({ "type": "array", "items": ty.schema() }),
            Self::AtMost(count, ty) => {
                json!({ "type": "array", "items": ty.schema(), "minItems": 1, "maxItems": count })
            }
        }
    }
}

/// Returns the attribute of a table with this name, which is case-insensitive.
pub(super) fn named(table: &'static [Attribute], name: &str) -> Option<&'static Attribute> {
    table.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(name))
}

/// Returns the boolean that a text names.
pub(super) fn boolean_of(text: &str) -> Option<bool> {
    [("true", true), ("false", false)].into_iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, is)| is)
}

/// Returns the attributes of a user that its schema defines: all except those that every resource has (RFC 7643
/// section 3.1).
pub(super) fn defined() -> impl Iterator<Item = &'static Attribute> {
    USER.iter().filter(|attribute| !["schemas", "id", "meta"].contains(&attribute.name))
}

/// Returns the OpenAPI schema of an object with these attributes.
pub(super) fn schema(attributes: &[Attribute]) -> Value {
    let properties: Map<_, _> = attributes.iter().map(|one| (one.name.to_owned(), one.property())).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    let required: Vec<_> = attributes.iter().filter(|one| one.required).map(|one| one.name).collect();
    if let (Some(schema), false) = (schema.as_object_mut(), required.is_empty()) {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a value of a type with all its attributes; strings are `work`, which is also a type of address.
    fn sample(ty: Type) -> Value {
        match ty {
            Type::String | Type::Bounded(_) => "work".into(),
            Type::Time => "2026-01-02T03:04:05Z".into(),
            Type::Boolean => true.into(),
            Type::Integer => 1.into(),
            Type::OneOf(names) => names[0].into(),
            Type::Any => Value::Null,
            Type::Complex(attributes) => object(attributes),
            Type::Many(ty) | Type::AtMost(_, ty) => json!([sample(*ty)]),
        }
    }

    /// Returns an object with these attributes and their attributes.
    pub(in super::super) fn object(attributes: &[Attribute]) -> Value {
        attributes.iter().map(|one| (one.name.to_owned(), sample(one.ty))).collect::<Map<_, _>>().into()
    }

    /// Returns the names of all attributes, with dots for those of a nested object.
    pub(in super::super) fn names(value: &Value, prefix: &str) -> Vec<String> {
        match value {
            Value::Object(members) => {
                let one = |(name, value): (&String, &Value)| {
                    let name = format!("{prefix}{name}");
                    let inner = names(value, &format!("{name}."));
                    std::iter::once(name).chain(inner).collect::<Vec<_>>()
                };
                members.iter().flat_map(one).collect()
            }
            Value::Array(values) => values.first().map(|first| names(first, prefix)).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Checks that a message has exactly the attributes of a table, in its order.
    #[track_caller]
    pub(in super::super) fn assert_has(message: &Value, attributes: &[Attribute]) {
        assert_eq!(names(message, ""), names(&object(attributes), ""));
    }
}
