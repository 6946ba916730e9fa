//! Groups: organizations and the folders in them, which contain all other resources (`docs/api.md`, Groups).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;
use platform_engine::{
    BoxFuture,
    access::Capability,
    context::Context,
    error::{Error, Result, Violations},
    event::Draft,
    kind::{
        Action, Change, DerivedKey, Field, Kind, Method, Param, Parent, Registered, Resource, Type, Unique, Verb,
        canonical,
    },
    store::{Filter, Key, KeyValue, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    verbs,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::{
    super::{check, data_of, domain, events::subscription::subscriptions_epoch, field},
    Identity, RoleBinding, group_access_request, identity, owner, role, role_binding,
};
use crate::{capabilities::cap, iam::organization_epoch};

/// An organization, or a folder at any depth in one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// One segment for an organization, otherwise the uid of the parent and a segment.
    pub uid: Uid,
    /// Unique among the folders of one parent; organizations may share a name, unless they are verified.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The maximum number of resources at or below an organization, by the names of kinds; set by the operator.
    pub resource_limits: BTreeMap<String, i32>,
    /// Whether the operator has verified that the name, an email domain, belongs to the organization.
    pub verified: bool,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
    /// The kind of a verified organization; a folder shows its organization's.
    pub kind: OrgKind,
    /// The status of the organization; a folder shows its organization's.
    pub status: OrgStatus,
}

/// The kind of an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum OrgKind {
    #[default]
    OrgKindUnspecified,
    OrgKindStarter,
    OrgKindCustomer,
    OrgKindDev,
    OrgKindInfra,
    OrgKindAwsMarketplace,
}

/// The status of an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
pub enum OrgStatus {
    #[default]
    OrgStatusUnspecified,
    OrgStatusInitializing,
    OrgStatusReady,
    OrgStatusSuspended,
}

/// An installation's settings for groups.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupSettings {
    /// Whether every registered person may create organizations; by default only the operator may.
    pub open_organizations: bool,
    /// Email domains that many organizations share, by which LookupGroup finds no organization.
    pub shared_mail_domains: HashSet<String>,
}

impl Default for GroupSettings {
    fn default() -> Self {
        let shared = ["gmail.com", "outlook.com", "hotmail.com", "yahoo.com", "icloud.com", "proton.me", "gmx.net"];
        Self { open_organizations: false, shared_mail_domains: shared.map(str::to_owned).into() }
    }
}

impl GroupSettings {
    /// Sets whether every registered person may create organizations.
    #[must_use]
    pub fn open_organizations(self, open_organizations: bool) -> Self {
        Self { open_organizations, ..self }
    }
}

impl Resource for Group {
    const KIND: &'static Kind = &Kind::new("Group", "groups", "GroupsService", domain::IAM)
        .parent(Parent::GroupOrNone)
        .methods(&[
            Method::list(&[cap("groups.list")])
                .params(&[Param::exact("name").about("Only groups with exactly this name.")]),
            Method::get(&[cap("groups.list")]),
            Method::create(&[cap("groups.create")]).event("iam.group.created.v1"),
            Method::update(&[cap("groups.update")]).event("iam.group.updated.v1"),
            Method::delete(&[cap("groups.delete")]).event("iam.group.deleted.v1"),
        ])
        .fields(GROUP_FIELDS)
        .keys(&[
            DerivedKey::new("segment", |body| vec![KeyValue::text(check::last_segment(body))]),
            DerivedKey::new("verifiedName", |body| verified_name(body).into_iter().collect()),
        ])
        .unique(&[
            Unique::in_parent("group.name", "A group of this name in the group", "name").by(&["name"]),
            Unique::new("group.verified", "A verified organization of this name", verified_name),
        ]);

    const ACTIONS: &'static [Action] = &[
        Action::get("LookupGroup", "groups:lookupGroup", |cx, _| Box::pin(lookup(cx))).response(&[Field::message(
            "group",
            GROUP_FIELDS,
        )
        .about("The organization with the verified domain of the caller's email address.")]),
        Action::post("RequestGroupAccess", "groups/{groupUid=**}:requestGroupAccess", |cx, request| {
            Box::pin(request_access(cx, request))
        })
        .previewed()
        .request(&[field::uid("groupUid").about("The group to join.").required().uid_of("Group")]),
        Action::post("RepairOwner", "groups/{groupUid=**}:repairOwner", |cx, request| {
            Box::pin(repair_owner(cx, request))
        })
        .previewed()
        .request(&[
            field::uid("groupUid").about("The organization.").required().uid_of("Group"),
            field::uid("identityUid").about("The identity to bind as `owner`.").required().uid_of("Identity"),
        ])
        .response(&[Field::message("roleBinding", role_binding::FIELDS).about("The binding that was made.")])
        .event("iam.rolebindings.created.v1"),
        SET_LIMIT,
        REMOVE_LIMIT,
        LIST_LIMITS,
        Action::get("CheckEligibility", "groups:checkEligibility", |cx, _| Box::pin(check_eligibility(cx)))
            .response(&[Field::bool("eligible").about("Whether the caller may ask to join an organization.")]),
    ];

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7"),
            name: "example.com".to_owned(),
            description: "The example organization".to_owned(),
            resource_limits: BTreeMap::from([("Repo".to_owned(), 100)]),
            verified: true,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
            kind: OrgKind::OrgKindCustomer,
            status: OrgStatus::OrgStatusReady,
        }
    }

    fn parent_for_create<'a>(
        cx: &'a Context<'a>,
        parent: &'a str,
        needed: &'static [Capability],
    ) -> BoxFuture<'a, Result<Option<Uid>>> {
        Box::pin(parent_for_create(cx, parent, needed))
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let organization = change.uid.is_root();
            let before = change.old.take().unwrap_or_default();
            let Some(group) = &mut change.new else {
                // The group's role bindings are deleted with it, so the grants of their identities must be resolved
                // again.
                change.write.raise(organization_epoch(&change.uid));
                // Its subscriptions are deleted, too.
                change.write.raise(subscriptions_epoch(change.uid.root()));
                return Ok(());
            };
            let mut violations = Violations::default();
            if organization {
                let verification_changed = (group.verified, group.kind) != (before.verified, before.kind);
                let verified_name_changed = before.verified && group.name != before.name;
                if (verification_changed || verified_name_changed) && !cx.is_operator() {
                    return Err(Error::denied());
                }
                match (group.verified, group.kind) {
                    (true, OrgKind::OrgKindUnspecified) => {
                        violations.add("kind", "is required for a verified organization");
                    }
                    (false, kind) if kind != OrgKind::OrgKindUnspecified => {
                        violations.add("kind", "must be unset unless the organization is verified");
                    }
                    _ => {}
                }
            } else {
                if group.verified {
                    violations.add("verified", "must be false for a folder");
                }
                // A folder as it was read, with its organization's kind, can be written back.
                if group.kind != OrgKind::default() {
                    let organization = cx.read::<Self>(&Uid::opaque(change.uid.root())).await?;
                    if organization.is_none_or(|organization| organization.kind != group.kind) {
                        violations.add("kind", "is inherited from the organization");
                    }
                }
                group.kind = OrgKind::default();
                group.status = OrgStatus::default();
            }
            violations.none_or(())?;
            if organization && change.verb == Verb::Create {
                group.status = OrgStatus::OrgStatusReady;
                let caller = cx.demand_caller()?.identity.clone();
                let owner =
                    RoleBinding::new(&change.uid, &caller, &role::owner_uid(), cx.platform().entropy(), cx.now());
                change.write.put(&owner.uid, &owner, Bytes::new())?;
                identity::add_binding(cx, &caller, &change.uid, &mut change.write).await?;
            }
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        !self.uid.is_root()
    }

    /// Sets a folder's kind and status to those of its organization.
    fn render<'a>(cx: &'a Context<'a>, groups: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut roots: Vec<_> = groups.iter().map(|group| group.uid.root().to_owned()).collect();
            roots.sort();
            roots.dedup();
            let organizations = cx.read_all::<Self>(roots.into_iter().map(Uid::opaque)).await?;
            for group in groups {
                let mut organizations = organizations.iter().flatten();
                if let Some(organization) = organizations.find(|organization| &*organization.uid == group.uid.root()) {
                    (group.kind, group.status) = (organization.kind, organization.status);
                }
            }
            Ok(())
        })
    }

    /// Addresses events to the group itself, except the event of its deletion: its own subscriptions are deleted with
    /// it.
    fn customize_event(event: &mut Draft) {
        if event.verb != Some(Verb::Delete) {
            event.group.clone_from(&event.subject);
        }
    }
}

const GROUP_FIELDS: &[Field] = &[
    Field::UID,
    field::NAME.about("The group's name, as `^[a-z0-9 ._-]{1,}$`."),
    field::DESCRIPTION,
    Field::new("resourceLimits", Type::Map(&Type::Int32))
        .about("The maximum number of resources of each kind at or below the organization. The operator sets it.")
        .output_only(),
    Field::bool("verified").about(
        "Whether the operator has verified the name. Only organizations can be verified, and only by the operator.",
    ),
    Field::CREATE_TIME,
    Field::UPDATE_TIME,
    Field::enumeration("kind", OrgKind::VARIANTS).about("The kind of a verified organization."),
    Field::enumeration("status", OrgStatus::VARIANTS).about("Whether the organization is ready for use.").output_only(),
];

fn verified_name(body: &Value) -> Option<KeyValue> {
    let verified = body.get("verified").and_then(Value::as_bool).unwrap_or_default();
    body.get("name").and_then(Value::as_str).filter(|_| verified).map(KeyValue::text)
}

/// Finds the parent of a new group by its uid, the end of its uid, or its name. Returns `None` for a new organization.
///
/// Names and ends of uids are only looked up in groups where the caller may create groups, so that the response does
/// not reveal other organizations.
///
/// # Errors
/// PERMISSION_DENIED where the caller may not create groups, INVALID_ARGUMENT when `parent` matches none or several.
async fn parent_for_create(cx: &Context<'_>, parent: &str, needed: &[Capability]) -> Result<Option<Uid>> {
    if parent.is_empty() {
        let person = cx.caller().is_some_and(|caller| caller.identity.is_root() && caller.narrowing.is_none());
        let open = data_of::<GroupSettings>(cx)?.open_organizations && person;
        return if open || cx.is_operator() { Ok(None) } else { Err(Error::denied()) };
    }
    if let Ok(uid) = Uid::parse(parent) {
        cx.demand(&uid, needed)?;
        return Ok(Some(uid));
    }
    let nodes = cx.nodes(needed);
    if nodes.is_empty() {
        return Err(Error::denied());
    }
    let segment = parent.rsplit('/').next().unwrap_or(parent);
    let mut found = BTreeSet::new();
    for (key, value) in [("name", parent), ("segment", segment)] {
        let mut query = Query::new(Group::KIND.name, Scope::Roots);
        query.scopes = nodes.scopes().into_vec();
        query.filters = vec![Filter::AnyOf { key, values: vec![KeyValue::text(value)] }];
        query.limit = 100;
        let page = cx.page(query).await?;
        let matches = |uid: &Uid| key == "name" || uid.ends_with(&format!("/{parent}"));
        found.extend(page.items.into_iter().map(|item| item.uid()).filter(matches));
    }
    match <[Uid; 1]>::try_from(Vec::from_iter(found)) {
        Ok([uid]) => Ok(Some(uid)),
        Err(none) if none.is_empty() => {
            Err(Error::invalid_field("parent", "must be the uid, the end of the uid or the name of one of your groups"))
        }
        Err(_) => Err(Error::invalid_field("parent", "matches several of your groups; use the uid")),
    }
}

/// Returns the verified organization whose name is the domain of the caller's verified email address.
///
/// Returns `None` for every reason alike: without an address, for a shared domain, and without an organization.
///
/// # Errors
/// PERMISSION_DENIED for a narrowed token, and those of the store.
async fn organization_of_caller(cx: &Context<'_>) -> Result<Option<Group>> {
    cx.demand_caller_itself()?;
    // Only registered persons have one.
    let email = &identity::of_caller(cx)?.email;
    let Some((_, domain)) = email.rsplit_once('@') else { return Ok(None) };
    let domain = domain.to_ascii_lowercase();
    if data_of::<GroupSettings>(cx)?.shared_mail_domains.contains(&domain) {
        return Ok(None);
    }
    verified_organization(cx, &domain).await
}

/// Returns the verified organization of this name.
pub(crate) async fn verified_organization(cx: &Context<'_>, name: &str) -> Result<Option<Group>> {
    let named = Filter::AnyOf { key: "verifiedName", values: vec![KeyValue::text(name)] };
    let query = Query { filters: vec![named], limit: 1, ..Query::new(Group::KIND.name, Scope::Roots) };
    Ok(cx.find::<Group>(query).await?.pop())
}

async fn lookup(cx: &Context<'_>) -> Result<Value> {
    match organization_of_caller(cx).await? {
        Some(group) => Ok(json!({ "group": canonical(&group)? })),
        None => Err(Error::not_found(Group::KIND, "the organization of your email domain")),
    }
}

async fn check_eligibility(cx: &Context<'_>) -> Result<Value> {
    let eligible = organization_of_caller(cx).await?.is_some_and(|group| cx.held_at(&group.uid).is_empty());
    Ok(json!({ "eligible": eligible }))
}

async fn request_access(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let group_uid = request.get("groupUid").and_then(Value::as_str).unwrap_or_default();
    let group = organization_of_caller(cx).await?.filter(|group| &*group.uid == group_uid);
    let group = group.ok_or_else(|| Error::not_found(Group::KIND, group_uid))?;
    group_access_request::record(cx, &group.uid).await?;
    Ok(json!({}))
}

/// Binds an identity to the role `owner` at an organization, whether or not it has owners. Only the operator may do
/// this.
async fn repair_owner(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    const BINDING: Registered = Registered::of::<RoleBinding>();
    if !cx.is_operator() {
        return Err(Error::denied());
    }
    let uid_in = |name: &str| Uid::opaque(request.get(name).and_then(Value::as_str).unwrap_or_default());
    let (organization, identity) = (uid_in("groupUid"), uid_in("identityUid"));
    if !organization.is_root() {
        return Err(Error::invalid_field("groupUid", "must be the uid of an organization, which has one segment"));
    }
    let missing = || Error::not_found(Group::KIND, organization.as_str());
    let group = cx.record(Group::KIND, &organization).await?.ok_or_else(missing)?;
    let record = cx.record(Identity::KIND, &identity).await?;
    let record = record.ok_or_else(|| Error::not_found(Identity::KIND, identity.as_str()))?;
    if !owner::can_own(cx, &organization, &identity).await? {
        let why = "must be a registered person or an identity directly in the organization, and assumable";
        return Err(Error::invalid_field("identityUid", why));
    }
    let mut write = Write::default();
    write.require_or_fail(Require::Exists(Key::new(Group::KIND.name, group.key.uid)), missing());
    write.require_or_retry(Require::Revision(record.key, record.revision));
    let owner = RoleBinding::new(&organization, &identity, &role::owner_uid(), cx.platform().entropy(), cx.now());
    write.put(&owner.uid, &owner, Bytes::new())?;
    identity::add_binding(cx, &identity, &organization, &mut write).await?;
    let stored = verbs::encode(&canonical(&owner)?)?;
    let reply = cx.rendered(&BINDING, vec![stored]).await?.pop();
    let reply = reply.ok_or_else(|| Error::internal("a resource was lost while rendering"))?;
    cx.record_method_event(&mut write, &BINDING, Verb::Create, &owner.uid, Some(&reply)).await?;
    cx.commit(write).await?;
    let binding: Value = serde_json::from_slice(&reply).map_err(Error::internal)?;
    Ok(json!({ "roleBinding": binding }))
}

const SET_LIMIT: Action = Action::post("SetResourceLimit", "groups/{groupUid=**}:setResourceLimit", |cx, request| {
    Box::pin(set_limit(cx, request))
})
.previewed()
.request(&[
    ORGANIZATION,
    Field::string("kind").about("The name of the kind, such as `Repo`.").required(),
    Field::new("limit", Type::Int32).about("The maximum number; 0 for none.").required(),
])
.response(LIMITED)
.event("iam.group.updated.v1");

const REMOVE_LIMIT: Action =
    Action::post("RemoveResourceLimit", "groups/{groupUid=**}:removeResourceLimit", |cx, request| {
        Box::pin(remove_limit(cx, request))
    })
    .previewed()
    .request(&[ORGANIZATION, Field::string("kind").about("The name of the kind, such as `Repo`.").required()])
    .response(LIMITED)
    .event("iam.group.updated.v1");

const LIST_LIMITS: Action =
    Action::get("ListResourceLimits", "groups/{groupUid=**}:listResourceLimits", |cx, request| {
        Box::pin(list_limits(cx, request))
    })
    .request(&[ORGANIZATION])
    .response(&[Field::new(
        "limits",
        Type::List(&Type::Message(&[
            Field::string("kind").about("The name of the kind."),
            Field::new("limit", Type::Int32).about("The maximum number of resources at or below the organization."),
            Field::new("count", Type::Int64).about("Their number now."),
        ])),
    )
    .about("The limits, in the order of the kinds' names.")]);

const ORGANIZATION: Field = field::uid("groupUid").about("The organization.").required().uid_of("Group");
const LIMITED: &[Field] = &[Field::message("group", GROUP_FIELDS).about("The organization with its limits.")];

/// Returns the organization of a request. Only the operator may ask about it.
fn limited(cx: &Context<'_>, request: &Map<String, Value>) -> Result<Uid> {
    if !cx.is_operator() {
        return Err(Error::denied());
    }
    let organization = Uid::opaque(text(request, "groupUid"));
    if organization.is_root() {
        Ok(organization)
    } else {
        Err(Error::invalid_field("groupUid", "must be the uid of an organization, which has one segment"))
    }
}

fn text<'r>(request: &'r Map<String, Value>, name: &str) -> &'r str {
    request.get(name).and_then(Value::as_str).unwrap_or_default()
}

async fn set_limit(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let organization = limited(cx, &request)?;
    let kind = text(&request, "kind");
    if cx.platform().kinds_with_quotas().all(|known| known.name != kind) {
        return Err(Error::invalid_field("kind", "must be the name of a kind that is created in groups, such as Repo"));
    }
    let limit = request.get("limit").and_then(Value::as_i64).and_then(|limit| i32::try_from(limit).ok());
    let limit = limit.filter(|limit| *limit >= 0);
    let limit = limit.ok_or_else(|| Error::invalid_field("limit", "must be from 0 to 2147483647"))?;
    let change = |limits: &mut BTreeMap<_, _>| {
        limits.insert(kind.to_owned(), limit);
    };
    change_limits(cx, &organization, change).await
}

async fn remove_limit(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let organization = limited(cx, &request)?;
    let change = |limits: &mut BTreeMap<_, _>| {
        limits.remove(text(&request, "kind"));
    };
    change_limits(cx, &organization, change).await
}

/// Changes the limits of an organization, with the event of an update, and returns the organization. A change without
/// an effect commits nothing.
async fn change_limits(
    cx: &Context<'_>,
    organization: &Uid,
    change: impl FnOnce(&mut BTreeMap<String, i32>) + Send,
) -> Result<Value> {
    let missing = || Error::not_found(Group::KIND, organization.as_str());
    let record = cx.record(Group::KIND, organization).await?.ok_or_else(missing)?;
    let before: Group = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    let mut group = before.clone();
    change(&mut group.resource_limits);
    if group != before {
        group.update_time = before.update_time.max(Some(cx.now()));
        let mut write = Write::default();
        write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
        write.replace(&record, &group, record.private.clone())?;
        // Limits are cached under this epoch.
        write.raise(subscriptions_epoch(organization.root()));
        let (registered, reply) = (Registered::of::<Group>(), verbs::encode(&canonical(&group)?)?);
        cx.record_method_event(&mut write, &registered, Verb::Update, organization, Some(&reply)).await?;
        cx.commit(write).await?;
    }
    Ok(json!({ "group": canonical(&group)? }))
}

async fn list_limits(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let organization = limited(cx, &request)?;
    let missing = || Error::not_found(Group::KIND, organization.as_str());
    let group = cx.read::<Group>(&organization).await?.ok_or_else(missing)?;
    let mut limits = Vec::new();
    for (name, limit) in group.resource_limits {
        // A later release may have set the limit of a kind that this one does not have.
        let Some(kind) = cx.platform().kinds_with_quotas().find(|kind| kind.name == name) else { continue };
        let query = Query::new(kind.name, Scope::Subtree(organization.clone()));
        let page = cx.page(Query { limit: 0, count: true, ..query }).await?;
        limits.push(json!({ "kind": name, "limit": limit, "count": page.total.unwrap_or_default().to_string() }));
    }
    Ok(json!({ "limits": limits }))
}
