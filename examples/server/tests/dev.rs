//! `platform-server dev` in a process of its own. The emulator itself is tested in `platform-emulator`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod common;

use serde_json::json;

use common::{Api, Server, program, run};

/// Starts an emulator and returns it with a client of its default tenant.
fn dev(dir: &std::path::Path, arguments: &[&str]) -> (Server, Api, String) {
    let mut command = program(dir, &["dev", "--listen", "127.0.0.1:0"]);
    let server = Server::of(command.args(arguments)).unwrap_or_else(|ran| panic!("it does not start: {ran:?}"));
    let (mut exported, mut has_link) = (Vec::new(), false);
    while exported.len() < 3 {
        let line = server.next_line().unwrap();
        has_link |= line.contains("/console#");
        let exports = line.trim().strip_prefix("export ").unwrap_or_default().split(' ').map(str::to_owned);
        exported.extend(exports.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned())));
    }
    assert!(has_link, "no link to the console");
    let [url, organization, token] = &exported[..] else { panic!("{exported:?}") };
    let api = Api::new(url, token);
    let organization = organization.clone();
    (server, api, organization)
}

#[test]
fn it_prints_commands_to_paste_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (server, api, organization) = dev(dir.path(), &[]);
    assert_eq!(server.url, api.url);
    let path = format!("/registry/v2/repos/{organization}");
    assert_eq!(api.send("POST", &path, Some(&json!({ "name": "a" }))).status, 200);
    assert_eq!(api.send("POST", "/_emulator/reset", None).status, 200);
    assert_eq!(api.send("POST", &path, Some(&json!({ "name": "a" }))).status, 200);
    assert_eq!(api.get("/docs").status, 200);
    assert!(api.get("/openapi.json").text.contains("ListRepo"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(!server.log().contains("WARN"), "{}", server.log());
    server.terminate();
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn it_creates_the_resources_of_a_preset_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (_demo, api, _) = dev(dir.path(), &["--demo"]);
    assert!(api.get("/registry/v2/repos?name=nginx").text.contains("nginx"));
    let (_server, api, _) = dev(dir.path(), &["--seed", "small"]);
    assert!(api.get("/registry/v2/repos?name=nginx").text.contains("\"totalCount\":\"1\""));
    std::fs::write(dir.path().join("seed.yaml"), "repos: [{name: of-a-file}]").unwrap();
    let (_server, api, _) = dev(dir.path(), &["--seed", "seed.yaml"]);
    assert!(api.get("/registry/v2/repos").text.contains("of-a-file"));
    std::fs::write(dir.path().join("wrong.yaml"), "repos: [{nam: a}]").unwrap();
    let failed = run(dir.path(), &["dev", "--listen", "127.0.0.1:0", "--seed", "wrong.yaml"]).failed();
    assert!(failed.contains("wrong.yaml") && failed.contains("repos[0].nam"), "{failed}");
}

#[test]
fn it_listens_for_other_machines_without_a_public_url() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program(dir.path(), &["dev", "--listen", "0.0.0.0:0"]);
    let server = Server::of(&mut command).unwrap_or_else(|ran| panic!("it does not start: {ran:?}"));
    let lines: Vec<_> = std::iter::from_fn(|| server.next_line()).take(7).collect();
    assert!(lines.iter().any(|line| line.contains("API=http://localhost:")), "{lines:?}");
    assert_eq!(Api::new(&server.url, "").get("/livez").status, 200, "it has begun to serve");
    assert!(server.log().contains("everyone who can connect to 0.0.0.0:"), "{}", server.log());
}

/// The endpoints would let everyone reset a server.
#[test]
fn a_server_has_no_endpoints_of_the_emulator() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (api, _) = common::api(dir.path(), &[]);
    assert_eq!(server.url, api.url);
    for (method, path) in [
        ("GET", "/_emulator"),
        ("GET", "/_emulator/tenants"),
        ("POST", "/_emulator/reset"),
        ("POST", "/_emulator/seed?preset=small"),
        ("POST", "/_emulator/tokens"),
        ("PATCH", "/_emulator/clock"),
        ("POST", "/_emulator/faults"),
        ("GET", "/_emulator/coverage"),
    ] {
        let response = api.send(method, path, Some(&json!({})).filter(|_| method != "GET"));
        assert_eq!(response.status, 404, "{method} {path}: {}", response.text);
    }
    // The header of the emulator means nothing to a server, and neither does its issuer.
    assert!(!api.get("/openapi.json").text.contains("_emulator"));
    assert_eq!(api.get("/registry/v2/repos").status, 200);
}
