//! `platform-server import` into a store and into a running server, and its continuation after a kill.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::Stdio,
    thread,
};

use serde_json::{Value, json};
use sha2::Digest as _;
use tempfile::tempdir;

use crate::common::{Api, Server, api, program, run};

/// Writes one document per package, each with one advisory, to the directory `data`.
fn documents(dir: &Path, packages: &[&str]) {
    fs::create_dir_all(dir.join("data")).unwrap();
    for package in packages {
        let text = format!(
            "schema-version: 2.0.2\npackage: {{name: {package}}}\nadvisories:\n  - id: CGA-1\n    aliases: [CVE-1]\n    \
             events:\n      - {{timestamp: 2026-01-01T00:00:00Z, type: fixed, data: {{fixed-version: 1.0-r0}}}}\n"
        );
        fs::write(dir.join("data").join(format!("{package}.yaml")), text).unwrap();
    }
}

/// Returns artifacts as NDJSON, each with one version.
fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.fold(String::new(), |mut text, n| {
        writeln!(text, r#"{{"ecosystem":"python","name":"p{n}","versions":[{{"version":"1.{n}"}}]}}"#).unwrap();
        text
    })
}

fn total(api: &Api) -> u64 {
    let count = api.get("/libraries/v2/artifacts/count?ecosystems=ECOSYSTEM_PYTHON").ok();
    count["counts"][0]["totalCount"].as_str().unwrap().parse().unwrap()
}

#[test]
fn data_imported_into_a_store_is_served_after_the_start() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        documents(dir.path(), &["a", "b"]);
        let import = ["import", "advisories", "data", "--store", store];
        assert_eq!(run(dir.path(), &import).ok(), "read 2 documents\nadvisories: 2 created, 0 updated, 0 unchanged\n");
        assert_eq!(run(dir.path(), &import).ok(), "read 2 documents\nadvisories: 0 created, 0 updated, 2 unchanged\n");
        let _server = Server::start(dir.path(), &["--store", store]);
        let (api, _) = api(dir.path(), &[]);
        let list = api.get("/vulnerabilities/v2/advisories?artifactNames=b").ok();
        assert_eq!(list["totalCount"], "1");
        assert_eq!(list["advisories"][0]["events"][0]["fixed"]["fixedVersion"], "1.0-r0");
    }
}

#[test]
fn a_store_exports_the_feed_that_its_server_has() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        documents(dir.path(), &["a", "b"]);
        run(dir.path(), &["import", "advisories", "data", "--store", store]).ok();
        let server = Server::start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        let feed = api.get(&format!("/feeds/secdb?group={organization}")).ok();
        let export = ["export", "advisories", "--store", store, "--format", "secdb", "--of", &organization];
        let busy = run(dir.path(), &export).failed();
        assert!(busy.contains(&format!("{}/feeds/secdb?group={organization}", server.url)), "{busy}");
        drop(server);
        let printed = run(dir.path(), &export).ok();
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), feed);
        let secfixes = json!({ "1.0-r0": ["CVE-1"] });
        let packages = ["a", "b"].map(|name| json!({ "pkg": { "name": name, "secfixes": secfixes } }));
        assert_eq!(feed, json!({ "packages": packages }));
        let file = dir.path().join("feed.json");
        fs::write(&file, "an older feed").unwrap();
        let to_file = run(dir.path(), &[&export[..], &["--to", "feed.json"]].concat());
        assert_eq!((to_file.code, to_file.stdout.as_str()), (Some(0), ""), "{to_file:?}");
        assert!(to_file.stderr.ends_with("read 2 advisories, wrote 2 entries\n"), "{to_file:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), printed);
        let missing = format!("{organization}/0123456789abcdef");
        let unknown = [&export[..6], &["--of", &missing, "--to", "feed.json"]].concat();
        assert!(run(dir.path(), &unknown).failed().contains(&format!("Group not found: {missing}")));
        assert_eq!(fs::read_to_string(&file).unwrap(), printed);
    }
}

#[test]
fn an_export_of_advisories_names_the_formats_and_what_a_format_leaves_out() {
    let dir = tempdir().unwrap();
    documents(dir.path(), &["a"]);
    run(dir.path(), &["import", "advisories", "data"]).ok();
    let server = Server::start(dir.path(), &[]);
    let (_, organization) = api(dir.path(), &[]);
    drop(server);
    let export =
        |format| run(dir.path(), &["export", "advisories", "--format", format, "--of", &organization, "--to", "feed"]);
    let ran = export("osv");
    assert_eq!(ran.code, Some(0));
    let left_out = "left out 1: about packages of a distribution that OSV does not have\n";
    assert!(ran.stderr.ends_with(left_out), "{ran:?}");
    let invalid = export("csv");
    assert_eq!(invalid.code, Some(2));
    assert!(invalid.stderr.contains("must be one of osv, secdb, openvex"), "{invalid:?}");
}

#[test]
fn imported_data_is_removed_from_a_store_or_a_running_server_so_that_its_group_can_be_deleted() {
    let dir = tempdir().unwrap();
    documents(dir.path(), &["a", "b"]);
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    let group = |name: &str| {
        let made = api.post(&format!("/iam/v2/groups/{organization}"), &json!({ "name": name })).ok();
        made["uid"].as_str().unwrap().to_owned()
    };
    let (one, other) = (group("one"), group("other"));
    for group in [&one, &other] {
        run(dir.path(), &["import", "advisories", "data", "--group", group, "--api", &server.url]).ok();
    }
    let remove = ["remove", "advisories", "--group", &other];
    let path = format!("/import/advisories?parent={one}");
    assert!(run(dir.path(), &remove).failed().contains(&format!("DELETE {}/import/advisories", server.url)));
    api.delete(&format!("/iam/v2/groups/{one}")).error(400);
    api.with_token("no").delete(&path).error(401);
    assert_eq!(api.delete(&path).ok(), json!({ "removed": 2 }));
    api.delete("/import/advisories").error(400);
    assert_eq!(api.delete(&format!("/iam/v2/groups/{one}")).status, 200);
    assert_eq!(api.get("/vulnerabilities/v2/advisories").ok()["totalCount"], "2");
    drop(server);
    assert_eq!(run(dir.path(), &remove).ok(), "advisories: 2 removed\n");
    assert_eq!(run(dir.path(), &remove).ok(), "advisories: 0 removed\n");
}

#[test]
fn rejected_documents_are_listed_and_the_rest_is_written_with_exit_code_1() {
    let dir = tempdir().unwrap();
    documents(dir.path(), &["a"]);
    fs::write(dir.path().join("data/b.yaml"), "schema-version: 1\npackage: {name: b}\n").unwrap();
    let ran = run(dir.path(), &["import", "advisories", "data"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout.ends_with("advisories: 1 created, 0 updated, 0 unchanged\nrejected 1 item; see above\n"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("rejected: data/b.yaml: schema-version: must be 2 or 2.x"), "{ran:?}");
}

#[test]
fn the_error_for_a_store_in_use_or_in_memory_says_what_to_do() {
    for store in ["sqlite", "sled"] {
        let dir = tempdir().unwrap();
        documents(dir.path(), &["a"]);
        let server = Server::start(dir.path(), &["--store", store]);
        let output = run(dir.path(), &["import", "advisories", "data", "--store", store]).failed();
        assert!(output.contains(&format!("--api {}", server.url)), "{output}");
    }
    let dir = tempdir().unwrap();
    let output = run(dir.path(), &["import", "osv", "data", "--store", "memory"]).failed();
    assert!(output.contains("a memory store exists only inside its server process"), "{output}");
}

#[test]
fn a_running_server_accepts_an_import_with_a_token_from_its_data_directory() {
    let dir = tempdir().unwrap();
    documents(dir.path(), &["a", "b", "c"]);
    fs::write(dir.path().join("osv.json"), r#"{"id": "CVE-1", "severity": [{"type": "CVSS_V3", "score": "x"}]}"#)
        .unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (api, _) = api(dir.path(), &[]);
    let import = ["import", "advisories", "data", "--api", &server.url];
    assert!(run(dir.path(), &import).ok().contains("advisories: 3 created, 0 updated, 0 unchanged"));
    assert!(run(dir.path(), &import).ok().contains("advisories: 0 created, 0 updated, 3 unchanged"));
    let osv = ["import", "osv", "osv.json", "--api", &server.url, "--token", &api.token];
    assert!(run(dir.path(), &osv).ok().contains("vulnerabilityMetadata: 1 created"));
    let list = api.get("/vulnerabilities/v2/advisories?artifactNames=a").ok();
    assert_eq!(list["advisories"][0]["severities"], json!([{ "type": "TYPE_CVSS_V3", "score": "x" }]));

    let unknown = format!("{}/0123456789abcdef", "0".repeat(40));
    let output = run(dir.path(), &[&import[..], &["--group", &unknown]].concat()).failed();
    assert!(output.contains("404") && output.contains("not found"), "{output}");
    let output = run(dir.path(), &[&import[..], &["--token", "no"]].concat()).failed();
    assert!(output.contains("401"), "{output}");
    let elsewhere = tempdir().unwrap();
    documents(elsewhere.path(), &["a"]);
    let output = run(elsewhere.path(), &import).failed();
    assert!(output.contains("--token") && output.contains("no installation in platform-data"), "{output}");
}

#[test]
fn a_killed_import_is_continued_by_running_it_again() {
    let dir = tempdir().unwrap();
    const LINES: usize = 6000;
    let mut import = program(dir.path(), &["import", "artifacts", "-"]);
    let mut import = import.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The import holds only a few batches in memory, so most of the lines that it has read from the pipe are written.
    import.stdin.as_mut().unwrap().write_all(lines(0..LINES).as_bytes()).unwrap();
    import.kill().unwrap();
    import.wait().unwrap();

    fs::write(dir.path().join("all.ndjson"), lines(0..LINES)).unwrap();
    let output = run(dir.path(), &["import", "artifacts", "all.ndjson"]).ok();
    let counts = output.lines().find(|line| line.starts_with("artifactVersions: ")).unwrap();
    let numbers: Vec<usize> = counts.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!((numbers[0] + numbers[2], numbers[1]), (LINES, 0), "{output}");
    assert!(numbers[2] > 0, "{output}");
    let output = run(dir.path(), &["import", "artifacts", "all.ndjson"]).ok();
    assert!(output.contains(&format!("artifacts: 0 created, 0 updated, {LINES} unchanged")), "{output}");
}

#[test]
fn a_batch_without_a_response_is_retried() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (api, _) = api(dir.path(), &[]);
    fs::write(dir.path().join("a.ndjson"), lines(0..600)).unwrap();
    // A proxy that closes the first two connections in the middle of a request, and then forwards everything.
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let upstream = server.url.trim_start_matches("http://").to_owned();
    thread::spawn(move || {
        for (count, client) in proxy.incoming().map_while(Result::ok).enumerate() {
            if count < 2 {
                let mut line = String::new();
                BufReader::new(client).read_line(&mut line).unwrap();
                continue;
            }
            let server = std::net::TcpStream::connect(&upstream).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || std::io::copy(&mut &server, &mut &client));
        }
    });
    let output = run(dir.path(), &["import", "artifacts", "a.ndjson", "--api", &url, "--token", &api.token]).ok();
    assert!(output.contains("artifacts: 600 created, 0 updated, 0 unchanged"), "{output}");
    assert_eq!(total(&api), 600);
}

#[test]
fn the_endpoint_acknowledges_batches_and_reports_rejected_lines_by_number() {
    let dir = tempdir().unwrap();
    let _server = Server::start(dir.path(), &["--store", "memory"]);
    let (api, organization) = api(dir.path(), &[]);
    let body: String = (1..=600)
        .map(|n| match n {
            3 => "{\n".to_owned(),
            300 => "{\"name\":\"x\",\"ecosystem\":\"ECOSYSTEM_PYTHON\",\"colour\":1}\n".to_owned(),
            599 => "{\"name\":\"\",\"ecosystem\":\"ECOSYSTEM_JAVA\"}\n".to_owned(),
            n => format!("{{\"name\":\"p{n}\",\"ecosystem\":\"ECOSYSTEM_PYTHON\"}}\n"),
        })
        .collect();
    let response = send(&api, "POST", "/import/artifacts", &body);
    assert_eq!(response.0, 200, "{}", response.1);
    let batches: Vec<Value> = response.1.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts: Vec<_> =
        batches.iter().map(|batch| (batch["through"].as_u64().unwrap(), batch["created"].as_u64().unwrap())).collect();
    assert_eq!(counts, [(100, 99), (200, 100), (300, 99), (400, 100), (500, 100), (600, 99)]);
    let rejected: Vec<_> = batches.iter().flat_map(|batch| batch["refused"].as_array().unwrap()).collect();
    assert_eq!(rejected.iter().map(|one| one["line"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 300, 599]);
    assert!(
        rejected
            .iter()
            .all(|one| one["error"]["code"] == 3 && one["error"]["details"][0]["reason"] == "INVALID_ARGUMENT")
    );
    assert_eq!(total(&api), 597);

    assert_eq!(send(&api, "POST", "/import/artifacts", "").1, "");
    for (method, path, status) in [
        ("GET", "/import/artifacts", 405),
        ("POST", "/import/groups", 404),
        ("POST", "/import/artifacts?colour=1", 400),
        ("POST", "/import/artifacts?parent=x", 400),
        ("POST", "/import/advisories", 400),
        ("POST", "/import/advisories?parent=a&parent=b", 400),
    ] {
        api.send(method, path, Some(&json!({ "name": "x" }))).error(status);
    }
    // Only operators may import: any other identity is denied.
    let person = api.post(&format!("/iam/v2/identities/{organization}"), &json!({
        "name": "owner", "staticKeys": { "issuer": "https://x.example", "subject": "s", "issuerKeys": "{\"keys\":[]}" },
    }));
    let uid = person.json()["uid"].as_str().map(str::to_owned);
    if let Some(uid) = uid {
        let token = run(dir.path(), &["token", "--identity", &uid]).ok();
        Api::new(&api.url, token.trim()).post("/import/artifacts", &json!({})).error(403);
    }
    Api::new(&api.url, "no").post("/import/artifacts", &json!({})).error(401);
}

/// Sends a text as the body, and returns status and response.
fn send(api: &Api, method: &str, path: &str, body: &str) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    let agent: ureq::Agent = config.build().into();
    let request = ureq::http::Request::builder()
        .method(method)
        .uri(format!("{}{path}", api.url))
        .header("authorization", format!("Bearer {}", api.token));
    let mut response = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

#[test]
fn help_describes_options_and_exit_codes() {
    let dir = tempdir().unwrap();
    for kind in ["advisories", "osv", "image", "artifacts"] {
        let help = run(dir.path(), &["import", kind, "--help"]).ok();
        for word in ["--api", "--token", "--max-archive", "Exits with 0", "run again"] {
            assert!(help.contains(word), "{kind}: {word}: {help}");
        }
    }
}

/// Writes an OCI layout with an image that `index.json` tags `1.27`.
fn layout(dir: &Path) {
    let blobs = dir.join("layout/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |ty: &str, content: String| {
        let hex = hex::encode(sha2::Sha256::digest(&content));
        fs::write(blobs.join(&hex), &content).unwrap();
        json!({ "mediaType": ty, "digest": format!("sha256:{hex}"), "size": content.len() })
    };
    let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [] } });
    let config = blob("application/vnd.oci.image.config.v1+json", config.to_string());
    let sbom = blob("application/spdx+json", json!({ "spdxVersion": "SPDX-2.3", "packages": [] }).to_string());
    let ty = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({ "schemaVersion": 2, "mediaType": ty, "config": config, "layers": [sbom] });
    let mut manifest = blob(ty, manifest.to_string());
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": "1.27" });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(dir.join("layout/index.json"), index.to_string()).unwrap();
    fs::write(dir.join("layout/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn an_image_is_imported_with_its_blobs_and_tags_which_check_verifies() {
    let dir = tempdir().unwrap();
    layout(dir.path());
    let server = Server::start(dir.path(), &[]);
    let (api, organization) = api(dir.path(), &[]);
    let repo = api.post(&format!("/registry/v2/repos/{organization}"), &json!({ "name": "nginx" })).ok();
    let repo = repo["uid"].as_str().unwrap();
    let import = ["import", "image", "layout", "--repo", repo];
    let remote = [&import[..], &["--api", &server.url]].concat();
    let counts =
        |blobs: &str, others: &str| format!("read 1 document\nblobs: {blobs}\nimages: {others}\ntags: {others}\n");
    let unchanged = counts("0 created, 0 updated, 3 unchanged", "0 created, 0 updated, 1 unchanged");
    let created = counts("3 created, 0 updated, 0 unchanged", "1 created, 0 updated, 0 unchanged");
    assert_eq!(run(dir.path(), &remote).ok(), created);
    assert_eq!(run(dir.path(), &remote).ok(), unchanged);
    let other = [&remote[..], &["--tag", "latest"]].concat();
    assert!(run(dir.path(), &other).ok().ends_with("tags: 1 created, 0 updated, 0 unchanged\n"));
    let invalid = run(dir.path(), &[&remote[..], &["--tag", "a b"]].concat());
    assert!(invalid.stderr.contains("rejected: layout: tag a b: name: tag must match"), "{invalid:?}");
    let tags = api.get(&format!("/registry/v2/tags?uidp.children_of={repo}&order_by=name")).ok();
    let names: Vec<_> = tags["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["1.27", "latest"]);
    drop(server);
    assert_eq!(run(dir.path(), &import).ok(), unchanged, "into the store");
    run(dir.path(), &["check"]).ok();
    let blobs = dir.path().join("platform-data/platform.sqlite.blobs");
    let mut of_repo = fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path());
    let of_repo = of_repo.find(|path| path.is_dir()).unwrap();
    let files: Vec<_> = fs::read_dir(of_repo).unwrap().map(|entry| entry.unwrap().path()).collect();
    fs::write(&files[0], "changed").unwrap();
    fs::remove_file(&files[1]).unwrap();
    let checked = run(dir.path(), &["check"]);
    assert_eq!((checked.code, checked.stdout.lines().count()), (Some(1), 2), "{checked:?}");
    assert!(checked.stdout.contains("does not match its digest") && checked.stdout.contains("is missing"));
    // An import repairs them.
    assert!(run(dir.path(), &import).ok().contains("blobs: 2 created, 0 updated, 1 unchanged"));
    run(dir.path(), &["check"]).ok();
    assert_eq!(run(dir.path(), &["remove", "blobs"]).ok(), "blobs: 0 removed\n");
}
