//! The content of one organization between two commits, and what it allows. A person is an organization, too.

use std::{collections::BTreeMap, sync::Arc};

use platform_engine::{
    access::{ActsAs, Caller, Capabilities, CapabilitySet, Session},
    kind::Resource,
    store::{Commit, Delete, Key, Put, Require},
    uid::Uid,
};
use serde_json::{Value, json};

use platform_core::{
    capabilities::cap,
    resources::{
        iam::{
            DirectoryUser, ExternalGroupRoleMapping, Group, GroupInvite, Identity, IdentityProvider, Role, RoleBinding,
            role,
        },
        registry::Repo,
    },
};

/// The part that all states share.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) known: Arc<Capabilities>,
    pub(super) operator: Uid,
}

/// The parts of a repo that operations change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) description: String,
}

impl Shown {
    pub(super) fn of(body: &[u8]) -> Self {
        let repo: Repo = serde_json::from_slice(body).expect("a repo");
        Self { name: repo.name, description: repo.description }
    }
}

/// The identity and the role of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) identity: Uid,
    pub(super) role: Uid,
}

impl Bound {
    pub(super) fn of(body: &[u8]) -> Self {
        let binding: RoleBinding = serde_json::from_slice(body).expect("a role binding");
        Self { identity: binding.identity_uid, role: binding.role_uid }
    }
}

/// The rows of an organization. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    rows: BTreeMap<Key, Arc<Row>>,
}

#[derive(Debug)]
struct Row {
    put: Put,
    content: Content,
}

/// The parts of rows that results depend on.
#[derive(Debug)]
enum Content {
    Binding(Bound),
    Role(CapabilitySet),
    Provider(Provider),
    /// A user of a provider's directory, and whether the user may sign in.
    User(bool),
    /// The external group and the role that its members have in the organization.
    Mapping(String, Uid),
    /// The role, and who gives it.
    Invite(Uid, Uid),
    Repo(Shown),
    Other,
}

#[derive(Debug)]
struct Provider {
    issuer: String,
    groups_claim: String,
    default_role: Uid,
    admits_users_alone: bool,
}

impl Row {
    fn of(put: &Put, rules: &Rules) -> Self {
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uid = |value: &Value| Uid::opaque(text(value));
        let body = || json(&put.body);
        let content = match put.key.kind {
            kind if kind == RoleBinding::KIND.name => Content::Binding(Bound::of(&put.body)),
            kind if kind == Role::KIND.name => {
                let role: Role = serde_json::from_slice(&put.body).expect("a role");
                Content::Role(rules.known.set_of(&role.capabilities))
            }
            kind if kind == IdentityProvider::KIND.name => {
                let body = body();
                Content::Provider(Provider {
                    issuer: text(&body["oidc"]["issuer"]),
                    groups_claim: text(&body["oidc"]["groupsClaim"]),
                    default_role: uid(&body["defaultRole"]),
                    admits_users_alone: body["scim"]["enabled"] == true,
                })
            }
            kind if kind == DirectoryUser::KIND.name => Content::User(body()["active"] == true),
            kind if kind == ExternalGroupRoleMapping::KIND.name => {
                let body = body();
                Content::Mapping(text(&body["externalGroupId"]), uid(&body["roleUid"]))
            }
            kind if kind == GroupInvite::KIND.name => {
                Content::Invite(uid(&body()["roleUid"]), uid(&json(&put.private)["invitedBy"]))
            }
            kind if kind == Repo::KIND.name => Content::Repo(Shown::of(&put.body)),
            _ => Content::Other,
        };
        Self { put: put.clone(), content }
    }
}

/// Returns whether a commit writes to an organization, as the contract of stores defines it.
pub(super) fn writes_to(commit: &Commit, organization: &str) -> bool {
    // A delete by a filter value has an effect only in the organizations that the commit names: a person's record names
    // those with bindings, and each of them has an epoch that the person's deletion raises.
    let deletes = commit.delete.iter().any(|delete| match delete {
        Delete::Key(key) => key.uid.root() == organization,
        Delete::Below(uid, _) => uid.root() == organization,
        Delete::With(..) => false,
    });
    deletes
        || commit.put.iter().any(|put| put.key.uid.root() == organization)
        || commit.raise.iter().any(|epoch| epoch.organization() == organization)
}

/// Returns whether a commit requires something of an organization.
pub(super) fn requires_of(commit: &Commit, organization: &str) -> bool {
    commit.require.iter().any(|require| match require {
        Require::Absent(key) | Require::Exists(key) | Require::Revision(key, _) => key.uid.root() == organization,
        Require::NoneBelow(uid, _) | Require::AtMost(_, uid, _) => uid.root() == organization,
        Require::Epoch(epoch, _) => epoch.organization() == organization,
        Require::NoneWith(..) => false,
    })
}

impl State {
    /// Returns the state after a commit that writes to the organization.
    pub(super) fn after(&self, commit: &Commit, organization: &str, rules: &Rules) -> Self {
        let mut next = self.clone();
        if !commit.delete.is_empty() {
            next.rows.retain(|key, row| {
                !commit.delete.iter().any(|delete| match delete {
                    Delete::Key(deleted) => deleted == key,
                    Delete::Below(top, kinds) => kinds.contains(&key.kind) && key.uid.is_below(top),
                    Delete::With(kind, name, value) => {
                        *kind == key.kind && row.put.filter.iter().any(|(key, other)| key == name && other == value)
                    }
                })
            });
        }
        for put in commit.put.iter().filter(|put| put.key.uid.root() == organization) {
            next.rows.insert(put.key.clone(), Arc::new(Row::of(put, rules)));
        }
        next
    }

    fn row(&self, kind: &'static str, uid: &Uid) -> Option<&Row> {
        self.rows.get(&Key::new(kind, uid.clone())).map(|row| &**row)
    }

    pub(super) fn has_group(&self, group: &Uid) -> bool {
        self.row(Group::KIND.name, group).is_some()
    }

    pub(super) fn has_identity(&self, identity: &Uid) -> bool {
        self.row(Identity::KIND.name, identity).is_some()
    }

    pub(super) fn repo(&self, uid: &Uid) -> Option<&Shown> {
        match &self.row(Repo::KIND.name, uid)?.content {
            Content::Repo(shown) => Some(shown),
            _ => None,
        }
    }

    /// Returns the role of an invite, and the identity that gives it.
    pub(super) fn invite(&self, uid: &Uid) -> Option<(&Uid, &Uid)> {
        match &self.row(GroupInvite::KIND.name, uid)?.content {
            Content::Invite(role, inviter) => Some((role, inviter)),
            _ => None,
        }
    }

    /// Returns all repos.
    pub(super) fn repos(&self) -> impl Iterator<Item = (&Uid, &Shown)> {
        self.rows.iter().filter_map(|(key, row)| match &row.content {
            Content::Repo(shown) => Some((&key.uid, shown)),
            _ => None,
        })
    }

    /// Returns all role bindings.
    pub(super) fn bindings(&self) -> impl Iterator<Item = (&Uid, &Bound)> {
        self.rows.iter().filter_map(|(key, row)| match &row.content {
            Content::Binding(bound) => Some((&key.uid, bound)),
            _ => None,
        })
    }

    /// Returns whether the caller's identity exists, and the registration that the caller acts as, in the organization
    /// of the identity, and whether the caller's token is not revoked.
    pub(super) fn has_caller(&self, caller: &Caller) -> bool {
        let Some(row) = self.row(Identity::KIND.name, &caller.identity) else { return false };
        let registration = match caller.acts_as {
            ActsAs::Registration(id) => Some(id.to_string()),
            _ => None,
        };
        if registration.is_none() && caller.credential.is_none() {
            return true;
        }
        let private: Value = serde_json::from_slice(&row.put.private).unwrap_or_default();
        let revocations = &private["revocations"];
        let is_revoked = caller.credential.as_deref().is_some_and(|token| {
            let by_id = token.id.as_ref().is_some_and(|id| revocations["tokens"].get(id).is_some());
            by_id || token.generation != Some(revocations["generation"].as_u64().unwrap_or_default())
        });
        !is_revoked && registration.is_none_or(|id| private["registration"] == json!(id))
    }

    /// Returns whether a caller's sign-in by a provider of this organization is still valid.
    pub(super) fn admits(&self, session: &Session) -> bool {
        let Some(Content::Provider(provider)) =
            self.row(IdentityProvider::KIND.name, &session.provider).map(|row| &row.content)
        else {
            return false;
        };
        let is_admitted = match &session.user {
            Some(user) => {
                let user = self.row(DirectoryUser::KIND.name, user);
                user.is_some_and(|row| matches!(row.content, Content::User(true)))
            }
            None => !provider.admits_users_alone,
        };
        is_admitted && provider.issuer == session.issuer
    }

    /// Returns the capabilities of a role.
    pub(super) fn role(&self, rules: &Rules, role: &Uid) -> CapabilitySet {
        role::built_in_capabilities(&rules.known, role).unwrap_or_else(|| {
            match self.row(Role::KIND.name, role).map(|row| &row.content) {
                Some(Content::Role(held)) => *held,
                _ => CapabilitySet::EMPTY,
            }
        })
    }

    /// Returns the capabilities that a caller holds at a uid: by bindings at or above it, and by a sign-in.
    pub(super) fn held(&self, rules: &Rules, caller: &Caller, uid: &Uid) -> CapabilitySet {
        let session = caller.session.as_deref();
        let organization = Uid::opaque(uid.root());
        let mut held = CapabilitySet::EMPTY;
        for (key, row) in &self.rows {
            let (group, role) = match (&row.content, session) {
                (Content::Binding(bound), _) if bound.identity == caller.identity => (key.uid.parent(), &bound.role),
                (Content::Provider(provider), Some(session)) if session.provider == key.uid => {
                    (key.uid.parent(), &provider.default_role)
                }
                (Content::Mapping(external, role), Some(session)) if self.maps(session, &key.uid, external) => {
                    (Some(organization.clone()), role)
                }
                _ => continue,
            };
            if group.is_some_and(|group| uid.is_at_or_below(&group)) {
                held = held.union(self.role(rules, role));
            }
        }
        held
    }

    /// Returns whether a mapping applies to a sign-in.
    fn maps(&self, session: &Session, mapping: &Uid, external: &str) -> bool {
        let claim = match self.row(IdentityProvider::KIND.name, &session.provider).map(|row| &row.content) {
            Some(Content::Provider(provider)) => &provider.groups_claim,
            _ => return false,
        };
        let is_member = session.groups.iter().any(|group| group == external);
        mapping.parent().as_ref() == Some(&session.provider) && is_member && *claim == session.groups_claim
    }

    /// Returns whether a caller, `None` for the operator, holds a capability at a uid.
    pub(super) fn allows(&self, rules: &Rules, caller: Option<&Caller>, capability: &'static str, uid: &Uid) -> bool {
        caller.is_none_or(|caller| self.held(rules, caller, uid).contains_all(&[cap(capability)]))
    }
}
