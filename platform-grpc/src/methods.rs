//! Maps each RPC to a method of a kind, once at startup, from the descriptors and the kind tables.

use std::{collections::HashMap, mem, sync::Arc};

use platform_engine::{
    access::Capability,
    error::{Error, Result},
    kind::{self, Action, Field, Http, Registered, Type, Verb},
    offload::Pace,
    platform::{ListReply, Platform},
};
use platform_http::ApiMethod;
use prost_reflect::{
    DescriptorError, DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};

use crate::{
    batch,
    encode::{BadField, Plan, WireType, Writer},
    item_cache::ItemCache,
    mount::Mount,
    own::Kinds,
    parts::{PART, Parts},
};

/// Error for descriptors that lack something the server needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadContract {
    /// The descriptor set cannot be decoded.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// A message has a field type that cannot be encoded.
    #[error(transparent)]
    Field(#[from] BadField),
    /// The message of a kind lacks a field of its table: the descriptors are of another version of the kind.
    #[error(
        "the message `{message}` has no field for `{field}` of its kind: write the descriptors again, with \
         `platform_grpc::proto::update` for example"
    )]
    Stale {
        /// The full name of the message.
        message: String,
        /// The name of the field in the table.
        field: &'static str,
    },
    /// A method's messages lack a field that its name requires.
    #[error("the method `{0}` has no {1}")]
    Method(String, &'static str),
}

/// An RPC: its operation, and the decoding and encoding of its messages.
#[derive(Debug)]
pub(crate) struct Method {
    /// For metrics.
    pub(crate) call: Arc<ApiMethod>,
    pub(crate) operation: Operation,
    pub(crate) domain: &'static str,
    /// The version of the method's package; `None` for a mounted method and one of our own.
    pub(crate) version: Option<&'static str>,
    pub(crate) input: MessageDescriptor,
    pub(crate) output: Arc<Plan>,
}

/// The operation of an RPC.
#[derive(Debug)]
pub(crate) enum Operation {
    List(Registered, Page),
    Get(Registered),
    /// With the request field that holds the resource.
    Create(Registered, FieldDescriptor),
    /// With the request field that holds the resource.
    Update(Registered, FieldDescriptor),
    Delete(Registered),
    Action(&'static kind::Kind, &'static Action),
    BatchGet(Kinds),
    /// With the number of the method.
    Mounted(Arc<dyn Mount>, usize),
}

impl Operation {
    /// Returns whether calls change nothing, so that a reply may be rejected after the call has run.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            Self::List(..) | Self::Get(_) | Self::BatchGet(_) => true,
            Self::Create(..) | Self::Update(..) | Self::Delete(_) => false,
            Self::Action(_, action) => matches!(action.http, Http::Get),
            Self::Mounted(mount, method) => mount.is_read_only(*method),
        }
    }
}

/// Decodes the descriptors of a platform's kinds.
///
/// # Errors
/// A set that cannot be decoded, or two different files with the same name.
pub(crate) fn descriptors(platform: &Platform) -> Result<DescriptorPool, DescriptorError> {
    let mut pool = DescriptorPool::new();
    for set in platform.descriptors() {
        pool.decode_file_descriptor_set(set)?;
    }
    Ok(pool)
}

/// Returns all methods of one reply by path, such as `/chainguard.platform.ping.v2.PingService/Ping`, our own included.
/// Omits RPCs that belong to no registered kind.
pub(crate) fn all(
    pool: &DescriptorPool,
    platform: &Platform,
    mounts: &[Arc<dyn Mount>],
) -> Result<HashMap<String, Arc<Method>>, BadContract> {
    let own = platform.capabilities().own();
    let mut methods = HashMap::new();
    for service in pool.services() {
        for method in service.methods() {
            let Some((domain, version, operation)) = find_operation(&service, &method, platform, mounts)? else {
                continue;
            };
            // Earlier versions of the API may have fewer fields.
            if let Operation::Get(Registered { kind, .. }) = &operation
                && kind.domain.versioned_package() == service.package_name()
            {
                check_fields(kind.fields, &method.output())?;
            }
            let path = format!("/{}/{}", service.full_name(), method.name());
            let output = Plan::of(&method.output(), own)?;
            let call = ApiMethod::new("grpc", format!("{}.{}", service.name(), method.name()));
            let method = Method { call, operation, domain, version, input: method.input(), output };
            methods.insert(path, Arc::new(method));
        }
    }
    let batch = batch::method(&methods)?;
    methods.insert(batch::PATH.to_owned(), Arc::new(batch));
    Ok(methods)
}

/// Checks that a message has the fields of a table, and so do the messages in it.
fn check_fields(fields: &'static [Field], message: &MessageDescriptor) -> Result<(), BadContract> {
    for field in fields.iter().filter(|field| !field.rest_only) {
        // Its JSON name may be either.
        let Some(described) = message.fields().find(|described| field.is_named(described.name())) else {
            return Err(BadContract::Stale { message: message.full_name().to_owned(), field: field.name });
        };
        let mut ty = &field.ty;
        while let Type::List(element) = ty {
            ty = element;
        }
        if let (Type::Message(inner), Kind::Message(message)) = (ty, described.kind()) {
            check_fields(inner, &message)?;
        }
    }
    Ok(())
}

/// The domain, the version of the package (`None` for a mounted method), and the operation of an RPC.
type Found = (&'static str, Option<&'static str>, Operation);

fn find_operation(
    service: &ServiceDescriptor,
    method: &MethodDescriptor,
    platform: &Platform,
    mounts: &[Arc<dyn Mount>],
) -> Result<Option<Found>, BadContract> {
    let mounted = mounts.iter().find_map(|mount| Some((mount, mount.find(service.full_name(), method.name())?)));
    if let Some((mount, number)) = mounted {
        return Ok(Some((mount.domain(), None, Operation::Mounted(Arc::clone(mount), number))));
    }
    for registered in platform.registered().iter().filter(|registered| registered.kind.service == service.name()) {
        let kind = registered.kind;
        let Some(version) = kind.domain.version_of_package(service.package_name()) else { continue };
        if let Some(action) = registered.actions.iter().find(|action| action.name == method.name()) {
            return Ok(Some((kind.domain.name, Some(version), Operation::Action(kind, action))));
        }
        if let Some(found) = kind.served().find(|found| kind.rpc(found.verb) == method.name()) {
            return Ok(Some((
                kind.domain.name,
                Some(version),
                standard_operation(found.verb, *registered, method, platform.capabilities().own())?,
            )));
        }
    }
    Ok(None)
}

fn standard_operation(
    verb: Verb,
    registered: Registered,
    method: &MethodDescriptor,
    own: &[Capability],
) -> Result<Operation, BadContract> {
    let resource = || {
        let is_it = |field: &FieldDescriptor| field.kind().as_message() == Some(&method.output());
        let missing = || BadContract::Method(method.full_name().to_owned(), "field that is the resource");
        method.input().fields().find(is_it).ok_or_else(missing)
    };
    Ok(match verb {
        Verb::List => Operation::List(registered, Page::of(method, own)?),
        Verb::Get => Operation::Get(registered),
        Verb::Create => Operation::Create(registered, resource()?),
        Verb::Update => Operation::Update(registered, resource()?),
        Verb::Delete => Operation::Delete(registered),
    })
}

/// The encoding of a page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    items: u32,
    item: Arc<Plan>,
    next_page_token: u32,
    total_count: u32,
    /// Whether a total of 0 is written.
    writes_zero_total: bool,
    skipped: u32,
}

impl Page {
    fn of(method: &MethodDescriptor, own: &[Capability]) -> Result<Self, BadContract> {
        let output = method.output();
        let missing = |what| BadContract::Method(method.full_name().to_owned(), what);
        let field = |name, what| output.get_field_by_name(name).ok_or_else(|| missing(what));
        let items = output.fields().find(|field| field.is_list()).ok_or_else(|| missing("list of resources"))?;
        let Kind::Message(item) = items.kind() else { return Err(missing("list of resources")) };
        let total_count = field("total_count", "total")?;
        Ok(Self {
            items: items.number(),
            item: Plan::of(&item, own)?,
            next_page_token: field("next_page_token", "page token")?.number(),
            writes_zero_total: total_count.supports_presence(),
            total_count: total_count.number(),
            skipped: field("skipped", "number of skipped resources")?.number(),
        })
    }

    /// Returns the encoding of a resource.
    pub(crate) fn item(&self) -> &Arc<Plan> {
        &self.item
    }

    /// Encodes a page, whose resources are JSON, and adds it to a message: the resources first, and then the other fields
    /// in the order of their numbers.
    ///
    /// # Errors
    /// INTERNAL when a resource does not match the message; RESOURCE_EXHAUSTED as [`Parts::push`].
    pub(crate) async fn encode(
        &self,
        page: &ListReply,
        items: &ItemCache,
        mut pace: Pace<'_>,
        parts: &mut Parts,
    ) -> Result<()> {
        let bodies: usize = page.items.iter().map(|item| item.len()).sum();
        let part = || Writer::with_capacity(bodies.min(PART) + 256);
        let mut writer = part();
        for item in &page.items {
            writer.key(self.items, WireType::LengthDelimited);
            let start = writer.length();
            items.append(&self.item, item, &mut writer).map_err(Error::internal)?;
            writer.end_length(start);
            if writer.len() >= PART {
                parts.push(mem::replace(&mut writer, part()).into_bytes())?;
            }
            pace.step(item.len() / ENCODED).await;
        }
        let open = writer.open();
        if let Some(token) = &page.next_page_token {
            writer.field(self.next_page_token);
            writer.key(self.next_page_token, WireType::LengthDelimited);
            writer.delimited(token.as_bytes());
        }
        let counts = [
            (self.total_count, page.total_count, self.writes_zero_total || page.total_count > 0),
            (self.skipped, page.skipped, page.skipped > 0),
        ];
        for (number, count, is_written) in counts {
            if is_written {
                writer.field(number);
                writer.key(number, WireType::Varint);
                writer.varint(count);
            }
        }
        writer.close(open);
        parts.push(writer.into_bytes())
    }
}

/// The number of bytes that are encoded in the time in which one is converted, or more: most are in the cache of items.
const ENCODED: usize = 4;
