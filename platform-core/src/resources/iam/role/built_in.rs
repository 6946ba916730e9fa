//! The built-in roles and their sets of capabilities (`docs/api.md`, Roles).

use std::{collections::HashMap, sync::LazyLock};

use platform_engine::{
    access::{Capabilities, Capability, CapabilitySet},
    timestamp::Timestamp,
    uid::Uid,
};
use sha2::{Digest, Sha256};

use super::Role;
use crate::capabilities::cap;

/// The only published uid; the others are derived from the roles' names.
const VIEWER_UID: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

/// The version of the built-in roles of the contract. A release that changes them raises it, so that a server of an
/// earlier release, which runs at the same time during an upgrade, does not write its own back.
pub const BUILT_IN_VERSION: u32 = 1;

/// Returns the built-in roles, in the order of the documentation.
pub fn built_in(known: &Capabilities, now: Timestamp) -> Vec<Role> {
    ROLES
        .iter()
        .map(|role @ (name, about, _)| Role {
            uid: uid(name),
            name: (*name).to_owned(),
            description: format!("{about} (built-in)"),
            capabilities: super::ids(known, set_of(known, role)),
            create_time: Some(now),
            update_time: Some(now),
        })
        .collect()
}

/// Returns the names of the built-in roles.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    ROLES.iter().map(|(name, ..)| *name)
}

/// Returns the name of the built-in role that has exactly these capabilities.
pub(crate) fn built_in_name(known: &Capabilities, held: CapabilitySet) -> Option<&'static str> {
    ROLES.iter().find(|role| set_of(known, role) == held).map(|(name, ..)| *name)
}

/// Returns the capabilities of the built-in role with this uid, which never change while a process runs.
pub fn built_in_capabilities(known: &Capabilities, uid: &str) -> Option<CapabilitySet> {
    static BUILT_IN: LazyLock<HashMap<Uid, &BuiltIn>> =
        LazyLock::new(|| ROLES.iter().map(|role| (self::uid(role.0), role)).collect());
    BUILT_IN.get(uid).map(|role| set_of(known, role))
}

/// Returns the capabilities of a built-in role: those of the contract, and those that an embedder added to it.
fn set_of(known: &Capabilities, (name, _, sets): &BuiltIn) -> CapabilitySet {
    let own = known.own().iter().filter(|capability| capability.roles().contains(name));
    sets.iter().flat_map(|set| set.iter()).chain(own).copied().collect()
}

/// Returns the uid of the built-in role with this name.
pub fn built_in_uid(name: &str) -> Option<Uid> {
    ROLES.iter().any(|(known, ..)| *known == name).then(|| uid(name))
}

/// Returns the uid of the role `owner`, which the creator of an organization is bound to.
pub fn owner_uid() -> Uid {
    uid("owner")
}

fn uid(name: &str) -> Uid {
    if name == "viewer" {
        return Uid::opaque(VIEWER_UID);
    }
    let hash = Sha256::digest(format!("built-in role: {name}"));
    let mut bytes = [0; 20];
    bytes.iter_mut().zip(hash).for_each(|(byte, hashed)| *byte = hashed);
    Uid::from_digest(bytes)
}

type Set = &'static [Capability];

/// The name, what the role is for, and its capabilities.
type BuiltIn = (&'static str, &'static str, &'static [Set]);

const ROLES: &[BuiltIn] = &[
    ("owner", "Reads and changes everything, and gives and takes access", OWNER),
    ("editor", "Reads everything, and changes repos and subscriptions", EDITOR),
    ("viewer", "Viewer Role", VIEWER),
    (
        "limited_owner",
        "Reads everything, pulls, and makes pull tokens",
        &[CONSOLE_VIEWER, REGISTRY_PULL, APK_PULL, GUARDENER_USER, PULL_TOKEN_CREATOR],
    ),
    ("console_viewer", "Sees what a console shows, without pulling", &[CONSOLE_VIEWER]),
    ("registry.pull", "Pulls images", &[REGISTRY_PULL]),
    ("registry.push", "Pulls and pushes images", &[REGISTRY_PULL, REGISTRY_PUSH]),
    (
        "registry.pull_token_creator",
        "Pulls images and packages, and makes pull tokens",
        &[PULL_TOKEN_CREATOR, REGISTRY_PULL, APK_PULL],
    ),
    ("apk.pull", "Pulls APK packages", &[APK_PULL]),
    ("libraries.java.pull", "Pulls Java libraries", &[JAVA_PULL]),
    ("libraries.python.pull", "Pulls Python libraries", &[PYTHON_PULL]),
    ("libraries.javascript.pull", "Pulls JavaScript libraries", &[JAVASCRIPT_PULL]),
    (
        "libraries.java.pull_token_creator",
        "Pulls Java libraries, and makes pull tokens",
        &[JAVA_PULL, PULL_TOKEN_CREATOR],
    ),
    (
        "libraries.python.pull_token_creator",
        "Pulls Python libraries, and makes pull tokens",
        &[PYTHON_PULL, PULL_TOKEN_CREATOR],
    ),
    (
        "libraries.javascript.pull_token_creator",
        "Pulls JavaScript libraries, and makes pull tokens",
        &[JAVASCRIPT_PULL, PULL_TOKEN_CREATOR],
    ),
    ("guardener.user", "Pulls images, and uses Guardener", &[REGISTRY_PULL, GUARDENER_USER]),
    ("guardener.admin", "Pulls images, and administers Guardener", &[REGISTRY_PULL, GUARDENER_USER, GUARDENER_ADMIN]),
    ("actions.viewer", "Sees actions", &[&[cap("actions.list")]]),
    ("argos.osv.reader", "Reads the OSV data of Argos", &[&[cap("argos.osv.read")]]),
];

const VIEWER: &[Set] = &[CONSOLE_VIEWER, REGISTRY_PULL, APK_PULL, GUARDENER_USER];

const EDITOR: &[Set] = &[CONSOLE_VIEWER, REGISTRY_PULL, APK_PULL, GUARDENER_USER, EDITOR_OWN];

const OWNER: &[Set] = &[
    CONSOLE_VIEWER,
    REGISTRY_PULL,
    APK_PULL,
    GUARDENER_USER,
    EDITOR_OWN,
    REGISTRY_PUSH,
    APK_PUSH,
    JAVA_PULL,
    PYTHON_PULL,
    JAVASCRIPT_PULL,
    DOTNET_PULL,
    GO_PULL,
    LIBRARIES_PUSH,
    SKILLS_PUBLISH,
    GUARDENER_ADMIN,
    OWNER_OWN,
];

const CONSOLE_VIEWER: Set = &[
    cap("account_associations.list"),
    cap("actions.list"),
    cap("advisories.list"),
    cap("apk.list"),
    cap("build_report.list"),
    cap("group_invites.list"),
    cap("groups.list"),
    cap("guardener.entitlement.list"),
    cap("guardener.scan.get"),
    cap("guardener.scan.list"),
    cap("identity.list"),
    cap("identity_providers.list"),
    cap("libraries.artifacts.list"),
    cap("libraries.aws_marketplace.subscriptions.list"),
    cap("libraries.cache.list"),
    cap("libraries.entitlements.list"),
    cap("libraries.policy.binding.list"),
    cap("libraries.policy.block_event.list"),
    cap("libraries.policy.list"),
    cap("libraries.remote_registries.list"),
    cap("libraries.request_groups.list"),
    cap("manifest.list"),
    cap("manifest.metadata.list"),
    cap("packages.entitlements.list"),
    cap("policies.binding.list"),
    cap("policies.decision.list"),
    cap("policies.override.list"),
    cap("policies.policy.list"),
    cap("record_signatures.list"),
    cap("referrers.list"),
    cap("registry.deployments.list"),
    cap("registry.entitlements.list"),
    cap("registry.overlays.list"),
    cap("registry.settings.list"),
    cap("repo.list"),
    cap("role_bindings.list"),
    cap("roles.list"),
    cap("sboms.list"),
    cap("skills.entitlements.list"),
    cap("skills.list"),
    cap("subscriptions.list"),
    cap("tag.list"),
    cap("version.list"),
    cap("vuln_report.list"),
    cap("vuln_reports.list"),
];

const REGISTRY_PULL: Set = &[
    cap("groups.list"),
    cap("manifest.list"),
    cap("manifest.metadata.list"),
    cap("record_signatures.list"),
    cap("referrers.list"),
    cap("repo.blobs.get"),
    cap("repo.list"),
    cap("sboms.list"),
    cap("tag.list"),
    cap("vuln_reports.list"),
];

const APK_PULL: Set = &[cap("apk.blobs.get"), cap("apk.list"), cap("groups.list")];

const GUARDENER_USER: Set = &[
    cap("guardener.actions.migrate"),
    cap("guardener.association.list"),
    cap("guardener.dfc.convert"),
    cap("guardener.scan.get"),
    cap("guardener.scan.list"),
    cap("terms.list"),
];

const EDITOR_OWN: Set = &[
    cap("registry.overlays.edit"),
    cap("registry.overlays.list"),
    cap("repo.create"),
    cap("repo.delete"),
    cap("repo.update"),
    cap("libraries.request_groups.create"),
    cap("libraries.request_groups.delete"),
    cap("libraries.request_groups.items.update"),
    cap("libraries.request_groups.update"),
    cap("subscriptions.create"),
    cap("subscriptions.delete"),
    cap("subscriptions.update"),
];

const REGISTRY_PUSH: Set = &[
    cap("groups.create"),
    cap("manifest.create"),
    cap("manifest.delete"),
    cap("manifest.update"),
    cap("repo.create"),
    cap("repo.delete"),
    cap("repo.update"),
    cap("tag.create"),
    cap("tag.delete"),
    cap("tag.update"),
];

const APK_PUSH: Set = &[cap("apk.create"), cap("apk.delete")];

const JAVA_PULL: Set = &[cap("libraries.entitlements.list"), cap("libraries.java.list")];

const PYTHON_PULL: Set = &[cap("libraries.entitlements.list"), cap("libraries.python.list")];

const JAVASCRIPT_PULL: Set = &[cap("libraries.entitlements.list"), cap("libraries.javascript.list")];

const DOTNET_PULL: Set = &[cap("libraries.entitlements.list"), cap("libraries.dotnet.list")];

const GO_PULL: Set = &[cap("libraries.entitlements.list"), cap("libraries.go.list")];

const LIBRARIES_PUSH: Set = &[
    cap("libraries.java.create"),
    cap("libraries.python.create"),
    cap("libraries.javascript.create"),
    cap("libraries.dotnet.create"),
    cap("libraries.go.create"),
];

const SKILLS_PUBLISH: Set = &[
    cap("skills.entitlements.list"),
    cap("skills.harden.cancel"),
    cap("skills.harden.read"),
    cap("skills.harden.write"),
    cap("skills.publish"),
    cap("terms.list"),
];

const GUARDENER_ADMIN: Set = &[cap("guardener.association.manage"), cap("terms.accept")];

const PULL_TOKEN_CREATOR: Set =
    &[cap("groups.list"), cap("identity.create"), cap("role_bindings.create"), cap("roles.list")];

const OWNER_OWN: Set = &[
    cap("account_associations.create"),
    cap("account_associations.delete"),
    cap("account_associations.update"),
    cap("group_invites.create"),
    cap("group_invites.delete"),
    cap("groups.delete"),
    cap("groups.update"),
    cap("identity.create"),
    cap("identity.delete"),
    cap("identity.update"),
    cap("identity_providers.create"),
    cap("identity_providers.delete"),
    cap("identity_providers.update"),
    cap("identity_providers.scim.manage"),
    cap("libraries.aws_marketplace.subscriptions.create"),
    cap("libraries.aws_marketplace.subscriptions.update"),
    cap("libraries.cache.invalidate"),
    cap("libraries.entitlements.create"),
    cap("libraries.entitlements.delete"),
    cap("libraries.policy.create"),
    cap("libraries.policy.delete"),
    cap("libraries.policy.update"),
    cap("libraries.policy.binding.create"),
    cap("libraries.policy.binding.delete"),
    cap("libraries.policy.binding.update"),
    cap("libraries.remote_registries.create"),
    cap("libraries.remote_registries.delete"),
    cap("libraries.request_groups.submit"),
    cap("mcp.tool.call"),
    cap("policies.binding.create"),
    cap("policies.binding.delete"),
    cap("policies.binding.update"),
    cap("policies.override.create"),
    cap("policies.override.delete"),
    cap("policies.policy.create"),
    cap("policies.policy.delete"),
    cap("policies.policy.update"),
    cap("registry.entitlements.images.add"),
    cap("registry.entitlements.images.remove"),
    cap("registry.entitlements.images.swap"),
    cap("repo.check_policies"),
    cap("role_bindings.create"),
    cap("role_bindings.delete"),
    cap("role_bindings.update"),
    cap("roles.create"),
    cap("roles.delete"),
    cap("roles.update"),
    cap("skills.entitlements.create"),
    cap("skills.entitlements.delete"),
    cap("vuln.create"),
    cap("vuln_report.create"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities;

    fn known() -> Capabilities {
        Capabilities::new(capabilities::all()).unwrap()
    }

    #[test]
    fn the_roles_have_the_documented_number_of_capabilities_and_no_internal_ones() {
        let roles = built_in(&known(), Timestamp::EPOCH);
        let count = |name: &str| roles.iter().find(|role| role.name == name).map(|role| role.capabilities.len());
        for (name, expected) in [
            ("owner", 138),
            ("editor", 62),
            ("viewer", 51),
            ("console_viewer", 45),
            ("registry.pull", 10),
            ("registry.push", 20),
            ("registry.pull_token_creator", 15),
            ("apk.pull", 3),
            ("libraries.java.pull", 2),
            ("guardener.user", 16),
            ("guardener.admin", 18),
        ] {
            assert_eq!(count(name), Some(expected), "{name}");
        }
        let ids = roles.iter().flat_map(|role| &role.capabilities);
        assert!(ids.filter_map(|id| capabilities::by_id(id)).all(|capability| !capability.is_internal()));
    }

    #[test]
    fn the_uid_of_viewer_is_as_published_and_all_uids_are_stable() {
        let roles = built_in(&known(), Timestamp::EPOCH);
        let viewer = roles.iter().find(|role| role.name == "viewer").unwrap();
        assert_eq!((viewer.uid.as_str(), viewer.description.as_str()), (VIEWER_UID, "Viewer Role (built-in)"));
        assert!(roles.iter().all(|role| Uid::parse(&role.uid).is_ok_and(|uid| uid.is_root())));
        assert_eq!(owner_uid().as_str(), "ca5ef0b787e3a638c5afafcc00bdea637f610d96");
    }
}
