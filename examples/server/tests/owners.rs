//! The owners of organizations, on each store: concurrent removals leave one owner, and `platform-server repair-owner`
//! gives an organization an owner again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::{sync::Barrier, thread};

use common::{Api, Server, api, run};
use serde_json::{Value, json};
use tempfile::tempdir;

fn uid(made: &Value) -> String {
    made["uid"].as_str().unwrap().to_owned()
}

/// Returns the uid of the built-in role `owner`.
fn owner_role(api: &Api) -> String {
    let roles = api.get("/iam/v2/roles?name=owner").ok();
    uid(&roles["roles"][0])
}

/// Creates an organization, and returns its uid and that of the role binding of its owner, the operator.
fn create_organization(api: &Api) -> (String, String) {
    let organization = uid(&api.post("/iam/v2/groups", &json!({ "name": "organization" })).ok());
    let bindings = api.get(&format!("/iam/v2/roleBindings?group={organization}")).ok();
    (organization, uid(&bindings["roleBindings"][0]))
}

/// Creates an identity that owns the organization, and returns its uid and that of its role binding.
fn create_owner(api: &Api, organization: &str) -> (String, String) {
    let claims = json!({ "issuer": "https://issuer.test", "subject": "s" });
    let body = json!({ "name": "owner", "claimMatch": claims });
    let identity = uid(&api.post(&format!("/iam/v2/identities/{organization}"), &body).ok());
    let body = json!({ "identityUid": identity, "roleUid": owner_role(api) });
    let binding = uid(&api.post(&format!("/iam/v2/roleBindings/{organization}"), &body).ok());
    (identity, binding)
}

/// Returns the type of the first violation.
fn violation(error: &Value) -> &str {
    let details = error["details"].as_array().unwrap();
    details.iter().find_map(|detail| detail["violations"][0]["type"].as_str()).unwrap_or_default()
}

#[test]
fn one_of_two_concurrent_removals_of_the_last_owners_is_rejected() {
    for store in common::STORES {
        let dir = tempdir().unwrap();
        let _server = Server::start(dir.path(), &["--store", store]);
        let (api, _) = api(dir.path(), &[]);
        for round in 0..10 {
            let (organization, first) = create_organization(&api);
            let (identity, second) = create_owner(&api, &organization);
            // Gives the operator other roles for the removal, which do not count as ownership.
            let editor = uid(&api.get("/iam/v2/roles?name=editor").ok()["roles"][0]);
            let role = json!({ "name": "remover", "capabilities": ["CAP_IAM_ROLE_BINDINGS_DELETE", "CAP_IAM_IDENTITY_DELETE"] });
            let role = uid(&api.post(&format!("/iam/v2/roles/{organization}"), &role).ok());
            let operator = api.get(&format!("/iam/v2/roleBindings/{first}")).ok()["identityUid"].clone();
            for role in [editor, role] {
                let body = json!({ "identityUid": operator, "roleUid": role });
                api.post(&format!("/iam/v2/roleBindings/{organization}"), &body).ok();
            }
            let other = match round % 2 {
                0 => format!("/iam/v2/roleBindings/{second}"),
                _ => format!("/iam/v2/identities/{identity}"),
            };
            let barrier = Barrier::new(2);
            let responses = thread::scope(|scope| {
                let threads = [format!("/iam/v2/roleBindings/{first}"), other].map(|path| {
                    let (api, barrier) = (&api, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        api.delete(&path)
                    })
                });
                threads.map(|thread| thread.join().expect("no panic"))
            });
            let rejected: Vec<_> = responses.iter().filter(|response| response.status != 200).collect();
            assert_eq!(rejected.len(), 1, "{store}: {responses:?}");
            assert_eq!(violation(&rejected[0].error(400)), "LAST_OWNER");
        }
    }
}

#[test]
fn repair_owner_works_over_the_api_and_in_the_store_of_a_stopped_server() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, _) = api(dir.path(), &[]);
        let (organization, first) = create_organization(&api);
        let operator =
            api.get(&format!("/iam/v2/roleBindings/{first}")).ok()["identityUid"].as_str().unwrap().to_owned();
        create_owner(&api, &organization);
        assert_eq!(api.delete(&format!("/iam/v2/roleBindings/{first}")).status, 200);
        let group = format!("/iam/v2/groups/{organization}");
        api.get(&group).error(403);

        let repair = ["repair-owner", "--store", store, "--organization", &organization, "--identity", &operator];
        let over_api = [&repair[..], &["--api", &server.url]].concat();
        // The running server has the store open.
        assert!(run(dir.path(), &repair).failed().contains(&format!("--api {}", server.url)));
        let done = run(dir.path(), &over_api).ok();
        let binding = done.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(
            done.starts_with(&format!("{operator} now owns {organization} through the role binding {organization}/")),
            "{done}"
        );
        api.get(&group).ok();
        assert!(run(dir.path(), &over_api).failed().contains("already exists"));
        let missing = "0".repeat(40);
        let unknown = ["repair-owner", "--organization", &organization, "--identity", &missing, "--api", &server.url];
        assert!(run(dir.path(), &unknown).failed().contains("returned 404"));
        let invalid_token = [&over_api[..], &["--token", "no"]].concat();
        assert!(run(dir.path(), &invalid_token).failed().contains("returned 401"));

        assert_eq!(api.delete(&format!("/iam/v2/roleBindings/{binding}")).status, 200);
        api.get(&group).error(403);
        drop(server);
        run(dir.path(), &repair).ok();
        let folder = format!("{organization}/0000000000000000");
        let not_an_organization =
            ["repair-owner", "--store", store, "--organization", &folder, "--identity", &operator];
        assert!(
            run(dir.path(), &not_an_organization).failed().contains("groupUid: must be the uid of an organization")
        );
        let server = Server::start(dir.path(), &["--store", store]);
        let api = Api::new(&server.url, &api.token);
        let token = run(dir.path(), &["token"]).ok().trim().to_owned();
        api.with_token(&token).get(&group).ok();
    }
}

#[test]
fn repair_owner_validates_its_arguments() {
    let dir = tempdir().unwrap();
    let ran = run(dir.path(), &["repair-owner", "--organization", "acme"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("must be a uid"), "{ran:?}");
    let help = run(dir.path(), &["repair-owner", "--help"]).ok();
    assert!(
        help.contains("--organization <UID>") && help.contains("--identity <UID>") && help.contains("--api"),
        "{help}"
    );
    let memory =
        ["repair-owner", "--store", "memory", "--organization", &"0".repeat(40), "--identity", &"0".repeat(40)];
    assert!(run(dir.path(), &memory).failed().contains("--api"));
}
