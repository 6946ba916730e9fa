//! Seeds: resources in YAML that name each other by their names.

use std::collections::{BTreeMap, HashMap};

use platform_engine::{
    access::Caller,
    error::{Code, Error, Result, Violations},
    kind::{Kind, Registered, Verb},
    options::RequestOptions,
    platform::Platform,
    request::ListRequest,
    store::KindName,
    uid::Uid,
};
use serde_json::{Map, Value, json};
use serde_saphyr::{DuplicateKeyPolicy, Options};

use crate::{
    aws::{self, Principal},
    tenant::{ORGANIZATION, Tenant},
};

mod demo;
mod preset;

pub use preset::Preset;

/// The maximum number of resources of a seed. Our choice.
const MAX_RESOURCES: usize = 100_000;

/// The maximum number of nodes of a document, and its maximum depth. Our choice.
const MAX_NODES: usize = 2_000_000;
const MAX_DEPTH: usize = 32;

/// The result of a seed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seeded {
    /// The number of created resources.
    pub created: usize,
    /// The uids of those that have a name, by the plural of their kind and their path, such as
    /// `repos/team/nginx`.
    pub uids: BTreeMap<String, Uid>,
}

/// Reads a document: an object with a list of resources for each kind.
pub(crate) fn parse(yaml: &[u8]) -> Result<Map<String, Value>> {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.with_snippet = false;
    options.alias_limits.max_total_replayed_events = MAX_RESOURCES;
    let budget = options.budget.get_or_insert_default();
    budget.max_depth = MAX_DEPTH;
    budget.flow_nesting_limit = MAX_DEPTH;
    budget.max_nodes = MAX_NODES;
    budget.max_events = MAX_NODES * 2;
    budget.max_documents = 2;
    let read: Result<Value, _> = serde_saphyr::from_slice_with_options(yaml, options);
    let invalid = |rule: String| Error::invalid_field("body", rule);
    match read {
        Ok(Value::Object(resources)) => Ok(resources),
        Ok(_) => Err(invalid("must be an object with a list of resources for each kind".to_owned())),
        Err(error) => {
            let place = error.location().map(|at| format!(" at line {} column {}", at.line(), at.column()));
            let rule = error.without_snippet().to_string();
            let rule: String = rule.lines().next().unwrap_or_default().chars().take(300).collect();
            Err(invalid(format!("must be YAML{}: {rule}", place.unwrap_or_default())))
        }
    }
}

/// The initial data of a tenant.
pub(crate) enum Seed {
    Document(Map<String, Value>),
    Preset(Preset),
}

impl Seed {
    pub(crate) async fn apply(self, tenant: &Tenant) -> Result<Seeded> {
        match self {
            Self::Document(resources) => apply(tenant, resources).await,
            Self::Preset(preset) => {
                let mut seeded = apply(tenant, preset.resources()?).await?;
                if preset == Preset::Demo {
                    let repos = seeded.uids.iter().filter_map(|(path, uid)| Some((path.strip_prefix("repos/")?, uid)));
                    let (platform, caller) = (tenant.platform(), tenant.caller());
                    let imported = demo::import(platform, &caller, tenant.organization(), repos).await?;
                    seeded.created += usize::try_from(imported).unwrap_or_default();
                }
                Ok(seeded)
            }
        }
    }
}

/// Creates resources in the order of the document, and declares its principals of AWS.
async fn apply(tenant: &Tenant, mut resources: Map<String, Value>) -> Result<Seeded> {
    let platform = tenant.platform();
    let principals = principals(resources.remove(aws::PRINCIPALS))?;
    let lists = check(platform, resources)?;
    let mut seeder = Seeder { platform, caller: tenant.caller(), known: HashMap::new(), seeded: Seeded::default() };
    seeder.known.insert(("Group", String::new(), ORGANIZATION.to_owned()), tenant.organization().clone());
    for (registered, list) in lists {
        let plural = registered.kind.plural;
        for (index, resource) in list.into_iter().enumerate() {
            let place = format!("{plural}[{index}]");
            seeder.create(registered, resource).await.map_err(|error| located(error, &place))?;
        }
    }
    tenant.0.aws.declare(principals);
    Ok(seeder.seeded)
}

/// Reads the principals of AWS of a document.
fn principals(list: Option<Value>) -> Result<Vec<Principal>> {
    let list = match list {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Error::invalid_field(aws::PRINCIPALS, "must be a list of principals")),
    };
    let read = |(index, one)| match one {
        Value::Object(one) => {
            Principal::read(one).map_err(|error| located(error, &format!("{}[{index}]", aws::PRINCIPALS)))
        }
        _ => Err(Error::invalid_field(format!("{}[{index}]", aws::PRINCIPALS), "must be an object")),
    };
    list.into_iter().enumerate().map(read).collect()
}

/// The resources of a kind.
type List<'p> = (&'p Registered, Vec<Map<String, Value>>);

/// Checks the form of a document, and returns the resources of each kind.
fn check(platform: &Platform, resources: Map<String, Value>) -> Result<Vec<List<'_>>> {
    let (mut violations, mut lists, mut count) = (Violations::default(), Vec::new(), 0);
    for (plural, list) in resources {
        let of_plural = |registered: &&Registered| registered.kind.plural == plural;
        let creatable = |registered: &&Registered| registered.kind.serves(Verb::Create);
        let Some(registered) = platform.registered().iter().filter(creatable).find(of_plural) else {
            violations.add(plural, "must be the plural of a kind whose resources can be created, such as repos");
            continue;
        };
        let Value::Array(list) = list else {
            violations.add(plural, "must be a list of resources");
            continue;
        };
        count += list.len();
        let mut objects = Vec::new();
        for (index, resource) in list.into_iter().enumerate() {
            match resource {
                Value::Object(object) => objects.push(object),
                _ => violations.add(format!("{plural}[{index}]"), "must be an object"),
            }
        }
        lists.push((registered, objects));
    }
    if count > MAX_RESOURCES {
        violations.add("body", format!("must have at most {MAX_RESOURCES} resources"));
    }
    violations.none_or(lists)
}

struct Seeder<'a> {
    platform: &'a Platform,
    caller: Caller,
    /// The uids of resources by their kind, the uid of their parent, which is empty at the top, and their name.
    known: HashMap<(KindName, String, String), Uid>,
    seeded: Seeded,
}

impl Seeder<'_> {
    async fn create(&mut self, registered: &Registered, mut resource: Map<String, Value>) -> Result<()> {
        let kind = registered.kind;
        let path = match resource.remove("parent") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(path)) => path,
            Some(_) => {
                return Err(Error::invalid_field("parent", "must be the path of the parent, such as team/nginx"));
            }
        };
        let parent = match (self.platform.parent_kind(kind), path.as_str()) {
            // A new organization, or a resource without a parent.
            (_, "/") | (None, "") => String::new(),
            (Some(parent), path) => self.resolve("parent", parent, path).await?.to_string(),
            (None, _) => return Err(Error::invalid_field("parent", "must be empty: these resources have no parent")),
        };
        let mut body = Value::Object(resource);
        let mut references = Vec::new();
        collect_references("", &mut body, &mut references);
        for (field, reference) in references {
            *reference = self.reference(&field, reference).await?;
        }
        let Value::Object(body) = body else { return Ok(()) };
        let created =
            self.platform.create_erased(&self.caller, registered, &parent, &body, RequestOptions::none()).await?;
        let created: Value = serde_json::from_slice(&created.body).map_err(Error::internal)?;
        self.seeded.created += 1;
        let text = |name: &str| created.get(name).and_then(Value::as_str);
        if let (Some(uid), Some(name)) = (text("uid"), text("name")) {
            let uid = Uid::opaque(uid.to_owned());
            self.known.insert((kind.name, parent, name.to_owned()), uid.clone());
            let path = match path.as_str() {
                "" => name.to_owned(),
                "/" => format!("/{name}"),
                path => format!("{path}/{name}"),
            };
            self.seeded.uids.insert(format!("{}/{path}", kind.plural), uid);
        }
        Ok(())
    }

    /// Returns the uid that a reference such as `${roles/viewer}` names.
    async fn reference(&mut self, field: &str, reference: &str) -> Result<String> {
        let named = reference.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let (plural, path) = named.unwrap_or_default().split_once('/').unwrap_or_default();
        let of_plural = |kind: &&'static Kind| kind.plural == plural && !kind.fields.is_empty();
        let kind = self.platform.kinds().find(of_plural).ok_or_else(|| {
            Error::invalid_field(field, "must name a resource by its kind and path, such as ${roles/viewer}")
        })?;
        Ok(self.resolve(field, kind, path).await?.to_string())
    }

    /// Returns the uid of the resource at a path of names: below the tenant's organization, or from the top if the path
    /// begins with a slash.
    async fn resolve(&mut self, field: &str, kind: &'static Kind, path: &str) -> Result<Uid> {
        let names: Vec<&str> = match path.strip_prefix('/') {
            Some(absolute) => absolute.split('/').collect(),
            None => std::iter::once(ORGANIZATION).chain(path.split('/').filter(|_| !path.is_empty())).collect(),
        };
        // The kinds of the last names; those before are of groups.
        let mut kinds = vec![kind];
        while let Some(parent) = kinds.last().and_then(|kind| self.platform.parent_kind(kind))
            && parent.name != "Group"
        {
            kinds.push(parent);
        }
        let group = self.platform.kinds().find(|kind| kind.name == "Group").unwrap_or(kind);
        let mut uid = String::new();
        for (at, name) in names.iter().enumerate() {
            let kind = kinds.get(names.len() - 1 - at).copied().unwrap_or(group);
            match self.child(kind, &uid, name).await? {
                Some(found) => uid = found.to_string(),
                // Resources of the installation, such as built-in roles, have no parent.
                None if at + 1 == names.len() && names.len() == 2 => {
                    let found = self.child(kind, "", name).await?;
                    uid = found.ok_or_else(|| unknown(field, kind, path))?.to_string();
                }
                None => return Err(unknown(field, kind, path)),
            }
        }
        Ok(Uid::opaque(uid))
    }

    /// Returns the resource of this name directly below a uid, or at the top if that is empty.
    async fn child(&mut self, kind: &'static Kind, parent: &str, name: &str) -> Result<Option<Uid>> {
        let key = (kind.name, parent.to_owned(), name.to_owned());
        if let Some(uid) = self.known.get(&key) {
            return Ok(Some(uid.clone()));
        }
        let mut request = Map::from_iter([("name".to_owned(), json!(name)), ("pageSize".to_owned(), json!(200))]);
        if !parent.is_empty() {
            request.insert("uidp".to_owned(), json!({ "childrenOf": parent }));
        }
        // Of a kind without a filter for names, only the resources of the document are known.
        let Ok(request) = ListRequest::from_json(kind, request) else { return Ok(None) };
        let of_kind = |registered: &&Registered| registered.kind.name == kind.name;
        let Some(registered) = self.platform.registered().iter().find(of_kind) else { return Ok(None) };
        let page = self.platform.list_erased(Some(&self.caller), registered, &request).await?;
        let uids = page.items.iter().filter_map(|body| {
            let resource: Value = serde_json::from_slice(body).ok()?;
            Some(Uid::opaque(resource.get("uid")?.as_str()?.to_owned()))
        });
        let is_child = |uid: &Uid| uid.parent().map(|uid| uid.to_string()).unwrap_or_default() == parent;
        let found = uids.into_iter().find(is_child);
        if let Some(uid) = &found {
            self.known.insert(key, uid.clone());
        }
        Ok(found)
    }
}

/// Collects the texts that are references, with the path of their field.
fn collect_references<'v>(field: &str, value: &'v mut Value, found: &mut Vec<(String, &'v mut String)>) {
    match value {
        Value::String(text) if text.starts_with("${") && text.ends_with('}') => found.push((field.to_owned(), text)),
        Value::Array(list) => {
            for (index, element) in list.iter_mut().enumerate() {
                collect_references(&format!("{field}[{index}]"), element, found);
            }
        }
        Value::Object(object) => {
            for (name, member) in object {
                let dot = if field.is_empty() { "" } else { "." };
                collect_references(&format!("{field}{dot}{name}"), member, found);
            }
        }
        _ => {}
    }
}

fn unknown(field: &str, kind: &Kind, path: &str) -> Error {
    let rule = format!("must be the path of a {}: there is none at `{path}`", kind.name);
    Error::invalid_field(field, rule)
}

/// Names the resource of a document that an error is about.
fn located(error: Error, place: &str) -> Error {
    if error.code() == Code::InvalidArgument && !error.violations().is_empty() {
        return error.rename_fields(|field| format!("{place}.{field}"));
    }
    let located = Error::new(error.code(), format!("{place}: {}", error.message()));
    error.details().iter().cloned().fold(located, Error::with)
}
