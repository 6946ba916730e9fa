//! Guarantees for operators: concurrent removals leave an organization one owner, `platform-server repair-owner` gives it
//! an owner again, `platform-server quota` limits its resources, and a read-only server changes nothing.

use std::{sync::Barrier, thread};

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{self, Api, STORES, Server, api, run};

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

#[test]
fn quota_sets_limits_over_the_api_and_in_the_store_of_a_stopped_server() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        let quota = |arguments: &[&str]| {
            let (command, rest) = arguments.split_first().unwrap();
            let all = [&["quota", *command, "--store", store, &*organization][..], rest].concat();
            run(dir.path(), &all)
        };
        let at = ["--api", &*server.url];
        let create = |name: &str| api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": name }));
        create("a").ok();
        // The running server has the store open.
        assert!(quota(&["set", "Repo", "2"]).failed().contains(&format!("--api {}", server.url)));
        quota(&[&["set", "Repo", "2"][..], &at].concat()).ok();
        create("b").ok();
        let refused = create("c").error(429);
        assert!(refused["message"].as_str().unwrap().contains("at most 2 resources of kind Repo"), "{refused}");
        assert_eq!(quota(&[&["list"][..], &at].concat()).ok(), "Repo\t2\t2\n");
        assert!(quota(&[&["set", "Nothing", "2"][..], &at].concat()).failed().contains("returned 400"));
        let negative = run(dir.path(), &["quota", "set", &organization, "Repo", "--", "-1"]);
        assert_eq!(negative.code, Some(2), "{negative:?}");

        drop(server);
        quota(&["set", "Repo", "3"]).ok();
        quota(&["set", "Tag", "0"]).ok();
        assert_eq!(quota(&["list"]).ok(), "Repo\t3\t2\nTag\t0\t0\n");
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, _) = common::api(dir.path(), &[]);
        let create = |name: &str| api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": name }));
        create("c").ok();
        create("d").error(429);
        let at = ["--api", &*server.url];
        quota(&[&["unset", "Repo"][..], &at].concat()).ok();
        create("d").ok();
    }
}

#[test]
fn of_64_concurrent_creates_a_server_accepts_as_many_as_the_quota_allows() {
    for store in STORES {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &["--store", store]);
        let set = ["quota", "set", &organization, "Repo", "10", "--api", &server.url];
        run(dir.path(), &set).ok();
        let (barrier, path) = (Barrier::new(64), format!("/registry/v2/repos/{organization}"));
        let replies: Vec<_> = thread::scope(|scope| {
            let create = |number: usize| {
                let (api, path, barrier) = (&api, &path, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    api.post(path, &json!({ "name": format!("repo-{number}") }))
                })
            };
            let creating: Vec<_> = (0..64).map(create).collect();
            creating.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            let error = refused.error(429);
            let is_quota = |detail: &Value| detail["@type"] == "type.googleapis.com/google.rpc.QuotaFailure";
            assert!(error["details"].as_array().unwrap().iter().any(is_quota), "{error}");
        }
        assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 10, "{store}: {replies:?}");
        assert_eq!(api.get("/registry/v2/repos?page_size=1").ok()["totalCount"], "10");
    }
}

#[test]
fn a_read_only_server_serves_reads_and_refuses_writes_until_an_operator_allows_them() {
    let dir = tempdir().unwrap();
    let mut program = common::program(dir.path(), &["--listen", "127.0.0.1:0", "--read-only"]);
    let new = Server::of(&mut program).unwrap_err().failed();
    assert!(new.contains("read-only"), "{new}");
    let server = Server::start(dir.path(), &[]);
    let (first, organization) = api(dir.path(), &[]);
    let repos = format!("/registry/v2/repos/{organization}");
    let repo = first.post(&repos, &json!({ "name": "a" })).ok()["uid"].as_str().unwrap().to_owned();
    drop(server);

    let server = Server::start(dir.path(), &["--read-only"]);
    let (api, _) = api(dir.path(), &[]);
    let switch = |read_only: bool| {
        let body = json!({ "readOnly": read_only });
        assert_eq!(api.send("PUT", "/operator/read-only", Some(&body)).ok(), body);
    };
    let refuses = |name: &str| {
        let repo = format!("/registry/v2/repos/{repo}");
        let version_1 = format!("/iam/v1/groups/{organization}");
        let limit = format!("/iam/v2/groups/{organization}:setResourceLimit");
        for (method, path, body) in [
            ("POST", &*repos, json!({ "name": name })),
            ("PATCH", &*repo, json!({ "description": name })),
            ("DELETE", &*repo, json!(null)),
            ("POST", &*limit, json!({ "kind": "Repo", "limit": 1 })),
            ("POST", &*version_1, json!({ "name": name })),
        ] {
            let error = api.send(method, path, Some(&body).filter(|body| !body.is_null())).error(503);
            assert_eq!((&error["code"], &error["details"][0]["reason"]), (&json!(14), &json!("READ_ONLY")), "{path}");
        }
        assert_eq!(api.get(&repo).ok()["name"], "a");
        assert_eq!(api.get("/operator/read-only").ok(), json!({ "readOnly": true }));
        // It serves, so a load balancer must keep sending reads to it.
        api.get("/readyz").ok();
    };
    refuses("b");
    switch(false);
    api.post(&repos, &json!({ "name": "b" })).ok();
    switch(true);
    switch(true);
    refuses("c");
    api.with_token("no").get("/operator/read-only").error(401);
    api.send("PUT", "/operator/read-only", Some(&json!({ "readOnly": 1 }))).error(400);
    assert_eq!(api.get("/registry/v2/repos?page_size=1").ok()["totalCount"], "2");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
}

#[test]
fn the_files_of_an_installation_are_encrypted_with_a_key_encryption_key() {
    fn given<'a>(store: &'a str, command: &'a str) -> [&'a str; 4] {
        ["--store", store, "--key-encryption-command", command]
    }
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        // They print the Base64 of 32 bytes.
        let (first, second) =
            ("printf 'AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE='", "head -c 32 /dev/zero | base64");
        let both = format!("{second}; {first}");
        let file = |name: &str| std::fs::read(dir.path().join("platform-data").join(name)).unwrap();
        let names = ["keys.json", "bootstrap.json"];
        let env = |options: &[&str]| run(dir.path(), &[&["env"], options].concat());
        Server::start(dir.path(), &["--store", store]).kill();
        assert!(names.map(file).iter().all(|contents| contents.starts_with(b"{")));

        // The first start with a key encrypts what is there; nothing works without it or with another one.
        Server::start(dir.path(), &given(store, first)).kill();
        let encrypted = names.map(file);
        for contents in &encrypted {
            assert!(!contents.starts_with(b"{") && !String::from_utf8_lossy(contents).contains("organization"));
        }
        assert!(env(&given(store, first)).ok().contains("TOKEN="));
        assert!(env(&["--store", store]).failed().contains("needs the key-encryption key"));
        assert!(env(&given(store, second)).failed().contains("does not open with this key-encryption key"));
        assert!(run(dir.path(), &["serve", "--store", store]).failed().contains("needs the key-encryption key"));
        Server::start(dir.path(), &given(store, first)).kill();
        assert_eq!(names.map(file), encrypted, "a start with the same key writes nothing");

        // A new key in front replaces the old one, and rotated keys are encrypted.
        Server::start(dir.path(), &given(store, &both)).kill();
        assert!(env(&given(store, first)).failed().contains("does not open with this key-encryption key"));
        run(dir.path(), &[&["keys", "rotate"][..], &given(store, second)].concat()).ok();
        assert!(env(&given(store, second)).ok().contains("TOKEN="));
        assert!(!file("keys.json").starts_with(b"{"));

        // A backup has the keys as they are, and a restoration encrypts them again.
        run(dir.path(), &[&["backup", "--to", "backup.tar"][..], &given(store, second)].concat()).ok();
        if store == "sqlite" {
            run(dir.path(), &["backup", "verify", "backup.tar"]).ok();
        }
        let restore = ["restore", "--from", "backup.tar", "--data-dir", "restored"];
        run(dir.path(), &[&restore[..], &given(store, first)].concat()).ok();
        let restored = std::fs::read(dir.path().join("restored/keys.json")).unwrap();
        assert!(!restored.starts_with(b"{"));
        Server::start(dir.path(), &[&["--data-dir", "restored"][..], &given(store, first)].concat()).kill();
    }
}
