//! Errors on the wire, and facts that they must not reveal (`docs/api.md`, Errors and Access).

use platform_engine::{
    access::{Caller, Narrowing},
    error::{Detail, Error, Result},
    kind::{Authorization, Verb},
    uid::Uid,
};
use platform_testkit::CountingStore;
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, text, uid_of, violated_fields},
    fixtures::fixtures,
};

const TYPE: &str = "type.googleapis.com/google.rpc";

#[track_caller]
fn status<T: std::fmt::Debug>(world: &World, result: Result<T>) -> Value {
    world.status(&result.expect_err("an error"))
}

fn info(reason: &str, domain: &str) -> Value {
    json!({ "@type": format!("{TYPE}.ErrorInfo"), "reason": reason, "domain": format!("{domain}.platform.test") })
}

#[test]
fn an_identity_without_a_valid_name_is_rejected() {
    let world = World::new();
    let name_rule = "name must match \"^[a-z0-9 ._-]{1,}$\"";
    for body in [json!({}), json!({ "name": "" }), json!({ "name": "A" })] {
        assert_eq!(
            status(&world, world.create(&world.operator, "Identity", &world.org, body)),
            json!({
                "code": 3,
                "message": format!("Invalid argument: name: {name_rule}"),
                "details": [
                    info("INVALID_ARGUMENT", "iam"),
                    { "@type": format!("{TYPE}.BadRequest"), "fieldViolations": [{ "field": "name", "description": name_rule }] },
                ],
            })
        );
    }
}

#[test]
fn delete_of_a_group_with_repos_is_rejected() {
    let world = World::new();
    let group = world.group(&world.org);
    world.repo(&group);
    assert_eq!(
        status(&world, world.delete(&world.operator, "Group", &group)),
        json!({
            "code": 9,
            "message": "Precondition failed: cannot delete group with child repos",
            "details": [
                {
                    "@type": format!("{TYPE}.ErrorInfo"), "reason": "FAILED_PRECONDITION", "domain": "iam.platform.test",
                    "metadata": { "repos": "1" },
                },
                {
                    "@type": format!("{TYPE}.PreconditionFailure"),
                    "violations": [{ "type": "RESOURCE_NOT_EMPTY", "description": "cannot delete group with child repos (1)" }],
                },
            ],
        })
    );
}

#[test]
fn a_rejected_delete_of_a_group_counts_all_that_is_in_the_way_and_that_the_caller_may_list() {
    let world = World::new();
    let group = world.group(&world.org);
    let inner = world.group(&group);
    (0..3).for_each(|_| drop(world.repo(&inner)));
    world.repo(&group);
    world.identity(&group);
    let violations = |error: &Error| {
        let [Detail::PreconditionFailure { kind: "RESOURCE_NOT_EMPTY", descriptions }] = error.details() else {
            panic!("{error:?}")
        };
        descriptions.clone()
    };
    let error = world.delete(&world.operator, "Group", &group).unwrap_err();
    let expected = [("groups", "1"), ("identities", "1"), ("repos", "4")];
    let mut found = violations(&error);
    found.sort();
    assert_eq!(found, expected.map(|(plural, count)| format!("cannot delete group with child {plural} ({count})")));
    assert!(expected.iter().all(|(plural, count)| error.metadata(plural) == Some(count)), "{error:?}");
    assert_eq!(world.status(&error)["details"][0]["metadata"].as_object().unwrap().len(), expected.len());
    // Of kinds that a caller may not list there, only the first is named, without a number.
    let blind = world.holder(&world.org, &["groups.delete"]);
    let error = world.delete(&blind, "Group", &group).unwrap_err();
    assert_eq!((violations(&error).len(), world.status(&error)["details"][0].get("metadata")), (1, None));
    let seer = world.holder(&world.org, &["groups.delete", "repo.list"]);
    let error = world.delete(&seer, "Group", &group).unwrap_err();
    assert_eq!((error.metadata("repos"), error.metadata("identities")), (Some("4"), None));
}

#[test]
fn a_missing_resource_is_not_found_with_its_type_and_uid() {
    let world = World::new();
    let missing = format!("{}/0000000000000000", world.org);
    assert_eq!(
        status(&world, world.get(&world.operator, "Repo", &missing)),
        json!({
            "code": 5,
            "message": format!("Repo not found: {missing}"),
            "details": [
                info("NOT_FOUND", "registry"),
                { "@type": format!("{TYPE}.ResourceInfo"), "resourceType": "registry.platform.test/Repo", "resourceName": missing },
            ],
        })
    );
}

#[test]
fn a_missing_parent_is_not_found_with_the_type_of_the_parent() {
    let world = World::new();
    let missing = format!("{}/0000000000000000", world.org);
    let created = world.create(&world.operator, "Repo", &missing, json!({ "name": "a" }));
    let status = status(&world, created);
    assert_eq!(status["details"][0], info("NOT_FOUND", "registry"));
    assert_eq!(status["details"][1]["resourceType"], "iam.platform.test/Group");
    assert_eq!(status["details"][1]["resourceName"], missing);
}

#[test]
fn permission_denied_has_no_details_about_the_resource() {
    let world = World::new();
    let unbound = world.identity(&world.org);
    let expected =
        json!({ "code": 7, "message": "Permission denied", "details": [info("PERMISSION_DENIED", "registry")] });
    assert_eq!(status(&world, world.get(&unbound, "Repo", &world.repo(&world.org))), expected);
}

#[test]
fn a_create_with_a_name_in_use_already_exists() {
    let world = World::new();
    let create = || world.create(&world.operator, "Repo", &world.org, json!({ "name": "nginx" }));
    let first = create().unwrap();
    assert_eq!(
        status(&world, create()),
        json!({
            "code": 6,
            "message": "A repo of this name in the group already exists",
            "details": [
                info("ALREADY_EXISTS", "registry"),
                { "@type": format!("{TYPE}.ResourceInfo"), "resourceType": "registry.platform.test/Repo", "resourceName": first["uid"] },
            ],
        })
    );
}

#[test]
fn already_exists_has_the_type_and_uid_for_every_kind_but_no_uid_across_tenants() {
    let world = World::new();
    let operator = &world.operator;
    let sibling = |name: &str| world.create(operator, "Repo", &world.org, json!({ "name": name })).unwrap();
    for number in 0..5 {
        sibling(&format!("repo-{number}"));
    }
    let viewer = built_in("viewer");
    let identity = world.identity(&world.org).identity;
    for (kind, body) in [
        ("Group", json!({ "name": "team" })),
        ("Role", json!({ "name": "mine", "capabilities": ["CAP_REPO_LIST"] })),
        ("Repo", json!({ "name": "nginx" })),
        ("RoleBinding", json!({ "identityUid": identity, "roleUid": viewer })),
        ("AccountAssociation", json!({ "name": "cloud", "amazon": { "account": "123456789012" } })),
    ] {
        let create = || world.create(operator, kind, &world.org, body.clone());
        let first = create().unwrap();
        let rejected = status(&world, create());
        let detail = &rejected["details"][1];
        assert_eq!((&rejected["code"], &detail["resourceName"]), (&json!(6), &first["uid"]), "{kind}");
        assert!(detail["resourceType"].as_str().unwrap().ends_with(&format!(".platform.test/{kind}")), "{detail}");
    }
    // An update to the name of another resource.
    let other = sibling("other");
    let renamed = world.update(operator, "Repo", &uid_of(&other), json!({ "name": "repo-3" }), None);
    let name = status(&world, renamed)["details"][1]["resourceName"].clone();
    assert_eq!(world.get(operator, "Repo", name.as_str().unwrap()).unwrap()["name"], "repo-3");
    // Verified names are unique in the whole installation: the error does not name the organization with the name.
    let verified =
        || world.create(operator, "Group", "", json!({ "name": "acme.example", "verified": true, "kind": 1 }));
    verified().unwrap();
    assert_eq!(status(&world, verified())["details"][1]["resourceName"], "");
}

#[test]
fn a_caller_whose_identity_does_not_exist_is_unauthenticated() {
    let world = World::new();
    let ghost = Caller::new(Uid::from_digest([9; 20]));
    assert_eq!(
        status(&world, world.list(&ghost, "Repo", &[])),
        json!({
            "code": 16,
            "message": "The token's identity does not exist",
            "details": [info("UNAUTHENTICATED", "registry")],
        })
    );
}

#[test]
fn all_violations_of_a_request_are_reported_at_once() {
    let world = World::new();
    let body = json!({
        "name": "A", "description": "a\tb", "catalogTier": "GOLD", "bundles": ["x"], "aliases": ["x"], "activeTags": ["-"],
        "syncConfig": {}, "customOverlay": { "environment": { "CHAINGUARD_X": "y" }, "contents": 5 }, "nonsense": 1,
        "custom_overlay": {},
    });
    let mut fields = violated_fields(world.create(&world.operator, "Repo", &world.org, body));
    fields.sort();
    assert_eq!(
        fields,
        [
            "activeTags",
            "aliases",
            "bundles",
            "catalogTier",
            "customOverlay",
            "customOverlay.contents",
            "customOverlay.environment",
            "description",
            "name",
            "nonsense",
            "syncConfig.source",
        ]
    );
}

#[test]
fn at_most_100_violations_are_reported() {
    let world = World::new();
    let body: serde_json::Map<_, _> = (0..500).map(|n| (format!("x{n}"), json!(1))).collect();
    let created = world.create(&world.operator, "Repo", &world.org, body.into());
    assert_eq!(violated_fields(created).len(), 100);
}

#[test]
fn a_malformed_uid_is_rejected_by_field_name_before_access_is_decided() {
    let world = World::new();
    let unbound = world.identity(&world.org);
    for bad in ["", "/", "x", "../etc", "%2e", "AA", "nginx", &format!("{}/", world.org), &format!("{}\0", world.org)] {
        assert_eq!(violated_fields(world.get(&unbound, "Repo", bad)), ["uid"], "{bad:?}");
        assert_eq!(violated_fields(world.update(&unbound, "Repo", bad, json!({}), None)), ["uid"], "{bad:?}");
        assert_eq!(violated_fields(world.delete(&unbound, "Repo", bad)), ["uid"], "{bad:?}");
        assert_eq!(violated_fields(world.create(&unbound, "Repo", bad, json!({}))), ["parent"], "{bad:?}");
    }
}

/// Calls every method with a uid and returns the errors as (method, bytes), without bytes for a success.
fn denials(world: &World, caller: &Caller, uid: &str) -> Vec<(String, String)> {
    let bytes = |done: Result<()>| {
        let Err(error) = done else { return String::new() };
        let bytes = serde_json::to_string(&error.status("platform.test")).unwrap() + &error.to_string();
        // The caller sent the uid itself.
        bytes.replace(uid, "UID")
    };
    let mut denials = Vec::new();
    for fixture in fixtures() {
        let kind = world.kind(fixture.kind).kind;
        let (name, good) = (kind.name, (world.kind(fixture.kind).example)());
        for method in kind.methods {
            // Regardless of whether the rest of the request is valid.
            for body in [good.clone(), json!({}), json!({ "nonsense": 1 })] {
                let done = match method.verb {
                    Verb::List => continue,
                    Verb::Get => world.get(caller, name, uid).map(drop),
                    Verb::Create => world.create(caller, name, uid, body).map(drop),
                    Verb::Update => world.update(caller, name, uid, body, Some("*")).map(drop),
                    Verb::Delete => world.delete(caller, name, uid),
                };
                denials.push((format!("{name} {:?}", method.verb), bytes(done)));
            }
        }
        for action in world.kind(fixture.kind).actions {
            let request = match action.authorization {
                Authorization::At(field, _) => json!({ field: uid }),
                _ if action.name == "RequestGroupAccess" => json!({ "groupUid": uid }),
                _ => continue,
            };
            let done = world.run(Some(caller), action.name, request).map(drop);
            denials.push((action.name.to_owned(), bytes(done)));
        }
    }
    denials
}

#[test]
fn permission_denied_is_byte_for_byte_the_same_for_existing_and_missing_resources() {
    let world = World::new();
    let (organization, group) = (world.organization(), world.group(&world.org));
    let (repo, identity) = (world.repo(&group), world.identity(&group).identity);
    let role = world.role(&group, &["repo.list"]);
    let binding = world.bind(&Caller::new(identity.clone()), &role, &group);
    let tag = world.tag(&repo, "latest");
    let person = world.person("ada", None).identity;
    let existing = [organization, group.clone(), repo.clone(), identity, role, binding, tag, person];

    let stranger = world.member("owner", &world.organization());
    let unbound = world.identity(&world.org);
    for caller in [&stranger, &unbound] {
        for uid in &existing {
            // A path of the same length, so that the only difference is whether the resource exists.
            let missing = match uid.parent() {
                Some(parent) => Uid::opaque(format!("{parent}/0000000000000000")),
                None => Uid::from_digest([7; 20]),
            };
            let [of_existing, of_missing] = [uid, &missing].map(|uid| denials(&world, caller, uid));
            assert!(of_existing.len() > 60);
            for (existing, missing) in of_existing.iter().zip(&of_missing) {
                assert_eq!(existing, missing, "{uid} to {:?}", caller.identity);
                let explained = ["metadata", "capabilities", "repo.list"].iter().any(|part| existing.1.contains(part));
                assert!(!existing.1.is_empty() && !explained, "{existing:?} to {:?}", caller.identity);
            }
        }
    }
    // A denial that is explained to a caller who may see the groups does not depend on the resource either.
    let seer = world.holder(&world.org, &["groups.list", "roles.list"]);
    // Whether a group exists, the caller may know.
    for uid in existing.iter().filter(|uid| !uid.is_root() && **uid != group) {
        let missing = Uid::opaque(format!("{}/0000000000000000", uid.parent().unwrap()));
        let denied = |uid: &Uid| {
            let mut all = denials(&world, &seer, uid);
            all.retain(|(_, bytes)| bytes.contains("PERMISSION_DENIED"));
            all
        };
        let [of_existing, of_missing] = [uid, &missing].map(denied);
        assert!(of_existing.iter().filter(|(_, bytes)| bytes.contains("metadata")).count() > 50);
        assert_eq!(of_existing, of_missing, "{uid}");
    }
}

#[test]
fn a_denial_teaches_a_caller_who_may_see_the_group() {
    let world = World::new();
    let (group, operator) = (world.group(&world.org), &world.operator);
    let repo = world.repo(&group);
    let custom = |group: &str, capabilities: &[&str]| {
        let role = world.role(group, capabilities);
        world.get(operator, "Role", &role).unwrap()["name"].as_str().unwrap().to_owned()
    };
    let cleaner = custom(&group, &["repo.delete"]);
    let elsewhere = custom(&world.group(&world.org), &["repo.delete"]);
    let viewer = world.member("viewer", &world.org);
    let error = world.delete(&viewer, "Repo", &repo).unwrap_err();
    assert_eq!(error.message(), "Permission denied");
    let told = |error: &Error, key: &str| error.metadata(key).map(str::to_owned);
    assert_eq!(told(&error, "capabilities").as_deref(), Some("repo.delete"));
    assert_eq!(told(&error, "place").as_deref(), Some(repo.as_str()));
    assert_eq!(told(&error, "bindings"), Some(format!("viewer@{}", world.org)));
    assert_eq!(told(&error, "narrowed"), None);
    let named = |uid: &str| text(&world.get(operator, "Group", uid).unwrap(), "name").to_owned();
    assert_eq!(told(&error, "names"), Some(format!("{}/{}", named(&world.org), named(&group))));
    // The role with the fewest capabilities comes first. A role that cannot be bound there is not named.
    let roles = told(&error, "roles").unwrap();
    let roles: Vec<_> = roles.split(',').collect();
    assert!(roles[0] == cleaner && roles.contains(&"owner") && !roles.contains(&elsewhere.as_str()), "{roles:?}");
    for role in &roles[1..] {
        let role = world.get(operator, "Role", &built_in(role)).unwrap();
        assert!(role["capabilities"].as_array().unwrap().contains(&json!("CAP_REPO_DELETE")), "{role}");
    }
    assert_eq!(world.status(&error)["details"][0]["metadata"]["capabilities"], "repo.delete");
    // Only the roles that the caller may list are named, and built-in ones.
    let seer = world.holder(&world.org, &["groups.list"]);
    let roles = told(&world.delete(&seer, "Repo", &repo).unwrap_err(), "roles").unwrap();
    assert!(!roles.contains(&cleaner) && roles.contains("owner"), "{roles}");
    // So are the names of groups that the caller may see: one above is not.
    let inner = world.holder(&group, &["groups.list"]);
    let names = told(&world.delete(&inner, "Repo", &repo).unwrap_err(), "names");
    assert_eq!(names, Some(format!("/{}", named(&group))));
    // A token that is narrowed says so.
    let owner = world.member("owner", &world.org);
    let known = world.platform.capabilities();
    let allowed = ["groups.list", "repo.list"].map(|name| known.by_name(name).unwrap());
    let narrowed = owner.narrowed(Narrowing::new([(world.org.clone(), allowed.into_iter().collect())]));
    let error = world.delete(&narrowed, "Repo", &repo).unwrap_err();
    assert_eq!(told(&error, "narrowed").as_deref(), Some("true"));
    // A caller who gives a role without holding it learns which capabilities are missing.
    let binder = world.holder(&world.org, &["groups.list", "roles.list", "role_bindings.create"]);
    let given = json!({ "identityUid": viewer.identity, "roleUid": built_in("registry.pull") });
    let error = world.create(&binder, "RoleBinding", &group, given).unwrap_err();
    assert!(told(&error, "capabilities").is_some_and(|missing| missing.contains("repo.list")), "{error:?}");
}

#[test]
fn an_explanation_of_a_denial_is_bounded_and_costs_bounded_reads() {
    let (store, calls) = CountingStore::in_memory();
    let world = World::over(store);
    let mut place = world.org.clone();
    let caller = world.holder(&place, &["groups.list", "roles.list"]);
    for _ in 0..8 {
        place = world.group(&place);
        for _ in 0..5 {
            world.bind(&caller, &world.role(&place, &["repo.delete", "groups.list"]), &place);
        }
    }
    let denied = || world.create(&caller, "Repo", &place, json!({ "name": "a" })).unwrap_err();
    let first = denied();
    let before = calls.reads();
    assert_eq!(world.status(&denied()), world.status(&first));
    let reads = calls.reads() - before;
    assert!(reads <= 5, "{reads} reads");
    let list = |key: &str| first.metadata(key).unwrap().split(',').count();
    assert!(list("bindings") <= 5 && list("roles") <= 10, "{first:?}");
    assert!(world.status(&first).to_string().len() < 4 << 10);
}

#[test]
fn names_of_other_tenants_groups_and_repos_cannot_be_probed() {
    let world = World::new();
    let secret = world.organization();
    let name = world.get(&world.operator, "Group", &secret).unwrap()["name"].clone();
    let repo = uid_of(&world.create(&world.operator, "Repo", &secret, json!({ "name": "hidden" })).unwrap());
    let (organization, there) = (name.as_str().unwrap(), format!("{}/hidden", name.as_str().unwrap()));
    let stranger = world.member("owner", &world.organization());
    let home = stranger.identity.parent().unwrap();

    let parent = |text: &str| status(&world, world.create(&stranger, "Group", text, json!({ "name": "a" })));
    assert_eq!(parent(organization), parent("no such organization"));
    let source = |text: &str| {
        let body = json!({ "name": "b", "syncConfig": { "source": text } });
        status(&world, world.create(&stranger, "Repo", &home, body))
    };
    let missing = source(&format!("{secret}/0000000000000000"));
    for text in [&*repo, &*there, "no such organization/hidden", &format!("{organization}/no such repo")] {
        assert_eq!(source(text), missing, "{text}");
    }
    let bind = |role: &str| {
        let body = json!({ "identityUid": stranger.identity, "roleUid": role });
        status(&world, world.create(&stranger, "RoleBinding", &home, body))
    };
    let role = world.role(&secret, &["repo.list"]);
    assert_eq!(bind(&role), bind(&format!("{secret}/0000000000000000")));
}
