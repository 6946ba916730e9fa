//! `apply`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod support;

use support::{Ctl, Server, uid};

const TEAM: &str = "
kind: Group
parent: acme
fields:
  name: team
---
kind: Repo
parent: acme/team
fields:
  name: nginx
  description: a web server
---
kind: role
parent: acme
fields:
  name: reader
  capabilities: [CAP_REPO_LIST]
---
kind: identities
parent: acme/team
fields:
  name: ci
  claimMatch:
    issuer: https://issuer.example.com
    subject: repo:example/app
---
kind: role-binding
parent: acme/team
fields:
  identityUid: acme/team/ci
  roleUid: acme/reader
---
kind: RoleBinding
parent: acme/team
fields:
  identityUid: acme/team/ci
  roleUid: viewer
";

#[test]
fn documents_may_name_resources_that_earlier_ones_create_and_a_second_apply_changes_nothing() {
    let server = Server::start();
    let ctl = server.ctl();
    let file = ctl.file("team.yaml", TEAM);
    let planned = ctl.run(&["apply", "-f", &file, "--dry-run"]);
    assert!(planned.code == 0 && planned.out.ends_with("would change 6 and delete 0; 0 unchanged\n"), "{planned:?}");
    assert!(planned.out.contains("create repo acme/team/nginx\n  +name: nginx\n"), "{planned:?}");
    assert_eq!(ctl.ok(&["get", "repos", "-o", "name"]), "");
    let first = ctl.run(&["apply", "-f", &file]);
    assert!(first.code == 0 && first.out.ends_with("6 created, 0 updated, 0 deleted, 0 unchanged\n"), "{first:?}");
    let again = ctl.run(&["apply", "-f", &file]);
    assert_eq!((again.code, again.out.as_str()), (0, "0 created, 0 updated, 0 deleted, 6 unchanged\n"));
    assert_eq!(
        ctl.json(&["get", "role-bindings", "--under", "acme/team"])["roleBindings"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn an_update_changes_the_fields_that_differ_and_no_other() {
    let server = Server::start();
    let ctl = server.ctl();
    let file = ctl.file("team.yaml", TEAM);
    ctl.ok(&["apply", "-f", &file]);
    // Somebody else sets a field that no document mentions.
    ctl.ok(&["update", "identities", "acme/team/ci", "--description", "builds images"]);
    let file = ctl.file("team.yaml", &TEAM.replace("repo:example/app", "repo:example/other"));
    let changed = ctl.run(&["apply", "-f", &file]);
    let identity = ctl.json(&["get", "identities", "acme/team/ci"]);
    let diff = format!(
        "update identity acme/team/ci ({})\n   claimMatch:\n  -  subject: repo:example/app\n  +  subject: repo:example/other\n",
        uid(&identity)
    );
    assert_eq!(changed.out, format!("{diff}0 created, 1 updated, 0 deleted, 5 unchanged\n"));
    assert_eq!(identity["description"], "builds images");
    assert_eq!(identity["claimMatch"]["subject"], "repo:example/other");
    assert_eq!(identity["claimMatch"]["issuer"], "https://issuer.example.com");
}

#[test]
fn a_document_may_name_its_resource_by_uid_and_rename_it() {
    let server = Server::start();
    let ctl = server.ctl();
    let repo = uid(&ctl.json(&["create", "repos", "--under", "acme", "--name", "nginx"]));
    let file = ctl.file("repo.yaml", &format!("kind: Repo\nuid: {repo}\nfields: {{name: caddy}}\n"));
    ctl.ok(&["apply", "-f", &file]);
    assert_eq!(ctl.json(&["get", "repos", &repo])["name"], "caddy");
    let file = ctl.file("gone.yaml", &format!("kind: Repo\nuid: {repo}0\nfields: {{name: caddy}}\n"));
    assert!(ctl.run(&["apply", "-f", &file]).code != 0);
}

#[test]
fn a_kind_without_an_update_is_replaced_by_its_create() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "nginx"]);
    let tag = |digit: &str| {
        format!("kind: Tag\nparent: acme/nginx\nfields:\n  name: latest\n  digest: sha256:{}\n", digit.repeat(64))
    };
    for (digit, says) in [
        ("1", "1 created, 0 updated, 0 deleted, 0 unchanged\n"),
        ("1", "0 created, 0 updated, 0 deleted, 1 unchanged\n"),
        ("2", "0 created, 1 updated, 0 deleted, 0 unchanged\n"),
    ] {
        let file = ctl.file("tag.yaml", &tag(digit));
        let applied = ctl.run(&["apply", "-f", &file]);
        assert!(applied.code == 0 && applied.out.ends_with(says), "{applied:?}");
    }
    assert_eq!(ctl.json(&["get", "tags", "acme/nginx/latest"])["digest"], format!("sha256:{}", "2".repeat(64)));
}

#[test]
fn an_ambiguous_document_is_refused_with_the_uids_and_nothing_is_changed() {
    let server = Server::start();
    let ctl = server.ctl();
    let create = || {
        let words = ["create", "identities", "--under", "acme", "--name", "ci", "--claim-match.issuer"];
        uid(&ctl.json(&[&words[..], &["https://issuer.example.com", "--claim-match.subject", "s"]].concat()))
    };
    let (a, b) = (create(), create());
    let text =
        "kind: Repo\nparent: acme\nfields: {name: nginx}\n---\nkind: Identity\nparent: acme\nfields: {name: ci}\n";
    let file = ctl.file("x.yaml", text);
    let error = ctl.fails(2, &["apply", "-f", &file]);
    assert!(error.contains(&a) && error.contains(&b) && error.contains("document 2"), "{error}");
    assert_eq!(ctl.ok(&["get", "repos", "-o", "name"]), "");
    let error = ctl.fails(2, &["get", "identities", "acme/ci"]);
    assert!(error.contains(&a) && error.contains(&b), "{error}");
}

#[test]
fn all_problems_of_all_documents_are_reported_before_anything_is_sent() {
    let server = Server::start();
    let ctl = server.ctl();
    let text = "
kind: Repo
parent: acme
fields: {name: 1.20}
---
kind: Repo
parent: acme
fields: {name: a, colour: red}
---
kind: Repo
parent: acme/missing
fields: {name: b}
---
kind: Repo
parent: acme
fields: {name: fine}
---
kind: Repo
parent: acme
fields: {name: fine}
---
kind: RoleBinding
parent: acme
fields: {identityUid: acme/nobody, roleUid: viewer}
";
    let error = ctl.fails(2, &["apply", "-f", &ctl.file("x.yaml", text)]);
    for problem in [
        "document 1: invalid repo\n    name: must be a string: quote it",
        "colour: unknown field",
        "document 3: there is no group acme/missing",
        "document 5: describes the same repo as",
        "document 6: identityUid: there is no identity acme/nobody",
    ] {
        assert!(error.contains(problem), "{problem}: {error}");
    }
    assert_eq!(ctl.ok(&["get", "repos", "-o", "name"]), "");
    assert!(ctl.fails(2, &["apply", "-f", "missing.yaml"]).contains("missing.yaml"));
}

fn repos(names: &[&str]) -> String {
    let document = |name: &&str| format!("---\nkind: Repo\nparent: acme\nfields: {{name: {name}}}\n");
    names.iter().map(document).collect()
}

fn names_of(ctl: &Ctl) -> String {
    ctl.ok(&["get", "repos", "--order-by", "name", "-o", "jsonpath=$.name"]).replace('\n', " ")
}

#[test]
fn prune_deletes_only_what_the_set_has_created_after_showing_it() {
    let server = Server::start();
    let ctl = server.ctl();
    // The set describes a resource that it has not created.
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "theirs"]);
    let file = ctl.file("x.yaml", &repos(&["a", "b", "c", "theirs"]));
    ctl.ok(&["apply", "-f", &file, "--set", "web"]);
    ctl.ok(&["apply", "-f", &ctl.file("y.yaml", &repos(&["d"])), "--set", "other"]);
    let file = ctl.file("x.yaml", &repos(&["a"]));

    ctl.ok(&["apply", "-f", &file, "--set", "web"]);
    assert_eq!(names_of(&ctl), "a b c d theirs ");
    let shown = ctl.run(&["apply", "-f", &file, "--set", "web", "--prune", "--dry-run"]).out;
    assert!(shown.contains("delete Repo acme/b (") && shown.contains("delete Repo acme/c ("), "{shown}");
    assert!(!shown.contains("theirs") && !shown.contains("acme/d"), "{shown}");
    // Nobody can be asked here.
    ctl.fails(2, &["apply", "-f", &file, "--set", "web", "--prune"]);
    assert_eq!(names_of(&ctl), "a b c d theirs ");

    // Somebody else deletes one of them.
    ctl.ok(&["delete", "repos", "acme/b"]);
    let pruned = ctl.run(&["apply", "-f", &file, "--set", "web", "--prune", "--yes"]);
    assert!(pruned.code == 0 && pruned.out.ends_with("0 created, 0 updated, 1 deleted, 1 unchanged\n"), "{pruned:?}");
    assert_eq!(names_of(&ctl), "a d theirs ");
    let again = ctl.run(&["apply", "-f", &file, "--set", "web", "--prune"]);
    assert_eq!(again.out, "0 created, 0 updated, 0 deleted, 1 unchanged\n");
    assert!(ctl.fails(2, &["apply", "-f", &file, "--prune"]).contains("--set"));
}

#[test]
fn prune_deletes_children_before_their_parents() {
    let server = Server::start();
    let ctl = server.ctl();
    let team =
        "kind: Group\nparent: acme\nfields: {name: team}\n---\nkind: Repo\nparent: acme/team\nfields: {name: a}\n";
    ctl.ok(&["apply", "-f", &ctl.file("x.yaml", team), "--set", "web"]);
    let rest = ctl.file("x.yaml", &repos(&["z"]));
    ctl.ok(&["apply", "-f", &rest, "--set", "web", "--prune", "--yes"]);
    assert_eq!(names_of(&ctl), "z ");
    ctl.fails(3, &["get", "groups", "acme/team"]);
}

#[test]
fn documents_come_from_standard_input_and_directories() {
    let server = Server::start();
    let ctl = server.ctl();
    let applied = ctl.run_with(&["apply", "-f", "-"], &repos(&["a"]));
    assert_eq!(applied.code, 0, "{applied:?}");
    std::fs::create_dir(ctl.home.path().join("folder")).unwrap();
    ctl.file("folder/b.yml", &repos(&["b"]));
    ctl.file("folder/c.json", r#"{"kind": "Repo", "parent": "acme", "fields": {"name": "c"}}"#);
    ctl.file("folder/notes.txt", "not a document");
    ctl.ok(&["apply", "-f", "folder"]);
    assert_eq!(names_of(&ctl), "a b c ");
}

#[test]
fn a_dry_run_of_the_server_reports_what_only_the_server_knows_and_changes_nothing() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "team"]);
    let document = |name: &str| format!("kind: Repo\nparent: acme/team\nfields: {{name: {name}}}\n");
    let good = ctl.file("good.yaml", &document("nginx"));
    let planned = ctl.ok(&["apply", "-f", &good, "--dry-run=server"]);
    assert!(planned.ends_with("would change 1 and delete 0; 0 unchanged\n"), "{planned}");
    let bad = ctl.file("bad.yaml", &format!("{}---\n{}", document("nginx"), document("Not Allowed!")));
    assert_eq!(ctl.run(&["apply", "-f", &bad, "--dry-run"]).code, 0, "only the server knows the pattern");
    let rejected = ctl.fails(1, &["apply", "-f", &bad, "--dry-run=server"]);
    assert!(rejected.contains("the server would reject this\n"), "{rejected}");
    assert!(rejected.contains("bad.yaml, document 2: ") && rejected.contains("name: name must match"), "{rejected}");
    assert_eq!(ctl.ok(&["get", "repos", "-o", "name"]), "");
    // What depends on a resource that does not exist yet cannot be checked.
    let planned = ctl.ok(&[
        "apply",
        "-f",
        &ctl.file("team.yaml", &TEAM.replace("name: team", "name: other")),
        "--dry-run=server",
    ]);
    assert!(planned.contains(" not checked, because they depend on what does not exist yet\n"), "{planned}");
    ctl.fails(2, &["apply", "-f", &good, "--dry-run=nowhere"]);
}
