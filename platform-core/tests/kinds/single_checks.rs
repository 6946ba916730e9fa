//! Checks of which each is the only one that refuses a value, tried one by one.

use platform_core::{
    iam::{Bootstrap, Iam},
    resources::iam::{DirectoryUser, Identity, IdentityProvider},
};
use platform_engine::{
    access::{Caller, Session},
    error::Code,
    kind::Resource,
    store::{Key, Query, Scope},
    uid::Uid,
};
use serde_json::{Value, json};

use crate::common::{BEGIN, ISSUER, World, block_on, built_in, code, text, violated_fields};

fn user(name: &str) -> DirectoryUser {
    DirectoryUser { user_name: name.to_owned(), active: true, ..DirectoryUser::default() }
}

#[test]
fn each_text_of_a_directory_user_is_bounded_and_has_no_control_characters() {
    type Text = fn(&mut DirectoryUser) -> &mut String;

    let world = World::new();
    let provider = world.provider(&world.org);
    let create = |user: DirectoryUser| block_on(Iam::of(&world.platform).create_directory_user(&provider, user));
    for name in ["", " ada", "ada ", "a\u{200b}da", "a\nda"] {
        assert_eq!(violated_fields(create(user(name))), ["userName"], "{name:?}");
    }
    let set: [(&str, Text); 6] = [
        ("userName", |user| &mut user.user_name),
        ("externalId", |user| &mut user.external_id),
        ("displayName", |user| &mut user.display_name),
        ("givenName", |user| &mut user.given_name),
        ("familyName", |user| &mut user.family_name),
        ("email", |user| &mut user.email),
    ];
    for (name, field) in set {
        for (value, is_valid) in [("x".repeat(256), true), ("x".repeat(257), false), ("a\u{7f}".to_owned(), false)] {
            let mut changed = user(name);
            *field(&mut changed) = value;
            assert_eq!(create(changed).is_ok(), is_valid, "{name}");
        }
    }
}

#[test]
fn a_changed_directory_user_keeps_its_uid_and_times_do_not_go_back() {
    let world = World::new();
    let provider = world.provider(&world.org);
    let iam = Iam::of(&world.platform);
    let created = block_on(iam.create_directory_user(&provider, user("ada"))).unwrap();
    assert_eq!((created.create_time, created.update_time), (Some(BEGIN), Some(BEGIN)));
    let id = created.uid.last_segment();
    let update = |change: DirectoryUser| block_on(iam.update_directory_user(&provider, id, |_| Ok(change.clone())));
    world.clock.advance(1000);
    assert_eq!(update(created.clone()).unwrap(), created, "nothing has changed");
    // What a client sends in these fields is ignored.
    let sent = DirectoryUser { given_name: "Ada".to_owned(), ..user("ada") };
    let changed = update(sent).unwrap();
    assert_eq!((&changed.uid, changed.create_time), (&created.uid, Some(BEGIN)));
    assert_eq!(changed.update_time, Some(BEGIN.plus_millis(1000)));
    world.clock.set(BEGIN);
    let changed = update(DirectoryUser { given_name: "A.".to_owned(), ..changed }).unwrap();
    assert_eq!(changed.update_time, Some(BEGIN.plus_millis(1000)), "the clock was set back");
    let other = world.provider(&world.org);
    assert_eq!(code(block_on(iam.directory_user(&other, id))), Code::NotFound);
}

#[test]
fn the_record_of_a_provider_without_scim_tokens_has_no_hash_of_them() {
    let world = World::new();
    let provider = world.provider(&world.org);
    let run = |action: &str, mut request: Value| {
        request["identityProviderUid"] = json!(provider);
        world.run(Some(&world.operator), action, request).unwrap()
    };
    let hashes = || {
        let key = Key::new(IdentityProvider::KIND.name, provider.clone());
        let read = block_on(world.platform.store().get(&[key], &[])).unwrap();
        let private: Value = serde_json::from_slice(&read.records[0].as_ref().unwrap().private).unwrap();
        ["tokenHash", "previousTokenHash"].map(|name| private[name].as_str().is_some_and(|hash| !hash.is_empty()))
    };
    let etag = |reply: &Value| reply["etag"].clone();
    let shown = || world.get(&world.operator, "IdentityProvider", &provider).unwrap()["scim"].clone();
    let issued = run("GenerateScimToken", json!({}));
    assert_eq!(hashes(), [true, false]);
    let issued = run("RegenerateScimToken", json!({ "etag": etag(&issued) }));
    assert_eq!(hashes(), [true, true]);
    run("RegenerateScimToken", json!({ "etag": etag(&issued), "overlap": "0s" }));
    assert_eq!(hashes(), [true, false], "no overlap");
    let issued = run("RevokeScimToken", json!({}));
    assert_eq!(hashes(), [false, false]);
    let issued = run("RegenerateScimToken", json!({ "etag": etag(&issued) }));
    run("RegenerateScimToken", json!({ "etag": etag(&issued) }));
    assert_eq!(hashes(), [true, true]);
    let issued = run("RevokeScimToken", json!({}));
    assert_eq!(hashes(), [false, false], "both are revoked");
    assert_eq!(shown().get("previousTokenExpireTime"), None);
    run("RegenerateScimToken", json!({ "etag": etag(&issued) }));
    assert_eq!(hashes(), [true, false], "the revoked token stays revoked");
}

#[test]
fn a_refresh_token_is_accepted_of_its_family_as_the_latest_one_and_before_it_expires() {
    let world = World::new();
    let person = world.person("ada", None).identity;
    let iam = Iam::of(&world.platform);
    for (family, token, after, is_accepted, ends) in [
        (b"family", b"latest", 999, true, false),
        (b"other ", b"latest", 999, false, false),
        (b"other ", b"older ", 999, false, false),
        (b"family", b"older ", 999, false, true),
        (b"family", b"latest", 1000, false, true),
        (b"other ", b"latest", 1000, false, false),
    ] {
        world.clock.set(BEGIN);
        let uid = world.sign_in(&person, [b"family", b"latest"], 1000).unwrap().uid;
        world.clock.advance(after);
        let case = format!("{family:?} {token:?} {after}");
        let presented = block_on(iam.present_sign_in(&uid, family, token));
        assert_eq!(presented.is_ok(), is_accepted, "{case}");
        let left = block_on(world.platform.store().list(&Query::new("SignIn", Scope::Exact(uid.clone())))).unwrap();
        assert_eq!(left.items.is_empty(), ends, "{case}");
        block_on(iam.end_sign_in(&uid)).unwrap();
    }
}

#[test]
fn each_text_of_the_settings_of_a_sign_in_is_checked() {
    let world = World::new();
    let create = |name: &str, value: Value| {
        let mut oidc = json!({ "issuer": ISSUER, "clientId": "client", "pkceEnabled": true });
        oidc[name] = value;
        let body = json!({ "name": format!("{}", world.serial()), "defaultRole": built_in("viewer"), "oidc": oidc });
        world.create(&world.operator, "IdentityProvider", &world.org, body)
    };
    create("clientId", json!("another")).unwrap();
    let long = "x".repeat(10_000);
    for (name, values) in [
        ("issuer", vec![json!(format!("https://issuer.test/{long}"))]),
        ("clientId", vec![json!(""), json!(long)]),
        ("groupsClaim", vec![json!(long)]),
        ("additionalScopes", ["", "a b", "a\"b", "a\\b", "a\u{e9}", &long].map(|scope| json!([scope])).to_vec()),
    ] {
        for value in values {
            assert_eq!(code(create(name, value.clone())), Code::InvalidArgument, "{name} {value}");
        }
    }
}

#[test]
fn the_address_of_an_invite_is_one_address_of_at_most_320_bytes() {
    let world = World::new();
    let invite = |email: &str| {
        let body = json!({ "roleUid": built_in("viewer"), "ttl": "60s", "email": email });
        world.create(&world.operator, "GroupInvite", &world.org, body)
    };
    let longest = format!("{}@example.com", "x".repeat(320 - "@example.com".len()));
    invite(&longest).unwrap();
    for email in [&format!("x{longest}"), "a", "@b", "a@", "a@b@c", "a @b"] {
        assert_eq!(violated_fields(invite(email)), ["email"], "{email}");
    }
}

#[test]
fn a_revocation_of_all_tokens_deletes_the_sign_ins_of_the_person_alone() {
    let world = World::new();
    let persons = ["ada", "eve"].map(|name| world.person(name, None));
    for person in persons.iter().chain(&persons) {
        world.sign_in(&person.identity, [b"family", b"token"], 1000).unwrap();
    }
    let [ada, eve] = &persons;
    let reply = world.run(Some(ada), "RevokeTokens", json!({ "identityUid": ada.identity })).unwrap();
    assert_eq!(reply["endedSignIns"], json!(2));
    let left = |person: &Caller| {
        let query = Query::new("SignIn", Scope::Children(person.identity.clone()));
        block_on(world.platform.store().list(&query)).unwrap().items.len()
    };
    assert_eq!((left(ada), left(eve)), (0, 2));
}

#[test]
fn each_invite_has_a_random_code() {
    let world = World::new();
    let mut parts: Vec<String> = Vec::new();
    for _ in 0..2 {
        let body = json!({ "roleUid": built_in("viewer"), "ttl": "60s" });
        let invite = world.create(&world.operator, "GroupInvite", &world.org, body).unwrap();
        let code = invite["code"].as_str().unwrap();
        parts.extend(code.split('_').skip(2).map(str::to_owned));
    }
    parts.sort();
    parts.dedup();
    assert_eq!(parts.len(), 4, "the key id and the secret of each: {parts:?}");
}

#[test]
fn no_action_sets_a_time_of_update_back_with_the_clock() {
    let world = World::new();
    let at = |millis: i64| BEGIN.plus_millis(millis);
    world.clock.set(at(1_000));
    let (organization, provider) = (world.organization(), world.provider(&world.org));
    let person = world.person("ada", None).identity;
    let sign_in = world.sign_in(&person, [b"family", b"0"], 10_000).unwrap().uid;
    let iam = Iam::of(&world.platform);
    let run = |action: &str, request: Value| world.run(Some(&world.operator), action, request).unwrap();
    let generated = run("GenerateScimToken", json!({ "identityProviderUid": provider }));
    let (mut etag, mut token) = (generated["etag"].clone(), "0".to_owned());
    for (clock, expected) in [(0, 1_000), (2_000, 2_000)] {
        world.clock.set(at(clock));
        run("SetResourceLimit", json!({ "groupUid": organization, "kind": "Repo", "limit": clock }));
        etag = run("RegenerateScimToken", json!({ "identityProviderUid": provider, "etag": etag }))["etag"].clone();
        let presented = block_on(iam.present_sign_in(&sign_in, b"family", token.as_bytes())).unwrap();
        token = clock.to_string() + "x";
        block_on(iam.renew_sign_in(&presented, b"family", token.as_bytes())).unwrap();
        let records = [("Group", &organization), ("IdentityProvider", &provider), ("SignIn", &sign_in)];
        let keys = records.map(|(kind, uid)| Key::new(kind, uid.clone()));
        let stored = block_on(world.platform.store().get(&keys, &[])).unwrap().records;
        for (record, (kind, _)) in stored.into_iter().zip(records) {
            let body: Value = serde_json::from_slice(&record.unwrap().body).unwrap();
            assert_eq!(text(&body, "updateTime"), at(expected).to_string(), "{kind}");
        }
    }
}

#[test]
fn a_reduced_role_ends_access_at_once_in_whatever_way_a_person_has_it() {
    for way in ["binding", "binding of an earlier release", "provider"] {
        let world = World::new();
        let role = world.role(&world.org, &["groups.list"]);
        let mut ada = world.person("ada", None);
        if way == "provider" {
            let oidc = json!({ "issuer": ISSUER, "clientId": "client", "pkceEnabled": true });
            let body = json!({ "name": "sign in", "defaultRole": role, "oidc": oidc });
            let provider = world.create(&world.operator, "IdentityProvider", &world.org, body).unwrap();
            let session = Session {
                provider: Uid::opaque(text(&provider, "uid")),
                issuer: ISSUER.to_owned(),
                user: None,
                groups_claim: String::new(),
                groups: Vec::new(),
            };
            ada = ada.signed_in(session);
        } else {
            world.bind(&ada, &role, &world.org);
        }
        if way == "binding of an earlier release" {
            // It did not record the organizations of a person.
            world.change_private::<Identity>(&ada.identity, |private| {
                assert!(private.as_object_mut().unwrap().remove("organizations").is_some());
            });
        }
        world.get(&ada, "Group", &world.org).unwrap();
        let reduced = json!({ "capabilities": ["CAP_REPO_LIST"] });
        world.update(&world.operator, "Role", &role, reduced, None).unwrap();
        assert_eq!(code(world.get(&ada, "Group", &world.org)), Code::PermissionDenied, "{way}");
    }
}

#[test]
fn the_operator_owns_each_organization_of_a_bootstrap_once() {
    let world = World::new();
    let organization = Uid::from_digest([0xbb; 20]);
    let operator = world.operator.identity.clone();
    let second = Bootstrap { organization: organization.clone(), organization_name: "second".to_owned(), operator };
    for _ in 0..2 {
        block_on(Iam::of(&world.platform).bootstrap(&second)).unwrap();
        assert_eq!(world.list(&world.operator, "RoleBinding", &[("group", &organization)]).unwrap().total, 1);
    }
    world.create(&world.operator, "Repo", &organization, json!({ "name": "a" })).unwrap();
}

#[test]
fn a_binding_that_makes_nobody_the_owner_of_an_organization_can_be_deleted() {
    let world = World::new();
    let (organization, folder) = (world.organization(), world.group(&world.org));
    let [owner, keys] = [built_in("owner"), r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#.to_owned()];
    let first = world.list(&world.operator, "RoleBinding", &[("group", &organization)]).unwrap().uids().remove(0);
    // A write without a change removes no owner.
    world.update(&world.operator, "RoleBinding", &first, json!({ "roleUid": owner }), None).unwrap();
    // A role at a folder makes nobody an owner.
    let of_folder = world.bind(&world.person("ada", None), &owner, &folder);
    world.delete(&world.operator, "RoleBinding", &of_folder).unwrap();
    // The organization has no owner any more, because the keys of the last one have expired.
    let until = BEGIN.plus_millis(1_000);
    let keys = json!({ "issuer": ISSUER, "subject": "s", "issuerKeys": keys, "expirationTime": until });
    let body = json!({ "name": "keys", "staticKeys": keys });
    let expiring = world.create(&world.operator, "Identity", &organization, body).unwrap();
    let clerk = world.holder(&organization, &["role_bindings.delete"]);
    let last = world.bind(&Caller::new(Uid::opaque(text(&expiring, "uid"))), &owner, &organization);
    world.delete(&world.operator, "RoleBinding", &first).unwrap();
    assert_eq!(code(world.delete(&clerk, "RoleBinding", &last)), Code::FailedPrecondition);
    world.clock.advance(1_000);
    world.delete(&clerk, "RoleBinding", &last).unwrap();
}
