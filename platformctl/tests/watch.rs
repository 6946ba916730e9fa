//! `get --watch`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};
use support::{Ctl, Server, uid};

#[test]
fn a_watch_prints_the_resources_and_then_each_change() {
    let server = Server::start();
    let ctl = server.ctl();
    let create = |name: &str| uid(&ctl.json(&["create", "repos", "--under", "acme", "--name", name]));
    let first = create("nginx");
    let mut table = ctl.start(&["get", "repos", "--under", "acme", "-w"]);
    let cells = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let header = cells(table.line());
    assert_eq!((header[0].as_str(), header.last().unwrap().as_str()), ("CHANGE", "UID"));
    let row = cells(table.line());
    assert_eq!((row[0].as_str(), row[1].as_str(), row.last().unwrap()), ("added", "nginx", &first));
    let mut lines = ctl.start(&["get", "repos", "--under", "acme", "--watch", "-o", "json"]);
    let added: Value = serde_json::from_str(&lines.line()).unwrap();
    assert_eq!((&added["type"], &added["resource"]["uid"]), (&json!("added"), &json!(first)));
    let second = create("redis");
    ctl.ok(&["update", "repos", &second, "--description", "new"]);
    ctl.ok(&["delete", "repos", &second]);
    for (change, description) in [("added", Value::Null), ("modified", json!("new")), ("deleted", Value::Null)] {
        let event: Value = serde_json::from_str(&lines.line()).unwrap();
        assert_eq!((&event["type"], &event["resource"]["uid"]), (&json!(change), &json!(second)));
        assert_eq!(event["resource"]["description"], description);
        let row = cells(table.line());
        assert_eq!((row[0].as_str(), row.last().unwrap()), (change, &second));
    }
}

#[test]
fn a_watch_that_cannot_be_is_an_error() {
    let server = Server::start();
    let ctl = server.ctl();
    let error = ctl.fails(1, &["get", "roles", "-w"]);
    assert!(error.contains("--under: must name a resource"), "{error}");
    let error = ctl.fails(2, &["get", "repos", "nginx", "-w"]);
    assert!(error.contains("--watch is for lists"), "{error}");
    ctl.fails(2, &["get", "repos", "-w", "--limit", "3"]);
}

/// Reads a request and returns its lines.
fn request(stream: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => return lines,
            line => lines.push(line.to_ascii_lowercase()),
        }
    }
}

#[test]
fn a_watch_resumes_by_itself_and_lists_again_after_a_token_that_is_too_old() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let added = |name: &str, id: &str| {
        let data = json!({ "type": "added", "resource": { "uid": name }, "etag": "\"1\"" });
        format!("retry: 1\nevent: added\ndata: {data}\nid: {id}\n\n")
    };
    let streams = [
        // Cut in the middle of an event.
        format!("{}event: added\ndata: {{}}", added("a", "1")),
        // Ended on purpose.
        format!(
            "{}event: closing\ndata: {}\nid: 2\n\n",
            added("b", "2"),
            json!({ "type": "closing", "code": "UNAVAILABLE", "retryable": true })
        ),
        format!("event: expired\ndata: {}\nid: 3\n\n", json!({ "type": "expired" })),
        // The new state: `a` is as before, `b` is gone.
        format!(
            "{}{}event: deleted\ndata: {}\nid: 4\n\nevent: bookmark\ndata: {}\nid: 4\n\n",
            added("a", "4"),
            added("c", "4"),
            json!({ "type": "deleted", "resource": { "uid": "never shown" } }),
            json!({ "type": "bookmark", "endsState": true })
        ),
        format!(
            "event: closing\ndata: {}\nid: 4\n\n",
            json!({ "type": "closing", "code": "PERMISSION_DENIED", "message": "no", "retryable": false })
        ),
    ];
    let server = thread::spawn(move || {
        let mut requests = Vec::new();
        for body in streams {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            requests.push(request(&mut stream));
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n";
            stream.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
        requests
    });
    let ctl = Ctl::new().env("PLATFORM_API", &url).env("PLATFORM_TOKEN", "token");
    let output = ctl.run(&["get", "repos", "-w", "-o", "json"]);
    let events = output.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = events.map(|event| format!("{} {}", event["type"], event["resource"]["uid"]).replace('"', ""));
    assert_eq!(output.code, 4, "{output:?}");
    assert_eq!(events.collect::<Vec<_>>(), ["added a", "added b", "added c", "deleted b"]);
    assert!(output.err.contains("listing again") && output.err.contains("no [PERMISSION_DENIED]"), "{output:?}");
    let requests = server.join().unwrap();
    let ids = requests.iter().map(|lines| lines.iter().find_map(|line| line.strip_prefix("last-event-id: ")));
    assert_eq!(ids.collect::<Vec<_>>(), [None, Some("1"), Some("2"), None, Some("4")]);
    let states = requests.iter().map(|lines| lines[0].contains("initial_state=true"));
    assert_eq!(states.collect::<Vec<_>>(), [true, false, false, true, false]);
}
