//! Property tests of encoding and decoding: every message of the contract with random values, compared with
//! `prost-reflect`, which does the same by way of a tree.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use heck::ToLowerCamelCase;
use platform_core::proto::FILE_DESCRIPTOR_SET;
use platform_engine::timestamp::Timestamp;
use proptest::{
    option,
    prelude::{BoxedStrategy, Just, Strategy, any},
    sample,
    strategy::Union,
    test_runner::{Config, TestRunner},
};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

use super::{Plan, Writer};
use crate::{decode, item_cache::ItemCache};

const CASES: u32 = 48;
const REGISTRY: &str = "chainguard.platform.registry.v2";

/// Returns every message that a method takes or returns, and every message nested in one.
fn messages() -> Vec<MessageDescriptor> {
    fn add(message: MessageDescriptor, names: &mut BTreeSet<String>, found: &mut Vec<MessageDescriptor>) {
        if message.package_name().starts_with("google.protobuf") || !names.insert(message.full_name().to_owned()) {
            return;
        }
        for field in message.fields() {
            if let Kind::Message(inner) = field.kind() {
                add(inner, names, found);
            }
        }
        if !message.is_map_entry() {
            found.push(message);
        }
    }
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let (mut names, mut found) = (BTreeSet::new(), Vec::new());
    for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        if !method.full_name().contains(".v2beta1.") {
            add(method.input(), &mut names, &mut found);
            add(method.output(), &mut names, &mut found);
        }
    }
    found
}

/// Generates JSON as REST writes it, with the names in random order.
fn any_message(message: &MessageDescriptor) -> BoxedStrategy<Value> {
    let alone = |field: &FieldDescriptor| field.containing_oneof().is_none_or(|oneof| oneof.is_synthetic());
    let entry = |field: &FieldDescriptor| {
        any_field(field).prop_map({
            let name = field.json_name().to_owned();
            move |value| (name.clone(), value)
        })
    };
    let mut entries: Vec<BoxedStrategy<Option<(String, Value)>>> =
        message.fields().filter(alone).map(|field| option::of(entry(&field)).boxed()).collect();
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        entries.push(option::of(Union::new(oneof.fields().map(|field| entry(&field)))).boxed());
    }
    let object = |entries: Vec<Option<(String, Value)>>| Value::Object(entries.into_iter().flatten().collect());
    entries.prop_shuffle().prop_map(object).boxed()
}

fn any_field(field: &FieldDescriptor) -> BoxedStrategy<Value> {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            // At most one entry: `prost-reflect` writes several in random order.
            let (key, value) =
                (any_value(&entry.map_entry_key_field().kind()), any_field(&entry.map_entry_value_field()));
            let map = |entry: Option<(Value, Value)>| {
                let text = |key: Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                Value::Object(entry.into_iter().map(|(key, value)| (text(key), value)).collect())
            };
            option::of((key, value)).prop_map(map).boxed()
        }
        kind if field.is_list() => proptest::collection::vec(any_value(&kind), 0..3).prop_map(Value::Array).boxed(),
        kind => any_value(&kind),
    }
}

fn any_value(kind: &Kind) -> BoxedStrategy<Value> {
    match kind {
        Kind::String => {
            Union::new([Just(String::new()).boxed(), any::<String>().boxed()]).prop_map(Value::String).boxed()
        }
        Kind::Bytes => any::<Vec<u8>>().prop_map(|bytes| STANDARD.encode(bytes).into()).boxed(),
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        // The tables have no larger numbers.
        Kind::Uint32 => (0..=i32::MAX).prop_map(Value::from).boxed(),
        Kind::Int64 => any::<i64>().prop_map(|number| number.to_string().into()).boxed(),
        Kind::Enum(names) => {
            let names: Vec<_> = names.values().map(|value| value.name().to_owned()).collect();
            sample::select(names).prop_map(Value::String).boxed()
        }
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => (Timestamp::MIN.millis()..=Timestamp::MAX.millis())
                .prop_map(|millis| Timestamp::from_millis(millis).to_string().into())
                .boxed(),
            "google.protobuf.Duration" => (-1_000_000_i32..1_000_000, 0..1000_u32)
                .prop_map(|(seconds, millis)| format!("{seconds}.{millis:03}s").into())
                .boxed(),
            "google.protobuf.FieldMask" => {
                sample::select(vec!["name", "name,description", "*"]).prop_map(Value::from).boxed()
            }
            _ => any_message(message),
        },
        other => panic!("the contract does not use {other:?}"),
    }
}

/// Returns the JSON without values that equal an unset field, and with timestamps in one form.
fn normal(message: &MessageDescriptor, value: &Value) -> Value {
    let object = value.as_object().unwrap();
    let fields = message.fields().filter_map(|field| {
        let value = object.get(&field.name().to_lower_camel_case()).or_else(|| object.get(field.json_name()))?;
        let value = normal_field(&field, value);
        let is_default = match (&field.kind(), &value) {
            (_, Value::Array(values)) => values.is_empty(),
            (_, Value::Object(values)) => field.is_map() && values.is_empty(),
            (Kind::Enum(names), Value::String(name)) => names.get_value(0).unwrap().name() == name,
            (Kind::Int64, value) => *value == json!("0"),
            (_, value) => [json!(""), json!(0), json!(false)].contains(value),
        };
        (field.supports_presence() || !is_default).then(|| (field.json_name().to_owned(), value))
    });
    Value::Object(fields.collect())
}

fn normal_field(field: &FieldDescriptor, value: &Value) -> Value {
    match (field.kind(), value) {
        (Kind::Message(entry), Value::Object(values)) if field.is_map() => {
            let inner = entry.map_entry_value_field();
            let mut sorted: Map<String, Value> = Map::new();
            values.iter().for_each(|(key, value)| drop(sorted.insert(key.clone(), normal_field(&inner, value))));
            Value::Object(sorted)
        }
        (kind, Value::Array(values)) => values.iter().map(|value| normal_value(&kind, value)).collect(),
        (kind, value) => normal_value(&kind, value),
    }
}

fn normal_value(kind: &Kind, value: &Value) -> Value {
    let Kind::Message(message) = kind else { return value.clone() };
    let text = value.as_str().unwrap_or_default();
    match message.full_name() {
        "google.protobuf.Timestamp" => Timestamp::parse(text).unwrap().to_string().into(),
        "google.protobuf.Duration" => {
            let seconds: f64 = text.trim_end_matches('s').parse().unwrap();
            seconds.into()
        }
        "google.protobuf.FieldMask" => value.clone(),
        _ => normal(message, value),
    }
}

#[test]
fn every_message_round_trips_and_its_bytes_equal_those_of_prost_reflect() {
    let messages = messages();
    assert!(messages.len() > 150, "{}", messages.len());
    for message in messages {
        let has_mask =
            message.fields().any(|field| field.kind().as_message().is_some_and(|kind| kind.name() == "FieldMask"));
        let plan = if has_mask { None } else { Some(Plan::of(&message, &[]).unwrap()) };
        let test = |json: Value| {
            // The one field whose `json_name` in the file differs from the name that REST uses.
            let theirs = json.to_string().replace("\"syncConfig\":", "\"sync_config\":");
            let mut theirs_json = serde_json::Deserializer::from_str(&theirs);
            let expected = DynamicMessage::deserialize(message.clone(), &mut theirs_json).unwrap().encode_to_vec();
            if let Some(plan) = &plan {
                proptest::prop_assert_eq!(&plan.encode(json.to_string().as_bytes()).unwrap(), &expected);
                proptest::prop_assert_eq!(&plan.encode_value(&json).unwrap(), &expected);
            }
            let back = decode::object(decode::message(&message, expected.into()).unwrap()).unwrap();
            proptest::prop_assert_eq!(normal(&message, &Value::Object(back)), normal(&message, &json));
            Ok(())
        };
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new(config);
        runner.run(&any_message(&message), test).unwrap_or_else(|error| panic!("{}: {error}", message.full_name()));
    }
}

fn plan(name: &str) -> (MessageDescriptor, std::sync::Arc<Plan>) {
    let message = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap().get_message_by_name(name).unwrap();
    let plan = Plan::of(&message, &[]).unwrap();
    (message, plan)
}

#[test]
fn large_maps_and_long_messages_are_encoded_completely() {
    let (message, plan) = plan("chainguard.platform.registry.v2.Repo");
    let long = "x".repeat(20_000);
    let json = json!({
        "customOverlay": { "environment": { "A": "1", "B": "", "C": long, "": "2" }, "contents": {} },
        "name": long, "aliases": ["", "b"], "uid": "63921b2c44617e3f2603851537be0123af4a57d7",
    });
    let bytes = plan.encode_value(&json).unwrap();
    let back = decode::object(decode::message(&message, bytes.into()).unwrap()).unwrap();
    assert_eq!(Value::Object(back), json);
}

#[test]
fn a_cached_encoding_is_that_of_the_same_json_and_of_the_same_message() {
    let (cache, [repo, tag]) =
        (ItemCache::default(), ["Repo", "Tag"].map(|name| plan(&format!("{REGISTRY}.{name}")).1));
    // The last one is too long for the cache.
    let names = ["a".to_owned(), "b".to_owned(), "x".repeat(20_000)];
    let jsons = names.map(|name| json!({ "name": name, "deprecated": true, "uid": "63921b2c44617e3f" }).to_string());
    for _ in 0..2 {
        for (plan, json) in [&repo, &tag].into_iter().flat_map(|plan| jsons.iter().map(move |json| (plan, json))) {
            let mut writer = Writer::with_capacity(0);
            // Bytes that were written before are not part of the entry.
            writer.varint(7);
            cache.append(plan, json.as_bytes(), &mut writer).unwrap();
            let expected = [vec![7], plan.encode(json.as_bytes()).unwrap()].concat();
            assert_eq!(writer.into_bytes(), expected, "{json}");
            assert_eq!(cache.encode(plan, json.as_bytes()).unwrap(), expected[1..], "{json}");
        }
    }
    let mut writer = Writer::with_capacity(0);
    cache.append(&tag, br#"{"name":1}"#, &mut writer).unwrap_err();
    cache.append(&tag, b"{\"name\":\"\xff\"}", &mut writer).unwrap_err();
}

#[test]
fn unknown_names_and_nulls_are_skipped() {
    let (_, plan) = plan("chainguard.platform.registry.v2.Tag");
    let json = json!({ "createTime": "2026-01-02T03:04:05.678Z", "name": null, "extra": { "name": ["x"] }, "deprecated": true });
    assert_eq!(plan.encode_value(&json).unwrap(), [5 << 3, 1]);
}

#[test]
fn a_value_of_another_type_is_rejected_and_never_converted() {
    let (_, repo) = plan("chainguard.platform.registry.v2.Repo");
    let (_, size) = plan("chainguard.platform.registry.v2.Size");
    for (plan, json) in [
        (&repo, json!({ "name": 1 })),
        (&repo, json!({ "name": ["a"] })),
        (&repo, json!({ "aliases": "a" })),
        (&repo, json!({ "catalogTier": "NO_SUCH_TIER" })),
        (&repo, json!({ "createTime": "yesterday" })),
        (&repo, json!({ "customOverlay": { "environment": { "A": 1 } } })),
        (&size, json!({ "size": "1.5" })),
        (&size, json!({ "size": u64::MAX })),
        (&size, json!([])),
    ] {
        assert!(plan.encode_value(&json).is_err(), "{json}");
    }
}
