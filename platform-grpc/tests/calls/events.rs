//! Tests that the body of an event is the message that its body type names, read as strictly as receivers may.

use std::sync::Arc;

use platform_engine::{
    event::{Event, EventStream, StreamItem},
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_http::Limits;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};

use crate::support::{ORG, TestServer, platform_of};

/// Returns the next event, after decoding its body, in which unknown fields are an error.
async fn next(events: &mut EventStream, pool: &DescriptorPool) -> Event {
    let StreamItem::Event { event, .. } = events.next().await.unwrap() else { panic!("events were missed") };
    let data: Value = serde_json::from_str(&event.data).unwrap();
    let name = &event.extensions["bodytype"];
    let message = pool.get_message_by_name(name).unwrap_or_else(|| panic!("{name}"));
    if let Err(error) = DynamicMessage::deserialize(message, &data["body"]) {
        panic!("{name}: {error}: {data}");
    }
    Event::clone(&event)
}

#[tokio::test]
async fn the_body_of_every_event_is_its_message_in_the_version_that_was_called() {
    let platform = platform_of(Arc::new(MemoryStore::new()), &[]).await;
    let mut events = platform.subscribe(&Uid::parse(ORG).unwrap());
    let server = TestServer::of(platform, Limits::default()).await;
    let pool = DescriptorPool::decode(platform_core::proto::FILE_DESCRIPTOR_SET).unwrap();
    for version in ["v2", "v2beta1"] {
        let mut uids = Vec::new();
        let name = |what: &str| format!("{what} {version}");
        let requests = [
            ("iam.%.GroupsService/CreateGroup", json!({ "parent": ORG, "group": { "name": name("group") } })),
            ("registry.%.ReposService/CreateRepo", json!({ "parent": ORG, "repo": { "name": version } })),
            (
                "iam.%.RolesService/CreateRole",
                json!({ "parent": ORG, "role": { "name": name("role"), "capabilities": ["CAP_REPO_LIST"] } }),
            ),
            (
                "iam.%.IdentitiesService/CreateIdentity",
                json!({ "parent": ORG, "identity": {
                    "name": "ci", "claimMatch": { "issuer": "https://issuer.example", "subject": version },
                } }),
            ),
            (
                "events.%.SubscriptionsService/CreateSubscription",
                json!({ "parent": ORG, "subscription": { "sink": "https://sink.example" } }),
            ),
        ];
        for (method, request) in requests {
            let created = server.call(&method.replace('%', version), request).await.unwrap();
            uids.push(created["uid"].clone());
            let event = next(&mut events, &pool).await;
            assert!(event.source.contains(&format!("/{version}/")), "{}", event.source);
            assert!(event.extensions["bodytype"].contains(&format!(".{version}.")), "{event:?}");
        }
        let [_, repo, role, identity, _] = &*uids else { panic!("{uids:?}") };
        let tag = json!({ "name": "latest", "digest": format!("sha256:{}", "0".repeat(64)) });
        let binding = json!({ "roleBinding": { "identityUid": identity, "roleUid": role } });
        let provider = json!({
            "name": "p", "defaultRole": role,
            "oidc": { "issuer": "https://issuer.example", "clientId": "c", "clientSecret": "s" },
        });
        let calls = [
            ("registry.%.TagsService/CreateTag", json!({ "parent": repo, "tag": tag })),
            ("registry.%.ReposService/UpdateRepo", json!({ "repo": { "uid": repo, "description": "d" } })),
            ("iam.%.RoleBindingsService/BatchCreateRoleBindings", json!({ "parent": ORG, "requests": [binding] })),
            (
                "iam.%.IdentityProvidersService/CreateIdentityProvider",
                json!({ "parent": ORG, "identityProvider": provider }),
            ),
        ];
        let mut last = Value::Null;
        for (method, request) in calls {
            last = server.call(&method.replace('%', version), request).await.unwrap();
            let event = next(&mut events, &pool).await;
            assert!(event.extensions["bodytype"].contains(&format!(".{version}.")), "{event:?}");
        }
        let mappings = format!("iam.{version}.ExternalGroupRoleMappingsService");
        let mapping = json!({ "externalGroupId": "g", "roleUid": role, "scope": ORG });
        let request = json!({ "parent": last["uid"], "externalGroupRoleMapping": mapping });
        let mapping = server.call(&format!("{mappings}/CreateExternalGroupRoleMapping"), request).await.unwrap();
        next(&mut events, &pool).await;
        let request = json!({ "parent": last["uid"], "names": [mapping["uid"]] });
        server.call(&format!("{mappings}/BatchDeleteExternalGroupRoleMappings"), request).await.unwrap();
        next(&mut events, &pool).await;
        let request = json!({ "uid": last["uid"] });
        server.call(&format!("iam.{version}.IdentityProvidersService/DeleteIdentityProvider"), request).await.unwrap();
        next(&mut events, &pool).await;
    }
    let (status, group) = server.rest("POST", &format!("/iam/v2beta1/groups/{ORG}"), json!({ "name": "rest" })).await;
    let event = next(&mut events, &pool).await;
    assert_eq!((status, group["uid"].as_str()), (200, Some(&*event.subject)));
    assert!(event.source.ends_with("/iam/v2beta1/groups"), "{}", event.source);

    let group = json!({ "parent": ORG, "group": { "name": "first version" } });
    let group = server.call("iam.Groups/Create", group).await.unwrap();
    let event = next(&mut events, &pool).await;
    assert_eq!(
        (&*event.extensions["bodytype"], group["id"].as_str()),
        ("chainguard.platform.iam.Group", Some(&*event.subject))
    );
    let identity = json!({ "name": "ci", "claimMatch": { "issuer": "https://issuer.example", "subject": "v1" } });
    server.call("iam.Identities/Create", json!({ "parentId": ORG, "identity": identity })).await.unwrap();
    let event = next(&mut events, &pool).await;
    assert_eq!(event.extensions["bodytype"], "chainguard.platform.iam.CreateIdentityRequest");
    server.call("iam.Identities/Delete", json!({ "id": event.subject })).await.unwrap();
    next(&mut events, &pool).await;
}
