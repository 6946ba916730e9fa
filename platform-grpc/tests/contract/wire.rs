//! Checks that the wire format is only ever extended: `tests/wire.txt` is append-only.

use std::{collections::BTreeSet, fs, path::Path};

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};

use crate::{compile, snapshot};

#[test]
fn no_name_number_or_type_on_the_wire_is_changed_or_removed() {
    let found = wire();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire.txt");
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let committed: BTreeSet<_> = committed.lines().map(str::to_owned).collect();
    let gone: Vec<_> = committed.difference(&found).collect();
    assert!(gone.is_empty(), "clients and stored bytes depend on these: {gone:#?}");
    if snapshot::updates() {
        let lines: Vec<_> = found.iter().map(String::as_str).collect();
        fs::write(path, lines.join("\n") + "\n").unwrap();
        return;
    }
    let new: Vec<_> = found.difference(&committed).collect();
    assert!(new.is_empty(), "new on the wire; accept permanently with UPDATE_EXPECT=1: {new:#?}");
}

/// Describes all methods, fields and enum values, one per line. Skips `v2beta1`, whose packages equal those of `v2`.
fn wire() -> BTreeSet<String> {
    let pool = compile::pool();
    let ours = |package: &str| package.starts_with("chainguard.") && !package.ends_with(".v2beta1");
    let services = pool.services().filter(|service| ours(service.package_name()));
    let messages = pool.all_messages().filter(|message| ours(message.package_name()) && !message.is_map_entry());
    let enums = pool.all_enums().filter(|names| ours(names.package_name()));
    let methods = services.flat_map(|service| service.methods().map(|one| method(&one)).collect::<Vec<_>>());
    methods.chain(messages.flat_map(|message| fields(&message))).chain(enums.flat_map(|names| values(&names))).collect()
}

fn method(method: &MethodDescriptor) -> String {
    let stream = |streams: bool| if streams { "stream " } else { "" };
    let (input, output) = (method.input(), method.output());
    let (sent, got) = (stream(method.is_client_streaming()), stream(method.is_server_streaming()));
    format!("rpc {} {sent}{} {got}{}", method.full_name(), input.full_name(), output.full_name())
}

fn fields(message: &MessageDescriptor) -> Vec<String> {
    let name = message.full_name();
    let fields = message.fields().map(|field| {
        let oneof = field.containing_oneof().map(|oneof| format!(" oneof {}", oneof.name())).unwrap_or_default();
        format!("message {name} {} {} {}{oneof}", field.number(), field.name(), ty(&field))
    });
    let reserved = message.reserved_ranges().map(|range| format!("message {name} {range:?} reserved"));
    std::iter::once(format!("message {name}")).chain(fields).chain(reserved).collect()
}

fn ty(field: &FieldDescriptor) -> String {
    let name = |field: &FieldDescriptor| match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(names) => names.full_name().to_owned(),
        kind => format!("{kind:?}"),
    };
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            format!("map {} {}", name(&entry.map_entry_key_field()), name(&entry.map_entry_value_field()))
        }
        _ if field.is_packed() => format!("packed {}", name(field)),
        _ if field.is_list() => format!("repeated {}", name(field)),
        _ => name(field),
    }
}

fn values(names: &EnumDescriptor) -> Vec<String> {
    names.values().map(|value| format!("enum {} {} {}", names.full_name(), value.number(), value.name())).collect()
}
