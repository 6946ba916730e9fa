//! Gets of several resources at once (AIP-231; `docs/api.md`, Batch gets).

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{get, list::PAGE_BYTES, parse_uid};
use crate::{
    aip::read_mask::{self, ReadMask},
    context::Context,
    error::{Error, Result, Violations},
    fields,
    kind::{Field, Registered, Verb},
    request::READ_MASK,
    uid::Uid,
};

/// The maximum number of resources of a batch get (AIP-231 leaves it open). Our choice.
pub const MAX_UIDS: usize = 1000;

/// The fields of the request.
pub const REQUEST: &[Field] = &[
    Field::strings("uids")
        .about("The uids of the resources.")
        .required()
        .documented_pattern(Uid::PATTERN)
        .max_items(MAX_UIDS),
    READ_MASK,
];

/// The number of resources that are read at once, and thus the maximum number that are read in vain when the reply becomes
/// too long.
const AT_ONCE: usize = 50;

/// Returns the resources with the uids of the request, in their order; one that is named twice, twice. Resources are read
/// in steps, so they are as of different moments during the call.
///
/// # Errors
/// PERMISSION_DENIED if the caller may not get one of them, then NOT_FOUND for the first that does not exist; and
/// INVALID_ARGUMENT on `uids` when the resources have more than [`PAGE_BYTES`].
pub(crate) async fn batch_get(
    cx: &Context<'_>,
    registered: &Registered,
    request: &Map<String, Value>,
) -> Result<Vec<Bytes>> {
    let kind = registered.kind;
    let mut input = fields::read(REQUEST, cx.platform().capabilities(), request.clone(), None);
    input.require(REQUEST);
    let input = input.checked()?;
    let sent = input.get("uids").and_then(Value::as_array).into_iter().flatten();
    let mut violations = Violations::default();
    let mut uids = Vec::new();
    for (number, uid) in sent.enumerate() {
        match parse_uid(uid.as_str().unwrap_or_default()) {
            Ok(uid) => uids.push(uid),
            Err(rule) => violations.add(format!("uids[{number}]"), rule),
        }
    }
    violations.none_or(())?;
    for uid in &uids {
        cx.demand_method(kind, Verb::Get, uid)?;
    }
    let mask = input.get(READ_MASK.name).and_then(Value::as_str).unwrap_or_default();
    let invalid = |violations| Error::invalid(violations).rename_fields(|_| READ_MASK.name.to_owned());
    let mask = ReadMask::parse(mask, kind.fields).map_err(invalid)?;
    let (mut items, mut bytes, mut pace) = (Vec::with_capacity(uids.len()), 0_usize, cx.pace());
    for some in uids.chunks(AT_ONCE) {
        for body in get::read(cx, registered, some).await? {
            bytes = bytes.saturating_add(body.len());
            if bytes > PAGE_BYTES {
                let rule = format!("the resources have more than {} MiB; get fewer at once", PAGE_BYTES >> 20);
                return Err(Error::invalid_field("uids", rule));
            }
            pace.step(body.len()).await;
            items.push(read_mask::shown(mask.as_ref(), body)?);
        }
    }
    Ok(items)
}
