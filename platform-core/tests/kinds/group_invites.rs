//! Group invites: their replies, redemption, and the capabilities that they require (`docs/api.md`, Group invites).

use std::{sync::Barrier, thread};

use platform_core::{
    iam::Iam,
    resources::iam::{Group, GroupInvite, Redeemed, person_uid},
};
use platform_engine::{
    access::{Caller, Credential, Narrowing, Session},
    error::{Code, Result},
    store::StoreError,
    uid::Uid,
};
use platform_testkit::{Call, FailingStore};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{BEGIN, ISSUER, World, block_on, built_in, code, text, uid_of, violated_fields};

const HOUR: i64 = 3_600_000;

fn invite(world: &World, caller: &Caller, group: &str, more: Value) -> Result<Value> {
    let mut body = json!({ "roleUid": built_in("viewer"), "ttl": "3600s" });
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    world.create(caller, "GroupInvite", group, body)
}

fn redeem(world: &World, person: &Caller, code: &str) -> Result<Redeemed> {
    block_on(Iam::of(&world.platform).redeem_invite(&person.identity, code))
}

/// Returns the stored body and private part of a record as text.
fn stored(world: &World, kind: &'static str, uid: &str) -> String {
    let key = platform_engine::store::Key::new(kind, Uid::opaque(uid));
    let record = block_on(world.platform.store().get(&[key], &[])).unwrap().records.pop().flatten().unwrap();
    format!("{}{}", String::from_utf8_lossy(&record.body), String::from_utf8_lossy(&record.private))
}

#[test]
fn the_code_is_returned_only_by_the_create_and_stored_as_a_hash() {
    let world = World::new();
    let created = invite(&world, &world.operator, &world.org, json!({})).unwrap();
    let (uid, code) = (text(&created, "uid"), text(&created, "code"));
    assert!(code.contains(text(&created, "keyId")) && code.len() > 64);
    assert_eq!(text(&created, "expirationTime"), BEGIN.plus_millis(HOUR).to_string());
    assert_eq!(text(&created["role"], "name"), "viewer");
    assert!(created["role"]["capabilities"].as_array().unwrap().contains(&json!("CAP_REPO_LIST")));
    let read = world.get(&world.operator, "GroupInvite", uid).unwrap();
    let listed = world.list(&world.operator, "GroupInvite", &[("key_id", text(&created, "keyId"))]).unwrap();
    assert_eq!(listed.items, std::slice::from_ref(&read));
    let secret = code.rsplit('_').next().unwrap();
    for shown in [&read.to_string(), &listed.items[0].to_string(), &stored(&world, "GroupInvite", uid)] {
        assert!(!shown.contains(secret) && !shown.contains("3600s"), "{shown}");
    }
    // `ttl` is input-only, but the contract requires it in replies: it is null, as a gateway writes unset fields.
    for shown in [&created, &read, &listed.items[0]] {
        assert_eq!(shown.get("ttl"), Some(&Value::Null), "{shown}");
    }
}

#[test]
fn a_code_of_an_earlier_release_which_does_not_name_its_organization_is_valid_until_it_expires() {
    let world = World::new();
    let created = invite(&world, &world.operator, &world.group(&world.org), json!({})).unwrap();
    let code = text(&created, "code");
    assert!(code.starts_with(&format!("invite_{}_{}_", world.org, text(&created, "keyId"))), "{code}");
    let old = code.replacen(&format!("{}_", world.org), "", 1);
    let [ada, bob] = ["ada", "bob"].map(|name| world.person(name, None));
    assert_eq!(violated_fields(redeem(&world, &ada, &old)), ["code"]);
    let hash = hex::encode(Sha256::digest(&old));
    world.change_private::<GroupInvite>(text(&created, "uid"), |private| private["codeHash"] = json!(hash));
    redeem(&world, &ada, &old).unwrap();
    assert_eq!(violated_fields(redeem(&world, &ada, code)), ["code"]);
    world.clock.advance(HOUR);
    assert_eq!(violated_fields(redeem(&world, &bob, &old)), ["code"]);
}

#[test]
fn a_store_that_fails_during_a_redemption_does_not_make_the_code_invalid() {
    let (store, failures) = FailingStore::in_memory();
    let world = World::over(store);
    let created = invite(&world, &world.operator, &world.group(&world.org), json!({})).unwrap();
    let person = world.person("ada", None);
    let mut failed = 0;
    // Each read fails in turn, until all succeed.
    loop {
        failures.add(Call::Get, failed, StoreError::Unavailable("the disk is gone".into()));
        let redeemed = redeem(&world, &person, text(&created, "code"));
        if redeemed.is_ok() {
            break;
        }
        assert_eq!(code(redeemed), Code::Unavailable, "read {failed}");
        failed += 1;
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn debug_output_of_an_invite_omits_its_code() {
    let world = World::new();
    let mut invite = <platform_core::resources::iam::GroupInvite as platform_engine::kind::Resource>::example();
    invite.role_uid = Uid::opaque(built_in("viewer"));
    let created = block_on(world.platform.create(&world.operator, &world.org, &invite)).unwrap();
    assert!(!created.code.is_empty() && !format!("{created:?}").contains(created.code.expose()));
}

#[test]
fn invites_are_listed_newest_first() {
    let world = World::new();
    let uids = [(); 3].map(|()| {
        world.clock.advance(1);
        text(&invite(&world, &world.operator, &world.org, json!({})).unwrap(), "uid").to_owned()
    });
    let mut listed = world.list(&world.operator, "GroupInvite", &[]).unwrap().uids();
    listed.reverse();
    assert_eq!(listed, uids);
}

#[test]
fn a_person_who_redeems_a_code_is_bound_and_holds_the_role_immediately() {
    let world = World::new();
    let (group, ada) = (world.group(&world.org), world.person("ada", None));
    let created = invite(&world, &world.operator, &group, json!({})).unwrap();
    assert_eq!(code(world.get(&ada, "Group", &group)), Code::PermissionDenied);
    let redeemed = redeem(&world, &ada, text(&created, "code")).unwrap();
    assert_eq!((&redeemed.group, &redeemed.role), (&group, &Uid::opaque(built_in("viewer"))));
    world.get(&ada, "Group", &group).unwrap();
    assert_eq!(code(world.get(&ada, "Group", &world.org)), Code::PermissionDenied);
    let binding = world.get(&world.operator, "RoleBinding", &redeemed.role_binding).unwrap();
    assert_eq!(text(&binding, "identityUid"), &*ada.identity);

    // A multi-use invite remains; a caller who already has the role gets ALREADY_EXISTS and does not use up an invite.
    assert_eq!(code(redeem(&world, &ada, text(&created, "code"))), Code::AlreadyExists);
    redeem(&world, &world.person("bob", None), text(&created, "code")).unwrap();
    let once = invite(&world, &world.operator, &group, json!({ "singleUse": true })).unwrap();
    assert_eq!(code(redeem(&world, &ada, text(&once, "code"))), Code::AlreadyExists);
    redeem(&world, &world.person("eve", None), text(&once, "code")).unwrap();
    assert_eq!(code(world.get(&world.operator, "GroupInvite", text(&once, "uid"))), Code::NotFound);
}

#[test]
fn exactly_one_of_64_concurrent_redemptions_of_a_single_use_code_succeeds() {
    let world = World::new();
    for _ in 0..4 {
        let group = world.group(&world.org);
        let persons: Vec<_> = (0..64).map(|_| world.person(&format!("person {}", world.serial()), None)).collect();
        let created = invite(&world, &world.operator, &group, json!({ "singleUse": true })).unwrap();
        let barrier = Barrier::new(persons.len());
        let done: Vec<_> = thread::scope(|scope| {
            let (world, barrier, secret) = (&world, &barrier, text(&created, "code"));
            let redeem_in_thread = |person| {
                scope.spawn(move || {
                    barrier.wait();
                    redeem(world, person, secret)
                })
            };
            let threads: Vec<_> = persons.iter().map(redeem_in_thread).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
        for rejected in done.into_iter().filter(Result::is_err) {
            assert_eq!(violated_fields(rejected), ["code"]);
        }
        let bound = world.list(&world.operator, "RoleBinding", &[("group", &group)]).unwrap();
        assert_eq!(bound.total, 1);
    }
}

#[test]
fn all_64_concurrent_redemptions_of_a_multi_use_code_succeed() {
    let world = World::new();
    let group = world.group(&world.org);
    let persons: Vec<_> = (0..64).map(|at| world.person(&format!("person {at}"), None)).collect();
    let created = invite(&world, &world.operator, &group, json!({})).unwrap();
    thread::scope(|scope| {
        for person in &persons {
            scope.spawn(|| redeem(&world, person, text(&created, "code")).unwrap());
        }
    });
    assert_eq!(world.list(&world.operator, "RoleBinding", &[("group", &group)]).unwrap().total, 64);
}

#[test]
fn every_invalid_code_gets_the_same_error() {
    let world = World::new();
    let ada = world.person("ada", Some("ada@example.com"));
    let fresh = |more: Value| invite(&world, &world.operator, &world.org, more).unwrap();
    let good = text(&fresh(json!({})), "code").to_owned();
    let used = text(&fresh(json!({ "singleUse": true })), "code").to_owned();
    redeem(&world, &world.person("first", None), &used).unwrap();
    let deleted = fresh(json!({}));
    world.delete(&world.operator, "GroupInvite", text(&deleted, "uid")).unwrap();
    let mut forged = good.clone();
    let last = if forged.pop() == Some('0') { '1' } else { '0' };
    forged.push(last);
    let others = text(&fresh(json!({ "email": "bob@example.com" })), "code").to_owned();
    let rejections = ["", "x", "invite_", &forged, &good[..good.len() - 1], &used, text(&deleted, "code"), &others]
        .map(|code| world.status(&redeem(&world, &ada, code).unwrap_err()));
    assert!(rejections.iter().all(|rejection| *rejection == rejections[0]), "{rejections:#?}");
    assert_eq!(rejections[0]["code"], 3);
    // Unregistered persons and identities that are not persons get the same error.
    for caller in [Caller::new(person_uid(ISSUER, "unregistered")), world.identity(&world.org)] {
        assert_eq!(world.status(&redeem(&world, &caller, &good).unwrap_err()), rejections[0]);
    }
    redeem(&world, &ada, &good).unwrap();
}

#[test]
fn a_token_that_was_revoked_after_the_registration_redeems_no_code() {
    let world = World::new();
    let ada = world.person("ada", None);
    let created = invite(&world, &world.operator, &world.org, json!({})).unwrap();
    let redeem_by = |issued: i64| {
        let credential = Credential::issued_at(Some(BEGIN.plus_millis(issued)));
        let iam = Iam::of(&world.platform);
        block_on(iam.redeem_invite_by(&ada.identity, Some(&credential), text(&created, "code")))
    };
    world.run(Some(&ada), "RevokeTokens", json!({ "identityUid": ada.identity })).unwrap();
    assert_eq!(violated_fields(redeem_by(0)), ["code"]);
    redeem_by(1_000).unwrap();
}

#[test]
fn the_operator_alone_creates_an_organization_with_an_invite_of_its_owner() {
    let world = World::new();
    let found = |caller: &Caller, role: &str| {
        let group = Group { name: "acme".to_owned(), ..Group::default() };
        let ttl = Some("3600s".to_owned());
        let invite = GroupInvite { role_uid: Uid::opaque(role), ttl, ..GroupInvite::default() };
        block_on(world.platform.with_caller(caller, |cx| {
            let (group, invite) = (group.clone(), invite.clone());
            Box::pin(async move { GroupInvite::create_with_organization(cx, group, invite).await })
        }))
    };
    let owner = built_in("owner");
    assert_eq!(code(found(&world.member("owner", &world.org), &owner)), Code::PermissionDenied);
    assert_eq!(violated_fields(found(&world.operator, &built_in("viewer"))), ["roleUid"]);
    for role in ["", &owner] {
        let created = found(&world.operator, role).unwrap();
        assert_eq!((&*created.role_uid, created.role.unwrap().name.as_str()), (&*owner, "owner"));
        assert_eq!((created.create_time, created.update_time), (Some(BEGIN), Some(BEGIN)));
        let organization = created.uid.parent().unwrap();
        let ada = world.person(&format!("ada {}", world.serial()), None);
        redeem(&world, &ada, created.code.expose()).unwrap();
        let group = world.get(&ada, "Group", &organization).unwrap();
        assert_eq!((text(&group, "name"), text(&group, "status")), ("acme", "ORG_STATUS_READY"));
        assert_eq!(text(&group, "createTime"), BEGIN.to_string());
        assert_eq!(group["createTime"], group["updateTime"]);
    }
}

#[test]
fn an_invite_is_valid_until_just_before_its_expiry() {
    let world = World::new();
    let created = invite(&world, &world.operator, &world.org, json!({ "ttl": "1.5s" })).unwrap();
    world.clock.advance(1499);
    redeem(&world, &world.person("ada", None), text(&created, "code")).unwrap();
    world.clock.advance(1);
    assert_eq!(violated_fields(redeem(&world, &world.person("bob", None), text(&created, "code"))), ["code"]);
}

#[test]
fn an_invite_for_an_address_requires_that_verified_address_ignoring_ascii_case() {
    let world = World::new();
    let created = invite(&world, &world.operator, &world.org, json!({ "email": "Ada@Example.com" })).unwrap();
    let secret = text(&created, "code");
    for (subject, email) in [
        ("none", None),
        ("other", Some("bob@example.com")),
        ("longer", Some("ada@example.com.evil")),
        ("umlaut", Some("äda@example.com")),
    ] {
        assert_eq!(violated_fields(redeem(&world, &world.person(subject, email), secret)), ["code"], "{subject}");
    }
    redeem(&world, &world.person("ada", Some("aDA@exaMPle.com")), secret).unwrap();
}

#[test]
fn a_ttl_must_be_positive_and_an_email_must_be_an_address() {
    let world = World::new();
    for ttl in ["0s", "-1s", "0.0001s", "1", "1h"] {
        assert_eq!(violated_fields(invite(&world, &world.operator, &world.org, json!({ "ttl": ttl }))), ["ttl"]);
    }
    for email in ["ada", "@example.com", "ada@", "a b@example.com", "a@b@c"] {
        assert_eq!(violated_fields(invite(&world, &world.operator, &world.org, json!({ "email": email }))), ["email"]);
    }
    let bare = world.create(&world.operator, "GroupInvite", &world.org, json!({}));
    assert_eq!(violated_fields(bare), ["roleUid", "ttl"]);
}

#[test]
fn inviting_to_a_role_requires_its_capabilities_at_the_group() {
    let world = World::new();
    let folder = world.group(&world.org);
    let inviter = ["group_invites.create", "role_bindings.create", "repo.list"];
    let caller = world.holder(&world.org, &inviter);
    let (mine, more) = (world.role(&world.org, &["repo.list"]), world.role(&world.org, &["repo.list", "repo.delete"]));
    invite(&world, &caller, &folder, json!({ "roleUid": mine })).unwrap();
    for role in [&more, &Uid::opaque(built_in("owner")), &Uid::opaque(built_in("viewer"))] {
        assert_eq!(code(invite(&world, &caller, &folder, json!({ "roleUid": role }))), Code::PermissionDenied);
    }
    let owner = world.member("owner", &world.org);
    let some = inviter.map(|name| platform_core::capabilities::by_name(name).unwrap());
    let narrowed = owner.clone().narrowed(Narrowing::new([(world.org.clone(), some.into_iter().collect())]));
    assert_eq!(code(invite(&world, &narrowed, &folder, json!({ "roleUid": more }))), Code::PermissionDenied);
    invite(&world, &owner, &folder, json!({ "roleUid": more })).unwrap();
    for role in
        [format!("{}/0000000000000000", world.org), world.role(&world.group(&world.org), &["repo.list"]).to_string()]
    {
        assert_eq!(violated_fields(invite(&world, &owner, &folder, json!({ "roleUid": role }))), ["roleUid"]);
    }
}

#[test]
fn an_invite_gives_no_more_than_its_inviter_holds_when_it_is_redeemed() {
    let world = World::new();
    let caller = world.holder(&world.org, &["group_invites.create", "role_bindings.create", "repo.list"]);
    let role = world.role(&world.org, &["repo.list"]);
    let secret = text(&invite(&world, &caller, &world.org, json!({ "roleUid": role })).unwrap(), "code").to_owned();
    redeem(&world, &world.person("before", None), &secret).unwrap();
    // The role gains a capability that the inviter does not hold.
    let grow = |capabilities: Value| {
        world.update(&world.operator, "Role", &role, json!({ "capabilities": capabilities }), None).unwrap();
    };
    grow(json!(["CAP_REPO_LIST", "CAP_REPO_DELETE"]));
    let late = world.person("late", None);
    assert_eq!(violated_fields(redeem(&world, &late, &secret)), ["code"]);
    grow(json!(["CAP_REPO_LIST"]));
    redeem(&world, &late, &secret).unwrap();
    // The inviter loses the binding, and is then deleted.
    let bindings = world.walk(&world.operator, "RoleBinding", &[("identity", &caller.identity)]);
    world.delete(&world.operator, "RoleBinding", text(&bindings[0], "uid")).unwrap();
    let after = world.person("after", None);
    assert_eq!(violated_fields(redeem(&world, &after, &secret)), ["code"]);
    world.delete(&world.operator, "Identity", &caller.identity).unwrap();
    assert_eq!(violated_fields(redeem(&world, &after, &secret)), ["code"]);
    assert_eq!(world.list(&world.operator, "RoleBinding", &[("identity", &after.identity)]).unwrap().total, 0);
}

/// An organization with two owners through providers only: one by a default role, one by a mapping of an external
/// group.
struct SignedIn {
    world: World,
    org: Uid,
    provider: Uid,
    mapping: Uid,
    by_default: Caller,
    by_group: Caller,
}

impl SignedIn {
    fn new() -> Self {
        let world = World::new();
        let org = world.organization();
        let oidc = json!({ "issuer": ISSUER, "clientId": "client", "groupsClaim": "groups", "pkceEnabled": true });
        let provider = |role: &str| {
            let body = json!({ "name": "sign in", "defaultRole": role, "oidc": oidc });
            uid_of(&world.create(&world.operator, "IdentityProvider", &org, body).unwrap())
        };
        let (owners, viewers) = (provider(&built_in("owner")), provider(&built_in("viewer")));
        let mapping = json!({ "externalGroupId": "admins", "roleUid": built_in("owner"), "scope": org });
        let mapping = uid_of(&world.create(&world.operator, "ExternalGroupRoleMapping", &viewers, mapping).unwrap());
        let signed_in = |subject: &str, provider: &Uid| {
            let session = Session {
                provider: provider.clone(),
                issuer: ISSUER.to_owned(),
                user: None,
                groups_claim: "groups".to_owned(),
                groups: vec!["devs".to_owned(), "admins".to_owned()],
            };
            world.person(subject, None).signed_in(session)
        };
        let (by_default, by_group) = (signed_in("default", &owners), signed_in("group", &viewers));
        Self { org, provider: owners, mapping, by_default, by_group, world }
    }

    fn code(&self, inviter: &Caller) -> String {
        text(&invite(&self.world, inviter, &self.org, json!({})).unwrap(), "code").to_owned()
    }

    fn redeem(&self, code: &str) -> Result<Redeemed> {
        let person = self.world.person(&format!("invited {}", self.world.serial()), None);
        redeem(&self.world, &person, code)
    }
}

#[test]
fn owners_who_hold_the_role_only_through_a_provider_can_invite() {
    let scene = SignedIn::new();
    for inviter in [&scene.by_default, &scene.by_group] {
        let created = invite(&scene.world, inviter, &scene.org, json!({})).unwrap();
        scene.redeem(text(&created, "code")).unwrap();
        // Replies do not reveal the sign-in.
        let uid = text(&created, "uid");
        for shown in
            [created.to_string(), scene.world.get(&scene.world.operator, "GroupInvite", uid).unwrap().to_string()]
        {
            assert!(!shown.contains("admins") && !shown.contains(&*inviter.identity), "{shown}");
        }
        assert!(stored(&scene.world, "GroupInvite", uid).contains("admins"));
    }
}

#[test]
fn an_invite_is_valid_while_the_provider_or_mapping_gives_its_inviter_the_role() {
    type End = (&'static str, fn(&SignedIn));
    let ends: [End; 6] = [
        ("mapping", |scene| {
            scene.world.delete(&scene.world.operator, "ExternalGroupRoleMapping", &scene.mapping).unwrap();
        }),
        ("default role", |scene| {
            let lesser = json!({ "defaultRole": built_in("viewer") });
            drop(scene.world.update(&scene.world.operator, "IdentityProvider", &scene.provider, lesser, None).unwrap());
        }),
        ("issuer", |scene| {
            let other = json!({ "oidc": { "issuer": "https://other.test" } });
            drop(scene.world.update(&scene.world.operator, "IdentityProvider", &scene.provider, other, None).unwrap());
        }),
        ("provider", |scene| scene.world.delete(&scene.world.operator, "IdentityProvider", &scene.provider).unwrap()),
        ("creator", |scene| {
            for creator in [&scene.by_default, &scene.by_group] {
                scene.world.delete(&scene.world.operator, "Identity", &creator.identity).unwrap();
            }
        }),
        ("creator who registered again", |scene| {
            for (creator, subject) in [(&scene.by_default, "default"), (&scene.by_group, "group")] {
                scene.world.delete(&scene.world.operator, "Identity", &creator.identity).unwrap();
                scene.world.person(subject, None);
            }
        }),
    ];
    for (end, carry_out) in ends {
        let scene = SignedIn::new();
        let codes = [scene.code(&scene.by_default), scene.code(&scene.by_group)];
        carry_out(&scene);
        let good = codes.map(|code| match scene.redeem(&code) {
            Ok(_) => true,
            rejected => {
                assert_eq!(violated_fields(rejected), ["code"]);
                false
            }
        });
        let expected = match end {
            "mapping" => [true, false],
            "default role" | "issuer" | "provider" => [false, true],
            _ => [false, false],
        };
        assert_eq!(good, expected, "{end}");
    }
}

#[test]
fn an_invite_without_a_registration_id_is_valid_until_its_creator_is_deleted() {
    let world = World::unguarded();
    let ada = world.person("ada", None);
    world.bind(&ada, &built_in("owner"), &world.org);
    let created = invite(&world, &ada, &world.org, json!({})).unwrap();
    let key = platform_engine::store::Key::new("GroupInvite", uid_of(&created));
    let store = world.platform.store();
    let record = block_on(store.get(&[key], &[])).unwrap().records.pop().flatten().unwrap();
    let mut private: Value = serde_json::from_slice(&record.private).unwrap();
    assert!(private.as_object_mut().unwrap().remove("registration").is_some());
    let mut write = platform_engine::write::Write::default();
    let invite: platform_core::resources::iam::GroupInvite = serde_json::from_slice(&record.body).unwrap();
    write.put(&record.key.uid, &invite, private.to_string().into()).unwrap();
    block_on(store.commit(write.into_commit())).unwrap();
    redeem(&world, &world.person("bob", None), text(&created, "code")).unwrap();
    world.clock.advance(1_000);
    world.delete(&world.operator, "Identity", &ada.identity).unwrap();
    let again = world.person("ada", None);
    world.bind(&again, &built_in("owner"), &world.org);
    assert_eq!(violated_fields(redeem(&world, &world.person("eve", None), text(&created, "code"))), ["code"]);
}

#[test]
fn invites_are_deleted_with_their_role_and_with_their_group() {
    let world = World::new();
    let (group, role) = (world.group(&world.org), world.role(&world.org, &["repo.list"]));
    let of_role = uid_of(&invite(&world, &world.operator, &world.org, json!({ "roleUid": role })).unwrap());
    let of_group = uid_of(&invite(&world, &world.operator, &group, json!({})).unwrap());
    world.delete(&world.operator, "Role", &role).unwrap();
    world.delete(&world.operator, "Group", &group).unwrap();
    assert_eq!(code(world.get(&world.operator, "GroupInvite", &of_role)), Code::NotFound);
    assert_eq!(code(world.get(&world.operator, "GroupInvite", &of_group)), Code::NotFound);
}
