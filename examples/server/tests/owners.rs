//! The owners of organizations, on the stores that a server has: of two who go at once one stays, and an operator gives
//! an organization an owner again by `platform-server repair-owner`.

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

fn owner(api: &Api) -> String {
    let roles = api.get("/iam/v2/roles?name=owner").ok();
    uid(&roles["roles"][0])
}

/// Creates an organization, and returns it with the binding of its owner, the operator.
fn organization(api: &Api) -> (String, String) {
    let organization = uid(&api.post("/iam/v2/groups", &json!({ "name": "organization" })).ok());
    let bindings = api.get(&format!("/iam/v2/roleBindings?group={organization}")).ok();
    (organization, uid(&bindings["roleBindings"][0]))
}

/// Creates an identity in an organization that owns it, and returns the two.
fn owned(api: &Api, organization: &str) -> (String, String) {
    let claims = json!({ "issuer": "https://issuer.test", "subject": "s" });
    let body = json!({ "name": "owner", "claimMatch": claims });
    let identity = uid(&api.post(&format!("/iam/v2/identities/{organization}"), &body).ok());
    let body = json!({ "identityUid": identity, "roleUid": owner(api) });
    let binding = uid(&api.post(&format!("/iam/v2/roleBindings/{organization}"), &body).ok());
    (identity, binding)
}

fn violation(error: &Value) -> &str {
    let details = error["details"].as_array().unwrap();
    details.iter().find_map(|detail| detail["violations"][0]["type"].as_str()).unwrap_or_default()
}

#[test]
fn of_two_last_owners_who_go_at_once_one_stays_on_every_store() {
    for store in common::STORES {
        let dir = tempdir().unwrap();
        let _server = Server::start(dir.path(), &["--store", store]);
        let (api, _) = api(dir.path(), &[]);
        for round in 0..10 {
            let (organization, first) = organization(&api);
            let (identity, second) = owned(&api, &organization);
            // The operator sees the organization by another binding, which makes nobody an owner.
            let viewer = uid(&api.get("/iam/v2/roles?name=editor").ok()["roles"][0]);
            let role = json!({ "name": "remover", "capabilities": ["CAP_IAM_ROLE_BINDINGS_DELETE", "CAP_IAM_IDENTITY_DELETE"] });
            let role = uid(&api.post(&format!("/iam/v2/roles/{organization}"), &role).ok());
            let operator = api.get(&format!("/iam/v2/roleBindings/{first}")).ok()["identityUid"].clone();
            for role in [viewer, role] {
                let body = json!({ "identityUid": operator, "roleUid": role });
                api.post(&format!("/iam/v2/roleBindings/{organization}"), &body).ok();
            }
            let other = match round % 2 {
                0 => format!("/iam/v2/roleBindings/{second}"),
                _ => format!("/iam/v2/identities/{identity}"),
            };
            let barrier = Barrier::new(2);
            let answers = thread::scope(|scope| {
                let go = [format!("/iam/v2/roleBindings/{first}"), other].map(|path| {
                    let (api, barrier) = (&api, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        api.delete(&path)
                    })
                });
                go.map(|thread| thread.join().expect("no panic"))
            });
            let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
            assert_eq!(refused.len(), 1, "{store}: {answers:?}");
            assert_eq!(violation(&refused[0].error(400)), "LAST_OWNER");
        }
    }
}

#[test]
fn an_operator_repairs_an_organization_over_the_api_and_in_a_stopped_servers_store() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, _) = api(dir.path(), &[]);
        let (organization, first) = organization(&api);
        let operator =
            api.get(&format!("/iam/v2/roleBindings/{first}")).ok()["identityUid"].as_str().unwrap().to_owned();
        owned(&api, &organization);
        assert_eq!(api.delete(&format!("/iam/v2/roleBindings/{first}")).status, 200);
        let group = format!("/iam/v2/groups/{organization}");
        api.get(&group).error(403);

        let repair = ["repair-owner", "--store", store, "--organization", &organization, "--identity", &operator];
        let over_api = [&repair[..], &["--api", &server.url]].concat();
        // Its store is open elsewhere.
        assert!(run(dir.path(), &repair).failed().contains(&format!("--api {}", server.url)));
        let done = run(dir.path(), &over_api).ok();
        let binding = done.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(
            done.starts_with(&format!("{operator} owns {organization} by the role binding {organization}/")),
            "{done}"
        );
        api.get(&group).ok();
        assert!(run(dir.path(), &over_api).failed().contains("There is already a binding"));
        let nobody = "0".repeat(40);
        let unknown = ["repair-owner", "--organization", &organization, "--identity", &nobody, "--api", &server.url];
        assert!(run(dir.path(), &unknown).failed().contains("answers 404"));
        let narrowed = [&over_api[..], &["--token", "no"]].concat();
        assert!(run(dir.path(), &narrowed).failed().contains("answers 401"));

        assert_eq!(api.delete(&format!("/iam/v2/roleBindings/{binding}")).status, 200);
        api.get(&group).error(403);
        drop(server);
        run(dir.path(), &repair).ok();
        let folder = format!("{organization}/0000000000000000");
        let not = ["repair-owner", "--store", store, "--organization", &folder, "--identity", &operator];
        assert!(run(dir.path(), &not).failed().contains("groupUid: must be the uid of an organization"));
        let server = Server::start(dir.path(), &["--store", store]);
        let api = Api::new(&server.url, &api.token);
        let token = run(dir.path(), &["token"]).ok().trim().to_owned();
        api.with_token(&token).get(&group).ok();
    }
}

#[test]
fn an_organization_and_an_identity_must_be_named_by_uids() {
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
