//! The binary as its users meet it: commands, options, and what it says when something is in the way.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "that is how tests fail")]

mod common;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command},
};

use common::{Server, api, program, run};
use platform_core::{
    store::{Commit, Delete, Store},
    uid::Uid,
};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
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
    drop(Server::start(dir.path(), &["--store", "memory"]));
    assert!(run(dir.path(), &["token", "--ttl", "31d"]).failed().contains("from 1 second to 30 days"));
}

#[test]
fn commands_that_need_an_installation_make_none() {
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
            let told = run(dir.path(), &[command, &["--data-dir", place]].concat()).failed();
            let none = format!("there is no installation in {place}");
            assert!(told.contains(&none) && told.contains(start) && told.contains("--data-dir"), "{told}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // Neither in a directory that there is.
    fs::create_dir(dir.path().join("empty")).unwrap();
    run(dir.path(), &["env", "--data-dir", "empty"]).failed();
    assert_eq!(fs::read_dir(dir.path().join("empty")).unwrap().count(), 0);
}

#[test]
fn what_a_server_makes_is_its_owners_alone() {
    for (store, files) in
        [("sqlite:elsewhere", &["elsewhere", "elsewhere-wal"][..]), ("sled:elsewhere", &["elsewhere"])]
    {
        let dir = tempdir().unwrap();
        let _server = Server::start(dir.path(), &["--store", store]);
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("platform-data"), 0o700);
        for file in ["keys.json", "bootstrap.json"] {
            assert_eq!(mode(&format!("platform-data/{file}")), 0o600, "{file}");
        }
        for file in files {
            assert_eq!(mode(file) & 0o077, 0, "{store}: {file}");
        }
    }
}

#[test]
fn a_file_that_is_missing_from_an_installation_stops_the_server_with_what_to_do() {
    for store in common::STORES {
        for file in ["keys.json", "bootstrap.json"] {
            let dir = tempdir().unwrap();
            drop(Server::start(dir.path(), &["--store", store]));
            let path = dir.path().join("platform-data").join(file);
            let kept = dir.path().join("kept");
            fs::rename(&path, &kept).unwrap();
            if store == "memory" && file == "bootstrap.json" {
                // Nothing is left that had its uids.
                drop(Server::start(dir.path(), &["--store", store]));
                continue;
            }
            for command in ["serve", "env", "token"] {
                let told = refused(dir.path(), &[command, "--store", store, "--listen", "127.0.0.1:0"]);
                let what = format!("platform-data/{file} is missing");
                assert!(told.contains(&what) && told.contains("restore it"), "{command} on {store}: {told}");
                assert!(told.contains("--recreate-missing"), "{command} on {store}: {told}");
                assert!(!path.exists(), "{command} on {store}");
            }
            // Another store than the one that the files belonged to makes no difference.
            refused(dir.path(), &["--store", "memory", "--listen", "127.0.0.1:0"]);
            fs::copy(&kept, &path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            drop(Server::start(dir.path(), &["--store", store]));
            fs::remove_file(&path).unwrap();
            drop(Server::start(dir.path(), &["--store", store, "--recreate-missing"]));
            assert_ne!(fs::read(&path).unwrap(), fs::read(&kept).unwrap(), "{file} on {store}");
        }
    }
}

#[test]
fn a_first_start_that_was_cut_off_goes_on_where_it_was() {
    for store in ["sqlite:volume/store", "sled:volume"] {
        let dir = tempdir().unwrap();
        fs::create_dir(dir.path().join("volume")).unwrap();
        drop(Server::start(dir.path(), &["--store", "memory"]));
        fs::remove_file(dir.path().join("platform-data/bootstrap.json")).unwrap();
        drop(Server::start(dir.path(), &["--store", store]));
    }
}

#[test]
fn a_store_that_is_missing_beside_its_keys_is_made_empty_and_the_log_says_so() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        server.terminate();
        let first = server.wait().stderr;
        let told = "this installation had no store here: an empty one is made";
        assert!(!first.contains(told), "{first}");
        let server = Server::start(dir.path(), &["--store", store]);
        server.terminate();
        let there = server.wait().stderr;
        assert!(!there.contains(told), "{there}");
        let path = dir.path().join(format!("platform-data/platform.{store}"));
        fs::rename(&path, dir.path().join("moved")).unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organisation) = api(dir.path(), &[]);
        assert_eq!(api.get("/iam/v2/groups").ok()["groups"][0]["uid"], organisation);
        let log = server.kill();
        assert!(log.contains(told) && log.contains("WARN"), "{log}");
    }
}

#[test]
fn env_waits_while_a_server_starts_and_prints_a_token_of_that_server() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    let data = dir.path().join("platform-data");
    // As a server does until it has written its URL.
    let starting = fs::File::open(&data).unwrap();
    starting.lock().unwrap();
    let mut env = program(dir.path(), &["env"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_for_lock(&mut env);
    fs::write(data.join("server-url"), "http://127.0.0.1:7\n").unwrap();
    drop(starting);
    let printed = env.wait_with_output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.starts_with("export API='http://127.0.0.1:7'\n"), "{printed}");
}

#[test]
fn a_server_listens_only_when_env_finds_its_url() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    let data = dir.path().join("platform-data");
    fs::remove_file(data.join("server-url")).unwrap();
    let at_work = fs::File::open(&data).unwrap();
    at_work.lock().unwrap();
    // An address that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut serve = program(dir.path(), &["--store", "memory", "--listen", &address.to_string()]);
    let mut serve = serve.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for_lock(&mut serve);
    assert!(TcpStream::connect(address).is_err(), "it listens");
    assert!(!data.join("server-url").exists());
    drop(at_work);
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
    // The system lists who waits for a lock with an arrow and their process.
    let pid = process.id().to_string();
    let waits = |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == pid);
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
        if let Some(status) = process.try_wait().unwrap() {
            panic!("it did not wait: {status}");
        }
        std::thread::yield_now();
    }
}

#[test]
fn env_does_not_guess_the_url_of_a_server_that_never_listened() {
    let dir = tempdir().unwrap();
    drop(Server::start(dir.path(), &["--store", "memory"]));
    fs::remove_file(dir.path().join("platform-data/server-url")).unwrap();
    for command in ["env", "token"] {
        let told = run(dir.path(), &[command]).failed();
        assert!(told.contains("no server has listened on platform-data yet"), "{told}");
        run(dir.path(), &[command, "--public-url", "https://api.example.com"]).ok();
        run(dir.path(), &[command, "--listen", "127.0.0.1:8081"]).ok();
    }
}

#[test]
fn health_needs_no_token_and_tells_a_server_that_works() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    for path in ["/livez", "/readyz"] {
        let answer = raw(&server, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(r#"{"status":"SERVING"}"#), "{answer}");
    }
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
    drop(Server::start(dir.path(), &["--store", "memory"]));
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
fn check_finds_events_whose_data_is_missing() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organisation) = api(dir.path(), &[]);
        for _ in 0..2 {
            let body = serde_json::json!({ "sink": "https://receiver.invalid/" });
            api.post(&format!("/events/v2/subscriptions/{organisation}"), &body).ok();
        }
        let aliases: Vec<_> = (0..100).map(|n| format!("library/{n}{}:latest", "a".repeat(100))).collect();
        let repo = serde_json::json!({ "name": "nginx", "aliases": aliases });
        api.post(&format!("/registry/v2/repos/{organisation}"), &repo).ok();
        server.terminate();
        assert_eq!(server.wait().code, Some(0));
        assert_eq!(run(dir.path(), &["check", "--store", store]).ok(), "", "{store}");

        let path = dir.path().join("platform-data").join(format!("platform.{store}"));
        let open: Box<dyn Store> = match store {
            "sqlite" => Box::new(SqliteStore::open(path).unwrap()),
            _ => Box::new(SledStore::open(path).unwrap()),
        };
        let delete = vec![Delete::Below(Uid::opaque(&*organisation), vec!["EventBody"])];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(open.commit(Commit { delete, ..Commit::default() })).unwrap();
        drop(open);
        let ran = run(dir.path(), &["check", "--store", store]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.stdout.matches("is missing").count(), 2, "{ran:?}");
        assert!(ran.stdout.contains(&format!("the data {organisation}/")), "{ran:?}");
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
fn requests_that_anybody_can_send_leave_no_errors_in_the_log() {
    let dir = tempdir().unwrap();
    let away = ["--trusted-issuer", "http://127.0.0.1:1", "--allow-http-issuers", "--store", "memory"];
    let server = Server::start(dir.path(), &away);
    // Of an issuer that is trusted and away; the signature is nobody's.
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwOi8vMTI3LjAuMC4xOjEiLCJzdWIiOiJhIiwiYXVkIjoieCIsImV4cCI6OTk5OTk5OTk5OX0.AAAA";
    let api = common::Api::new(&server.url, token);
    for path in ["/iam/v2/groups", "/sts/exchange?aud=x", "/auth/v1/ok"] {
        for _ in 0..3 {
            api.get(path).error(503);
        }
    }
    for path in ["/nothing", "/sts/headless_sessions", "/registry/v2/repos?page_size=x"] {
        let answer = api.with_token("x").get(path);
        assert!(answer.status >= 400, "{answer:?}");
    }
    let log = server.kill();
    assert!(!log.contains("ERROR"), "{log}");
    assert_eq!(log.matches("WARN").count(), 1, "the issuer, once an interval: {log}");
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
