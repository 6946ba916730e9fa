//! Decodes requests from protobuf to JSON, by way of a dynamic message.

use bytes::Bytes;
use platform_engine::{
    error::{Error, Result},
    json::MAX_VALUES,
    kind::Type,
};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, SerializeOptions, Value as Field,
};
use serde_json::{Map, Value};

/// Decodes a request. Ignores unknown fields.
///
/// # Errors
/// INVALID_ARGUMENT when the bytes are not such a message.
pub(crate) fn message(descriptor: &MessageDescriptor, bytes: Bytes) -> Result<DynamicMessage> {
    DynamicMessage::decode(descriptor.clone(), bytes).map_err(|error| {
        Error::invalid_field("message", format!("must be a valid {}", descriptor.name())).because(error)
    })
}

/// The depth to which messages are searched for elements: the recursion limit of the decoder.
const MAX_DEPTH: usize = 100;

/// Checks the number of elements in all repeated fields of a request together, at any depth, before any memory is
/// allocated for them: an element can take as little as two bytes on the wire but takes about a hundred in memory. Accepts
/// malformed bytes, which [`message`] rejects.
///
/// # Errors
/// INVALID_ARGUMENT for more than [`MAX_VALUES`].
pub(crate) fn check_elements(descriptor: &MessageDescriptor, bytes: &[u8]) -> Result<()> {
    match count_elements(descriptor, bytes, &mut 0, MAX_DEPTH) {
        Some(Err(field)) => {
            let rule = format!("the request must have at most {MAX_VALUES} elements in all repeated fields together");
            Err(Error::invalid_field(field.json_name(), rule))
        }
        Some(Ok(())) | None => Ok(()),
    }
}

/// Adds the elements of a message and of the messages in it to `count`. Returns None when the bytes are malformed, and
/// the field that exceeds the maximum as the inner error.
fn count_elements(
    descriptor: &MessageDescriptor,
    mut bytes: &[u8],
    count: &mut usize,
    depth: usize,
) -> Option<std::result::Result<(), FieldDescriptor>> {
    let depth = depth.checked_sub(1)?;
    while !bytes.is_empty() {
        // Reads the tag, which holds the field number and the wire type. A tag is a varint, as a length delimiter is.
        let key = prost::decode_length_delimiter(&mut bytes).ok()?;
        let (number, wire_type) = (u32::try_from(key >> 3).ok()?, key & 7);
        let length = match wire_type {
            0 => prost::decode_length_delimiter(&mut bytes).ok().map(|_| 0)?,
            1 => 8,
            2 => prost::decode_length_delimiter(&mut bytes).ok()?,
            5 => 4,
            // The start or the end of a group. The decoder skips groups, but the fields inside one are counted all the
            // same.
            3 | 4 => 0,
            _ => return None,
        };
        let (value, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        let Some(field) = descriptor.get_field(number) else { continue };
        if field.is_list() || field.is_map() {
            // Packed values take at least one byte each.
            let is_packed = wire_type == 2 && !matches!(field.kind(), Kind::Message(_) | Kind::String | Kind::Bytes);
            *count += if is_packed { value.len() } else { 1 };
            if *count > MAX_VALUES {
                return Some(Err(field));
            }
        }
        if let (2, Kind::Message(inner)) = (wire_type, field.kind())
            && let Err(field) = count_elements(&inner, value, count, depth)?
        {
            return Some(Err(field));
        }
    }
    Some(Ok(()))
}

/// Converts a message to JSON, with the populated fields only (`docs/api.md`, gRPC).
///
/// # Errors
/// INVALID_ARGUMENT for values that proto3 JSON cannot represent, such as a timestamp after the year 9999.
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

/// Adds the required booleans that a request lacks: protobuf does not send `false`.
pub(crate) fn add_unset(fields: &[platform_engine::kind::Field], request: &mut Map<String, Value>) {
    for field in fields.iter().filter(|field| field.required && matches!(field.ty, Type::Bool)) {
        request.entry(field.name).or_insert(false.into());
    }
}

/// Returns a string field; empty when it is not set.
pub(crate) fn text(message: &DynamicMessage, name: &str) -> String {
    let field = message.get_field_by_name(name);
    field.as_deref().and_then(Field::as_str).unwrap_or_default().to_owned()
}

/// Takes a message field; an empty message when it is not set.
pub(crate) fn take(message: &mut DynamicMessage, field: &FieldDescriptor) -> Result<DynamicMessage> {
    match message.take_field(field) {
        Some(Field::Message(inner)) => Ok(inner),
        _ => match Field::default_value_for_field(field) {
            Field::Message(inner) => Ok(inner),
            _ => Err(Error::internal(format!("the field `{}` is not a message", field.full_name()))),
        },
    }
}

/// Takes the field mask of a message, with its JSON name; None when it has no paths. The platform validates the paths:
/// proto3 JSON would reject those that are not in snake_case.
///
/// # Errors
/// INVALID_ARGUMENT for a path that contains a comma, which separates paths in JSON.
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
        return Err(Error::invalid_field("update_mask", format!("unknown field `{path}`")));
    }
    Ok((!paths.is_empty()).then(|| (field.json_name().to_owned(), paths.join(","))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform_core::proto::FILE_DESCRIPTOR_SET;
    use prost_reflect::DescriptorPool;

    fn request(name: &str) -> MessageDescriptor {
        DescriptorPool::decode(FILE_DESCRIPTOR_SET)
            .unwrap()
            .get_message_by_name(&format!("chainguard.platform.{name}"))
            .unwrap()
    }

    /// Encodes a length-delimited field.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        prost::encode_length_delimiter(value.len(), &mut bytes).unwrap();
        [bytes, value.to_vec()].concat()
    }

    #[test]
    fn the_number_of_elements_of_a_request_is_bounded_at_any_depth() {
        let update = request("registry.v2.UpdateRepoRequest");
        let aliases = |count: usize| field(1, &field(7, b"").repeat(count));
        // Users of the accounts of a repo's custom overlay.
        let users = |count: usize| field(1, &field(10, &field(4, &field(2, b"").repeat(count))));
        for several in [&aliases as &dyn Fn(usize) -> Vec<u8>, &users] {
            check_elements(&update, &several(MAX_VALUES)).unwrap();
            let error = check_elements(&update, &several(MAX_VALUES + 1)).unwrap_err();
            assert!(error.to_string().contains("8192 elements"), "{error}");
        }
        let both = [aliases(MAX_VALUES), users(1)].concat();
        assert!(check_elements(&update, &both).is_err());
        let batch = request("iam.v2.BatchCreateRoleBindingsRequest");
        assert!(check_elements(&batch, &field(2, b"").repeat(MAX_VALUES + 1)).is_err());
        // An empty group of an unknown field does not hide the elements after it.
        assert!(check_elements(&update, &[vec![0x7b, 0x7c], aliases(MAX_VALUES + 1)].concat()).is_err());
        // Packed enum values.
        let role = request("iam.v2.CreateRoleRequest");
        let capabilities = |count: usize| field(2, &field(4, &vec![1; count]));
        check_elements(&role, &capabilities(MAX_VALUES)).unwrap();
        assert!(check_elements(&role, &capabilities(MAX_VALUES + 1)).is_err());
    }

    #[test]
    fn malformed_or_too_deeply_nested_bytes_are_rejected_by_the_decoder() {
        let update = request("registry.v2.UpdateRepoRequest");
        for bytes in [&[0x80][..], &[10, 5, 1], &[11], &[0xff; 20], &[9, 1, 2], &field(1, &[0x3a])] {
            check_elements(&update, bytes).unwrap();
            assert!(message(&update, Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }
}
