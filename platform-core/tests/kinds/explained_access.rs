//! Explanations of access: which bindings count at a place, and which of them a caller sees.

use platform_engine::{access::Caller, error::Code, uid::Uid};
use serde_json::{Value, json};

use crate::common::{World, built_in, code, text, violated_fields};

fn explain(world: &World, caller: &Caller, request: Value) -> Value {
    world.run(Some(caller), "ExplainAccess", request).unwrap()
}

fn uids(reply: &Value) -> Vec<String> {
    let bindings = reply["bindings"].as_array().into_iter().flatten();
    bindings.map(|one| text(&one["binding"], "uid").to_owned()).collect()
}

/// An organization with a folder in which an identity has the role viewer.
fn cast() -> (World, Uid, Caller, Uid) {
    let world = World::new();
    let folder = world.group(&world.org);
    let member = world.identity(&world.org);
    let binding = world.bind(&member, &built_in("viewer"), &folder);
    (world, folder, member, binding)
}

#[test]
fn bindings_at_the_place_and_above_it_count() {
    let (world, folder, member, below) = cast();
    let above = world.bind(&member, &world.role(&world.org, &["repo.delete"]), &world.org);
    let repo = world.repo(&folder);
    let of = |request: Value| explain(&world, &world.operator, request);
    let at = |uid: &Uid, more: Value| {
        let mut request = json!({ "uid": uid, "identityUid": member.identity });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of(request)
    };
    for place in [&folder, &repo] {
        let both = at(place, json!({}));
        let mut expected = vec![above.to_string(), below.to_string()];
        expected.sort();
        assert_eq!((uids(&both), &both["decision"], &both["complete"]), (expected, &json!("ALLOWED"), &json!(true)));
        let delete = at(place, json!({ "capability": "repo.delete" }));
        assert_eq!(uids(&delete), [above.as_str()]);
        assert_eq!(delete["bindings"][0]["capabilities"], json!(["repo.delete"]));
        assert_eq!(delete["bindings"][0]["binding"]["group"]["uid"], *world.org);
        assert!(!delete.to_string().contains("\"\""), "fields without a value are left out: {delete}");
    }
    let list = at(&folder, json!({ "capability": "CAP_REPO_LIST" }));
    assert_eq!(
        (uids(&list), &list["bindings"][0]["binding"]["role"]["name"]),
        (vec![below.to_string()], &json!("viewer"))
    );
    let at_org = at(&Uid::opaque(world.org.to_string()), json!({ "capability": "repo.list" }));
    assert_eq!((uids(&at_org), &at_org["decision"]), (Vec::new(), &json!("DENIED")));
    let everyone = of(json!({ "uid": folder, "capability": "repo.list" }));
    assert!(uids(&everyone).contains(&below.to_string()) && everyone.get("decision").is_none(), "{everyone}");
}

#[test]
fn a_binding_does_not_count_outside_of_the_group_of_its_identity() {
    let world = World::new();
    let (folder, sibling) = (world.group(&world.org), world.group(&world.org));
    let limited = world.identity(&folder);
    let binding = world.bind(&limited, &built_in("owner"), &world.org);
    let at = |uid: &Uid| explain(&world, &world.operator, json!({ "uid": uid, "identityUid": limited.identity }));
    assert_eq!((uids(&at(&folder)), &at(&folder)["decision"]), (vec![binding.to_string()], &json!("ALLOWED")));
    assert_eq!((uids(&at(&sibling)), &at(&sibling)["decision"]), (Vec::new(), &json!("DENIED")));
}

#[test]
fn a_caller_sees_only_the_bindings_that_it_may_list() {
    let (world, folder, member, below) = cast();
    let above = world.bind(&member, &world.role(&world.org, &["repo.delete"]), &world.org);
    let auditor = world.holder(&folder, &["role_bindings.list"]);
    let ask = |capability: &str| {
        let request = json!({ "uid": folder, "identityUid": member.identity, "capability": capability });
        explain(&world, &auditor, request)
    };
    let seen = ask("repo.list");
    assert_eq!(
        (uids(&seen), &seen["decision"], &seen["complete"]),
        (vec![below.to_string()], &json!("ALLOWED"), &json!(false))
    );
    let hidden = ask("repo.delete");
    assert_eq!((uids(&hidden), &hidden["decision"]), (Vec::new(), &json!("UNKNOWN")));
    assert!(!hidden.to_string().contains(above.as_str()));

    let stranger = world.member("owner", &world.organization());
    let nothing = explain(&world, &stranger, json!({ "uid": folder, "identityUid": member.identity }));
    assert_eq!((uids(&nothing), &nothing["decision"]), (Vec::new(), &json!("UNKNOWN")));
    // Whether the place exists is not revealed.
    let missing = json!({ "uid": format!("{}/0000000000000000", world.org), "identityUid": member.identity });
    assert_eq!(explain(&world, &stranger, missing), nothing);
}

#[test]
fn callers_learn_about_themselves_what_the_server_decides() {
    let (world, folder, _, _) = cast();
    let member = world.holder(&folder, &["repo.list"]);
    let ask = |caller: &Caller, capability: &str| {
        let request = json!({ "uid": folder, "identityUid": caller.identity, "capability": capability });
        explain(&world, caller, request)
    };
    let own = ask(&member, "repo.list");
    assert_eq!((uids(&own), &own["decision"], &own["operator"]), (Vec::new(), &json!("ALLOWED"), &json!(false)));
    assert_eq!(ask(&member, "repo.delete")["decision"], "DENIED");
    assert_eq!(ask(&world.operator, "repo.list")["operator"], true);
}

#[test]
fn explanations_have_pages() {
    let (world, folder, ..) = cast();
    // A request that reads bindings which do not count reads on, and may find more than a page.
    let (viewer, other) = (built_in("viewer"), world.role(&world.org, &["repo.delete"]));
    for number in 0..260 {
        let role = if number % 5 == 0 { &*other } else { &*viewer };
        world.bind(&world.identity(&world.org), role, &folder);
    }
    let mut request = json!({ "uid": folder, "capability": "repo.list" });
    let (mut all, mut pages) = (Vec::new(), 0);
    loop {
        let page = explain(&world, &world.operator, request.clone());
        assert!(uids(&page).len() <= 100);
        all.extend(uids(&page));
        pages += 1;
        let Some(next) = page["next"].as_str().filter(|next| !next.is_empty()) else { break };
        request["after"] = json!(next);
    }
    let mut distinct = all.clone();
    distinct.sort();
    distinct.dedup();
    assert!(pages >= 2 && distinct == all && all.len() >= 209, "{pages} pages, {} bindings", all.len());
}

#[test]
fn a_request_that_has_not_read_all_bindings_does_not_say_that_access_is_denied() {
    let (world, folder, member, _) = cast();
    for _ in 0..1_000 {
        world.bind(&member, &world.role(&world.org, &["repo.update"]), &folder);
    }
    let mut request = json!({ "uid": folder, "identityUid": member.identity, "capability": "repo.delete" });
    let page = explain(&world, &world.operator, request.clone());
    assert_eq!((uids(&page), &page["decision"]), (Vec::new(), &json!("UNKNOWN")));
    request["after"] = page["next"].clone();
    assert_eq!(explain(&world, &world.operator, request)["decision"], json!("DENIED"));
}

#[test]
fn unknown_capabilities_and_malformed_uids_are_rejected() {
    let world = World::new();
    let run = |request: Value| world.run(Some(&world.operator), "ExplainAccess", request);
    assert_eq!(violated_fields(run(json!({}))), ["uid"]);
    assert_eq!(violated_fields(run(json!({ "uid": "x", "after": "y" }))), ["uid", "after"]);
    assert_eq!(violated_fields(run(json!({ "uid": world.org, "capability": "no.such" }))), ["capability"]);
    assert_eq!(code(world.run(None, "ExplainAccess", json!({ "uid": world.org }))), Code::Unauthenticated);
}
