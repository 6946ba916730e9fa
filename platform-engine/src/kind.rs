//! The declaration of kinds, as plain data.
//!
//! A kind of resource is a Rust struct and one constant [`Kind`], without macros. Routes, RPCs, masks, filters, access
//! control, events, the rules about children, store indexes and the tests over all kinds are loops over that table.
//! Behavior that a table cannot express is a method of [`Resource`], in the kind's own file. A platform serves the
//! kinds that its [`Builder`](crate::platform::Builder) was given.

use serde_json::{Map, Value};

use crate::{
    access::Capability,
    store::{self, KeyName, KindName},
};

mod column;
mod domain;
mod field;
mod imported;
mod keys;
mod list_page;
mod paths;
mod resource;
mod rules;

pub use column::Column;
pub use domain::{Domain, LeftOut};
pub use field::{Access, Check, Field, InQuery, MakeDefault, OnDelete, Reference, SortKey, Type};
pub use imported::{Imported, derived_uid, escaped, opaque_uid};
pub use keys::{DerivedKey, Unique};
pub use list_page::ListPage;
pub use resource::{
    Action, Change, Handler, Part, Registered, Resource, Run, RunEncoded, RunOnce, RunPages, RunRendered, RunResource,
    action_event, canonical, parent_uid, sent,
};
pub(crate) use resource::{stored, typed};
pub use rules::WriteRules;

/// The table of a kind: everything except behavior.
#[derive(Debug)]
#[non_exhaustive]
pub struct Kind {
    /// The singular name, such as `RoleBinding`: in messages, resource types and the store.
    pub name: KindName,
    /// The plural in camelCase, such as `roleBindings`: path segment and key of the list envelope.
    pub plural: &'static str,
    /// The service of the contract that has the kind's methods, such as `RoleBindingsService`.
    pub service: &'static str,
    /// Path prefix and error domain.
    pub domain: Domain,
    /// The parent kind in the resource hierarchy.
    pub parent: Parent,
    /// The standard methods.
    pub methods: &'static [Method],
    /// Its fields, in the order in which they are written.
    pub fields: &'static [Field],
    /// The paths of fields that it had before, such as `color` and `engine.power`: replies no longer have them.
    pub removed: &'static [&'static str],
    /// Whether stored bodies differ from those of replies: fields were renamed or removed, or have defaults.
    pub(crate) has_history: bool,
    /// Index keys that are not a field's own value.
    pub keys: &'static [DerivedKey],
    /// The columns of tables for people, the most important first. If there are none, tables show the fields that lists
    /// are ordered by and those that say what a resource is.
    pub columns: &'static [Column],
    /// The uniqueness rules.
    pub unique: &'static [Unique],
    /// The visibility of resources without a parent group.
    pub roots: Roots,
    /// The effect of deleting the parent.
    pub on_parent_delete: OnParentDelete,
    /// Whether its records are a queue ([`Put::queue`](crate::store::Put::queue)).
    pub queue: bool,
    /// Whether quotas do not apply to its resources, because the platform itself makes them.
    pub unlimited: bool,
    /// Whether this is a [service](Kind::service_of) whose methods have names such as `Create`, without that of a kind.
    pub is_service: bool,
}

impl Kind {
    /// Returns a kind at the top of the hierarchy without methods: its name, plural, service and domain.
    pub const fn new(name: KindName, plural: &'static str, service: &'static str, domain: Domain) -> Self {
        Self {
            name,
            plural,
            service,
            domain,
            parent: Parent::None,
            methods: &[],
            fields: &[],
            removed: &[],
            has_history: false,
            keys: &[],
            columns: &[],
            unique: &[],
            roots: Roots::Granted,
            on_parent_delete: OnParentDelete::Restrict,
            queue: false,
            unlimited: false,
            is_service: false,
        }
    }

    /// Returns a service without resources, whose methods are actions ([`Registered::service`]). The names of its
    /// operations in the OpenAPI document begin with its name.
    pub const fn service_of(name: KindName, plural: &'static str, service: &'static str, domain: Domain) -> Self {
        Self { is_service: true, ..Self::new(name, plural, service, domain) }
    }

    /// Returns the name of an action that no other operation has: that of the RPC, after that of a service.
    pub fn operation(&self, action: &Action) -> String {
        let service = if self.is_service { self.name } else { "" };
        format!("{service}{}", action.name)
    }

    /// Sets the parent kind.
    #[must_use]
    pub const fn parent(mut self, parent: Parent) -> Self {
        self.parent = parent;
        self
    }

    /// Sets the standard methods.
    #[must_use]
    pub const fn methods(mut self, methods: &'static [Method]) -> Self {
        self.methods = methods;
        self
    }

    /// Sets the fields, in the order in which they are written.
    #[must_use]
    pub const fn fields(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self.has_history |= Field::any_has_history(fields);
        self
    }

    /// Declares fields that resources had before, by their dotted paths. Stored resources have their values until they
    /// are next written; no reply has them. Name a field here when you remove its row, with its former names, so that a
    /// renamed field is not taken for a removed one by mistake.
    #[must_use]
    pub const fn removed(mut self, paths: &'static [&'static str]) -> Self {
        self.removed = paths;
        self.has_history |= !paths.is_empty();
        self
    }

    /// Sets the index keys that are not a field's own value.
    #[must_use]
    pub const fn keys(mut self, keys: &'static [DerivedKey]) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the columns of tables for people.
    #[must_use]
    pub const fn columns(mut self, columns: &'static [Column]) -> Self {
        self.columns = columns;
        self
    }

    /// Sets the uniqueness rules.
    #[must_use]
    pub const fn unique(mut self, unique: &'static [Unique]) -> Self {
        self.unique = unique;
        self
    }

    /// Sets the visibility of resources without a parent group.
    #[must_use]
    pub const fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    /// Deletes resources with their parent. Without this, they restrict its deletion.
    #[must_use]
    pub const fn cascade(self) -> Self {
        Self { on_parent_delete: OnParentDelete::Cascade, ..self }
    }

    /// Makes its records a queue.
    #[must_use]
    pub const fn queue(self) -> Self {
        Self { queue: true, ..self }
    }

    /// Excludes its resources from [quotas](crate::quota), because the platform itself makes them.
    #[must_use]
    pub const fn unlimited(self) -> Self {
        Self { unlimited: true, ..self }
    }

    /// Returns the kind's method for a verb.
    pub fn method(&self, verb: Verb) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.verb == verb)
    }

    /// Returns the methods that transports serve.
    pub fn served(&self) -> impl Iterator<Item = &'static Method> + use<> {
        self.methods.iter().filter(|method| method.served)
    }

    /// Returns whether transports serve the kind's method for a verb.
    pub fn serves(&self, verb: Verb) -> bool {
        self.method(verb).is_some_and(|method| method.served)
    }

    /// Returns the name of a standard method's RPC, such as `ListRoleBindings` or `GetRoleBinding`.
    pub fn rpc(&self, verb: Verb) -> String {
        let noun = if verb == Verb::List { self.plural } else { self.name };
        let (first, rest) = noun.split_at_checked(1).unwrap_or_default();
        format!("{}{}{rest}", verb.name(), first.to_uppercase())
    }

    /// Returns the name of the RPC that gets several resources (AIP-231), such as `BatchGetRepos`; `None` for a kind
    /// without gets.
    pub fn batch_get(&self) -> Option<String> {
        let (first, rest) = self.plural.split_at_checked(1).unwrap_or_default();
        self.serves(Verb::Get).then(|| format!("BatchGet{}{rest}", first.to_uppercase()))
    }

    /// Returns the field of that name, in camelCase.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the resource type of AIP-122, such as `iam.example.com/Group`.
    pub fn resource_type(&self, service_domain: &str) -> String {
        format!("{}.{service_domain}/{}", self.domain.name, self.name)
    }
}

/// The parents of a kind's resources, which determine the form of their uids.
///
/// Exhaustive, because transports derive paths and messages from it and must handle every case.
#[derive(Debug, Clone, Copy)]
pub enum Parent {
    /// No parent: uids have one segment, which may be opaque. Also for kinds without resources.
    None,
    /// A group: uids are the group's uid and a segment.
    Group,
    /// A group or no parent: for groups themselves.
    GroupOrNone,
    /// A resource of that kind: uids are the parent's uid and a segment.
    Of(&'static Kind),
    /// A resource of that kind, which has at most one such child: the child has the uid of its parent.
    Sole(&'static Kind),
    /// As [`Parent::Sole`], but the child always exists: it is read and updated at the path of its parent followed by
    /// this segment, and is never created or deleted by itself.
    Singleton(&'static Kind, &'static str),
}

impl Parent {
    /// Returns the name of the parent kind, if there is one.
    pub const fn kind(self) -> Option<KindName> {
        match self {
            Self::None => None,
            Self::Group | Self::GroupOrNone => Some("Group"),
            Self::Of(kind) | Self::Sole(kind) | Self::Singleton(kind, _) => Some(kind.name),
        }
    }

    /// Returns whether a resource has the uid of its parent.
    pub const fn shares_uid(self) -> bool {
        matches!(self, Self::Sole(_) | Self::Singleton(..))
    }
}

/// The visibility of a kind's resources without a parent group (`docs/api.md`, Access).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Roots {
    /// As for all resources: a method needs a grant at the uid itself.
    Granted,
    /// Callers who hold the method's capabilities at any group may get and list them.
    Shared,
    /// The operator may call all methods, and an identity may get and list itself; with a narrowed token, only if it
    /// names the capabilities of the method.
    Personal,
}

/// The effect on a resource of deleting its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnParentDelete {
    /// The delete is rejected: FAILED_PRECONDITION, RESOURCE_NOT_EMPTY.
    Restrict,
    /// It is deleted too, without an event of its own.
    Cascade,
}

/// The five standard methods (AIP-131 to AIP-135). Exhaustive, because the list is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the methods' names")]
pub enum Verb {
    List,
    Get,
    Create,
    Update,
    Delete,
}

impl Verb {
    /// Returns the prefix of the names of RPCs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "List",
            Self::Get => "Get",
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
        }
    }
}

/// A standard method of a kind.
#[derive(Debug)]
#[non_exhaustive]
pub struct Method {
    /// The verb.
    pub verb: Verb,
    /// The capabilities that a caller must hold, all of them, at or above the resource or its parent.
    pub capabilities: &'static [Capability],
    /// The event that it records, without the installation's prefix, such as `iam.group.created.v1`.
    pub event: Option<&'static str>,
    /// For a list: the `order_by` of a request without one.
    pub order: &'static str,
    /// For a list: its own query parameters.
    pub params: &'static [Param],
    /// For a list: makes filters of all parameters together. Called even if no parameter was sent.
    pub narrow: Option<Narrow>,
    /// For a list: the path after domain and version, if it is not the plural. Its variables are parameters.
    pub path: Option<&'static str>,
    /// For a list: a parameter that is the uid of a resource of this kind, which must exist.
    pub of: Option<(&'static str, &'static Kind)>,
    /// For a list: whether anybody may call it, without a token.
    pub open: bool,
    /// Whether every authenticated caller may call it.
    pub for_all_callers: bool,
    /// For a create: the name of the field by which an existing resource of the same parent is replaced.
    pub upsert: Option<&'static str>,
    /// Whether transports serve it.
    pub served: bool,
}

/// Makes store filters of a list's parameters, which are in canonical form.
pub type Narrow = fn(&Map<String, Value>) -> Vec<store::Filter>;

impl Method {
    const fn new(verb: Verb, capabilities: &'static [Capability]) -> Self {
        Self {
            verb,
            capabilities,
            event: None,
            order: "uid",
            params: &[],
            narrow: None,
            path: None,
            of: None,
            open: false,
            for_all_callers: false,
            upsert: None,
            served: true,
        }
    }

    /// Returns a list, ordered by uid by default.
    pub const fn list(capabilities: &'static [Capability]) -> Self {
        Self::new(Verb::List, capabilities)
    }

    /// Returns a get by uid.
    pub const fn get(capabilities: &'static [Capability]) -> Self {
        Self::new(Verb::Get, capabilities)
    }

    /// Returns a create below a parent.
    pub const fn create(capabilities: &'static [Capability]) -> Self {
        Self::new(Verb::Create, capabilities)
    }

    /// Returns an update by mask.
    pub const fn update(capabilities: &'static [Capability]) -> Self {
        Self::new(Verb::Update, capabilities)
    }

    /// Returns a delete by uid.
    pub const fn delete(capabilities: &'static [Capability]) -> Self {
        Self::new(Verb::Delete, capabilities)
    }

    /// Sets the event that the method records.
    pub const fn event(mut self, event: &'static str) -> Self {
        self.event = Some(event);
        self
    }

    /// Hides the method from transports: the kind's own version of the API does not have it, but a
    /// [conversion](crate::conversion) or an embedder calls it.
    pub const fn unserved(mut self) -> Self {
        self.served = false;
        self
    }

    /// Sets the order of a list for requests without `order_by`.
    pub const fn order(mut self, order: &'static str) -> Self {
        self.order = order;
        self
    }

    /// Sets the query parameters of a list.
    pub const fn params(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    /// Sets the function that makes filters of all parameters of a list together.
    pub const fn narrow(mut self, narrow: Narrow) -> Self {
        self.narrow = Some(narrow);
        self
    }

    /// Sets the path of a list after domain and version.
    pub const fn at(mut self, path: &'static str) -> Self {
        self.path = Some(path);
        self
    }

    /// Makes this parameter of a list the uid of a resource of this kind, which the listed resources belong to. A list
    /// for a resource that does not exist is NOT_FOUND; for a caller who may not list anything there, it is empty.
    pub const fn of(mut self, param: &'static str, kind: &'static Kind) -> Self {
        self.of = Some((param, kind));
        self
    }

    /// Allows a list without a token. It then shows all resources at the top of the hierarchy.
    pub const fn open(mut self) -> Self {
        self.open = true;
        self
    }

    /// Lets every authenticated caller call the method, with no role at all. A method without capabilities must be either
    /// this or [open](Method::open).
    pub const fn for_all_callers(mut self) -> Self {
        self.for_all_callers = true;
        self
    }

    /// Makes a create replace an existing resource of the same parent with the same value in this field. The uid stays.
    pub const fn upsert(mut self, field: &'static str) -> Self {
        self.upsert = Some(field);
        self
    }
}

/// A query parameter of a list. A resource must match all parameters that are sent.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Param {
    /// The name and type; a list type if the parameter can be repeated.
    pub field: Field,
    /// The filter.
    pub by: By,
}

/// The filter of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// A value under this key equals the parameter, or one of its values.
    Value(KeyName),
    /// A value under this key is greater than the parameter.
    Above(KeyName),
    /// The method's [`Narrow`] makes the filter.
    Narrow,
}

impl Param {
    /// Returns a parameter with the name and type of this field, and a filter.
    pub const fn new(field: Field, by: By) -> Self {
        Self { field, by }
    }

    /// Returns a parameter that filters by the exact value of the field of the same name.
    pub const fn exact(name: &'static str) -> Self {
        Self { field: Field::string(name), by: By::Value(name) }
    }

    /// Returns a parameter that filters by the exact value of a key with another name.
    pub const fn exact_of(name: &'static str, key: KeyName) -> Self {
        Self { field: Field::string(name), by: By::Value(key) }
    }

    /// Returns a parameter for the method's [`Narrow`].
    pub const fn narrow(field: Field) -> Self {
        Self { field, by: By::Narrow }
    }

    /// Sets the description, as [`Field::about`] does.
    pub const fn about(mut self, about: &'static str) -> Self {
        self.field.about = about;
        self
    }
}

/// The HTTP methods that actions use.
///
/// Exhaustive, because transports must route every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the methods' names")]
pub enum Http {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

impl Http {
    /// Returns the name of the method, such as `GET`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Returns whether requests have a body. The fields that are not in the path are in the query otherwise.
    pub const fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Patch | Self::Put)
    }

    /// Returns whether requests change nothing (RFC 9110 section 9.2.1).
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Get)
    }
}

/// The callers that may run an action.
///
/// Exhaustive, so that a transport that does not handle a new case does not compile.
#[derive(Debug, Clone, Copy)]
pub enum Authorization {
    /// Everyone, without a token.
    Public,
    /// Any authenticated caller; the action itself decides the rest.
    Authenticated,
    /// Callers with all of these capabilities at or above the uid in this field of the request.
    At(&'static str, &'static [Capability]),
    /// Callers with all of these capabilities at any group; the action filters its result by these groups.
    Anywhere(&'static [Capability]),
    /// Any authenticated caller; the action's result includes only resources that the caller could list with these
    /// capabilities.
    FiltersResult(&'static [Capability]),
    /// Callers of this method of a kind, at the uid in this field of the request: the parent for a create.
    As(&'static Kind, Verb, &'static str),
}
