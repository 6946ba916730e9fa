//! The shape of a table, and its comparison with the stored one.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::{KindShape, StoredField};
use crate::{
    kind::{Access, By, Field, Kind, Type, Verb},
    platform::Invalid,
    uid::Uid,
};

/// How the names of uniqueness rules begin.
const UNIQUE: &str = "unique ";
/// How the names of search indexes begin.
pub(super) const SEARCH: &str = "search of ";

impl KindShape {
    /// Returns the shape of records that were all written with this table.
    pub(super) fn of(kind: &Kind) -> Self {
        let mut fields = BTreeMap::new();
        add_fields(kind.fields, "", &mut fields);
        let indexes = indexes(kind).into_iter().map(|(name, definitions)| (name, definitions.into_iter().next()));
        let indexes: BTreeMap<_, _> =
            indexes.map(|(name, definition)| (name, definition.unwrap_or_default())).collect();
        let text: String = fields
            .iter()
            .map(|(path, field)| format!("{path} {} {}\n", field.ty, field.always))
            .chain(indexes.iter().map(|(name, definition)| format!("{name} {definition}\n")))
            .collect();
        let tables = BTreeSet::from([hex::encode(Sha256::digest(text))]);
        Self { uid: Uid::opaque(kind.name), fields, indexes, tables, rewrite: None }
    }

    /// Returns this shape, that of a table, for records of which some were written with an earlier one: their bodies
    /// may have other fields, and need not have all of these.
    pub(super) fn over(mut self, stored: &Self, kind: &Kind) -> Self {
        if self.is_known_to(stored) {
            // Its records are among those that the stored fields describe.
            self.fields.clone_from(&stored.fields);
        }
        for (path, field) in self.fields.iter_mut().filter(|(path, _)| !stored.fields.contains_key(*path)) {
            field.always &= stored.always(kind, path);
        }
        for (path, field) in &stored.fields {
            match self.fields.get_mut(path) {
                Some(own) => own.always &= field.always,
                None => drop(self.fields.insert(path.clone(), StoredField { always: false, ..field.clone() })),
            }
        }
        self.tables.extend(stored.tables.iter().cloned());
        // One that is under its former definition stays so, until the records are rewritten with the present one.
        for (name, definitions) in indexes(kind) {
            if let Some(former) = stored.indexes.get(&name).filter(|stored| definitions.contains(stored)) {
                self.indexes.insert(name, former.clone());
            }
        }
        self
    }

    /// Returns whether records were written with this table, the shape of one alone, since the last rewrite.
    pub(super) fn is_known_to(&self, stored: &Self) -> bool {
        stored.tables.is_superset(&self.tables)
    }

    /// Returns whether every stored body has a value for this path of a table, under the present name or a former one.
    fn always(&self, kind: &Kind, path: &str) -> bool {
        let stored = |path: &String| self.fields.get(path);
        former_paths(kind.fields, path).iter().filter_map(stored).any(|stored| stored.always)
    }

    /// Returns the fields that a table loses or misreads.
    pub(super) fn refused(&self, kind: &'static Kind) -> Vec<Invalid> {
        let mut found = Vec::new();
        let invalid = |path: &str, rule: String| Invalid { kind: kind.name, item: format!("fields.{path}"), rule };
        for (path, stored) in &self.fields {
            let rule = match find(kind, path) {
                Found::Field(field) if !is_compatible(&stored.ty, &name_of(field)) => format!(
                    "is stored as {} and is {} in the table: give the new field another name, and list this one in \
                     `Kind::removed`",
                    stored.ty,
                    name_of(field)
                ),
                Found::Field(_) | Found::Removed => continue,
                Found::Nothing => {
                    "is stored and has no row in the table: name it in `Field::was` of the field that it has \
                                   become, or in `Kind::removed`"
                        .to_owned()
                }
            };
            found.push(invalid(path, rule));
        }
        for (name, definitions) in indexes(kind).into_iter().filter(|(name, _)| name.starts_with(UNIQUE)) {
            // In a rewrite, the new value of one record could be the former value of another one.
            if self.indexes.get(&name).is_some_and(|stored| !definitions.contains(stored)) {
                let rule = "is another rule than before: give it another namespace";
                found.push(Invalid { kind: kind.name, item: name, rule: rule.to_owned() });
            }
        }
        let mut fields = BTreeMap::new();
        add_fields(kind.fields, "", &mut fields);
        for (path, field) in fields {
            let has_default = matches!(find(kind, &path), Found::Field(field) if field.default.is_some());
            if field.always && !self.always(kind, &path) && !has_default {
                let rule = "is always set, and stored resources may lack it: give it a default with `Field::default`";
                found.push(invalid(&path, rule.to_owned()));
            }
        }
        found
    }

    /// Returns the index keys and uniqueness rules of a table that stored records lack.
    pub(super) fn outdated(&self, kind: &'static Kind) -> Vec<Invalid> {
        let lacks = |(name, definitions): (String, Vec<String>)| match self.indexes.get(&name) {
            Some(stored) if definitions.contains(stored) => None,
            Some(_) => Some((name, "has changed, and stored resources have the former keys")),
            None => Some((name, "is new, and stored resources have no keys for it")),
        };
        let lacking = indexes(kind).into_iter().filter_map(lacks);
        lacking.map(|(item, rule)| Invalid { kind: kind.name, item, rule: rule.to_owned() }).collect()
    }
}

/// The declaration of a table about a path of stored bodies.
enum Found {
    Field(&'static Field),
    Removed,
    Nothing,
}

/// Finds the field that has the value at a path of stored bodies, by the present and former names on the way.
fn find(kind: &Kind, path: &str) -> Found {
    let (mut fields, mut current, mut found) = (kind.fields, String::new(), Found::Nothing);
    for name in path.split('.') {
        let removed = join(&current, name);
        if kind.removed.contains(&removed.as_str()) {
            return Found::Removed;
        }
        let by_name = fields.iter().find(|field| field.name == name);
        let Some(field) =
            by_name.or_else(|| fields.iter().find(|field| field.former_names().any(|former| former == name)))
        else {
            return Found::Nothing;
        };
        current = join(&current, field.name);
        fields = message(&field.ty).unwrap_or_default();
        found = Found::Field(field);
    }
    found
}

/// Returns the paths under which stored bodies may have the value at a path of the table.
fn former_paths(fields: &'static [Field], path: &str) -> Vec<String> {
    let (mut fields, mut paths) = (fields, vec![String::new()]);
    for name in path.split('.') {
        let Some(field) = fields.iter().find(|field| field.name == name) else { return Vec::new() };
        let names: Vec<_> = std::iter::once(field.name).chain(field.former_names()).collect();
        paths = paths.iter().flat_map(|path| names.iter().map(move |name| join(path, name))).collect();
        fields = message(&field.ty).unwrap_or_default();
    }
    paths
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Returns the fields of the messages that values of a type are or contain.
fn message(mut ty: &Type) -> Option<&'static [Field]> {
    while let Type::List(element) | Type::Map(element) = ty {
        ty = element;
    }
    if let Type::Message(fields) = ty { Some(fields) } else { None }
}

fn add_fields(fields: &'static [Field], prefix: &str, all: &mut BTreeMap<String, StoredField>) {
    for field in fields.iter().filter(|field| !field.once) {
        let path = join(prefix, field.name);
        if let Some(inner) = message(&field.ty) {
            add_fields(inner, &path, all);
        }
        all.insert(path, StoredField { ty: name_of(field), always: is_always_stored(field) });
    }
}

/// Returns whether every body that is written with the table has the field, even without its default.
fn is_always_stored(field: &Field) -> bool {
    let is_number = matches!(field.ty, Type::Bool | Type::Int32 | Type::Int64);
    // The server sets these in each write.
    let is_own = matches!(field.name, "uid" | "createTime" | "updateTime");
    field.access != Access::InputOnly && field.oneof.is_none() && (field.required || is_number) && !is_own
}

/// Returns the form of a field in stored bodies. A body does not have an input-only field.
fn name_of(field: &Field) -> String {
    let hidden = if field.access == Access::InputOnly { ", input-only" } else { "" };
    format!("{}{hidden}", name_of_type(&field.ty))
}

fn name_of_type(ty: &Type) -> String {
    match ty {
        Type::String | Type::FieldMask => "text".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Bytes => "bytes".to_owned(),
        Type::Timestamp => "timestamp".to_owned(),
        Type::Duration => "duration".to_owned(),
        Type::Enum(names) => format!("enum of {}", names.join(" ")),
        Type::Capability => "capability".to_owned(),
        Type::Message(_) => "message".to_owned(),
        Type::List(element) => format!("list of {}", name_of_type(element)),
        Type::Map(element) => format!("map of {}", name_of_type(element)),
    }
}

/// Returns whether stored values of a type are values of another one: of the same, or of an enum with further names.
fn is_compatible(stored: &str, ty: &str) -> bool {
    let (Some((stored, old)), Some((ty, new))) = (stored.split_once("enum of "), ty.split_once("enum of ")) else {
        return stored == ty;
    };
    let new: Vec<_> = new.split(' ').collect();
    stored == ty && old.split(' ').all(|name| new.contains(&name))
}

/// Returns the keys and rules of a table, each with its definition, followed by those of other names that its fields had.
fn indexes(kind: &Kind) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    let of_names = |name: &'static str, what: &dyn Fn(&str) -> String| {
        let former = kind.field(name).into_iter().flat_map(Field::former_names);
        std::iter::once(name).chain(former).map(what).collect::<Vec<_>>()
    };
    for field in kind.fields.iter().filter(|field| field.name != "uid") {
        let default = field.default.map(|default| format!(", by default {}", default())).unwrap_or_default();
        let definition = match field.sort_key {
            Some(_) => "computed".to_owned(),
            None => format!("{}{default}", sort_type(&field.ty)),
        };
        if !field.sort.is_empty() {
            all.insert(format!("order by {}", field.name), vec![definition.clone()]);
        }
        if field.searched {
            all.insert(format!("{SEARCH}{}", field.name), vec![definition.clone()]);
        }
        let params = kind.method(Verb::List).map_or(&[][..], |list| list.params);
        let filters = |by: By| matches!(by, By::Value(key) | By::Above(key) if key == field.name);
        if field.reference.is_some() || params.iter().any(|param| filters(param.by)) {
            all.insert(format!("filter by {}", field.name), vec![format!("{}{default}", sort_type(&field.ty))]);
        }
    }
    for derived in kind.keys {
        let definitions = derived.field().map(|field| of_names(field, &|name| format!("the text of {name}")));
        all.insert(format!("filter by {}", derived.name), definitions.unwrap_or_else(|| vec!["computed".to_owned()]));
    }
    for unique in kind.unique {
        let definitions = unique.field().map(|field| of_names(field, &|name| format!("{name} in the parent")));
        all.insert(format!("{UNIQUE}{}", unique.space), definitions.unwrap_or_else(|| vec!["computed".to_owned()]));
    }
    all
}

/// Returns the form of a key. Further names of an enum do not change the keys of the others.
fn sort_type(ty: &Type) -> String {
    match ty {
        Type::Enum(_) => "enum".to_owned(),
        Type::List(element) => format!("list of {}", sort_type(element)),
        ty => name_of_type(ty),
    }
}
