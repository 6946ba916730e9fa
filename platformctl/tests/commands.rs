//! Names, lists, waiting, access, contexts, errors and generated files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-core/tests/kinds/snapshot.rs"]
mod snapshot;
mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    thread,
};

use platform_core::{iam::Iam, resources::advisory::VulnerabilityMetadata};
use platform_engine::{access::Caller, uid::Uid};
use serde_json::{Value, json};
use support::{Ctl, OPERATOR, ORG, Server, mode, uid};

/// Creates an identity in the organization and returns its uid.
fn identity(ctl: &Ctl, name: &str) -> String {
    let words = ["create", "identities", "--under", "acme", "--name", name, "--claim-match.issuer"];
    uid(&ctl.json(&[&words[..], &["https://issuer.example.com", "--claim-match.subject", name]].concat()))
}

#[test]
fn a_resource_is_named_by_uid_path_or_name() {
    let server = Server::start();
    let ctl = server.ctl();
    let team = uid(&ctl.json(&["create", "groups", "--under", "acme", "--name", "team"]));
    let repo = uid(&ctl.json(&["create", "repos", "--under", "acme/team", "--name", "nginx"]));
    assert!(repo.starts_with(&team) && team.starts_with(ORG));
    for name in [&repo, "acme/team/nginx", "/acme/team/nginx", "nginx"] {
        assert_eq!(uid(&ctl.json(&["get", "repos", name])), repo, "{name}");
    }
    assert_eq!(uid(&ctl.json(&["get", "groups", "acme"])), ORG);
    assert!(ctl.fails(3, &["get", "repos", "acme/nginx"]).contains("there is no repo acme/nginx"));
    assert!(ctl.fails(3, &["get", "repos", "acme/nothing/nginx"]).contains("there is no group acme/nothing"));
    assert!(ctl.fails(2, &["get", "role-bindings", "x"]).contains("have no names"));
    let other = uid(&ctl.json(&["create", "repos", "--under", "acme", "--name", "nginx"]));
    let error = ctl.fails(2, &["delete", "repos", "nginx"]);
    assert!(error.contains(&repo) && error.contains(&other), "{error}");
}

#[test]
fn a_list_has_the_filters_and_orders_of_its_kind_and_reads_all_pages() {
    let server = Server::start();
    let ctl = server.ctl();
    let text: String =
        (0..250).map(|n| format!("---\nkind: Repo\nparent: acme\nfields: {{name: r{n:03}}}\n")).collect();
    ctl.ok(&["apply", "-f", &ctl.file("x.yaml", &text)]);
    let lines = |words: &[&str]| ctl.ok(&[&["get", "repos", "-o", "jsonpath=$.name"], words].concat());
    assert_eq!(lines(&["--all"]).lines().count(), 250);
    assert_eq!(lines(&["--limit", "220"]).lines().count(), 220);
    assert_eq!(lines(&["--order-by", "name desc", "--limit", "2", "--skip", "1"]), "r248\nr247\n");
    assert_eq!(lines(&["--name", "r007"]), "r007\n");
    let first = ctl.run(&["list", "repos", "--under", "acme", "-o", "name"]);
    assert_eq!(first.out.lines().count(), 50);
    assert_eq!(first.err, "50 of 250 shown; --all reads all, and --limit or --skip others\n");
    assert_eq!(ctl.json(&["get", "repos", "--all"])["repos"].as_array().unwrap().len(), 250);
    assert!(ctl.fails(2, &["get", "repos", "--order-by", "colour"]).contains("colour"));
    let table = ctl.ok(&["get", "repos", "--order-by", "name", "--limit", "1"]);
    assert!(table.starts_with("NAME") && table.contains("r000") && table.lines().count() == 2, "{table}");
}

#[test]
fn a_list_is_filtered_by_any_field_and_by_parts_of_names() {
    let server = Server::start();
    let ctl = server.ctl();
    for name in ["nginx", "nginx-fips", "redis"] {
        ctl.ok(&["create", "repos", "--under", "acme", "--name", name, "--description", &format!("the {name}")]);
    }
    let lines =
        |words: &[&str]| ctl.ok(&[&["get", "repos", "-o", "jsonpath=$.name", "--order-by", "name"], words].concat());
    assert_eq!(lines(&["ngi*"]), "nginx\nnginx-fips\n");
    assert_eq!(lines(&["*fips", "redis"]), "nginx-fips\nredis\n");
    assert_eq!(lines(&["*i*", "--filter", "description = \"the r*\" OR name = nginx"]), "nginx\nredis\n");
    assert_eq!(lines(&["--filter", "NOT name:*fips AND description:*", "--under", "acme"]), "nginx\nredis\n");
    let error = ctl.fails(1, &["get", "repos", "--filter", "nam = x"]);
    assert!(error.contains("filter: must not compare `nam`"), "{error}");
    assert!(ctl.fails(2, &["get", "repos", "acme/ngi*"]).contains("--under"));
    assert!(ctl.fails(2, &["get", "repos", "nginx", "--filter", "name:*"]).contains("--filter is for lists"));
    assert!(ctl.fails(2, &["get", "role-bindings", "x*"]).contains("have no names; use --filter"));
}

#[test]
fn a_filter_by_a_reference_accepts_its_name() {
    let server = Server::start();
    let ctl = server.ctl();
    let ci = identity(&ctl, "ci");
    ctl.ok(&["create", "role-bindings", "--under", "acme", "--identity-uid", "acme/ci", "--role-uid", "viewer"]);
    let bindings = ctl.json(&["get", "role-bindings", "--identity", "acme/ci"]);
    assert_eq!(bindings["roleBindings"][0]["identity"]["uid"], ci);
    assert_eq!(ctl.ok(&["get", "role-bindings", "--role", "editor", "-o", "name"]), "");
}

#[test]
fn wait_returns_when_the_condition_holds_and_times_out_otherwise() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "nginx", "--description", "a"]);
    ctl.ok(&["wait", "repos", "acme/nginx"]);
    ctl.ok(&["wait", "repos", "acme/nginx", "--for", "description=a"]);
    let fast = ["--timeout", "30ms", "--interval", "10ms"];
    let words = |condition: &'static str| [&["wait", "repos", "acme/nginx", "--for", condition][..], &fast].concat();
    assert!(ctl.fails(5, &words("description=b")).contains("not description=b within 30ms"));
    ctl.fails(5, &words("deleted"));
    ctl.ok(&["delete", "repos", "acme/nginx"]);
    ctl.ok(&words("deleted"));
    ctl.fails(5, &words("exists"));
}

#[test]
fn find_finds_resources_of_all_kinds_by_a_part_of_a_name_or_by_a_uid() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "payments"]);
    ctl.ok(&["create", "repos", "--under", "acme/payments", "--name", "payments-api"]);
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "other"]);
    let found = ctl.ok(&["find", "PAYM"]);
    let rows: Vec<Vec<_>> = found.lines().map(|line| line.split_whitespace().collect()).collect();
    let named: Vec<_> = rows.iter().map(|row| row[..2].to_vec()).collect();
    assert_eq!(named, [["groups", "acme/payments"], ["repos", "acme/payments/payments-api"]], "{found}");
    assert_eq!(ctl.ok(&["find", rows[1][2]]).split_whitespace().next(), Some("repos"));
    assert!(ctl.fails(3, &["find", "nowhere"]).contains("nothing that you may see has nowhere in its name"));
}

#[test]
fn find_finds_persons_by_email_address_and_vulnerabilities_by_identifier() {
    let ada = Uid::from_digest([7; 20]);
    let server = Server::start_with(async |platform| {
        let iam = Iam::of(platform);
        iam.register_person(&ada, "https://issuer.example.com", "ada", Some("ada@example.com")).await.unwrap();
        let entry = VulnerabilityMetadata { id: "CVE-2026-1234".to_owned(), ..VulnerabilityMetadata::default() };
        platform.put(&Caller::new(Uid::parse(OPERATOR).unwrap()), "", vec![entry]).await.unwrap();
    });
    let ctl = server.ctl();
    let invite = ["create", "group-invites", "--under", "acme", "--role-uid", "viewer", "--ttl", "3600s"];
    ctl.ok(&[&invite[..], &["--email", "lin@example.com"]].concat());
    for (text, kind, shown) in [
        ("ada@EXAMPLE.com", "identities", &*ada),
        ("ada@exam", "identities", &*ada),
        ("lin@", "group-invites", "lin@example.com"),
        ("cve-2026-1234", "vulnerability-metadata", "CVE-2026-1234"),
        ("CVE-2026-12", "vulnerability-metadata", "CVE-2026-1234"),
    ] {
        let found = ctl.ok(&["find", text]);
        let row = found.lines().find(|line| line.starts_with(kind)).unwrap_or_else(|| panic!("{text}: {found}"));
        assert!(row.contains(shown), "{text}: {found}");
    }
}

#[test]
fn an_update_or_delete_with_a_tag_fails_when_the_resource_has_changed() {
    let server = Server::start();
    let ctl = server.ctl();
    ctl.ok(&["create", "repos", "--under", "acme", "--name", "nginx"]);
    let tag = || ctl.ok(&["get", "repos", "acme/nginx", "--etag"]).trim().to_owned();
    let first = tag();
    let update = ["update", "repos", "acme/nginx", "--if-match"];
    ctl.ok(&[&update[..], &[&first, "--description", "one"]].concat());
    assert_ne!(tag(), first);
    // Also where nothing would change.
    for to in ["one", "two"] {
        assert!(ctl.fails(7, &[&update[..], &[&first, "--description", to]].concat()).contains(&first));
    }
    assert_eq!(ctl.json(&["get", "repos", "acme/nginx"])["description"], "one");
    let delete = ["delete", "repos", "acme/nginx", "--if-match"];
    assert!(ctl.fails(7, &[&delete[..], &[&first]].concat()).contains("ETAG_MISMATCH"));
    ctl.fails(2, &["delete", "repos", "acme/nginx", "acme/other", "--if-match", &first]);
    ctl.fails(2, &["get", "repos", "--etag"]);
    ctl.ok(&[&delete[..], &[&tag()]].concat());
    ctl.fails(3, &["get", "repos", "acme/nginx"]);
}

#[test]
fn can_i_answers_by_the_capabilities_at_the_place() {
    let server = Server::start();
    let ctl = server.ctl();
    let ci = identity(&ctl, "ci");
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "team"]);
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "other"]);
    ctl.ok(&["create", "repos", "--under", "acme/team", "--name", "nginx"]);
    ctl.ok(&["create", "role-bindings", "--under", "acme/team", "--identity-uid", &ci, "--role-uid", "viewer"]);
    let (team, other) = (ctl.json(&["get", "groups", "acme/team"]), ctl.json(&["get", "groups", "acme/other"]));
    let ci = Ctl::new().env("PLATFORM_API", &server.url).env("PLATFORM_TOKEN", &server.token_of(&ci));
    let (team, other) = (uid(&team), uid(&other));
    for (words, code) in [
        (vec!["can-i", "list", "repos", "--under", "team"], 0),
        (vec!["can-i", "list", "repos", "--under", &team], 0),
        (vec!["can-i", "list", "repos"], 0),
        (vec!["can-i", "repo.list", "--under", &team], 0),
        (vec!["can-i", "CAP_REPO_LIST", "--under", &team], 0),
        (vec!["can-i", "repo.list", "--under", "team/nginx"], 0),
        (vec!["can-i", "tag.create", "--under", "team/nginx"], 1),
        (vec!["can-i", "repo.list", "--under", "team/missing"], 3),
        (vec!["can-i", "create", "repos", "--under", &team], 1),
        (vec!["can-i", "list", "repos", "--under", &other], 1),
        (vec!["can-i", "resume-delivery", "delivery-statuses"], 1),
        (vec!["can-i", "ping", "ping"], 0),
        (vec!["can-i", "delete", "ping"], 2),
        (vec!["can-i", "list"], 2),
    ] {
        let answer = ci.run(&words);
        assert_eq!(answer.code, code, "{words:?}: {answer:?}");
        let says = ["yes\n", "no\n"].get(usize::try_from(code).unwrap()).unwrap_or(&"");
        assert_eq!(answer.out, *says, "{words:?}");
    }
    let why = ctl.run(&["can-i", "list", "repos", "--under", &team, "--why"]);
    assert!(why.code == 0 && why.out.starts_with("yes\nrepo.list: role owner at acme (binding "), "{why:?}");
    let why = ci.run(&["can-i", "list", "repos", "--under", &team, "--why"]);
    assert!(why.code == 0 && why.out.starts_with("yes\nrepo.list: role viewer at team (binding "), "{why:?}");
    let why = ci.run(&["can-i", "create", "repos", "--under", &team, "--why"]);
    assert!(
        why.code == 1 && why.out.starts_with("no\nrepo.create: no role binding that you may list gives it there\n")
    );
    assert!(
        why.out.contains("  role viewer at team (binding ") && why.out.contains("the role does not have repo.create")
    );
    for words in [["can-i", "create", "repos"], ["can-i", "delete", "groups"]] {
        assert_eq!(ctl.run(&words).code, 0, "{words:?}");
    }
}

#[test]
fn can_i_answers_for_another_identity_and_says_why_not() {
    let server = Server::start();
    let ctl = server.ctl();
    let robot = identity(&ctl, "robot");
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "team"]);
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "other"]);
    ctl.ok(&["create", "role-bindings", "--under", "acme/team", "--identity-uid", &robot, "--role-uid", "viewer"]);
    let ask = |method: &str, under: &str| {
        let answer = ctl.run(&["can-i", method, "repos", "--under", under, "--identity", "acme/robot", "--why"]);
        (answer.code, answer.out)
    };
    let (code, out) = ask("list", "acme/team");
    assert!(code == 0 && out.starts_with("yes\nrepo.list: role viewer at team (binding "), "{out}");
    ctl.ok(&["create", "repos", "--under", "acme/team", "--name", "nginx"]);
    assert_eq!(ask("get", "acme/team/nginx").0, 0, "a resource is named by its path");
    let (code, out) = ask("delete", "acme/team");
    let lines: Vec<_> = out.lines().collect();
    assert!(code == 1 && lines.len() == 4, "{out}");
    assert_eq!(lines[..2], ["no", "repo.delete: no role binding that you may list gives it there"]);
    assert!(lines[2].starts_with("  role viewer at team (binding "), "{out}");
    assert!(lines[2].ends_with("): the role does not have repo.delete"), "{out}");
    assert!(lines[3].starts_with("  roles that have repo.delete: ") && lines[3].contains("owner"), "{out}");
    let (code, out) = ask("list", "acme/other");
    assert!(code == 1 && out.contains("): the place is not in that group\n"), "{out}");

    // Who may not list role bindings gets no answer about others.
    let robot = Ctl::new().env("PLATFORM_API", &server.url).env("PLATFORM_TOKEN", &server.token_of(&robot));
    let answer = robot.run(&["can-i", "repo.delete", "--under", ORG, "--identity", OPERATOR]);
    assert_eq!(
        (answer.code, &*answer.out),
        (1, "unknown: you may not list all role bindings that count there\n"),
        "{answer:?}"
    );
    ctl.fails(2, &["can-i", "list", "repos", "--identity", "robot"]);
    ctl.fails(3, &["can-i", "list", "repos", "--under", "acme", "--identity", "nobody"]);
}

#[test]
fn login_stores_a_checked_token_in_a_file_of_its_owner_and_logout_removes_it() {
    let server = Server::start();
    let ctl = Ctl::new();
    assert!(ctl.fails(2, &["get", "repos"]).contains("run `login`"));
    let wrong = ctl.run_with(&["login", "--api", &server.url], "not a token\n");
    assert_eq!(wrong.code, 4, "{wrong:?}");
    let file = ctl.home.path().join(".config/platformctl/config.toml");
    assert!(!file.exists());

    let login = ctl.run_with(&["login", "--api", &server.url], &format!("{}\n", server.token));
    assert!(login.code == 0 && login.err.contains(OPERATOR) && !login.err.contains(&server.token), "{login:?}");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(uid(&ctl.json(&["get", "groups", "acme"])), ORG);

    let login = ["login", "--context", "again", "--api", &server.url, "--exchange", "--token", &server.token];
    let again = ctl.run(&login);
    assert_eq!(again.code, 0, "{again:?}");
    let contexts = ctl.ok(&["contexts"]);
    assert!(contexts.starts_with("* again ") && contexts.contains("\n  default "), "{contexts}");
    ctl.ok(&["contexts", "default"]);
    assert!(ctl.ok(&["contexts"]).contains("\n* default "));
    assert_eq!(uid(&ctl.json(&["get", "groups", "acme", "--context", "again"])), ORG);

    // The token of a context is for its server only.
    let log = answering(vec![(200, json!({ "groups": [] }))]);
    ctl.ok(&["get", "groups", "--api", &log.0]);
    assert!(!log.1.join().unwrap()[0].to_lowercase().contains("authorization"));

    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(ctl.fails(2, &["get", "groups"]).contains("chmod 600"));
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    ctl.ok(&["logout"]);
    ctl.ok(&["logout", "--context", "again"]);
    ctl.fails(2, &["logout"]);
    assert!(!std::fs::read_to_string(&file).unwrap().contains("token"));
}

#[test]
fn an_error_is_readable_and_has_an_exit_code() {
    let server = Server::start();
    let ctl = server.ctl();
    let error = ctl.fails(1, &["create", "repos", "--under", "acme", "--name", "Bad Name"]);
    let (head, request_id) = error.split_once("  request id: ").unwrap();
    let rule = "name: name must match \"^[a-z0-9 ._-]{1,}$\"";
    assert_eq!(head, format!("error: the server rejected the request [INVALID_ARGUMENT]\n  {rule}\n"));
    assert!(request_id.len() > 8, "{error}");
    assert!(ctl.fails(3, &["get", "repos", &format!("{ORG}/0000000000000000")]).contains("[NOT_FOUND]"));
    let nobody = server.ctl().env("PLATFORM_TOKEN", &server.token_of(&identity(&ctl, "ci")));
    assert!(nobody.fails(4, &["get", "repos", &format!("{ORG}/0000000000000000")]).contains("[PERMISSION_DENIED]"));
    let expired = server.ctl().env("PLATFORM_TOKEN", "x.y.z");
    assert!(expired.fails(4, &["get", "repos"]).contains("run `login` again"));
    ctl.ok(&["create", "groups", "--under", "acme", "--name", "team"]);
    ctl.ok(&["create", "repos", "--under", "acme/team", "--name", "nginx"]);
    let blocked = ctl.fails(1, &["delete", "groups", "acme/team"]);
    assert!(blocked.contains("RESOURCE_NOT_EMPTY: cannot delete group with child repos (1)\n"), "{blocked}");
    ctl.fails(2, &["get", "nothing"]);
    // An empty table says so, and nothing that a program would read.
    let empty = ctl.run(&["get", "role-bindings", "--under", "acme/team"]);
    assert_eq!((empty.code, empty.out.as_str(), empty.err.as_str()), (0, "", "no role bindings\n"));
    ctl.fails(2, &["create", "repos", "--name", "no parent"]);
    ctl.fails(2, &["create", "repos", "--under", "acme", "--json", "[]"]);
    let away = Ctl::new().env("PLATFORM_API", "http://127.0.0.1:1").env("PLATFORM_TOKEN", "t");
    assert!(away.fails(6, &["get", "repos", "--retry-for", "0s"]).contains("no reply from http://127.0.0.1:1"));
    let message = away.fails(2, &["get", "repos", "--api", "localhost:8080"]);
    assert!(message.contains("does not begin with http:// or https://: localhost:8080"), "{message}");
}

/// Serves one connection after another with these replies, and returns its URL and, at the end, the requests. A status
/// of zero closes the connection without a reply.
fn answering(replies: Vec<(u16, Value)>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = thread::spawn(move || {
        let mut requests = Vec::new();
        for (status, body) in replies {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut content = vec![0; length];
            reader.read_exact(&mut content).unwrap();
            requests.push(head + &String::from_utf8(content).unwrap());
            if status > 0 {
                let body = body.to_string();
                let length = body.len();
                let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        }
        requests
    });
    (url, requests)
}

fn error(reason: &str, more: &Value) -> Value {
    json!({ "message": reason, "details": [{ "reason": reason }, more] })
}

/// Runs a command against these replies, and returns its exit code and the number of requests.
fn against(replies: Vec<(u16, Value)>, words: &[&str]) -> (i32, usize) {
    let (url, requests) = answering(replies);
    let ctl = Ctl::new().env("PLATFORM_API", &url).env("PLATFORM_TOKEN", "t");
    let output = ctl.run(words);
    (output.code, requests.join().unwrap().len())
}

#[test]
fn requests_are_repeated_as_the_rules_for_retries_allow() {
    let uid = format!("{ORG}/0000000000000001");
    let (get, delete) = (["get", "repos", uid.as_str()], ["delete", "repos", uid.as_str()]);
    let create = ["create", "repos", "--under", ORG, "--name", "a"];
    let end = ["run", "sign-ins", "end-sign-ins"];
    let repo = || json!({ "uid": uid, "name": "a" });
    let wait = json!({ "retryDelay": "0.010s" });
    // A read is repeated when the server is unavailable or does not answer.
    assert_eq!(against(vec![(503, json!({})), (0, json!({})), (200, repo())], &get), (0, 3));
    // Nothing has changed, so an action is repeated too.
    assert_eq!(against(vec![(409, error("ABORTED", &wait)), (200, json!({}))], &end), (0, 2));
    assert_eq!(against(vec![(429, error("RESOURCE_EXHAUSTED", &wait)), (200, repo())], &create), (0, 2));
    // It is unknown what an unanswered action has done that takes no key.
    let test = ["run", "subscriptions", "send-test-event", "--uid", uid.as_str()];
    assert_eq!(against(vec![(0, json!({}))], &test), (6, 1));
    // The server carries out one attempt of a write with a key.
    for (words, reply) in [(&create[..], repo()), (&delete, json!({})), (&end, json!({}))] {
        let (url, requests) = answering(vec![(0, json!({})), (503, json!({})), (200, reply)]);
        Ctl::new().env("PLATFORM_API", &url).env("PLATFORM_TOKEN", "t").ok(words);
        let keys = requests.join().unwrap().into_iter().map(|request| {
            let key = request.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
            key.unwrap_or_else(|| panic!("no key: {request}")).to_owned()
        });
        let keys: Vec<_> = keys.collect();
        assert!(keys.len() == 3 && keys[0].len() == 32 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
    assert_eq!(against(vec![(404, error("NOT_FOUND", &json!({})))], &delete), (3, 1));
    assert_eq!(against(vec![(409, error("ALREADY_EXISTS", &json!({})))], &create), (1, 1));
}

#[test]
fn a_missing_kind_or_method_is_an_error_that_lists_each_in_one_spelling() {
    for (words, named, other) in [
        (&["get"][..], "role-bindings", "roleBindings"),
        (&["create"], "repos", "Repo"),
        (&["run"], "groups", "group"),
        (&["run", "groups"], "lookup-group", "LookupGroup"),
    ] {
        let error = Ctl::new().fails(2, words);
        let listed = error.split("[subcommands: ").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
        let names: Vec<_> = listed.split(", ").collect();
        assert!(names.contains(&named) && !names.contains(&other), "{words:?}: {listed}");
    }
}

#[test]
fn completions_and_man_pages_are_generated_without_a_server() {
    let ctl = Ctl::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = ctl.ok(&["completion", shell]);
        assert!(script.contains("role-bindings") && script.contains("order-by"), "{shell}");
    }
    ctl.fails(2, &["completion", "csh"]);
    assert!(ctl.ok(&["man"]).contains(".TH platformctl 1"));
    ctl.ok(&["man", "--to", "pages"]);
    let pages = std::fs::read_dir(ctl.home.path().join("pages")).unwrap().count();
    assert!(pages > 50, "{pages}");
}

#[test]
fn the_help_is_as_reviewed() {
    let ctl = Ctl::new();
    let mut help = String::new();
    for words in [&["--help"][..], &["get", "repos", "--help"], &["create", "roles", "--help"], &["apply", "--help"]] {
        help.push_str(&format!("$ platformctl {}\n{}\n", words.join(" "), ctl.ok(words)));
    }
    snapshot::assert_snapshot("tests/help.txt", help);
}
