//! The read-only domains over HTTP: every path answers, and open paths need no token.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header::IF_NONE_MATCH};
use http_body_util::Full;
use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    libraries::{Artifact, ArtifactVersion},
    registry::Image,
    vulnerabilities::Advisory,
};
use platform_engine::{access::Caller, kind::Imported, uid::Uid};
use platform_http::{Limits, Rest};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{self, Answer, OPERATOR, ORG, call_as, get, post};

async fn put<R: Imported>(api: &Rest, parent: &str, resource: Value) -> Uid {
    let operator = Caller::new(Uid::parse(OPERATOR).unwrap());
    let resource: R = serde_json::from_value(resource).unwrap();
    let uid = resource.uid_in(&Uid::opaque(parent));
    let reply = api.platform().put(&operator, parent, [resource]).await.unwrap();
    assert!(reply.refused.is_empty(), "{reply:?}");
    uid
}

/// Returns an API with one resource of each kind, and the repo's uid.
async fn api() -> (Rest, String) {
    let api = support::rest(Limits::default()).await;
    let repo = post(&api, &format!("/registry/v2/repos/{ORG}"), json!({ "name": "nginx" })).await.ok();
    let repo = repo["uid"].as_str().unwrap().to_owned();
    let digest = digest();
    let packages = json!([{ "name": "openssl", "version": "3.1.0-r0" }]);
    let platforms = json!([{ "architecture": "amd64", "digest": digest, "size": "12", "packages": packages }]);
    put::<Image>(&api, &repo, json!({ "digest": digest, "index": true, "platforms": platforms })).await;
    post(&api, &format!("/registry/v2/tags/{repo}"), json!({ "name": "latest", "digest": digest })).await.ok();
    let fixed = json!([{
        "createTime": "2026-01-01T00:00:00Z", "reviewState": "REVIEW_STATE_APPROVED", "fixed": { "fixedVersion": "3.1.0-r0" },
    }]);
    let advisory = json!({ "advisoryId": "CGA-1", "artifactName": "openssl", "aliases": ["CVE-1"], "events": fixed });
    put::<Advisory>(&api, ORG, advisory).await;
    put::<VulnerabilityMetadata>(&api, "", json!({ "id": "CVE-1" })).await;
    let artifact = put::<Artifact>(&api, "", json!({ "ecosystem": "ECOSYSTEM_JAVA", "name": "g:a" })).await;
    put::<ArtifactVersion>(&api, "", json!({ "artifact": artifact, "version": "1.0" })).await;
    (api, repo)
}

fn digest() -> String {
    format!("sha256:{}", "0".repeat(64))
}

#[tokio::test]
async fn every_path_answers_in_both_versions_with_the_imported_data() {
    let (api, repo) = api().await;
    let advisory = get(&api, "/vulnerabilities/v2/advisories?aliases=CVE-1").await.ok()["advisories"][0].clone();
    let (uid, digest) = (advisory["uid"].as_str().unwrap(), digest());
    let encoded = digest.replace(':', "%3A");
    let day = "startTime=2026-01-01T00:00:00Z&endTime=2026-01-01T00:00:00Z";
    for (path, pointer, expected) in [
        (format!("vulnerabilities/v2/advisories/{uid}"), "/advisoryId", "CGA-1"),
        ("vulnerabilities/v2/advisories?artifactNames=openssl&artifact_names=curl".to_owned(), "/totalCount", "1"),
        ("advisory/v2/documents?cves=CVE-1&cves=CVE-2".to_owned(), "/documents/0/advisories/0/id", "CGA-1"),
        ("advisory/v2/metadata?ids=CVE-1&ids=CVE-2".to_owned(), "/vulnerabilityMetadata/0/id", "CVE-1"),
        (
            format!("advisory/v2/images/resolvedVulns?imageRefs=nginx:latest&imageRefs={repo}&{day}"),
            "/resolvedVulnsReports/0/resolvedVulns/0/id",
            "CGA-1",
        ),
        (format!("registry/v2/repos/{repo}/digests/{digest}/architectures"), "/architectures/0", "amd64"),
        (format!("registry/v2/repos/{repo}/digests/{encoded}/size?architecture=amd64"), "/size", "12"),
        ("libraries/v2/artifacts?ecosystems=ECOSYSTEM_JAVA".to_owned(), "/artifacts/0/name", "g:a"),
        ("libraries/v2/artifacts/count?ecosystems=ECOSYSTEM_JAVA&ecosystems=2".to_owned(), "/counts/0/totalCount", "1"),
        ("libraries/v2/artifacts/java:g:a/versions".to_owned(), "/artifactVersions/0/version", "1.0"),
        ("libraries/v2/artifacts/java%3Ag:a/versions".to_owned(), "/artifactVersions/0/version", "1.0"),
    ] {
        for path in [format!("/{path}"), format!("/{}", path.replacen("/v2/", "/v2beta1/", 1))] {
            let answer = get(&api, &path).await.ok();
            assert_eq!(answer.pointer(pointer), Some(&json!(expected)), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn public_paths_need_no_token_and_the_others_do() {
    let (api, _) = api().await;
    for (path, status) in [
        ("/advisory/v2/documents", 200),
        ("/advisory/v2/metadata?page_size=1", 200),
        ("/advisory/v2/images/resolvedVulns", 401),
        ("/vulnerabilities/v2/advisories", 401),
        ("/libraries/v2/artifacts?ecosystems=1", 401),
        ("/libraries/v2/artifacts/count?ecosystems=1", 401),
    ] {
        let answer = call_as(&api, None, Method::GET, path, "").await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_invalid_fields() {
    let (api, _) = api().await;
    for (path, status, fields) in [
        ("/libraries/v2/artifacts", 400, &["ecosystems"][..]),
        ("/libraries/v2/artifacts?ecosystems=1&uidp.ids=a", 400, &["uidp.ids"]),
        ("/libraries/v2/artifacts/java:g:a/versions?artifactId=b", 400, &["artifactId"]),
        ("/libraries/v2/artifacts/java:g:b/versions", 404, &[]),
        ("/libraries/v2/artifacts/java:g%2Fb/versions", 404, &[]),
        ("/advisory/v2/images/resolvedVulns?imageRefs=a", 400, &["startTime", "endTime"]),
        ("/vulnerabilities/v2/advisories?latestEventType=9", 400, &["latestEventType"]),
        ("/advisory/v2/documents?page_size=1", 400, &["page_size"]),
    ] {
        let answer = get(&api, path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {answer:?}");
        if status == 400 {
            assert_eq!(answer.fields(), fields, "{path}");
        }
    }
}

#[tokio::test]
async fn a_client_that_has_the_documents_gets_304_until_they_change() {
    let (api, _) = api().await;
    let ask = |tag: Option<&str>| {
        let mut request = Request::builder().uri("/advisory/v2/documents");
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let api = api.clone();
        async move { Answer::of(api.oneshot(request).await.unwrap()).await }
    };
    let first = ask(None).await;
    let tag = first.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(first.ok()["documents"].as_array().unwrap().len(), 1);
    for known in [tag.clone(), format!("\"other\", {tag}"), tag.replace("W/", ""), "*".to_owned()] {
        let again = ask(Some(&known)).await;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{known}");
        assert_eq!(again.headers["etag"], tag.as_str());
    }
    put::<Advisory>(
        &api,
        ORG,
        json!({ "advisoryId": "CGA-2", "artifactName": "b", "events": [{
        "reviewState": "REVIEW_STATE_APPROVED", "fixNotPlanned": { "note": "no" },
    }] }),
    )
    .await;
    let changed = ask(Some(&tag)).await;
    assert_ne!(changed.headers["etag"], tag.as_str());
    assert_eq!(changed.ok()["documents"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn services_that_are_left_out_say_why() {
    let api = support::rest(Limits::default()).await;
    let answer = get(&api, "/libraries/v2beta1/requestGroups").await;
    assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(answer.json()["details"][0]["reason"], "UNIMPLEMENTED");
    assert_eq!(answer.json()["details"][0]["domain"].as_str().unwrap().split('.').next(), Some("libraries"));
}
