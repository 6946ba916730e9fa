//! Events of a running server: delivery to a receiver, inspection by the operator, and survival of kills of either.
//!
//! ```text
//! cargo test -p server --test events
//! EVENTS=10000 EVENTS_SEED=7 cargo test --release -p server --test events -- kills
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../common/mod.rs"]
mod common;

mod kills;
mod receiver;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use common::{Api, Server, api, program, run};
use receiver::Receiver;
use serde_json::{Value, json};
use tempfile::tempdir;

/// The options that allow delivery to a receiver on this machine.
pub(crate) const OPEN: [&str; 2] = ["--allow-http-sinks", "--allow-private-sinks"];

/// Subscribes to an organization and returns the uid of the subscription.
pub(crate) fn subscribe(api: &Api, organization: &str, sink: &str) -> String {
    let body = json!({ "sink": sink });
    let subscription = api.post(&format!("/events/v2/subscriptions/{organization}"), &body).ok();
    subscription["uid"].as_str().unwrap().to_owned()
}

/// Waits until a condition is true, for a minute at most.
#[track_caller]
pub(crate) fn until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "timed out");
        thread::sleep(Duration::from_millis(5));
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_change_is_delivered_with_a_token_that_authorizes_nothing() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &OPEN);
    let (api, organization) = api(dir.path(), &[]);
    let receiver = Receiver::start();
    let subscription = subscribe(&api, &organization, &receiver.url());
    let repo = api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "nginx" })).ok();
    until(|| receiver.received().len() == 1);
    let (head, body) = receiver.received().remove(0);
    assert!(head.contains("ce-type: dev.chainguard.api.platform.registry.repo.created.v1"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["body"]["uid"], repo["uid"]);
    let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
    for path in ["/iam/v2/groups", "/registry/v2/repos", "/operator/events/pending"] {
        api.with_token(token).get(path).error(401);
    }
    let exchange = format!("/sts/exchange?aud=x&identity={organization}");
    assert_ne!(api.with_token(token).get(&exchange).status, 200);
    until(|| api.get("/events/v2/deliveries").ok()["totalCount"] == "1");
    let log = api.get("/events/v2/deliveries").ok();
    assert_eq!(
        (&log["deliveries"][0]["state"], &log["deliveries"][0]["httpStatus"]),
        (&json!("DELIVERED"), &json!(200))
    );
    let status = api.get(&format!("/events/v2/deliveryStatuses/{subscription}")).ok();
    assert_eq!((&status["delivered"], &status["mode"]), (&json!("1"), &json!("ACTIVE")));
    server.terminate();
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn private_and_http_sinks_are_rejected_unless_the_operator_allows_them() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    let receiver = Receiver::start();
    let sink = receiver.url().replace("http:", "https:");
    for sink in ["http://receiver.example.com/", "https://10.0.0.1/", "https://[::1]:8443/x", &sink] {
        let response =
            api.post(&format!("/events/v2/subscriptions/{organization}"), &json!({ "sink": sink })).error(400);
        assert!(response.to_string().contains("\"field\":\"sink\""), "{sink}: {response}");
    }
    // A host name is resolved, and its address checked, only at delivery.
    subscribe(&api, &organization, &sink.replace("127.0.0.1", "localhost"));
    api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "nginx" })).ok();
    until(|| api.get("/events/v2/deliveries").ok()["totalCount"] == "1");
    let log = api.get("/events/v2/deliveries").ok();
    let error = log["deliveries"][0]["error"].as_str().unwrap();
    assert!(error.contains("public"), "{error}");
    assert_eq!(receiver.connections(), 0);
    drop(server);
}

#[test]
fn operator_paths_authenticate_callers_like_the_api() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (main, organization) = api(dir.path(), &[]);
    let body = json!({ "name": "second", "claimMatch": { "issuer": "https://i.example.com", "subject": "s" } });
    let second = main.post(&format!("/iam/v2/identities/{organization}"), &body).ok();
    let second = second["uid"].as_str().unwrap();
    server.terminate();
    assert_eq!(server.wait().code, Some(0));

    let server = Server::start(dir.path(), &["--operator", second]);
    let (main, _) = api(dir.path(), &[]);
    let operator = main.with_token(run(dir.path(), &["token", "--identity", second]).ok().trim());
    let paths = ["/operator/events/pending", "/operator/events/dead", "/operator/events/tail"];
    let get = |head: &str, path: &str| {
        let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    };
    let header = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for path in paths {
        assert_eq!(get(&header(&operator.token), path), "200", "{path}");
        // Two Authorization headers are rejected, since intermediaries might use either.
        for other in [&main.token, "x"] {
            assert_eq!(get(&(header(&operator.token) + &header(other)), path), "401", "{path}");
        }
        // A bare token without a scheme is accepted, as on all paths.
        assert_eq!(get(&format!("Authorization: {}\r\n", operator.token), path), "200", "{path}");
        assert_eq!(get("", path), "401", "{path}");
    }
    // An operator's identity cannot be deleted.
    main.delete(&format!("/iam/v2/identities/{second}")).error(400);
    server.terminate();
    assert_eq!(server.wait().code, Some(0));

    let server = Server::start(dir.path(), &[]);
    let (main, _) = api(dir.path(), &[]);
    assert_eq!(main.delete(&format!("/iam/v2/identities/{second}")).status, 200);
    server.terminate();
    assert_eq!(server.wait().code, Some(0));

    let server = Server::start(dir.path(), &["--operator", second]);
    let (main, _) = api(dir.path(), &[]);
    let operator = main.with_token(run(dir.path(), &["token", "--identity", second]).ok().trim());
    for path in paths.into_iter().chain(["/iam/v2/groups"]) {
        operator.get(path).error(401);
    }
    operator.post("/operator/events/redeliver", &json!({})).error(401);
    operator.post("/import/artifacts", &json!({})).error(401);
    operator.delete("/import/artifacts").error(401);
    drop(server);
}

#[test]
fn pending_dead_and_redeliver_work_with_and_without_a_running_server() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let receiver = Receiver::with_status(400);
        let arguments = [&["--store", store][..], &OPEN].concat();
        let server = Server::start(dir.path(), &[&arguments[..], &["--max-backlog", "2"]].concat());
        let (api, organization) = api(dir.path(), &[]);
        let subscription = subscribe(&api, &organization, &receiver.url());
        for n in 0..5 {
            api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": format!("r{n}") })).ok();
        }
        until(|| lines(&run(dir.path(), &["events", "dead", "--api", &server.url]).ok()).len() >= 3);
        let pending = lines(&run(dir.path(), &["events", "pending", "--api", &server.url]).ok());
        if let Some(pending) = pending.first() {
            assert_eq!(
                (&pending["subscription"], &pending["status"]["httpStatus"]),
                (&json!(subscription), &json!(400))
            );
        }
        // Other callers are denied.
        let person = run(dir.path(), &["token", "--identity", &"cd".repeat(20)]).ok();
        assert_ne!(api.with_token(person.trim()).get("/operator/events/dead").status, 200);
        api.with_token("x").get("/operator/events/dead").error(401);
        for query in ["after=x!", "after", "after=", "below=ab", "after=ab&after=cd", "after=%FF", "x=1"] {
            api.get(&format!("/operator/events/dead?{query}")).error(400);
        }
        drop(server);

        let dead = lines(&run(dir.path(), &["events", "dead", "--store", store]).ok());
        assert!(dead.len() >= 3 && dead[0]["eventType"].as_str().unwrap().ends_with("created.v1"), "{dead:?}");
        let redelivered = run(dir.path(), &["events", "redeliver", "--store", store, "--below", &organization]).ok();
        assert_eq!(lines(&redelivered)[0]["redelivered"], dead.len());
        assert_eq!(lines(&run(dir.path(), &["events", "dead", "--store", store]).ok()), Vec::<Value>::new());
        let pending = lines(&run(dir.path(), &["events", "pending", "--store", store]).ok());
        assert_eq!(pending[0]["waiting"], 5);
        receiver.set_status(200);
        let _server = Server::start(dir.path(), &arguments);
        until(|| receiver.subjects().len() == 5);
    }
}

#[test]
fn tail_prints_events_and_metrics_are_served() {
    let dir = tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = Server::start(dir.path(), &[&OPEN[..], &["--metrics-listen", &free]].concat());
    let (api, organization) = api(dir.path(), &[]);
    let receiver = Receiver::start();
    subscribe(&api, &organization, &receiver.url());
    let mut tail =
        program(dir.path(), &["events", "tail", "--api", &server.url]).stdout(Stdio::piped()).spawn().unwrap();
    let mut tail_lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let (sender, first) = std::sync::mpsc::channel();
    thread::spawn(move || tail_lines.next().map(|line| sender.send(line.unwrap())));
    // Events before the start of the tail are not printed, so it creates repos until one is.
    let line = loop {
        let name = format!("r{}", fastrand::u64(..));
        api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": name })).ok();
        if let Ok(line) = first.recv_timeout(Duration::from_millis(200)) {
            break line;
        }
    };
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["event"]["group"], organization.as_str());
    tail.kill().unwrap();
    tail.wait().unwrap();
    let metrics = || {
        let mut stream = TcpStream::connect(&free).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    until(|| metrics().contains("platform_events_attempts_total{response=\"2xx\"}"));
    assert!(run(dir.path(), &["events", "tail"]).failed().contains("--api"));
}
