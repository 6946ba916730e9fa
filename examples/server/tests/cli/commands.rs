//! Tests the binary as users run it: commands, options, and error messages.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command},
};

use serde_json::json;
use tempfile::tempdir;

use crate::common::{self, NOT_SERVING, SERVING, Server, api, program, run};

#[test]
fn serve_is_the_default_command_and_prints_the_commands_to_try_next() {
    let dir = tempdir().unwrap();
    let server = Server::of(&mut program(dir.path(), &["--listen", "127.0.0.1:0"])).unwrap();
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    assert_eq!(server.next_line().unwrap(), "  store: platform-data/platform.sqlite");
    let lines: Vec<_> = std::iter::from_fn(|| Some(server.next_line()?.trim().to_owned())).take(8).collect();
    let pasted = lines.iter().filter(|line| line.starts_with("eval ") || line.starts_with("curl "));
    // A stand-in for curl prints the command lines that the script would run.
    let mut script = vec!["curl() { printf 'curl %s\\n' \"$*\"; }".to_owned()];
    script.extend(pasted.cloned());
    assert_eq!(script.len(), 4, "{lines:?}");
    let shell = Command::new("sh").current_dir(dir.path()).args(["-ec", &script.join("\n")]).output().unwrap();
    let printed = String::from_utf8(shell.stdout).unwrap();
    assert!(shell.status.success() && printed.contains(&format!("{}/iam/v2/groups\n", server.url)), "{printed}");
}

#[test]
fn env_and_token_print_tokens_that_the_running_server_accepts() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--data-dir", "with 'quotes' and spaces"]);
    let (mut api, organization) = api(dir.path(), &["--data-dir", "with 'quotes' and spaces"]);
    assert_eq!(api.url, server.url);
    assert_eq!(api.get("/iam/v2/groups").ok()["groups"][0]["uid"], organization);

    let token = |arguments: &[&str]| {
        run(dir.path(), &[&["token", "--data-dir", "with 'quotes' and spaces"], arguments].concat())
            .ok()
            .trim()
            .to_owned()
    };
    api.token = token(&["--ttl", "1m"]);
    api.get("/iam/v2/groups").ok();
    api.token = token(&["--identity", "00000000000000000000000000000000000000aa"]);
    let unknown = api.get(&format!("/iam/v2/groups/{organization}"));
    assert!(unknown.status == 401 || unknown.status == 403, "{unknown:?}");
}

#[test]
fn token_rejects_invalid_uids_and_lifetimes() {
    let dir = tempdir().unwrap();
    for (arguments, message) in [
        (["--identity", "me"], "must be a uid"),
        (["--ttl", "1x"], "must be a number and a unit, such as 30s or 15m: unknown time unit"),
        (["--ttl", "-1h"], ""),
    ] {
        let ran = run(dir.path(), &[&["token"], &arguments[..]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
    drop(Server::start(dir.path(), &["--store", "memory"]));
    assert!(run(dir.path(), &["token", "--ttl", "31d"]).failed().contains("from 1 second to 30 days"));
}

#[test]
fn commands_that_need_an_installation_do_not_create_one() {
    let dir = tempdir().unwrap();
    for (place, start) in [("platform-data", "`platform-server serve`"), ("mistyped", "serve --data-dir mistyped`")] {
        for command in [
            &["env"][..],
            &["token"],
            &["keys", "list"],
            &["keys", "rotate"],
            &["events", "pending"],
            &["events", "dead"],
        ] {
            let error = run(dir.path(), &[command, &["--data-dir", place]].concat()).failed();
            let not_found = format!("no installation in {place}");
            assert!(error.contains(&not_found) && error.contains(start) && error.contains("--data-dir"), "{error}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // The commands do not create files in an existing directory either.
    fs::create_dir(dir.path().join("empty")).unwrap();
    run(dir.path(), &["env", "--data-dir", "empty"]).failed();
    assert_eq!(fs::read_dir(dir.path().join("empty")).unwrap().count(), 0);
}

#[test]
fn files_are_accessible_to_their_owner_only() {
    for (store, least) in [("sqlite:elsewhere", 2), ("sled:elsewhere", 1)] {
        let dir = tempdir().unwrap();
        let _server = Server::start(dir.path(), &["--store", store]);
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("platform-data"), 0o700);
        for file in ["keys.json", "bootstrap.json"] {
            assert_eq!(mode(&format!("platform-data/{file}")), 0o600, "{file}");
        }
        // Of SQLite also the write-ahead log, and a file of shared memory if there is one.
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: Vec<_> = names.filter(|name| name.starts_with("elsewhere")).collect();
        assert!(files.len() >= least, "{files:?}");
        for file in files {
            assert_eq!(mode(&file) & 0o077, 0, "{store}: {file}");
        }
    }
}

#[test]
fn a_server_with_a_missing_file_does_not_start_and_prints_the_remedy() {
    for store in common::STORES {
        for file in ["keys.json", "bootstrap.json"] {
            let dir = tempdir().unwrap();
            drop(Server::start(dir.path(), &["--store", store]));
            let path = dir.path().join("platform-data").join(file);
            let backup = dir.path().join("backup");
            fs::rename(&path, &backup).unwrap();
            if store == "memory" && file == "bootstrap.json" {
                // The memory store, the only other place with these uids, is gone.
                drop(Server::start(dir.path(), &["--store", store]));
                continue;
            }
            for command in ["serve", "env", "token"] {
                let error = start_error(dir.path(), &[command, "--store", store, "--listen", "127.0.0.1:0"]);
                let missing = format!("platform-data/{file} is missing");
                assert!(error.contains(&missing) && error.contains("restore it"), "{command} on {store}: {error}");
                assert!(error.contains("--recreate-missing"), "{command} on {store}: {error}");
                assert!(!path.exists(), "{command} on {store}");
            }
            // Configuring another store makes no difference.
            start_error(dir.path(), &["--store", "memory", "--listen", "127.0.0.1:0"]);
            fs::copy(&backup, &path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            drop(Server::start(dir.path(), &["--store", store]));
            fs::remove_file(&path).unwrap();
            drop(Server::start(dir.path(), &["--store", store, "--recreate-missing"]));
            assert_ne!(fs::read(&path).unwrap(), fs::read(&backup).unwrap(), "{file} on {store}");
        }
    }
}

#[test]
fn an_interrupted_first_start_is_continued() {
    for store in ["sqlite:volume/store", "sled:volume"] {
        let dir = tempdir().unwrap();
        fs::create_dir(dir.path().join("volume")).unwrap();
        drop(Server::start(dir.path(), &["--store", "memory"]));
        fs::remove_file(dir.path().join("platform-data/bootstrap.json")).unwrap();
        drop(Server::start(dir.path(), &["--store", store]));
    }
}

#[test]
fn a_missing_store_is_recreated_empty_with_a_warning() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        server.terminate();
        let first = server.wait().stderr;
        let warning = "this installation has no store here: creating an empty one";
        assert!(!first.contains(warning), "{first}");
        let server = Server::start(dir.path(), &["--store", store]);
        server.terminate();
        let second = server.wait().stderr;
        assert!(!second.contains(warning), "{second}");
        let path = dir.path().join(format!("platform-data/platform.{store}"));
        fs::rename(&path, dir.path().join("moved")).unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        assert_eq!(api.get("/iam/v2/groups").ok()["groups"][0]["uid"], organization);
        let log = server.kill();
        assert!(log.contains(warning) && log.contains("WARN"), "{log}");
    }
}

#[test]
fn env_waits_while_a_server_starts_and_prints_a_token_of_that_server() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    let data = dir.path().join("platform-data");
    // A server holds this lock until it has written its URL.
    let start_lock = fs::File::open(&data).unwrap();
    start_lock.lock().unwrap();
    let mut env = program(dir.path(), &["env"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_for_lock(&mut env);
    fs::write(data.join("server-url"), "http://127.0.0.1:7\n").unwrap();
    drop(start_lock);
    let printed = env.wait_with_output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.starts_with("export API=http://127.0.0.1:7\n"), "{printed}");
}

#[test]
fn a_server_records_its_url_before_it_listens() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    let data = dir.path().join("platform-data");
    fs::remove_file(data.join("server-url")).unwrap();
    let start_lock = fs::File::open(&data).unwrap();
    start_lock.lock().unwrap();
    // Picks a free address; the listener is dropped at once.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut serve = program(dir.path(), &["--store", "memory", "--listen", &address.to_string()]);
    let mut serve = serve.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for_lock(&mut serve);
    assert!(TcpStream::connect(address).is_err(), "it listens");
    assert!(!data.join("server-url").exists());
    drop(start_lock);
    while TcpStream::connect(address).is_err() {
        assert!(serve.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(data.join("server-url")).unwrap().trim(), format!("http://{address}"));
    serve.kill().unwrap();
    serve.wait().unwrap();
}

/// Waits until a process waits for a file lock.
fn wait_for_lock(process: &mut Child) {
    // The system lists each process that waits for a lock with an arrow and the process id.
    let pid = process.id().to_string();
    let waits = |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == pid);
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
        if let Some(status) = process.try_wait().unwrap() {
            panic!("the process did not wait: {status}");
        }
        std::thread::yield_now();
    }
}

#[test]
fn env_without_a_recorded_url_fails_instead_of_guessing() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    fs::remove_file(dir.path().join("platform-data/server-url")).unwrap();
    for command in ["env", "token"] {
        let error = run(dir.path(), &[command]).failed();
        assert!(error.contains("no server has run on platform-data yet"), "{error}");
        run(dir.path(), &[command, "--public-url", "https://api.example.com"]).ok();
        run(dir.path(), &[command, "--listen", "127.0.0.1:8081"]).ok();
    }
}

#[test]
fn health_checks_need_no_token_and_succeed_on_a_healthy_server() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    for path in ["/livez", "/readyz"] {
        let response = raw(&server, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n"));
        assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with(r#"{"status":"SERVING"}"#), "{response}");
    }
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let dir = tempdir().unwrap();
    fs::write(
        dir.path().join("server.toml"),
        "listen = '127.0.0.1:0'\nstore = 'memory'\ndata-dir = 'from-the-file'\nservice-domain = 'file.example'\n\
         cors-origin = ['https://one.example', 'https://two.example']\n",
    )
    .unwrap();
    let domain_of = |flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = program(dir.path(), &[&["--config", "server.toml"], flags].concat());
        let _server = Server::of(command.envs(variables.iter().copied())).unwrap();
        let (api, _) = api(dir.path(), &["--config", "server.toml"]);
        let error = api.get("/iam/v2/nothing").error(404);
        error["details"][0]["domain"].as_str().unwrap().to_owned()
    };
    let variable = [("PLATFORM_SERVICE_DOMAIN", "variable.example")];
    assert!(domain_of(&[], &[]).ends_with("file.example"));
    assert!(domain_of(&[], &variable).ends_with("variable.example"));
    assert!(domain_of(&["--service-domain", "flag.example"], &variable).ends_with("flag.example"));
    assert!(dir.path().join("from-the-file/keys.json").exists() && !dir.path().join("platform-data").exists());
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let dir = tempdir().unwrap();
    let mut command = program(dir.path(), &["--listen", "127.0.0.1:0", "--store", "memory"]);
    for variable in ["CONFIG", "DATA_DIR", "PUBLIC_URL", "AUDIENCE", "OPERATOR", "CORS_ORIGIN", "MAX_BODY", "LOG"] {
        command.env(format!("PLATFORM_{variable}"), "");
    }
    let server = Server::of(&mut command).unwrap();
    assert_eq!(api(dir.path(), &[]).0.url, server.url);
}

#[test]
fn a_repeatable_option_is_repeated_by_flag_comma_or_array() {
    let dir = tempdir().unwrap();
    let (one, two) = ("https://one.example", "https://two.example");
    fs::write(dir.path().join("two.toml"), format!("cors-origin = ['{one}', '{two}']")).unwrap();
    let both = format!("{one},{two}");
    let by_flag = program(dir.path(), &["--cors-origin", one, "--cors-origin", two]);
    let by_variable = {
        let mut command = program(dir.path(), &[]);
        command.env("PLATFORM_CORS_ORIGIN", both);
        command
    };
    for mut command in [by_flag, by_variable, program(dir.path(), &["--config", "two.toml"])] {
        let server = Server::of(command.args(["--store", "memory", "--listen", "127.0.0.1:0"])).unwrap();
        for (origin, allowed) in [(one, true), (two, true), ("https://three.example", false)] {
            let head = raw(&server, &format!("GET /ping/v2/ping HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\n"));
            assert_eq!(head.contains(&format!("access-control-allow-origin: {origin}")), allowed, "{head}");
        }
    }
}

#[test]
fn invalid_options_exit_with_code_2_and_invalid_files_with_code_1() {
    let dir = tempdir().unwrap();
    for (arguments, message) in [
        (&["--store", "mysql"][..], "must be sqlite, sqlite:PATH, sled, sled:PATH, memory or postgres://USER@HOST"),
        (&["--store", "postgres:db"], "must be postgres://USER@HOST/DATABASE"),
        (&["--instance", "a\nb"], "must not contain control characters"),
        (&["--store", "sqlite:"], "missing path after the colon"),
        (&["--listen", "here"], "invalid socket address"),
        (&["--operator", "me"], "must be a uid"),
        (&["--max-body", "lots"], "invalid digit"),
        (&["serve", "--nonsense"], "unexpected argument '--nonsense'"),
        (&["nonsense"], "unrecognized subcommand"),
    ] {
        let ran = run(dir.path(), arguments);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
    assert!(start_error(dir.path(), &["--config", "missing.toml"]).contains("cannot read missing.toml"));
    fs::write(dir.path().join("wrong.toml"), "lisen = 1").unwrap();
    let error = start_error(dir.path(), &["--config", "wrong.toml"]);
    assert!(error.contains("wrong.toml: unknown option `lisen`"), "{error}");
    let error = start_error(dir.path(), &["--listen", "0.0.0.0:0"]);
    assert!(error.contains("set --public-url"), "{error}");
    let error = start_error(dir.path(), &["--public-url", "ftp://x", "--store", "memory"]);
    assert!(error.contains("invalid public URL `ftp://x`"), "{error}");
    assert!(!dir.path().join("server-url").exists());
}

#[test]
fn help_and_version_are_printed() {
    let dir = tempdir().unwrap();
    let help = run(dir.path(), &["--help"]).ok();
    for word in
        ["Usage: platform-server", "serve", "env", "token", "check", "--data-dir", "PLATFORM_STORE", "sled:PATH"]
    {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    assert!(run(dir.path(), &["help", "token"]).ok().contains("--ttl"));
    assert!(run(dir.path(), &["--version"]).ok().starts_with("platform-server 0."));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "help creates no files");
}

#[test]
fn sigterm_drains_open_requests_and_exits_with_code_0() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    let body = json!({"name": "written while the server stops"}).to_string();
    let mut open = connect(&server);
    let head = format!(
        "POST /registry/v2/repos/{organization} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        api.token,
        body.len()
    );
    open.write_all(head.as_bytes()).unwrap();
    // The server requests the body once it has started to handle the request.
    let mut interim = [0; 25];
    open.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.terminate();
    while TcpStream::connect(server.url.trim_start_matches("http://")).is_ok() {}
    open.write_all(body.as_bytes()).unwrap();
    let mut response = String::new();
    open.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let ran = server.wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let _again = Server::start(dir.path(), &[]);
    let repos =
        common::api(dir.path(), &[]).0.get("/registry/v2/repos?name=written%20while%20the%20server%20stops").ok();
    assert_eq!(repos["totalCount"], "1");
}

#[test]
fn sigterm_right_after_the_start_exits_with_code_0() {
    for store in common::STORES {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        server.terminate();
        let ran = server.wait();
        assert_eq!(ran.code, Some(0), "{store}: {ran:?}");
    }
}

#[test]
fn a_server_with_a_stop_delay_is_not_ready_and_still_serves_new_connections_until_the_delay_ends() {
    let dir = tempdir().unwrap();
    let options = ["--store", "memory", "--stop-delay"];
    let server = Server::start(dir.path(), &[&options[..], &["1h"]].concat());
    let (api, organization) = common::api(dir.path(), &[]);
    assert_eq!((api.get("/readyz").status, server.grpc_health()), (200, SERVING));
    server.terminate();
    while api.get("/readyz").status != 503 {}
    // Set right after the other.
    while server.grpc_health() != NOT_SERVING {}
    let path = format!("/registry/v2/repos/{organization}");
    // Of a client that has no connection yet.
    common::api(dir.path(), &[]).0.post(&path, &json!({"name": "written during the delay"})).ok();
    server.terminate();
    assert_eq!(server.wait().code, Some(1), "a second signal ends the server at once");

    let server = Server::start(dir.path(), &[&options[..], &["1ms"]].concat());
    server.terminate();
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_second_server_on_a_store_is_rejected() {
    for (store, command) in [("sqlite", "compact"), ("sled", "check")] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let error = start_error(dir.path(), &["--store", store, "--listen", "127.0.0.1:0"]);
        let in_use = |error: &str| error.contains("in use") || error.contains("has it open");
        assert!(in_use(&error) && error.contains("platform-data/platform.s"), "{error}");
        let error = run(dir.path(), &[command, "--store", store]).failed();
        assert!(in_use(&error), "{error}");
        // The first server continues to serve, and `env` still prints its URL.
        let (api, _) = api(dir.path(), &[]);
        assert_eq!(api.url, server.url);
        api.get("/iam/v2/groups").ok();
        // After it has ended, even by SIGKILL, another server can open the store.
        server.kill();
        drop(Server::start(dir.path(), &["--store", store]));
    }
}

#[test]
fn a_port_in_use_is_reported_before_the_store_is_created() {
    let dir = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = start_error(dir.path(), &["--listen", &address]);
    assert!(error.contains(&format!("{address} is in use")) && error.contains("--listen"), "{error}");
    assert!(!dir.path().join("platform-data/platform.sqlite").exists());
}

#[test]
fn errors_name_a_data_directory_or_store_that_cannot_be_created() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "not a directory").unwrap();
    let any_port = ["--listen", "127.0.0.1:0"];
    let error = start_error(dir.path(), &[&any_port[..], &["--data-dir", "file/data"]].concat());
    assert!(error.contains("`file"), "{error}");
    for store in ["sqlite:missing/store", "sled:missing/store", "sqlite:file", "sled:file", "sqlite:.", "sled:."] {
        let error = start_error(dir.path(), &[&any_port[..], &["--store", store]].concat());
        let (_, path) = store.split_once(':').unwrap();
        assert!(error.contains(path), "{store}: {error}");
    }
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"not a directory");
}

#[test]
fn keys_that_other_users_can_read_are_rejected() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    let keys = dir.path().join("platform-data/keys.json");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    for command in ["env", "token", "serve"] {
        let error = start_error(dir.path(), &[command, "--listen", "127.0.0.1:0"]);
        assert!(error.contains("chmod 600"), "{error}");
    }
}

#[test]
fn the_log_has_a_line_per_request_and_no_secrets() {
    for format in ["text", "json"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", "memory", "--log-format", format]);
        let (api, _) = api(dir.path(), &[]);
        api.get("/iam/v2/groups?name=in-the-query").ok();
        server.terminate();
        let ran = server.wait();
        let log = &ran.stderr;
        assert!(log.contains("/iam/v2/groups") && log.contains("200"), "{log}");
        let secret = api.token.rsplit('.').next().unwrap();
        assert!(!log.contains(secret) && !log.contains("in-the-query") && !log.contains('\x1b'), "{log}");
        if format == "json" {
            let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let answered = lines.filter(|line| line["fields"]["message"] == "answered");
            let numbers = answered.map(|line| {
                let number = |name: &str| assert!(line["fields"][name].is_u64(), "{name} of {line}");
                number("micros");
                number("status");
            });
            assert!(numbers.count() > 0, "{log}");
        }
    }
}

#[test]
fn unauthenticated_requests_log_no_errors() {
    let dir = tempdir().unwrap();
    let unreachable = ["--trusted-issuer", "http://127.0.0.1:1", "--allow-http-issuers", "--store", "memory"];
    let server = Server::start(dir.path(), &unreachable);
    // A token of the trusted issuer, which is unreachable, with an invalid signature.
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwOi8vMTI3LjAuMC4xOjEiLCJzdWIiOiJhIiwiYXVkIjoieCIsImV4cCI6OTk5OTk5OTk5OX0.AAAA";
    let api = common::Api::new(&server.url, token);
    for path in ["/iam/v2/groups", "/sts/exchange?aud=x", "/auth/v1/ok"] {
        for _ in 0..3 {
            api.get(path).error(503);
        }
    }
    for path in ["/nothing", "/sts/headless_sessions", "/registry/v2/repos?page_size=x"] {
        let response = api.with_token("x").get(path);
        assert!(response.status >= 400, "{response:?}");
    }
    let log = server.kill();
    assert!(!log.contains("ERROR"), "{log}");
    assert_eq!(log.matches("WARN").count(), 1, "one warning about the issuer per interval: {log}");
}

#[test]
fn the_server_publishes_its_issuer_under_its_public_url() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory", "--public-url", "https://api.example.com/"]);
    assert_eq!(server.next_line().unwrap(), "  public URL: https://api.example.com");
    let (mut api, _) = api(dir.path(), &[]);
    assert_eq!(api.url, "https://api.example.com", "the URL is recorded in the data directory");
    api.url = server.url.clone();
    api.get("/iam/v2/groups").ok();
    let document = api.get("/.well-known/openid-configuration").ok();
    assert_eq!(document["issuer"], "https://api.example.com");
    assert_eq!(document["jwks_uri"], "https://api.example.com/.well-known/jwks.json");
    assert!(api.get("/.well-known/jwks.json").ok()["keys"][0]["n"].is_string());
}

/// Returns the error with which a server fails to start.
#[track_caller]
fn start_error(dir: &Path, arguments: &[&str]) -> String {
    Server::of(&mut program(dir, arguments)).map(|server| format!("it started: {server:?}")).unwrap_err().failed()
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.url.trim_start_matches("http://")).unwrap()
}

/// Sends the head of a request and returns the raw response.
fn raw(server: &Server, head: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}
