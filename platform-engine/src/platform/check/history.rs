//! Checks of the declarations of a table about its earlier versions: former names, removed fields and defaults.

use serde_json::{Map, Value};

use super::Checker;
use crate::{
    error::Violations,
    fields,
    kind::{Field, Type},
};

impl Checker<'_> {
    /// Checks the former names and defaults of a list of fields that lie in one message.
    pub(super) fn former(&mut self, item: &str, fields: &'static [Field]) {
        for (at, field) in fields.iter().enumerate() {
            let item = format!("{item}.{}", field.name);
            for former in field.former_names() {
                let is_field = fields.iter().any(|other| other.name == former);
                let rule = format!("was {former}, which must not be a field too");
                self.require(!is_field, &item, rule);
                let earlier = fields.iter().take(at).find(|other| other.former_names().any(|name| name == former));
                if let Some(other) = earlier {
                    self.add(&item, format!("was {former}, as was {}: only one field can have its values", other.name));
                }
            }
            if let Some(default) = field.default {
                self.default(&item, field, default());
            }
        }
    }

    fn default(&mut self, item: &str, field: &'static Field, default: Value) {
        let is_plain = field.oneof.is_none() && field.reference.is_none() && !field.once;
        self.require(
            is_plain,
            item,
            "must have no default: it references a resource, is in a oneof or is never stored",
        );
        if !fields::has_form_of(&field.ty, &default) || fields::is_empty(&field.ty, &default) {
            let rule = format!("has the default {default}, which must be a value of its type {:?}", field.ty);
            return self.add(item, rule);
        }
        let mut violations = Violations::default();
        let object = Value::Object(Map::from_iter([(field.name.to_owned(), default)]));
        if fields::validate(std::slice::from_ref(field), &object, &mut violations).is_ok() {
            for violation in violations.into_vec() {
                self.add(item, format!("has a default that breaks a rule of its own: {}", violation.description));
            }
        }
    }

    /// Checks the paths of removed fields.
    pub(super) fn removed(&mut self) {
        let kind = self.kind;
        for (at, path) in kind.removed.iter().enumerate() {
            let item = format!("removed.{path}");
            self.require(!kind.removed.iter().take(at).any(|other| other == path), &item, "must be listed once");
            let mut fields = kind.fields;
            let (parents, name) = path.rsplit_once('.').map_or((None, *path), |(parents, name)| (Some(parents), name));
            for parent in parents.into_iter().flat_map(|parents| parents.split('.')) {
                match message(fields, parent) {
                    Some(inner) => fields = inner,
                    None => {
                        let rule = format!("lies in {parent}, which must be a message, or a list of messages");
                        return self.add(&item, rule);
                    }
                }
            }
            let is_field = fields.iter().any(|field| field.name == name);
            self.require(!is_field, &item, "must not be a field, because its values would be removed");
            let former = fields.iter().find(|field| field.former_names().any(|former| former == name));
            if let Some(field) = former {
                self.add(&item, format!("is a former name of {}, whose values would be removed", field.name));
            }
        }
    }
}

/// Returns the fields of the message that a field is, or that the elements of its list are.
fn message(fields: &'static [Field], name: &str) -> Option<&'static [Field]> {
    let field = fields.iter().find(|field| field.name == name)?;
    let mut ty = &field.ty;
    while let Type::List(element) = ty {
        ty = element;
    }
    if let Type::Message(inner) = ty { Some(inner) } else { None }
}
