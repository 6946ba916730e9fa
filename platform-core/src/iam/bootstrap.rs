//! Creates the first resources of a new installation.

use bytes::Bytes;
use platform_engine::{
    error::{Error, Result},
    kind::Resource,
    store::{Key, Require},
    uid::Uid,
    write::Write,
};

use super::{Iam, bindings_epoch, identity_epoch};
use crate::resources::iam::{Group, Identity, OrgStatus, RoleBinding, identity, role};

/// The first resources of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// The uid of the first organization, of one segment.
    pub organization: Uid,
    /// Its name.
    pub organization_name: String,
    /// The uid of the operator's identity, of one segment, so that it can act in every organization.
    pub operator: Uid,
}

impl Iam<'_> {
    /// Writes the built-in roles of this release. Call it once before serving; roles that are up to date are not
    /// written, nor are those that a later release has written ([`BUILT_IN_VERSION`](role::BUILT_IN_VERSION)).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn write_built_in_roles(&self) -> Result<()> {
        self.0
            .without_caller(async |cx| {
                let now = self.0.now();
                let roles = role::built_in(self.0.capabilities(), now);
                let key = |role: &role::Role| Key::new(role::Role::KIND.name, role.uid.clone());
                let stored = cx.records(&roles.iter().map(key).collect::<Vec<_>>()).await?;
                let version: Bytes = role::BUILT_IN_VERSION.to_string().into();
                let mut write = Write::default();
                for (role, record) in roles.iter().zip(stored) {
                    let Some(record) = record else {
                        write.require_or_retry(Require::Absent(key(role)));
                        write.put(&role.uid, role, version.clone())?;
                        continue;
                    };
                    let stored: role::Role = serde_json::from_slice(&record.body).map_err(Error::internal)?;
                    let changed =
                        (&stored.capabilities, &stored.description) != (&role.capabilities, &role.description);
                    if changed && version_of(&record.private) <= role::BUILT_IN_VERSION {
                        // A server of a later release may start at the same time.
                        write.require_or_retry(Require::Revision(key(role), record.revision));
                        let create_time = stored.create_time.or(role.create_time);
                        write.replace(&record, &role::Role { create_time, ..role.clone() }, version.clone())?;
                    }
                }
                if write.is_empty() { Ok(()) } else { cx.commit(write).await.map(drop) }
            })
            .await
    }

    /// Writes the built-in roles as [`write_built_in_roles`](Self::write_built_in_roles) does, then, in one commit, the
    /// first organization and the operator's identity with a binding as the organization's owner. An existing
    /// organization or identity is left unchanged.
    ///
    /// # Errors
    /// Those of the store, and ABORTED when another process creates them at the same time.
    pub async fn bootstrap(&self, first: &Bootstrap) -> Result<()> {
        self.write_built_in_roles().await?;
        self.0
            .without_caller(async |cx| {
                let now = Some(self.0.now());
                let mut write = Write::default();
                if cx.read::<Group>(&first.organization).await?.is_none() {
                    let group = Group {
                        uid: first.organization.clone(),
                        name: first.organization_name.clone(),
                        status: OrgStatus::OrgStatusReady,
                        create_time: now,
                        update_time: now,
                        ..Group::default()
                    };
                    write.require_or_retry(Require::Absent(Key::new(Group::KIND.name, group.uid.clone())));
                    write.put(&group.uid, &group, Bytes::new())?;
                }
                if cx.read::<Identity>(&first.operator).await?.is_none() {
                    let operator = Identity {
                        uid: first.operator.clone(),
                        name: "operator".to_owned(),
                        description: "The operator of this installation".to_owned(),
                        last_seen_time: now,
                        create_time: now,
                        update_time: now,
                        ..Identity::default()
                    };
                    write.require_or_retry(Require::Absent(Key::new(Identity::KIND.name, operator.uid.clone())));
                    write.put(&operator.uid, &operator, identity::private_in(&first.organization)?)?;
                    write.raise(bindings_epoch(&first.operator, &first.organization));
                    write.raise(identity_epoch(&first.operator));
                } else if !write.is_empty() {
                    identity::add_binding(cx, &first.operator, &first.organization, &mut write).await?;
                }
                if write.is_empty() {
                    return Ok(());
                }
                let owner = RoleBinding::new(
                    &first.organization,
                    &first.operator,
                    &role::owner_uid(),
                    self.0.entropy(),
                    self.0.now(),
                );
                write.put(&owner.uid, &owner, Bytes::new())?;
                cx.commit(write).await.map(drop)
            })
            .await
    }
}

/// Returns the version of the built-in roles that a stored one was written with; 0 for releases without versions.
fn version_of(private: &[u8]) -> u32 {
    std::str::from_utf8(private).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
