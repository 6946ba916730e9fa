//! The first steps of a new user over HTTP, on each store, in the order of the documentation (`docs/api.md`).

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{self, Api, Server, api};

/// The uid of the built-in role `viewer`, which the API publishes.
const VIEWER: &str = "63921b2c44617e3f2603851537be0123af4a57d7";

#[test]
fn first_steps_on_sqlite() {
    first_steps("sqlite");
}

#[test]
fn first_steps_on_sled() {
    first_steps("sled");
}

#[test]
fn first_steps_in_memory() {
    first_steps("memory");
}

fn first_steps(store: &str) {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", store]);
    let (api, organization) = api(dir.path(), &["--store", store]);

    the_root_path_links_to_the_documentation(&api);
    the_first_organization_exists(&api, &organization);
    repos_are_created_listed_and_paginated(&api, &organization);
    a_patch_changes_the_fields_of_its_mask(&api, &organization);
    a_moved_tag_keeps_its_uid(&api, &organization);
    a_role_binding_grants_and_its_deletion_revokes(&api, &organization, dir.path());
    errors_are_structured(&api, &organization);
    delete_of_a_group_with_a_child_is_rejected(&api, &organization);

    let before = everything(&api);
    server.terminate();
    let ran = server.wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let _again = Server::start(dir.path(), &["--store", store]);
    let (api, again) = common::api(dir.path(), &[]);
    assert_eq!(again, organization, "the first organization does not depend on the store");
    if store == "memory" {
        the_first_organization_exists(&api, &organization);
        assert_eq!(api.get("/registry/v2/repos").ok()["totalCount"], "0");
    } else {
        assert_eq!(everything(&api), before);
    }
}

fn the_root_path_links_to_the_documentation(api: &Api) {
    let landing = api.get("/").ok();
    assert_eq!((&landing["docs"], &landing["openapi"]), (&json!("/docs"), &json!("/openapi.json")));
    assert_eq!(api.get("/openapi.json").ok()["openapi"], "3.1.0");
}

fn the_first_organization_exists(api: &Api, organization: &str) {
    let groups = api.get("/iam/v2/groups").ok();
    assert_eq!((&groups["totalCount"], &groups["skipped"]), (&json!("1"), &json!(0)));
    assert_eq!(groups["groups"][0]["uid"], organization);
    assert_eq!(api.get(&format!("/iam/v2/groups/{organization}")).ok(), groups["groups"][0]);
    assert_eq!(api.get("/registry/v2/repos").ok(), json!({"repos": [], "totalCount": "0", "skipped": 0}));
    assert_eq!(api.get("/ping/v2/ping").status, 200);
    let bindings = api.get("/iam/v2/roleBindings").ok();
    assert_eq!(bindings["roleBindings"][0]["role"]["name"], "owner");
}

fn repos_are_created_listed_and_paginated(api: &Api, organization: &str) {
    let create = |number: usize| {
        let body = json!({"name": format!("repo {number:02}"), "description": "one of twelve"});
        api.post(&format!("/registry/v2/repos/{organization}"), &body).ok()
    };
    let created: Vec<Value> = (0..12).map(create).collect();
    for repo in &created {
        assert!(repo["uid"].as_str().unwrap().starts_with(&format!("{organization}/")));
        let time = repo["createTime"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && repo["updateTime"] == *time, "{repo}");
    }
    let path = |more: &str| format!("/registry/v2/repos?uidp.descendants_of={organization}{more}");
    let names = |list: &Value| -> Vec<String> {
        list["repos"].as_array().unwrap().iter().map(|repo| repo["name"].as_str().unwrap().to_owned()).collect()
    };

    // All pages, in each order.
    for (order, reversed) in [("name", false), ("name%20desc", true), ("created_at%20desc", true)] {
        let (mut walked, mut token) = (Vec::new(), String::new());
        loop {
            let page = api.get(&path(&format!("&order_by={order}&page_size=5&page_token={token}"))).ok();
            assert_eq!(page["totalCount"], "12");
            walked.extend(names(&page));
            match page["nextPageToken"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        let mut expected: Vec<String> = created.iter().map(|repo| repo["name"].as_str().unwrap().to_owned()).collect();
        if order.starts_with("created") {
            // Sorted by name, since several repos may have been created in the same millisecond.
            walked.sort();
            walked.reverse();
        }
        if reversed {
            expected.reverse();
        }
        assert_eq!(walked, expected, "{order}");
    }

    let skipped = api.get(&path("&order_by=name&skip=10")).ok();
    assert_eq!(names(&skipped), ["repo 10", "repo 11"]);
    assert_eq!((&skipped["skipped"], &skipped["totalCount"]), (&json!(10), &json!("12")));
    assert_eq!(skipped.get("nextPageToken"), None);
    let one = api.get(&path("&name=repo%2007")).ok();
    assert_eq!((&one["repos"][0], &one["totalCount"]), (&created[7], &json!("1")));
    assert_eq!(names(&api.get(&path("&name=repo")).ok()), [""; 0], "filters match whole names");
    assert_eq!(names(&api.get(&path("&page_size=1000")).ok()).len(), 12);
    let uid = created[3]["uid"].as_str().unwrap();
    assert_eq!(api.get(&format!("/registry/v2/repos/{uid}")).ok(), created[3]);
    let escaped = uid.replace('/', "%2F");
    assert_eq!(api.get(&format!("/registry/v2beta1/repos/{escaped}")).ok(), created[3]);
}

fn a_patch_changes_the_fields_of_its_mask(api: &Api, organization: &str) {
    let (repo, path) = repo_named(api, organization, "repo 00");
    let patched = api.patch(&path, &json!({"description": "without a mask"})).ok();
    assert_eq!((&patched["name"], &patched["description"]), (&repo["name"], &json!("without a mask")));
    assert!(patched["updateTime"].as_str() >= repo["updateTime"].as_str());
    assert_eq!(patched["createTime"], repo["createTime"]);

    let body = json!({"name": "ignored", "description": "with a mask"});
    let patched = api.patch(&format!("{path}?updateMask=description"), &body).ok();
    assert_eq!((&patched["name"], &patched["description"]), (&json!("repo 00"), &json!("with a mask")));

    let body = json!({"name": "repo 00", "bundles": ["base"]});
    let patched = api.patch(&format!("{path}?updateMask=*"), &body).ok();
    assert_eq!(patched.get("description"), None, "the mask * replaces all fields");
    assert_eq!(patched["bundles"], json!(["base"]));
    let patched = api.patch(&path, &json!({"bundles": []})).ok();
    assert_eq!(patched.get("bundles"), None, "an explicit empty value clears");

    let error = api.patch(&format!("{path}?updateMask=colour"), &json!({})).error(400);
    assert_eq!(error["details"][1]["fieldViolations"][0]["field"], "update_mask", "{error}");

    let readme = json!({"content": "# Hello"});
    let written = api.patch(&format!("{path}/readme"), &readme);
    assert_eq!(written.status, 200, "{written:?}");
    assert!(api.get(&format!("{path}/readme")).text.contains("# Hello"));
}

fn a_moved_tag_keeps_its_uid(api: &Api, organization: &str) {
    let (repo, _) = repo_named(api, organization, "repo 01");
    let repo = repo["uid"].as_str().unwrap();
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let push = |name: &str, digit: &str| {
        api.post(&format!("/registry/v2/tags/{repo}"), &json!({"name": name, "digest": digest(digit)})).ok()
    };
    let first = push("latest", "a");
    let moved = push("latest", "b");
    assert_eq!((&moved["uid"], &moved["createTime"]), (&first["uid"], &first["createTime"]));
    assert_eq!((&moved["digest"], &moved["deprecated"]), (&json!(digest("b")), &json!(false)));
    push("1.29-r0", "c");
    let tags = |more: &str| api.get(&format!("/registry/v2/tags?uidp.children_of={repo}{more}")).ok();
    assert_eq!(tags("")["totalCount"], "1", "build tags are hidden by default");
    assert_eq!(tags("&include_epochs=true")["totalCount"], "2");
    assert_eq!(tags("")["tags"][0], moved);
    let deleted = api.delete(&format!("/registry/v2/tags/{}", moved["uid"].as_str().unwrap()));
    assert_eq!((deleted.status, deleted.text.as_str()), (200, ""));
    assert_eq!(tags("")["totalCount"], "0");
}

fn a_role_binding_grants_and_its_deletion_revokes(api: &Api, organization: &str, dir: &std::path::Path) {
    let body = json!({
        "name": "ci",
        "description": "builds images",
        "claimMatch": {"issuer": "https://issuer.example", "subject": "repo:main"},
    });
    let identity = api.post(&format!("/iam/v2/identities/{organization}"), &body).ok();
    assert_eq!(identity["claimMatch"], body["claimMatch"]);
    assert_eq!(identity["lastSeenTime"], identity["createTime"]);
    let uid = identity["uid"].as_str().unwrap();
    let roles = api.get("/iam/v2/roles?name=viewer").ok();
    assert_eq!((&roles["roles"][0]["uid"], &roles["totalCount"]), (&json!(VIEWER), &json!("1")));

    let mut ci = api.clone();
    ci.token = common::run(dir, &["token", "--identity", uid]).ok().trim().to_owned();
    let repos = format!("/registry/v2/repos?uidp.descendants_of={organization}");
    assert_eq!(ci.get(&repos).ok()["totalCount"], "0");
    let binding = json!({"identityUid": uid, "roleUid": VIEWER});
    let bound = api.post(&format!("/iam/v2/roleBindings/{organization}"), &binding).ok();
    assert_eq!(bound["identity"]["name"], "ci");
    assert_eq!(
        (&bound["identity"]["issuer"], &bound["identity"]["subject"]),
        (&json!("https://issuer.example"), &json!("repo:main"))
    );
    assert_eq!((&bound["group"]["uid"], &bound["role"]["name"]), (&json!(organization), &json!("viewer")));
    assert_eq!(ci.get(&repos).ok()["totalCount"], "12");
    let denied = ci.post(&format!("/registry/v2/repos/{organization}"), &json!({"name": "mine"})).error(403);
    assert_eq!(denied["details"][0]["reason"], "PERMISSION_DENIED");

    assert_eq!(api.delete(&format!("/iam/v2/roleBindings/{}", bound["uid"].as_str().unwrap())).text, "");
    assert_eq!(ci.get(&repos).ok()["totalCount"], "0", "a revocation takes effect at once");
    assert_eq!(api.delete(&format!("/iam/v2/identities/{uid}")).status, 200);
    assert_eq!(api.get("/iam/v2/identities?name=ci").ok()["totalCount"], "0");
    let response = ci.get(&repos);
    assert!(response.status == 401 || response.json()["totalCount"] == "0", "{response:?}");
}

fn errors_are_structured(api: &Api, organization: &str) {
    let error = api.post(&format!("/iam/v2/identities/{organization}"), &json!({})).error(400);
    assert_eq!(error["code"], 3);
    assert!(error["message"].as_str().unwrap().starts_with("Invalid argument: name: "), "{error}");
    let info = &error["details"][0];
    assert_eq!((&info["reason"], &info["domain"]), (&json!("INVALID_ARGUMENT"), &json!("iam.platform.local")));
    assert_eq!(error["details"][1]["@type"], "type.googleapis.com/google.rpc.BadRequest");
    assert_eq!(error["details"][1]["fieldViolations"][0]["field"], "name");
    let error = api.post(&format!("/iam/v2/identities/{organization}"), &json!({"name": "Not Allowed"})).error(400);
    assert!(error["message"].as_str().unwrap().contains("^[a-z0-9 ._-]{1,}$"), "{error}");

    let missing = format!("{organization}/0123456789abcdef");
    for (path, kind) in [("registry/v2/repos", "Repo"), ("iam/v2/groups", "Group")] {
        for error in [api.get(&format!("/{path}/{missing}")), api.delete(&format!("/{path}/{missing}"))] {
            let error = error.error(404);
            let (domain, _) = path.split_once('/').unwrap();
            assert_eq!((&error["code"], &error["details"][0]["reason"]), (&json!(5), &json!("NOT_FOUND")));
            let info = &error["details"][1];
            assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ResourceInfo", "{error}");
            assert_eq!(info["resourceType"], format!("{domain}.platform.local/{kind}"));
            assert_eq!(info["resourceName"], missing);
        }
    }

    let taken = api.post(&format!("/registry/v2/repos/{organization}"), &json!({"name": "repo 00"})).error(409);
    assert_eq!(taken["code"], 6);
    for query in ["page_size=-1", "page_token=abc", "order_by=colour", "skip=-1", "nonsense=1"] {
        assert_eq!(api.get(&format!("/registry/v2/repos?{query}")).error(400)["code"], 3, "{query}");
    }
    assert_eq!(api.get("/registry/v2/nothing").error(404)["code"], 5);
    assert_eq!(api.send("PUT", "/registry/v2/repos", Some(&json!({}))).error(405)["code"], 12);
    let mut anonymous = api.clone();
    for token in ["", "abc", &format!("{}x", api.token)] {
        token.clone_into(&mut anonymous.token);
        assert_eq!(anonymous.get("/iam/v2/groups").error(401)["code"], 16);
    }
}

fn delete_of_a_group_with_a_child_is_rejected(api: &Api, organization: &str) {
    let group = api.post(&format!("/iam/v2/groups/{organization}"), &json!({"name": "folder"})).ok();
    let group = group["uid"].as_str().unwrap();
    let repo = api.post(&format!("/registry/v2/repos/{group}"), &json!({"name": "in the way"})).ok();
    let error = api.delete(&format!("/iam/v2/groups/{group}")).error(400);
    assert_eq!((&error["code"], &error["details"][0]["reason"]), (&json!(9), &json!("FAILED_PRECONDITION")));
    assert_eq!(error["details"][1]["@type"], "type.googleapis.com/google.rpc.PreconditionFailure");
    assert_eq!(error["details"][1]["violations"][0]["type"], "RESOURCE_NOT_EMPTY", "{error}");
    assert_eq!(api.delete(&format!("/registry/v2/repos/{}", repo["uid"].as_str().unwrap())).text, "");
    let deleted = api.delete(&format!("/iam/v2/groups/{group}"));
    assert_eq!((deleted.status, deleted.text.as_str()), (200, ""));
    api.get(&format!("/iam/v2/groups/{group}")).error(404);
}

fn repo_named(api: &Api, organization: &str, name: &str) -> (Value, String) {
    let path = format!("/registry/v2/repos?uidp.children_of={organization}&name={}", name.replace(' ', "%20"));
    let repo = api.get(&path).ok()["repos"][0].clone();
    let path = format!("/registry/v2/repos/{}", repo["uid"].as_str().unwrap());
    (repo, path)
}

fn everything(api: &Api) -> Vec<Value> {
    let paths = [
        "/iam/v2/groups",
        "/iam/v2/identities",
        "/iam/v2/roles",
        "/iam/v2/roleBindings",
        "/registry/v2/repos",
        "/registry/v2/tags?include_epochs=true",
    ];
    paths.iter().map(|path| api.get(path).ok()).collect()
}
