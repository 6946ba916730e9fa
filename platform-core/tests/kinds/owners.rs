//! An organization always has an owner (`docs/api.md`, Owners), and the operator can repair one that does not.

use std::{sync::Arc, thread};

use platform_core::{
    iam::Iam,
    resources::iam::{DirectoryUser, person_uid, provider_person_uid},
};
use platform_engine::{
    access::{Caller, Narrowing},
    error::{Code, Result},
    event::StreamItem,
    store::{Query, Scope, memory::MemoryStore},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore, Rng};
use pollster::block_on;
use serde_json::{Value, json};

use crate::common::{BEGIN, ISSUER, World, built_in, code, text, uid_of};

/// Creates an organization whose only owner is the operator; returns it and the owner's binding.
fn organization(world: &World) -> (Uid, Uid) {
    let organization = world.organization();
    let owner = world.list(&world.operator, "RoleBinding", &[("group", &organization)]).unwrap();
    let binding = uid_of(&owner.items[0]);
    (organization, binding)
}

/// Creates an organization with only this owner; returns it and the owner's binding.
fn owned_by(world: &World, owner: &Caller) -> (Uid, Uid) {
    let (organization, first) = organization(world);
    let binding = world.bind(owner, &built_in("owner"), &organization);
    world.delete(&world.operator, "RoleBinding", &first).unwrap();
    (organization, binding)
}

/// Creates an identity with static keys that are valid for a day.
fn with_keys(world: &World, group: &str) -> Caller {
    let until = BEGIN.plus_millis(86_400_000);
    let keys = json!({
        "issuer": ISSUER, "subject": "s", "issuerKeys": r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#,
        "expirationTime": until,
    });
    let body = json!({ "name": format!("keys {}", world.serial()), "staticKeys": keys });
    Caller::new(uid_of(&world.create(&world.operator, "Identity", group, body).unwrap()))
}

#[track_caller]
fn assert_last_owner<T: std::fmt::Debug>(world: &World, done: Result<T>, named: Option<&Uid>) {
    let error = done.expect_err("an error");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    let status = world.status(&error);
    let details = status["details"].as_array().unwrap();
    let failure = details.iter().find(|detail| detail.get("violations").is_some()).unwrap();
    assert_eq!(failure["violations"][0]["type"], "LAST_OWNER");
    let whole = status.to_string();
    match named {
        Some(organization) => assert!(whole.contains(organization.as_str()), "{whole}"),
        None => {
            let known = world.walk(&world.operator, "Group", &[]);
            let all = block_on(world.platform.store().list(&Query::new("Group", Scope::Roots))).unwrap();
            let uids = known.iter().map(|group| text(group, "uid").to_owned());
            let uids: Vec<_> = uids.chain(all.items.iter().map(|item| item.uid().to_string())).collect();
            assert!(uids.iter().all(|uid| !whole.contains(uid)), "{whole}");
        }
    }
}

#[test]
fn the_binding_of_the_last_owner_cannot_be_deleted_or_changed() {
    let world = World::new();
    let (organization, binding) = organization(&world);
    let (operator, friend) = (&world.operator, world.identity(&organization));
    assert_last_owner(&world, world.delete(operator, "RoleBinding", &binding), Some(&organization));
    for changed in [
        json!({ "roleUid": built_in("editor") }),
        json!({ "roleUid": world.role(&organization, &["groups.list"]) }),
        json!({ "identityUid": person_uid(ISSUER, "not registered") }),
        json!({ "identityUid": friend.identity, "roleUid": built_in("viewer") }),
        json!({ "identityUid": world.identity(&world.group(&organization)).identity }),
    ] {
        let done = world.update(operator, "RoleBinding", &binding, changed, None);
        assert_last_owner(&world, done, Some(&organization));
    }
    let body = json!({ "identityUid": friend.identity });
    world.update(operator, "RoleBinding", &binding, body, None).unwrap();
    world.create(&friend, "Repo", &organization, json!({ "name": "a" })).unwrap();
    assert_last_owner(&world, world.delete(&friend, "RoleBinding", &binding), Some(&organization));
    world.bind_as(&friend, &world.operator, &built_in("owner"), &organization);
    world.delete(&friend, "RoleBinding", &binding).unwrap();
}

#[test]
fn bindings_of_identities_that_cannot_act_as_owner_do_not_count() {
    let world = World::new();
    let (organization, binding) = organization(&world);
    let folder = world.group(&organization);
    let owner = built_in("owner");
    // A custom role with all capabilities, a folder, an identity of a folder, and a person who is not registered.
    let all: Vec<_> = world.get(&world.operator, "Role", &owner).unwrap()["capabilities"].as_array().unwrap().clone();
    let body = json!({ "name": "all", "capabilities": all });
    let custom = uid_of(&world.create(&world.operator, "Role", &organization, body).unwrap());
    world.bind(&world.identity(&organization), &custom, &organization);
    world.bind(&world.identity(&organization), &owner, &folder);
    world.bind(&world.identity(&folder), &owner, &organization);
    world.bind(&Caller::new(person_uid(ISSUER, "nobody yet")), &owner, &organization);
    for form in [
        json!({ "name": "a", "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" }),
        json!({ "name": "b", "awsIdentity": { "awsAccount": "123456789012", "arn": "a", "userId": "u" } }),
    ] {
        let identity = uid_of(&world.create(&world.operator, "Identity", &organization, form).unwrap());
        world.bind(&Caller::new(identity), &owner, &organization);
    }
    let keys = with_keys(&world, &organization);
    world.bind(&keys, &owner, &organization);
    world.clock.advance(86_400_001);
    assert_last_owner(&world, world.delete(&world.operator, "RoleBinding", &binding), Some(&organization));

    // Bindings and identities that do not count can be deleted.
    world.delete(&world.operator, "Identity", &keys.identity).unwrap();
    for other in world.list(&world.operator, "RoleBinding", &[("group", &organization)]).unwrap().uids() {
        if other != *binding {
            world.delete(&world.operator, "RoleBinding", &other).unwrap();
        }
    }
    block_on(Iam::of(&world.platform).register_person(&person_uid(ISSUER, "nobody yet"), ISSUER, "nobody yet", None))
        .unwrap();
    world.bind(&Caller::new(person_uid(ISSUER, "nobody yet")), &owner, &organization);
    world.delete(&world.operator, "RoleBinding", &binding).unwrap();
}

#[test]
fn an_owner_is_found_among_many_bindings_that_do_not_count() {
    let world = World::new();
    let (organization, binding) = organization(&world);
    for n in 0..250 {
        world.bind(&Caller::new(person_uid(ISSUER, &format!("{n}"))), &built_in("owner"), &organization);
    }
    assert_last_owner(&world, world.delete(&world.operator, "RoleBinding", &binding), Some(&organization));
    world.bind(&world.person("249", None), &built_in("viewer"), &organization);
    world.delete(&world.operator, "RoleBinding", &binding).unwrap();
}

#[test]
fn the_identity_of_the_last_owner_cannot_be_deleted_or_made_unassumable() {
    let world = World::new();
    let (organization, binding) = organization(&world);
    let keys = with_keys(&world, &organization);
    world.bind(&keys, &built_in("owner"), &organization);
    let other = world.identity(&organization);
    world.delete(&keys, "RoleBinding", &binding).unwrap();
    assert_last_owner(&world, world.delete(&keys, "Identity", &keys.identity), Some(&organization));
    let expired = json!({ "staticKeys": { "expirationTime": BEGIN } });
    let done = world.update(&keys, "Identity", &keys.identity, expired.clone(), Some("staticKeys.expirationTime"));
    assert_last_owner(&world, done, Some(&organization));
    let service = json!({ "servicePrincipal": "SERVICE_PRINCIPAL_INGESTER" });
    let done = world.update(&keys, "Identity", &keys.identity, service, Some("servicePrincipal,staticKeys"));
    assert_last_owner(&world, done, Some(&organization));
    // Updates that leave the identity assumable are allowed.
    let later = json!({ "description": "d", "staticKeys": { "expirationTime": BEGIN.plus_millis(1000) } });
    let paths = Some("description,staticKeys.expirationTime");
    world.update(&keys, "Identity", &keys.identity, later, paths).unwrap();

    world.bind_as(&keys, &other, &built_in("owner"), &organization);
    let paths = Some("staticKeys.expirationTime");
    world.update(&other, "Identity", &keys.identity, expired, paths).unwrap();
    world.delete(&other, "Identity", &keys.identity).unwrap();
    assert_last_owner(&world, world.delete(&other, "Identity", &other.identity), Some(&organization));
}

#[test]
fn a_person_who_is_the_last_owner_of_an_organization_cannot_unregister() {
    let world = World::new();
    let ada = world.person("ada", None);
    let (first, _) = owned_by(&world, &ada);
    let (second, _) = owned_by(&world, &ada);
    world.bind_as(&ada, &world.operator, &built_in("owner"), &first);
    assert_last_owner(&world, block_on(Iam::of(&world.platform).unregister(&ada)), Some(&second));
    world.delete(&ada, "Group", &second).unwrap();
    block_on(Iam::of(&world.platform).unregister(&ada)).unwrap();
    world.get(&world.operator, "Group", &first).unwrap();
}

#[test]
fn an_organization_that_is_invisible_to_the_caller_is_not_named() {
    let world = World::new();
    let ada = world.person("ada", None);
    let (organization, binding) = owned_by(&world, &ada);
    // The operator may delete any person, but has no binding in the organization.
    assert_last_owner(&world, world.delete(&world.operator, "Identity", &ada.identity), None);
    let only: &[&str] = &["role_bindings.delete"];
    let only = only.iter().map(|name| platform_core::capabilities::by_name(name).unwrap()).collect();
    let narrowed = ada.clone().narrowed(Narrowing::new([(organization.clone(), only)]));
    assert_last_owner(&world, world.delete(&narrowed, "RoleBinding", &binding), None);
}

#[test]
fn an_organization_can_be_deleted_by_its_last_owner() {
    let world = World::new();
    let ada = world.person("ada", None);
    let (organization, _) = owned_by(&world, &ada);
    world.delete(&ada, "Group", &organization).unwrap();
    block_on(Iam::of(&world.platform).unregister(&ada)).unwrap();
}

#[test]
fn the_last_owner_cannot_be_deactivated_or_deleted_by_scim() {
    let world = World::new();
    let (organization, first) = organization(&world);
    let provider = world.provider(&organization);
    let register = |subject: &str| {
        let uid = provider_person_uid(&provider, ISSUER, subject);
        block_on(Iam::of(&world.platform).register_person(&uid, ISSUER, subject, None)).unwrap();
        world.bind(&Caller::new(uid.clone()), &built_in("owner"), &organization);
        uid
    };
    let (ada, eve) = (register("ada"), register("eve"));
    let user = |id: &str| DirectoryUser {
        user_name: id.to_owned(),
        external_id: id.to_owned(),
        active: true,
        ..DirectoryUser::default()
    };
    let create = |id: &str| block_on(Iam::of(&world.platform).create_directory_user(&provider, user(id))).unwrap();
    let scim = json!({ "identityProviderUid": provider });
    let issued = world.run(Some(&world.operator), "GenerateScimToken", scim).unwrap();
    let enable = |enabled: bool| {
        let etag = world.get(&world.operator, "IdentityProvider", &provider).unwrap()["scim"]["etag"].clone();
        let request = json!({ "identityProviderUid": provider, "enabled": enabled, "etag": etag });
        world.run(Some(&world.operator), "SetScimEnabled", request)
    };
    assert!(issued.get("token").is_some());
    enable(true).unwrap();
    let in_directory = [create("ada"), create("eve")];
    world.delete(&world.operator, "RoleBinding", &first).unwrap();

    let [ada_id, eve_id] = in_directory.each_ref().map(|user| user.uid.last_segment().to_owned());
    let deactivate = |id: &str| {
        let change = |user: DirectoryUser| Ok(DirectoryUser { active: false, ..user });
        block_on(Iam::of(&world.platform).update_directory_user(&provider, id, change))
    };
    deactivate(&ada_id).unwrap();
    assert_last_owner(&world, deactivate(&eve_id), None);
    assert_last_owner(&world, block_on(Iam::of(&world.platform).delete_directory_user(&provider, &eve_id)), None);
    let renamed = |user: DirectoryUser| Ok(DirectoryUser { external_id: "other".to_owned(), ..user });
    assert_last_owner(
        &world,
        block_on(Iam::of(&world.platform).update_directory_user(&provider, &eve_id, renamed)),
        None,
    );
    // A deactivated user does not count and can be deleted.
    block_on(Iam::of(&world.platform).delete_directory_user(&provider, &ada_id)).unwrap();
    world.delete(&world.operator, "Identity", &ada).unwrap();
    assert_last_owner(&world, world.delete(&world.operator, "Identity", &eve), None);
}

#[test]
fn scim_cannot_be_enabled_for_a_directory_without_an_owner() {
    let (world, organization, enabled) = enable_scim("CORRELATION_RULE_SUB_EQUALS_EXTERNAL_ID");
    assert_last_owner(&world, enabled, Some(&organization));
}

#[test]
fn a_directory_whose_users_are_not_found_by_their_subject_decides_about_no_owner() {
    let (.., enabled) = enable_scim("CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID");
    enabled.unwrap();
}

/// Enables SCIM for an empty directory whose provider the only owners sign in by. Returns the world and the organization.
fn enable_scim(rule: &str) -> (World, Uid, Result<Value>) {
    let world = World::new();
    let (organization, first) = organization(&world);
    let provider = world.provider_by(&organization, rule);
    let persons: Vec<_> = ["ada", "eve"].map(|subject| provider_person_uid(&provider, ISSUER, subject)).into();
    for (person, subject) in persons.iter().zip(["ada", "eve"]) {
        block_on(Iam::of(&world.platform).register_person(person, ISSUER, subject, None)).unwrap();
        world.bind(&Caller::new(person.clone()), &built_in("owner"), &organization);
    }
    let manager = world.member("owner", &organization);
    // The last one is in the default role, which the directory's users get.
    let capabilities = ["identity_providers.scim.manage", "identity_providers.list", "groups.list", "actions.list"];
    let role = world.role(&organization, &capabilities);
    let issued = world.run(Some(&manager), "GenerateScimToken", json!({ "identityProviderUid": provider })).unwrap();
    let helper = world.identity(&organization);
    world.bind(&helper, &role, &organization);
    world.delete(&world.operator, "Identity", &manager.identity).unwrap();
    world.delete(&world.operator, "RoleBinding", &first).unwrap();
    let request = json!({ "identityProviderUid": provider, "enabled": true, "etag": issued["etag"] });
    let enabled = world.run(Some(&helper), "SetScimEnabled", request);
    (world, organization, enabled)
}

/// Creates an organization whose only owner signs in by its provider; returns it, the provider and the owner.
fn owned_by_sign_in(world: &World) -> (Uid, Uid, Caller) {
    let (organization, first) = organization(world);
    let provider = world.provider(&organization);
    let ada = Caller::new(provider_person_uid(&provider, ISSUER, "ada"));
    block_on(Iam::of(&world.platform).register_person(&ada.identity, ISSUER, "ada", None)).unwrap();
    world.bind(&ada, &built_in("owner"), &organization);
    world.delete(&world.operator, "RoleBinding", &first).unwrap();
    (organization, provider, ada)
}

#[test]
fn a_provider_that_the_last_owner_signs_in_by_cannot_be_deleted_or_get_another_issuer() {
    let world = World::new();
    let (organization, provider, ada) = owned_by_sign_in(&world);
    let change = |oidc: Value| world.update(&ada, "IdentityProvider", &provider, json!({ "oidc": oidc }), None);
    assert_last_owner(&world, world.delete(&ada, "IdentityProvider", &provider), Some(&organization));
    let other = json!({ "issuer": "https://other.example" });
    assert_last_owner(&world, change(other.clone()), Some(&organization));
    // The person's identity does not depend on the client and the groups claim.
    change(json!({ "clientId": "other", "groupsClaim": "roles" })).unwrap();

    let friend = world.identity_as(&ada, &organization);
    world.bind_as(&ada, &friend, &built_in("owner"), &organization);
    change(other).unwrap();
    // A person who can no longer sign in does not count.
    assert_last_owner(&world, world.delete(&friend, "Identity", &friend.identity), Some(&organization));
    change(json!({ "issuer": ISSUER })).unwrap();
    world.delete(&friend, "Identity", &friend.identity).unwrap();
    assert_last_owner(&world, world.delete(&ada, "IdentityProvider", &provider), Some(&organization));
}

#[test]
fn a_person_of_another_organizations_provider_does_not_count_as_an_owner() {
    let world = World::new();
    let (_, _, ada) = owned_by_sign_in(&world);
    let (other, first) = organization(&world);
    world.bind(&ada, &built_in("owner"), &other);
    assert_last_owner(&world, world.delete(&world.operator, "RoleBinding", &first), Some(&other));
}

#[test]
fn an_organization_without_an_owner_can_delete_its_providers() {
    let world = World::new();
    let (organization, first) = organization(&world);
    let provider = world.provider(&organization);
    let keys = with_keys(&world, &organization);
    world.bind(&keys, &built_in("owner"), &organization);
    let helper = world.identity(&organization);
    world.bind(&helper, &world.role(&organization, &["identity_providers.delete"]), &organization);
    world.delete(&world.operator, "RoleBinding", &first).unwrap();
    // The keys of the only owner expire, which cannot be prevented.
    world.clock.advance(86_400_001);
    world.delete(&helper, "IdentityProvider", &provider).unwrap();
}

#[test]
fn account_associations_and_requirements_of_claim_matches_do_not_affect_who_counts_as_an_owner() {
    let world = World::new();
    let (organization, first) = organization(&world);
    let friend = world.identity(&organization);
    world.bind(&friend, &built_in("owner"), &organization);
    let body = json!({ "name": "accounts", "amazon": { "account": "123456789012" } });
    world.create(&friend, "AccountAssociation", &organization, body).unwrap();
    world.delete(&friend, "RoleBinding", &first).unwrap();
    world.delete(&friend, "AccountAssociation", &organization).unwrap();
    let never = json!({ "claimMatch": { "subject": "nobody", "audience": "nobody" } });
    world.update(&friend, "Identity", &friend.identity, never, None).unwrap();
    assert_last_owner(&world, world.delete(&friend, "Identity", &friend.identity), Some(&organization));
}

#[test]
fn an_operator_cannot_be_deleted() {
    let world = World::new();
    world.bind(&world.identity(&world.org), &built_in("owner"), &world.org);
    for done in [
        world.delete(&world.operator, "Identity", &world.operator.identity),
        block_on(Iam::of(&world.platform).unregister(&world.operator)),
    ] {
        let error = done.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(world.status(&error).to_string().contains("\"OPERATOR\""), "{error}");
    }
    world.get(&world.operator, "Group", &world.org).unwrap();
}

/// Returns the number of owners of an organization that can act.
fn owners(world: &World, organization: &Uid) -> usize {
    let store = world.platform.store();
    let page = block_on(store.list(&Query::new("RoleBinding", Scope::Children(organization.clone())))).unwrap();
    let bindings = page.items.iter().map(|item| serde_json::from_slice::<Value>(&item.body).unwrap());
    bindings
        .filter(|binding| text(binding, "roleUid") == built_in("owner"))
        .filter(|binding| {
            let identity =
                block_on(Iam::of(&world.platform).identity(&Uid::opaque(text(binding, "identityUid")))).unwrap();
            identity.is_some_and(|identity| match &identity.static_keys {
                Some(keys) => keys.expiration_time.unwrap() > BEGIN,
                None => true,
            })
        })
        .count()
}

#[derive(Debug, Clone, Copy)]
enum Removal {
    DeleteBinding,
    ChangeRole,
    GiveToOther,
    DeleteIdentity,
    ExpireKeys,
    Unregister,
}

const REMOVALS: [Removal; 6] = [
    Removal::DeleteBinding,
    Removal::ChangeRole,
    Removal::GiveToOther,
    Removal::DeleteIdentity,
    Removal::ExpireKeys,
    Removal::Unregister,
];

/// Two owners of an organization, who are both removed, each in one of these ways.
struct Duel {
    organization: Uid,
    owners: [(Caller, Uid); 2],
}

impl Duel {
    fn new(world: &World, removals: [Removal; 2]) -> Self {
        let (organization, first) = organization(world);
        let owners = removals.map(|removal| {
            let owner = match removal {
                Removal::Unregister => world.person(&format!("person {}", world.serial()), None),
                _ => with_keys(world, &organization),
            };
            let binding = world.bind(&owner, &built_in("owner"), &organization);
            (owner, binding)
        });
        world.delete(&world.operator, "RoleBinding", &first).unwrap();
        Self { organization, owners }
    }

    fn remove(&self, world: &World, which: usize, removal: Removal) -> bool {
        let (owner, binding) = &self.owners[which];
        let done = match removal {
            Removal::DeleteBinding => world.delete(owner, "RoleBinding", binding),
            Removal::ChangeRole => {
                world.update(owner, "RoleBinding", binding, json!({ "roleUid": built_in("viewer") }), None).map(drop)
            }
            // Transfers the binding to the other owner, who may be removed at the same time.
            Removal::GiveToOther => {
                let body = json!({ "identityUid": self.owners[1 - which].0.identity, "roleUid": built_in("editor") });
                world.update(owner, "RoleBinding", binding, body, None).map(drop)
            }
            Removal::DeleteIdentity => world.delete(owner, "Identity", &owner.identity),
            Removal::ExpireKeys => {
                let body = json!({ "staticKeys": { "expirationTime": BEGIN } });
                world.update(owner, "Identity", &owner.identity, body, Some("staticKeys.expirationTime")).map(drop)
            }
            Removal::Unregister => block_on(Iam::of(&world.platform).unregister(owner)),
        };
        match done {
            Ok(()) => true,
            Err(error) => {
                // The other identity may be deleted already.
                let other_deleted = matches!(removal, Removal::GiveToOther) && error.code() == Code::InvalidArgument;
                assert!(other_deleted || error.code() == Code::FailedPrecondition, "{removal:?}: {error}");
                false
            }
        }
    }
}

#[test]
fn exactly_one_of_two_concurrently_removed_owners_remains_in_1000_races() {
    let world = World::over(Arc::new(MemoryStore::new()));
    let mut rng = Rng::new(7);
    for round in 0..1_000 {
        let removals = [*rng.pick(&REMOVALS), *rng.pick(&REMOVALS)];
        let duel = Duel::new(&world, removals);
        let barrier = std::sync::Barrier::new(2);
        let removed = thread::scope(|scope| {
            let threads = [0, 1].map(|which| {
                let (duel, world, barrier) = (&duel, &world, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    duel.remove(world, which, removals[which])
                })
            });
            threads.map(|thread| usize::from(thread.join().unwrap())).iter().sum::<usize>()
        });
        assert_eq!(removed, 1, "round {round}: {removals:?}");
        assert_eq!(owners(&world, &duel.organization), 1, "round {round}: {removals:?}");
    }
}

#[test]
fn each_pair_of_interleaved_removals_leaves_an_owner() {
    for first in REMOVALS {
        for second in REMOVALS {
            let (store, gate) = GatedStore::in_memory();
            let world = World::over(store);
            let duel = Duel::new(&world, [first, second]);
            let mut other = false;
            let one = gate.interleave(
                Call::Commit,
                || duel.remove(&world, 0, first),
                || other = duel.remove(&world, 1, second),
            );
            assert_eq!((one, other), (false, true), "{first:?} while {second:?}");
            assert_eq!(owners(&world, &duel.organization), 1, "{first:?} while {second:?}");
        }
    }
}

#[test]
fn the_successor_of_the_last_owner_cannot_be_removed_while_the_binding_is_transferred() {
    // While the last owner transfers the binding, the new identity is deleted or becomes unassumable.
    for expire in [false, true] {
        for successor_first in [false, true] {
            let (store, gate) = GatedStore::in_memory();
            let world = World::over(store);
            let (organization, binding) = organization(&world);
            let successor = with_keys(&world, &organization);
            let transfer = || {
                let body = json!({ "identityUid": successor.identity });
                world.update(&world.operator, "RoleBinding", &binding, body, None).map(drop)
            };
            let remove = || {
                if expire {
                    let body = json!({ "staticKeys": { "expirationTime": BEGIN } });
                    let paths = Some("staticKeys.expirationTime");
                    world.update(&world.operator, "Identity", &successor.identity, body, paths).map(drop)
                } else {
                    world.delete(&world.operator, "Identity", &successor.identity)
                }
            };
            let mut second = None;
            let first = if successor_first {
                gate.interleave(Call::Commit, remove, || second = Some(transfer()))
            } else {
                gate.interleave(Call::Commit, transfer, || second = Some(remove()))
            };
            second.unwrap().unwrap();
            assert!(first.is_err(), "expire {expire}, the successor first {successor_first}");
            assert_eq!(owners(&world, &organization), 1);
        }
    }
}

#[test]
fn the_operator_repairs_an_organization_without_an_owner() {
    let world = World::new();
    let organization = world.organization();
    let keys = with_keys(&world, &organization);
    world.bind(&keys, &built_in("owner"), &organization);
    let first =
        world.list(&world.operator, "RoleBinding", &[("group", &organization), ("identity", &world.operator.identity)]);
    world.delete(&keys, "RoleBinding", &first.unwrap().uids()[0]).unwrap();
    // Keys can expire without an update.
    world.clock.advance(86_400_001);
    assert_eq!(code(world.get(&world.operator, "Group", &organization)), Code::PermissionDenied);

    let ada = world.person("ada", None);
    let repair = |caller: &Caller, group: &str, identity: &str| {
        world.run(Some(caller), "RepairOwner", json!({ "groupUid": group, "identityUid": identity }))
    };
    let mut events = world.platform.subscribe(&organization);
    assert_eq!(code(repair(&ada, &organization, &ada.identity)), Code::PermissionDenied);
    assert_eq!(code(repair(&world.member("owner", &world.org), &organization, &ada.identity)), Code::PermissionDenied);
    assert_eq!(code(repair(&world.operator, &world.group(&world.org), &ada.identity)), Code::InvalidArgument);
    assert_eq!(code(repair(&world.operator, &"0".repeat(40), &ada.identity)), Code::NotFound);
    assert_eq!(code(repair(&world.operator, &organization, &"0".repeat(40))), Code::NotFound);
    let elsewhere = world.identity(&world.org);
    for unsuitable in [&elsewhere, &keys] {
        assert_eq!(code(repair(&world.operator, &organization, &unsuitable.identity)), Code::InvalidArgument);
    }

    let reply = repair(&world.operator, &organization, &ada.identity).unwrap();
    let binding = &reply["roleBinding"];
    assert_eq!((text(binding, "identityUid"), text(binding, "roleUid")), (&*ada.identity, &*built_in("owner")));
    assert_eq!(uid_of(binding).parent().unwrap(), organization);
    world.create(&ada, "Group", &organization, json!({ "name": "a" })).unwrap();
    let Some(StreamItem::Event { event, .. }) = block_on(events.next()) else { panic!("expected an event") };
    assert!(event.ty.ends_with("iam.rolebindings.created.v1"), "{event:?}");
    assert_eq!(code(repair(&world.operator, &organization, &ada.identity)), Code::AlreadyExists);
}
