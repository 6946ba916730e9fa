//! From protobuf to JSON: requests, through a message that its descriptor describes.

use bytes::Bytes;
use platform_core::error::{Error, Result};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage, SerializeOptions, Value as Field,
};
use serde_json::{Map, Value};

/// Reads a request. Fields that are not known are ignored.
///
/// # Errors
/// INVALID_ARGUMENT for bytes that are no such message.
pub(crate) fn message(descriptor: &MessageDescriptor, bytes: Bytes) -> Result<DynamicMessage> {
    DynamicMessage::decode(descriptor.clone(), bytes)
        .map_err(|error| Error::invalid_field("message", format!("is no {}", descriptor.name())).because(error))
}

/// Returns a message as JSON: the fields that are populated (`docs/api.md`, gRPC).
///
/// # Errors
/// INVALID_ARGUMENT for what proto3 JSON cannot write, such as a time after the year 9999.
pub(crate) fn object(mut message: DynamicMessage) -> Result<Map<String, Value>> {
    let mask = take_mask(&mut message)?;
    let options = SerializeOptions::new().skip_default_fields(true);
    let json = message.serialize_with_options(serde_json::value::Serializer, &options);
    let json = json.map_err(|error| Error::invalid_field("message", error.to_string()))?;
    let Value::Object(mut object) = json else { return Ok(Map::new()) };
    if let Some((name, mask)) = mask {
        object.insert(name, mask.into());
    }
    Ok(object)
}

/// Returns a text field.
pub(crate) fn text(message: &DynamicMessage, name: &str) -> String {
    let field = message.get_field_by_name(name);
    field.as_deref().and_then(Field::as_str).unwrap_or_default().to_owned()
}

/// Takes a field that is a message; an empty one where it is not set.
pub(crate) fn take(message: &mut DynamicMessage, field: &FieldDescriptor) -> Result<DynamicMessage> {
    match message.take_field(field) {
        Some(Field::Message(inner)) => Ok(inner),
        _ => match Field::default_value_for_field(field) {
            Field::Message(inner) => Ok(inner),
            _ => Err(Error::internal(format!("`{}` is no message", field.full_name()))),
        },
    }
}

/// Takes a message's field mask, with its name in JSON; none when it has no paths. What its paths are is for the
/// platform to judge: proto3 JSON would refuse those that are not in snake_case.
///
/// # Errors
/// INVALID_ARGUMENT for a path with a comma, which separates paths in JSON.
pub(crate) fn take_mask(message: &mut DynamicMessage) -> Result<Option<(String, String)>> {
    let is_mask = |field: &FieldDescriptor| {
        let kind = field.kind();
        !field.is_list() && kind.as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.FieldMask")
    };
    let Some(field) = message.descriptor().fields().find(is_mask) else { return Ok(None) };
    let mask = message.take_field(&field);
    let paths = mask.as_ref().and_then(Field::as_message).and_then(|mask| mask.get_field_by_name("paths"));
    let paths = paths.as_deref().and_then(Field::as_list).unwrap_or_default();
    let paths: Vec<_> = paths.iter().filter_map(Field::as_str).collect();
    if let Some(path) = paths.iter().find(|path| path.contains(',')) {
        return Err(Error::invalid_field("update_mask", format!("`{path}` is no field of this resource")));
    }
    Ok((!paths.is_empty()).then(|| (field.json_name().to_owned(), paths.join(","))))
}
