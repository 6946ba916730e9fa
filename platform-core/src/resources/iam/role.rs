//! Roles: named sets of capabilities (`docs/api.md`, Roles).

use platform_engine::{
    BoxFuture,
    access::{Capabilities, Capability, CapabilitySet},
    context::Context,
    error::{Error, Result, Violations},
    kind::{Change, Field, Kind, Method, Param, Parent, Resource, Roots, Type, Unique, Verb, parent_uid},
    store::{Delete, KeyValue, Require},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

use super::{
    super::{domain, field},
    names::{EXTERNAL_GROUP_ROLE_MAPPING, GIVEN_ROLE, GROUP_INVITE, IDENTITY_PROVIDER, ROLE_BINDING},
};
use crate::{
    capabilities::{self, cap},
    iam::{may_give, organization_epoch},
};

mod built_in;

pub(crate) use built_in::built_in_name;
pub use built_in::{BUILT_IN_VERSION, built_in, built_in_capabilities, built_in_names, built_in_uid, owner_uid};

/// A named set of capabilities. Built-in roles belong to no group and are immutable; others can be bound in their group
/// and its descendants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Role {
    /// One segment for a built-in role, otherwise the uid of the group and a segment.
    pub uid: Uid,
    /// Unique among the roles of its group.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The identifiers of the role's capabilities, such as `CAP_REPO_LIST`, in the order of their numbers.
    pub capabilities: Vec<String>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

impl Resource for Role {
    const KIND: &'static Kind = &Kind::new("Role", "roles", "RolesService", domain::IAM)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("roles.list")])
                .params(&[Param::exact("name").about("Only roles with exactly this name.")]),
            Method::get(&[cap("roles.list")]),
            Method::create(&[cap("roles.create")]).event("iam.roles.created.v1"),
            Method::update(&[cap("roles.update")]).event("iam.roles.updated.v1"),
            Method::delete(&[cap("roles.delete")]).event("iam.roles.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            field::NAME.about("The role's name, as `^[a-z0-9 ._-]{1,}$`."),
            field::DESCRIPTION,
            Field::new("capabilities", Type::List(&Type::Capability))
                .about("The role's capabilities.")
                .max_items(MAX_CAPABILITIES)
                .distinct()
                .privileged(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::in_parent("role.name", "A role of this name in the group", "name").by(&["name"])])
        .roots(Roots::Shared);

    fn without_secrets(private: bytes::Bytes) -> Result<bytes::Bytes> {
        // The version of a built-in role.
        Ok(private)
    }

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "repo reader".to_owned(),
            description: "Reads repos and their tags".to_owned(),
            capabilities: ["groups.list", "repo.list", "tag.list"].map(|name| cap(name).id().to_owned()).into(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn validate(&self, violations: &mut Violations) {
        if self.capabilities.is_empty() {
            violations.add("capabilities", "must have at least one capability");
        }
        let is_internal = |id: &String| capabilities::by_id(id).is_some_and(Capability::is_internal);
        let internal = cap("internal").id();
        if self.capabilities.iter().any(is_internal) && !self.capabilities.iter().any(|id| id == internal) {
            violations.add("capabilities", "must include CAP_INTERNAL if other internal capabilities are included");
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if change.verb == Verb::Delete {
                let bound = KeyValue::text(&change.uid);
                let blocked = Error::blocked("RESOURCE_IN_USE", "cannot delete role that is still bound");
                change.write.require_or_fail(Require::NoneWith(ROLE_BINDING, "roleUid", bound.clone()), blocked);
                for (giver, what) in [
                    (IDENTITY_PROVIDER, "the default of an identity provider"),
                    (EXTERNAL_GROUP_ROLE_MAPPING, "mapped from an external group"),
                ] {
                    let blocked = Error::blocked("RESOURCE_IN_USE", format!("cannot delete role that is {what}"));
                    change.write.require_or_fail(Require::NoneWith(giver, GIVEN_ROLE, bound.clone()), blocked);
                }
                // An invite to a deleted role cannot be redeemed.
                change.write.delete(Delete::With(GROUP_INVITE, GIVEN_ROLE, bound));
                return Ok(());
            }
            let known = cx.platform().capabilities();
            let before = change.old.take().map(|old| known.set_of(&old.capabilities));
            let Some(role) = &mut change.new else { return Ok(()) };
            let after = known.set_of(&role.capabilities);
            role.capabilities = ids(known, after);
            if before == Some(after) {
                return Ok(());
            }
            // Everyone who is bound to the role gets the added capabilities, so the caller must hold them.
            let added = after.difference(before.unwrap_or_default());
            let group = parent_uid(&change.uid)?;
            may_give(cx, &group, added, "capabilities")?;
            if change.verb == Verb::Update {
                change.write.raise(organization_epoch(&change.uid));
            }
            Ok(())
        })
    }
}

/// The maximum number of capabilities of a role or a token. Our choice.
pub(crate) const MAX_CAPABILITIES: usize = 256;

/// Returns the identifiers of a set, in the order of their numbers.
pub(crate) fn ids(known: &Capabilities, set: CapabilitySet) -> Vec<String> {
    known.in_set(set).map(|capability| capability.id().to_owned()).collect()
}

/// The violation of a field whose role cannot be given at the group.
pub(crate) const NOT_AVAILABLE: &str = "must be a built-in role, or a role of this group or one of its ancestors";

/// Returns the role with this uid if it can be given at a group: a built-in role, or a role of the group or its
/// ancestors.
pub(crate) async fn of_group(cx: &Context<'_>, group: &Uid, role: &Uid) -> Result<Option<Role>> {
    match role.parent() {
        Some(home) if !group.is_at_or_below(&home) => Ok(None),
        _ => cx.read::<Role>(role).await,
    }
}
