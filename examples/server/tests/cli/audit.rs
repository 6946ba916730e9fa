//! The audit log of a server whose clients go away, or want to hide what was changed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{
    Api, STORES, Server, api,
    audit::{created, entries, send_and_close},
    run,
};

#[test]
fn each_change_of_a_client_that_closes_its_connection_has_an_entry_and_a_line_in_the_log() {
    for store in STORES {
        let dir = tempdir().unwrap();
        let options = ["--store", store, "--audit-log", "audit.log", "--log-format", "json"];
        let server = Server::start(dir.path(), &options);
        let (operator, organization) = api(dir.path(), &["--store", store]);
        let path = format!("/registry/v2/repos/{organization}");
        for number in 0..200 {
            send_and_close(&operator, &path, &json!({ "name": format!("repo-{number}") }), number / 8);
        }
        // The server stops once the changes that it has begun are made.
        server.terminate();
        let stopped = server.wait();
        let audited = created(&entries(&dir.path().join("audit.log")));
        assert!(!audited.is_empty(), "{store}");
        let lines = stopped.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_create = |line: &Value| line["span"]["method"] == "POST" && line["fields"]["status"] == 200;
        assert_eq!(lines.filter(is_create).count(), audited.len(), "{store}: {}", stopped.stderr);
        if store == "memory" {
            continue;
        }
        let _server = Server::start(dir.path(), &options);
        let (operator, _) = api(dir.path(), &["--store", store]);
        let mut stored = BTreeSet::new();
        let mut page_token = String::new();
        loop {
            let page = operator.get(&format!("/registry/v2/repos?page_size=200&page_token={page_token}")).ok();
            stored
                .extend(page["repos"].as_array().unwrap().iter().map(|repo| repo["uid"].as_str().unwrap().to_owned()));
            match page["nextPageToken"].as_str() {
                Some(next) => page_token = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(stored, audited, "{store}");
    }
}

#[test]
fn requests_of_callers_without_rights_do_not_rotate_the_entry_of_a_change_away() {
    let dir = tempdir().unwrap();
    let options = ["--store", "memory", "--audit-log", "audit.log", "--audit-log-size", "10K", "--audit-log-keep", "1"];
    let _server = Server::start(dir.path(), &options);
    let (operator, organization) = api(dir.path(), &["--store", "memory"]);
    let claims = json!({ "issuer": "https://issuer.test", "subject": "nobody" });
    let nobody = json!({ "name": "nobody", "claimMatch": claims });
    let nobody = operator.post(&format!("/iam/v2/identities/{organization}"), &nobody).ok();
    let nobody = nobody["uid"].as_str().unwrap().to_owned();
    let token = run(dir.path(), &["token", "--store", "memory", "--identity", &nobody]).ok();
    let (nobody, stranger) = (operator.with_token(token.trim()), operator.with_token("invalid"));
    let repos = format!("/registry/v2/repos/{organization}");
    let repo = operator.post(&repos, &json!({ "name": "evidence" })).ok();
    for number in 0..100 {
        let body = json!({ "name": format!("repo-{number}") });
        nobody.post(&repos, &body).error(403);
        nobody.post("/registry/v2/repos/invalid", &body).error(400);
        stranger.post(&repos, &body).error(401);
        stranger.get("/iam/v2/groups").error(401);
        // A client of its own, because the endpoint closes the connection of a body that it has not read.
        let once = Api::new(&nobody.url, &nobody.token);
        once.send("PUT", "/operator/read-only", Some(&json!({ "readOnly": true }))).error(403);
    }
    let log = entries(&dir.path().join("audit.log"));
    assert!(created(&log).contains(repo["uid"].as_str().unwrap()), "{log:?}");
    let failed = ["audit.log.failed", "audit.log.failed.1"].map(|name| dir.path().join(name));
    let sizes = failed.each_ref().map(|file| std::fs::metadata(file).unwrap().len());
    assert!(sizes.iter().all(|size| *size <= 10_240), "{sizes:?}");
    // Both files together are full: requests without rights were written, and are bounded.
    let codes: BTreeSet<_> =
        failed.iter().flat_map(|file| entries(file)).map(|entry| entry["code"].as_str().unwrap().to_owned()).collect();
    assert_eq!(codes, ["INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED"].map(str::to_owned).into());
    assert!(!dir.path().join("audit.log.1").exists());
}

#[test]
fn an_exchange_by_a_client_of_oauth_has_the_entry_of_an_exchange_and_its_tokens_are_logged_nowhere() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory", "--audit-log", "audit.log"]);
    let (operator, _) = api(dir.path(), &["--store", "memory"]);
    let anybody = operator.with_token("not a token");
    let documents = ["openid-configuration", "oauth-authorization-server"];
    let [found, same] = documents.map(|name| anybody.get(&format!("/.well-known/{name}")).ok());
    assert_eq!(found, same);
    let path = found["token_endpoint"].as_str().unwrap().strip_prefix(operator.url.as_str()).unwrap().to_owned();
    let exchange = |token: &str| {
        let kind = "urn:ietf:params:oauth:token-type:jwt";
        let grant = "urn:ietf:params:oauth:grant-type:token-exchange";
        anybody.form(&path, &format!("grant_type={grant}&subject_token={token}&subject_token_type={kind}"))
    };
    let reply = exchange(&operator.token).ok();
    let token = reply["access_token"].as_str().unwrap().to_owned();
    operator.with_token(&token).get("/auth/v1/ok").ok();
    let forged = format!("{token}AAAA");
    assert_eq!(exchange(&forged).error(400)["error"], "invalid_request");
    let refused = anybody.form(&path, "grant_type=refresh_token&refresh_token=secret-refresh").error(400);
    assert_eq!(refused["error"], "invalid_grant");

    let read = |part: &str| std::fs::read_to_string(dir.path().join(format!("audit.log{part}"))).unwrap();
    let log = ["", ".sign-ins", ".failed"].map(read).concat();
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let shown = entries.iter().map(|entry| ["event", "code", "method"].map(|name| text(entry, name)).join(" "));
    let denied = "denied UNAUTHENTICATED Tokens";
    assert_eq!(shown.collect::<Vec<_>>(), ["exchange OK Tokens", denied, denied]);
    assert_eq!(entries[0]["request"], "POST /oauth/token");
    assert_eq!(entries[0]["issued"]["identity"], entries[0]["issued"]["upstream"]["sub"]);
    let stderr = server.kill();
    for secret in [&operator.token, &token, &forged, "secret-refresh"] {
        assert!(!log.contains(secret) && !stderr.contains(secret), "a secret is in a log");
    }
}
