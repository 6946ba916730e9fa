//! The events that a change records, and the subscriptions that they are recorded for.

use std::sync::Arc;

use platform_core::{
    iam::Iam,
    outbox::Outbox,
    resources::{events::SinkPolicy, iam::Terms, registry::Repo},
};
use platform_engine::{
    event::Event,
    store::{Key, Query, Scope, Store, memory::MemoryStore},
};
use platform_testkit::Rng;

use super::*;
use crate::common::built_in;

/// Returns the last pending event of a subscription, and its data.
fn last(world: &World, subscription: &Uid) -> (Event, Value) {
    let event = pending_events(world, subscription).pop().expect("a pending event").event;
    let data = serde_json::from_str(&event.data).unwrap();
    (event, data)
}

#[test]
fn a_change_is_recorded_for_subscriptions_at_its_group_and_ancestors_only() {
    let world = World::new();
    let (a, b) = (world.group(&world.org), world.group(&world.org));
    let deep = world.group(&a);
    let elsewhere = world.organization();
    let [top, at_a, at_deep, at_b, foreign] =
        [&world.org, &a, &deep, &b, &elsewhere].map(|group| subscribe(&world, group));
    let before: Vec<_> = [&top, &at_a, &at_deep, &at_b, &foreign].map(|s| pending_summaries(&world, s).len()).into();
    let repo = world.repo(&a);
    let after: Vec<_> = [&top, &at_a, &at_deep, &at_b, &foreign].map(|s| pending_summaries(&world, s).len()).into();
    assert_eq!(after.iter().zip(&before).map(|(a, b)| a - b).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
    assert_eq!(
        pending_summaries(&world, &at_a).last().unwrap(),
        &("platform.registry.repo.created.v1".into(), repo.to_string())
    );
}

#[test]
fn a_subscription_receives_later_events_and_not_its_own_creation() {
    let world = World::new();
    world.repo(&world.org);
    let first = subscribe(&world, &world.org);
    let second = subscribe(&world, &world.org);
    assert_eq!(pending_summaries(&world, &first), [("events.subscription.created.v1".to_owned(), second.to_string())]);
    assert_eq!(pending_summaries(&world, &second), []);
    world.delete(&world.operator, "Subscription", &second).unwrap();
    assert_eq!(pending_summaries(&world, &first).len(), 2);
    let left = Query { count: true, ..Query::new("PendingEvent", Scope::All) };
    assert_eq!(
        block_on(world.platform.store().list(&left)).unwrap().total,
        Some(2),
        "a deleted subscription has no pending events"
    );
}

#[test]
fn an_event_without_subscriptions_is_not_stored() {
    let world = World::new();
    let elsewhere = world.organization();
    subscribe(&world, &elsewhere);
    world.repo(&world.org);
    let all = Query { count: true, ..Query::new("PendingEvent", Scope::All) };
    assert_eq!(block_on(world.platform.store().list(&all)).unwrap().total, Some(0));
}

#[test]
fn an_event_has_the_attributes_of_the_contract_and_its_actor() {
    let world = World::with_settings(|settings| settings.public_url = "https://api.test/".to_owned());
    let subscription = subscribe(&world, &world.org);
    let repo = world.repo(&world.org);
    let (event, data) = last(&world, &subscription);
    assert_eq!(event.source, "https://api.test/registry/v2/repos");
    assert_eq!((event.group.as_str(), event.time), (world.org.as_str(), Some(world.platform.now())));
    assert_eq!(event.extensions["bodytype"], "chainguard.platform.registry.v2.Repo");
    assert_eq!(data["actor"], json!({ "subject": world.operator.identity }));
    assert_eq!((text(&data["body"], "uid"), text(&data["body"], "name")), (&*repo, "repo 0"));
    let is_uuid = event.id.len() == 36 && event.id.as_bytes()[14] == b'4' && event.id.matches('-').count() == 4;
    assert!(is_uuid, "{}", event.id);
    assert_eq!(event.body::<Repo>().unwrap().name, "repo 0");

    world.delete(&world.operator, "Repo", &repo).unwrap();
    let (event, data) = last(&world, &subscription);
    assert_eq!(event.extensions["bodytype"], "chainguard.platform.registry.v2.DeleteRepoRequest");
    assert_eq!(data["body"], json!({ "uid": repo }));
}

#[test]
fn an_event_has_the_source_and_the_message_of_the_version_that_was_called() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let beta = world.operator.clone().calling("v2beta1");
    let repo = uid_of(&world.create(&beta, "Repo", &world.org, json!({ "name": "a" })).unwrap());
    let (event, _) = last(&world, &subscription);
    assert!(event.source.ends_with("/registry/v2beta1/repos"), "{}", event.source);
    assert_eq!(event.extensions["bodytype"], "chainguard.platform.registry.v2beta1.Repo");
    let member = world.identity(&world.org);
    let requests = json!([{ "roleBinding": { "identityUid": member.identity, "roleUid": built_in("viewer") } }]);
    let request = json!({ "parent": world.org, "requests": requests });
    world.run(Some(&beta), "BatchCreateRoleBindings", request).unwrap();
    let (event, _) = last(&world, &subscription);
    assert!(event.source.ends_with("/iam/v2beta1/roleBindings:batchCreate"), "{}", event.source);
    let body_type = "chainguard.platform.iam.v2beta1.BatchCreateRoleBindingsResponse";
    assert_eq!(event.extensions["bodytype"], body_type);
    // A version that the domain does not have.
    let other = world.operator.clone().calling("v9");
    world.delete(&other, "Repo", &repo).unwrap();
    let (event, _) = last(&world, &subscription);
    assert!(event.source.ends_with("/registry/v2/repos"), "{}", event.source);
}

#[test]
fn events_of_each_kind_have_the_group_and_body_that_the_contract_requires() {
    let world = World::new();
    let group = world.group(&world.org);
    let subscription = subscribe(&world, &world.org);
    let operator = &world.operator;
    let expect = |ty: &str, subject: &str, group: &str, bodytype: &str| {
        let (event, data) = last(&world, &subscription);
        assert_eq!(event.ty, format!("dev.chainguard.api.{ty}"));
        assert_eq!((event.subject.as_str(), event.group.as_str()), (subject, group), "{ty}");
        assert_eq!(event.extensions["bodytype"].rsplit('.').next(), Some(bodytype), "{ty}");
        data["body"].clone()
    };
    let org = world.org.as_str();

    let child = world.group(&group);
    expect("iam.group.created.v1", &child, &child, "Group");
    world.update(operator, "Group", &child, json!({ "description": "d" }), None).unwrap();
    assert_eq!(expect("iam.group.updated.v1", &child, &child, "Group")["description"], "d");
    world.delete(operator, "Group", &child).unwrap();
    expect("iam.group.deleted.v1", &child, &group, "DeleteGroupRequest");

    let repo = world.repo(&group);
    world.update(operator, "RepoReadme", &repo, json!({ "content": "# x" }), None).unwrap();
    let body = expect("platform.registry.repo.updated.v1", &repo, &group, "RepoReadme");
    assert_eq!(body, json!({ "uid": repo, "content": "# x" }));
    let (event, _) = last(&world, &subscription);
    assert_eq!(event.source, "/registry/v2/repos", "the path of a readme is below that of its repo");
    let tag = world.tag(&repo, "latest");
    let body = expect("platform.registry.tag.created.v1", &tag, org, "Tag");
    assert!(body.get("createTime").is_none() && body.get("updateTime").is_some(), "{body}");
    world.delete(operator, "Tag", &tag).unwrap();
    expect("platform.registry.tag.deleted.v1", &tag, org, "DeleteTagRequest");

    let invite = json!({ "roleUid": built_in("viewer"), "ttl": "3600s", "email": "ada@example.com" });
    let invite = world.create(operator, "GroupInvite", &group, invite).unwrap();
    let body = expect("iam.group_invite.created.v1", text(&invite, "uid"), &group, "GroupInvite");
    assert_eq!(body, json!({ "uid": invite["uid"], "expirationTime": invite["expirationTime"] }));

    let association = json!({ "name": "a", "amazon": { "account": "123456789012" } });
    let association = world.create(operator, "AccountAssociation", &group, association).unwrap();
    let body = expect("iam.account_associations.created.v1", &group, &group, "AccountAssociation");
    assert_eq!(body, association);
    world.delete(operator, "AccountAssociation", &group).unwrap();
    let body = expect("iam.account_associations.deleted.v1", &group, &group, "DeleteAccountAssociationRequest");
    assert_eq!(body, Value::Null);

    let oidc = json!({ "issuer": "https://i.test", "clientId": "c", "clientSecret": "canary-secret" });
    let provider = json!({ "name": "p", "defaultRole": built_in("viewer"), "oidc": oidc });
    let provider = uid_of(&world.create(operator, "IdentityProvider", &group, provider).unwrap());
    let body = expect("iam.identity_providers.created.v1", &provider, &group, "IdentityProvider");
    assert!(body.get("createTime").is_none() && body["oidc"].get("clientSecret").is_none(), "{body}");
    let mapping = json!({ "externalGroupId": "g", "roleUid": built_in("viewer"), "scope": org });
    let mapping = uid_of(&world.create(operator, "ExternalGroupRoleMapping", &provider, mapping).unwrap());
    expect("iam.external_group_role_mappings.created.v1", &mapping, org, "ExternalGroupRoleMapping");
    let (event, _) = last(&world, &subscription);
    assert_eq!(event.extensions["identityprovider"], provider.as_str());
    let batch = json!({ "parent": provider, "names": [mapping] });
    world.run(Some(operator), "BatchDeleteExternalGroupRoleMappings", batch).unwrap();
    let ty = "iam.external_group_role_mappings.deleted.batch.v1";
    let body = expect(ty, &provider, org, "BatchDeleteExternalGroupRoleMappingsResponse");
    let deleted = &body["externalGroupRoleMappings"][0];
    assert!(deleted.get("createTime").is_some() && deleted.get("updateTime").is_none(), "{body}");

    let generated = world.run(Some(operator), "GenerateScimToken", json!({ "identityProviderUid": provider })).unwrap();
    let ty = "iam.identity_providers.scim_token.generated.v1";
    let body = expect(ty, &provider, &group, "GenerateScimTokenResponse");
    assert!(body.get("token").is_none() && body["etag"] == generated["etag"], "{body}");

    let member = world.identity(&group);
    let requests = json!([{ "roleBinding": { "identityUid": member.identity, "roleUid": built_in("viewer") } }]);
    world.run(Some(operator), "BatchCreateRoleBindings", json!({ "parent": group, "requests": requests })).unwrap();
    let body = expect("iam.rolebindings.created.batch.v1", &group, &group, "BatchCreateRoleBindingsResponse");
    assert_eq!(body["roleBindings"].as_array().map(Vec::len), Some(1));
    let binding = &body["roleBindings"][0];
    assert!(binding.get("createTime").is_some() && binding.get("updateTime").is_none(), "{body}");

    let accepted = json!({ "group": org, "documentIds": [Terms::default().0[0].id] });
    world.run(Some(operator), "AcceptTerms", accepted).unwrap();
    expect("iam.terms.accepted.v1", org, org, "AcceptTermsResponse");

    let known = format!("{:?}", pending_events(&world, &subscription));
    for secret in ["canary-secret", text(&generated, "token"), text(&invite, "code")] {
        assert!(!secret.is_empty() && !known.contains(secret), "{secret}");
    }
}

#[test]
fn redeeming_an_invite_records_an_event_with_the_new_member_as_the_actor() {
    let world = World::new();
    let group = world.group(&world.org);
    let subscription = subscribe(&world, &world.org);
    let invite = json!({ "roleUid": built_in("viewer"), "ttl": "3600s" });
    let invite = world.create(&world.operator, "GroupInvite", &group, invite).unwrap();
    let ada = world.person("ada", None).identity;
    block_on(Iam::of(&world.platform).redeem_invite(&ada, text(&invite, "code"))).unwrap();
    let (event, data) = last(&world, &subscription);
    assert_eq!(event.ty, "dev.chainguard.api.auth.registered.v1");
    assert_eq!((event.subject.as_str(), event.group.as_str()), (ada.as_str(), group.as_str()));
    assert_eq!(event.extensions["bodytype"], "chainguard.platform.auth.Session");
    let expected = json!({ "actor": { "subject": ada }, "body": { "identity": ada, "group": group } });
    assert_eq!(data, expected);
    assert!(block_on(Iam::of(&world.platform).redeem_invite(&ada, text(&invite, "code"))).is_err());
    assert_eq!(last(&world, &subscription).0.id, event.id, "a rejected redemption records no event");
}

/// Makes 2,000 changes, or as many as `PLATFORM_CHANGES` says.
#[test]
fn of_thousands_of_changes_each_subscription_receives_those_at_or_below_its_group() {
    let changes = std::env::var("PLATFORM_CHANGES").map_or(2_000, |text| text.parse().unwrap());
    let (world, mut rng) = (World::new(), Rng::new(20));
    let elsewhere = world.organization();
    let mut groups: Vec<Uid> = vec![world.org.clone(), elsewhere];
    for _ in 0..10 {
        let parent = rng.pick(&groups).clone();
        groups.push(world.group(&parent));
    }
    let subscriptions: Vec<Uid> = groups.iter().map(|group| subscribe(&world, group)).collect();
    let member = world.member("owner", &world.org);
    let own: Vec<usize> =
        subscriptions.iter().map(|subscription| pending_summaries(&world, subscription).len()).collect();
    let mut expected: Vec<Vec<Uid>> = vec![Vec::new(); groups.len()];
    let mut repos: Vec<Uid> = Vec::new();
    for _ in 0..changes {
        let subject = match rng.below(3) {
            0 if !repos.is_empty() => {
                let repo = rng.pick(&repos).clone();
                world
                    .update(
                        &world.operator,
                        "Repo",
                        &repo,
                        json!({ "description": format!("d{}", world.serial()) }),
                        None,
                    )
                    .unwrap();
                repo
            }
            1 if !repos.is_empty() => {
                // Internal events are not recorded for any subscription.
                let metadata = json!({ "identityMetadata": { "company": format!("x{}", rng.below(1_000)) } });
                world.run(Some(&member), "UpdateIdentityMetadata", metadata).unwrap();
                let repo = repos.swap_remove(rng.below(repos.len()));
                world.delete(&world.operator, "Repo", &repo).unwrap();
                repo
            }
            _ => {
                let group: &Uid = rng.pick(&groups);
                let repo = world.repo(group);
                repos.push(repo.clone());
                repo
            }
        };
        for (group, expected) in groups.iter().zip(&mut expected) {
            if subject.is_at_or_below(group) {
                expected.push(subject.clone());
            }
        }
    }
    for ((subscription, own), expected) in subscriptions.iter().zip(own).zip(expected) {
        let waiting = block_on(Outbox::of(&world.platform).waiting(subscription, None, 2 * changes)).unwrap();
        let (events, total) = (waiting.events, waiting.total);
        let received = events.iter().skip(own).map(|pending| pending.event.subject.as_str());
        let differ = received.zip(&expected).position(|(received, expected)| received != expected.as_str());
        assert_eq!((total - own as u64, differ), (expected.len() as u64, None));
    }
}

#[test]
fn internal_events_are_not_recorded_for_subscriptions() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let member = world.member("owner", &world.org);
    let before = pending_summaries(&world, &subscription).len();
    let metadata = json!({ "identityMetadata": { "company": "x" } });
    world.run(Some(&member), "UpdateIdentityMetadata", metadata).unwrap();
    assert_eq!(pending_summaries(&world, &subscription).len(), before);
}

#[test]
fn no_ops_and_rejected_requests_record_no_events() {
    let world = World::new();
    let repo = world.repo(&world.org);
    let subscription = subscribe(&world, &world.org);
    let name = world.get(&world.operator, "Repo", &repo).unwrap()["name"].clone();
    world.update(&world.operator, "Repo", &repo, json!({}), None).unwrap();
    assert!(world.create(&world.operator, "Repo", &world.org, json!({ "name": name })).is_err());
    assert!(world.delete(&world.operator, "Group", &world.org).is_err());
    let accepted = json!({ "group": world.org, "documentIds": [Terms::default().0[0].id] });
    world.run(Some(&world.operator), "AcceptTerms", accepted.clone()).unwrap();
    world.run(Some(&world.operator), "AcceptTerms", accepted).unwrap();
    assert_eq!(pending_summaries(&world, &subscription).len(), 1);
}

#[test]
fn a_cascading_delete_records_an_event_of_the_deleted_resource_only() {
    let world = World::new();
    let subscription = subscribe(&world, &world.org);
    let group = world.group(&world.org);
    let own = subscribe(&world, &group);
    world.bind(&world.person("ada", None), &built_in("viewer"), &group);
    assert_eq!(pending_summaries(&world, &own).len(), 1);
    let before = pending_summaries(&world, &subscription).len();
    world.delete(&world.operator, "Group", &group).unwrap();
    let events = pending_summaries(&world, &subscription);
    assert_eq!(events.len(), before + 1);
    assert_eq!(events.last().unwrap().0, "iam.group.deleted.v1");
    for kind in ["Subscription", "PendingEvent"] {
        let key = Query { count: true, ..Query::new(kind, Scope::Subtree(group.clone())) };
        assert_eq!(block_on(world.platform.store().list(&key)).unwrap().total, Some(0), "{kind}");
    }
}

#[test]
fn a_subscription_created_by_another_server_is_never_missed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let one = World::over(Arc::clone(&store));
    let other = World::over(store);
    // The other server caches that there are no subscriptions.
    other.repo(&other.org);
    let subscription = subscribe(&one, &one.org);
    let repo = uid_of(&other.create(&other.operator, "Repo", &other.org, json!({ "name": "other" })).unwrap());
    assert_eq!(
        pending_summaries(&one, &subscription),
        [("platform.registry.repo.created.v1".to_owned(), repo.to_string())]
    );
    one.delete(&one.operator, "Subscription", &subscription).unwrap();
    other.create(&other.operator, "Repo", &other.org, json!({ "name": "another" })).unwrap();
    assert_eq!(pending_summaries(&one, &subscription), []);
}

#[test]
fn a_sink_that_the_sink_policy_rejects_is_not_subscribed() {
    let check: fn(&str) -> Result<(), String> =
        |sink| if sink.contains("10.0.0.1") { Err("must be public".to_owned()) } else { Ok(()) };
    let world = World::with(|builder| builder.data(SinkPolicy::default().check(check)));
    let body = json!({ "sink": "https://10.0.0.1/" });
    let rejected = world.create(&world.operator, "Subscription", &world.org, body).expect_err("an error");
    let violation = &rejected.violations()[0];
    assert_eq!((violation.field.as_str(), violation.description.as_str()), ("sink", "must be public"));
    assert_eq!(pending_summaries(&world, &subscribe(&world, &world.org)), []);
}

#[test]
fn a_sink_must_be_https_unless_http_is_allowed_and_a_group_has_at_most_100() {
    let world = World::new();
    let http = json!({ "sink": "http://receiver.test/" });
    assert_eq!(violated_fields(world.create(&world.operator, "Subscription", &world.org, http.clone())), ["sink"]);
    for sink in ["", "receiver.test", "ftp://receiver.test", "https://user@receiver.test"] {
        let body = json!({ "sink": sink });
        assert_eq!(
            violated_fields(world.create(&world.operator, "Subscription", &world.org, body)),
            ["sink"],
            "{sink}"
        );
    }
    let open = World::with(|builder| builder.data(SinkPolicy::default().allow_http(true)));
    open.create(&open.operator, "Subscription", &open.org, http.clone()).unwrap();
    for _ in 0..99 {
        subscribe(&open, &open.org);
    }
    let more = open.create(&open.operator, "Subscription", &open.org, http);
    assert_eq!(code(more), Code::FailedPrecondition);
    subscribe(&open, &open.group(&open.org));
}

/// Makes random changes, each of which is rejected or recorded once; pending events have the order of the changes.
#[test]
fn pending_events_are_exactly_the_changes_in_their_order() {
    let mut rng = Rng::new(11);
    for _ in 0..20 {
        let world = World::new();
        let groups = [world.org.clone(), world.group(&world.org), world.organization()];
        let subscription = subscribe(&world, &world.org);
        let (mut repos, mut expected) = (Vec::<Uid>::new(), Vec::new());
        for _ in 0..60 {
            let group = rng.pick(&groups);
            let of_org = |uid: &Uid| uid.is_at_or_below(&world.org);
            let mut changed = |ty: &str, uid: &Uid| {
                if of_org(uid) {
                    expected.push((format!("platform.registry.repo.{ty}.v1"), uid.to_string()));
                }
            };
            match rng.below(4) {
                0 => {
                    let body = json!({ "name": format!("n{}", rng.below(6)) });
                    if let Ok(repo) = world.create(&world.operator, "Repo", group, body) {
                        changed("created", &uid_of(&repo));
                        repos.push(uid_of(&repo));
                    }
                }
                1 if !repos.is_empty() => {
                    let repo = rng.pick(&repos).clone();
                    let body =
                        json!({ "description": format!("d{}", rng.next()), "name": format!("n{}", rng.below(6)) });
                    if world.update(&world.operator, "Repo", &repo, body, None).is_ok() {
                        changed("updated", &repo);
                    }
                }
                2 if !repos.is_empty() => {
                    let repo = repos.swap_remove(rng.below(repos.len()));
                    world.delete(&world.operator, "Repo", &repo).unwrap();
                    changed("deleted", &repo);
                }
                _ => {
                    let viewer = Caller::new(Uid::from_digest([7; 20]));
                    assert!(world.create(&viewer, "Repo", group, json!({ "name": "x" })).is_err());
                }
            }
        }
        assert_eq!(pending_summaries(&world, &subscription), expected);
        let key = Key::new("Subscription", subscription);
        assert!(block_on(world.platform.store().get(&[key], &[])).unwrap().records[0].is_some());
    }
}
