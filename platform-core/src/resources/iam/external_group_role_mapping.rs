//! Mappings of a provider's external groups to roles (`docs/api.md`, External group role mappings).

use std::collections::BTreeSet;

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result, Violations},
    event::Draft,
    kind::{
        Action, Authorization, Change, DerivedKey, Field, Kind, Method, Param, Parent, Resource, Type, Unique,
        action_event, parent_uid,
    },
    store::{Delete, Key, KeyValue, Require},
    timestamp::Timestamp,
    uid::{self, Uid},
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    super::{check, domain, field},
    IdentityProvider,
    names::{EXTERNAL_GROUP_ROLE_MAPPING, GIVEN_ROLE},
};
use crate::{
    capabilities::cap,
    iam::{may_give_role, provider_epoch},
};

/// Gives a role to everyone who signs in by a provider as a member of one of its external groups. Immutable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalGroupRoleMapping {
    /// The uid of the provider and a segment.
    pub uid: Uid,
    /// The uid of the provider.
    pub identity_provider_uid: Uid,
    /// The external group's name in the provider's tokens, compared bytewise.
    pub external_group_id: String,
    /// The uid of the role: a built-in role or a role of the organization.
    pub role_uid: Uid,
    /// The uid of the group where the role is held: the provider's organization.
    pub scope: Uid,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

const FIELDS: &[Field] = &[
    Field::UID,
    Field::string("identityProviderUid").about("The identity provider's uid.").output_only(),
    Field::string("externalGroupId")
        .about("The group as the identity provider names it in its tokens.")
        .required()
        .privileged()
        .check(external_group),
    field::uid("roleUid")
        .about("The role that members of the external group have.")
        .required()
        .privileged()
        .uid_of("Role"),
    field::uid("scope")
        .about("The uid of the group where they have the role: the organization of the identity provider.")
        .required()
        .privileged()
        .uid_of("Group"),
    Field::CREATE_TIME,
    Field::UPDATE_TIME.rest_only(),
];

/// The maximum number of mappings per batch delete; our choice.
const MAX_BATCH: usize = 1000;

impl Resource for ExternalGroupRoleMapping {
    const KIND: &'static Kind = &Kind::new(
        EXTERNAL_GROUP_ROLE_MAPPING,
        "externalGroupRoleMappings",
        "ExternalGroupRoleMappingsService",
        domain::IAM,
    )
    .parent(Parent::Of(IdentityProvider::KIND))
    .methods(&[
        Method::list(&[cap("identity_providers.list")])
            .params(&[Param::exact("identityProviderUid").about("Only mappings of this identity provider.")]),
        Method::get(&[cap("identity_providers.list")]),
        Method::create(&[cap("identity_providers.create"), cap("role_bindings.create")])
            .event("iam.external_group_role_mappings.created.v1"),
        Method::delete(&[cap("identity_providers.delete")]).event("iam.external_group_role_mappings.deleted.v1"),
    ])
    .fields(FIELDS)
    .keys(&[DerivedKey::of_field(GIVEN_ROLE, "roleUid")])
    .unique(&[Unique::new("externalGroupRoleMapping", "A mapping of this external group to this role", mapped_once)
        .by(&[GIVEN_ROLE])])
    .cascade();

    const ACTIONS: &'static [Action] = &[Action::post(
        "BatchDeleteExternalGroupRoleMappings",
        "externalGroupRoleMappings:batchDelete",
        |cx, request| Box::pin(batch_delete(cx, request)),
    )
    .previewed()
    .request(&[
        field::uid("parent")
            .about("The identity provider whose mappings are deleted.")
            .required()
            .uid_of("IdentityProvider"),
        Field::strings("names")
            .about("The uids of the mappings to delete, at most 1,000.")
            .max_items(MAX_BATCH)
            .required(),
    ])
    .response(&[
        Field::string("parent").about("The identity provider."),
        Field::new("externalGroupRoleMappings", Type::List(&Type::Message(FIELDS)))
            .about("The mappings that were deleted."),
    ])
    .authorization(Authorization::At("parent", &[cap("identity_providers.delete")]))
    .event("iam.external_group_role_mappings.deleted.batch.v1")];

    fn example() -> Self {
        let organization = Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7");
        let provider = Uid::opaque(format!("{organization}/0123456789abcdef"));
        Self {
            uid: Uid::opaque(format!("{provider}/fedcba9876543210")),
            identity_provider_uid: provider,
            external_group_id: "platform-admins".to_owned(),
            role_uid: organization.clone(),
            scope: organization,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let provider = parent_uid(&change.uid)?;
            change.write.raise(provider_epoch(&provider));
            let Some(mapping) = &mut change.new else { return Ok(()) };
            let organization = Uid::opaque(provider.root());
            if mapping.scope != organization {
                return Err(Error::invalid_field("scope", "must be the organization of the identity provider"));
            }
            // The provider may be in a descendant group of the organization, where the role is held.
            cx.demand(&organization, &[cap("role_bindings.create")])?;
            may_give_role(cx, &organization, &mapping.role_uid, "roleUid", &mut change.write).await?;
            mapping.identity_provider_uid = provider;
            Ok(())
        })
    }

    fn customize_event(event: &mut Draft) {
        let provider = uid::parent(&event.subject).unwrap_or_default().to_owned();
        of_provider(event, provider);
    }
}

/// Addresses an event to the organization and names the provider in an attribute, as the contract requires.
fn of_provider(event: &mut Draft, provider: String) {
    event.group = Uid::opaque(provider.as_str()).root().to_owned();
    event.extensions.insert("identityprovider".to_owned(), provider);
}

fn external_group(value: &Value) -> std::result::Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    let within = (1..=check::MAX_NAME).contains(&text.chars().count());
    if within { Ok(()) } else { Err(format!("must have 1 to {} characters", check::MAX_NAME)) }
}

fn mapped_once(body: &Value) -> Option<KeyValue> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let provider = uid::parent(text("uid"))?;
    let parts = [provider, text("roleUid"), text("scope"), text("externalGroupId")].join("\0");
    Some(KeyValue::from_bytes(Sha256::digest(parts).to_vec()))
}

/// Atomically deletes mappings of one provider and returns them in the order of the request. Skips mappings that do not
/// exist.
async fn batch_delete(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let parent = Uid::opaque(request.get("parent").and_then(Value::as_str).unwrap_or_default());
    let names = request.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut violations = Violations::default();
    let (mut keys, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, name) in names.enumerate() {
        // Decided by the uid alone, so that the response does not reveal which mappings other providers have.
        match Uid::parse(name) {
            Ok(uid) if uid.parent().as_ref() == Some(&parent) => {
                if seen.insert(uid.clone()) {
                    keys.push(Key::new(ExternalGroupRoleMapping::KIND.name, uid));
                }
            }
            _ => violations.add(format!("names[{index}]"), "must be the uid of a mapping of the parent"),
        }
    }
    violations.none_or(())?;
    if cx.record(IdentityProvider::KIND, &parent).await?.is_none() {
        return Err(Error::not_found(IdentityProvider::KIND, parent.as_str()));
    }
    let mut write = Write::default();
    let mut deleted: Vec<Value> = Vec::new();
    for record in cx.records(&keys).await?.into_iter().flatten() {
        deleted.push(serde_json::from_slice(&record.body).map_err(Error::internal)?);
        write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
        write.delete(Delete::Key(record.key));
    }
    let reply = json!({ "parent": parent, "externalGroupRoleMappings": deleted });
    if !write.is_empty() {
        write.raise(provider_epoch(&parent));
        let draft = || {
            let action = "BatchDeleteExternalGroupRoleMappings";
            let mut draft = action_event::<ExternalGroupRoleMapping>(action, &parent, &reply)?;
            of_provider(&mut draft, parent.to_string());
            Ok(draft)
        };
        cx.record_event(&mut write, &parent, draft).await?;
        cx.commit(write).await?;
    }
    Ok(reply)
}
