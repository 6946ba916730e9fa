//! Gets of several resources as a method of our own (AIP-231; `docs/api.md`, Batch gets).

use std::{collections::HashMap, mem, sync::Arc};

use platform_engine::{
    access::Caller,
    error::{Error, Result},
    offload::Pace,
    platform::Platform,
};
use platform_http::{ApiMethod, Origin};
use prost_reflect::DescriptorPool;
use serde_json::{Map, Value};

use crate::{
    encode::{Plan, WireType, Writer},
    item_cache::ItemCache,
    methods::{BadContract, Method, Operation},
    own::{FILE_DESCRIPTOR_SET, Kinds},
    parts::{PART, Parts},
};

/// The service.
pub(crate) const SERVICE: &str = "platform.batch.v1.BatchService";

/// The name of the method.
const METHOD: &str = "BatchGet";

/// The path of the method.
pub(crate) const PATH: &str = "/platform.batch.v1.BatchService/BatchGet";

/// The field of the response, and those of `google.protobuf.Any`.
const RESOURCES: u32 = 1;
const TYPE_URL: u32 = 1;
const VALUE: u32 = 2;

/// Returns the method for the kinds of these methods.
///
/// # Errors
/// When the descriptors in this crate lack it.
pub(crate) fn method(methods: &HashMap<String, Arc<Method>>) -> Result<Method, BadContract> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)?;
    let service = pool.get_service_by_name(SERVICE);
    let found = service.and_then(|service| service.methods().find(|method| method.name() == METHOD));
    let described = found.ok_or_else(|| BadContract::Method(PATH.to_owned(), "descriptor"))?;
    Ok(Method {
        call: ApiMethod::new("grpc", format!("BatchService.{METHOD}")),
        operation: Operation::BatchGet(Kinds::of(methods)),
        domain: "",
        version: None,
        input: described.input(),
        output: Plan::of(&described.output(), &[])?,
    })
}

/// Returns the resources of a request as a message in parts.
///
/// # Errors
/// INVALID_ARGUMENT on `kind`; those of [`Platform::batch_get_erased`]; and those of [`Parts::push`].
pub(crate) async fn get(
    kinds: &Kinds,
    items: &ItemCache,
    platform: &Platform,
    caller: &Caller,
    origin: &Origin,
    mut request: Map<String, Value>,
) -> Result<Parts> {
    let kind = request.remove("kind");
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
    let of = kinds.find(kind, |kind| kind.batch_get().is_some(), "a get")?;
    let found = platform.batch_get_erased(caller, &of.registered, &request).await?;
    let (mut parts, mut pace) = (Parts::new(origin), Pace::new(platform.offload()));
    let mut writer = Writer::with_capacity(PART);
    for json in &found {
        writer.key(RESOURCES, WireType::LengthDelimited);
        let any = writer.length();
        writer.key(TYPE_URL, WireType::LengthDelimited);
        writer.delimited(of.type_url.as_bytes());
        writer.key(VALUE, WireType::LengthDelimited);
        let value = writer.length();
        items.append(&of.plan, json, &mut writer).map_err(Error::internal)?;
        writer.end_length(value);
        writer.end_length(any);
        if writer.len() >= PART {
            parts.push(mem::replace(&mut writer, Writer::with_capacity(PART)).into_bytes())?;
        }
        pace.step(json.len()).await;
    }
    parts.push(writer.into_bytes())?;
    Ok(parts)
}
