//! The rules for the writes of an operation: those of the kind's table, or those of another version of the API.

use super::Context;
use crate::kind::{Access, Field, Kind, Type, Verb};

/// The rules for creates and updates of a kind: those of its table, or those of another version of the API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writes {
    /// The fields of requests.
    pub fields: &'static [Field],
    /// The name of the field by which a create replaces an existing resource of the same parent.
    pub upsert: Option<&'static str>,
    /// The names of the fields that such a create retains when the request does not have them.
    pub retained: &'static [&'static str],
    /// Whether an update replaces all fields that the other version has.
    pub replaces: bool,
}

impl Context<'_> {
    /// Sets the rules for the writes of a kind.
    pub(crate) fn write_by(&self, kind: &Kind, writes: Writes) {
        *self.writes.lock() = Some((kind.name, writes));
    }

    /// Returns the rules for the writes of a kind.
    pub(crate) fn writes(&self, kind: &Kind) -> Writes {
        let of_kind = self.writes.lock().filter(|(name, _)| *name == kind.name);
        let upsert = kind.method(Verb::Create).and_then(|create| create.upsert);
        of_kind.map_or(Writes { fields: kind.fields, upsert, retained: &[], replaces: false }, |(_, writes)| writes)
    }

    /// Returns whether requests of this operation may set a field of a kind, at this dotted path, that is output-only
    /// in the kind's own version of the API.
    pub fn is_writable(&self, kind: &Kind, path: &str) -> bool {
        let mut fields = self.writes(kind).fields;
        path.split('.').all(|name| match fields.iter().find(|field| field.name == name) {
            Some(field) => {
                fields = if let Type::Message(inner) = field.ty { inner } else { &[] };
                field.access != Access::OutputOnly
            }
            None => false,
        })
    }
}
