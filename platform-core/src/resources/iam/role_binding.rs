//! Role bindings: the roles of identities at groups (`docs/api.md`, Role bindings).

use std::collections::HashMap;

use platform_engine::{
    BoxFuture,
    context::Context,
    entropy::Entropy,
    error::{Error, Result, Violations},
    kind::{
        Action, Authorization, Change, DerivedKey, Field, Kind, Method, Param, Parent, Registered, Resource, Type,
        Unique, action_event, parent_uid,
    },
    store::{Key, KeyValue, Require},
    timestamp::Timestamp,
    uid::{self, Uid},
    verbs,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::domain;
use super::{super::field, Group, Identity, Role, identity, names::ROLE_BINDING, owner, role};
use crate::{
    capabilities::cap,
    iam::{bindings_epoch, may_give},
};

/// A binding of an identity to a role at a group, which also applies to the group's descendants. Reads include the
/// names of all three, so that clients need not look them up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleBinding {
    /// The uid of the group and a segment.
    pub uid: Uid,
    /// The identity, looked up on every read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<BoundIdentity>,
    /// The group, looked up on every read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Bound>,
    /// The role, looked up on every read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Bound>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
    /// The uid of the identity that has the role. May be that of a person who has not registered yet.
    pub identity_uid: Uid,
    /// The uid of the role: a built-in role, or a role of the group or its ancestors.
    pub role_uid: Uid,
}

/// The group or role of a binding, as bindings show it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bound {
    /// The uid.
    pub uid: Uid,
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
}

/// The identity of a binding, as bindings show it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BoundIdentity {
    /// The uid.
    pub uid: Uid,
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The subject that its tokens must have; empty if there is only a pattern or no such rule.
    pub subject: String,
    /// The issuer that its tokens must have; empty if there is only a pattern or no such rule.
    pub issuer: String,
    /// The verified email address of a registered person.
    pub email: String,
}

impl RoleBinding {
    /// Returns a new binding, without writing it.
    pub(crate) fn new(group: &Uid, identity: &Uid, role: &Uid, entropy: &dyn Entropy, now: Timestamp) -> Self {
        Self {
            uid: group.new_child(entropy),
            create_time: Some(now),
            update_time: Some(now),
            identity_uid: identity.clone(),
            role_uid: role.clone(),
            ..Self::default()
        }
    }

    /// Returns the uids of the identity and the role.
    fn bound(&self) -> (&Uid, &Uid) {
        (&self.identity_uid, &self.role_uid)
    }
}

const BOUND_FIELDS: &[Field] = &[
    Field::string("uid").about("The uid."),
    Field::string("name").about("The name."),
    Field::string("description").about("The description."),
];

const BOUND_IDENTITY_FIELDS: &[Field] = &[
    Field::string("uid").about("The identity's uid."),
    Field::string("name").about("The identity's name."),
    Field::string("description").about("The identity's description."),
    Field::string("subject").about("The subject of the tokens that assume the identity."),
    Field::string("issuer").about("The issuer of the tokens that assume the identity."),
    Field::string("email").about("The person's verified email address."),
];

pub(super) const FIELDS: &[Field] = &[
    Field::UID,
    Field::message("identity", BOUND_IDENTITY_FIELDS).about("The identity that has the role.").output_only(),
    Field::message("group", BOUND_FIELDS).about("The group where the identity has the role.").output_only(),
    Field::message("role", BOUND_FIELDS).about("The role.").output_only(),
    Field::CREATE_TIME,
    Field::UPDATE_TIME.rest_only(),
    field::uid("identityUid").about("The identity that is given the role.").required().privileged().uid_of("Identity"),
    field::uid("roleUid")
        .about("The role to give: a built-in role, or a role of the group or its ancestors.")
        .required()
        .privileged()
        .uid_of("Role"),
];

/// The maximum number of bindings per batch create.
const MAX_BATCH: usize = 25;

impl Resource for RoleBinding {
    const KIND: &'static Kind = &Kind::new(ROLE_BINDING, "roleBindings", "RoleBindingsService", domain::IAM)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("role_bindings.list")]).params(&[
                Param::exact_of("identity", "identityUid").about("Only bindings of this identity."),
                Param::exact_of("group", "groupUid").about("Only bindings at exactly this group."),
                Param::exact_of("role", "roleUid").about("Only bindings to this role."),
            ]),
            Method::get(&[cap("role_bindings.list")]),
            Method::create(&[cap("role_bindings.create")]).event("iam.rolebindings.created.v1"),
            Method::update(&[cap("role_bindings.update")]).event("iam.rolebindings.updated.v1"),
            Method::delete(&[cap("role_bindings.delete")]).event("iam.rolebindings.deleted.v1"),
        ])
        .fields(FIELDS)
        .keys(&[DerivedKey::new("groupUid", |body| group_of(body).map(KeyValue::text).into_iter().collect())])
        .unique(&[Unique::new("roleBinding", "A binding of this identity to this role at the group", bound_once)
            .by(&["identityUid", "roleUid"])])
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("BatchCreateRoleBindings", "roleBindings:batchCreate", |cx, request| {
            Box::pin(batch_create(cx, request))
        })
        .previewed()
        .request(&[
            field::uid("parent").about("The group where the roles are given.").required().uid_of("Group"),
            Field::new("requests", Type::List(&Type::Message(SUB_REQUEST)))
                .about("The bindings to create, 1 to 25. Either all are created or none.")
                .max_items(MAX_BATCH)
                .required()
                .privileged(),
            field::uid("roleUid")
                .about("The role of all bindings whose request does not name one.")
                .privileged()
                .uid_of("Role"),
        ])
        .response(&[Field::new("roleBindings", Type::List(&Type::Message(FIELDS)))
            .about("The bindings, in the order of the requests.")])
        .authorization(Authorization::At("parent", &[cap("role_bindings.create")]))
        .event("iam.rolebindings.created.batch.v1")];

    fn example() -> Self {
        let bound = |uid: &str, name: &str| {
            Some(Bound { uid: Uid::opaque(uid), name: name.to_owned(), description: "An example".to_owned() })
        };
        let (group, identity) =
            ("63921b2c44617e3f2603851537be0123af4a57d7", "7f0c2b1d44617e3f2603851537be0123af4a57d8");
        Self {
            uid: Uid::opaque(format!("{group}/0123456789abcdef")),
            identity: Some(BoundIdentity {
                uid: Uid::opaque(identity),
                name: "ci".to_owned(),
                description: "Builds images".to_owned(),
                subject: "repo:example/app".to_owned(),
                issuer: "https://issuer.example.com".to_owned(),
                email: "ci@example.com".to_owned(),
            }),
            group: bound(group, "example"),
            role: bound(group, "viewer"),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            identity_uid: Uid::opaque(identity),
            role_uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7"),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if let Some(old) = &change.old {
                change.write.raise(bindings_epoch(&old.identity_uid, &change.uid));
                owner::keep_without_binding(
                    cx,
                    &change.uid,
                    old.bound(),
                    change.new.as_ref().map(Self::bound),
                    &mut change.write,
                )
                .await?;
                if change.new.as_ref().is_none_or(|new| new.identity_uid != old.identity_uid) {
                    identity::remove_binding(cx, &old.identity_uid, &change.uid, &mut change.write).await?;
                }
            }
            let Some(binding) = &mut change.new else { return Ok(()) };
            let group = parent_uid(&change.uid)?;
            if change.old.as_ref().map(Self::bound) != Some(binding.bound()) {
                may_bind(cx, &group, binding, &mut change.write).await?;
            }
            identity::add_binding(cx, &binding.identity_uid, &group, &mut change.write).await?;
            // The names are looked up on every read and never stored.
            (binding.identity, binding.group, binding.role) = (None, None, None);
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        true
    }

    fn render<'a>(cx: &'a Context<'a>, bindings: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(hydrate(cx, bindings))
    }
}

const SUB_REQUEST: &[Field] = &[
    field::uid("parent").about("The group: empty, or that of the batch."),
    Field::message("roleBinding", SUB_BINDING).about("The binding to create.").required(),
];

/// The fields of a binding in a batch, which may get its role from the batch.
const SUB_BINDING: &[Field] = &[
    Field::string("uid").about("Ignored.").output_only(),
    field::uid("identityUid").about("The identity that is given the role.").required().uid_of("Identity"),
    field::uid("roleUid").about("The role to give; by default that of the batch.").uid_of("Role"),
];

fn group_of(body: &Value) -> Option<&str> {
    uid::parent(body.get("uid")?.as_str()?)
}

fn bound_once(body: &Value) -> Option<KeyValue> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let parts = format!("{}\0{}\0{}", group_of(body)?, text("identityUid"), text("roleUid"));
    Some(KeyValue::from_bytes(Sha256::digest(parts).to_vec()))
}

/// Rejects a binding whose role or identity is not available at the group, or that gives capabilities which the caller
/// does not hold.
pub(super) async fn may_bind(cx: &Context<'_>, group: &Uid, binding: &RoleBinding, write: &mut Write) -> Result<()> {
    let mut violations = Violations::default();
    let (identity, role_uid) = (binding.identity_uid.clone(), binding.role_uid.clone());
    let found = role::of_group(cx, group, &role_uid).await?;
    match &found {
        Some(_) => {
            let gone = Error::invalid_field("roleUid", role::NOT_AVAILABLE);
            write.require_or_fail(Require::Exists(Key::new(Role::KIND.name, role_uid)), gone);
        }
        None => violations.add("roleUid", role::NOT_AVAILABLE),
    }
    if !identity.is_root() {
        // A person may be bound before registration; other identities must belong to the organization.
        let known = identity.root() == group.root() && cx.read::<Identity>(&identity).await?.is_some();
        let missing = "must be an identity of this organization or a registered person";
        if known {
            let gone = Error::invalid_field("identityUid", missing);
            write.require_or_fail(Require::Exists(Key::new(Identity::KIND.name, identity)), gone);
        } else {
            violations.add("identityUid", missing);
        }
    }
    violations.none_or(())?;
    let granted = cx.platform().capabilities().set_of(found.iter().flat_map(|role| &role.capabilities));
    may_give(cx, group, granted, "roleUid")
}

/// Looks up the names that bindings show, for a page of bindings at once.
async fn hydrate(cx: &Context<'_>, bindings: &mut [RoleBinding]) -> Result<()> {
    let identities = look_up::<Identity>(cx, bindings.iter().map(|binding| binding.identity_uid.clone())).await?;
    let roles = look_up::<Role>(cx, bindings.iter().map(|binding| binding.role_uid.clone())).await?;
    let groups = look_up::<Group>(cx, bindings.iter().filter_map(|binding| binding.uid.parent())).await?;
    for binding in bindings {
        let identity = identities.get(&binding.identity_uid);
        binding.identity = Some(identity.map_or_else(
            || BoundIdentity { uid: binding.identity_uid.clone(), ..BoundIdentity::default() },
            |identity| BoundIdentity {
                uid: identity.uid.clone(),
                name: identity.name.clone(),
                description: identity.description.clone(),
                subject: identity.subject().to_owned(),
                issuer: identity.issuer().to_owned(),
                email: identity.email.clone(),
            },
        ));
        let group = parent_uid(&binding.uid)?;
        let found = groups.get(&group);
        binding.group = Some(Bound {
            uid: group.clone(),
            name: found.map(|group| group.name.clone()).unwrap_or_default(),
            description: found.map(|group| group.description.clone()).unwrap_or_default(),
        });
        let found = roles.get(&binding.role_uid);
        binding.role = Some(Bound {
            uid: binding.role_uid.clone(),
            name: found.map(|role| role.name.clone()).unwrap_or_default(),
            description: found.map(|role| role.description.clone()).unwrap_or_default(),
        });
    }
    Ok(())
}

/// Reads these resources and returns those that exist, by their uids.
pub(super) async fn look_up<R: Resource>(cx: &Context<'_>, uids: impl Iterator<Item = Uid>) -> Result<HashMap<Uid, R>> {
    let mut uids: Vec<_> = uids.collect();
    uids.sort();
    uids.dedup();
    let found = cx.read_all::<R>(uids.clone()).await?;
    Ok(uids.into_iter().zip(found).filter_map(|(uid, found)| Some((uid, found?))).collect())
}

/// Atomically creates 1 to 25 bindings at one group and returns them in the order of the request.
async fn batch_create(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let text = |object: &Value, name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let whole = Value::Object(request);
    let (parent, role) = (text(&whole, "parent"), text(&whole, "roleUid"));
    let requests = whole.get("requests").and_then(Value::as_array).cloned().unwrap_or_default();

    let mut violations = Violations::default();
    let mut bodies = Vec::new();
    for (index, sub) in requests.iter().enumerate() {
        let mut binding = sub.get("roleBinding").and_then(Value::as_object).cloned().unwrap_or_default();
        let sub_parent = text(sub, "parent");
        if !sub_parent.is_empty() && sub_parent != parent {
            violations.add(format!("requests[{index}].parent"), "must be empty or the parent of the batch");
        }
        let sub_role = binding.get("roleUid").and_then(Value::as_str).unwrap_or_default();
        match (sub_role.is_empty(), role.is_empty()) {
            (true, true) => violations.add(format!("requests[{index}].roleBinding.roleUid"), "is required"),
            (true, false) => {
                binding.insert("roleUid".to_owned(), role.clone().into());
            }
            (false, false) if sub_role != role => violations
                .add(format!("requests[{index}].roleBinding.roleUid"), "must be empty or the role of the batch"),
            _ => {}
        }
        bodies.push(binding);
    }
    violations.none_or(())?;

    let registered = Registered::of::<RoleBinding>();
    let mut all = Write::default();
    let mut created = Vec::new();
    let mut violations = Violations::default();
    for (index, body) in bodies.iter().enumerate() {
        match cx.prepare_create(&registered, &parent, body).await {
            Ok(prepared) => {
                created.push(verbs::encode(&prepared.body)?);
                all.append(prepared.write);
            }
            Err(error) if error.violations().is_empty() => return Err(error),
            Err(error) => error.violations().iter().for_each(|violation| {
                let field = format!("requests[{index}].roleBinding.{}", violation.field);
                violations.add(field, violation.description.clone());
            }),
        }
    }
    violations.none_or(())?;
    // Rendered before the commit, because the commit may change the caller's grants: reads after it would have to
    // resolve them again.
    let bindings = cx.rendered(&registered, created).await?;
    let bindings = bindings.iter().map(|binding| serde_json::from_slice(binding).map_err(Error::internal));
    let bindings: Vec<Value> = bindings.collect::<Result<_>>()?;
    let reply = json!({ "roleBindings": bindings });
    let group = Uid::opaque(parent);
    let draft = || {
        let mut draft = action_event::<RoleBinding>("BatchCreateRoleBindings", &group, &reply)?;
        draft.group = group.to_string();
        Ok(draft)
    };
    cx.record_event(&mut all, &group, draft).await?;
    cx.commit(all).await?;
    Ok(reply)
}
