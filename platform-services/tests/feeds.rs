//! Feeds for scanners: who may read them, how a client learns that one has changed, and how many are made at once.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-http/tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use platform_core::resources::{
    iam::{Group, Identity, Role, RoleBinding},
    vulnerabilities::{
        Advisory, AdvisoryEvent,
        advisory::{ReviewState, event::Fixed},
    },
};
use platform_engine::{access::Caller, kind::Resource, timestamp::Timestamp, uid::Uid};
use platform_http::{Limits, Rest};
use platform_services::Feeds;
use support::{Answer, OPERATOR, ORG, UidIsToken, call_as, platform, send};
use tower::ServiceExt;

const FORMATS: [&str; 3] = ["osv", "secdb", "openvex"];

fn operator() -> Caller {
    Caller::new(Uid::parse(OPERATOR).unwrap())
}

fn advisory(number: usize) -> Advisory {
    let fixed = Fixed { fixed_version: format!("1.{number}-r0"), ..Fixed::default() };
    Advisory {
        advisory_id: format!("CGA-{number}"),
        aliases: vec![format!("CVE-2026-{number}")],
        artifact_name: "openssl".to_owned(),
        package_namespace: "wolfi".to_owned(),
        events: vec![AdvisoryEvent {
            create_time: Some(Timestamp::EPOCH),
            review_state: ReviewState::ReviewStateApproved,
            fixed: Some(fixed),
            ..AdvisoryEvent::default()
        }],
        ..Advisory::default()
    }
}

async fn put(rest: &Rest, group: &str, advisories: impl IntoIterator<Item = Advisory, IntoIter: Send> + Send) {
    let reply = rest.platform().put(&operator(), group, advisories).await.unwrap();
    assert!(reply.refused.is_empty(), "{reply:?}");
}

async fn rest() -> Rest {
    let platform = Arc::new(platform().await);
    let feeds = Feeds::new(Arc::clone(&platform), "https://a.test");
    Rest::new(platform, Arc::new(UidIsToken), Limits::default()).unwrap().mount(feeds)
}

async fn get(rest: &Rest, path: &str) -> Answer {
    call_as(rest, Some(OPERATOR), Method::GET, path, "").await
}

async fn get_if_changed(rest: &Rest, path: &str, etag: &str) -> Answer {
    let headers = [("authorization", format!("Bearer {OPERATOR}")), ("if-none-match", etag.to_owned())];
    send(rest, Method::GET, path, &headers, "").await
}

#[tokio::test]
async fn a_feed_has_the_advisories_at_and_below_the_group() {
    let rest = rest().await;
    let platform = rest.platform();
    let below = platform.create(&operator(), ORG, &Group { name: "below".into(), ..Group::default() }).await.unwrap();
    // More than a page.
    put(&rest, ORG, (0..1100).map(advisory)).await;
    put(&rest, &below.uid, [advisory(2000)]).await;
    for (group, ids) in [(ORG, 1101), (below.uid.as_str(), 1)] {
        for (format, media_type) in FORMATS.into_iter().zip(["application/zip", "application/json", "application/json"])
        {
            let answer = get(&rest, &format!("/feeds/{format}?group={group}")).await;
            assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (200, &media_type.parse().unwrap()));
            assert_eq!(answer.headers["cache-control"], "private, no-cache");
            match format {
                // The number of entries, in the last record of the archive.
                "osv" => assert_eq!(answer.body[answer.body.len() - 74..][..8], u64::to_le_bytes(ids)),
                "secdb" => {
                    let fixes = answer.json()["packages"][0]["pkg"]["secfixes"].as_object().unwrap().len();
                    assert_eq!((fixes, answer.json()["packages"].as_array().unwrap().len()), (ids as usize, 1));
                }
                _ => {
                    assert_eq!(answer.json()["statements"].as_array().unwrap().len(), ids as usize);
                    let id = format!("https://a.test/feeds/openvex?group={}", group.replace('/', "%2F"));
                    assert_eq!(answer.json()["@id"], id);
                }
            }
        }
    }
}

#[tokio::test]
async fn every_change_gives_a_feed_another_tag_and_raises_the_version_of_openvex() {
    let rest = rest().await;
    let path = format!("/feeds/openvex?group={ORG}");
    let (mut tags, mut version) = (Vec::<String>::new(), 0);
    for step in 0..4 {
        match step {
            0 => {}
            1 => put(&rest, ORG, [advisory(1), advisory(2)]).await,
            2 => put(&rest, ORG, [Advisory { author: "ada@example.com".to_owned(), ..advisory(1) }]).await,
            _ => drop(rest.platform().remove_all::<Advisory>(&operator(), ORG).await.unwrap()),
        }
        let answer = get(&rest, &path).await;
        let tag = answer.headers["etag"].to_str().unwrap().to_owned();
        for known in &tags {
            assert_eq!(get_if_changed(&rest, &path, known).await.status, 200, "step {step}");
        }
        let raised = answer.json()["version"].as_u64().unwrap();
        assert!(step == 0 || raised > version, "step {step}: {raised} after {version}");
        version = raised;
        let same = get_if_changed(&rest, &path, &format!("\"a\", {tag}")).await;
        assert_eq!((same.status.as_u16(), same.body.len(), &same.headers["etag"]), (304, 0, &tag.parse().unwrap()));
        let head = call_as(&rest, Some(OPERATOR), Method::HEAD, &path, "").await;
        assert_eq!((head.status.as_u16(), head.body.len(), &head.headers["etag"]), (200, 0, &tag.parse().unwrap()));
        tags.push(tag);
    }
}

#[tokio::test]
async fn a_feed_needs_the_capability_to_list_advisories_and_denies_missing_groups_alike() {
    let rest = rest().await;
    let platform = rest.platform();
    let group = |name: &str| Group { name: name.into(), ..Group::default() };
    let own = platform.create(&operator(), ORG, &group("own")).await.unwrap();
    let other = platform.create(&operator(), ORG, &group("other")).await.unwrap();
    put(&rest, &own.uid, [advisory(1)]).await;
    let identity = Identity { name: "scanner".into(), last_seen_time: None, ..Identity::example() };
    let identity = platform.create(&operator(), &own.uid, &identity).await.unwrap();
    let role = Role { name: "reader".into(), capabilities: vec!["CAP_ADVISORIES_LIST".into()], ..Role::default() };
    let role = platform.create(&operator(), ORG, &role).await.unwrap();
    let read = async |group: &str, format: &str| {
        call_as(&rest, Some(identity.uid.as_str()), Method::GET, &format!("/feeds/{format}?group={group}"), "").await
    };
    let missing = format!("{}/0123456789abcdef", other.uid);
    let elsewhere = "0".repeat(40);
    let mut denials = Vec::new();
    for format in FORMATS {
        for group in [own.uid.as_str(), other.uid.as_str(), ORG, &missing, &elsewhere] {
            let (status, code, message) = read(group, format).await.refusal();
            denials.push((status, code, message.replace(group, "GROUP")));
        }
    }
    assert!(denials.iter().all(|denial| (denial.0, denial.1) == (403, 7) && *denial == denials[0]), "{denials:#?}");
    let binding = RoleBinding { identity_uid: identity.uid.clone(), role_uid: role.uid, ..RoleBinding::default() };
    platform.create(&operator(), &own.uid, &binding).await.unwrap();
    for format in FORMATS {
        assert_eq!(read(&own.uid, format).await.status, 200);
        assert_eq!(read(&other.uid, format).await.refusal().0, 403);
        let below = format!("{}/0123456789abcdef", own.uid);
        assert_eq!(read(&below, format).await.refusal().0, 404);
    }
    let anonymous = call_as(&rest, None, Method::GET, &format!("/feeds/osv?group={}", own.uid), "").await;
    assert_eq!(anonymous.refusal().0, 401);
}

#[tokio::test]
async fn an_invalid_request_names_the_parameter() {
    let rest = rest().await;
    for (path, status, fields) in [
        ("/feeds/csv?group=a", 404, &[][..]),
        ("/feeds/", 404, &[]),
        ("/feeds/osv/?group=a", 404, &[]),
        ("/feeds/osv", 400, &["group"]),
        ("/feeds/osv?group=nonsense", 400, &["group"]),
        ("/feeds/osv?group=a&group=a", 400, &["group"]),
        ("/feeds/osv?group=a&of=a", 400, &["of"]),
        ("/feeds/osv?group=a&namespace=a&namespace=b", 400, &["namespace"]),
    ] {
        let answer = get(&rest, path).await;
        let (found, _, message) = answer.refusal();
        assert_eq!(found, status, "{path}");
        if status == 404 {
            assert!(message.ends_with("must be one of osv, secdb, openvex"), "{path}: {message}");
        }
        if status == 400 {
            assert_eq!(answer.fields(), fields, "{path}");
        }
    }
    let post = call_as(&rest, Some(OPERATOR), Method::POST, &format!("/feeds/osv?group={ORG}"), "").await;
    assert_eq!(post.refusal().0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_over_the_limit_are_rejected_until_another_one_has_ended() {
    let rest = rest().await;
    // Longer than what waits for a client that does not read.
    put(&rest, ORG, (0..6000).map(advisory)).await;
    let path = format!("/feeds/openvex?group={ORG}");
    let begin = async || {
        let request = Request::get(&path).header("authorization", format!("Bearer {OPERATOR}"));
        rest.clone().oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap()
    };
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(begin().await);
    }
    let refused = Answer::of(begin().await).await;
    assert_eq!(refused.refusal().0, 429);
    assert_eq!(refused.headers["retry-after"], "1");
    let etag = open[0].headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(get_if_changed(&rest, &path, &etag).await.status, 304);
    // One is read to its end, and another one is given up.
    let whole = open.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(whole.ends_with(b"]}\n"));
    drop(open.pop());
    while begin().await.status() != 200 {
        tokio::task::yield_now().await;
    }
}
