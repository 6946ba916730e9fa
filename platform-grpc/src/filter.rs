//! The filters of lists (`docs/api.md`, Filters), which metadata has because the messages of the contract have no field
//! for them.

use platform_engine::{
    error::{Error, Result},
    request::FILTER,
};
use tonic::metadata::MetadataMap;

use crate::methods::Operation;

/// The key of the metadata.
const X_FILTER: &str = "x-filter";

/// Returns the filter of a call.
///
/// # Errors
/// INVALID_ARGUMENT when the call is not a list of a kind, when there are several filters, and when one is not ASCII.
pub(crate) fn of(operation: &Operation, metadata: &MetadataMap) -> Result<Option<String>> {
    let mut all = metadata.get_all(X_FILTER).iter();
    let invalid = |rule: &str| Err(Error::invalid_field(FILTER.name, rule));
    match (all.next(), all.next(), operation) {
        (None, ..) => Ok(None),
        (Some(filter), None, Operation::List(..)) => match filter.to_str() {
            Ok(filter) => Ok(Some(filter.to_owned())),
            Err(_) => invalid("must be ASCII, with other characters in quotes as `\\u263a`"),
        },
        (Some(_), Some(_), Operation::List(..)) => invalid("is specified more than once"),
        (Some(_), _, _) => invalid("must not be sent: only the lists of version 2 have a filter"),
    }
}
