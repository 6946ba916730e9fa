//! Identity providers: the write-only client secret, and the capabilities that changes of a provider require
//! (`docs/api.md`, Identity providers).

use std::sync::Arc;

use platform_core::{iam::Iam, resources::iam::IdentityProvider};
use platform_engine::{
    access::Caller,
    error::{Code, Result},
    kind::Resource,
    seal::{SealKeys, Secret},
    store::{Key, Store, memory::MemoryStore},
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};
use serde_json::{Value, json};

use crate::{
    common::{ISSUER, World, block_on, built_in, code, owner_capabilities, text, uid_of, violated_fields},
    external_group_role_mappings::map,
};

const CANARY: &str = "canary-in-the-coal-mine";

fn body(more: Value) -> Value {
    let mut oidc = json!({ "issuer": ISSUER, "clientId": "platform", "clientSecret": CANARY });
    more.as_object().unwrap().iter().for_each(|(key, value)| oidc[key] = value.clone());
    json!({ "name": "sign-in", "defaultRole": built_in("viewer"), "oidc": oidc })
}

fn create(world: &World, caller: &Caller, group: &str, more: Value) -> Result<Value> {
    world.create(caller, "IdentityProvider", group, body(more))
}

fn update(world: &World, uid: &str, oidc: Value, mask: Option<&str>) -> Result<Value> {
    world.update(&world.operator, "IdentityProvider", uid, json!({ "oidc": oidc }), mask)
}

fn secret(world: &World, uid: &str) -> Option<String> {
    let uid = Uid::opaque(uid);
    let (provider, secret) = block_on(Iam::of(&world.platform).provider_and_secret(&uid)).unwrap().unwrap();
    assert_eq!(provider.uid, uid, "both are of one provider");
    secret.map(|secret| secret.expose().to_owned())
}

#[test]
fn a_client_secret_does_not_appear_in_replies_errors_or_stored_plaintext() {
    let world = World::new();
    let created = create(&world, &world.operator, &world.org, json!({})).unwrap();
    let uid = text(&created, "uid");
    let updated = update(&world, uid, json!({ "clientSecret": CANARY }), None).unwrap();
    let read = world.get(&world.operator, "IdentityProvider", uid).unwrap();
    let listed = world.list(&world.operator, "IdentityProvider", &[]).unwrap().items.remove(0);
    let key = Key::new("IdentityProvider", Uid::opaque(uid));
    let record = block_on(world.platform.store().get(&[key], &[])).unwrap().records.pop().flatten().unwrap();
    let stored = format!("{record:?}{}", String::from_utf8_lossy(&record.private));
    let mut wrong = body(json!({ "issuer": "nowhere", "additionalScopes": [" "] }));
    wrong["oidc"]["clientSecret"] = json!([CANARY]);
    let error = world.create(&world.operator, "IdentityProvider", &world.org, wrong).unwrap_err();
    let long = create(&world, &world.operator, &world.org, json!({ "clientSecret": CANARY.repeat(200) })).unwrap_err();
    let errors = format!("{error:?} {error} {long:?} {long} {}", world.status(&error));
    for shown in [created.to_string(), updated.to_string(), read.to_string(), listed.to_string(), stored, errors] {
        assert!(!shown.contains(CANARY), "{shown}");
    }
    assert_eq!(secret(&world, uid).as_deref(), Some(CANARY));
}

#[test]
fn debug_output_of_a_provider_omits_its_secret() {
    let mut provider = IdentityProvider::example();
    provider.oidc.as_mut().unwrap().client_secret = Secret::new(CANARY);
    assert!(!format!("{provider:?}").contains(CANARY));
    let world = World::new();
    provider.default_role = Uid::opaque(built_in("viewer"));
    let created = block_on(world.platform.create(&world.operator, &world.org, &provider)).unwrap();
    assert!(created.oidc.unwrap().client_secret.is_empty());
    assert_eq!(secret(&world, &created.uid).as_deref(), Some(CANARY));
}

#[test]
fn a_secret_can_be_opened_after_a_key_rotation_and_not_with_other_keys() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let with = |keys: &[(u64, [u8; 32])]| {
        let keys = SealKeys::new(keys.iter().copied());
        World::over_with(Arc::clone(&store), |builder| builder.seal_keys(keys))
    };
    let world = with(&[(1, [1; 32])]);
    let uid = uid_of(&create(&world, &world.operator, &world.org, json!({})).unwrap());
    let opened = |world: &World| {
        let found = block_on(Iam::of(&world.platform).provider_and_secret(&uid));
        found.map(|found| found.unwrap().1.unwrap())
    };
    assert_eq!(opened(&with(&[(2, [2; 32]), (1, [1; 32])])).unwrap().expose(), CANARY);
    for keys in [&[(2, [2; 32])], &[(1, [2; 32])]] {
        assert_eq!(code(opened(&with(keys))), Code::Internal);
    }
    // A running server switches to new keys, with which later writes are sealed.
    world.platform.set_seal_keys(SealKeys::new([(2, [2; 32]), (1, [1; 32])]));
    assert_eq!(opened(&world).unwrap().expose(), CANARY);
    update(&world, &uid, json!({ "clientSecret": "new" }), None).unwrap();
    assert_eq!(opened(&with(&[(2, [2; 32])])).unwrap().expose(), "new");
    assert_eq!(code(opened(&with(&[(1, [1; 32])]))), Code::Internal);
}

#[test]
fn an_update_keeps_the_secret_unless_it_sets_it_or_clears_it_by_name() {
    let world = World::new();
    let uid = uid_of(&create(&world, &world.operator, &world.org, json!({ "pkceEnabled": true })).unwrap());
    let full = |secret: Value| {
        let mut oidc = json!({ "issuer": ISSUER, "clientId": "platform", "pkceEnabled": true });
        if !secret.is_null() {
            oidc["clientSecret"] = secret;
        }
        oidc
    };
    // The body, the mask, and whether the secret remains.
    for (oidc, mask, remains) in [
        (full(json!(null)), Some("*"), true),
        (full(json!("")), Some("*"), true),
        (full(json!("")), Some("oidc"), true),
        (full(json!(null)), Some("oidc"), true),
        (full(json!(null)), None, true),
        (json!({ "clientId": "other" }), None, true),
        (json!({ "clientSecret": "" }), Some("oidc.client_id,oidc.issuer,name"), true),
        (json!({ "clientSecret": "" }), None, false),
        (json!({ "clientSecret": null }), None, false),
        (json!({}), Some("oidc.client_secret"), false),
        (json!({ "clientSecret": "" }), Some("oidc.clientSecret"), false),
    ] {
        update(&world, &uid, json!({ "clientSecret": CANARY, "clientId": "platform" }), None).unwrap();
        let mut sent = json!({ "name": "sign-in", "defaultRole": built_in("viewer"), "oidc": oidc });
        if mask == Some("oidc.client_id,oidc.issuer,name") {
            sent["oidc"]["clientId"] = "c".into();
            sent["oidc"]["issuer"] = ISSUER.into();
        }
        world.update(&world.operator, "IdentityProvider", &uid, sent.clone(), mask).unwrap();
        assert_eq!(secret(&world, &uid).is_some(), remains, "{sent} {mask:?}");
    }
    update(&world, &uid, json!({ "clientSecret": "new" }), Some("oidc.client_secret")).unwrap();
    assert_eq!(secret(&world, &uid).as_deref(), Some("new"));
}

#[test]
fn a_provider_requires_a_client_secret_or_pkce() {
    let world = World::new();
    let neither = create(&world, &world.operator, &world.org, json!({ "clientSecret": "" }));
    assert_eq!(violated_fields(neither), ["oidc.clientSecret"]);
    let uid = uid_of(&create(&world, &world.operator, &world.org, json!({})).unwrap());
    assert_eq!(violated_fields(update(&world, &uid, json!({ "clientSecret": "" }), None)), ["oidc.clientSecret"]);
    update(&world, &uid, json!({ "clientSecret": "", "pkceEnabled": true }), None).unwrap();
    assert_eq!(secret(&world, &uid), None);
    assert_eq!(violated_fields(update(&world, &uid, json!({ "pkceEnabled": false }), None)), ["oidc.clientSecret"]);
    update(&world, &uid, json!({ "pkceEnabled": false, "clientSecret": "s" }), None).unwrap();
}

#[test]
fn missing_and_invalid_fields_of_a_provider_are_rejected_by_name() {
    let world = World::new();
    let bare = world.create(&world.operator, "IdentityProvider", &world.org, json!({}));
    assert_eq!(violated_fields(bare), ["name", "defaultRole", "oidc"]);
    for (more, field) in [
        (json!({ "issuer": "" }), "oidc.issuer"),
        (json!({ "issuer": "sign-in.example.com" }), "oidc.issuer"),
        (json!({ "issuer": "https://user@example.com" }), "oidc.issuer"),
        (json!({ "clientId": "" }), "oidc.clientId"),
        (json!({ "additionalScopes": ["a b"] }), "oidc.additionalScopes"),
        (json!({ "correlationRule": "x" }), "oidc.correlationRule"),
    ] {
        assert_eq!(violated_fields(create(&world, &world.operator, &world.org, more)), [field]);
    }
}

#[test]
fn a_correlation_rule_is_immutable_and_defaults_to_sub() {
    let world = World::new();
    let sub = "CORRELATION_RULE_SUB_EQUALS_EXTERNAL_ID";
    let oid = "CORRELATION_RULE_OID_EQUALS_EXTERNAL_ID";
    let plain = create(&world, &world.operator, &world.org, json!({})).unwrap();
    let by_oid = create(&world, &world.operator, &world.org, json!({ "correlationRule": oid })).unwrap();
    for (provider, rule, other) in [(&plain, sub, oid), (&by_oid, oid, sub)] {
        assert_eq!(text(&provider["oidc"], "correlationRule"), rule);
        for same in [rule, "CORRELATION_RULE_UNSPECIFIED"] {
            let updated = update(&world, text(provider, "uid"), json!({ "correlationRule": same }), None).unwrap();
            assert_eq!(text(&updated["oidc"], "correlationRule"), rule);
        }
        let changed = update(&world, text(provider, "uid"), json!({ "correlationRule": other }), None);
        assert_eq!(violated_fields(changed), ["oidc.correlationRule"]);
    }
}

#[test]
fn setting_a_default_role_requires_its_capabilities_at_the_group() {
    let world = World::new();
    let manager = ["identity_providers.create", "identity_providers.update", "role_bindings.create", "repo.list"];
    let caller = world.holder(&world.org, &manager);
    let (mine, more) = (world.role(&world.org, &["repo.list"]), world.role(&world.org, &["repo.list", "repo.delete"]));
    let with = |role: &str| {
        let mut body = body(json!({}));
        body["defaultRole"] = role.into();
        world.create(&caller, "IdentityProvider", &world.org, body)
    };
    let own = uid_of(&with(&mine).unwrap());
    assert_eq!(code(with(&more)), Code::PermissionDenied);
    let set = |uid: &str, body: Value, mask| world.update(&caller, "IdentityProvider", uid, body, mask);
    assert_eq!(code(set(&own, json!({ "defaultRole": more }), None)), Code::PermissionDenied);
    set(&own, json!({ "oidc": { "issuer": "https://other.test" } }), None).unwrap();
    for role in
        [format!("{}/0000000000000000", world.org), world.role(&world.organization(), &["repo.list"]).to_string()]
    {
        assert_eq!(violated_fields(set(&own, json!({ "defaultRole": role }), None)), ["defaultRole"]);
    }
}

#[test]
fn changing_issuer_client_or_groups_claim_requires_the_capabilities_of_default_and_mapped_roles() {
    let world = World::new();
    let manager = ["identity_providers.update", "role_bindings.create", "repo.list"];
    let caller = world.holder(&world.org, &manager);
    let mut small = body(json!({}));
    small["defaultRole"] = json!(world.role(&world.org, &["repo.list"]));
    let strong = uid_of(&create(&world, &world.operator, &world.org, json!({})).unwrap());
    let weak = uid_of(&world.create(&world.operator, "IdentityProvider", &world.org, small).unwrap());
    let redirect =
        |uid: &Uid, oidc: Value| world.update(&caller, "IdentityProvider", uid, json!({ "oidc": oidc }), None);
    let vouchers =
        [json!({ "issuer": "https://mine.test" }), json!({ "clientId": "mine" }), json!({ "groupsClaim": "mine" })];
    for voucher in &vouchers {
        assert_eq!(code(redirect(&strong, voucher.clone())), Code::PermissionDenied, "{voucher}");
        redirect(&weak, voucher.clone()).unwrap();
    }
    redirect(&strong, json!({ "clientSecret": "new", "additionalScopes": ["email"] })).unwrap();
    map(&world, &world.operator, &weak, "admins", &built_in("owner")).unwrap();
    redirect(&weak, json!({ "issuer": "https://mine.test", "clientId": "mine" })).unwrap();
    for voucher in
        [json!({ "issuer": "https://worse.test" }), json!({ "clientId": "worse" }), json!({ "groupsClaim": "worse" })]
    {
        assert_eq!(code(redirect(&weak, voucher)), Code::PermissionDenied);
    }
}

#[test]
fn a_mapping_created_while_the_issuer_is_changed_is_taken_into_account() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let caller = world.holder(&world.org, &["identity_providers.update", "role_bindings.create", "repo.list"]);
    let mut small = body(json!({}));
    small["defaultRole"] = json!(world.role(&world.org, &["repo.list"]));
    let provider = uid_of(&world.create(&world.operator, "IdentityProvider", &world.org, small).unwrap());
    let redirect = || {
        let voucher = json!({ "oidc": { "issuer": "https://mine.test" } });
        world.update(&caller, "IdentityProvider", &provider, voucher, None)
    };
    let mapped = || drop(map(&world, &world.operator, &provider, "admins", &built_in("owner")).unwrap());
    assert_eq!(code(gate.interleave(Call::Commit, redirect, mapped)), Code::PermissionDenied);
}

#[test]
fn giving_a_role_is_decided_again_if_the_role_gains_capabilities_before_the_commit() {
    let (store, gate) = GatedStore::in_memory();
    let world = World::over(store);
    let caller = world.holder(
        &world.org,
        &["identity_providers.create", "group_invites.create", "role_bindings.create", "repo.list"],
    );
    let provider = uid_of(&create(&world, &world.operator, &world.org, json!({})).unwrap());
    for kind in ["IdentityProvider", "GroupInvite", "ExternalGroupRoleMapping"] {
        let role = world.role(&world.org, &["repo.list"]);
        let promise = || match kind {
            "IdentityProvider" => {
                let mut body = body(json!({}));
                body["defaultRole"] = json!(role);
                world.create(&caller, kind, &world.org, body)
            }
            "GroupInvite" => world.create(&caller, kind, &world.org, json!({ "roleUid": role, "ttl": "60s" })),
            _ => map(&world, &caller, &provider, "a", &role),
        };
        let grow = || {
            let more = json!({ "capabilities": ["CAP_REPO_LIST", "CAP_REPO_DELETE"] });
            world.update(&world.operator, "Role", &role, more, None).unwrap();
        };
        assert_eq!(code(gate.interleave(Call::Commit, promise, grow)), Code::PermissionDenied, "{kind}");
    }
}

#[test]
fn each_way_of_giving_a_capability_requires_holding_it() {
    let world = World::new();
    let owner = owner_capabilities();
    let provider = uid_of(&create(&world, &world.operator, &world.org, json!({})).unwrap());
    let identity = world.identity(&world.org).identity;
    for capability in &owner {
        let others: Vec<_> = owner.iter().filter(|other| *other != capability).map(|other| other.name()).collect();
        let (unable, able) = (world.holder(&world.org, &others), world.member("owner", &world.org));
        let role = world.role(&world.org, &[capability.name()]);
        for (caller, allowed) in [(&unable, false), (&able, true)] {
            let mut provided = body(json!({}));
            provided["defaultRole"] = json!(role);
            let done = [
                world.create(caller, "RoleBinding", &world.org, json!({ "identityUid": identity, "roleUid": role })),
                world.create(caller, "GroupInvite", &world.org, json!({ "roleUid": role, "ttl": "60s" })),
                world.create(caller, "IdentityProvider", &world.org, provided),
                map(&world, caller, &provider, "a", &role),
                world.create(
                    caller,
                    "Role",
                    &world.org,
                    json!({ "name": format!("r {}", world.serial()), "capabilities": [capability.id()] }),
                ),
            ];
            for done in done {
                assert_eq!(done.is_ok(), allowed, "{capability:?}: {done:?}");
                if let Err(error) = done {
                    assert_eq!(error.code(), Code::PermissionDenied, "{capability:?}: {error}");
                }
            }
        }
    }
}

#[test]
fn another_issuer_of_a_provider_in_a_folder_requires_role_bindings_create_where_its_mappings_give_roles() {
    let world = World::new();
    let (folder, role) = (world.group(&world.org), world.role(&world.org, &["repo.list"]));
    let oidc = json!({ "issuer": ISSUER, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true });
    let body = json!({ "name": "p", "defaultRole": role, "oidc": oidc });
    let provider = uid_of(&world.create(&world.operator, "IdentityProvider", &folder, body).unwrap());
    let caller = world.identity(&world.org);
    let clerk = world.role(&world.org, &["identity_providers.update", "role_bindings.create"]);
    world.bind(&caller, &clerk, &folder);
    world.bind(&caller, &role, &world.org);
    let redirect = |issuer: &str| {
        let body = json!({ "oidc": { "issuer": issuer } });
        world.update(&caller, "IdentityProvider", &provider, body, Some("oidc.issuer"))
    };
    redirect("https://one.test").unwrap();
    let mapping = json!({ "externalGroupId": "admins", "roleUid": role, "scope": world.org });
    world.create(&world.operator, "ExternalGroupRoleMapping", &provider, mapping).unwrap();
    assert_eq!(code(redirect("https://two.test")), Code::PermissionDenied);
    world.bind(&caller, &clerk, &world.org);
    redirect("https://two.test").unwrap();
}
