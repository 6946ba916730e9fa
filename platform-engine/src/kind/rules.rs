//! The rules for the requests of creates and updates: those of the kind's table, or those of another version of the API.

use super::{Access, Field, Kind, Type, Verb};

/// The rules for the requests of creates and updates of a kind.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WriteRules {
    /// The fields of requests.
    pub fields: &'static [Field],
    /// The name of the field by which a create replaces an existing resource of the same parent.
    pub upsert: Option<&'static str>,
    /// The names of the fields that such a create retains when the request does not have them.
    pub retained: &'static [&'static str],
    /// Whether an update replaces all fields that the version has.
    pub replaces: bool,
    /// Whether the request is of another version of the API than the kind's own.
    pub converted: bool,
}

impl WriteRules {
    /// Returns the rules of the kind's table.
    pub fn of(kind: &Kind) -> Self {
        let upsert = kind.method(Verb::Create).and_then(|create| create.upsert);
        Self { fields: kind.fields, upsert, retained: &[], replaces: false, converted: false }
    }

    /// Returns the rules of another version of the API that has the same fields.
    pub fn converted(kind: &Kind) -> Self {
        Self { converted: true, ..Self::of(kind) }
    }

    /// Returns whether requests may set the field at this dotted path. Another version of the API may allow it for a
    /// field that is output-only in the kind's own.
    pub fn allow(&self, path: &str) -> bool {
        let mut fields = self.fields;
        path.split('.').all(|name| match fields.iter().find(|field| field.name == name) {
            Some(field) => {
                fields = if let Type::Message(inner) = field.ty { inner } else { &[] };
                field.access != Access::OutputOnly
            }
            None => false,
        })
    }
}
