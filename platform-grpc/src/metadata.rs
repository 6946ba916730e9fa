//! Parameters in metadata, for which the messages of the contract have no field: the filters of lists and the read masks of
//! lists and gets (`docs/api.md`, Filters, Read masks).

use platform_engine::{
    aip::read_mask,
    error::{Error, Result},
    request::FILTER,
};
use tonic::metadata::MetadataMap;

use crate::methods::Operation;

/// Returns the filter of a call.
///
/// # Errors
/// INVALID_ARGUMENT when the call is not a list of a kind, when there are several filters, and when one is not ASCII.
pub(crate) fn filter(operation: &Operation, metadata: &MetadataMap) -> Result<Option<String>> {
    let refusal = match operation {
        Operation::List(..) => None,
        _ => Some("must not be sent: only the lists of version 2 have a filter"),
    };
    text(metadata, "x-filter", FILTER.name, refusal)
}

/// Returns the read mask of a call.
///
/// # Errors
/// INVALID_ARGUMENT when the call is neither a list nor a get of a kind, when there are several masks, and when one is
/// not ASCII.
pub(crate) fn read_mask(operation: &Operation, metadata: &MetadataMap) -> Result<Option<String>> {
    let refusal = match operation {
        Operation::List(..) | Operation::Get(..) => None,
        _ => Some("must not be sent: only the lists and gets of version 2 have a read mask"),
    };
    text(metadata, "x-read-mask", read_mask::NAME, refusal)
}

/// Returns the only value of a key. `field` is its name in errors, and `refusal` says why the call must not have it.
fn text(metadata: &MetadataMap, key: &str, field: &str, refusal: Option<&str>) -> Result<Option<String>> {
    let mut all = metadata.get_all(key).iter();
    let invalid = |rule: &str| Err(Error::invalid_field(field, rule));
    match (all.next(), all.next(), refusal) {
        (None, ..) => Ok(None),
        (Some(_), _, Some(refusal)) => invalid(refusal),
        (Some(text), None, None) => match text.to_str() {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => invalid("must be ASCII, with other characters in quotes as `\\u263a`"),
        },
        (Some(_), Some(_), None) => invalid("is specified more than once"),
    }
}
