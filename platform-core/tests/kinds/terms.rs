//! Acceptances of terms (`docs/api.md`, Terms).

use platform_core::resources::iam::{Terms, TermsDocument};
use platform_engine::{
    access::Caller,
    error::{Code, Result},
};
use serde_json::{Value, json};

use crate::common::{World, code, text, violated_fields};

fn accept(world: &World, caller: &Caller, group: &str, documents: &[&str]) -> Result<Value> {
    world.run(Some(caller), "AcceptTerms", json!({ "group": group, "documentIds": documents }))
}

fn list(world: &World, group: &str, more: Value) -> Value {
    let mut request = more;
    request["group"] = group.into();
    world.run(Some(&world.operator), "ListTermsAcceptances", request).unwrap()
}

fn documents(reply: &Value) -> Vec<&str> {
    reply["termsAcceptances"].as_array().unwrap().iter().map(|acceptance| text(acceptance, "docId")).collect()
}

#[test]
fn the_first_acceptance_of_a_document_is_never_overwritten() {
    let world = World::new();
    let owner = world.member("owner", &world.org);
    let reply = accept(&world, &owner, &world.org, &["sfdpa.v1", "sfdpa.v1"]).unwrap();
    assert_eq!(reply, json!({ "group": world.org, "documentIds": ["sfdpa.v1"] }));
    let first = list(&world, &world.org, json!({}));
    let acceptance = &first["termsAcceptances"][0];
    assert_eq!((text(acceptance, "acceptedBy"), text(acceptance, "orgUid")), (&*owner.identity, &*world.org));
    assert_eq!(text(acceptance, "createTime"), world.platform.now().to_string());
    world.clock.advance(1000);
    accept(&world, &world.operator, &world.org, &["sfdpa.v1", "skills-tos.v1"]).unwrap();
    let second = list(&world, &world.org, json!({}));
    assert_eq!(documents(&second), ["sfdpa.v1", "skills-tos.v1"]);
    assert_eq!(&second["termsAcceptances"][0], acceptance);
    assert_eq!((&second["totalCount"], &second["skipped"]), (&json!("2"), &json!(0)));
}

#[test]
fn a_group_lists_acceptances_of_its_ancestors_but_not_of_siblings_or_descendants() {
    let world = World::new();
    let (folder, sibling) = (world.group(&world.org), world.group(&world.org));
    let below = world.group(&folder);
    accept(&world, &world.operator, &world.org, &["sfdpa.v1"]).unwrap();
    accept(&world, &world.operator, &sibling, &["guardener-tos.v1"]).unwrap();
    accept(&world, &world.operator, &below, &["skills-tos.v1"]).unwrap();
    assert_eq!(documents(&list(&world, &folder, json!({}))), ["sfdpa.v1"]);
    assert_eq!(documents(&list(&world, &below, json!({ "orderBy": "doc_id" }))), ["sfdpa.v1", "skills-tos.v1"]);
    // A caller who can see only the group sees the acceptances that count for it.
    let viewer = world.member("viewer", &below);
    let seen = world.run(Some(&viewer), "ListTermsAcceptances", json!({ "group": below })).unwrap();
    assert_eq!(documents(&seen).len(), 2);
    let above = world.run(Some(&viewer), "ListTermsAcceptances", json!({ "group": folder }));
    assert_eq!(code(above), Code::PermissionDenied);
}

#[test]
fn acceptances_are_paged_with_page_tokens_bound_to_the_group() {
    let world = World::new();
    let group = world.group(&world.org);
    for document in ["sfdpa.v1", "skills-tos.v1", "guardener-tos.v1"] {
        world.clock.advance(1);
        accept(&world, &world.operator, &group, &[document]).unwrap();
    }
    let first = list(&world, &group, json!({ "pageSize": 2 }));
    assert_eq!((documents(&first), text(&first, "totalCount")), (vec!["sfdpa.v1", "skills-tos.v1"], "3"));
    let next = json!({ "pageSize": 2, "pageToken": first["nextPageToken"] });
    let second = list(&world, &group, next.clone());
    assert_eq!(documents(&second), ["guardener-tos.v1"]);
    assert!(second.get("nextPageToken").is_none());
    let mut elsewhere = next;
    elsewhere["group"] = json!(world.org);
    assert_eq!(violated_fields(world.run(Some(&world.operator), "ListTermsAcceptances", elsewhere)), ["page_token"]);
    for (more, field) in [(json!({ "pageSize": -1 }), "page_size"), (json!({ "orderBy": "acceptedBy" }), "order_by")] {
        let mut request = more;
        request["group"] = json!(group);
        assert_eq!(violated_fields(world.run(Some(&world.operator), "ListTermsAcceptances", request)), [field]);
    }
}

#[test]
fn only_configured_documents_are_accepted_and_all_or_none() {
    let own = TermsDocument { id: "own.v1".to_owned(), ..TermsDocument::default() };
    let world = World::with(|builder| builder.data(Terms(vec![own])));
    let rejected = accept(&world, &world.operator, &world.org, &["own.v1", "sfdpa.v1"]);
    assert_eq!(violated_fields(rejected), ["documentIds[1]"]);
    assert_eq!(violated_fields(accept(&world, &world.operator, &world.org, &[])), ["documentIds"]);
    assert_eq!(list(&world, &world.org, json!({}))["totalCount"], "0");
    accept(&world, &world.operator, &world.org, &["own.v1"]).unwrap();
    assert_eq!(documents(&list(&world, &world.org, json!({}))), ["own.v1"]);
    let nowhere = format!("{}/0000000000000000", world.org);
    assert_eq!(code(accept(&world, &world.operator, &nowhere, &["own.v1"])), Code::NotFound);
    // Acceptances are deleted with the group.
    let folder = world.group(&world.org);
    accept(&world, &world.operator, &folder, &["own.v1"]).unwrap();
    world.delete(&world.operator, "Group", &folder).unwrap();
}
