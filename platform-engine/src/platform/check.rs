//! Checks of the tables of kinds when a platform is built, so that a mistake in a table is an error at the start and
//! not a wrong answer later.

mod history;

use std::fmt;

use heck::{ToLowerCamelCase, ToUpperCamelCase};
use serde_json::{Map, Value};

use crate::{
    aip::order_by,
    error::Violations,
    fields::{self, named, pattern},
    kind::{
        Access, Action, Authorization, By, Field, Kind, Method, OnDelete, Parent, Reference, Registered, Type, Verb,
    },
    request::LIST_FIELDS,
};

/// A rule that the table of a kind breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// The name of the kind.
    pub kind: &'static str,
    /// The part of the table, such as `fields.title` or `ACTIONS.CloseTicket`.
    pub item: String,
    /// The rule that it breaks, as a phrase, such as "must be listed once".
    pub rule: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind, self.item, self.rule)
    }
}

/// Returns the rules that these kinds break together, in the order of the kinds.
pub(super) fn check(kinds: &[Registered]) -> Vec<Invalid> {
    let mut found = Vec::new();
    for (at, registered) in kinds.iter().enumerate() {
        let mut checker = Checker { kinds, kind: registered.kind, found: &mut found };
        if kinds.iter().take(at).any(|other| other.kind.name == registered.kind.name) {
            checker.add("name", "must differ from the names of the other kinds");
            continue;
        }
        checker.kind(registered);
    }
    found
}

struct Checker<'a> {
    kinds: &'a [Registered],
    kind: &'static Kind,
    found: &'a mut Vec<Invalid>,
}

impl Checker<'_> {
    fn add(&mut self, item: impl Into<String>, rule: impl Into<String>) {
        self.found.push(Invalid { kind: self.kind.name, item: item.into(), rule: rule.into() });
    }

    fn require(&mut self, holds: bool, item: impl Into<String>, rule: impl Into<String>) {
        if !holds {
            self.add(item, rule);
        }
    }

    fn kind(&mut self, registered: &Registered) {
        let kind = self.kind;
        self.require(is_camel_case(kind.plural, false), "plural", "must be in camelCase");
        self.require(is_camel_case(kind.name, true), "name", "must be in PascalCase");
        self.require(!kind.domain.name.is_empty(), "domain", "must have a name");
        self.require(!kind.domain.versions.is_empty(), "domain", "must have a version");
        if let Some(parent) = kind.parent.kind() {
            let is_known = self.kinds.iter().any(|other| other.kind.name == parent);
            self.require(is_known, "parent", format!("must be a kind of the platform, which has no {parent}"));
        }
        self.fields("fields", kind.fields);
        for column in kind.columns.iter().filter(|column| column.compute.is_none()) {
            let rule = "must be the path of a field, or computed";
            self.require(is_path(kind.fields, column.name), format!("columns.{}", column.name), rule);
        }
        self.removed();
        kind.fields.iter().for_each(|field| self.reference(field));
        for (at, method) in kind.methods.iter().enumerate() {
            let item = format!("methods.{}", method.verb.name());
            let is_first = kind.methods.iter().take(at).all(|other| other.verb != method.verb);
            self.require(is_first, &item, "must be listed once");
            self.method(&item, method);
        }
        for derived in kind.keys {
            if let Some(field) = derived.field() {
                self.text(format!("keys.{}", derived.name), "has the text of", field);
            }
        }
        for unique in kind.unique {
            if let Some(field) = unique.field() {
                self.text(format!("unique.{}", unique.space), "makes unique", field);
            }
            for key in unique.by {
                let rule = format!("names the key {key}, which must be a field with a list parameter or a derived key");
                self.require(self.is_filter_key(key), format!("unique.{}", unique.space), rule);
            }
        }
        for (at, action) in registered.actions.iter().enumerate() {
            let item = format!("ACTIONS.{}", action.name);
            let is_first = registered.actions.iter().take(at).all(|other| other.name != action.name);
            self.require(is_first, &item, "must be listed once");
            self.action(&item, action);
        }
        self.example(registered);
    }

    /// Checks that a part of the table names a field that is stored as a text, as enums are.
    fn text(&mut self, item: String, what: &str, name: &str) {
        let is_text =
            |ty: &Type| !matches!(ty, Type::Bool | Type::Int32 | Type::Message(_) | Type::List(_) | Type::Map(_));
        let is_stored = |field: &Field| !field.once && is_text(&field.ty);
        if self.kind.field(name).is_some_and(is_stored) {
            return;
        }
        let texts: Vec<_> = self.kind.fields.iter().filter(|field| is_stored(field)).map(|field| field.name).collect();
        self.add(item, format!("{what} the field {name}, which must be one of {}", texts.join(", ")));
    }

    /// Checks a list of fields, at every depth.
    fn fields(&mut self, item: &str, fields: &'static [Field]) {
        self.former(item, fields);
        for (at, field) in fields.iter().enumerate() {
            let item = format!("{item}.{}", field.name);
            let is_first = fields.iter().take(at).all(|other| other.name != field.name);
            self.require(is_first, &item, "must be listed once");
            // Another version of the API may name its fields otherwise.
            let is_named_well = field.of.is_some() || is_camel_case(field.name, false);
            self.require(is_named_well, &item, "must be named in camelCase");
            let is_ordered = !matches!(field.ty, Type::Message(_) | Type::List(_) | Type::Map(_));
            let has_order = field.sort.is_empty() || is_ordered || field.sort_key.is_some();
            self.require(has_order, &item, "cannot be sorted by: a message, list or map has no order");
            let has_text = matches!(field.ty, Type::String) && !field.sort.is_empty() && field.sort_key.is_none();
            self.require(
                !field.searched || has_text,
                &item,
                "cannot be searched: it is no text with an order of its own",
            );
            let mut ty = &field.ty;
            while let Type::List(element) | Type::Map(element) = ty {
                ty = element;
            }
            let is_filtered = matches!(field.ty, Type::String) && field.is_shown();
            self.require(!field.findable || is_filtered, &item, "cannot be found: it is no text that lists show");
            if !field.pattern.is_empty() {
                let is_text = matches!(ty, Type::String);
                self.require(is_text, &item, "has a pattern, which only a text, or a list or map of texts, can have");
                if let Err(rule) = pattern::check(field.pattern) {
                    self.add(&item, format!("has the pattern {}, which {rule}", field.pattern));
                }
            }
            match ty {
                Type::Message(inner) => self.fields(&item, inner),
                Type::Enum(names) => self.require(!names.is_empty(), &item, "must have a name of the enum"),
                _ => {}
            }
        }
    }

    /// Checks the reference of a field.
    fn reference(&mut self, field: &'static Field) {
        let item = format!("fields.{}", field.name);
        let mut ty = &field.ty;
        while let Type::List(element) | Type::Map(element) = ty {
            ty = element;
        }
        if let Type::Message(inner) = ty {
            let has_none = inner.iter().all(|inner| inner.reference.is_none());
            self.require(has_none, &item, "must have no reference within it: references are top-level fields");
        }
        let Some(Reference { kind, on_delete }) = field.reference else { return };
        let name = kind.name;
        let is_known = self.kinds.iter().any(|other| other.kind.name == name);
        self.require(is_known, &item, format!("references {name}, which must be a kind of the platform"));
        let is_created = !matches!(kind.parent, Parent::Singleton(..));
        self.require(is_created, &item, format!("references {name}, which must not be a singleton"));
        self.require(matches!(field.ty, Type::String), &item, "must be a text, to reference a resource");
        let is_stored = !field.once && field.access != Access::InputOnly;
        self.require(is_stored, &item, "must be stored, to reference a resource");
        let is_own_key = !self.is_derived(field.name);
        self.require(is_own_key, &item, "must not have the name of a derived key, to reference a resource");
        let can_clear = !field.required || on_delete != OnDelete::Clear;
        self.require(can_clear, &item, "is required and cannot be cleared, so that its reference must not be `Clear`");
    }

    fn method(&mut self, item: &str, method: &Method) {
        let kind = self.kind;
        if let Some(field) = method.upsert {
            let rule = format!("upserts by {field}, which must be a field with a list parameter or a derived key");
            self.require(kind.field(field).is_some() && self.is_filter_key(field), item, rule);
        }
        let is_open = method.for_all_callers || method.open;
        self.require(
            is_open || !method.capabilities.is_empty(),
            item,
            "requires no capability, so that every caller may call it: name one, or declare it `for_all_callers`",
        );
        self.require(
            !method.for_all_callers || method.capabilities.is_empty(),
            item,
            "is `for_all_callers`, and must not require capabilities too",
        );
        if method.verb != Verb::List {
            return;
        }
        if let Err(rule) = order_by::parse(method.order, kind.fields) {
            self.add(item, format!("orders by {}, which {rule}", method.order));
        }
        if let Some((_, of)) = method.of {
            let is_known = self.kinds.iter().any(|other| other.kind.name == of.name);
            self.require(is_known, item, format!("lists by {}, which must be a kind of the platform", of.name));
        }
        for (at, param) in method.params.iter().enumerate() {
            let name = param.field.name;
            let item = format!("{item}.params.{name}");
            let is_first = method.params.iter().take(at).all(|other| other.field.name != name);
            self.require(is_first && named(LIST_FIELDS, name).is_none(), &item, "must be listed once");
            match param.by {
                By::Value(key) | By::Above(key) => {
                    let rule = format!("filters by {key}, which must be a field or a derived key");
                    self.require(kind.field(key).is_some() || self.is_derived(key), &item, rule);
                }
                By::Narrow => self.require(method.narrow.is_some(), &item, "requires that the method has a `narrow`"),
            }
        }
    }

    fn is_derived(&self, key: &str) -> bool {
        self.kind.keys.iter().any(|derived| derived.name == key)
    }

    /// Returns whether records of the kind have a filter key of this name.
    fn is_filter_key(&self, key: &str) -> bool {
        let params = self.kind.method(Verb::List).map_or(&[][..], |list| list.params);
        let filters = |by: By| matches!(by, By::Value(name) | By::Above(name) if name == key);
        let is_key = |field: &Field| field.reference.is_some() || params.iter().any(|param| filters(param.by));
        self.is_derived(key) || self.kind.field(key).is_some_and(is_key)
    }

    fn action(&mut self, item: &str, action: &Action) {
        self.fields(&format!("{item}.request"), action.request);
        self.fields(&format!("{item}.response"), action.response);
        if let Authorization::At(_, []) | Authorization::Anywhere([]) | Authorization::FiltersResult([]) =
            action.authorization
        {
            let rule = "requires no capability, so that every caller may call it: name one, or declare it \
                        `Authorization::Authenticated`";
            self.add(item, rule);
        }
        if let Authorization::As(kind, verb, _) = action.authorization {
            let known = self.kinds.iter().find(|other| other.kind.name == kind.name);
            let rule =
                format!("is authorized as {} of {}, which must be a method of the platform", verb.name(), kind.name);
            self.require(known.is_some_and(|known| known.kind.method(verb).is_some()), item, rule);
        }
        if let Authorization::At(field, _) | Authorization::As(_, _, field) = action.authorization {
            let rule = format!("is authorized at {field}, which must be a field of its request");
            self.require(named(action.request, field).is_some(), item, rule);
        }
        let variables = action.path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        for (variable, _) in variables {
            let name = variable.split_once('=').map_or(variable, |(name, _)| name);
            let name = name.split('.').next().unwrap_or(name);
            let rule = format!("has {name} in its path, which must be a field of its request");
            self.require(named(action.request, name).is_some(), item, rule);
        }
    }

    /// Checks that the struct has the fields of the table, in the forms of their types, and that the example is valid.
    fn example(&mut self, registered: &Registered) {
        let example = match (registered.serde_form)() {
            Ok(Value::Object(example)) => example,
            Ok(_) => return self.add("example", "must be a JSON object in its serde form"),
            Err(error) => return self.add("example", format!("must have a serde form: {error}")),
        };
        for field in self.kind.fields {
            let item = format!("fields.{}", field.name);
            let is_set = |other: &Field| other.oneof == field.oneof && example.contains_key(other.name);
            match example.get(field.name) {
                // Another field of the oneof is set.
                None if field.oneof.is_some() && self.kind.fields.iter().any(is_set) => {}
                None => self.add(item, "must be a field of the struct, which has none of this name in its serde form"),
                Some(value) if !fields::has_form_of(&field.ty, value) => {
                    self.add(item, format!("must have the JSON form of its type {:?}, not {value}", field.ty));
                }
                Some(_) => {}
            }
        }
        let mut surplus = Vec::new();
        without_row(self.kind.fields, &example, "", &mut surplus);
        for path in surplus {
            let rule = "is a field of the struct, and must have a row in the table, or the attribute `#[serde(skip)]`";
            self.add(format!("fields.{path}"), rule);
        }
        let mut violations = Violations::default();
        if fields::validate(self.kind.fields, &Value::Object(example), &mut violations).is_ok() {
            for violation in violations.into_vec() {
                self.add(format!("example.{}", violation.field), violation.description);
            }
        }
    }
}

/// Collects the paths of an example that no row of the table describes.
fn without_row(fields: &[Field], example: &Map<String, Value>, prefix: &str, found: &mut Vec<String>) {
    for (name, value) in example {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            found.push(path);
            continue;
        };
        let (mut ty, mut values) = (&field.ty, vec![value]);
        while let Type::List(element) | Type::Map(element) = ty {
            ty = element;
            values = values.into_iter().flat_map(elements).collect();
        }
        if let Type::Message(inner) = ty {
            // One element shows the fields of all, which have one type.
            let first = values.into_iter().find_map(Value::as_object);
            first.into_iter().for_each(|object| without_row(inner, object, &path, found));
        }
    }
}

/// Returns the elements of a list or the values of a map.
fn elements(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().collect(),
        Value::Object(values) => values.values().collect(),
        _ => Vec::new(),
    }
}

/// Accepts only names that do not change when they are converted to snake_case and back: `htmlUrl` and not `htmlURL`.
/// Returns whether a path with dots leads to a field.
fn is_path(fields: &[Field], path: &str) -> bool {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (named(fields, name).map(|field| field.ty), rest) {
        (Some(Type::Message(inner)), Some(rest)) => is_path(inner, rest),
        (found, rest) => found.is_some() && rest.is_none(),
    }
}

fn is_camel_case(name: &str, is_upper: bool) -> bool {
    let converted = if is_upper { name.to_upper_camel_case() } else { name.to_lower_camel_case() };
    name == converted && name.is_ascii() && name.starts_with(|first: char| first.is_ascii_alphabetic())
}
