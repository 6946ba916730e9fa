//! Explanations of access: the role bindings behind a decision (`docs/api.md`, Explained access).

use std::collections::HashMap;

use platform_engine::{
    access::{Capability, CapabilitySet},
    context::Context,
    error::{Error, Result},
    fields,
    kind::{Action, Field, Handler, Http, Kind, Resource, Type},
    scope::Scopes,
    store::{Filter, KeyValue, Position, Query, Scope},
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    super::{domain, field},
    Role, RoleBinding,
    role::built_in_capabilities,
    role_binding::{self, look_up},
};
use crate::capabilities::cap;

/// A role binding that gives access at a place. Our own kind, of which there are no resources: the contract has role
/// bindings, but no method that finds those that count at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessExplanation {
    /// The binding.
    pub binding: RoleBinding,
    /// The names of the capabilities that it gives; with a capability in the request, only that one.
    pub capabilities: Vec<String>,
}

const FIELDS: &[Field] = &[
    Field::message("binding", role_binding::FIELDS).about("A role binding at the place or above it.").output_only(),
    Field::strings("capabilities")
        .about("The names of the capabilities that it gives there; only the requested one, if there is one.")
        .output_only(),
];

/// The maximum number of bindings in a reply, and of those that one request reads. Our choice.
const PAGE: usize = 100;
const MAX_READ: usize = 1000;

impl Resource for AccessExplanation {
    const KIND: &'static Kind =
        &Kind::new("AccessExplanation", "accessExplanations", "AccessService", domain::ACCESS).fields(FIELDS).cascade();

    const ACTIONS: &'static [Action] = &[Action::typed::<Explain>("ExplainAccess", Http::Get, "bindings")];

    fn example() -> Self {
        Self { binding: RoleBinding::example(), capabilities: vec!["repo.list".to_owned()] }
    }
}

/// `ExplainAccess`.
struct Explain;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: Uid,
    #[serde(default)]
    identity_uid: Option<Uid>,
    #[serde(default)]
    capability: String,
    #[serde(default)]
    after: Option<Uid>,
}

impl Handler for Explain {
    const REQUEST: &'static [Field] = &[
        field::uid("uid").about("The place: a group or any other resource.").required(),
        field::uid("identityUid")
            .about("Only bindings of this identity; the reply then has a decision.")
            .uid_of("Identity"),
        Field::string("capability")
            .about("Only bindings that give this capability, such as `repo.list` or `CAP_REPO_LIST`."),
        field::uid("after").about("The `next` of the page before."),
    ];
    const RESPONSE: &'static [Field] = &[
        Field::new("bindings", Type::List(&Type::Message(FIELDS)))
            .about("The bindings that the caller may list, in the order of their uids, at most 100.")
            .max_items(PAGE),
        Field::enumeration("decision", &["DECISION_UNSPECIFIED", "ALLOWED", "DENIED", "UNKNOWN"])
            .about("Whether the identity has the capability, or any, at the place. UNKNOWN if the caller may not list all bindings that count."),
        Field::bool("complete").about("Whether the caller may list the bindings of all groups that count."),
        Field::bool("operator").about("Whether the caller asks about itself and is an operator of the installation."),
        Field::string("next").about("The uid to continue after; empty on the last page."),
    ];
    type Request = Request;
    type Response = Value;

    fn run<'a>(cx: &'a Context<'a>, request: Request) -> platform_engine::BoxFuture<'a, Result<Value>> {
        Box::pin(explain(cx, request))
    }
}

async fn explain(cx: &Context<'_>, request: Request) -> Result<Value> {
    let known = cx.platform().capabilities();
    let capability = match request.capability.as_str() {
        "" => None,
        text => Some(
            known
                .by_name(text)
                .or_else(|| known.by_id(text))
                .ok_or_else(|| Error::invalid_field("capability", "unknown capability"))?,
        ),
    };
    // A binding counts at its group and below.
    let places = Scopes::disjoint(request.uid.ancestry().map(|above| Scope::Children(Uid::opaque(above))));
    let shown = places.and(&cx.visible(RoleBinding::KIND, &[cap("role_bindings.list")], &places));
    let complete = shown == places;
    let (found, next) =
        if shown.is_empty() { (Vec::new(), None) } else { find(cx, &request, capability, shown).await? };
    let mut reply = Map::new();
    let mut of_caller = false;
    if let Some(identity) = &request.identity_uid {
        of_caller = cx.caller().is_some_and(|caller| caller.identity == *identity);
        let is_allowed = match of_caller {
            true => Some(held(cx.held_at(&request.uid), capability)),
            false if !found.is_empty() => Some(true),
            false => (complete && next.is_none()).then_some(false),
        };
        let decision = is_allowed.map_or("UNKNOWN", |allowed| if allowed { "ALLOWED" } else { "DENIED" });
        reply.insert("decision".to_owned(), json!(decision));
    }
    reply.insert("operator".to_owned(), json!(of_caller && cx.is_operator()));
    let (mut bindings, capabilities): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    RoleBinding::render(cx, &mut bindings).await?;
    let explained = bindings.into_iter().zip(capabilities).map(|(binding, set)| {
        let capabilities = known.in_set(set).map(|capability| capability.name().to_owned()).collect();
        let explained = serde_json::to_value(AccessExplanation { binding, capabilities });
        let mut explained = explained.map_err(Error::internal)?;
        fields::prune_empty(FIELDS, &mut explained);
        Ok(explained)
    });
    reply.insert("bindings".to_owned(), explained.collect::<Result<Value>>()?);
    reply.insert("complete".to_owned(), json!(complete));
    if let Some(next) = next {
        reply.insert("next".to_owned(), json!(next));
    }
    Ok(Value::Object(reply))
}

/// Whether a set has a capability, or any without one.
fn held(set: CapabilitySet, capability: Option<Capability>) -> bool {
    capability.map_or(!set.is_empty(), |capability| set.contains(capability))
}

/// Returns the bindings in these scopes that count, with the capabilities that they give, and the uid to continue after.
async fn find(
    cx: &Context<'_>,
    request: &Request,
    capability: Option<Capability>,
    scopes: Scopes,
) -> Result<(Vec<(RoleBinding, CapabilitySet)>, Option<Uid>)> {
    let filters = request.identity_uid.iter().map(|identity| {
        let values = vec![KeyValue::text(identity)];
        Filter::AnyOf { key: "identityUid", values }
    });
    let (filters, scopes) = (filters.collect::<Vec<_>>(), scopes.into_vec());
    let position = |uid: Uid| Position { value: KeyValue::default(), uid };
    let mut after = request.after.clone().map(position);
    let mut found = Vec::new();
    for _ in 0..MAX_READ / PAGE {
        let query = Query {
            scopes: scopes.clone(),
            filters: filters.clone(),
            after: after.take(),
            limit: PAGE,
            ..Query::new(RoleBinding::KIND.name, Scope::All)
        };
        let page = cx.page(query).await?;
        let bindings = page.items.iter().map(|item| serde_json::from_slice::<RoleBinding>(&item.body));
        let bindings: Vec<_> = bindings.collect::<serde_json::Result<_>>().map_err(Error::internal)?;
        let roles = capabilities_of(cx, &bindings).await?;
        for binding in bindings {
            let given = roles.get(&binding.role_uid).copied().unwrap_or_default();
            // An identity that was created in a group has no capabilities outside of it.
            let home = binding.identity_uid.parent();
            let counts = home.is_none_or(|home| request.uid.is_at_or_below(&home)) && held(given, capability);
            if counts {
                let shown = capability.map_or(given, |capability| [capability].into_iter().collect());
                found.push((binding, shown));
            }
        }
        after = page.next;
        if after.is_none() || found.len() >= PAGE {
            break;
        }
    }
    let mut next = after.map(|after| after.uid);
    if found.len() > PAGE {
        found.truncate(PAGE);
        next = found.last().map(|(binding, _)| binding.uid.clone());
    }
    Ok((found, next))
}

/// Returns the capabilities of the roles of bindings.
async fn capabilities_of(cx: &Context<'_>, bindings: &[RoleBinding]) -> Result<HashMap<Uid, CapabilitySet>> {
    let known = cx.platform().capabilities();
    let mut all = HashMap::new();
    let mut others = Vec::new();
    for binding in bindings {
        match built_in_capabilities(known, &binding.role_uid) {
            Some(held) => drop(all.insert(binding.role_uid.clone(), held)),
            None => others.push(binding.role_uid.clone()),
        }
    }
    let roles = look_up::<Role>(cx, others.into_iter()).await?;
    all.extend(roles.into_iter().map(|(uid, role)| (uid, known.set_of(&role.capabilities))));
    Ok(all)
}
