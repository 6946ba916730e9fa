//! Version 1 of the API over HTTP: paths, bodies and replies.

use std::sync::Arc;

use http::{Method, StatusCode};
use platform_core::resources::registry::{Digest, Image, Repo, Tag, image::ImagePlatform};
use platform_engine::{
    access::Caller,
    kind::{Action, Domain, Field, Kind, ListPage, Registered},
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_http::{Limits, Rest};
use serde_json::{Value, json};

use crate::support::{self, OPERATOR, ORG, UidIsToken, call_as, get, post, setting::platform_of};

async fn api() -> Rest {
    api_with(Limits::default()).await
}

async fn api_with(limits: Limits) -> Rest {
    let platform = platform_of(Arc::new(MemoryStore::new()), &[]).await;
    Rest::new(Arc::new(platform), Arc::new(UidIsToken), limits).unwrap()
}

async fn call(api: &Rest, method: Method, path: &str, body: Value) -> support::Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    call_as(api, Some(OPERATOR), method, path, body).await
}

#[tokio::test]
async fn the_body_of_a_create_is_the_resource_and_its_path_has_the_parent() {
    let api = api().await;
    let group = post(&api, &format!("/iam/v1/groups/{ORG}"), json!({ "name": "folder" })).await.ok();
    assert_eq!((&group["name"], &group["resourceLimits"]), (&json!("folder"), &json!({})));
    let id = group["id"].as_str().unwrap();
    assert_eq!(get(&api, &format!("/iam/v2/groups/{id}")).await.ok()["name"], "folder");
    let refused = post(&api, &format!("/iam/v1/groups/{ORG}"), json!({ "uid": "x" })).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.fields(), ["uid"]);
    let refused = post(&api, &format!("/iam/v1/groups/{ORG}?group.name=x"), json!({ "name": "y" })).await;
    assert_eq!(refused.fields(), ["group"]);
}

#[tokio::test]
async fn a_body_may_be_a_list() {
    let api = api().await;
    let identity = json!({ "name": "ci", "service_principal": "INGESTER" });
    let identity = post(&api, &format!("/iam/v1/identities/{ORG}"), identity).await.ok();
    let role = json!({ "name": "r", "capabilities": ["repo.list"] });
    let role = post(&api, &format!("/iam/v1/roles/{ORG}"), role).await.ok();
    let batch = json!([{ "identity": identity["id"], "role": role["id"] }]);
    let batch = post(&api, &format!("/iam/v1/rolebindings/batch/{ORG}"), batch).await.ok();
    assert_eq!(batch["roleBindings"][0]["group"], ORG);
}

#[tokio::test]
async fn a_put_replaces_and_a_delete_answers_an_empty_object() {
    let api = api().await;
    let role = json!({ "name": "reader", "description": "d", "capabilities": ["repo.list"] });
    let role = post(&api, &format!("/iam/v1/roles/{ORG}"), role).await.ok();
    let path = format!("/iam/v1/roles/{}", role["id"].as_str().unwrap());
    let replaced = call(&api, Method::PUT, &path, json!({ "name": "reader", "capabilities": ["tag.list"] })).await.ok();
    assert_eq!((&replaced["description"], &replaced["capabilities"]), (&json!(""), &json!(["tag.list"])));
    let other = call(&api, Method::PUT, &path, json!({ "id": ORG, "name": "reader" })).await;
    assert_eq!(other.fields(), ["id"], "the body names another resource");
    assert_eq!(call(&api, Method::DELETE, &path, Value::Null).await.ok(), json!({}));
    assert_eq!(call(&api, Method::DELETE, &path, Value::Null).await.status, StatusCode::NOT_FOUND);
    assert_eq!(call(&api, Method::PATCH, &path, json!({})).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_list_has_everything_that_matches() {
    let api = api().await;
    for number in 0..250 {
        post(&api, &format!("/iam/v1/groups/{ORG}"), json!({ "name": format!("g{number}") })).await.ok();
    }
    for query in [format!("uidp.childrenOf={ORG}"), format!("uidp.children_of={ORG}")] {
        let listed = get(&api, &format!("/iam/v1/groups?{query}")).await.ok();
        assert_eq!(listed["items"].as_array().unwrap().len(), 250, "{query}");
    }
    assert_eq!(
        get(&api, "/iam/v1/groups?id=ffffffffffffffffffffffffffffffffffffffff").await.ok(),
        json!({ "items": [] })
    );
    assert_eq!(get(&api, "/iam/v1/groups?uidp.inRoot=true").await.ok()["items"][0]["id"], ORG);
    assert_eq!(get(&api, "/iam/v1/groups?page_size=1").await.fields(), ["page_size"]);
}

#[tokio::test]
async fn a_long_list_is_sent_page_by_page_and_needs_a_permit() {
    let api = api_with(Limits { long_lists: 0, ..Limits::default() }).await;
    for number in 0..201 {
        post(&api, &format!("/iam/v1/groups/{ORG}"), json!({ "name": format!("g{number}") })).await.ok();
    }
    let refused = get(&api, &format!("/iam/v1/groups?uidp.childrenOf={ORG}")).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let one_page = get(&api, &format!("/iam/v1/groups?uidp.childrenOf={ORG}&name=g7")).await.ok();
    assert_eq!(one_page["items"].as_array().unwrap().len(), 1);
    let head = call(&api, Method::HEAD, &format!("/iam/v1/groups?id={ORG}"), Value::Null).await;
    assert!(head.body.is_empty() && head.status == StatusCode::OK);
}

/// Service with one action, whose pages have as many items as the request says: `0.2` asks for an empty page and one of
/// two items.
const PAGES: Registered = Registered::service(
    &Kind::service_of("Pages", "pages", "PagesService", Domain::new("pages", "test.pages")),
    &[Action::get_pages("ListPages", "pages", |_, request, page_token| {
        Box::pin(async move {
            let sizes: Vec<usize> =
                request["sizes"].as_str().unwrap().split('.').map(|size| size.parse().unwrap()).collect();
            let at = page_token.parse().unwrap_or(0);
            let items = vec![at.to_string().into(); sizes[at]];
            Ok(ListPage { items, next_page_token: (at + 1 < sizes.len()).then(|| (at + 1).to_string()) })
        })
    })
    .request(&[Field::string("sizes").about("The sizes of the pages.")])
    .response(&[Field::strings("items").about("The number of its page, for each item.")])],
);

#[tokio::test]
async fn a_long_list_is_valid_json_whichever_of_its_pages_are_empty() {
    let platform = platform_of(Arc::new(MemoryStore::new()), &[PAGES]).await;
    let api = Rest::new(Arc::new(platform), Arc::new(UidIsToken), Limits::default()).unwrap();
    for pages in 1..=4 {
        // Each bit says whether a page has two items.
        for filled in 0..1_usize << pages {
            let sizes: Vec<_> = (0..pages).map(|page| if filled >> page & 1 == 1 { 2 } else { 0 }).collect();
            let items: Vec<_> = sizes.iter().enumerate().flat_map(|(page, size)| vec![page; *size]).collect();
            let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            let path = format!("/pages/v1/pages?sizes={}", sizes.join("."));
            assert_eq!(get(&api, &path).await.ok(), json!({ "items": items }), "{path}");
        }
    }
}

#[tokio::test]
async fn a_list_whose_first_part_is_empty_is_valid_json() {
    let platform = platform_of(Arc::new(MemoryStore::new()), &[]).await;
    let digest = format!("sha256:{}", "ab".repeat(32));
    let operator = Caller::new(Uid::parse(OPERATOR).unwrap());
    let repo = Repo { name: "repo".to_owned(), ..Repo::default() };
    let repo = platform.create(&operator, ORG, &repo).await.unwrap().uid.to_string();
    let image = Image {
        digest: Digest::opaque(digest.as_str()),
        platforms: vec![ImagePlatform { architecture: "amd64".to_owned(), ..ImagePlatform::default() }],
        ..Image::default()
    };
    assert_eq!(platform.put(&operator, &repo, vec![image]).await.unwrap().created, 1);
    let tag = Tag { name: "latest".to_owned(), digest: Digest::opaque(digest.as_str()), ..Tag::default() };
    platform.create(&operator, &repo, &tag).await.unwrap();
    let api = Rest::new(Arc::new(platform), Arc::new(UidIsToken), Limits::default()).unwrap();
    // No report was imported, so the part with imported reports is empty, and the one with computed reports is not.
    for query in ["", "&tag=latest", &format!("&digest={digest}"), "&createdSince=2020-01-01T00:00:00Z"] {
        let path = format!("/registry/v1/vuln_reports?repoId={repo}{query}");
        assert_eq!(get(&api, &path).await.ok()["items"][0]["digest"], digest, "{path}");
    }
    // No build began in this year.
    let path = format!("/registry/v1/buildreports?uidp.childrenOf={repo}&startedBefore=2020-01-01T00:00:00Z");
    assert_eq!(get(&api, &path).await.ok(), json!({ "reports": [] }));
}
