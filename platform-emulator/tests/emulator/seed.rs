//! Seeds in YAML and presets.

use platform_emulator::{Preset, Upstream};
use serde_json::json;

use crate::Client;

#[tokio::test]
async fn the_small_preset_has_an_identity_that_signs_in_and_may_pull() {
    let client = Client::new().await;
    let seeded = client.call("POST", "/_emulator/seed?preset=small", "").await.ok();
    assert_eq!(client.repos().await, ["base", "nginx"]);
    let ci = seeded["uids"]["identities/team/ci"].as_str().unwrap();
    let request = Upstream { subject: "ci".to_owned(), ..Upstream::default() };
    let upstream = client.tenant.upstream_token(&request).unwrap();
    let path = format!("/sts/exchange?aud=http://emulator.test&identity={ci}");
    let upstream = format!("Bearer {upstream}");
    let exchanged = client.call_with("POST", &path, "", &[("authorization", &upstream)]).await.ok();
    let token = format!("Bearer {}", exchanged["token"].as_str().unwrap());
    let page = client.call_with("GET", "/registry/v2/repos", "", &[("authorization", &token)]).await.ok();
    assert_eq!(page["repos"][0]["name"], "nginx", "the repo of its team alone: {page}");
    assert_eq!(page["totalCount"], "1");
}

#[tokio::test]
async fn the_large_preset_has_lists_of_many_pages() {
    let client = Client::new().await;
    let seeded = client.tenant.seed_preset(Preset::Large).await.unwrap();
    assert_eq!((seeded.created, seeded.uids.len()), (10_020, 10_020));
    let page = client.get("/registry/v2/repos?page_size=10").await.ok();
    assert_eq!(page["totalCount"], "1000");
}

#[tokio::test]
async fn resources_name_those_of_the_document_and_those_that_exist() {
    let client = Client::new().await;
    client.tenant.seed("groups: [{name: team}, {name: other, parent: /}]").await.unwrap();
    let seeded = client
        .tenant
        .seed(
            &"groups: [{parent: team, name: deep}]\n\
             repos: [{parent: team/deep, name: a}, {parent: /other, name: b}, {name: c}]\n\
             tags: [{parent: team/deep/a, name: latest, digest: 'sha256:DIGEST'}]\n\
             roles: [{name: mine, capabilities: [CAP_REPO_LIST]}]\n\
             identities: [{name: ci, claimMatch: {issuer: 'https://ci.example.com', subject: x}}]\n\
             roleBindings:\n\
             - {parent: team, identityUid: '${identities/ci}', roleUid: '${roles/mine}'}\n\
             - {parent: /other, identityUid: '${identities//platform/ci}', roleUid: '${roles/viewer}'}\n"
                .replace("DIGEST", &"0".repeat(64)),
        )
        .await;
    // An identity gets roles in its own organization only, so the last binding is rejected, and all with it.
    let error = seeded.unwrap_err();
    assert!(error.to_string().contains("roleBindings[1]"), "{error}");
    assert!(client.repos().await.is_empty());
    let seeded = client.tenant.seed("repos: [{parent: team, name: a}, {parent: /other, name: b}, {name: c}]").await;
    let seeded = seeded.unwrap();
    assert_eq!(seeded.uids.keys().collect::<Vec<_>>(), ["repos//other/b", "repos/c", "repos/team/a"]);
    assert_eq!(client.repos().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn an_invalid_seed_is_rejected_with_its_place_and_creates_nothing() {
    let client = Client::new().await;
    for (yaml, field) in [
        ("repos: {}", "repos"),
        ("repos: [1]", "repos[0]"),
        ("gadgets: []", "gadgets"),
        ("images: []", "images"),
        ("- repos", "body"),
        ("repos: [", "body"),
        ("repos: []\nrepos: []", "body"),
        ("repos: [{name: a}, {name: ''}]", "repos[1].name"),
        ("repos: [{name: a}, {name: b, nam: c}]", "repos[1].nam"),
        ("repos: [{name: a, parent: none}]", "repos[0].parent"),
        ("repos: [{name: a, parent: 1}]", "repos[0].parent"),
        ("roleBindings: [{identityUid: '${identities/none}', roleUid: x}]", "roleBindings[0].identityUid"),
        ("roleBindings: [{identityUid: '${none}', roleUid: x}]", "roleBindings[0].identityUid"),
    ] {
        let reply = client.call("POST", "/_emulator/seed", yaml).await;
        assert_eq!((reply.status, reply.fields()), (400, vec![field]), "{yaml}: {}", reply.body);
    }
    let duplicate = client.call("POST", "/_emulator/seed", "repos: [{name: a}, {name: a}]").await;
    assert_eq!(duplicate.status, 409);
    assert!(duplicate.body["message"].as_str().unwrap().starts_with("repos[1]: "), "{}", duplicate.body);
    assert!(client.repos().await.is_empty());
    assert_eq!(client.call("POST", "/_emulator/seed?preset=medium", "").await.fields(), ["preset"]);
    assert_eq!(client.call("POST", "/_emulator/seed?preset=small", "repos: []").await.fields(), ["body"]);
}

#[tokio::test]
async fn expansion_bombs_are_rejected() {
    let client = Client::new().await;
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let repeated = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{repeated}]\n"));
    }
    for yaml in [bomb, format!("repos: {}", "[".repeat(100_000))] {
        assert_eq!(client.call("POST", "/_emulator/seed", &yaml).await.fields(), ["body"]);
    }
}

#[tokio::test]
async fn a_seed_may_be_json() {
    let client = Client::new().await;
    let seeded = client.post("/_emulator/seed", json!({ "repos": [{ "name": "a" }] })).await.ok();
    assert_eq!(seeded["created"], 1);
}

/// The page of the documentation has a seed and faults to copy.
#[tokio::test]
async fn the_examples_of_the_documentation_work() {
    let client = Client::new().await;
    let page = include_str!("../../../docs/how-to/emulator.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    assert_eq!(client.call("POST", "/_emulator/seed", yaml).await.ok()["created"], 5);
    let faults = page.lines().filter(|line| line.ends_with("$API/_emulator/faults"));
    let bodies: Vec<_> = faults.map(|line| line.split('\'').nth(1).unwrap()).collect();
    assert_eq!(bodies.len(), 3);
    for body in bodies {
        client.call("POST", "/_emulator/faults", body).await.ok();
    }
}

#[tokio::test]
async fn the_demo_has_images_whose_vulnerabilities_have_every_severity_and_state() {
    let client = Client::new().await;
    let seeded = client.call("POST", "/_emulator/seed?preset=demo", "").await.ok();
    assert!(seeded["uids"]["repos/web/nginx"].is_string(), "{seeded}");
    let reports = client.get("/registry/v1/vuln_reports/counts").await.ok();
    for severity in ["critical", "high", "medium", "low"] {
        assert!(reports.to_string().to_lowercase().contains(severity), "{severity}: {reports}");
    }
    let advisories = client.get("/vulnerabilities/v2/advisories?page_size=100").await.ok();
    let advisories = advisories["advisories"].as_array().unwrap();
    assert_eq!(advisories.len(), 10);
    assert!(advisories.iter().all(|advisory| !advisory["severities"].as_array().unwrap().is_empty()));
    let states = ["fixed", "falsePositiveDetermination", "pendingUpstreamFix", "fixNotPlanned"];
    for state in states {
        assert!(advisories.iter().any(|advisory| advisory["events"][1].get(state).is_some()), "{state}");
    }
}
