//! Requests of lists, parsed from a query string or from JSON into one canonical form.

use std::{collections::BTreeSet, fmt, marker::PhantomData, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    access::Capabilities,
    aip::{
        filter::{self, Filter as Condition},
        order_by,
        page_token::Binding,
        read_mask::{self, ReadMask},
    },
    error::{Result, Violations},
    fields::{self, is_named},
    kind::{self, By, Field, Kind, Method, Param, Resource, Type, Verb},
    scope::{Parent, Scopes, UidpFilter},
    store::{Filter, KeyName, KeyValue, Order, OrderBy},
    uid::Uid,
};

/// The number of resources on a page when the request does not set it.
pub const DEFAULT_PAGE_SIZE: usize = 50;

/// The maximum number of resources on a page. A larger page size in a request is reduced to it.
pub const MAX_PAGE_SIZE: usize = 200;

/// The maximum length of a page token in bytes. A token contains the sort key and the uid of a resource.
pub const MAX_PAGE_TOKEN: usize = 8 << 10;

const UID: &str = "^[0-9a-f]{40}(/[0-9a-f]{16})*$";
const UID_OR_ROOT: &str = "^(/|[0-9a-f]{40}(/[0-9a-f]{16})*)$";

/// The parameter for the size of a page.
pub const PAGE_SIZE: Field = Field::new("pageSize", Type::Int32)
    .about("The number of resources on a page: 1 to 200; 0 means 50, and larger values mean 200.");
/// The parameter for the token of a page.
pub const PAGE_TOKEN: Field = Field::string("pageToken")
    .about("The `nextPageToken` of the page before.")
    .documented_pattern("^[A-Za-z0-9_-]*$")
    .max_len(MAX_PAGE_TOKEN);
/// The parameter for the order of a list.
pub const ORDER_BY: Field =
    Field::string("orderBy").about("A field to order by, optionally followed by ` asc` or ` desc`.");
/// The parameter for the filter of a list (AIP-160). gRPC has it in the metadata, because the messages of the contract
/// have no such field.
pub const FILTER: Field = Field::string("filter")
    .about(
        "A filter over the fields of the resources (AIP-160), such as `name:*ngi* AND createTime > 2026-01-31T00:00:00Z`.",
    )
    .multiline()
    .max_len(filter::MAX_LEN)
    .rest_only();
/// The parameter for the fields that a list shows (AIP-157). gRPC has it in the metadata, as [`FILTER`].
pub const READ_MASK: Field = Field::string("readMask")
    .about(
        "The fields to show, separated by commas, with dots for nested fields; the others are then absent, even \
         required ones. Defaults to all fields.",
    )
    .max_len(read_mask::MAX_LEN)
    .rest_only();
/// The parameter for the number of resources that a list skips.
pub const SKIP: Field =
    Field::new("skip", Type::Int32).about("The number of resources to pass over, counted from the page token.");

/// The parameters that every list has.
pub const LIST_FIELDS: &[Field] = &[
    Field::message(
        "uidp",
        &[
            Field::string("ancestorsOf")
                .about("Only resources above this one; it is not included.")
                .documented_pattern(UID),
            Field::string("descendantsOf").about("Only resources at or below this group.").documented_pattern(UID),
            Field::string("childrenOf")
                .about("Only resources directly below this one; `/` means in no group.")
                .documented_pattern(UID_OR_ROOT),
            Field::bool("inRoot").about("Whether to list only resources in no group."),
            Field::strings("ids")
                .about("Only these resources. May be repeated.")
                .documented_pattern(UID)
                .max_items(1000),
        ],
    )
    .about("Hierarchy filters; several combine by AND."),
    FILTER,
    READ_MASK,
    PAGE_SIZE,
    PAGE_TOKEN,
    ORDER_BY,
    SKIP,
];

/// Returns all parameters of a kind's list: those that every list has, then its own. Kinds without a parent have no
/// hierarchy filters.
pub fn list_fields(kind: &'static Kind) -> impl Iterator<Item = &'static Field> {
    let own = kind.method(Verb::List).map_or(&[][..], |list| list.params).iter().map(|param| &param.field);
    let flat = matches!(kind.parent, kind::Parent::None);
    LIST_FIELDS.iter().filter(move |field| !(flat && field.name == "uidp")).chain(own)
}

/// A validated request for a page of a list.
#[derive(Debug, Clone)]
pub struct ListRequest {
    pub(crate) uidp: UidpFilter,
    pub(crate) filters: Vec<Filter>,
    /// The parameter `filter`.
    pub(crate) condition: Option<Arc<Condition>>,
    pub(crate) read_mask: Option<Arc<ReadMask>>,
    pub(crate) order: Order,
    pub(crate) page_size: usize,
    pub(crate) page_token: String,
    pub(crate) skip: u64,
    /// The uid of the resource that the list belongs to ([`Method::of`]).
    pub(crate) of: Option<Uid>,
    /// The kind, the order and the filters.
    pub(crate) binding: Binding,
}

impl ListRequest {
    /// Parses the decoded pairs of a query string, with names in camelCase or snake_case (`docs/api.md`, Lists).
    ///
    /// # Errors
    /// INVALID_ARGUMENT with every parameter that is unknown, duplicate or not of its type.
    pub fn from_query(kind: &'static Kind, pairs: &[(String, String)]) -> Result<Self> {
        let mut violations = Violations::default();
        let request = read_pairs(&|key| lookup(kind, key), pairs, &mut violations);
        Self::read(kind, request, violations)
    }

    /// Parses a request in proto3 JSON.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with every field that is unknown, duplicate or not of its type.
    pub fn from_json(kind: &'static Kind, request: Map<String, Value>) -> Result<Self> {
        Self::read(kind, request, Violations::default())
    }

    /// Validates a request, and adds to the violations that were found before.
    fn read(kind: &'static Kind, request: Map<String, Value>, mut violations: Violations) -> Result<Self> {
        let mut values = fields::read_with(&|key| lookup(kind, key), &Capabilities::default(), request, None);
        for violation in std::mem::take(&mut values.violations).into_vec() {
            violations.add(as_documented(&violation.field), violation.description);
        }
        let text = |name: &str| values.value(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| values.value(name).and_then(Value::as_i64).unwrap_or_default();

        let page_size = match usize::try_from(number("pageSize")) {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) => size.min(MAX_PAGE_SIZE),
            Err(_) => {
                violations.add("page_size", "must not be negative");
                0
            }
        };
        let skip = u64::try_from(number("skip")).unwrap_or_else(|_| {
            violations.add("skip", "must not be negative");
            0
        });
        let method = kind.method(Verb::List);
        let default_order = method.map_or("uid", |list| list.order);
        let order_text = Some(text("orderBy")).filter(|order| !order.trim().is_empty()).unwrap_or(default_order);
        let order = order_by::parse(order_text, kind.fields);
        let uidp = uidp_filter(values.value("uidp"), &mut violations);
        let order = order.unwrap_or_else(|rule| {
            violations.add("order_by", rule);
            Order { by: OrderBy::Uid, descending: false }
        });
        let condition = condition(kind, text(FILTER.name));
        let (condition, written) = condition.unwrap_or_else(|invalid| {
            violations.add(FILTER.name, invalid.to_string());
            Default::default()
        });
        let read_mask = ReadMask::parse(text(READ_MASK.name), kind.fields).unwrap_or_else(|invalid| {
            violations.append(invalid);
            None
        });
        // A required parameter with an invalid value is missing here too, but has a violation already.
        if violations.is_empty() {
            let own = method.map_or(&[][..], |list| list.params).iter().map(|param| &param.field);
            own.filter(|field| field.required && values.value(field.name).is_none())
                .for_each(|field| violations.add(field.name, "is required"));
        }
        violations.none_or(())?;

        let values = values.checked()?;
        let text = |name: &str| values.get(name).and_then(Value::as_str).unwrap_or_default();
        let page_token = text("pageToken").to_owned();
        let filters = method.map(|list| filters(list, &values)).unwrap_or_default();
        // Page tokens are bound to the parsed request and not to its text, so that a token is valid for the same list
        // in another spelling. The page size, `skip` and the read mask are not part of it and may differ from page to page.
        let mut binding = bind_filters(bind_list(kind, order, &uidp), &filters);
        if condition.is_some() {
            binding = binding.with(FILTER.name, [written.as_bytes()]);
        }
        let of = method.and_then(|list| list.of).map(|(param, _)| text(param)).filter(|uid| !uid.is_empty());
        let (of, read_mask) = (of.map(Uid::opaque), read_mask.map(Arc::new));
        Ok(Self { uidp, filters, condition, read_mask, order, page_size, page_token, skip, of, binding })
    }

    /// Adds filters. Page tokens are bound to them too.
    pub(crate) fn with_filters(mut self, filters: Vec<Filter>) -> Self {
        self.binding = bind_filters(self.binding, &filters);
        self.filters.extend(filters);
        self
    }
}

/// Returns the filter that a text means, and its canonical form.
fn condition(
    kind: &'static Kind,
    text: &str,
) -> std::result::Result<(Option<Arc<Condition>>, String), filter::Invalid> {
    let Some(expression) = filter::parse(text)? else { return Ok(Default::default()) };
    let compiled = Condition::compile(&expression, kind)?;
    Ok((Some(Arc::new(compiled)), expression.to_string()))
}

/// Returns the binding of a list of all resources that pass the hierarchy filter.
fn bind_list(kind: &Kind, order: Order, uidp: &UidpFilter) -> Binding {
    let (by, key) = match order.by {
        OrderBy::Uid => ("uid", ""),
        OrderBy::Sequence => ("sequence", ""),
        OrderBy::Key(name) => ("key", name),
    };
    let direction = if order.descending { "desc" } else { "asc" };
    let mut binding =
        Binding::default().with("kind", [kind.name.as_bytes()]).with("order", [by, key, direction].map(str::as_bytes));
    let UidpFilter { ancestors_of, descendants_of, children_of, in_root, ids } = uidp;
    if let Some(uid) = ancestors_of {
        binding = binding.with("ancestorsOf", [uid.as_bytes()]);
    }
    if let Some(uid) = descendants_of {
        binding = binding.with("descendantsOf", [uid.as_bytes()]);
    }
    match children_of {
        Some(Parent::Root) => binding = binding.with("childrenOf", [&b"/"[..]]),
        Some(Parent::Uid(uid)) => binding = binding.with("childrenOf", [uid.as_bytes()]),
        None => {}
    }
    if *in_root {
        binding = binding.with("inRoot", []);
    }
    if !ids.is_empty() {
        binding = binding.with("ids", ids.iter().map(|uid| uid.as_bytes()));
    }
    binding
}

fn bind_filters(binding: Binding, filters: &[Filter]) -> Binding {
    filters.iter().fold(binding, |binding, filter| {
        let (name, values) = match filter {
            // Only a condition becomes one, which is bound as it is written.
            Filter::Like { .. } => return binding,
            Filter::AnyOf { values, .. } => ("anyOf", values.as_slice()),
            Filter::NoneOf { values, .. } => ("noneOf", values.as_slice()),
            Filter::Above { value, .. } => ("above", std::slice::from_ref(value)),
            Filter::Contains { bytes, .. } => ("contains", std::slice::from_ref(bytes)),
        };
        let keys = filter.keys().iter().map(|key| key.as_bytes());
        binding.with("keys", keys).with(name, values.iter().map(KeyValue::as_bytes))
    })
}

/// Builds a [`ListRequest`] for a kind, for callers in process.
#[derive(Debug)]
pub struct ListBuilder<R> {
    pairs: Vec<(String, String)>,
    kind: PhantomData<fn() -> R>,
}

impl ListRequest {
    /// Begins a request for all resources of a kind that the caller may see, in the kind's order.
    pub fn of<R: Resource>() -> ListBuilder<R> {
        ListBuilder { pairs: Vec::new(), kind: PhantomData }
    }
}

impl<R: Resource> ListBuilder<R> {
    /// Sets a parameter of the list, in camelCase or snake_case, such as `state`. A parameter that is a list is set
    /// once for each element.
    #[must_use]
    pub fn filter(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.pairs.push((name.to_owned(), value.to_string()));
        self
    }

    /// Restricts the list to the descendants of a resource, and to the resource itself.
    #[must_use]
    pub fn descendants_of(self, uid: &str) -> Self {
        self.filter("uidp.descendantsOf", uid)
    }

    /// Restricts the list to the children of a resource.
    #[must_use]
    pub fn children_of(self, uid: &str) -> Self {
        self.filter("uidp.childrenOf", uid)
    }

    /// Restricts the list to the resources that pass a filter (`docs/api.md`, Filters), such as `name:*ngi*`.
    #[must_use]
    pub fn matching(self, filter: &str) -> Self {
        self.filter(FILTER.name, filter)
    }

    /// Sets the order: the name of a sortable field, and optionally ` desc`.
    #[must_use]
    pub fn order_by(self, order: &str) -> Self {
        self.filter(ORDER_BY.name, order)
    }

    /// Sets the number of resources on a page: 0 means [`DEFAULT_PAGE_SIZE`], and at most [`MAX_PAGE_SIZE`] are
    /// returned.
    #[must_use]
    pub fn page_size(self, size: usize) -> Self {
        self.filter(PAGE_SIZE.name, size)
    }

    /// Sets the number of resources to skip, counted from the page token.
    #[must_use]
    pub fn skip(self, resources: usize) -> Self {
        self.filter(SKIP.name, resources)
    }

    /// Continues after the page that returned this token.
    #[must_use]
    pub fn after(self, page_token: &str) -> Self {
        self.filter(PAGE_TOKEN.name, page_token)
    }

    /// Returns the request.
    ///
    /// # Errors
    /// As [`ListRequest::from_query`].
    pub fn build(self) -> Result<ListRequest> {
        ListRequest::from_query(R::KIND, &self.pairs)
    }
}

/// Returns a parameter of the kind's list by its name in camelCase or snake_case.
fn lookup(kind: &'static Kind, key: &str) -> Option<&'static Field> {
    list_fields(kind).find(|field| is_named(key, field.name))
}

/// Returns the documented name of a parameter, for violations: snake_case for parameters that every list has.
fn as_documented(field: &str) -> String {
    let common = |prefix: &str| field.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if !LIST_FIELDS.iter().any(|known| common(known.name)) {
        return field.to_owned();
    }
    // The path can have indexes and unknown names, which a conversion of names would change.
    field.chars().fold(String::new(), |mut snake, c| {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        snake
    })
}

/// Returns the scopes of the hierarchy filter in the request of an action: the value of its field `uidp`, which has the
/// fields of the first of [`LIST_FIELDS`].
///
/// # Errors
/// INVALID_ARGUMENT with every malformed uid.
pub fn uidp_scopes(uidp: Option<&Value>) -> Result<Scopes> {
    let mut violations = Violations::default();
    let filter = uidp_filter(uidp, &mut violations);
    violations.none_or(filter.scopes())
}

fn uidp_filter(value: Option<&Value>, violations: &mut Violations) -> UidpFilter {
    let text = |name: &str| value.and_then(|uidp| uidp.get(name)).and_then(Value::as_str);
    let mut uid = |name: &str, text: &str| {
        Uid::parse(text)
            .inspect_err(|rule| violations.add(as_documented(&format!("uidp.{name}")), rule.to_string()))
            .ok()
    };
    let ids = value.and_then(|uidp| uidp.get("ids")).and_then(Value::as_array).into_iter().flatten();
    let ids: BTreeSet<_> = ids.filter_map(Value::as_str).filter_map(|text| uid("ids", text)).collect();
    UidpFilter {
        ancestors_of: text("ancestorsOf").and_then(|text| uid("ancestorsOf", text)),
        descendants_of: text("descendantsOf").and_then(|text| uid("descendantsOf", text)),
        children_of: match text("childrenOf") {
            Some("/") => Some(Parent::Root),
            text => text.and_then(|text| uid("childrenOf", text)).map(Parent::Uid),
        },
        in_root: value.and_then(|uidp| uidp.get("inRoot")).and_then(Value::as_bool).unwrap_or_default(),
        ids: ids.into_iter().collect(),
    }
}

fn filters(list: &Method, values: &Map<String, Value>) -> Vec<Filter> {
    let own = list.params.iter().filter_map(|param| filter(param, values.get(param.field.name)?));
    let narrowed = list.narrow.map(|narrow| narrow(values)).unwrap_or_default();
    own.chain(narrowed).collect()
}

fn filter(param: &Param, value: &Value) -> Option<Filter> {
    let any_of = |key: KeyName, values: Vec<KeyValue>| Filter::AnyOf { key, values };
    match (param.by, &param.field.ty, value) {
        (By::Value(key), Type::List(element), Value::Array(values)) => {
            Some(any_of(key, values.iter().map(|value| element.key(Some(value))).collect()))
        }
        (By::Value(key), ty, value) => Some(any_of(key, vec![ty.key(Some(value))])),
        (By::Above(key), ty, value) => Some(Filter::Above { key, value: ty.key(Some(value)) }),
        (By::Narrow, ..) => None,
    }
}

/// Parses the decoded pairs of a query string into the request of an action with these fields. Names are in camelCase
/// or snake_case and dotted into messages; a list has its key once for each element.
///
/// # Errors
/// INVALID_ARGUMENT with every key that is unknown, and with every duplicate key of a field that is not a list.
pub fn from_query(fields: &'static [Field], pairs: &[(String, String)]) -> Result<Map<String, Value>> {
    let mut violations = Violations::default();
    let request = read_pairs(&|key| fields::named(fields, key), pairs, &mut violations);
    violations.none_or(request)
}

/// Parses pairs by the fields that `lookup` finds.
fn read_pairs(
    lookup: &dyn Fn(&str) -> Option<&'static Field>,
    pairs: &[(String, String)],
    violations: &mut Violations,
) -> Map<String, Value> {
    let mut object = Map::new();
    for (key, value) in pairs {
        let mut names = key.split('.');
        let mut field = names.next().and_then(lookup);
        let mut path: Vec<&'static str> = field.iter().map(|field| field.name).collect();
        for name in names {
            field = match field.map(|field| &field.ty) {
                Some(Type::Message(inner)) => fields::named(inner, name),
                _ => None,
            };
            path.extend(field.iter().map(|field| field.name));
        }
        match field {
            Some(field) if !matches!(field.ty, Type::Message(_) | Type::Map(_)) => {
                if !insert(&mut object, &path, field, value) {
                    violations.add(as_documented(&path.join(".")), "is specified more than once");
                }
            }
            _ => violations.add(key, "unknown parameter"),
        }
    }
    object
}

/// Inserts a value at a path, and returns false if the path already has a value.
fn insert(object: &mut Map<String, Value>, path: &[&'static str], field: &Field, text: &str) -> bool {
    match path {
        [] => false,
        [name] => match (&field.ty, object.get_mut(*name)) {
            (Type::List(element), None) => {
                object.insert((*name).to_owned(), vec![element_from_text(field, element, text)].into());
                true
            }
            (Type::List(element), Some(Value::Array(values))) => {
                values.push(element_from_text(field, element, text));
                true
            }
            (_, Some(_)) => false,
            (ty, None) => {
                object.insert((*name).to_owned(), from_text(ty, text));
                true
            }
        },
        [name, rest @ ..] => match object.entry(*name).or_insert_with(|| Value::Object(Map::new())) {
            Value::Object(inner) => insert(inner, rest, field, text),
            _ => false,
        },
    }
}

fn element_from_text(field: &Field, element: &Type, text: &str) -> Value {
    field.in_query.map_or_else(|| from_text(element, text), |in_query| in_query(text))
}

fn from_text(ty: &Type, text: &str) -> Value {
    match (ty, text) {
        (Type::Bool, "true" | "True" | "TRUE" | "t" | "T" | "1") => true.into(),
        (Type::Bool, "false" | "False" | "FALSE" | "f" | "F" | "0" | "") => false.into(),
        (Type::Int32 | Type::Int64 | Type::Timestamp | Type::Duration | Type::Enum(_), "") => Value::Null,
        (Type::Enum(_) | Type::Capability, text) => text.parse::<u32>().map_or_else(|_| text.into(), Value::from),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Note;

    #[test]
    fn a_list_request_has_at_most_a_thousand_uids() {
        let list = |count: usize| {
            let pair = |n: usize| ("uidp.ids".to_owned(), format!("{n:040x}"));
            ListRequest::from_query(Note::KIND, &(0..count).map(pair).collect::<Vec<_>>())
        };
        assert_eq!(list(1_000).unwrap().uidp.ids.len(), 1_000);
        let error = list(1_001).unwrap_err();
        let fields: Vec<_> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["uidp.ids"]);
    }

    #[test]
    fn all_violations_of_a_list_request_are_reported_at_once() {
        let pairs = [
            ("nam", "x"),
            ("page_size", "-1"),
            ("skip", "-1"),
            ("order_by", "digest"),
            ("uidp.children_of", "x"),
            ("name", "a"),
            ("name", "b"),
            ("pageSize", "1"),
            ("updated_since", "now"),
            ("include_dates", "yes"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let error = ListRequest::from_query(Note::KIND, &pairs).unwrap_err();
        let fields: Vec<_> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
        let expected = [
            "nam",
            "name",
            "page_size",
            "updatedSince",
            "includeDates",
            "page_size",
            "skip",
            "uidp.children_of",
            "order_by",
        ];
        assert_eq!(fields, expected);
    }
}
