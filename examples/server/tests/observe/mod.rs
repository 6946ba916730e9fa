//! Metrics, health checks, the log and the configuration of a running server.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{Api, Server, api, program, run};

/// Starts a server that serves metrics on a free port. Returns it with a client of that port.
fn start(dir: &Path, arguments: &[&str]) -> (Server, Api) {
    let server = Server::start(dir, &[&["--metrics-listen", "127.0.0.1:0"], arguments].concat());
    let log = server.log();
    let (_, address) = log.split_once("serving metrics address=").unwrap();
    let address = address.split_whitespace().next().unwrap();
    let metrics = Api::new(&format!("http://{address}"), "");
    (server, metrics)
}

/// Calls the function until it is true.
#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never becomes true");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Metrics in the text format of Prometheus: the type of each family, and the value of each series.
#[derive(Debug)]
struct Scraped {
    types: BTreeMap<String, String>,
    series: HashMap<String, f64>,
}

impl Scraped {
    /// Parses the text strictly: each family has its HELP and TYPE line once and before its samples, which follow each
    /// other; no series occurs twice; labels are quoted; buckets ascend and end with `+Inf`, which equals the count.
    fn parse(text: &str) -> Self {
        let (mut types, mut helped, mut series) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        let mut family = String::new();
        let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        assert!(text.ends_with('\n'));
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, about) = rest.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned(), about.to_owned()).is_none(), "{line}");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
                assert!(helped.contains_key(name), "{name} has no description");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                family = name.to_owned();
                continue;
            }
            assert!(!line.starts_with('#'), "{line}");
            let (key, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap();
            let (name, labels) = match key.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                None => (key, ""),
            };
            let of_family = match types[&family].as_str() {
                "histogram" => ["_bucket", "_sum", "_count"].iter().any(|part| name == format!("{family}{part}")),
                _ => name == family,
            };
            assert!(of_family, "{line} is not of {family}");
            let is_name = |text: &str| {
                text.starts_with(|c: char| c.is_ascii_alphabetic())
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            assert!(is_name(name), "{line}");
            let labels: Vec<_> = labels.split_terminator(',').map(|pair| pair.split_once('=').unwrap()).collect();
            for (label, value) in &labels {
                let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap();
                assert!(is_name(label) && !inner.contains(['"', '\\']), "{line}");
            }
            if let Some(("le", bound)) = labels.last() {
                let bound: f64 = bound.trim_matches('"').parse().unwrap();
                let others = key[..key.rfind("le=").unwrap()].replace("_bucket{", "_count{");
                let count_key = others.trim_end_matches([',', '{']).to_owned();
                buckets.entry(count_key).or_default().push((bound, value));
            }
            assert!(series.insert(key.to_owned(), value).is_none(), "{line} occurs twice");
        }
        for (key, buckets) in buckets {
            assert!(buckets.is_sorted(), "{key}: {buckets:?}");
            let key = if key.contains('{') { format!("{key}}}") } else { key };
            let (last, all) = *buckets.last().unwrap();
            assert_eq!((last, all), (f64::INFINITY, series[&key]), "{key}");
        }
        Self { types, series }
    }

    fn of(metrics: &Api) -> Self {
        let response = metrics.get("/metrics");
        assert_eq!(response.status, 200);
        Self::parse(&response.text)
    }

    #[track_caller]
    fn value(&self, key: &str) -> f64 {
        *self.series.get(key).unwrap_or_else(|| panic!("{key}: {:?}", self.series.keys()))
    }
}

#[test]
fn metrics_have_requests_by_method_and_the_state_of_the_store() {
    for store in ["sqlite", "memory"] {
        let dir = tempdir().unwrap();
        let (_server, metrics) = start(dir.path(), &["--store", store]);
        let (api, organization) = api(dir.path(), &[]);
        let path = format!("/registry/v2/repos/{organization}");
        let repo = api.post(&path, &json!({ "name": "one" })).ok();
        let uid = repo["uid"].as_str().unwrap();
        for _ in 0..3 {
            api.get("/registry/v2/repos").ok();
            api.get(&format!("/registry/v2/repos/{uid}")).ok();
        }
        api.get(&format!("/registry/v2/repos/{organization}/0123456789abcdef")).error(404);
        api.post(&path, &json!({ "name": "" })).error(400);
        api.with_token("x").get("/registry/v2/repos").error(401);
        api.get("/nosuch").error(404);
        let scraped = Scraped::of(&metrics);
        let requests = |method: &str, code: &str| {
            scraped.value(&format!(r#"platform_requests_total{{transport="rest",method="{method}",code="{code}"}}"#))
        };
        assert_eq!(requests("ReposService.ListRepos", "OK"), 3.0);
        assert_eq!(requests("ReposService.ListRepos", "UNAUTHENTICATED"), 1.0);
        assert_eq!(requests("ReposService.GetRepo", "OK"), 3.0);
        assert_eq!(requests("ReposService.GetRepo", "NOT_FOUND"), 1.0);
        assert_eq!(requests("ReposService.CreateRepo", "OK"), 1.0);
        assert_eq!(requests("ReposService.CreateRepo", "INVALID_ARGUMENT"), 1.0);
        assert_eq!(requests("other", "NOT_FOUND"), 1.0);
        let of = |name: &str, method: &str| scraped.value(&format!(r#"{name}{{transport="rest",method="{method}"}}"#));
        assert_eq!(of("platform_request_seconds_count", "ReposService.ListRepos"), 4.0);
        assert_eq!(of("platform_request_bytes_sum", "ReposService.CreateRepo"), 14.0 + 11.0);
        assert!(of("platform_response_bytes_sum", "ReposService.GetRepo") > 3.0 * 40.0);
        assert!(scraped.value(r#"platform_store_seconds_count{operation="commit"}"#) >= 1.0);
        assert!(scraped.value("platform_grants_cached_total") >= 1.0);
        assert!(scraped.value("platform_grants_resolved_total") >= 1.0);
        assert!(scraped.value(r#"platform_disk_free_bytes{directory="data"}"#) > 0.0);
        assert!(scraped.value("process_resident_memory_bytes") > 1e6);
        assert_eq!(scraped.types["platform_request_seconds"], "histogram");
        if store == "sqlite" {
            assert!(scraped.value("platform_store_group_commits_count") >= 1.0);
            assert!(scraped.value("platform_store_cache_hits_total") >= 1.0);
            assert!(scraped.value("platform_store_cache_misses_total") >= 1.0);
            assert!(scraped.value(r#"platform_store_file_bytes{file="main"}"#) > 0.0);
            assert!(scraped.value(r#"platform_store_file_bytes{file="wal"}"#) > 0.0);
        }
    }
}

#[test]
fn health_checks_are_verbose_on_demand_and_readiness_falls_while_the_server_stops() {
    let dir = tempdir().unwrap();
    let (server, metrics) = start(dir.path(), &["--stop-delay", "1h"]);
    let (api, _) = api(dir.path(), &[]);
    let checks = |reply: &Value| -> Vec<String> {
        let checks = reply["checks"].as_array().unwrap();
        checks.iter().map(|check| format!("{} {}", check["name"], check["status"]).replace('"', "")).collect()
    };
    for client in [&api, &metrics] {
        for path in ["/livez", "/readyz", "/startupz"] {
            assert_eq!(client.get(path).ok(), json!({ "status": "SERVING" }), "{path}");
        }
        assert_eq!(checks(&client.get("/livez?verbose").ok()), ["store SERVING"]);
        assert_eq!(checks(&client.get("/startupz?verbose=true").ok()), ["startup SERVING"]);
        assert_eq!(checks(&client.get("/readyz?verbose").ok()), ["store SERVING", "space SERVING", "shutdown SERVING"]);
    }
    server.terminate();
    until(|| metrics.get("/readyz").status == 503);
    for client in [&api, &metrics] {
        let stopping = client.get("/readyz?verbose").error(503);
        assert_eq!(checks(&stopping), ["store SERVING", "space SERVING", "shutdown NOT_SERVING"]);
        assert_eq!(stopping["checks"][2]["reason"], "The server is stopping");
        assert_eq!((client.get("/livez").status, client.get("/startupz").status), (200, 200));
    }
}

#[test]
fn requests_that_a_rate_limit_rejects_are_counted_by_its_kind() {
    let dir = tempdir().unwrap();
    let (_server, metrics) = start(dir.path(), &["--store", "memory", "--organization-rate", "1:3"]);
    // The operator is of no organization.
    let (operator, organization) = api(dir.path(), &[]);
    let match_of = json!({ "issuer": "https://issuer.example", "subject": "someone" });
    let identity = json!({ "name": "someone", "claimMatch": match_of });
    let identity = operator.post(&format!("/iam/v2/identities/{organization}"), &identity).ok();
    let token = run(dir.path(), &["token", "--identity", identity["uid"].as_str().unwrap()]).ok();
    let caller = operator.with_token(token.trim());
    until(|| caller.get("/registry/v2/repos").status == 429);
    let rejected = |limit: &str| {
        let series = format!("platform_rate_limited_total{{limit=\"{limit}\"}}");
        Scraped::parse(&metrics.get("/metrics").text).series.get(&series).copied()
    };
    assert!(rejected("organization").is_some_and(|count| count >= 1.0));
    assert_eq!((rejected("identity"), rejected("address")), (None, None));
}

#[test]
fn requests_of_the_organizations_that_the_operator_names_are_counted() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let (operator, organization) = api(dir.path(), &[]);
    let other = operator.post("/iam/v2/groups", &json!({ "name": "other" })).ok()["uid"].as_str().unwrap().to_owned();
    let match_of = json!({ "issuer": "https://issuer.example", "subject": "someone" });
    let identity = json!({ "name": "someone", "claimMatch": match_of });
    let identities = [&organization, &other].map(|parent| {
        let made = operator.post(&format!("/iam/v2/identities/{parent}"), &identity).ok();
        made["uid"].as_str().unwrap().to_owned()
    });
    drop(server);
    let (_server, metrics) = start(dir.path(), &["--metrics-organization", &organization]);
    let (operator, _) = api(dir.path(), &[]);
    for (identity, requests) in identities.iter().zip([3, 2]) {
        let token = run(dir.path(), &["token", "--identity", identity]).ok();
        for _ in 0..requests {
            operator.with_token(token.trim()).get("/registry/v2/repos").ok();
        }
    }
    operator.get("/registry/v2/repos").ok();
    operator.with_token("invalid").get("/registry/v2/repos").error(401);
    let scraped = Scraped::parse(&metrics.get("/metrics").text).series;
    let counted: BTreeMap<_, _> =
        scraped.iter().filter(|(name, _)| name.starts_with("platform_organization_requests_total{")).collect();
    let series = |label: &str| format!("platform_organization_requests_total{{organization=\"{label}\"}}");
    let expected = [(series(&organization), 3.0), (series("none"), 1.0), (series("other"), 2.0)];
    assert_eq!(counted, expected.iter().map(|(name, count)| (name, count)).collect());
    let empty = tempdir().unwrap();
    let wrong = format!("{organization}/0123456789abcdef");
    let options = ["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--metrics-organization", &wrong];
    let error = run(empty.path(), &options).failed();
    assert!(error.contains("must be the uid of an organization"), "{error}");
}

#[test]
fn operators_change_the_log_while_the_server_runs() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory"]);
    let (api, organization) = api(dir.path(), &[]);
    assert_eq!(api.get("/operator/log").ok(), json!({ "filter": "info", "slowRequest": "" }));
    api.with_token("x").get("/operator/log").error(401);
    let identity = api.post(&format!("/iam/v2/identities/{organization}"), &json!({ "name": "reader" }));
    let identity = identity.json()["uid"].as_str().unwrap_or_default().to_owned();
    if !identity.is_empty() {
        let token = run(dir.path(), &["token", "--identity", &identity]).ok();
        assert_ne!(api.with_token(token.trim()).get("/operator/log").status, 200);
    }
    for (body, field) in [
        (json!({ "filter": "platform_http=loud" }), "filter"),
        (json!({ "filter": "x".repeat(5_000) }), "filter"),
        (json!({ "slowRequest": "1x" }), "slowRequest"),
        (json!({ "filter": "warn", "slowRequest": "1x" }), "slowRequest"),
        (json!({ "level": "info" }), "body"),
    ] {
        let error = api.patch("/operator/log", &body).error(400);
        assert_eq!(error["details"][1]["fieldViolations"][0]["field"], field, "{error}");
    }
    assert_eq!(api.get("/operator/log").ok(), json!({ "filter": "info", "slowRequest": "" }), "nothing has changed");

    let changed = api.patch("/operator/log", &json!({ "filter": "warn", "slowRequest": "1us" })).ok();
    assert_eq!(changed, json!({ "filter": "warn", "slowRequest": "1us" }));
    let begun = server.log().len();
    api.get("/registry/v2/repos").ok();
    until(|| server.log()[begun..].contains("slow request"));
    let log = server.log()[begun..].to_owned();
    let slow = log.lines().find(|line| line.contains("/registry/v2/repos") || line.contains("ListRepos")).unwrap();
    assert!(slow.contains("WARN") && slow.contains("ReposService.ListRepos") && slow.contains("micros="), "{slow}");
    assert!(!log.contains("INFO"), "{log}");
    api.patch("/operator/log", &json!({ "slowRequest": "" })).ok();
    assert_eq!(api.get("/operator/log").ok(), json!({ "filter": "warn", "slowRequest": "" }));
}

#[test]
fn a_hangup_reloads_what_can_change_and_an_invalid_file_changes_nothing() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("platform.toml");
    fs::write(&file, "store = 'memory'\nlog = 'info'\n").unwrap();
    let server = Server::start(dir.path(), &["--config", "platform.toml"]);
    let (api, _) = api(dir.path(), &["--config", "platform.toml"]);
    let hang_up = |text: &str, message: &str| {
        let begun = server.log().len();
        fs::write(&file, text).unwrap();
        let done = std::process::Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().unwrap();
        assert!(done.success());
        until(|| server.log()[begun..].contains(message));
        server.log()[begun..].to_owned()
    };
    let filter = || api.get("/operator/log").ok()["filter"].as_str().unwrap().to_owned();

    let log = hang_up("store = 'memory'\nlog = 'info'\nlogg = 'debug'\n", "was not reloaded");
    assert!(log.contains("did you mean `log`") && log.contains("nothing has changed"), "{log}");
    let log = hang_up("store = 'memory'\nlog = 'platform_http=loud'\nidentity-rate = '1'\n", "was not reloaded");
    assert!(log.contains("log filter"), "{log}");
    assert_eq!(filter(), "info");
    assert!((0..5).all(|_| api.get("/registry/v2/repos").status == 200), "there is no rate limit");

    let new = "store = 'sqlite'\nlog = 'info,hyper=warn'\nidentity-rate = '1:1'\nslow-request = '9s'\n";
    let log = hang_up(new, "take effect when");
    assert!(log.contains("options=\"store\"") && log.contains("changed=\"log, slow-request, identity-rate\""), "{log}");
    until(|| api.get("/registry/v2/repos").status == 429);
    until(|| api.get("/operator/log").status == 200);
    hang_up("store = 'memory'\nlog = 'debug'\n", "reloaded the configuration");
    assert!((0..5).all(|_| api.get("/registry/v2/repos").status == 200), "there is no rate limit any more");
    assert_eq!(api.get("/operator/log").ok(), json!({ "filter": "debug", "slowRequest": "" }));
}

#[test]
fn config_explains_options_and_prints_the_schema_of_the_file() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("platform.toml"), "log = 'debug'\n").unwrap();
    let mut command = program(dir.path(), &["config", "explain", "--config", "platform.toml", "--max-body", "5"]);
    let output = command.env("PLATFORM_STORE", "memory").env("PLATFORM_LOGG", "x").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let source = |name: &str| {
        let line = stdout.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(source("log"), "debug file platform.toml");
    assert_eq!(source("store"), "memory environment PLATFORM_STORE");
    assert_eq!(source("max-body"), "5 flag --max-body");
    assert_eq!(source("data-dir"), "platform-data default");
    assert!(stderr.contains("PLATFORM_LOGG; did you mean PLATFORM_LOG?"), "{stderr}");
    let json: Value = serde_json::from_str(&run(dir.path(), &["config", "explain", "--json"]).ok()).unwrap();
    assert!(json.as_array().unwrap().iter().any(|one| one["name"] == "log" && one["source"] == "default"));
    let schema: Value = serde_json::from_str(&run(dir.path(), &["config", "schema"]).ok()).unwrap();
    assert_eq!(schema["properties"]["log-format"]["enum"], json!(["text", "json"]));
    assert!(!dir.path().join("platform-data").exists(), "nothing was created");
}
