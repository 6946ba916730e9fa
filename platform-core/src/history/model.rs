//! The content of one organization between two commits, and what it allows.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    access::{Caller, Capabilities, CapabilitySet},
    capabilities::cap,
    kind::Resource,
    resources::{
        iam::{Group, Identity, IdentityProvider, Role, RoleBinding, role},
        registry::Repo,
    },
    store::{Commit, Delete, Key, Put},
    uid::Uid,
};

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

/// The parts of rows that access depends on.
#[derive(Debug)]
enum Content {
    Binding { identity: Uid, role: Uid },
    Role(CapabilitySet),
    Provider { issuer: String, default_role: Uid },
    Repo(Shown),
    Other,
}

impl Row {
    fn of(put: &Put, known: &Capabilities) -> Self {
        let body = || serde_json::from_slice::<Value>(&put.body).expect("a JSON body");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let content = match put.key.kind {
            kind if kind == RoleBinding::KIND.name => {
                let body = body();
                let uid = |name: &str| Uid::opaque(text(&body[name]));
                Content::Binding { identity: uid("identityUid"), role: uid("roleUid") }
            }
            kind if kind == Role::KIND.name => {
                let role: Role = serde_json::from_slice(&put.body).expect("a role");
                Content::Role(known.set_of(&role.capabilities))
            }
            kind if kind == IdentityProvider::KIND.name => {
                let body = body();
                let (issuer, default_role) = (text(&body["oidc"]["issuer"]), Uid::opaque(text(&body["defaultRole"])));
                Content::Provider { issuer, default_role }
            }
            kind if kind == Repo::KIND.name => Content::Repo(Shown::of(&put.body)),
            _ => Content::Other,
        };
        Self { put: put.clone(), content }
    }
}

impl State {
    /// Returns whether a commit changes rows of an organization.
    pub(super) fn is_changed_by(commit: &Commit, organization: &str) -> bool {
        let deletes = commit.delete.iter().any(|delete| match delete {
            Delete::Key(key) => key.uid.root() == organization,
            Delete::Below(uid, _) => uid.root() == organization,
            Delete::With(..) => true,
        });
        deletes || commit.put.iter().any(|put| put.key.uid.root() == organization)
    }

    /// Returns the state after a commit.
    pub(super) fn after(&self, commit: &Commit, organization: &str, known: &Capabilities) -> Self {
        let mut next = self.clone();
        next.rows.retain(|key, row| {
            !commit.delete.iter().any(|delete| match delete {
                Delete::Key(deleted) => deleted == key,
                Delete::Below(top, kinds) => kinds.contains(&key.kind) && key.uid.is_below(top),
                Delete::With(kind, name, value) => {
                    *kind == key.kind && row.put.filter.iter().any(|(key, other)| key == name && other == value)
                }
            })
        });
        for put in commit.put.iter().filter(|put| put.key.uid.root() == organization) {
            next.rows.insert(put.key.clone(), Arc::new(Row::of(put, known)));
        }
        next
    }

    pub(super) fn has_group(&self, group: &Uid) -> bool {
        self.rows.contains_key(&Key::new(Group::KIND.name, group.clone()))
    }

    pub(super) fn has_identity(&self, identity: &Uid) -> bool {
        self.rows.contains_key(&Key::new(Identity::KIND.name, identity.clone()))
    }

    pub(super) fn repo(&self, uid: &Uid) -> Option<&Shown> {
        match &self.rows.get(&Key::new(Repo::KIND.name, uid.clone()))?.content {
            Content::Repo(shown) => Some(shown),
            _ => None,
        }
    }

    /// Returns the repos at or below a group that a caller may list.
    pub(super) fn visible(&self, known: &Capabilities, caller: &Caller, group: &Uid) -> BTreeMap<Uid, Shown> {
        let repos = self.rows.iter().filter_map(|(key, row)| match &row.content {
            Content::Repo(shown) if key.uid.is_at_or_below(group) => Some((key.uid.clone(), shown.clone())),
            _ => None,
        });
        repos.filter(|(uid, _)| self.allows(known, caller, "repo.list", uid)).collect()
    }

    /// Returns whether a caller holds a capability at a uid: by a binding at or above it, or by a sign-in.
    pub(super) fn allows(&self, known: &Capabilities, caller: &Caller, capability: &'static str, uid: &Uid) -> bool {
        let has = |role: &Uid| {
            let held = match role::built_in_capabilities(known, role) {
                Some(held) => held,
                None => match self.rows.get(&Key::new(Role::KIND.name, role.clone())).map(|row| &row.content) {
                    Some(Content::Role(held)) => *held,
                    _ => CapabilitySet::EMPTY,
                },
            };
            held.contains_all(&[cap(capability)])
        };
        self.rows.iter().any(|(key, row)| {
            let role = match (&row.content, caller.session.as_deref()) {
                (Content::Binding { identity, role }, _) if *identity == caller.identity => role,
                (Content::Provider { issuer, default_role }, Some(session))
                    if session.provider == key.uid && session.issuer == *issuer =>
                {
                    default_role
                }
                _ => return false,
            };
            key.uid.parent().is_some_and(|group| uid.is_at_or_below(&group)) && has(role)
        })
    }
}
