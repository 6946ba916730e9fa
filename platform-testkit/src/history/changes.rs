//! Random changes of the data that access depends on.

use platform_engine::{
    access::Caller,
    error::{Code, Result},
    kind::Registered,
    options::RequestOptions,
    platform::Platform,
    uid::Uid,
};

use crate::Rng;
use futures_lite::future::block_on;
use serde_json::{Value, json};

use platform_core::{
    iam::Iam,
    resources::iam::{DirectoryUser, ExternalGroupRoleMapping, GroupInvite, Identity, IdentityProvider},
};

use super::{
    operations::{CLAIMS, EXTERNAL, TOKENS},
    world::{
        GROUP, IDENTITY, ISSUER, Known, Organization, PROVIDER, ROLE, ROLE_BINDING, World, object, uid_in, uid_of,
    },
};

/// The capabilities that custom roles have a part of.
pub(super) const GIVEN: [&str; 6] = [
    "CAP_REPO_LIST",
    "CAP_REPO_CREATE",
    "CAP_REPO_UPDATE",
    "CAP_REPO_DELETE",
    "CAP_IAM_GROUP_INVITES_CREATE",
    "CAP_IAM_ROLE_BINDINGS_CREATE",
];

/// The maximum numbers of resources of an organization, which bound the cost of the check.
const MAX_BINDINGS: usize = 10;
const MAX_GROUPS: usize = 3;
const MAX_IDENTITIES: usize = 3;
const MAX_USERS: usize = 3;
const MAX_MAPPINGS: usize = 3;
const MAX_INVITES: usize = 3;

const MAPPING: Registered = Registered::of::<ExternalGroupRoleMapping>();
const INVITE: Registered = Registered::of::<GroupInvite>();

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Bind,
    Unbind,
    Rebind,
    AddGroup,
    DeleteGroup,
    AddIdentity,
    DeleteIdentity,
    DefaultRole,
    SignIn,
    Role,
    Map,
    Unmap,
    AddUser,
    ChangeUser,
    DeleteUser,
    Scim,
    Invite,
    Revoke,
    RevokeTokens,
}

/// The changes that are made as often as they are listed, and the names that errors show.
const CHANGES: [(What, &str); 25] = [
    (What::Bind, "a new binding"),
    (What::Bind, "a new binding"),
    (What::Bind, "a new binding"),
    (What::Bind, "a new binding"),
    (What::Unbind, "a deleted binding"),
    (What::Unbind, "a deleted binding"),
    (What::Rebind, "a changed binding"),
    (What::Rebind, "a changed binding"),
    (What::AddGroup, "a new group"),
    (What::DeleteGroup, "a deleted group"),
    (What::AddIdentity, "a new identity"),
    (What::DeleteIdentity, "a deleted identity"),
    (What::DefaultRole, "another default role"),
    (What::SignIn, "another issuer or claim"),
    (What::Role, "other capabilities of a role"),
    (What::Role, "other capabilities of a role"),
    (What::Map, "a new mapping"),
    (What::Unmap, "a deleted mapping"),
    (What::AddUser, "a new user"),
    (What::ChangeUser, "a changed user"),
    (What::DeleteUser, "a deleted user"),
    (What::Scim, "SCIM"),
    (What::Invite, "a new invite"),
    (What::Invite, "a new invite"),
    (What::RevokeTokens, "revoked tokens"),
];

impl World {
    /// Makes a change as the operator or for a directory, and returns its name.
    pub(super) fn administer(
        &self,
        platform: &Platform,
        organization: &Organization,
        random: &mut Rng,
    ) -> (&'static str, Result<()>) {
        let (what, name) = *random.pick(&CHANGES);
        (name, self.change(platform, organization, random, what))
    }

    fn change(&self, platform: &Platform, organization: &Organization, random: &mut Rng, what: What) -> Result<()> {
        let admin = &self.admin;
        let mut known = organization.known.lock();
        let what = within_bounds(what, &known);
        let group = if known.groups.is_empty() || random.one_in(2) {
            organization.uid.clone()
        } else {
            random.pick(&known.groups).clone()
        };
        let taken = match what {
            What::Unbind => take(&mut known.bindings, random),
            What::DeleteGroup => take(&mut known.groups, random),
            What::DeleteIdentity => take(&mut known.identities, random),
            What::DeleteUser => take(&mut known.users, random),
            What::Unmap => take(&mut known.mappings, random),
            What::Revoke => take(&mut known.invites, random).map(|(invite, _)| invite),
            What::Rebind if !known.bindings.is_empty() => Some(random.pick(&known.bindings).clone()),
            What::ChangeUser if !known.users.is_empty() => Some(random.pick(&known.users).clone()),
            _ => None,
        };
        let of_organization = (!known.identities.is_empty()).then(|| random.pick(&known.identities).clone());
        drop(known);
        let identity = match &of_organization {
            Some(identity) if random.one_in(4) => identity.clone(),
            _ => self.any_person(random),
        };
        let role = random.pick(&organization.roles).clone();
        let (provider, root) = (&organization.provider, &organization.uid);
        let known = || organization.known.lock();
        let iam = Iam::of(platform);
        let create = |registered, parent: &Uid, body| self.create(platform, admin, registered, parent, body);
        let delete = |registered, uid: &Uid| {
            block_on(platform.delete_erased(admin, registered, uid, RequestOptions::none())).map(drop)
        };
        let update = |registered, uid: &Uid, body, mask| {
            block_on(platform.update_erased(admin, registered, uid, &object(body), mask, RequestOptions::none()))
                .map(drop)
        };
        match (what, taken) {
            (What::Bind, _) => {
                let body = json!({ "identityUid": identity, "roleUid": role });
                known().bindings.push(uid_of(create(&ROLE_BINDING, &group, body))?);
                Ok(())
            }
            (What::Unbind, Some(binding)) => delete(&ROLE_BINDING, &binding),
            (What::Rebind, Some(binding)) => {
                let body =
                    if random.one_in(2) { json!({ "roleUid": role }) } else { json!({ "identityUid": identity }) };
                update(&ROLE_BINDING, &binding, body, None)
            }
            (What::AddGroup, _) => {
                known().groups.push(uid_of(create(&GROUP, root, json!({ "name": self.name() })))?);
                Ok(())
            }
            (What::DeleteGroup, Some(group)) => delete(&GROUP, &group).inspect_err(|error| {
                if error.code() == Code::FailedPrecondition {
                    // It has repos.
                    known().groups.push(group);
                }
            }),
            (What::AddIdentity, _) => {
                known().identities.push(uid_of(create(&IDENTITY, root, self.identity()))?);
                Ok(())
            }
            (What::DeleteIdentity, Some(identity)) => delete(&IDENTITY, &identity),
            (What::DefaultRole, _) => update(&PROVIDER, provider, json!({ "defaultRole": role }), None),
            (What::SignIn, _) => {
                let issuer = if random.one_in(4) { "https://other.test" } else { ISSUER };
                let claim = CLAIMS[usize::from(random.one_in(4))];
                let body = json!({ "oidc": { "issuer": issuer, "groupsClaim": claim } });
                update(&PROVIDER, provider, body, Some("oidc.issuer,oidc.groupsClaim"))
            }
            (What::Map, _) => {
                let external = random.pick(&EXTERNAL);
                let body = json!({ "externalGroupId": external, "roleUid": role, "scope": root });
                known().mappings.push(uid_of(create(&MAPPING, provider, body))?);
                Ok(())
            }
            (What::Unmap, Some(mapping)) => delete(&MAPPING, &mapping),
            (What::AddUser, _) => {
                let (user_name, external_id) = (self.name(), self.name());
                let user = DirectoryUser { user_name, external_id, active: true, ..DirectoryUser::default() };
                known().users.push(block_on(iam.create_directory_user(provider, user))?.uid);
                Ok(())
            }
            (What::ChangeUser, Some(user)) => {
                let active = !random.one_in(3);
                let change = |user| Ok(DirectoryUser { active, ..user });
                block_on(iam.update_directory_user(provider, user.last_segment(), change)).map(drop)
            }
            (What::DeleteUser, Some(user)) => block_on(iam.delete_directory_user(provider, user.last_segment())),
            (What::Scim, _) => {
                let provider_now = block_on(platform.get_erased(admin, &PROVIDER, provider, RequestOptions::none()))?;
                let provider_now: Value = serde_json::from_slice(&provider_now.body).expect("a provider");
                let etag = &provider_now["scim"]["etag"];
                let request = json!({ "identityProviderUid": provider, "enabled": random.one_in(3), "etag": etag });
                let done = platform.run_named::<IdentityProvider, Value>(Some(admin), "SetScimEnabled", &request);
                block_on(done).map(drop)
            }
            (What::Invite, _) => {
                let inviter = of_organization.filter(|_| random.one_in(2)).map(Caller::new);
                let body = json!({ "roleUid": role, "ttl": "3600s", "singleUse": random.one_in(2) });
                match self.create(platform, inviter.as_ref().unwrap_or(admin), &INVITE, &group, body) {
                    Ok(invite) => {
                        let body: Value = serde_json::from_slice(&invite).expect("an invite");
                        let code = body["code"].as_str().unwrap_or_default().to_owned();
                        known().invites.push((uid_in(&invite), code));
                        Ok(())
                    }
                    // An identity may be deleted, or may not give the role.
                    Err(error) if inviter.is_some() && is_refusal(error.code()) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            (What::Revoke, Some(invite)) => delete(&INVITE, &invite),
            (What::RevokeTokens, _) => {
                let mut request = json!({ "identityUid": identity });
                let is_single = !random.one_in(3);
                if is_single {
                    request["tokenId"] = json!(random.pick(&TOKENS));
                }
                let done = platform.run_named::<Identity, Value>(Some(admin), "RevokeTokens", &request);
                block_on(done)?;
                if !is_single {
                    *self.generations.lock().entry(identity).or_default() += 1;
                }
                Ok(())
            }
            (What::Role, _) => {
                let role = &organization.roles[random.below(2)];
                let given: Vec<_> = GIVEN.into_iter().filter(|_| random.one_in(2)).collect();
                let given = if given.is_empty() { vec!["CAP_IAM_GROUPS_LIST"] } else { given };
                update(&ROLE, role, json!({ "capabilities": given }), None)
            }
            // There is nothing to delete or change.
            (
                What::Unbind
                | What::Rebind
                | What::DeleteGroup
                | What::DeleteIdentity
                | What::Unmap
                | What::ChangeUser
                | What::DeleteUser
                | What::Revoke,
                None,
            ) => Ok(()),
        }
    }
}

const fn is_refusal(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
}

/// Returns the change, or that which makes room for it.
fn within_bounds(what: What, known: &Known) -> What {
    match what {
        What::Bind if known.bindings.len() >= MAX_BINDINGS => What::Unbind,
        What::AddGroup if known.groups.len() >= MAX_GROUPS => What::DeleteGroup,
        What::AddIdentity if known.identities.len() >= MAX_IDENTITIES => What::DeleteIdentity,
        What::AddUser if known.users.len() >= MAX_USERS => What::DeleteUser,
        What::Map if known.mappings.len() >= MAX_MAPPINGS => What::Unmap,
        What::Invite if known.invites.len() >= MAX_INVITES => What::Revoke,
        what => what,
    }
}

fn take<T>(from: &mut Vec<T>, random: &mut Rng) -> Option<T> {
    if from.is_empty() { None } else { Some(from.swap_remove(random.below(from.len()))) }
}
