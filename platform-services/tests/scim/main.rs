//! SCIM: the examples of RFC 7644, and the requests of directories.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod directories;
mod queries;
#[path = "../../../platform-http/tests/support/mod.rs"]
mod support;

use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::Full;
use platform_http::{Limits, Rest};
use platform_services::Scim;
use serde_json::{Value, json};
use support::{Answer, ORG, call_as, get, post, rest};
use tower::ServiceExt;

const PATCH: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
const USER: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
const ENTERPRISE: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";

/// Directory with SCIM enabled.
struct Directory {
    api: Rest,
    base: String,
    token: String,
}

impl Directory {
    async fn new() -> Self {
        let api = rest(Limits::default()).await.mount(Scim);
        let role = |roles: Value| roles["roles"][0]["uid"].clone();
        let viewer = role(get(&api, "/iam/v2/roles?name=viewer").await.ok());
        let owner = role(get(&api, "/iam/v2/roles?name=owner").await.ok());
        let claims = json!({ "issuer": "https://issuer.test", "subject": "second" });
        let second = json!({ "name": "second owner", "claimMatch": claims });
        let second = post(&api, &format!("/iam/v2/identities/{ORG}"), second).await.ok();
        let binding = json!({ "identityUid": second["uid"], "roleUid": owner });
        post(&api, &format!("/iam/v2/roleBindings/{ORG}"), binding).await.ok();
        let oidc = json!({ "issuer": "https://issuer.test", "clientId": "c", "pkceEnabled": true });
        let provider = json!({ "name": "p", "defaultRole": viewer, "oidc": oidc });
        let provider = post(&api, &format!("/iam/v2/identityProviders/{ORG}"), provider).await.ok();
        let path = format!("/iam/v2/identityProviders/{}", provider["uid"].as_str().unwrap());
        let issued = post(&api, &format!("{path}:generateScimToken"), json!({ "neverExpires": true })).await.ok();
        let enable = json!({ "enabled": true, "etag": issued["etag"] });
        post(&api, &format!("{path}:setScimEnabled"), enable).await.ok();
        let base = format!("/scim/v2/{}", provider["uid"].as_str().unwrap());
        Self { api, base, token: issued["token"].as_str().unwrap().to_owned() }
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        call_as(&self.api, Some(&self.token), method, &format!("{}{path}", self.base), body).await
    }

    async fn create(&self, body: &Value) -> Value {
        let created = self.call(Method::POST, "/Users", body).await;
        assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
        created.json()
    }

    async fn get(&self, user: &Value) -> Value {
        self.call(Method::GET, &at(user), &Value::Null).await.ok()
    }

    /// Patches a user and returns the response, after checking it against a GET.
    async fn patch(&self, user: &Value, operations: Value) -> Value {
        let body = json!({ "schemas": [PATCH], "Operations": operations });
        let patched = self.call(Method::PATCH, &at(user), &body).await.ok();
        assert_eq!(patched, self.get(user).await);
        patched
    }

    /// Sends an invalid patch and returns the `scimType` of the error, after checking that nothing has changed.
    async fn rejected(&self, user: &Value, operations: Value) -> String {
        let before = self.get(user).await;
        let body = json!({ "schemas": [PATCH], "Operations": operations });
        let refused = self.call(Method::PATCH, &at(user), &body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
        assert_eq!(self.get(user).await, before);
        refused.json()["scimType"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends a write with one additional header.
    async fn conditional(&self, method: Method, user: &Value, header: (HeaderName, &str), body: &Value) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{}", self.base, at(user)))
            .header("authorization", format!("Bearer {}", self.token))
            .header(header.0, header.1)
            .body(Full::new(bytes::Bytes::from(body.to_string())))
            .unwrap();
        Answer::of(self.api.clone().oneshot(request).await.unwrap()).await
    }
}

fn at(user: &Value) -> String {
    format!("/Users/{}", user["id"].as_str().unwrap())
}

fn work(user: &Value) -> &Value {
    &user["emails"][0]["value"]
}

#[tokio::test]
async fn the_examples_of_the_rfc_have_the_results_of_the_rfc() {
    let directory = Directory::new().await;
    let user = json!({
        "schemas": [USER], "userName": "bjensen", "externalId": "bjensen",
        "name": { "formatted": "Ms. Barbara J Jensen III", "familyName": "Jensen", "givenName": "Barbara" },
        "emails": [{ "value": "bjensen@example.com", "type": "work", "primary": true }],
    });
    let user = directory.create(&user).await;
    assert_eq!((&user["active"], work(&user)), (&json!(true), &json!("bjensen@example.com")));

    // Section 3.5.2.1: an address that is added to the primary address is not stored.
    let home = json!({ "emails": [{ "value": "babs@jensen.org", "type": "home" }], "nickname": "Babs" });
    let added = directory.patch(&user, json!([{ "op": "add", "value": home }])).await;
    assert_eq!(work(&added), "bjensen@example.com");
    // Section 3.5.2.2.
    let path = "emails[type eq \"work\" and value ew \"example.com\"]";
    let removed = directory.patch(&user, json!([{ "op": "remove", "path": path }])).await;
    assert_eq!(removed.get("emails"), None);
    directory.patch(&user, json!([{ "op": "remove", "path": path }])).await;
    // Section 3.5.2.3.
    let both = json!([
        { "value": "bjensen@example.com", "type": "work", "primary": true },
        { "value": "babs@jensen.org", "type": "home" },
    ]);
    let replaced =
        directory.patch(&user, json!([{ "op": "replace", "value": { "emails": both, "nickname": "Babs" } }]));
    assert_eq!(work(&replaced.await), "bjensen@example.com");
    let street =
        json!({ "op": "replace", "path": "addresses[type eq \"work\"].streetAddress", "value": "1010 Broadway Ave" });
    directory.patch(&user, json!([street])).await;
    // Section 3.5.1.
    let whole = json!({
        "schemas": [USER], "id": user["id"], "userName": "bjensen", "externalId": "bjensen",
        "name": { "familyName": "Jensen", "givenName": "Barbara", "middleName": "Jane" }, "roles": [],
        "emails": [{ "value": "bjensen@example.com" }, { "value": "babs@jensen.org" }],
    });
    let put = directory.call(Method::PUT, &at(&user), &whole).await.ok();
    assert_eq!((work(&put), &put["name"]["familyName"]), (&json!("bjensen@example.com"), &json!("Jensen")));
    // Section 3.12: an invalid path.
    assert_eq!(
        directory.rejected(&user, json!([{ "op": "replace", "path": "/active", "value": false }])).await,
        "invalidPath"
    );
}

#[tokio::test]
async fn a_deactivation_takes_effect_or_is_rejected() {
    let directory = Directory::new().await;
    for (n, operation) in [
        json!({ "op": "replace", "path": "active", "value": false }),
        json!({ "op": "Replace", "path": "active", "value": "False" }),
        json!({ "op": "replace", "value": { "active": false } }),
        json!({ "op": "replace", "path": format!("{}:active", USER.to_lowercase()), "value": false }),
        json!({ "op": "replace", "path": "active ", "value": false }),
        json!({ "op": "replace", "value": { USER: { "active": false } } }),
        json!({ "op": "remove", "path": "active" }),
    ]
    .into_iter()
    .enumerate()
    {
        let user = directory.create(&json!({ "userName": format!("user{n}") })).await;
        let patched = directory.patch(&user, json!([operation])).await;
        assert_eq!(patched["active"], false, "{operation}");
        // A replacement without `active` does not change it.
        let replaced = directory.call(Method::PUT, &at(&user), &json!({ "userName": format!("user{n}") })).await.ok();
        assert_eq!(replaced["active"], false, "{operation}");
    }
    let user = directory.create(&json!({ "userName": "ada" })).await;
    for (operation, kind) in [
        (json!({ "op": "replace", "path": "active[value eq true]", "value": false }), "invalidPath"),
        (json!({ "op": "replace", "path": "(".repeat(100_000), "value": false }), "invalidPath"),
        (json!({ "op": "replace", "value": { "active": false, "ACTIVE": true } }), "invalidSyntax"),
        (json!({ "op": "replace", "path": "emails[type eq home].value", "value": "h@example.com" }), "invalidPath"),
        (json!({ "op": "replace", "path": "displayName", "value": 1 }), "invalidValue"),
        (json!({ "op": "remove", "path": "userName" }), "mutability"),
    ] {
        assert_eq!(directory.rejected(&user, json!([operation])).await, kind, "{operation}");
    }
}

#[tokio::test]
async fn user_names_are_case_insensitive_and_lookalikes_are_rejected() {
    let directory = Directory::new().await;
    let user = directory.create(&json!({ "userName": "Ämilie" })).await;
    for same in ["ämilie", "ÄMILIE"] {
        let twin = directory.call(Method::POST, "/Users", &json!({ "userName": same })).await;
        assert_eq!((twin.status, &twin.json()["scimType"]), (StatusCode::CONFLICT, &json!("uniqueness")), "{same}");
    }
    for alike in
        [" Ämilie", "Ämilie ", "Ämi\u{200b}lie", "Ämilie\u{feff}", "\u{a0}Ämilie", "Ämi\u{ad}lie", "\u{202e}Ämilie"]
    {
        let refused = directory.call(Method::POST, "/Users", &json!({ "userName": alike })).await;
        assert_eq!(
            (refused.status, &refused.json()["scimType"]),
            (StatusCode::BAD_REQUEST, &json!("invalidValue")),
            "{alike:?}"
        );
        assert_eq!(
            directory.rejected(&user, json!([{ "op": "replace", "path": "userName", "value": alike }])).await,
            "invalidValue"
        );
    }
    let find = "/Users?filter=USERNAME%20Eq%20%22%C3%84MILIE%22";
    assert_eq!(directory.call(Method::GET, find, &Value::Null).await.ok()["totalResults"], 1);
}

#[tokio::test]
async fn a_conditional_write_is_rejected_and_changes_nothing() {
    let directory = Directory::new().await;
    let user = directory.create(&json!({ "userName": "ada" })).await;
    let patch = json!({ "Operations": [{ "op": "replace", "path": "active", "value": false }] });
    for header in
        [(http::header::IF_MATCH, "W/\"1\""), (http::header::IF_UNMODIFIED_SINCE, "Sat, 29 Oct 1994 19:43:31 GMT")]
    {
        for (method, body) in
            [(Method::PATCH, &patch), (Method::PUT, &json!({ "userName": "other" })), (Method::DELETE, &Value::Null)]
        {
            let refused = directory.conditional(method, &user, header.clone(), body).await;
            assert_eq!(
                (refused.status, refused.json()["status"].as_str()),
                (StatusCode::PRECONDITION_FAILED, Some("412"))
            );
        }
    }
    assert_eq!(directory.get(&user).await, user);
    let any = directory.conditional(Method::PATCH, &user, (http::header::IF_MATCH, "*"), &patch).await;
    assert_eq!(any.ok()["active"], false);
}

#[tokio::test]
async fn a_request_target_that_is_too_long_is_rejected_in_the_format_of_scim() {
    let directory = Directory::new().await;
    for long in [format!("/Users/{}", "a".repeat(20_000)), format!("/Users?filter={}", "a".repeat(60_000))] {
        let refused = directory.call(Method::GET, &long, &Value::Null).await;
        assert_eq!(refused.status, StatusCode::URI_TOO_LONG);
        assert_eq!(refused.headers["content-type"], "application/scim+json");
        let body = refused.json();
        assert_eq!(
            (body["schemas"][0].as_str(), &body["status"]),
            (Some("urn:ietf:params:scim:api:messages:2.0:Error"), &json!("414"))
        );
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
}

#[tokio::test]
async fn a_patch_without_changes_does_not_update_last_modified() {
    let directory = Directory::new().await;
    let user = directory.create(&json!({ "userName": "ada" })).await;
    assert_eq!(directory.patch(&user, json!([{ "op": "replace", "path": "active", "value": true }])).await, user);
    assert_eq!(directory.call(Method::PUT, &at(&user), &json!({ "userName": "ada" })).await.ok(), user);
}
