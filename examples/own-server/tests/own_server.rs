//! A kind of one's own has what the kinds of the API have: REST, gRPC, the console, the command line, events, audit,
//! metrics, backups, checks and exports.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "that is how tests fail")]

mod process;

use std::{fs, path::Path, process::Command};

use process::Process;
use tempfile::tempdir;
use ureq::{Agent, http::Request};

const SERVER: &str = env!("CARGO_BIN_EXE_ticket-server");
const CTL: &str = env!("CARGO_BIN_EXE_ticketctl");
const DESK: &str = env!("CARGO_BIN_EXE_ticket-desk");

/// Runs a program in a directory, and returns its output. It must succeed.
#[track_caller]
fn run(dir: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).env_clear().current_dir(dir).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A server process, which is killed on drop.
struct Serving {
    process: Process,
    url: String,
    token: String,
    organization: String,
}

impl Serving {
    fn start(dir: &Path, program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.env_clear().current_dir(dir).args(["--listen", "127.0.0.1:0"]).args(arguments);
        let (process, url) = Process::start(dir, &mut command);
        let env = run(dir, SERVER, &["env"]);
        let variable = |name: &str| {
            let value = env.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            value.unwrap().to_owned()
        };
        Self { process, url, token: variable("TOKEN"), organization: variable("ORG_ID") }
    }

    /// Sends a request, which must be answered with 200, and returns the body.
    #[track_caller]
    fn send(&self, method: &str, path: &str, body: &str) -> String {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token)).body(body.to_owned()).unwrap();
        let agent: Agent = Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        let mut response = agent.run(request).unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        assert_eq!(response.status(), 200, "{method} {path}: {text}");
        text
    }

    /// Stops the server in order.
    fn stop(self) {
        self.process.stop();
    }
}

#[test]
fn a_kind_of_ones_own_has_all_that_the_kinds_of_the_api_have() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let server = Serving::start(dir, SERVER, &["--audit-log", "audit.log", "--metrics-listen", "127.0.0.1:0"]);
    let tickets = format!("/tickets/v1/tickets/{}", server.organization);
    let ticket = server.send("POST", &tickets, r#"{"title":"water the plants","state":"STATE_OPEN"}"#);
    assert!(ticket.contains(&server.organization), "{ticket}");

    // Transports, the document and the console.
    let found = server.send("GET", "/tickets/v1/tickets?title=water%20the%20plants", "");
    assert!(found.contains(&server.organization) && found.contains("water the plants"), "{found}");
    let document = server.send("GET", "/openapi.json", "");
    for part in ["/tickets/v1/tickets", r#""title":"Ticket API""#, "/registry/v2/repos", "/registry/v1/repos"] {
        assert!(document.contains(part), "{part}");
    }
    let console = server.send("GET", "/console/document.json", "");
    assert!(console.contains("CAP_TICKETS_LIST") && console.contains("Ticket API"), "{console}");
    let listed = run(dir, CTL, &["--api", &server.url, "--token", &server.token, "get", "tickets"]);
    assert!(listed.contains("water the plants"), "{listed}");

    // Operations on the running server.
    run(dir, SERVER, &["backup", "--to", "tickets.tar"]);
    assert!(run(dir, SERVER, &["quota", "list", &server.organization, "--api", &server.url]).is_empty());
    run(dir, SERVER, &["quota", "set", &server.organization, "Ticket", "1", "--api", &server.url]);
    run(dir, SERVER, &["check", "--api", &server.url]);
    let log = fs::read_to_string(dir.join("log")).unwrap();
    let metrics = log.split("serving metrics address=").nth(1).unwrap().split_whitespace().next().unwrap();
    let metrics = ureq::get(format!("http://{metrics}/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(metrics.contains("TicketsService.CreateTicket"), "{metrics}");
    server.stop();
    let audit = fs::read_to_string(dir.join("audit.log")).unwrap();
    let created = audit.lines().find(|line| line.contains("TicketsService.CreateTicket")).unwrap();
    assert!(created.contains(r#"["Ticket","#), "{created}");

    // Operations on the store of a stopped one, and copies of it.
    run(dir, SERVER, &["check"]);
    run(dir, SERVER, &["export", "--to", "store.ndjson"]);
    assert!(fs::read_to_string(dir.join("store.ndjson")).unwrap().contains("water the plants"));
    run(dir, SERVER, &["import", "store", "store.ndjson", "--data-dir", "moved"]);
    run(dir, SERVER, &["backup", "verify", "tickets.tar"]);
    fs::remove_dir_all(dir.join("platform-data")).unwrap();
    run(dir, SERVER, &["restore", "--from", "tickets.tar"]);
    let server = Serving::start(dir, SERVER, &[]);
    assert!(server.send("GET", "/tickets/v1/tickets", "").contains("water the plants"));
}

#[test]
fn a_program_with_a_main_of_its_own_has_an_endpoint_beside_the_api() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), DESK, &[]);
    assert_eq!(server.send("GET", "/desk/open", ""), r#"{"open":0}"#);
    for title in ["one", "two"] {
        let body = format!(r#"{{"title":"{title}","state":"STATE_OPEN"}}"#);
        server.send("POST", &format!("/tickets/v1/tickets/{}", server.organization), &body);
    }
    assert_eq!(server.send("GET", "/desk/open", ""), r#"{"open":2}"#);
    assert_eq!(server.send("GET", "/livez", ""), r#"{"status":"SERVING"}"#);
    server.stop();

    let refused = Command::new(DESK).arg("token").output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("no commands"));
}
