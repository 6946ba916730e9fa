//! Invites: codes that a person can redeem for a role in a group (`docs/api.md`, Group invites).

use bytes::Bytes;
use platform_engine::{
    BoxFuture,
    access::{ActsAs, Caller, Capability, Credential, RegistrationId, Session},
    context::Context,
    duration::Duration,
    error::{Code, Error, Result},
    event::Draft,
    kind::{Change, Column, DerivedKey, Field, Kind, Method, Param, Parent, Resource, Type, Verb, parent_uid},
    seal::Secret,
    store::{Delete, Filter, Key, KeyValue, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    super::{domain, field},
    Group, Identity, Role, RoleBinding,
    group::OrgStatus,
    identity,
    names::{GIVEN_ROLE, GROUP_INVITE},
    role, role_binding,
};
use crate::{capabilities::cap, iam::may_give_role};

/// An invite to a group: a person who redeems its code gets its role there. Immutable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupInvite {
    /// The uid of the group and a segment.
    pub uid: Uid,
    /// The uid of the role: a built-in role, or a role of the group or one of its ancestors.
    pub role_uid: Uid,
    /// The role, looked up on every read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<InvitedRole>,
    /// The verified email address that a person must have to redeem the code; empty for no restriction.
    pub email: String,
    /// The validity of the invite from its creation on, as a duration such as `3600s`. Only in requests: responses have
    /// null.
    pub ttl: Option<String>,
    /// When the invite expires.
    pub expiration_time: Option<Timestamp>,
    /// Whether the code can be redeemed only once.
    pub single_use: bool,
    /// The code. Only the response of the create has it.
    pub code: Secret,
    /// Identifies the code; not secret and not sufficient to redeem the invite.
    pub key_id: String,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

/// The role of an invite, as invites show it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InvitedRole {
    /// The role's uid.
    pub uid: Uid,
    /// The role's name.
    pub name: String,
    /// The role's description.
    pub description: String,
    /// The role's capabilities, in the order of their numbers in the contract.
    pub capabilities: Vec<String>,
}

const ROLE: &[Field] = &[
    Field::string("uid").about("The role's uid.").output_only(),
    Field::string("name").about("The role's name.").output_only(),
    Field::string("description").about("The role's description.").output_only(),
    Field::new("capabilities", Type::List(&Type::Capability)).about("The role's capabilities.").output_only(),
];

impl Resource for GroupInvite {
    const KIND: &'static Kind = &Kind::new(GROUP_INVITE, "groupInvites", "GroupInvitesService", domain::IAM)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("group_invites.list")])
                .order("createTime desc")
                .params(&[Param::exact("keyId").about("Only the invite with this key identifier.")]),
            Method::get(&[cap("group_invites.list")]),
            Method::create(INVITER_CAPABILITIES).event("iam.group_invite.created.v1"),
            Method::delete(&[cap("group_invites.delete")]).event("iam.group_invite.deleted.v1"),
        ])
        .columns(&Column::fields(["role.name", "email", "expirationTime", "singleUse"]))
        .fields(&[
            Field::UID,
            field::uid("roleUid")
                .about("The role that the invite gives: a built-in role, or a role of the group or its ancestors.")
                .required()
                .privileged()
                .uid_of("Role"),
            Field::message("role", ROLE).about("The role that the invite gives.").output_only(),
            Field::string("email")
                .about(
                    "The verified email address that the invited person must have; empty for anyone who has the code.",
                )
                .check(email)
                .findable(),
            Field::new("ttl", Type::Duration)
                .about("How long the invite is valid, such as `86400s`; greater than 0. Always null in responses.")
                .required()
                .input_only()
                .always()
                .check(ttl),
            Field::timestamp("expirationTime").about("When the invite expires.").output_only(),
            Field::bool("singleUse").about("Whether the code can be redeemed only once."),
            Field::string("code")
                .about("The code to redeem. Only the response of the create has it.")
                .output_only()
                .once(),
            Field::string("keyId").about("Identifies the code without revealing it.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME.rest_only(),
        ])
        .keys(&[DerivedKey::of_field(GIVEN_ROLE, "roleUid")])
        .cascade();

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // Without the hash, no code redeems the invite.
        let private: Private = serde_json::from_slice(&private).map_err(Error::internal)?;
        let private = Private { code_hash: String::new(), ..private };
        serde_json::to_vec(&private).map(Into::into).map_err(Error::internal)
    }

    fn example() -> Self {
        let group = "63921b2c44617e3f2603851537be0123af4a57d7";
        Self {
            uid: Uid::opaque(format!("{group}/0123456789abcdef")),
            role_uid: Uid::opaque(group),
            role: Some(InvitedRole {
                uid: Uid::opaque(group),
                name: "viewer".to_owned(),
                description: "Viewer Role (built-in)".to_owned(),
                capabilities: vec![cap("groups.list").id().to_owned()],
            }),
            email: "ada@example.com".to_owned(),
            ttl: Some("604800s".to_owned()),
            expiration_time: Some(Timestamp::EPOCH),
            single_use: true,
            code: Secret::new(format!(
                "{PREFIX}63921b2c44617e3f2603851537be0123af4a57d7_0123456789abcdef_{}",
                "0123456789abcdef".repeat(4)
            )),
            key_id: "0123456789abcdef".to_owned(),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (Some(invite), Verb::Create) = (&mut change.new, change.verb) else { return Ok(()) };
            let group = parent_uid(&change.uid)?;
            may_give_role(cx, &group, &invite.role_uid, "roleUid", &mut change.write).await?;
            change.private = invite.issue(cx, group.root(), false)?;
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        true
    }

    fn render<'a>(cx: &'a Context<'a>, invites: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let roles = invites.iter().map(|invite| invite.role_uid.clone());
            let roles = role_binding::look_up::<Role>(cx, roles).await?;
            for invite in invites {
                let role = roles.get(&invite.role_uid).cloned().unwrap_or_default();
                invite.role = Some(InvitedRole {
                    uid: invite.role_uid.clone(),
                    name: role.name,
                    description: role.description,
                    capabilities: role.capabilities,
                });
            }
            Ok(())
        })
    }

    /// Reduces the event to the invite's uid and expiration time.
    fn customize_event(event: &mut Draft) {
        event.body.retain(|name, _| matches!(name.as_str(), "uid" | "expirationTime"));
    }
}

impl GroupInvite {
    /// Sets the expiration time and a new code for an invite of this organization, and returns the private part.
    fn issue(&mut self, cx: &Context<'_>, organization: &str, founding: bool) -> Result<Bytes> {
        let ttl = self.ttl.as_deref().and_then(|ttl| Duration::parse(ttl).ok());
        let life = ttl.map_or(0, Duration::millis);
        self.expiration_time = Some(cx.now().plus_millis(life));
        let (mut key_id, mut secret) = ([0; 8], [0; 32]);
        cx.platform().entropy().fill(&mut key_id);
        cx.platform().entropy().fill(&mut secret);
        self.key_id = hex::encode(key_id);
        let code = format!("{PREFIX}{organization}_{}_{}", self.key_id, hex::encode(secret));
        let caller = cx.demand_caller()?;
        let private = Private {
            code_hash: hash(&code),
            invited_by: caller.identity.clone(),
            registration: cx.registration(),
            session: caller.session.as_deref().cloned(),
            founding,
        };
        self.code = Secret::new(code);
        self.role = None;
        serde_json::to_vec(&private).map(Bytes::from).map_err(Error::internal)
    }

    /// Creates an organization without members and an invite to become its owner, in one commit, and returns the invite
    /// as the reply of a create shows it. Only the operator may do so, and must still be the operator when the invite
    /// is redeemed.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT for another role than `owner`.
    pub async fn create_with_organization(cx: &Context<'_>, organization: Group, mut invite: Self) -> Result<Self> {
        if !cx.is_operator() {
            return Err(Error::denied());
        }
        if invite.role_uid.is_empty() {
            invite.role_uid = role::owner_uid();
        }
        if invite.role_uid != role::owner_uid() {
            return Err(Error::invalid_field(
                "roleUid",
                "must be the role owner: the organization has no other member",
            ));
        }
        let (entropy, now) = (cx.platform().entropy(), cx.now());
        let uid = Uid::new_root(entropy);
        let group = Group {
            uid: uid.clone(),
            status: OrgStatus::OrgStatusReady,
            create_time: Some(now),
            update_time: Some(now),
            ..organization
        };
        let private = invite.issue(cx, uid.root(), true)?;
        invite.uid = uid.new_child(entropy);
        (invite.create_time, invite.update_time) = (Some(now), Some(now));
        let mut write = Write::default();
        write.require_or_retry(Require::Absent(Key::new(Group::KIND.name, uid.clone())));
        write.put(&uid, &group, Bytes::new())?;
        write.put(&invite.uid, &invite, private)?;
        Self::render(cx, std::slice::from_mut(&mut invite)).await?;
        cx.commit(write).await?;
        Ok(invite)
    }
}

/// The capabilities that a caller needs at a group to create invites to it.
pub const INVITER_CAPABILITIES: &[Capability] = &[cap("group_invites.create"), cap("role_bindings.create")];

/// The prefix of a code. The organization of the invite, the key id and 32 random bytes follow, in hex and separated by
/// underscores. Codes of earlier releases have no organization.
const PREFIX: &str = "invite_";

/// The private part of an invite, which is stored and never returned.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Private {
    /// The SHA-256 of the code, in hex.
    code_hash: String,
    /// The inviter, on whose behalf the invite is redeemed.
    invited_by: Uid,
    /// The registration of the inviter, if a person: one who registers again is not the inviter.
    #[serde(skip_serializing_if = "Option::is_none")]
    registration: Option<RegistrationId>,
    /// The session in which the inviter created the invite, with its external groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Session>,
    /// Whether the organization was created with the invite. The inviter must then be the operator, who holds nothing
    /// in the organization.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    founding: bool,
}

impl Private {
    /// Returns the inviter as a caller. `created` is the creation time of the invite.
    fn inviter(self, created: Timestamp) -> Caller {
        let caller = Caller::new(self.invited_by);
        let caller = caller.acting_as(self.registration.map_or(ActsAs::AsOf(created), ActsAs::Registration));
        match self.session {
            Some(session) => caller.signed_in(session),
            None => caller,
        }
    }
}

fn hash(code: &str) -> String {
    hex::encode(Sha256::digest(code))
}

/// Requires one email address, checking only its form.
fn email(value: &Value) -> std::result::Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    let is_plain = text.len() <= 320 && !text.contains(char::is_whitespace);
    match text.split_once('@') {
        Some((name, domain)) if is_plain && !name.is_empty() && !domain.is_empty() && !domain.contains('@') => Ok(()),
        _ => Err("must be an email address".to_owned()),
    }
}

fn ttl(value: &Value) -> std::result::Result<(), String> {
    let ttl = value.as_str().and_then(|ttl| Duration::parse(ttl).ok());
    if ttl.is_some_and(|ttl| ttl.millis() > 0) { Ok(()) } else { Err("must be greater than 0s".to_owned()) }
}

/// The result of redeeming an invite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redeemed {
    /// The group of the invite.
    pub group: Uid,
    /// The uid of the role that the person got there.
    pub role: Uid,
    /// The uid of the new role binding.
    pub role_binding: Uid,
}

/// Returns the error for a code that is unknown, used up, expired or for another person, and for an inviter who could
/// no longer give the role. It is the same for all of them, so that it does not reveal which codes exist.
pub(crate) fn invalid_code() -> Error {
    Error::invalid_field("code", "must be a valid invite code that is not expired and that you may use")
}

/// Finds the invite with a code and returns its uid, and the inviter as a caller. Compares hashes in constant time.
pub(crate) async fn find(cx: &Context<'_>, code: &str) -> Result<(Uid, Caller)> {
    let parts: Vec<&str> = code.strip_prefix(PREFIX).unwrap_or_default().splitn(4, '_').collect();
    let (scope, key_id) = match *parts {
        [organization, key_id, _] => (Scope::Subtree(Uid::parse(organization).map_err(|_| invalid_code())?), key_id),
        // A code of an earlier release, which is valid until it expires.
        [key_id, _] => (Scope::All, key_id),
        _ => return Err(invalid_code()),
    };
    let by_key = Filter::AnyOf { key: "keyId", values: vec![KeyValue::text(key_id)] };
    let found = cx.page(Query { filters: vec![by_key], ..Query::new(GroupInvite::KIND.name, scope) }).await?;
    let keys: Vec<_> = found.items.into_iter().map(|item| Key::new(GroupInvite::KIND.name, item.uid())).collect();
    for record in cx.records(&keys).await?.into_iter().flatten() {
        if let Some(private) = private_of(&record, code)? {
            let invite: GroupInvite = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            let created = invite.create_time.unwrap_or(Timestamp::MIN);
            return Ok((record.key.uid, private.inviter(created)));
        }
    }
    Err(invalid_code())
}

/// Returns the private part of an invite, or `None` if the invite has another code.
fn private_of(record: &Record, code: &str) -> Result<Option<Private>> {
    let private: Private = serde_json::from_slice(&record.private).map_err(Error::internal)?;
    let same = bool::from(private.code_hash.as_bytes().ct_eq(hash(code).as_bytes()));
    Ok(same.then_some(private))
}

/// Binds a registered person to the role of an invite and deletes a single-use invite, in one commit. The caller must
/// be the inviter.
///
/// # Errors
/// [`invalid_code`], ALREADY_EXISTS when the person already has the role there.
pub(crate) async fn redeem(
    cx: &Context<'_>,
    invite: &Uid,
    person: &Uid,
    credential: Option<&Credential>,
    code: &str,
) -> Result<Redeemed> {
    let record = cx.record(GroupInvite::KIND, invite).await?.ok_or_else(invalid_code)?;
    let Private { founding, .. } = private_of(&record, code)?.ok_or_else(invalid_code)?;
    let invite: GroupInvite = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    let found = cx.record(Identity::KIND, person).await?.filter(|_| person.is_root()).ok_or_else(invalid_code)?;
    identity::check_not_revoked(&found.private, credential)?;
    let identity: Identity = serde_json::from_slice(&found.body).map_err(Error::internal)?;
    // `email` is verified: an unverified address is in `email_unverified`.
    let is_for_person = invite.email.is_empty() || invite.email.eq_ignore_ascii_case(&identity.email);
    let in_time = invite.expiration_time.is_some_and(|until| cx.now() < until);
    let group = parent_uid(&invite.uid)?;
    let may_invite = if founding { cx.is_operator() } else { cx.allows(&group, INVITER_CAPABILITIES) };
    if !is_for_person || !in_time || !may_invite {
        return Err(invalid_code());
    }
    let mut write = Write::default();
    write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
    write.require_or_retry(Require::Revision(found.key, found.revision));
    if invite.single_use {
        write.delete(Delete::Key(record.key));
    }
    let binding = RoleBinding::new(&group, person, &invite.role_uid, cx.platform().entropy(), cx.now());
    // The inviter must hold the capabilities that the role has now. The reason of a rejection is not shown to the
    // person.
    if !founding {
        role_binding::may_bind(cx, &group, &binding, &mut write).await.map_err(|error| match error.code() {
            Code::InvalidArgument | Code::PermissionDenied => invalid_code(),
            _ => error,
        })?;
    }
    write.put(&binding.uid, &binding, Bytes::new())?;
    identity::add_binding(cx, person, &group, &mut write).await?;
    cx.record_event(&mut write, &group, || Ok(registered_event(person, &group))).await?;
    cx.commit(write).await?;
    Ok(Redeemed { group, role: invite.role_uid, role_binding: binding.uid })
}

/// Returns the event of a person joining a group by an invite, with the person as its actor.
fn registered_event(person: &Uid, group: &Uid) -> Draft {
    let mut draft = Draft::custom("auth.registered.v1", (domain::AUTH, "register"), "Session", person, group);
    let body = [("identity", person), ("group", group)].map(|(name, uid)| (name.to_owned(), uid.to_string().into()));
    draft.body = body.into_iter().collect();
    draft.made_by(person.clone())
}
