//! The binary as its users meet it: commands, options, and what it says when something is in the way.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use common::{Server, api, program, run};
use serde_json::json;
use tempfile::tempdir;

#[test]
fn serve_is_the_default_and_prints_what_to_paste_next() {
    let dir = tempdir().unwrap();
    let server = Server::of(&mut program(dir.path(), &["--listen", "127.0.0.1:0"])).unwrap();
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    assert_eq!(server.next_line().unwrap(), "  store: platform-data/platform.sqlite");
    let lines: Vec<_> = std::iter::from_fn(|| Some(server.next_line()?.trim().to_owned())).take(7).collect();
    let pasted = lines.iter().filter(|line| line.starts_with("eval ") || line.starts_with("curl "));
    // Whoever has curl sees what a newcomer sees.
    let mut script = vec!["curl() { printf 'curl %s\\n' \"$*\"; }".to_owned()];
    script.extend(pasted.cloned());
    assert_eq!(script.len(), 4, "{lines:?}");
    let shell = Command::new("sh").current_dir(dir.path()).args(["-ec", &script.join("\n")]).output().unwrap();
    let printed = String::from_utf8(shell.stdout).unwrap();
    assert!(shell.status.success() && printed.contains(&format!("{}/iam/v2/groups\n", server.url)), "{printed}");
}

#[test]
fn env_and_token_are_good_for_the_server_that_runs_on_the_directory() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--data-dir", "with 'quotes' and spaces"]);
    let (mut api, organisation) = api(dir.path(), &["--data-dir", "with 'quotes' and spaces"]);
    assert_eq!(api.url, server.url);
    assert_eq!(api.get("/iam/v2/groups").ok()["groups"][0]["uid"], organisation);

    let token = |arguments: &[&str]| {
        run(dir.path(), &[&["token", "--data-dir", "with 'quotes' and spaces"], arguments].concat())
            .ok()
            .trim()
            .to_owned()
    };
    api.token = token(&["--ttl", "1m"]);
    api.get("/iam/v2/groups").ok();
    api.token = token(&["--identity", "00000000000000000000000000000000000000aa"]);
    let nobody = api.get(&format!("/iam/v2/groups/{organisation}"));
    assert!(nobody.status == 401 || nobody.status == 403, "{nobody:?}");
}

#[test]
fn a_token_is_for_a_uid_and_a_time_that_there_are() {
    let dir = tempdir().unwrap();
    for (arguments, told) in [
        (["--identity", "me"], "must be a uid"),
        (["--ttl", "1w"], "must be a whole number and s, m, h or d"),
        (["--ttl", "-1h"], ""),
    ] {
        let ran = run(dir.path(), &[&["token"], &arguments[..]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
    assert!(run(dir.path(), &["token", "--ttl", "31d"]).failed().contains("from 1 second to 30 days"));
}

#[test]
fn env_before_the_first_start_says_so_and_what_it_makes_is_what_the_server_uses() {
    let dir = tempdir().unwrap();
    let ran = run(dir.path(), &["env"]);
    assert!(ran.stderr.contains("platform-data, which no server has used yet"), "{ran:?}");
    assert!(ran.ok().starts_with("export API='http://127.0.0.1:8080'\n"));
    let mode = |name: &str| fs::metadata(dir.path().join("platform-data").join(name)).unwrap().permissions().mode();
    assert_eq!((mode("keys.json") & 0o777, mode("bootstrap.json") & 0o777, mode("") & 0o777), (0o600, 0o600, 0o700));
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (api, organisation) = api(dir.path(), &[]);
    assert_eq!(api.url, server.url);
    api.get(&format!("/iam/v2/groups/{organisation}")).ok();
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
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
fn an_empty_variable_counts_as_none() {
    let dir = tempdir().unwrap();
    let mut command = program(dir.path(), &["--listen", "127.0.0.1:0", "--store", "memory"]);
    for variable in ["CONFIG", "DATA_DIR", "PUBLIC_URL", "AUDIENCE", "OPERATOR", "CORS_ORIGIN", "MAX_BODY", "LOG"] {
        command.env(format!("PLATFORM_{variable}"), "");
    }
    let server = Server::of(&mut command).unwrap();
    assert_eq!(api(dir.path(), &[]).0.url, server.url);
}

#[test]
fn what_can_be_repeated_is_repeated_by_flag_comma_and_array() {
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
fn options_that_are_wrong_end_with_code_2_and_files_that_are_wrong_with_code_1() {
    let dir = tempdir().unwrap();
    for (arguments, told) in [
        (&["--store", "mysql"][..], "must be sqlite, sqlite:PATH, sled, sled:PATH or memory"),
        (&["--store", "postgres://db"], "PostgreSQL is not supported yet"),
        (&["--store", "sqlite:"], "the path after the colon is missing"),
        (&["--listen", "here"], "invalid socket address"),
        (&["--operator", "me"], "must be a uid"),
        (&["--max-body", "lots"], "invalid digit"),
        (&["serve", "--nonsense"], "unexpected argument '--nonsense'"),
        (&["nonsense"], "unrecognized subcommand"),
    ] {
        let ran = run(dir.path(), arguments);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(told), "{ran:?}");
    }
    assert!(refused(dir.path(), &["--config", "missing.toml"]).contains("cannot read missing.toml"));
    fs::write(dir.path().join("wrong.toml"), "lisen = 1").unwrap();
    let told = refused(dir.path(), &["--config", "wrong.toml"]);
    assert!(told.contains("wrong.toml: there is no option `lisen`"), "{told}");
    let told = refused(dir.path(), &["--listen", "0.0.0.0:0"]);
    assert!(told.contains("give --public-url"), "{told}");
    let told = refused(dir.path(), &["--public-url", "ftp://x", "--store", "memory"]);
    assert!(told.contains("the public URL `ftp://x`"), "{told}");
    assert!(!dir.path().join("server-url").exists());
}

#[test]
fn help_and_version_are_for_reading() {
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
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "asking for help leaves nothing behind");
}

#[test]
fn sigterm_lets_open_requests_finish_and_ends_with_code_0() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (api, organisation) = api(dir.path(), &[]);
    let body = json!({"name": "written while the server stops"}).to_string();
    let mut open = connect(&server);
    let head = format!(
        "POST /registry/v2/repos/{organisation} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        api.token,
        body.len()
    );
    open.write_all(head.as_bytes()).unwrap();
    // The server asks for the body once it has begun with the request.
    let mut asked = [0; 25];
    open.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.terminate();
    while TcpStream::connect(server.url.trim_start_matches("http://")).is_ok() {}
    open.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let ran = server.wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let _again = Server::start(dir.path(), &[]);
    let repos =
        common::api(dir.path(), &[]).0.get("/registry/v2/repos?name=written%20while%20the%20server%20stops").ok();
    assert_eq!(repos["totalCount"], "1");
}

#[test]
fn sigterm_at_once_ends_with_code_0() {
    for store in common::STORES {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        server.terminate();
        let ran = server.wait();
        assert_eq!(ran.code, Some(0), "{store}: {ran:?}");
    }
}

#[test]
fn a_second_server_on_a_store_is_refused() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let told = refused(dir.path(), &["--store", store, "--listen", "127.0.0.1:0"]);
        let in_use = |told: &str| told.contains("in use") || told.contains("has it open");
        assert!(in_use(&told) && told.contains("platform-data/platform.s"), "{told}");
        let told = run(dir.path(), &["check", "--store", store]).failed();
        assert!(in_use(&told), "{told}");
        // The first goes on, and `env` still names it.
        let (api, _) = api(dir.path(), &[]);
        assert_eq!(api.url, server.url);
        api.get("/iam/v2/groups").ok();
        // When it has ended, however it ended, another may take its place.
        server.kill();
        drop(Server::start(dir.path(), &["--store", store]));
    }
}

#[test]
fn a_port_in_use_is_told_before_the_store_is_touched() {
    let dir = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let told = refused(dir.path(), &["--listen", &address]);
    assert!(told.contains(&format!("another program listens on {address}")) && told.contains("--listen"), "{told}");
    assert!(!dir.path().join("platform-data/platform.sqlite").exists());
}

#[test]
fn a_data_directory_or_store_that_cannot_be_made_is_told_by_name() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("file"), "not a directory").unwrap();
    let any_port = ["--listen", "127.0.0.1:0"];
    let told = refused(dir.path(), &[&any_port[..], &["--data-dir", "file/data"]].concat());
    assert!(told.contains("`file"), "{told}");
    for store in ["sqlite:missing/store", "sled:missing/store", "sqlite:file", "sled:file", "sqlite:.", "sled:."] {
        let told = refused(dir.path(), &[&any_port[..], &["--store", store]].concat());
        let (_, path) = store.split_once(':').unwrap();
        assert!(told.contains(path), "{store}: {told}");
    }
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"not a directory");
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let dir = tempdir().unwrap();
    run(dir.path(), &["env"]).ok();
    let keys = dir.path().join("platform-data/keys.json");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    for command in ["env", "token", "serve"] {
        let told = refused(dir.path(), &[command, "--listen", "127.0.0.1:0"]);
        assert!(told.contains("chmod 600"), "{told}");
    }
}

#[test]
fn check_needs_a_store_and_finds_a_new_one_sound() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["check"]).failed().contains("there is no store at platform-data/platform.sqlite"));
    assert!(run(dir.path(), &["check", "--store", "memory"]).failed().contains("nothing to check"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    for store in ["sqlite", "sled"] {
        drop(Server::start(dir.path(), &["--store", store]));
        let ran = run(dir.path(), &["check", "--store", store]);
        assert!(ran.stderr.ends_with("is sound\n"), "{ran:?}");
        assert_eq!(ran.ok(), "");
    }
}

#[test]
fn the_log_has_a_line_for_each_request_and_no_secret() {
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
            assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
        }
    }
}

#[test]
fn the_server_publishes_its_issuer_under_its_public_url() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory", "--public-url", "https://api.example.com/"]);
    assert_eq!(server.next_line().unwrap(), "  public URL: https://api.example.com");
    let (mut api, _) = api(dir.path(), &[]);
    assert_eq!(api.url, "https://api.example.com", "the directory remembers the URL");
    api.url = server.url.clone();
    api.get("/iam/v2/groups").ok();
    let document = api.get("/.well-known/openid-configuration").ok();
    assert_eq!(document["issuer"], "https://api.example.com");
    assert_eq!(document["jwks_uri"], "https://api.example.com/.well-known/jwks.json");
    assert!(api.get("/.well-known/jwks.json").ok()["keys"][0]["n"].is_string());
}

/// Returns why no server starts.
#[track_caller]
fn refused(dir: &Path, arguments: &[&str]) -> String {
    Server::of(&mut program(dir, arguments)).map(|server| format!("it started: {server:?}")).unwrap_err().failed()
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.url.trim_start_matches("http://")).unwrap()
}

/// Sends the beginning of a request and returns all that comes back.
fn raw(server: &Server, head: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
