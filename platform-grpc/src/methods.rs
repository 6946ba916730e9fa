//! Which RPC is which method of which kind: worked out once, from the descriptors and the kind tables.

use std::{collections::HashMap, sync::Arc};

use platform_core::{
    kind::{self, Action, Domain, Http, Registered, Verb},
    platform::ListReply,
};
use prost::encoding::WireType;
use prost_reflect::{
    DescriptorError, DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};

use crate::{
    contract::{PACKAGE, VERSIONS},
    encode::{BadField, Plan, Writer},
    tokens::TokenMethod,
};

/// Descriptors that do not say what a server must know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadContract {
    /// They are no descriptors.
    #[error(transparent)]
    Descriptors(#[from] DescriptorError),
    /// A message has a type that cannot be written.
    #[error(transparent)]
    Field(#[from] BadField),
    /// A method's messages have not what its name promises.
    #[error("the method `{0}` has no {1}")]
    Method(String, &'static str),
    /// What clients ask for descriptors cannot be told.
    #[error("reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
}

/// A method, and how its messages are read and written.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) what: What,
    pub(crate) domain: &'static str,
    pub(crate) input: MessageDescriptor,
    pub(crate) output: Arc<Plan>,
}

/// What a method does.
#[derive(Debug)]
pub(crate) enum What {
    List(Registered, Page),
    Get(Registered),
    /// With the request's field that is the resource.
    Create(Registered, FieldDescriptor),
    /// Likewise.
    Update(Registered, FieldDescriptor),
    Delete(Registered),
    Action(&'static kind::Kind, &'static Action),
    Token(TokenMethod),
}

impl What {
    /// Tells whether calls change nothing, so that they can be refused once they are answered.
    pub(crate) fn reads(&self) -> bool {
        match self {
            Self::List(..) | Self::Get(_) => true,
            Self::Create(..) | Self::Update(..) | Self::Delete(_) => false,
            Self::Action(_, action) => matches!(action.http, Http::Get),
            Self::Token(token) => matches!(token, TokenMethod::Validate),
        }
    }
}

/// Returns all methods by their paths, such as `/chainguard.platform.ping.v2.PingService/Ping`. Those that the
/// descriptors have and no kind are not there.
pub(crate) fn all(pool: &DescriptorPool, kinds: &[Registered]) -> Result<HashMap<String, Method>, BadContract> {
    let mut methods = HashMap::new();
    for service in pool.services() {
        for method in service.methods() {
            let Some((domain, what)) = what(&service, &method, kinds)? else { continue };
            let path = format!("/{}/{}", service.full_name(), method.name());
            let output = Plan::of(&method.output())?;
            methods.insert(path, Method { what, domain, input: method.input(), output });
        }
    }
    Ok(methods)
}

fn what(
    service: &ServiceDescriptor,
    method: &MethodDescriptor,
    kinds: &[Registered],
) -> Result<Option<(&'static str, What)>, BadContract> {
    if let Some(token) = TokenMethod::find(service.full_name(), method.name()) {
        return Ok(Some((Domain::IAM.0, What::Token(token))));
    }
    let Some(domain) = domain_of(service.package_name()) else { return Ok(None) };
    for registered in kinds.iter().filter(|one| one.kind.domain.0 == domain && one.kind.service == service.name()) {
        let kind = registered.kind;
        if let Some(action) = kind.actions.iter().find(|action| action.name == method.name()) {
            return Ok(Some((kind.domain.0, What::Action(kind, action))));
        }
        if let Some(found) = kind.methods.iter().find(|found| kind.rpc(found.verb) == method.name()) {
            return Ok(Some((kind.domain.0, standard(found.verb, *registered, method)?)));
        }
    }
    Ok(None)
}

fn standard(verb: Verb, registered: Registered, method: &MethodDescriptor) -> Result<What, BadContract> {
    let resource = || {
        let is_it = |field: &FieldDescriptor| field.kind().as_message() == Some(&method.output());
        let missing = || BadContract::Method(method.full_name().to_owned(), "field that is the resource");
        method.input().fields().find(is_it).ok_or_else(missing)
    };
    Ok(match verb {
        Verb::List => What::List(registered, Page::of(method)?),
        Verb::Get => What::Get(registered),
        Verb::Create => What::Create(registered, resource()?),
        Verb::Update => What::Update(registered, resource()?),
        Verb::Delete => What::Delete(registered),
    })
}

/// Returns the domain of a package such as `chainguard.platform.iam.v2`, for all versions that mean the same.
fn domain_of(package: &str) -> Option<&str> {
    let (domain, version) = package.strip_prefix(PACKAGE)?.strip_prefix('.')?.split_once('.')?;
    VERSIONS.contains(&version).then_some(domain)
}

/// How a page of a list is written.
#[derive(Debug)]
pub(crate) struct Page {
    items: u32,
    item: Arc<Plan>,
    next_page_token: u32,
    total_count: u32,
    /// Whether a total of none is written.
    counts_none: bool,
    skipped: u32,
}

impl Page {
    fn of(method: &MethodDescriptor) -> Result<Self, BadContract> {
        let output = method.output();
        let missing = |what| BadContract::Method(method.full_name().to_owned(), what);
        let field = |name, what| output.get_field_by_name(name).ok_or_else(|| missing(what));
        let items = output.fields().find(|field| field.is_list()).ok_or_else(|| missing("list of resources"))?;
        let Kind::Message(item) = items.kind() else { return Err(missing("list of resources")) };
        let total_count = field("total_count", "total")?;
        Ok(Self {
            items: items.number(),
            item: Plan::of(&item)?,
            next_page_token: field("next_page_token", "page token")?.number(),
            counts_none: total_count.supports_presence(),
            total_count: total_count.number(),
            skipped: field("skipped", "number of what was skipped")?.number(),
        })
    }

    /// Writes a page, whose resources are JSON.
    ///
    /// # Errors
    /// When a resource is none of this message.
    pub(crate) fn encode(&self, page: &ListReply) -> serde_json::Result<Vec<u8>> {
        let bodies: usize = page.items.iter().map(|item| item.len()).sum();
        let mut writer = Writer::with_capacity(bodies + 256);
        let open = writer.open();
        for item in &page.items {
            writer.field(self.items);
            writer.key(self.items, WireType::LengthDelimited);
            let start = writer.length();
            self.item.append(item, &mut writer)?;
            writer.end_length(start);
        }
        if let Some(token) = &page.next_page_token {
            writer.field(self.next_page_token);
            writer.key(self.next_page_token, WireType::LengthDelimited);
            writer.delimited(token.as_bytes());
        }
        let counts = [
            (self.total_count, page.total_count, self.counts_none || page.total_count > 0),
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
        Ok(writer.into_bytes())
    }
}
