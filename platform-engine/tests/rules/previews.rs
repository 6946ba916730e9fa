//! Previews of writes (`docs/api.md`, Previews). Those of the standard methods of each kind are in the suite of kinds.

use platform_core::{outbox::Outcome, resources::events::DeadReason};
use platform_engine::{
    access::Caller,
    error::{Code, Result},
    kind::{Action, Kind, Run},
    options::{Preconditions, RequestOptions},
};
use platform_testkit::CountingStore;
use pollster::block_on;
use serde_json::{Value, json};

use crate::{
    common::{World, built_in, code, object, uid_of},
    deliveries::{failure, lease, pending_events, pending_summaries, settle, subscribe},
};

fn preview() -> RequestOptions {
    RequestOptions::default().validate_only(true)
}

impl World {
    fn preview_create(&self, caller: &Caller, kind: &str, parent: &str, body: Value) -> Result<Value> {
        let (body, options) = (object(body), preview());
        let create = self.platform.create_erased(caller, self.kind(kind), parent, &body, &options);
        block_on(create).map(|reply| serde_json::from_slice(&reply.body).unwrap())
    }

    fn preview_action(&self, name: &str, request: Value) -> Result<Value> {
        let (registered, action) = self.action(name);
        let (request, options) = (object(request), preview());
        let run = self.platform.run_rendered(Some(&self.operator), registered, action, &request, &options);
        block_on(run)?.into_value()
    }

    fn action(&self, name: &str) -> (&'static Kind, &'static Action) {
        let all = self.platform.registered().iter();
        let mut all = all.flat_map(|one| one.actions.iter().map(|action| (one.kind, action)));
        all.find(|(_, action)| action.name == name).unwrap_or_else(|| panic!("no action {name}"))
    }
}

#[test]
fn a_preview_fails_for_the_reason_for_which_the_write_would() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let name = world.get(&world.operator, "Repo", &repo).unwrap()["name"].clone();
    let create = |caller: &Caller, parent: &str, body: Value| code(world.preview_create(caller, "Repo", parent, body));
    assert_eq!(create(&world.operator, &world.org, json!({ "name": name })), Code::AlreadyExists);
    assert_eq!(create(&world.operator, &world.org, json!({ "name": "Not Allowed!" })), Code::InvalidArgument);
    let missing = format!("{}/0000000000000000", world.org);
    assert_eq!(create(&world.operator, &missing, json!({ "name": "a" })), Code::NotFound);
    let viewer = world.member("viewer", &world.org);
    assert_eq!(create(&viewer, &world.org, json!({ "name": "a" })), Code::PermissionDenied);
    let limit = json!({ "groupUid": world.org, "kind": "Repo", "limit": 1 });
    let (kind, action) = world.action("SetResourceLimit");
    block_on(world.platform.run(Some(&world.operator), kind, action, &object(limit))).unwrap();
    assert_eq!(create(&world.operator, &world.org, json!({ "name": "a" })), Code::ResourceExhausted);
    let options = preview().preconditions(Preconditions::of_revision(0));
    let body = object(json!({ "description": "a" }));
    let update = world.platform.update_erased(&world.operator, world.kind("Repo"), &repo, &body, None, &options);
    assert_eq!(block_on(update).unwrap_err().reason(), "ETAG_MISMATCH");
    let options = preview();
    let delete = world.platform.delete_erased(&world.operator, world.kind("Group"), &world.org, &options);
    assert_eq!(code(block_on(delete)), Code::FailedPrecondition);
}

#[test]
fn a_preview_records_no_event_and_shows_no_secret() {
    let world = World::new();
    let group = world.group(&world.org);
    let subscription = subscribe(&world, &group);
    let before = pending_summaries(&world, &subscription);
    world.preview_create(&world.operator, "Repo", &group, json!({ "name": "a" })).unwrap();
    assert_eq!(pending_summaries(&world, &subscription), before);
    assert_eq!(world.list(&world.operator, "Repo", &[]).unwrap().total, 0);
    let body = json!({ "roleUid": built_in("viewer"), "ttl": "3600s" });
    let invite = world.preview_create(&world.operator, "GroupInvite", &group, body).unwrap();
    assert!(invite.get("code").is_none(), "{invite}");
}

#[test]
fn an_action_is_previewed_or_says_that_it_has_no_preview() {
    let world = World::new();
    let identity = world.identity(&world.org).identity;
    let binding = json!({ "roleBinding": { "identityUid": identity, "roleUid": built_in("viewer") } });
    let before = world.list(&world.operator, "RoleBinding", &[]).unwrap().total;
    let request = json!({ "parent": world.org, "requests": [binding] });
    let shown = world.preview_action("BatchCreateRoleBindings", request.clone()).unwrap();
    assert_eq!(shown["roleBindings"][0]["identity"]["uid"], json!(identity));
    assert_eq!(world.list(&world.operator, "RoleBinding", &[]).unwrap().total, before);
    let limit = json!({ "groupUid": world.org, "kind": "Repo", "limit": 7 });
    let shown = world.preview_action("SetResourceLimit", limit).unwrap();
    assert_eq!(shown["group"]["resourceLimits"]["Repo"], 7);
    assert!(world.get(&world.operator, "Group", &world.org).unwrap().get("resourceLimits").is_none());

    // Each action that writes has one of both.
    for registered in world.platform.registered() {
        for action in registered.actions.iter().filter(|action| !action.http.is_safe() && !action.has_preview) {
            if matches!(action.run, Run::Resource(_)) {
                continue;
            }
            let (empty, options) = (object(json!({})), preview());
            let run = world.platform.run_rendered(Some(&world.operator), registered.kind, action, &empty, &options);
            let error = block_on(run).expect_err(action.name);
            let is_expected = matches!(error.code(), Code::InvalidArgument | Code::PermissionDenied);
            assert!(is_expected, "{}: {error}", action.name);
        }
    }
    let refused = world.preview_action("CheckAccountAssociation", json!({ "uid": world.org })).unwrap_err();
    assert_eq!((refused.code(), &*refused.violations()[0].field), (Code::InvalidArgument, "validateOnly"), "{refused}");
}

#[test]
fn a_preview_of_a_scim_token_shows_no_token_and_issues_none() {
    let world = World::new();
    let oidc = json!({ "issuer": "https://idp.example.com", "clientId": "id", "clientSecret": "hush" });
    let body = json!({ "name": "idp", "oidc": oidc, "defaultRole": built_in("viewer") });
    let provider = uid_of(&world.create(&world.operator, "IdentityProvider", &world.org, body).unwrap());
    let scim = || world.get(&world.operator, "IdentityProvider", &provider).unwrap()["scim"].clone();
    let request = |more: Value| {
        let mut request = object(more);
        request.insert("identityProviderUid".to_owned(), json!(provider));
        Value::Object(request)
    };
    // A preview changes nothing, and its reply has what the action would show to all.
    let check = |name: &str, more: Value, shown: &str| {
        let before = scim();
        let reply = world.preview_action(name, request(more)).unwrap();
        assert!(reply.get(shown).is_some(), "{name}: {reply}");
        assert!(reply.get("token").is_none() && reply.get("etag").is_none(), "{name}: {reply}");
        assert_eq!(scim(), before, "{name}");
    };
    check("GenerateScimToken", json!({}), "expireTime");
    let issued = world.run(Some(&world.operator), "GenerateScimToken", request(json!({}))).unwrap();
    let again = world.preview_action("GenerateScimToken", request(json!({}))).unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition, "a preview fails as the action would");
    check("RegenerateScimToken", json!({ "etag": issued["etag"] }), "expireTime");
    check("RevokeScimToken", json!({}), "revokeTime");
    let few = world.preview_action("SetScimEnabled", request(json!({ "enabled": true, "etag": issued["etag"] })));
    assert!(few.unwrap_err().message().contains("owners"));
}

#[test]
fn a_preview_of_a_redelivery_delivers_nothing() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    world.repo(&world.org);
    let event = pending_events(&world, &subscription).remove(0);
    let mut held = lease(&world, &subscription, "one");
    assert!(settle(&world, &mut held, vec![(event.clone(), Outcome::Dead(DeadReason::Rejected, Some(failure(400))))]));
    let dead = world.list(&world.operator, "DeadLetter", &[]).unwrap().items.remove(0);
    let state = || {
        let status = world.get(&world.operator, "DeliveryStatus", &subscription).unwrap();
        (
            pending_summaries(&world, &subscription),
            world.list(&world.operator, "DeadLetter", &[]).unwrap().total,
            status,
        )
    };
    let before = state();
    for (name, request) in [
        ("RedeliverDeadLetter", json!({ "uid": dead["uid"] })),
        ("RedeliverEvent", json!({ "uid": subscription, "eventId": event.event.id })),
        ("ResumeDelivery", json!({ "uid": subscription })),
        ("SendTestEvent", json!({ "uid": subscription })),
    ] {
        world.preview_action(name, request).unwrap();
        assert_eq!(state(), before, "{name}");
    }
    let missing = format!("{subscription}/0000000000000000");
    let missing = world.preview_action("RedeliverDeadLetter", json!({ "uid": missing })).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[test]
fn a_preview_is_one_commit_that_the_store_rejects() {
    let (store, calls) = CountingStore::in_memory();
    let world = World::over(store);
    world.repo(&world.org);
    let before = calls.commits();
    world.preview_create(&world.operator, "Repo", &world.org, json!({ "name": "a" })).unwrap();
    assert_eq!(calls.commits(), before + 1);
}
