//! Groups, identities, roles and role bindings.

use platform_core::resources::iam::{StaticKeyPolicy, person_uid};

use super::*;

#[test]
fn a_group_is_created_replaced_listed_and_deleted() {
    let world = World::new();
    let created =
        world.call("Groups.Create", json!({ "parent": world.org, "group": { "name": "a", "description": "d" } }));
    let id = created.unwrap()["id"].as_str().unwrap().to_owned();
    let replaced = world.call("Groups.Update", json!({ "id": id, "name": "b" })).unwrap();
    assert_eq!((&replaced["name"], &replaced["description"]), (&json!("b"), &json!("")), "a PUT replaces all fields");
    let listed = world.call("Groups.List", json!({ "id": id })).unwrap();
    assert_eq!(items(&listed)[0], replaced);
    let below = world.call("Groups.List", json!({ "uidp": { "childrenOf": world.org } })).unwrap();
    assert_eq!(items(&below), [replaced]);
    assert_eq!(world.call("Groups.Delete", json!({ "id": id })).unwrap(), json!({}));
    assert_eq!(items(&world.call("Groups.List", json!({ "id": id })).unwrap()), [] as [Value; 0]);
    assert_eq!(world.call("Groups.Delete", json!({ "id": id })).unwrap_err().code(), Code::NotFound);
}

#[test]
fn violations_name_the_fields_of_version_1() {
    let world = World::new();
    let create = |role: Value| world.call("Roles.Create", json!({ "parentId": world.org, "role": role }));
    assert_eq!(violation(create(json!({ "name": "" }))).0, "name");
    assert_eq!(violation(create(json!({ "uid": "x" }))).0, "uid");
    let unknown = violation(create(json!({ "name": "a", "capabilities": ["repo.list", "repo.paint"] })));
    assert_eq!(unknown, ("capabilities[1]".to_owned(), "must be a capability, such as repo.list".to_owned()));
    assert_eq!(violation(world.call("Roles.Create", json!({ "role": { "name": "a" } }))).0, "parentId");
    assert_eq!(violation(world.call("Roles.Update", json!({ "name": "a" }))).0, "id");
    assert_eq!(violation(world.call("Roles.Delete", json!({ "id": "x" }))).0, "id");
    assert_eq!(violation(world.call("Roles.List", json!({ "id": "x" }))).0, "id");
}

#[test]
fn the_capabilities_of_a_role_have_their_names() {
    let world = World::new();
    let role = json!({ "name": "reader", "capabilities": ["repo.list", "groups.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    assert_eq!(role["capabilities"], json!(["groups.list", "repo.list"]));
    let listed = world.call("Roles.List", json!({ "parent": world.org })).unwrap();
    assert_eq!(items(&listed), [role]);
}

#[test]
fn events_have_the_messages_of_version_1() {
    let world = World::new();
    let created = world.event("Groups.Create", json!({ "parent": world.org, "group": { "name": "a" } }));
    assert!(created.source.ends_with("/iam/v1/groups"), "{}", created.source);
    assert!(created.ty.ends_with(".iam.group.created.v1"), "{}", created.ty);
    assert_eq!(created.extensions["bodytype"], "chainguard.platform.iam.Group");
    let group = json!({ "id": created.subject, "name": "a", "verified": false, "status": "ORG_STATUS_READY" });
    assert_eq!(body(&created), group);
    // Each read of the clock returns a later time.
    assert_eq!(json!(created.time), world.get("Group", &created.subject).unwrap()["createTime"]);
    let updated = world.event("Groups.Update", json!({ "id": created.subject, "name": "b" }));
    assert_eq!(json!(updated.time), world.get("Group", &created.subject).unwrap()["updateTime"]);
    assert_eq!(updated.extensions["bodytype"], "chainguard.platform.iam.Group");
    assert_eq!(body(&updated)["name"], "b");
    let deleted = world.event("Groups.Delete", json!({ "id": created.subject }));
    assert_eq!(deleted.extensions["bodytype"], "chainguard.platform.iam.DeleteGroupRequest");
    assert_eq!(body(&deleted), json!({ "id": created.subject }));
}

#[test]
fn the_event_of_a_create_has_the_resource_except_of_identities_providers_and_role_bindings() {
    let world = World::new();
    let org = &world.org;
    let create = |method: &str, request: Value| {
        let event = world.event(method, request);
        let body_type = event.extensions["bodytype"].rsplit('.').next().unwrap().to_owned();
        (event.subject.clone(), body_type, body(&event))
    };
    let role = json!({ "name": "reader", "capabilities": ["repo.list"] });
    let (role, ty, shown) = create("Roles.Create", json!({ "parentId": org, "role": role }));
    assert_eq!((&*ty, &shown["id"], &shown["name"]), ("Role", &json!(role), &json!("reader")));
    let sink = json!({ "sink": "https://sink.example" });
    let (id, ty, shown) = create("Subscriptions.Create", json!({ "parentId": org, "subscription": sink }));
    assert_eq!((&*ty, &shown["id"], &shown["sink"]), ("Subscription", &json!(id), &sink["sink"]));
    let (repo, ty, shown) = create("Registry.CreateRepo", json!({ "parentId": org, "repo": { "name": "nginx" } }));
    assert_eq!((&*ty, &shown["id"], &shown["name"]), ("Repo", &json!(repo), &json!("nginx")));
    let tag = json!({ "name": "latest", "digest": format!("sha256:{}", "0".repeat(64)) });
    let (id, ty, shown) = create("Registry.CreateTag", json!({ "repoId": repo, "tag": tag }));
    assert_eq!((&*ty, &shown["id"], &shown["name"]), ("Tag", &json!(id), &json!("latest")));

    let identity = json!({ "name": "ci", "claimMatch": { "issuer": "https://issuer.example", "subject": "ci" } });
    let (id, ty, shown) = create("Identities.Create", json!({ "parentId": org, "identity": identity }));
    assert_eq!(
        (&*ty, &shown["parentId"], &shown["identity"]["id"]),
        ("CreateIdentityRequest", &json!(org), &json!(id))
    );
    let oidc = json!({ "issuer": "https://issuer.example", "clientId": "c", "clientSecret": "s" });
    let provider = json!({ "name": "p", "defaultRole": role, "oidc": oidc });
    let request = json!({ "parentId": org, "identityProvider": provider });
    let (id, ty, shown) = create("IdentityProviders.Create", request);
    let in_request = ("CreateIdentityProviderRequest", &json!(org), &json!(id));
    assert_eq!((&*ty, &shown["parentId"], &shown["identityProvider"]["id"]), in_request);

    let mapping = json!({ "externalGroupId": "g", "roleUidp": role, "scope": org });
    let request = json!({ "parentId": id, "mapping": mapping });
    let (mapping, ty, shown) = create("ExternalGroupRoleMappings.Create", request);
    assert_eq!((&*ty, &shown["id"]), ("ExternalGroupRoleMapping", &json!(mapping)));
}

#[test]
fn the_subject_of_the_event_of_a_batch_is_the_ids_of_the_bindings() {
    let world = World::new();
    let role = json!({ "name": "reader", "capabilities": ["repo.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    let binding = |number: u8| {
        let claims = json!({ "issuer": "https://issuer.example", "subject": number.to_string() });
        let identity = json!({ "parentId": world.org, "identity": { "name": "ci", "claimMatch": claims } });
        json!({ "identity": world.call("Identities.Create", identity).unwrap()["id"], "role": role["id"] })
    };
    let bindings = [binding(1), binding(2)];
    let event = world.event("RoleBindings.CreateBatch", json!({ "parent": world.org, "roleBindings": bindings }));
    let created = body(&event);
    let ids: Vec<_> =
        created["roleBindings"].as_array().unwrap().iter().map(|binding| binding["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), &event.subject, &event.group), (2, &ids.join(","), &world.org));
}

#[test]
fn a_role_binding_is_shown_with_its_group_and_role_in_lists() {
    let world = World::new();
    let identity = json!({ "name": "ci", "claimMatch": { "issuer": "https://issuer.example", "subject": "ci" } });
    let identity = world.call("Identities.Create", json!({ "parentId": world.org, "identity": identity })).unwrap();
    let role = json!({ "name": "reader", "capabilities": ["repo.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    let binding = json!({ "identity": identity["id"], "role": role["id"] });
    let created = world.event("RoleBindings.Create", json!({ "parent": world.org, "roleBinding": binding }));
    assert_eq!(created.extensions["bodytype"], "chainguard.platform.iam.CreateRoleBindingRequest");
    let binding = world.call("RoleBindings.List", json!({ "id": created.subject })).unwrap();
    let [binding] = items(&binding) else { panic!("{binding}") };
    assert_eq!(binding["identity"], identity["id"]);
    assert_eq!(binding["role"], role);
    assert_eq!((&binding["group"]["id"], &binding["group"]["name"]), (&json!(world.org), &json!("first organization")));
    assert_eq!(binding["claimMatchSubject"], "ci");
    assert_eq!(binding["emailUnverified"], "");
    let updated = json!({ "id": created.subject, "identity": identity["id"], "role": role["id"] });
    let updated = world.call("RoleBindings.Update", updated).unwrap();
    assert_eq!(
        updated,
        json!({ "id": created.subject, "identity": identity["id"], "group": world.org, "role": role["id"] })
    );
    let again = json!({ "parent": world.org, "roleBindings": [{ "identity": identity["id"], "role": role["id"] }] });
    assert_eq!(world.call("RoleBindings.CreateBatch", again.clone()).unwrap_err().code(), Code::AlreadyExists);
    world.call("RoleBindings.Delete", json!({ "id": created.subject })).unwrap();
    let batch = world.event("RoleBindings.CreateBatch", again);
    assert!(batch.source.ends_with("/iam/v1/rolebindings/batch"), "{}", batch.source);
    assert_eq!(body(&batch)["roleBindings"][0]["role"], role["id"]);
}

#[test]
fn an_identity_has_the_names_of_version_1() {
    let world = World::new();
    let create =
        |identity: Value| world.call("Identities.Create", json!({ "parentId": world.org, "identity": identity }));
    let service = create(json!({ "name": "syncer", "service_principal": "CATALOG_SYNCER" })).unwrap();
    assert_eq!(service["servicePrincipal"], "CATALOG_SYNCER");
    assert!(service["createdAt"].is_string() && service.get("claimMatch").is_none(), "{service}");
    let id = service["id"].as_str().unwrap();
    let registered = world.platform.registered().iter().find(|one| one.kind.name == "Identity").unwrap();
    let stored = block_on(world.platform.get_erased(&world.operator, registered, id, RequestOptions::none())).unwrap();
    assert!(String::from_utf8_lossy(&stored.body).contains("SERVICE_PRINCIPAL_CATALOG_SYNCER"));
    let (field, rule) = violation(create(json!({ "name": "x", "servicePrincipal": "SERVICE_PRINCIPAL_SKILLS" })));
    assert_eq!(field, "servicePrincipal");
    assert!(rule.starts_with("must be one of UNKNOWN, COSIGNED"), "{rule}");
    assert_eq!(violation(create(json!({ "name": "x", "static": { "issuer": "i" } }))).0, "static.subject");
}

#[test]
fn static_keys_are_checked_by_the_policy_of_the_installation() {
    let check = |keys: &str| if keys.contains("bad") { Err("keys[0]: is bad".to_owned()) } else { Ok(()) };
    let world = World::with(|builder| builder.data(StaticKeyPolicy::default().check(check)));
    let identity = |kid: &str| {
        let keys = json!({ "keys": [{ "kty": "RSA", "kid": kid }] }).to_string();
        json!({ "name": "ci", "static": { "issuer": "i", "subject": "s", "issuerKeys": keys } })
    };
    let create =
        |kid: &str| world.call("Identities.Create", json!({ "parentId": world.org, "identity": identity(kid) }));
    let rule = ("static.issuerKeys".to_owned(), "keys[0]: is bad".to_owned());
    assert_eq!(violation(create("bad")), rule);
    let mut changed = identity("bad");
    changed["id"] = create("good").unwrap()["id"].clone();
    assert_eq!(violation(world.call("Identities.Update", changed)), rule);
}

#[test]
fn an_invite_shows_its_code_only_when_it_is_created() {
    let world = World::new();
    let role = json!({ "name": "reader", "capabilities": ["repo.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    let request = json!({ "group": world.org, "ttl": "3600s", "role": role["id"], "email": "a@example.com" });
    let invite = world.call("GroupInvites.Create", request).unwrap();
    assert_eq!(invite["role"]["capabilities"], json!(["repo.list"]));
    assert!(!invite["code"].as_str().unwrap().is_empty() && invite.get("email").is_none(), "{invite}");
    let listed = world.call("GroupInvites.List", json!({ "group": world.org })).unwrap();
    let [listed] = items(&listed) else { panic!("{listed}") };
    assert_eq!((&listed["keyId"], &listed["email"]), (&invite["keyId"], &json!("a@example.com")));
    assert!(listed.get("code").is_none(), "{listed}");
}

#[test]
fn an_account_association_has_the_uid_of_its_group() {
    let world = World::new();
    let association = json!({ "group": world.org, "name": "aws", "amazon": { "account": "123456789012" } });
    let created = world.call("GroupAccountAssociations.Create", association).unwrap();
    assert_eq!((&created["group"], &created["google"]), (&json!(world.org), &Value::Null));
    let replaced =
        world.call("GroupAccountAssociations.Update", json!({ "group": world.org, "name": "none" })).unwrap();
    assert_eq!(replaced["amazon"], Value::Null);
    let checked = world.call("GroupAccountAssociations.Check", json!({ "group": world.org, "accountType": "AMAZON" }));
    assert_eq!(checked.unwrap()["ready"], "NotReady");
    world.call("GroupAccountAssociations.Delete", json!({ "group": world.org })).unwrap();
    let listed = world.call("GroupAccountAssociations.List", json!({ "group": world.org })).unwrap();
    assert!(items(&listed).is_empty());
}

#[test]
fn an_identity_is_looked_up_by_issuer_and_subject_where_the_caller_may_list_identities() {
    let world = World::new();
    let group = world.group("folder");
    let claims = json!({ "issuer": "https://issuer.example", "subject": "repo:a" });
    let identity = json!({ "name": "ci", "description": "d", "claimMatch": claims });
    let created = world.call("Identities.Create", json!({ "parentId": group, "identity": identity })).unwrap();
    let by_claims = |caller: &Caller, subject: &str| {
        world.call_as(caller, "Identities.Lookup", json!({ "issuer": "https://issuer.example", "subject": subject }))
    };
    assert_eq!(by_claims(&world.operator, "repo:a").unwrap(), created);
    let reader = world.holder(&group, &["identity.list"]);
    assert_eq!(by_claims(&reader, "repo:a").unwrap(), created);
    let missing = by_claims(&reader, "repo:b").unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let elsewhere = world.holder(&world.group("other"), &["identity.list"]);
    let hidden = by_claims(&elsewhere, "repo:a").unwrap_err();
    assert_eq!((hidden.code(), hidden.to_string()), (Code::NotFound, missing.to_string()));
    let pattern = json!({ "issuer": "https://issuer.example", "subjectPattern": "repo:.*" });
    let update = json!({ "id": created["id"], "name": "ci", "claimMatch": pattern });
    world.call("Identities.Update", update).unwrap();
    assert_eq!(by_claims(&world.operator, "repo:a").unwrap_err().code(), Code::NotFound, "patterns do not count");
    let by_issuer = world.call("Identities.Lookup", json!({ "issuer": "https://issuer.example" }));
    assert_eq!(violation(by_issuer), ("subject".to_owned(), "is required".to_owned()));
    assert_eq!(violation(world.call("Identities.Lookup", json!({ "subject": "a" }))).0, "issuer");
}

#[test]
fn a_person_is_looked_up_by_themselves_and_by_callers_who_see_their_role_bindings() {
    let world = World::new();
    let (issuer, subject) = ("https://people.example", "ada");
    let uid = person_uid(issuer, subject);
    block_on(Iam::of(&world.platform).register_person(&uid, issuer, subject, Some("ada@example.com"))).unwrap();
    let lookup =
        |caller: &Caller| world.call_as(caller, "Identities.Lookup", json!({ "issuer": issuer, "subject": subject }));
    assert_eq!(lookup(&world.operator).unwrap()["id"], *uid);
    assert_eq!(lookup(&Caller::new(uid.clone())).unwrap()["id"], *uid);
    let reader = world.holder(&world.org, &["role_bindings.list", "identity.list"]);
    assert_eq!(lookup(&reader).unwrap_err().code(), Code::NotFound);
    let role = json!({ "name": "reader", "capabilities": ["repo.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    let binding = json!({ "identity": uid, "role": role["id"] });
    world.call("RoleBindings.Create", json!({ "parent": world.org, "roleBinding": binding })).unwrap();
    assert_eq!(lookup(&reader).unwrap()["id"], *uid);
    let without = world.holder(&world.org, &["identity.list"]);
    assert_eq!(lookup(&without).unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_lookup_returns_a_person_whom_the_caller_may_know_before_other_identities_with_the_same_claims() {
    let world = World::new();
    let issuer = "https://people.example";
    // A person whose uid is after those of the organization's identities.
    let is_after = |person: &String| person_uid(issuer, person).as_str() > world.org.as_str();
    let subject = (0..).map(|number| format!("person {number}")).find(is_after).unwrap();
    let uid = person_uid(issuer, &subject);
    block_on(Iam::of(&world.platform).register_person(&uid, issuer, &subject, None)).unwrap();
    let identity = json!({ "name": "ci", "claimMatch": { "issuer": issuer, "subject": subject } });
    let other = world.call("Identities.Create", json!({ "parentId": world.org, "identity": identity })).unwrap();
    let lookup = |caller: &Caller| {
        world.call_as(caller, "Identities.Lookup", json!({ "issuer": issuer, "subject": subject })).unwrap()["id"]
            .clone()
    };
    let (member, blind) = (Caller::new(uid.clone()), world.holder(&world.org, &["identity.list"]));
    assert_eq!(lookup(&member), *uid);
    assert_eq!(lookup(&world.operator), *uid);
    assert_eq!(lookup(&blind), other["id"]);
}

#[test]
fn the_operator_creates_an_organization_whose_owner_redeems_the_invite() {
    let world = World::new();
    let request = json!({ "group": "acme", "ttl": "3600s", "email": "ada@example.com", "singleUse": true });
    let invite = world.call("GroupInvites.CreateWithGroup", request.clone()).unwrap();
    let (organization, _) = invite["id"].as_str().unwrap().split_once('/').unwrap();
    assert_eq!(invite["role"]["name"], "owner");
    let renamed = json!({ "id": organization, "name": "acme corp" });
    let by_operator = world.call("Groups.Update", renamed.clone()).unwrap_err();
    assert_eq!(by_operator.code(), Code::PermissionDenied, "the operator is not a member");
    let code = invite["code"].as_str().unwrap();
    let (iam, issuer) = (Iam::of(&world.platform), "https://people.example");
    let uid = person_uid(issuer, "ada");
    block_on(iam.register_person(&uid, issuer, "ada", Some("ada@example.com"))).unwrap();
    block_on(iam.redeem_invite(&uid, code)).unwrap();
    let owner = Caller::new(uid.clone());
    let members =
        world.call_as(&owner, "RoleBindings.List", json!({ "uidp": { "childrenOf": organization } })).unwrap();
    let [member] = items(&members) else { panic!("{members}") };
    assert_eq!((&member["identity"], &member["role"]["name"]), (&json!(uid), &json!("owner")));
    let group = world.call_as(&owner, "Groups.List", json!({ "id": organization })).unwrap();
    assert_eq!((&items(&group)[0]["name"], &items(&group)[0]["status"]), (&json!("acme"), &json!("ORG_STATUS_READY")));
    world.call_as(&owner, "Groups.Update", renamed).expect("the person owns the organization");
    let outsider = world.holder(&world.org, &["group_invites.create", "role_bindings.create", "groups.create"]);
    for request in [request, json!({ "ttl": "3600s" })] {
        let denied = world.call_as(&outsider, "GroupInvites.CreateWithGroup", request).unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied, "before any validation");
    }
    let field = |request: Value| violation(world.call("GroupInvites.CreateWithGroup", request)).0;
    assert_eq!(field(json!({ "ttl": "3600s" })), "group");
    assert_eq!(field(json!({ "group": "A/B", "ttl": "3600s" })), "group");
    assert_eq!(field(json!({ "group": "a" })), "ttl");
    assert_eq!(field(json!({ "group": "a", "ttl": "0s" })), "ttl");
    assert_eq!(field(json!({ "group": "a", "ttl": "3600s", "email": "ada" })), "email");
    let role = json!({ "name": "reader", "capabilities": ["repo.list"] });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    assert_eq!(field(json!({ "group": "a", "ttl": "3600s", "role": role["id"] })), "role");
}
