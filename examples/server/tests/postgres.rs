//! Several server processes on one PostgreSQL database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod common;
#[path = "postgres/database.rs"]
mod database;
#[path = "events/receiver.rs"]
#[allow(dead_code, reason = "the tests of events use the rest")]
mod receiver;

use std::{
    collections::BTreeSet,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{
    Api, Server,
    audit::{created, entries, send_and_close},
};
use database::{Database, KEY, PUBLIC};
use platform_testkit::postgres::Cluster;
use receiver::Receiver;
use serde_json::{Value, json};
use tempfile::tempdir;

/// Another key-encryption key.
const OTHER_KEY: &str = "//79/Pv6+fj39vX08/Lx8O/u7ezr6uno5+bl5OPi4eA=";

fn uid(made: &Value) -> String {
    made["uid"].as_str().unwrap().to_owned()
}

#[test]
fn a_database_that_its_provider_set_to_read_only_is_served() {
    let Some(mut database) = Database::migrated("provider") else { return };
    drop(database.start(&[]));
    let (organization, token) = database.operator();
    let writable = database.url.clone();
    database.url = writable.replacen("options=", "options=-cdefault_transaction_read_only%3Don%20", 1);
    let server = database.start(&["--store-connections", "8"]);
    let api = Api::new(&server.url, &token);
    api.get(&format!("/iam/v2/groups/{organization}")).ok();
    let group = json!({ "name": "group" });
    let refused = api.post(&format!("/iam/v2/groups/{organization}"), &group).error(429);
    assert_eq!(refused["code"], 8, "RESOURCE_EXHAUSTED: {refused}");
    for command in [&["check"][..], &["export", "--to", "all.jsonl"], &["migrate", "--dry-run"]] {
        database.run(command).ok();
    }
}

#[test]
fn metrics_have_the_sizes_of_groups_of_commits() {
    let Some(database) = Database::migrated("metrics") else { return };
    let server = database.start(&["--metrics-listen", "127.0.0.1:0"]);
    let log = server.log();
    let (_, address) = log.split_once("serving metrics address=").unwrap();
    let metrics = Api::new(&format!("http://{}", address.split_whitespace().next().unwrap()), "");
    let count = || {
        let text = metrics.get("/metrics").text;
        let value = text.lines().find_map(|line| line.strip_prefix("platform_store_group_commits_count "));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or_default()
    };
    let before = count();
    let (organization, token) = database.operator();
    let path = format!("/registry/v2/repos/{organization}");
    Api::new(&server.url, &token).post(&path, &json!({ "name": "one" })).ok();
    assert!(count() > before);
}

#[test]
fn a_server_that_does_not_fit_the_database_does_not_start_and_says_what_to_do() {
    let Some(database) = Database::empty("refused") else { return };
    let refused = |command: &mut Command| match Server::of(command) {
        Err(ran) => ran.failed(),
        Ok(_) => panic!("the server has started"),
    };
    let error = refused(&mut database.serve(&[]));
    assert!(error.contains("run `platform-server migrate`"), "{error}");
    let layout = |arguments: &[&str]| database.run(arguments).ok();
    let empty = "is empty; this release has layout 1\n";
    assert!(layout(&["migrate", "--dry-run"]).contains(&format!("{empty}would run: layout 1: ")));
    assert!(layout(&["migrate"]).contains(&format!("{empty}done: layout 1: ")));
    assert!(layout(&["migrate"]).ends_with("has layout 1, that of this release\n"));
    assert!(layout(&["migrate", "--dry-run"]).ends_with("has layout 1, that of this release\n"));
    let error = database.run(&["env"]).failed();
    assert!(error.contains("no installation in this database"), "{error}");
    let error = refused(database.serve(&[]).env_remove("PLATFORM_KEY_ENCRYPTION_KEY"));
    assert!(error.contains("openssl rand -base64 32"), "{error}");
    let error = refused(&mut database.command(&["serve", "--listen", "127.0.0.1:0"]));
    assert!(error.contains("--public-url"), "{error}");

    let _server = database.start(&[]);
    let error = refused(database.serve(&[]).env("PLATFORM_KEY_ENCRYPTION_KEY", OTHER_KEY));
    assert!(error.contains("does not open with this key-encryption key"), "{error}");
    let error = refused(&mut database.serve(&["--operator", "00000000000000000000000000000000000000aa"]));
    assert!(error.contains("--operator is"), "{error}");
    // The issuer of tokens: each server would reject those of the others.
    let mut moved = database.command(&["serve", "--listen", "127.0.0.1:0", "--public-url", "http://other.test"]);
    let error = refused(&mut moved);
    assert!(
        error.contains(&format!("--public-url is `http://other.test` here and `{PUBLIC}` on the other")),
        "{error}"
    );
    let error = refused(database.serve(&[]).env("PLATFORM_SERVICE_DOMAIN", "other.test"));
    assert!(error.contains("--service-domain is `other.test` here"), "{error}");
    // The keys are not in the database in the clear, and the URL's password is in no message.
    assert!(!error.contains(KEY));
}

#[test]
fn the_url_of_an_installation_changes_when_the_first_server_replaces_it_and_the_others_follow() {
    let Some(database) = Database::migrated("moved") else { return };
    database.start(&[]).kill();
    let (_, token) = database.operator();
    let serve = |url: &str| database.command(&["serve", "--listen", "127.0.0.1:0", "--public-url", url]);
    let started = |command: &mut Command| match Server::of(command) {
        Ok(server) => server,
        Err(ran) => panic!("the server does not start: {ran:?}"),
    };
    let one = started(serve("http://moved.test").arg("--replace-settings"));
    let two = started(&mut serve("http://moved.test"));
    let error = match Server::of(&mut serve(PUBLIC)) {
        Err(ran) => ran.failed(),
        Ok(_) => panic!("the server has started"),
    };
    assert!(error.contains(&format!("--public-url is `{PUBLIC}` here and `http://moved.test`")), "{error}");
    let lines = database.run(&["env"]).ok();
    let new = lines.lines().find_map(|line| line.strip_prefix("export TOKEN=")).unwrap();
    for server in [&one, &two] {
        // The issuer of tokens is the URL.
        Api::new(&server.url, new).get("/iam/v2/groups").ok();
        Api::new(&server.url, &token).get("/iam/v2/groups").error(401);
    }
}

#[test]
fn a_second_server_of_the_same_name_does_not_start_and_a_restarted_one_does() {
    let Some(database) = Database::migrated("named") else { return };
    let one = database.start(&["--instance", "one"]);
    let _other = database.start(&["--instance", "two"]);
    let error = match Server::of(&mut database.serve(&["--instance", "one"])) {
        Err(ran) => ran.failed(),
        Ok(_) => panic!("the server has started"),
    };
    assert!(error.contains("another server runs under the name `one`"), "{error}");
    one.kill();
    let _again = database.start(&["--instance", "one"]);
}

#[test]
fn two_servers_that_start_at_once_are_one_installation() {
    let Some(database) = Database::migrated("one") else { return };
    let (one, two) = thread::scope(|scope| {
        let start = || database.start(&[]);
        let (one, two) = (scope.spawn(start), scope.spawn(start));
        (one.join().unwrap(), two.join().unwrap())
    });
    let (organization, token) = database.operator();
    let (one, two) = (Api::new(&one.url, &token), Api::new(&two.url, &token));
    let groups = one.get("/iam/v2/groups").ok();
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "one organization: {groups}");
    assert_eq!(two.get("/iam/v2/groups").ok(), groups);

    let repos = format!("/registry/v2/repos?uidp.descendants_of={organization}&page_size=1");
    let mut made = Vec::new();
    for (number, api) in [&one, &two, &one, &two].into_iter().enumerate() {
        let body = json!({ "name": format!("repo {number}") });
        made.push(uid(&api.post(&format!("/registry/v2/repos/{organization}"), &body).ok()));
    }
    // A page token of one server continues on the other.
    let (mut page, mut seen) = (one.get(&repos).ok(), Vec::new());
    for api in [&two, &one, &two, &one] {
        seen.push(uid(&page["repos"][0]));
        let Some(next) = page["nextPageToken"].as_str().filter(|next| !next.is_empty()) else { break };
        page = api.get(&format!("{repos}&page_token={next}")).ok();
    }
    made.sort();
    seen.sort();
    assert_eq!(seen, made);
    // A token is verified by both, and after a rotation too.
    database.run(&["keys", "rotate"]).ok();
    let rotated = database.run(&["keys", "list"]).ok();
    assert!(rotated.contains("signing  next") && rotated.contains("signing  in use"), "{rotated}");
    let (_, token) = database.operator();
    for api in [&one, &two] {
        api.get("/iam/v2/groups").ok();
        api.with_token(&token).get("/iam/v2/groups").ok();
    }
    assert!(database.run(&["check"]).ok().is_empty());
}

#[test]
fn a_revocation_on_one_server_holds_at_once_on_the_other() {
    let Some(database) = Database::migrated("revoked") else { return };
    let servers = [database.start(&[]), database.start(&[])];
    let (organization, token) = database.operator();
    let [one, two] = servers.each_ref().map(|server| Api::new(&server.url, &token));
    let repo = uid(&one.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "repo" })).ok());
    let claims = json!({ "issuer": "https://issuer.test", "subject": "s" });
    let body = json!({ "name": "robot", "claimMatch": claims });
    let robot = uid(&one.post(&format!("/iam/v2/identities/{organization}"), &body).ok());
    let viewer = uid(&one.get("/iam/v2/roles?name=viewer").ok()["roles"][0]);
    let robot_token = database.run(&["token", "--identity", &robot]).ok();
    for round in 0..30 {
        let (granting, other) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let robot_at = other.with_token(robot_token.trim());
        let body = json!({ "identityUid": robot, "roleUid": viewer });
        let binding = uid(&granting.post(&format!("/iam/v2/roleBindings/{organization}"), &body).ok());
        robot_at.get(&format!("/registry/v2/repos/{repo}")).ok();
        assert_eq!(granting.delete(&format!("/iam/v2/roleBindings/{binding}")).status, 200);
        robot_at.get(&format!("/registry/v2/repos/{repo}")).error(403);
    }
}

#[test]
fn a_revocation_of_tokens_on_one_server_holds_at_once_on_the_other() {
    let Some(database) = Database::migrated("revoked_tokens") else { return };
    let servers = [database.start(&[]), database.start(&[])];
    let (organization, token) = database.operator();
    let [one, two] = servers.each_ref().map(|server| Api::new(&server.url, &token));
    let viewer = uid(&one.get("/iam/v2/roles?name=viewer").ok()["roles"][0]);
    for round in 0..10 {
        let (revoking, other) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let claims = json!({ "issuer": "https://issuer.test", "subject": format!("s{round}") });
        let body = json!({ "name": "robot", "claimMatch": claims });
        let robot = uid(&one.post(&format!("/iam/v2/identities/{organization}"), &body).ok());
        let body = json!({ "identityUid": robot, "roleUid": viewer });
        one.post(&format!("/iam/v2/roleBindings/{organization}"), &body).ok();
        let robot_at = other.with_token(database.run(&["token", "--identity", &robot]).ok().trim());
        let group = format!("/iam/v2/groups/{organization}");
        robot_at.get(&group).ok();
        revoking.post(&format!("/iam/v2/identities/{robot}:revokeTokens"), &json!({})).ok();
        robot_at.get(&group).error(401);
    }
}

#[test]
fn a_sign_out_at_one_server_ends_the_session_at_once_at_the_other() {
    let Some(database) = Database::migrated("sign_out") else { return };
    let servers = [database.start(&[]), database.start(&[])];
    let (_, token) = database.operator();
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let step = |server: &Server, step: &str, header: &str, value: &str| {
        let request = agent.post(format!("{}/console/session", server.url)).header("x-console-session", step);
        let page = request.header("host", "platform.test").header("origin", PUBLIC);
        let mut reply = page.header(header, value).send_empty().unwrap();
        assert_eq!(reply.status(), 200, "{step}: {:?}", reply.body_mut().read_to_string());
        reply
    };
    let renewed = |server: &Server, cookie: &str| -> Value {
        serde_json::from_str(&step(server, "renew", "cookie", cookie).body_mut().read_to_string().unwrap()).unwrap()
    };
    for (signing_out, other) in [(&servers[0], &servers[1]), (&servers[1], &servers[0])] {
        let started = step(other, "start", "authorization", &format!("Bearer {token}"));
        let cookie = started.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        assert_ne!(renewed(other, &cookie)["token"], "");
        assert_ne!(renewed(signing_out, &cookie)["token"], "");
        step(signing_out, "end", "cookie", &cookie);
        assert_eq!(renewed(other, &cookie)["token"], "");
    }
}

#[test]
fn each_change_of_a_client_that_closes_its_connection_has_an_entry() {
    let Some(database) = Database::migrated("closed") else { return };
    let server = database.start(&["--audit-log", "audit.log"]);
    let (organization, token) = database.operator();
    let api = Api::new(&server.url, &token);
    for number in 0..100 {
        let repo = json!({ "name": format!("repo-{number}") });
        send_and_close(&api, &format!("/registry/v2/repos/{organization}"), &repo, number / 2);
    }
    // The server stops once the changes that it has begun are made.
    server.terminate();
    server.wait();
    let audited = created(&entries(&database.path().join("audit.log")));
    assert!(!audited.is_empty());
    let server = database.start(&[]);
    let page = Api::new(&server.url, &token).get("/registry/v2/repos?page_size=200").ok();
    assert_eq!(page["repos"].as_array().unwrap().iter().map(uid).collect::<BTreeSet<_>>(), audited);
}

#[test]
fn a_quota_is_exact_when_two_servers_create_at_once_and_their_audit_logs_have_every_create() {
    let Some(database) = Database::migrated("quotas") else { return };
    let logs = ["one.log", "two.log"];
    let servers = logs.map(|log| database.start(&["--audit-log", log]));
    let (organization, token) = database.operator();
    let apis = servers.each_ref().map(|server| Api::new(&server.url, &token));
    database.run(&["quota", "set", &organization, "Repo", "10", "--api", &apis[0].url]).ok();
    let path = format!("/registry/v2/repos/{organization}");
    let replies: Vec<_> = thread::scope(|scope| {
        let create = |number: usize| {
            let (api, path) = (&apis[number % 2], &path);
            scope.spawn(move || api.post(path, &json!({ "name": format!("repo-{number}") })))
        };
        let creating: Vec<_> = (0..64).map(create).collect();
        creating.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let created = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(created, 10, "{replies:?}");
    for refused in replies.iter().filter(|reply| reply.status != 200) {
        let error = refused.error(429);
        let details = error["details"].as_array().unwrap();
        assert!(
            details.iter().any(|detail| detail["@type"] == "type.googleapis.com/google.rpc.QuotaFailure"),
            "{error}"
        );
    }
    // A quota of none, set on the other server, holds at once here.
    database.run(&["quota", "set", &organization, "Tag", "0", "--api", &apis[1].url]).ok();
    let repo = uid(&apis[0].get("/registry/v2/repos?page_size=1").ok()["repos"][0]);
    let digest = format!("sha256:{}", "a".repeat(64));
    apis[0].post(&format!("/registry/v2/tags/{repo}"), &json!({ "name": "latest", "digest": digest })).error(429);
    let parts = logs.iter().flat_map(|log| [log.to_string(), format!("{log}.failed")]);
    let lines: String = parts.map(|log| std::fs::read_to_string(database.path().join(log)).unwrap()).collect();
    let entries = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let creates: Vec<_> = entries.filter(|entry| entry["method"] == "ReposService.CreateRepo").collect();
    let with_code = |code: &str| creates.iter().filter(|entry| entry["code"] == code).count();
    assert_eq!((with_code("OK"), with_code("RESOURCE_EXHAUSTED")), (10, 54));
}

#[test]
fn what_a_killed_server_has_acknowledged_is_there() {
    let Some(database) = Database::migrated("killed") else { return };
    let survivor = database.start(&[]);
    let (organization, token) = database.operator();
    let repos = format!("/registry/v2/repos/{organization}");
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let victim = database.start(&[]);
        let url = victim.url.clone();
        let stopped = AtomicBool::new(false);
        let made: Vec<String> = thread::scope(|scope| {
            let writer = |number: usize, url: String| {
                let (repos, token, stopped) = (&repos, &token, &stopped);
                scope.spawn(move || {
                    let api = Api::new(&url, token);
                    let mut made = Vec::new();
                    while !stopped.load(Ordering::SeqCst) {
                        let name = format!("repo {round} {number} {}", made.len());
                        match api.try_send("POST", repos, Some(&json!({ "name": name }))) {
                            Some(response) if response.status == 200 => made.push(uid(&response.json())),
                            Some(response) => panic!("{response:?}"),
                            // The server was killed.
                            None => break,
                        }
                    }
                    made
                })
            };
            let writers: Vec<_> = (0..4)
                .map(|number| writer(number, if number < 3 { url.clone() } else { survivor.url.clone() }))
                .collect();
            thread::sleep(Duration::from_millis(700));
            victim.kill();
            thread::sleep(Duration::from_millis(300));
            stopped.store(true, Ordering::SeqCst);
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        acknowledged.extend(made);
    }
    let api = Api::new(&survivor.url, &token);
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    for repo in &acknowledged {
        api.get(&format!("/registry/v2/repos/{repo}")).ok();
    }
    assert!(database.run(&["check"]).ok().is_empty());
}

#[test]
fn an_event_that_one_server_records_is_delivered_while_the_others_are_killed() {
    let Some(database) = Database::migrated("events") else { return };
    let sinks = ["--allow-http-sinks", "--allow-private-sinks", "--sink-timeout", "2s"];
    let recording = database.start(&sinks);
    let (organization, token) = database.operator();
    let api = Api::new(&recording.url, &token);
    let receiver = Receiver::start();
    api.post(&format!("/events/v2/subscriptions/{organization}"), &json!({ "sink": receiver.url() })).ok();
    let mut expected = Vec::new();
    for round in 0..3 {
        let victim = database.start(&sinks);
        for number in 0..10 {
            let body = json!({ "name": format!("repo {round} {number}") });
            expected.push(uid(&api.post(&format!("/registry/v2/repos/{organization}"), &body).ok()));
        }
        victim.kill();
    }
    let started = Instant::now();
    let delivered =
        || -> Vec<String> { receiver.subjects().into_iter().filter(|subject| expected.contains(subject)).collect() };
    while delivered() != expected {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", delivered());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_is_not_ready_while_the_database_does_not_answer() {
    // A cluster of its own, which the other tests do not need.
    if Cluster::shared().is_none() {
        return;
    }
    let Ok(cluster) = Cluster::start_private("") else { return };
    let database = Database { url: cluster.url().to_owned(), dir: tempdir().unwrap() };
    database.run(&["migrate"]).ok();
    let server = database.start(&[]);
    let api = Api::new(&server.url, "");
    let wait_for = |status: u16| {
        let started = Instant::now();
        while api.get("/readyz").status != status {
            assert!(started.elapsed() < Duration::from_secs(60), "not {status}: {}", server.log());
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(api.get("/livez").status, 200, "a restart would not help");
    };
    wait_for(200);
    cluster.crash().unwrap();
    wait_for(503);
    cluster.restart().unwrap();
    wait_for(200);
    // The database answers, but not reads.
    let rename = |from, to| format!("ALTER TABLE {from} RENAME TO {to}");
    database.execute(&rename("record", "elsewhere"));
    wait_for(503);
    database.execute(&rename("elsewhere", "record"));
    wait_for(200);
    let (organization, token) = database.operator();
    let body = json!({ "name": "after" });
    api.with_token(&token).post(&format!("/registry/v2/repos/{organization}"), &body).ok();
}

/// The options of servers that deliver to the receivers of the tests.
const SINKS: [&str; 4] = ["--allow-http-sinks", "--allow-private-sinks", "--sink-timeout", "1s"];

/// Two servers and a subscription. The first server has delivered an event before the second started.
struct Delivering {
    servers: Vec<Server>,
    apis: Vec<Api>,
    organization: String,
    subscription: String,
    receiver: Receiver,
}

impl Delivering {
    fn start(database: &Database) -> Self {
        let first = database.start(&SINKS);
        let (organization, token) = database.operator();
        let api = Api::new(&first.url, &token);
        let receiver = Receiver::start();
        let body = json!({ "sink": receiver.url() });
        let subscription = uid(&api.post(&format!("/events/v2/subscriptions/{organization}"), &body).ok());
        let (servers, apis) = (vec![first], vec![api]);
        let mut delivering = Self { servers, apis, organization, subscription, receiver };
        delivering.deliver(0, "first");
        let second = database.start(&SINKS);
        delivering.apis.push(Api::new(&second.url, &token));
        delivering.servers.push(second);
        delivering
    }

    /// Makes a server record an event, and returns the time until the receiver has it.
    fn deliver(&self, server: usize, name: &str) -> Duration {
        let repos = format!("/registry/v2/repos/{}", self.organization);
        let repo = uid(&self.apis[server].post(&repos, &json!({ "name": name })).ok());
        let recorded = Instant::now();
        while !self.receiver.subjects().contains(&repo) {
            assert!(recorded.elapsed() < Duration::from_secs(60), "{name} is not delivered");
            thread::sleep(Duration::from_millis(1));
        }
        recorded.elapsed()
    }

    /// Returns the name of the server that delivers the subscription.
    fn holder(&self, server: usize) -> String {
        let status = self.apis[server].get(&format!("/events/v2/deliveryStatuses/{}", self.subscription)).ok();
        status["holder"].as_str().unwrap().to_owned()
    }
}

/// Far less than the 10 seconds between two sweeps, and far more than a notification takes on a busy machine.
const WITHOUT_SWEEP: Duration = Duration::from_secs(3);

/// Prints the time from the response to the arrival, of events that the other server delivers.
#[test]
fn an_event_that_one_server_records_reaches_a_sink_of_another() {
    let Some(database) = Database::migrated("latency") else { return };
    let delivering = Delivering::start(&database);
    delivering.deliver(0, "second");
    let holder = delivering.holder(0);
    let mut times: Vec<Duration> = (0..60).map(|number| delivering.deliver(1, &format!("repo {number}"))).collect();
    let same = delivering.holder(1) == holder;
    times.sort();
    println!("p50 {:?}, p99 {:?}, delivered by the other server throughout: {same}", times[30], times[59]);
    assert!(same, "the server that records events took the lease when it had ended");
    assert!(times[59] < WITHOUT_SWEEP, "events have waited for a sweep: {times:?}");
}

/// As the test before would fail without notifications.
#[test]
fn events_are_delivered_although_every_notification_is_lost() {
    let Some(database) = Database::silent("silent") else { return };
    let delivering = Delivering::start(&database);
    let first = delivering.holder(0);
    let waits = |number| {
        // The server that does not deliver.
        let recording = usize::from(delivering.holder(0) == first);
        delivering.deliver(recording, &format!("other {number}")) > WITHOUT_SWEEP
    };
    // It may be just before a sweep, or the end of a lease.
    assert!((0..20).any(waits), "events do not wait for the sweep");
    database.execute("DO $$ BEGIN IF NOT EXISTS (SELECT FROM lost) THEN RAISE 'nothing was lost'; END IF; END $$");
}

#[test]
fn each_server_delivers_under_a_name_of_its_own() {
    let Some(database) = Database::migrated("names") else { return };
    let mut delivering = Delivering::start(&database);
    let first = delivering.holder(1);
    // The second server takes over when the lease of the first has expired.
    delivering.servers.remove(0).kill();
    delivering.deliver(1, "after");
    let second = delivering.holder(1);
    assert!(!first.is_empty() && first != second, "{first} and {second}");
}
