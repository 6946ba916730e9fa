//! Groups: organisations and the folders in them, which everything else lies in (`docs/api.md`, Groups).

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    super::{check, data_of, field},
    RoleBinding, group_access_request, identity, owner, role, role_binding,
};
use crate::{
    BoxFuture,
    access::{Capability, cap},
    context::Context,
    error::{Error, Result, Violations},
    event::Draft,
    event_log::subscriptions_epoch,
    iam::{identity_epoch, organization_epoch},
    kind::{Action, Change, DerivedKey, Domain, Field, Kind, Method, Param, Parent, Resource, Type, Unique, Verb},
    store::{Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};

/// An organisation, or a folder at any depth below one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// One segment for an organisation, otherwise the parent's and one.
    pub uid: Uid,
    /// Unique among the folders of one parent; organisations may share a name, unless they are verified.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// How many resources of a sort it may have; set by the installation.
    pub resource_limits: BTreeMap<String, i32>,
    /// Whether the operator vouches that the name, a mail domain, is the organisation's.
    pub verified: bool,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
    /// What sort of organisation a verified one is; a folder shows its organisation's.
    pub kind: OrgKind,
    /// How far an organisation has come; a folder shows its organisation's.
    pub status: OrgStatus,
}

/// What sort of organisation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum OrgKind {
    #[default]
    OrgKindUnspecified,
    OrgKindStarter,
    OrgKindCustomer,
    OrgKindDev,
    OrgKindInfra,
    OrgKindAwsMarketplace,
}

/// How far an organisation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum OrgStatus {
    #[default]
    OrgStatusUnspecified,
    OrgStatusInitializing,
    OrgStatusReady,
    OrgStatusSuspended,
}

const ORG_KINDS: &[&str] = &[
    "ORG_KIND_UNSPECIFIED",
    "ORG_KIND_STARTER",
    "ORG_KIND_CUSTOMER",
    "ORG_KIND_DEV",
    "ORG_KIND_INFRA",
    "ORG_KIND_AWS_MARKETPLACE",
];

const ORG_STATUSES: &[&str] =
    &["ORG_STATUS_UNSPECIFIED", "ORG_STATUS_INITIALIZING", "ORG_STATUS_READY", "ORG_STATUS_SUSPENDED"];

/// An installation's decisions about groups.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupSettings {
    /// Whether every registered person may create organizations, or the operator alone, which is the default.
    pub open_organizations: bool,
    /// Mail domains that many organizations share, so that LookupGroup finds none by them.
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
    const KIND: &'static Kind = &Kind::new("Group", "groups", "GroupsService", Domain::IAM)
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
            DerivedKey { name: "segment", values: |body| vec![KeyValue::text(check::last_segment(body))] },
            DerivedKey { name: "verifiedName", values: |body| verified_name(body).into_iter().collect() },
        ])
        .unique(&[
            Unique {
                space: "group.name",
                what: "a group of this name in the group",
                value: check::name_in_parent,
                by: &["name"],
            },
            Unique {
                space: "group.verified",
                what: "a verified organisation of this name",
                value: verified_name,
                by: &[],
            },
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
        .request(&[field::uid("groupUid").about("The group to join.").required()]),
        Action::post("RepairOwner", "groups/{groupUid=**}:repairOwner", |cx, request| {
            Box::pin(owner::repair(cx, request))
        })
        .request(&[
            field::uid("groupUid").about("The organization.").required(),
            field::uid("identityUid").about("The identity to bind as `owner`.").required(),
        ])
        .response(&[Field::message("roleBinding", role_binding::FIELDS).about("The binding that was made.")])
        .event("iam.rolebindings.created.v1"),
        Action::get("CheckEligibility", "groups:checkEligibility", |cx, _| Box::pin(check_eligibility(cx)))
            .response(&[Field::bool("eligible").about("Whether the caller may ask to join an organization.")]),
    ];

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7"),
            name: "example.com".to_owned(),
            description: "The example organisation".to_owned(),
            resource_limits: BTreeMap::from([("repositories".to_owned(), 100)]),
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
            let organisation = change.uid.is_root();
            let before = change.old.take().unwrap_or_default();
            let Some(group) = &mut change.new else {
                // Its bindings go with it, so that whoever had them is decided anew.
                change.write.raise(organization_epoch(&change.uid));
                // And so do its subscriptions.
                change.write.raise(subscriptions_epoch(change.uid.root()));
                return Ok(());
            };
            let mut violations = Violations::default();
            if organisation {
                let by_staff = (group.verified, group.kind) != (before.verified, before.kind);
                let renamed = before.verified && group.name != before.name;
                if (by_staff || renamed) && !cx.is_operator() {
                    return Err(Error::denied());
                }
                match (group.verified, group.kind) {
                    (true, OrgKind::OrgKindUnspecified) => {
                        violations.add("kind", "is required for a verified organisation");
                    }
                    (false, kind) if kind != OrgKind::OrgKindUnspecified => {
                        violations.add("kind", "is for verified organisations only");
                    }
                    _ => {}
                }
            } else {
                if group.verified {
                    violations.add("verified", "is for organisations only");
                }
                // What was read can be written back.
                if group.kind != OrgKind::default() {
                    let organisation = cx.read::<Self>(&Uid::opaque(change.uid.root())).await?;
                    if organisation.is_none_or(|organisation| organisation.kind != group.kind) {
                        violations.add("kind", "is inherited from the organisation");
                    }
                }
                group.kind = OrgKind::default();
                group.status = OrgStatus::default();
            }
            violations.none_or(())?;
            if organisation && change.verb == Verb::Create {
                group.status = OrgStatus::OrgStatusReady;
                let caller = &cx.caller().identity;
                let owner =
                    RoleBinding::new(&change.uid, caller, &role::owner_uid(), cx.platform().entropy(), cx.now());
                change.write.put(&owner.uid, &owner, Bytes::new())?;
                change.write.raise(identity_epoch(caller));
            }
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        !self.uid.is_root()
    }

    /// A folder's kind and status are its organisation's.
    fn render<'a>(cx: &'a Context<'a>, groups: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut roots: Vec<_> = groups.iter().map(|group| group.uid.root().to_owned()).collect();
            roots.sort();
            roots.dedup();
            let organisations = cx.read_all::<Self>(roots.into_iter().map(Uid::opaque)).await?;
            for group in groups {
                let mut organisations = organisations.iter().flatten();
                if let Some(organisation) = organisations.find(|organisation| &*organisation.uid == group.uid.root()) {
                    (group.kind, group.status) = (organisation.kind, organisation.status);
                }
            }
            Ok(())
        })
    }

    /// A group's own subscriptions hear of it, but for its end.
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
        .about("The most resources of each kind that the group may have. It is not enforced yet.")
        .output_only(),
    Field::bool("verified").about(
        "Whether the operator has verified the name. Only organizations can be verified, and only by the operator.",
    ),
    Field::CREATE_TIME,
    Field::UPDATE_TIME,
    Field::enumeration("kind", ORG_KINDS).about("What kind of organization a verified one is."),
    Field::enumeration("status", ORG_STATUSES).about("Whether the organization is ready for use.").output_only(),
];

fn verified_name(body: &Value) -> Option<KeyValue> {
    let verified = body.get("verified").and_then(Value::as_bool).unwrap_or_default();
    body.get("name").and_then(Value::as_str).filter(|_| verified).map(KeyValue::text)
}

/// Finds the parent of a new group: none for an organisation, otherwise a uid, the end of a uid, or a name.
///
/// Names and ends of uids are looked for only where the caller may create groups, so that they tell nothing of other
/// organisations.
///
/// # Errors
/// PERMISSION_DENIED where the caller may not, INVALID_ARGUMENT when it names none or several.
async fn parent_for_create(cx: &Context<'_>, parent: &str, needed: &[Capability]) -> Result<Option<Uid>> {
    if parent.is_empty() {
        let person = cx.caller().identity.is_root() && cx.caller().narrowing.is_none();
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
    let mut found = Vec::new();
    for (key, value) in [("name", parent), ("segment", segment)] {
        let mut query = Query::new(Group::KIND.name, Scope::Roots);
        query.scopes = nodes.iter().cloned().map(Scope::Subtree).collect();
        query.filters = vec![Filter::AnyOf { key, values: vec![KeyValue::text(value)] }];
        query.limit = 100;
        let page = cx.page(query).await?;
        let ends_so = |uid: &Uid| key == "name" || uid.as_str() == parent || uid.ends_with(&format!("/{parent}"));
        found.extend(page.items.into_iter().map(|item| item.uid).filter(ends_so));
    }
    found.sort();
    found.dedup();
    match <[Uid; 1]>::try_from(found) {
        Ok([uid]) => Ok(Some(uid)),
        Err(none) if none.is_empty() => {
            Err(Error::invalid_field("parent", "must be the uid, the end of the uid or the name of one of your groups"))
        }
        Err(_) => Err(Error::invalid_field("parent", "names several of your groups; give the uid")),
    }
}

/// Returns the verified organisation whose name is the domain of the caller's verified mail address.
///
/// There is one answer for whatever is missing: an address, a domain of one's own, an organisation.
async fn organisation_of(cx: &Context<'_>) -> Result<Option<Group>> {
    let email = &identity::of_caller(cx)?.email;
    let Some((_, domain)) = email.rsplit_once('@') else { return Ok(None) };
    let domain = domain.to_ascii_lowercase();
    if data_of::<GroupSettings>(cx)?.shared_mail_domains.contains(&domain) || !cx.caller().identity.is_root() {
        return Ok(None);
    }
    let named = Filter::AnyOf { key: "verifiedName", values: vec![KeyValue::text(&domain)] };
    let query = Query { filters: vec![named], limit: 1, ..Query::new(Group::KIND.name, Scope::Roots) };
    Ok(cx.find::<Group>(query).await?.pop())
}

async fn lookup(cx: &Context<'_>) -> Result<Value> {
    match organisation_of(cx).await? {
        Some(group) => Ok(json!({ "group": crate::kind::canonical(&group)? })),
        None => Err(Error::not_found(Group::KIND, "the organisation of your mail domain")),
    }
}

async fn check_eligibility(cx: &Context<'_>) -> Result<Value> {
    let eligible = organisation_of(cx).await?.is_some_and(|group| cx.held_at(&group.uid).is_empty());
    Ok(json!({ "eligible": eligible }))
}

async fn request_access(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let group_uid = request.get("groupUid").and_then(Value::as_str).unwrap_or_default();
    let group = organisation_of(cx).await?.filter(|group| &*group.uid == group_uid);
    let group = group.ok_or_else(|| Error::not_found(Group::KIND, group_uid))?;
    group_access_request::record(cx, &group.uid).await?;
    Ok(json!({}))
}
