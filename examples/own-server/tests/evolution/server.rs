//! The versions of a kind as servers over one data directory: REST, gRPC, the OpenAPI document, exports and backups.

use std::{
    io::{BufRead, BufReader, Read, stdin},
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use platform_engine::{platform::Platform, shape, store::memory::MemoryStore, timestamp::Timestamp};
use platform_grpc::{BadContract, Grpc};
use platform_http::Limits;
use platform_store_sqlite::SqliteStore;
use platform_testkit::{SeededEntropy, TestClock, UidIsToken};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::runtime::Runtime;
use ureq::{Agent, http::Request};

use crate::{
    REWRITE, VERSION,
    process::Process,
    vehicle::{VERSIONS, descriptors, proto_file, version},
};

/// Returns the command of the server of a version, in a directory.
fn command(dir: &Path, version: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env_clear().env(VERSION, version.to_string()).current_dir(dir).args(arguments);
    command
}

fn run(dir: &Path, version: usize, arguments: &[&str]) -> Output {
    command(dir, version, arguments).output().unwrap()
}

/// Runs a command that must succeed, and returns its output.
#[track_caller]
fn done(dir: &Path, version: usize, arguments: &[&str]) -> String {
    let output = run(dir, version, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, and returns its message.
#[track_caller]
fn failed(dir: &Path, version: usize, arguments: &[&str]) -> String {
    let output = run(dir, version, arguments);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A server process, which is killed on drop.
struct Serving {
    process: Process,
    url: String,
    token: String,
}

impl Serving {
    fn start(dir: &Path, version: usize) -> Self {
        let mut command = command(dir, version, &["--listen", "127.0.0.1:0"]);
        let (process, url) = Process::start(dir, &mut command);
        let env = done(dir, version, &["env"]);
        let token = env.lines().find_map(|line| line.strip_prefix("export TOKEN=")).unwrap().to_owned();
        Self { process, url, token }
    }

    #[track_caller]
    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.token)).body(body).unwrap();
        let mut response = agent().run(request).unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        assert_eq!(response.status(), 200, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Gets a vehicle over gRPC-Web, and returns the message.
    fn get_message(&self, uid: &str) -> Vec<u8> {
        let length = u8::try_from(uid.len()).unwrap();
        // The frame of a message whose field 1 is the uid.
        let frame = [&[0, 0, 0, 0, length + 2, 0x0a, length], uid.as_bytes()].concat();
        let request = Request::post(format!("{}/test.fleet.v1.VehiclesService/GetVehicle", self.url))
            .header("content-type", "application/grpc-web+proto")
            .header("authorization", format!("Bearer {}", self.token))
            .body(frame)
            .unwrap();
        let mut reply = Vec::new();
        agent().run(request).unwrap().body_mut().as_reader().read_to_end(&mut reply).unwrap();
        let length = usize::try_from(u32::from_be_bytes(reply[1..5].try_into().unwrap())).unwrap();
        reply[5..5 + length].to_vec()
    }

    /// Stops the server in order.
    fn stop(self) {
        self.process.stop();
    }
}

fn agent() -> Agent {
    Agent::config_builder().http_status_as_error(false).proxy(None).build().into()
}

/// Returns the error of gRPC for a table of version 2 with the descriptors of version 1.
fn stale() -> String {
    let platform =
        Platform::builder(Arc::new(MemoryStore::new()), TestClock::at(Timestamp::EPOCH), SeededEntropy::new(1))
            .kinds(VERSIONS[1])
            .descriptors(descriptors(1))
            .ephemeral_keys()
            .build()
            .unwrap();
    Grpc::new(Arc::new(platform), Arc::new(UidIsToken), Limits::default()).unwrap_err().to_string()
}

/// Returns the number of a field in the `.proto` file of a version.
fn number_of(version: usize, field: &str) -> Option<String> {
    let message = proto_file(version).split("message Vehicle {").nth(1)?.split("\n}").next()?;
    let line = message.lines().find(|line| line.contains(&format!(" {field} = ")))?;
    Some(line.split("= ").nth(1)?.trim_end_matches(';').to_owned())
}

const VEHICLES: &str = "/fleet/v1/vehicles";

/// Rewrites the vehicles of a SQLite store, and waits for a line on standard input after each batch.
pub(crate) fn rewrite(path: &str) {
    let (store, mut checked) = (SqliteStore::open(path).unwrap(), 0);
    let mut progress = |records: u64| {
        // The first pass, in which all records are checked, ends with their number.
        if checked == 700 {
            println!("written {records}");
            stdin().read_line(&mut String::new()).unwrap();
        } else {
            checked = records;
        }
    };
    Runtime::new().unwrap().block_on(shape::rewrite(&store, version(6), false, &mut progress)).unwrap();
}

pub(crate) fn versions() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let server = Serving::start(dir, 1);
    let body = json!({ "plate": "A1", "seats": 4, "color": "red", "wheels": 3 });
    let old = server.send("POST", VEHICLES, &body);
    let uid = old["uid"].as_str().unwrap();
    let message = server.get_message(uid);
    done(dir, 1, &["backup", "--to", "one.tar"]);
    server.stop();
    done(dir, 1, &["export", "--to", "one.ndjson"]);

    // The number of a renamed field stays, so that clients of the former name read the same message.
    assert_eq!(number_of(1, "seats"), number_of(2, "places"));
    assert!(proto_file(2).contains("reserved \"seats\";"), "{}", proto_file(2));
    let error = BadContract::Stale { message: "test.fleet.v1.Vehicle".to_owned(), field: "places" };
    assert_eq!(stale(), error.to_string());
    let server = Serving::start(dir, 2);
    assert_eq!(server.send("GET", &format!("{VEHICLES}/{uid}"), &Value::Null)["places"], 4);
    assert_eq!(server.get_message(uid), message);
    server.stop();

    // Versions may be skipped.
    let expected = |vehicle: &Value| {
        let shown = json!({ "plate": "A1", "places": 4, "color": "red", "status": "parked", "owner": "nobody" });
        let fields = shown.as_object().unwrap();
        assert!(fields.iter().all(|(name, value)| vehicle[name] == *value), "{vehicle}");
        assert!(vehicle.get("seats").is_none() && vehicle.get("wheels").is_none(), "{vehicle}");
    };
    let server = Serving::start(dir, 5);
    expected(&server.send("GET", &format!("{VEHICLES}?plate=A1"), &Value::Null)["vehicles"][0]);
    assert!(server.get_message(uid).windows(6).any(|part| part == b"parked"));
    let document = server.send("GET", "/openapi.json", &Value::Null);
    let schema = &document["components"]["schemas"]["Vehicle"];
    assert!(schema["properties"].get("seats").is_none() && schema["properties"].get("wheels").is_none(), "{schema}");
    let always: Vec<_> = schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(["places", "status", "owner"].iter().all(|name| always.contains(name)), "{always:?}");
    let text = document.to_string();
    assert!(text.contains(r#""default":"parked""#) && !text.contains(r#""default":"nobody""#));
    server.stop();

    // New index keys need a rewrite, and the message says which command does it.
    let error = failed(dir, 6, &["--listen", "127.0.0.1:0"]);
    assert!(error.contains("migrate --kinds") && error.contains("Vehicle: order by places: is new"), "{error}");
    let planned = done(dir, 6, &["migrate", "--kinds", "--dry-run"]);
    assert!(
        planned.contains("Vehicle: filter by color: is new") && planned.contains("would rewrite 1 resources"),
        "{planned}"
    );
    let migrated = done(dir, 6, &["migrate", "--kinds"]);
    assert!(migrated.contains("Vehicle: rewrote 1 resources"), "{migrated}");
    // The other kinds have no shapes, so that it is not known whether their search indexes have all resources.
    assert!(migrated.contains("Role: search of name: is new") && migrated.contains("Role: rewrote"), "{migrated}");
    let again = done(dir, 6, &["migrate", "--kinds"]);
    assert!(again.contains("Vehicle: up to date") && !again.contains("search of"), "{again}");
    done(dir, 6, &["check"]);
    let server = Serving::start(dir, 7);
    expected(&server.send("GET", &format!("{VEHICLES}?color=red&order_by=places"), &Value::Null)["vehicles"][0]);
    server.stop();

    // Copies of an earlier version.
    done(dir, 6, &["import", "store", "one.ndjson", "--data-dir", "imported"]);
    done(dir, 6, &["restore", "--from", "one.tar", "--data-dir", "restored"]);
    for copy in ["imported", "restored"] {
        let list = ["events", "pending", "--data-dir", copy];
        assert!(failed(dir, 6, &list).contains("migrate --kinds"));
        done(dir, 6, &["migrate", "--kinds", "--data-dir", copy]);
        done(dir, 6, &list);
        done(dir, 6, &["check", "--data-dir", copy]);
    }
}

pub(crate) fn killed() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let server = Serving::start(dir, 1);
    for number in 0..700 {
        server.send(
            "POST",
            VEHICLES,
            &json!({ "plate": format!("P{number:03}"), "seats": number % 7, "color": "red" }),
        );
    }
    server.stop();
    for written in [1, 2] {
        let mut rewrite = Command::new(std::env::current_exe().unwrap());
        rewrite.env_clear().env(REWRITE, dir.join("platform-data/platform.sqlite")).stdin(Stdio::piped());
        let mut child = rewrite.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The child waits after each batch that it has written.
        let reached = lines.by_ref().map_while(Result::ok).find(|line| line == "written 200");
        assert!(reached.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(failed(dir, 6, &["--listen", "127.0.0.1:0"]).contains("migrate --kinds"), "killed {written} times");
    }
    let last = done(dir, 6, &["migrate", "--kinds"]);
    assert!(last.contains("Vehicle: rewrote 700 resources, 400 of them before"), "{last}");
    done(dir, 6, &["check"]);
    let server = Serving::start(dir, 6);
    let page = server.send("GET", &format!("{VEHICLES}?color=red&order_by=places&page_size=200"), &Value::Null);
    assert_eq!(page["totalCount"], "700");
    assert_eq!(page["vehicles"][199]["places"], 1);
}

pub(crate) fn careless() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let server = Serving::start(dir, 5);
    server.send("POST", VEHICLES, &json!({ "plate": "A1", "places": 4, "owner": "ann", "status": "sold" }));
    server.stop();
    // The version 1 has other fields, which are not those of a later version under former names.
    let error = failed(dir, 1, &["--listen", "127.0.0.1:0"]);
    for field in ["places", "status", "owner"] {
        assert!(error.contains(&format!("Vehicle: fields.{field}: is stored and has no row in the table")), "{error}");
    }
    assert!(failed(dir, 1, &["migrate", "--kinds"]).contains("is stored and has no row in the table"));
}
