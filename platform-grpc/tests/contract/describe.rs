//! Reads the options of the `.proto` files.

use heck::ToLowerCamelCase;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};

/// Returns an option whose type is a message.
pub(crate) fn extension(options: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    use prost_reflect::ReflectMessage;
    let extension = options.descriptor().parent_pool().get_extension_by_name(name).unwrap();
    options.has_extension(&extension).then(|| options.get_extension(&extension).as_message().unwrap().clone())
}

/// Returns the HTTP method and the path of an RPC, with path variables named as in REST.
pub(crate) fn http_rule(method: &MethodDescriptor) -> (String, String) {
    // Some methods have no rule.
    let Some(rule) = extension(&method.options(), "google.api.http") else { return Default::default() };
    let verbs = ["get", "put", "post", "patch", "delete"];
    let (verb, path) = verbs
        .iter()
        .filter(|verb| rule.has_field_by_name(verb))
        .map(|verb| (verb.to_uppercase(), rule.get_field_by_name(verb).unwrap().as_str().unwrap().to_owned()))
        .next()
        .unwrap();
    (verb, path.split('/').map(segment).collect::<Vec<_>>().join("/"))
}

/// Turns `{group.uid=**}` into `{uid=**}`, and `{repo_uid=**}` into `{repoUid=**}`.
fn segment(segment: &str) -> String {
    let Some((before, rest)) = segment.split_once('{') else { return segment.to_owned() };
    let (name, rest) = rest.split_at(rest.find(['=', '}']).unwrap());
    let name = name.rsplit('.').next().unwrap();
    format!("{before}{{{}{rest}", name.to_lower_camel_case())
}

/// Returns the name of a capability.
pub(crate) fn capability(pool: &DescriptorPool, value: &Value) -> String {
    let names = pool.get_enum_by_name("chainguard.capabilities.Capability").unwrap();
    names.get_value(value.as_enum_number().unwrap()).unwrap().name().to_owned()
}
