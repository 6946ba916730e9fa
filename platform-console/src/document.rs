//! The tables of all kinds as JSON, from which the page derives its screens.

use platform_engine::{
    access::Capability,
    kind::{
        Access, Action, Authorization, By, Domain, Field, Http, Kind, OnParentDelete, Parent, Registered, Type, Verb,
    },
    platform::Platform,
};
use serde_json::{Map, Value, json};

use crate::{LINK_SECONDS, Options};

/// Returns the document of a platform: its kinds that REST serves, the paths of its services, and its capabilities.
pub(crate) fn of(platform: &Platform, options: &Options) -> Value {
    let kinds: Vec<_> = platform.registered().iter().filter(|registered| is_shown(registered)).map(kind).collect();
    let services = platform.registered().iter().filter(|registered| registered.kind.is_service).flat_map(services);
    let capabilities: Vec<_> = platform
        .capabilities()
        .iter()
        .filter(|capability| !capability.is_internal())
        .map(|capability| json!({ "id": capability.id(), "name": capability.name() }))
        .collect();
    json!({
        "title": options.title,
        "version": options.version,
        "docs": options.docs,
        "url": options.url,
        "browserSignIn": options.browser_sign_in,
        "sessions": options.tokens.is_some(),
        "linkMinutes": LINK_SECONDS / 60,
        "kinds": kinds,
        "services": services.collect::<Vec<_>>(),
        "capabilities": capabilities,
    })
}

/// Whether the page has screens for a kind: REST serves it, and it is not a version of another one.
fn is_shown(registered: &Registered) -> bool {
    let is_served = registered.kind.served().next().is_some() || actions(registered).next().is_some();
    is_served && !registered.kind.is_service
}

fn actions(registered: &Registered) -> impl Iterator<Item = &'static Action> + use<> {
    registered.actions.iter().filter(|action| !action.path.is_empty())
}

/// Returns what the page can read from a service: the paths of its actions, and the capabilities that they require.
fn services(registered: &Registered) -> impl Iterator<Item = Value> + use<> {
    let domain = &registered.kind.domain;
    actions(registered)
        .filter(|action| action.http == Http::Get)
        .map(|action| json!({ "path": path(domain, action.path), "capabilities": capabilities(action) }))
}

fn kind(registered: &Registered) -> Value {
    let kind = registered.kind;
    let relation = match kind.parent {
        Parent::None => "none",
        Parent::Group => "group",
        Parent::GroupOrNone => "groupOrNone",
        Parent::Of(_) => "of",
        Parent::Sole(_) => "sole",
        Parent::Singleton(..) => "singleton",
    };
    let methods: Map<_, _> =
        kind.served().map(|method| (method.verb.name().to_lowercase(), self::method(kind, method))).collect();
    json!({
        "name": kind.name,
        "plural": kind.plural,
        "domain": kind.domain.name,
        "parent": kind.parent.kind(),
        "relation": relation,
        "cascade": kind.on_parent_delete == OnParentDelete::Cascade,
        "methods": methods,
        "fields": fields(kind.fields),
        "actions": actions(registered).map(|action| self::action(kind, action)).collect::<Vec<_>>(),
    })
}

fn method(kind: &Kind, method: &platform_engine::kind::Method) -> Value {
    let mut shown = json!({
        "path": path(&kind.domain, &kind.path(method)),
        "capabilities": names(method.capabilities),
    });
    if method.verb == Verb::List {
        let params = method.params.iter().map(|param| {
            let mut shown = field(&param.field);
            if let By::Value(key) = param.by {
                add(&mut shown, "key", json!(key));
            }
            shown
        });
        add(&mut shown, "order", json!(method.order));
        add(&mut shown, "params", params.collect());
        add(&mut shown, "of", json!(method.of.map(|(param, kind)| json!({ "param": param, "kind": kind.name }))));
        let sorts = kind.fields.iter().filter_map(|field| field.sort.first()).map(|name| json!(name)).collect();
        add(&mut shown, "sorts", sorts);
    }
    shown
}

/// Adds a member to an object.
fn add(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}

/// Returns the names of the capabilities that an action requires.
fn capabilities(action: &Action) -> Value {
    match action.authorization {
        Authorization::At(_, capabilities)
        | Authorization::Anywhere(capabilities)
        | Authorization::FiltersResult(capabilities) => names(capabilities),
        Authorization::Public | Authorization::Authenticated | Authorization::As(..) => json!([]),
    }
}

fn action(kind: &Kind, action: &Action) -> Value {
    json!({
        "name": action.name,
        "http": action.http.name(),
        "path": path(&kind.domain, action.path),
        "capabilities": capabilities(action),
        "request": fields(action.request),
    })
}

/// Returns the path of a method with its domain and version. Variables are written as `{uid=**}`.
fn path(domain: &Domain, template: &str) -> String {
    format!("/{}/{}/{template}", domain.name, domain.version())
}

fn names(capabilities: &[Capability]) -> Value {
    capabilities.iter().map(|capability| json!(capability.name())).collect()
}

fn fields(fields: &[Field]) -> Value {
    fields.iter().map(field).collect()
}

/// Returns a row of a table. Properties with their usual value are left out.
fn field(field: &Field) -> Value {
    let mut row = Map::from_iter([("name".to_owned(), json!(field.name)), ("type".to_owned(), ty(&field.ty))]);
    let access = match field.access {
        Access::Mutable => "",
        Access::Immutable => "immutable",
        Access::OutputOnly => "output",
        Access::InputOnly => "input",
    };
    for (name, value) in [
        ("about", field.about),
        ("access", access),
        ("oneof", field.oneof.unwrap_or_default()),
        ("uidOf", field.uid_of.unwrap_or_default()),
    ] {
        if !value.is_empty() {
            row.insert(name.to_owned(), json!(value));
        }
    }
    for (name, value) in [
        ("required", field.required),
        ("multiline", field.multiline),
        ("searched", field.searched),
        ("findable", field.findable),
        ("once", field.once),
        ("unlisted", field.unlisted),
        ("optional", field.optional),
    ] {
        if value {
            row.insert(name.to_owned(), json!(true));
        }
    }
    Value::Object(row)
}

/// Returns a type: its name, or an object with one property for types that contain others.
fn ty(of: &Type) -> Value {
    match of {
        Type::String => json!("string"),
        Type::Bool => json!("bool"),
        Type::Int32 => json!("int32"),
        Type::Int64 => json!("int64"),
        Type::Bytes => json!("bytes"),
        Type::Timestamp => json!("timestamp"),
        Type::Duration => json!("duration"),
        Type::Capability => json!("capability"),
        Type::FieldMask => json!("fieldMask"),
        // The first name means that there is no value.
        Type::Enum(names) => json!({ "enum": names.get(1..).unwrap_or_default() }),
        Type::Message(of) => json!({ "message": fields(of) }),
        Type::List(of) => json!({ "list": ty(of) }),
        Type::Map(of) => json!({ "map": ty(of) }),
    }
}

#[cfg(test)]
mod tests {
    use platform_core::resources::KINDS;

    use super::*;

    #[test]
    fn every_kind_with_methods_over_rest_has_its_table() {
        for registered in KINDS.iter().filter(|registered| registered.kind.served().next().is_some()) {
            let shown = kind(registered);
            assert_eq!(
                shown["fields"].as_array().unwrap().len(),
                registered.kind.fields.len(),
                "{}",
                registered.kind.name
            );
            for (verb, method) in shown["methods"].as_object().unwrap() {
                assert!(method["path"].as_str().unwrap().starts_with('/'), "{verb}: {method}");
            }
        }
    }

    #[test]
    fn a_list_has_its_parameters_and_a_field_the_kind_that_it_refers_to() {
        let binding = KINDS.iter().find(|registered| registered.kind.name == "RoleBinding").unwrap();
        let shown = kind(binding);
        assert_eq!(shown["methods"]["list"]["path"], "/iam/v2/roleBindings");
        assert_eq!(shown["methods"]["get"]["path"], "/iam/v2/roleBindings/{uid=**}");
        assert_eq!(shown["methods"]["list"]["params"][0]["key"], "identityUid");
        let fields = shown["fields"].as_array().unwrap();
        assert!(
            fields
                .iter()
                .any(|field| field["name"] == "roleUid" && field["uidOf"] == "Role" && field["required"] == true)
        );
    }

    #[test]
    fn a_kind_says_whether_its_resources_are_deleted_with_their_parent() {
        for (name, cascades) in [("RoleBinding", true), ("Tag", true), ("Repo", false), ("Identity", false)] {
            let registered = KINDS.iter().find(|registered| registered.kind.name == name).unwrap();
            assert_eq!(kind(registered)["cascade"], cascades, "{name}");
        }
    }
}
