//! Mappings of external groups to roles: their scopes, and the capabilities that they require (`docs/api.md`, External
//! group role mappings).

use platform_engine::{
    access::Caller,
    error::{Code, Result},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{ISSUER, World, built_in, code, text, uid_of, violated_fields};

pub(crate) fn provider(world: &World, group: &str) -> Uid {
    let oidc = json!({ "issuer": ISSUER, "clientId": "platform", "pkceEnabled": true });
    let body = json!({ "name": "sign-in", "defaultRole": built_in("viewer"), "oidc": oidc });
    uid_of(&world.create(&world.operator, "IdentityProvider", group, body).unwrap())
}

pub(crate) fn map(world: &World, caller: &Caller, provider: &Uid, group: &str, role: &str) -> Result<Value> {
    let body = json!({ "externalGroupId": group, "roleUid": role, "scope": provider.root() });
    world.create(caller, "ExternalGroupRoleMapping", provider, body)
}

fn batch(world: &World, caller: &Caller, parent: &str, names: &[&str]) -> Result<Value> {
    let request = json!({ "parent": parent, "names": names });
    world.run(Some(caller), "BatchDeleteExternalGroupRoleMappings", request)
}

fn count(world: &World, provider: &Uid) -> u64 {
    world.list(&world.operator, "ExternalGroupRoleMapping", &[("identity_provider_uid", provider)]).unwrap().total
}

#[test]
fn a_mapping_shows_its_provider_and_can_be_listed_by_it() {
    let world = World::new();
    let (one, two) = (provider(&world, &world.org), provider(&world, &world.group(&world.org)));
    let created = map(&world, &world.operator, &one, "admins", &built_in("viewer")).unwrap();
    map(&world, &world.operator, &two, "admins", &built_in("viewer")).unwrap();
    assert_eq!((text(&created, "identityProviderUid"), text(&created, "scope")), (&*one, &*world.org));
    let listed = world.list(&world.operator, "ExternalGroupRoleMapping", &[("identityProviderUid", &*one)]).unwrap();
    assert_eq!(listed.items, [created]);
    let below = world.list(&world.operator, "ExternalGroupRoleMapping", &[("uidp.children_of", &*two)]).unwrap();
    assert_eq!(below.total, 1);
}

#[test]
fn scope_must_be_the_organization_of_the_provider_and_the_role_must_be_usable_there() {
    let world = World::new();
    let folder = world.group(&world.org);
    let provider = provider(&world, &folder);
    for scope in [&*folder, &*world.organization(), &*provider] {
        let body = json!({ "externalGroupId": "a", "roleUid": built_in("viewer"), "scope": scope });
        let rejected = world.create(&world.operator, "ExternalGroupRoleMapping", &provider, body);
        assert_eq!(violated_fields(rejected), ["scope"]);
    }
    let missing = format!("{}/0000000000000000", world.org);
    for role in [&*world.role(&folder, &["repo.list"]), &*world.role(&world.organization(), &["repo.list"]), &missing] {
        assert_eq!(violated_fields(map(&world, &world.operator, &provider, "a", role)), ["roleUid"]);
    }
    map(&world, &world.operator, &provider, "a", &world.role(&world.org, &["repo.list"])).unwrap();
    let bare = world.create(&world.operator, "ExternalGroupRoleMapping", &provider, json!({}));
    assert_eq!(violated_fields(bare), ["externalGroupId", "roleUid", "scope"]);
    let nowhere = Uid::opaque(format!("{}/0000000000000000", world.org));
    assert_eq!(code(map(&world, &world.operator, &nowhere, "a", &built_in("viewer"))), Code::NotFound);
}

#[test]
fn a_mapping_of_the_same_provider_group_and_role_already_exists() {
    let world = World::new();
    let (one, two) = (provider(&world, &world.org), provider(&world, &world.org));
    let first = map(&world, &world.operator, &one, "admins", &built_in("viewer")).unwrap();
    assert_eq!(code(map(&world, &world.operator, &one, "admins", &built_in("viewer"))), Code::AlreadyExists);
    for (provider, group, role) in [(&one, "Admins", "viewer"), (&one, "admins", "editor"), (&two, "admins", "viewer")]
    {
        map(&world, &world.operator, provider, group, &built_in(role)).unwrap();
    }
    world.delete(&world.operator, "ExternalGroupRoleMapping", text(&first, "uid")).unwrap();
    map(&world, &world.operator, &one, "admins", &built_in("viewer")).unwrap();
}

#[test]
fn mapping_a_role_requires_its_capabilities_at_the_organization() {
    let world = World::new();
    let folder = world.group(&world.org);
    let provider = provider(&world, &folder);
    let mapper = ["identity_providers.create", "role_bindings.create", "repo.list"];
    let role = world.role(&world.org, &["repo.list"]);
    let more = world.role(&world.org, &["repo.list", "repo.delete"]);
    // An owner of only the folder would give more than they hold: the role is held at the organization.
    let below = world.member("owner", &folder);
    assert_eq!(code(map(&world, &below, &provider, "a", &role)), Code::PermissionDenied);
    // A caller who holds the role's capabilities at the organization, but can bind only in the folder.
    let reader = world.holder(&world.org, &["repo.list"]);
    world.bind(&reader, &built_in("owner"), &folder);
    assert_eq!(code(map(&world, &reader, &provider, "a", &role)), Code::PermissionDenied);
    let caller = world.holder(&world.org, &mapper);
    assert_eq!(code(map(&world, &caller, &provider, "a", &more)), Code::PermissionDenied);
    map(&world, &caller, &provider, "a", &role).unwrap();
}

#[test]
fn a_role_that_is_mapped_or_a_providers_default_cannot_be_deleted() {
    let world = World::new();
    let provider = provider(&world, &world.org);
    let role = world.role(&world.org, &["repo.list"]);
    let mapping = map(&world, &world.operator, &provider, "a", &role).unwrap();
    let blocked = world.delete(&world.operator, "Role", &role).unwrap_err();
    assert_eq!(blocked.code(), Code::FailedPrecondition);
    assert!(blocked.message().contains("external group"), "{blocked}");
    world.delete(&world.operator, "ExternalGroupRoleMapping", text(&mapping, "uid")).unwrap();
    let default = json!({ "defaultRole": role });
    world.update(&world.operator, "IdentityProvider", &provider, default, None).unwrap();
    let blocked = world.delete(&world.operator, "Role", &role).unwrap_err();
    assert!(blocked.message().contains("default of an identity provider"), "{blocked}");
    world.delete(&world.operator, "IdentityProvider", &provider).unwrap();
    world.delete(&world.operator, "Role", &role).unwrap();
}

#[test]
fn delete_of_a_provider_cascades_to_its_mappings() {
    let world = World::new();
    let (one, two) = (provider(&world, &world.org), provider(&world, &world.org));
    for provider in [&one, &two] {
        map(&world, &world.operator, provider, "a", &built_in("viewer")).unwrap();
    }
    world.delete(&world.operator, "IdentityProvider", &one).unwrap();
    assert_eq!((count(&world, &one), count(&world, &two)), (0, 1));
}

#[test]
fn a_batch_delete_skips_missing_names_and_returns_deleted_mappings_in_request_order() {
    let world = World::new();
    let provider = provider(&world, &world.org);
    let made =
        ["c", "a", "b"].map(|group| map(&world, &world.operator, &provider, group, &built_in("viewer")).unwrap());
    let [c, a, b] = made.each_ref().map(|mapping| text(mapping, "uid"));
    let missing = format!("{provider}/0000000000000000");
    let reply = batch(&world, &world.operator, &provider, &[b, &missing, c, b]).unwrap();
    assert_eq!(reply, json!({ "parent": provider, "externalGroupRoleMappings": [made[2], made[0]] }));
    assert_eq!(count(&world, &provider), 1);
    let reply = batch(&world, &world.operator, &provider, &[b, c]).unwrap();
    assert_eq!(reply, json!({ "parent": provider, "externalGroupRoleMappings": [] }));
    world.get(&world.operator, "ExternalGroupRoleMapping", a).unwrap();
    assert_eq!(violated_fields(batch(&world, &world.operator, &provider, &[])), ["names"]);
    let many: Vec<_> = (0..1001).map(|at| format!("{provider}/{at:016x}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(violated_fields(batch(&world, &world.operator, &provider, &many)), ["names"]);
    batch(&world, &world.operator, &provider, &many[..1000]).unwrap();
}

#[test]
fn a_name_under_another_provider_gets_the_same_error_whether_or_not_it_exists() {
    let world = World::new();
    let (mine, other) = (provider(&world, &world.org), provider(&world, &world.organization()));
    let keep = map(&world, &world.operator, &mine, "a", &built_in("viewer")).unwrap();
    let foreign = map(&world, &world.operator, &other, "a", &built_in("viewer")).unwrap();
    let owner = world.member("owner", &world.org);
    let missing = format!("{other}/0000000000000000");
    let rejections = [text(&foreign, "uid"), &missing, "x", &*mine, &*other].map(|name| {
        let error = batch(&world, &owner, &mine, &[text(&keep, "uid"), name]).unwrap_err();
        assert_eq!(error.violations()[0].field, "names[1]");
        world.status(&error)
    });
    assert!(rejections.iter().all(|rejection| *rejection == rejections[0]));
    assert_eq!((count(&world, &mine), count(&world, &other)), (1, 1));
    assert_eq!(code(batch(&world, &owner, &other, &[text(&foreign, "uid")])), Code::PermissionDenied);
}
