//! Checks that the kind tables and the `.proto` files agree, except for the differences listed here.

use std::collections::{BTreeMap, BTreeSet};

use heck::ToLowerCamelCase;
use platform_core::resources::KINDS;
use platform_engine::{
    access::Capability,
    kind::{Access, Action, Authorization, Field, Kind, Method, Parent, Registered, Type, Verb},
    request::list_fields,
};
use platform_v1::services::SERVICES;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind as Proto, MessageDescriptor, MethodDescriptor, Value,
};

use crate::{
    compile,
    describe::{capability, extension, http_rule},
    snapshot,
};

/// The expected differences with their reasons: prefixes of lines that only one side has.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("ReposService.UpdateRepoReadme | ", "updating a readme requires `repo.update`, not an internal capability"),
    ("GroupsService.RepairOwner | ", "our own method, served by REST only"),
    ("GroupsService.SetResourceLimit | ", "our own method, served by REST only"),
    ("GroupsService.RemoveResourceLimit | ", "our own method, served by REST only"),
    ("GroupsService.ListResourceLimits | ", "our own method, served by REST only"),
    ("SubscriptionsService.SendTestEvent | ", "our own method, served by REST only"),
    ("SubscriptionsService.RedeliverEvent | ", "our own method, served by REST only"),
    ("SubscriptionsService.GetBacklog | ", "our own method, served by REST only"),
    ("IdentitiesService.RevokeTokens | ", "our own method, served by REST only"),
    ("IdentityMetadata.hubspotUtk: ", "accepted and not stored"),
    ("UpdateIdentityMetadataRequest.identityMetadata.hubspotUtk: ", "accepted and not stored"),
    ("IdentityProvider.oidc.clientSecret: ", "never returned"),
    ("BatchCreateRoleBindingsRequest.requests.roleBinding.", "output-only fields are not read in requests"),
];

/// Returns the kinds that a `.proto` file has a method of. REST alone serves the others.
fn of_contract(pool: &DescriptorPool) -> Vec<&'static Registered> {
    let services = services(pool);
    let is_known = |registered: &&Registered| {
        let kind = registered.kind;
        let actions = registered.actions.iter().map(|action| action.name.to_owned());
        let mut names = actions.chain(kind.served().map(|method| kind.rpc(method.verb)));
        names.any(|name| services.iter().any(|rpc| rpc.parent_service().name() == kind.service && rpc.name() == name))
    };
    KINDS.iter().filter(is_known).collect()
}

/// Returns the kinds of the contract with their messages. A kind without standard methods may have none.
fn messages(pool: &DescriptorPool) -> Vec<(&'static Registered, MessageDescriptor)> {
    let message = |registered: &'static Registered| {
        let kind = registered.kind;
        let message = pool.get_message_by_name(&format!("chainguard.platform.{}.v2.{}", kind.domain.name, kind.name));
        assert!(message.is_some() || kind.served().next().is_none(), "no file has the message {}", kind.name);
        Some((registered, message?))
    };
    of_contract(pool).into_iter().filter_map(message).collect()
}

fn services(pool: &DescriptorPool) -> Vec<MethodDescriptor> {
    let of_kinds = |name: &str| name.starts_with("chainguard.platform.") && name.ends_with(".v2");
    let services = pool.services().filter(|service| of_kinds(service.package_name()));
    services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

/// Formats a method as one line, the same for both sides.
fn line(service: &str, name: &str, http: (&str, &str), mut capabilities: Vec<&str>, open: bool, event: &str) -> String {
    capabilities.sort_unstable();
    let (needs, open) = (capabilities.join(" "), if open { " open" } else { "" });
    format!("{service}.{name} | {} {} | {needs}{open} | {event}", http.0, http.1)
}

#[test]
fn methods_have_the_paths_capabilities_and_events_of_the_tables() {
    let pool = compile::pool();
    let proto = services(&pool).into_iter().map(|method| proto_line(&pool, &method));
    let tables = of_contract(&pool).into_iter().flat_map(|registered| {
        let kind = registered.kind;
        let standard = kind.served().map(move |method| {
            let held = ids(method.capabilities);
            let path = format!("/{}/v2/{}", kind.domain.name, path(kind, method));
            let http = (http(method.verb), path.as_str());
            line(kind.service, &kind.rpc(method.verb), http, held, method.open, method.event.unwrap_or_default())
        });
        standard.chain(action_lines(registered)).collect::<Vec<_>>()
    });
    assert_same(proto.collect(), tables.collect());
}

#[test]
fn methods_of_version_1_have_the_paths_capabilities_and_events_of_the_tables() {
    let pool = compile::pool();
    let proto = services_of_version_1(&pool).into_iter().map(|method| proto_line(&pool, &method));
    let tables = SERVICES.iter().flat_map(action_lines);
    assert_same(proto.collect(), tables.collect());
}

#[test]
fn messages_of_version_1_have_the_fields_of_the_tables() {
    let pool = compile::pool();
    for method in services_of_version_1(&pool) {
        let service = method.parent_service();
        let is_it = |one: &&Registered| {
            one.kind.service == service.name() && one.kind.domain.version_of_package(service.package_name()).is_some()
        };
        // Another test finds the methods without an action.
        let actions = SERVICES.iter().find(is_it).map_or(&[][..], |service| service.actions);
        let Some(action) = actions.iter().find(|action| action.name == method.name()) else { continue };
        for (message, fields) in [(method.input(), action.request), (method.output(), action.response)] {
            same_names(method.full_name(), &message, fields);
        }
    }
}

/// Checks that a message of version 1 has the fields of a table, with their types. Rules are those of the kinds.
fn same_names(path: &str, message: &MessageDescriptor, fields: &'static [Field]) {
    let camel = |name: &str| name.to_lower_camel_case();
    let mut proto: Vec<_> =
        message.fields().map(|field| (camel(field.name()), proto_type(&field), oneof_of(&field))).collect();
    let mut tables: Vec<_> =
        fields.iter().map(|field| (camel(field.name), table_type(&field.ty), field.oneof.map(str::to_owned))).collect();
    proto.sort();
    tables.sort();
    assert_eq!(proto, tables, "{path} {}", message.full_name());
    for field in message.fields() {
        let table = fields.iter().find(|one| camel(one.name) == camel(field.name())).unwrap();
        let message = match field.kind() {
            Proto::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        if let (Proto::Message(message), Some(fields)) = (message, inner(&table.ty)) {
            same_names(path, &message, fields);
        }
    }
}

fn oneof_of(field: &FieldDescriptor) -> Option<String> {
    field.containing_oneof().filter(|oneof| !oneof.is_synthetic()).map(|oneof| oneof.name().to_owned())
}

fn services_of_version_1(pool: &DescriptorPool) -> Vec<MethodDescriptor> {
    let is_it = |package: &str| SERVICES.iter().any(|one| one.kind.domain.version_of_package(package).is_some());
    let services = pool.services().filter(|service| is_it(service.package_name()));
    services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

fn proto_line(pool: &DescriptorPool, method: &MethodDescriptor) -> String {
    let rule = extension(&method.options(), "contract.rule");
    let text = |rule: &Option<DynamicMessage>, name: &str| {
        let value = rule.as_ref().and_then(|rule| rule.get_field_by_name(name).map(|value| value.into_owned()));
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let field = |name: &str| rule.as_ref().map(|rule| rule.get_field_by_name(name).unwrap().into_owned());
    let held = field("capabilities").map(|held| held.as_list().unwrap().to_vec()).unwrap_or_default();
    let held: Vec<_> = held.iter().map(|value| capability(pool, value)).collect();
    let open = field("open").and_then(|open| open.as_bool()).unwrap_or_default();
    let (verb, path) = http_rule(method);
    let held = held.iter().map(String::as_str).collect();
    line(method.parent_service().name(), method.name(), (&verb, &path), held, open, &text(&rule, "event"))
}

fn action_lines(registered: &'static Registered) -> impl Iterator<Item = String> {
    let kind = registered.kind;
    registered.actions.iter().map(move |action| {
        let (held, open) = needs(action);
        let path = format!("/{}/{}/{}", kind.domain.name, kind.domain.version(), action.path);
        // Some actions have no HTTP rule.
        let http = if action.path.is_empty() { ("", "") } else { (action.http.name(), path.as_str()) };
        line(kind.service, action.name, http, held, open, action.event.unwrap_or_default())
    })
}

/// Returns the identifiers of capabilities, without those that the enum of the contract lacks.
fn ids(held: &'static [Capability]) -> Vec<&'static str> {
    held.iter().map(|one| one.id()).filter(|id| platform_core::capabilities::by_id(id).is_some()).collect()
}

fn needs(action: &'static Action) -> (Vec<&'static str>, bool) {
    match action.authorization {
        Authorization::Public => (Vec::new(), true),
        Authorization::Authenticated => (Vec::new(), false),
        Authorization::At(_, held) | Authorization::Anywhere(held) | Authorization::FiltersResult(held) => {
            (ids(held), false)
        }
        Authorization::As(kind, verb, _) => (ids(kind.method(verb).unwrap().capabilities), false),
    }
}

const fn http(verb: Verb) -> &'static str {
    match verb {
        Verb::List | Verb::Get => "GET",
        Verb::Create => "POST",
        Verb::Update => "PATCH",
        Verb::Delete => "DELETE",
    }
}

fn path(kind: &Kind, method: &Method) -> String {
    match (method.verb, method.path, kind.parent) {
        (_, Some(path), _) => path.to_owned(),
        (_, _, Parent::Singleton(of, path)) => {
            let plural = of.plural;
            format!("{plural}/{{uid=**}}/{path}")
        }
        (Verb::List, ..) => kind.plural.to_owned(),
        (Verb::Create, ..) => format!("{}/{{parent=**}}", kind.plural),
        _ => format!("{}/{{uid=**}}", kind.plural),
    }
}

#[test]
fn resources_have_the_fields_of_the_tables_with_their_types_and_rules() {
    let pool = compile::pool();
    let (mut proto, mut tables) = (BTreeSet::new(), BTreeSet::new());
    for (Registered { kind, .. }, message) in messages(&pool) {
        message_fields(kind.name, &message, false, &mut proto);
        table_fields(kind.name, kind.fields, false, &mut tables);
    }
    assert_same(proto, tables);
}

#[test]
fn replies_always_have_the_fields_that_the_contract_requires() {
    let pool = compile::pool();
    let mut required = 0;
    for (Registered { kind, .. }, message) in messages(&pool) {
        required += required_fields(kind.name, &message, kind.fields);
    }
    assert!(required > 30, "{required}");
}

/// Counts the required fields of a message. Each of them must be one that the table always writes.
fn required_fields(prefix: &str, message: &MessageDescriptor, fields: &'static [Field]) -> usize {
    let mut required = 0;
    for proto in message.fields() {
        let path = format!("{prefix}.{}", proto.name().to_lower_camel_case());
        let Some(field) = fields.iter().find(|field| field.name == proto.name().to_lower_camel_case()) else {
            continue;
        };
        if field_behaviors(&proto).contains("REQUIRED") {
            assert!(field.is_written(), "replies leave out {path} when it is empty");
            required += 1;
        }
        if let (Proto::Message(message), Some(fields)) = (proto.kind(), inner(&field.ty)) {
            required += required_fields(&path, &message, fields);
        }
    }
    required
}

#[test]
fn requests_and_responses_have_the_fields_of_the_tables() {
    let pool = compile::pool();
    let (mut proto, mut tables) = (BTreeSet::new(), BTreeSet::new());
    let of_contract = of_contract(&pool);
    for method in services(&pool) {
        let owner = of_contract.iter().filter(|one| one.kind.service == method.parent_service().name());
        let owner: Vec<_> = owner.collect();
        let action = owner.iter().flat_map(|one| one.actions).find(|action| action.name == method.name());
        if let Some(action) = action {
            // All fields of a response are output-only, whether or not the file says so.
            for (message, fields, output) in
                [(method.input(), action.request, false), (method.output(), action.response, true)]
            {
                message_fields(message.name(), &message, output, &mut proto);
                table_fields(message.name(), fields, output, &mut tables);
            }
            continue;
        }
        let mut kinds = owner.iter().map(|registered| registered.kind);
        let has_method = |kind: &&'static Kind| kind.methods.iter().any(|one| kind.rpc(one.verb) == method.name());
        let Some(kind) = kinds.find(has_method) else { panic!("no kind has {}", method.full_name()) };
        let names =
            |message: MessageDescriptor| message.fields().map(|field| field.name().to_owned()).collect::<Vec<_>>();
        let resource = |message: MessageDescriptor| {
            let is_it = |field: &FieldDescriptor| field.kind().as_message() == Some(&method.output());
            message.fields().find(is_it).map(|field| field.name().to_owned()).unwrap_or_default()
        };
        let resource = resource(method.input());
        match method.name().strip_suffix(kind.name) {
            Some("Get" | "Delete") => assert_eq!(names(method.input()), ["uid"]),
            Some("Create") => assert_eq!(names(method.input()), ["parent", &resource]),
            Some("Update") => assert_eq!(names(method.input()), [&resource, "update_mask"]),
            _ => {
                let name = method.input().name().to_owned();
                message_fields(&name, &method.input(), false, &mut proto);
                let in_message = list_fields(kind).filter(|field| !field.rest_only);
                in_message.for_each(|field| table_field(&name, field, false, &mut tables));
                assert_eq!(names(method.output())[1..], ["next_page_token", "total_count", "skipped"]);
                assert_eq!(method.output().fields().next().unwrap().json_name(), kind.plural);
            }
        }
    }
    assert_same(proto, tables);
}

fn message_fields(prefix: &str, message: &MessageDescriptor, output: bool, found: &mut BTreeSet<String>) {
    for field in message.fields() {
        let rules = field_behaviors(&field);
        let output = output || rules.contains("OUTPUT_ONLY");
        let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        let oneof = oneof.map(|oneof| oneof.name().to_owned());
        // This project ignores the `json_name` of a file.
        let path = format!("{prefix}.{}", field.name().to_lower_camel_case());
        let is = |rule: &str| rules.contains(rule);
        found.insert(described(
            &path,
            &proto_type(&field),
            output,
            is("IMMUTABLE"),
            is("INPUT_ONLY"),
            oneof.as_deref(),
        ));
        let inner = match field.kind() {
            Proto::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        if let Proto::Message(inner) = inner
            && !inner.full_name().starts_with("google.protobuf.")
        {
            message_fields(&path, &inner, output, found);
        }
    }
}

fn table_fields(prefix: &str, fields: &'static [Field], output: bool, found: &mut BTreeSet<String>) {
    fields.iter().filter(|field| !field.rest_only).for_each(|field| table_field(prefix, field, output, found));
}

fn table_field(prefix: &str, field: &'static Field, output: bool, found: &mut BTreeSet<String>) {
    let path = format!("{prefix}.{}", field.name);
    let output = output || field.access == Access::OutputOnly;
    let (immutable, input) = (field.access == Access::Immutable, field.access == Access::InputOnly);
    found.insert(described(&path, &table_type(&field.ty), output, immutable, input, field.oneof));
    if let Some(inner) = inner(&field.ty) {
        table_fields(&path, inner, output, found);
    }
}

fn described(path: &str, ty: &str, output: bool, immutable: bool, input: bool, oneof: Option<&str>) -> String {
    let rules = [(output, " output-only"), (immutable, " immutable"), (input, " input-only")];
    let rules: String = rules.into_iter().filter_map(|(holds, rule)| holds.then_some(rule)).collect();
    format!("{path}: {ty}{rules}{}", oneof.map(|oneof| format!(" of {oneof}")).unwrap_or_default())
}

fn field_behaviors(field: &FieldDescriptor) -> BTreeSet<String> {
    let options = field.options();
    let pool = field.parent_pool();
    let extension = pool.get_extension_by_name("google.api.field_behavior").unwrap();
    let names = pool.get_enum_by_name("google.api.FieldBehavior").unwrap();
    let values = options.get_extension(&extension);
    let numbers = values.as_list().unwrap_or_default().iter().filter_map(Value::as_enum_number);
    numbers.map(|number| names.get_value(number).unwrap().name().to_owned()).collect()
}

fn proto_type(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Proto::Message(entry) if field.is_map() => {
            return format!("map of {}", proto_kind(&entry.map_entry_value_field().kind()));
        }
        kind => proto_kind(&kind),
    };
    if field.is_list() { format!("list of {kind}") } else { kind }
}

fn proto_kind(kind: &Proto) -> String {
    match kind {
        Proto::String => "string".to_owned(),
        Proto::Bool => "bool".to_owned(),
        // The tables have one type for numbers of 32 bits.
        Proto::Int32 | Proto::Uint32 => "int32".to_owned(),
        Proto::Int64 => "int64".to_owned(),
        Proto::Bytes => "bytes".to_owned(),
        Proto::Enum(names) if names.name() == "Capability" => "capability".to_owned(),
        Proto::Enum(names) => {
            let mut values: Vec<_> = names.values().map(|value| (value.number(), value.name().to_owned())).collect();
            values.sort();
            // The platform reads an enum number as an index into its list of names; in version 1 it reads only names.
            let has_numbers = names.full_name().contains(".v2");
            assert!(
                !has_numbers || values.iter().map(|(number, _)| *number).eq(0..values.len() as i32),
                "{}",
                names.full_name()
            );
            format!("one of {}", values.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" "))
        }
        Proto::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => "timestamp".to_owned(),
            "google.protobuf.Duration" => "duration".to_owned(),
            "google.protobuf.FieldMask" => "mask".to_owned(),
            _ => "message".to_owned(),
        },
        other => panic!("{other:?} is not a type of the tables"),
    }
}

fn table_type(ty: &Type) -> String {
    match ty {
        Type::String => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Bytes => "bytes".to_owned(),
        Type::Timestamp => "timestamp".to_owned(),
        Type::Duration => "duration".to_owned(),
        Type::Enum(names) => format!("one of {}", names.join(" ")),
        Type::Capability => "capability".to_owned(),
        Type::FieldMask => "mask".to_owned(),
        Type::Message(_) => "message".to_owned(),
        Type::List(element) => format!("list of {}", table_type(element)),
        Type::Map(element) => format!("map of {}", table_type(element)),
    }
}

fn inner(ty: &'static Type) -> Option<&'static [Field]> {
    match ty {
        Type::Message(fields) => Some(fields),
        Type::List(element) | Type::Map(element) => inner(element),
        _ => None,
    }
}

#[test]
fn the_kinds_that_rest_alone_serves_match_the_committed_file() {
    let known: Vec<_> = of_contract(&compile::pool()).iter().map(|one| one.kind.name).collect();
    let mut text = "# The kinds that no `.proto` file has, so that REST alone serves them.\n\n".to_owned();
    for kind in
        KINDS.iter().chain(platform_v1::resources::KINDS).map(|one| one.kind).filter(|kind| !known.contains(&kind.name))
    {
        text += &format!("{}\n", kind.name);
    }
    snapshot::assert_snapshot("tests/rest_only.txt", &text);
}

#[test]
fn capabilities_have_the_numbers_of_the_tables() {
    let pool = compile::pool();
    let names = pool.get_enum_by_name("chainguard.capabilities.Capability").unwrap();
    let of = |name: &str, number: i64| format!("{name} {number}");
    let proto = names.values().filter(|value| value.number() > 0);
    let proto = proto.map(|value| of(value.name(), value.number().into())).collect();
    let tables = platform_core::capabilities::all().map(|one| of(one.id(), one.number().into())).collect();
    assert_same(proto, tables);
}

#[test]
fn every_example_is_a_valid_message_without_its_rest_only_fields() {
    let pool = compile::pool();
    for (registered, message) in messages(&pool) {
        let (kind, name) = (registered.kind, message.full_name().to_owned());
        let mut example = (registered.example)();
        for field in kind.fields.iter().filter(|field| field.rest_only) {
            example.as_object_mut().unwrap().remove(field.name);
        }
        let text = example.to_string().replace("\"syncConfig\":", "\"sync_config\":");
        let mut json = serde_json::Deserializer::from_str(&text);
        DynamicMessage::deserialize(message, &mut json).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[track_caller]
fn assert_same(proto: BTreeSet<String>, tables: BTreeSet<String>) {
    let is_listed = |line: &String| EXCEPTIONS.iter().any(|(listed, _)| line.starts_with(listed));
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        a.difference(b).filter(|line| !is_listed(line)).cloned().collect::<Vec<_>>()
    };
    let difference = BTreeMap::from([("proto", only(&proto, &tables)), ("tables", only(&tables, &proto))]);
    assert!(difference.values().all(Vec::is_empty), "{difference:#?}");
}
