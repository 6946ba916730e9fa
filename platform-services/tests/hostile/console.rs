//! The sessions of the console, and that no other path reads a cookie.

use std::sync::Arc;

use async_trait::async_trait;
use http::Method;
use platform_console::{Console, Options, ShortToken, Tokens};
use platform_core::iam::Iam;
use platform_engine::{
    access::Authenticator,
    error::Result,
    platform::Platform,
    seal::Secret,
    store::{Store, memory::MemoryStore, switched::SwitchedStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_http::{Limits, Rest};
use serde_json::{Value, json};

use crate::{
    support::{self, Answer, OPERATOR, ORG, UidIsToken},
    world::World,
};

/// Copies of tokens are the tokens themselves.
#[derive(Debug)]
struct Same;

#[async_trait]
impl Tokens for Same {
    async fn shorten(&self, token: &str) -> Result<ShortToken> {
        UidIsToken.authenticate(token).await?;
        let at = |seconds: i64| Timestamp::from_millis((2_000_000_000 + seconds) * 1000);
        Ok(ShortToken { token: Secret::new(token), expires: at(0), session_expires: at(3600) })
    }

    async fn name(&self, _: &Platform, identity: &Uid) -> Result<String> {
        Ok(format!("the name of {identity}"))
    }

    async fn end(&self, platform: &Platform, identity: &Uid, session: &str, until: Timestamp) -> Result<()> {
        Iam::of(platform).end_session(identity, session, until).await
    }
}

/// Returns the console of a platform at `http://a`.
pub(crate) fn console(platform: &Platform, url: &str) -> Console {
    let mut options = Options::new("Test", url);
    options.tokens = Some(Arc::new(Same));
    Console::new(platform, &options)
}

async fn rest(url: &str) -> Rest {
    over(Arc::new(MemoryStore::new()), url).await
}

/// Returns the API of a server over this store, which other servers can share.
async fn over(store: Arc<dyn Store>, url: &str) -> Rest {
    let platform = support::setting::platform_over(store).await;
    let console = console(&platform, url);
    Rest::new(Arc::new(platform), Arc::new(UidIsToken), Limits::default()).unwrap().mount(console)
}

/// Returns the token of the page after a renewal with this cookie; empty if the user is signed out.
async fn renewed(rest: &Rest, cookie: &str) -> String {
    let session = step(rest, "renew", &[("cookie", cookie.to_owned())], "").await.ok();
    session["token"].as_str().unwrap().to_owned()
}

/// Returns the cookie of a new session of the operator.
async fn signed_in(rest: &Rest) -> String {
    cookie(&step(rest, "start", &[bearer()], "").await).0
}

/// Returns the body that opens a new link of the identity with this token.
async fn link(rest: &Rest, token: &str) -> Value {
    let made = support::call_as(rest, Some(token), Method::POST, "/console/links", "").await.ok();
    let code = made["url"].as_str().unwrap().strip_prefix("http://a/console#link=").unwrap();
    json!({ "code": code })
}

/// Creates another identity, and returns its uid.
async fn another_identity(rest: &Rest) -> String {
    let claims = json!({ "issuer": "https://issuer.example", "subject": "ci" });
    let identity = json!({ "name": "ci", "claimMatch": claims });
    let created = support::post(rest, &format!("/iam/v2/identities/{ORG}"), identity).await.ok();
    created["uid"].as_str().unwrap().to_owned()
}

/// Takes a step of a session, with these headers in addition to those of the page.
async fn step(rest: &Rest, name: &str, more: &[(&'static str, String)], body: &str) -> Answer {
    let own = [("host", "a"), ("origin", "http://a"), ("sec-fetch-site", "same-origin"), ("x-console-session", name)];
    let own = own.map(|(name, value)| (name, value.to_owned()));
    let own = own.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name));
    let headers: Vec<_> = own.chain(more.iter().cloned()).filter(|(_, value)| !value.is_empty()).collect();
    support::send(rest, Method::POST, "/console/session", &headers, body.to_owned()).await
}

fn bearer() -> (&'static str, String) {
    ("authorization", format!("Bearer {OPERATOR}"))
}

/// Returns the cookie that an answer sets, as a browser sends it back, and its attributes.
fn cookie(answer: &Answer) -> (String, String) {
    let set = answer.headers["set-cookie"].to_str().unwrap();
    let (pair, attributes) = set.split_once("; ").unwrap();
    (pair.to_owned(), attributes.to_owned())
}

#[tokio::test]
async fn a_session_s_cookie_renews_the_token_and_does_nothing_else() {
    let rest = rest("http://a").await;
    let started = step(&rest, "start", &[bearer()], "").await;
    let (pair, attributes) = cookie(&started);
    assert_eq!(attributes, "Max-Age=43200; Path=/console/session; HttpOnly; SameSite=Strict");
    assert_eq!(started.headers["cache-control"], "no-store");
    assert!(!pair.contains(OPERATOR), "the cookie is sealed");
    let session = started.ok();
    assert_eq!((&session["token"], &session["renewable"]), (&OPERATOR.into(), &true.into()));

    let renewed = step(&rest, "renew", &[("cookie", pair.clone())], "").await.ok();
    assert_eq!(renewed["token"], OPERATOR);
    for cookie in ["", "platform-console=", "platform-console=x", &pair[..pair.len() - 2]] {
        let none = step(&rest, "renew", &[("cookie", cookie.to_owned())], "").await;
        assert_eq!(self::cookie(&none).0, "platform-console=");
        assert_eq!(none.ok()["token"], "");
    }
    // Not the stream of an EventSource either, which in browsers sends cookies and no other credentials.
    let watch = format!("/iam/v2/groups?uidp.descendants_of={ORG}&watch=true");
    for path in ["/iam/v2/groups", &watch] {
        let refused = support::send(&rest, Method::GET, path, &[("cookie", pair.clone())], "").await;
        assert_eq!(refused.refusal().0, 401, "{path}");
    }
    let ended = step(&rest, "end", &[("cookie", pair)], "").await;
    assert!(cookie(&ended).1.starts_with("Max-Age=0;"));
}

#[tokio::test]
async fn over_tls_the_cookie_is_secure() {
    let rest = rest("https://a").await;
    let (pair, attributes) = cookie(&step(&rest, "start", &[bearer()], "").await);
    assert!(pair.starts_with("__Secure-platform-console=") && attributes.ends_with("; Secure"), "{pair} {attributes}");
}

#[tokio::test]
async fn requests_that_no_page_of_this_server_sent_are_refused() {
    let rest = rest("http://a").await;
    let (pair, _) = cookie(&step(&rest, "start", &[bearer()], "").await);
    for (name, value, status) in [
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "", 403),
        ("origin", "http://a.evil.example", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("x-console-session", "", 400),
        ("x-console-session", "other", 400),
    ] {
        let forged = step(&rest, "renew", &[("cookie", pair.clone()), (name, value.to_owned())], "").await;
        assert_eq!(forged.status, status, "{name}: {value}");
        assert!(!forged.headers.contains_key("set-cookie"));
        assert!(!String::from_utf8_lossy(&forged.body).contains(OPERATOR));
    }
    let without = step(&rest, "start", &[], "").await;
    assert_eq!(without.status, 401);
    let get = support::send(&rest, Method::GET, "/console/session", &[("cookie", pair)], "").await;
    assert_eq!(get.status, 405);
}

#[tokio::test]
async fn a_one_time_link_signs_its_user_in_once() {
    let rest = rest("http://a").await;
    let made = support::call(&rest, Method::POST, "/console/links", "").await.ok();
    let code = made["url"].as_str().unwrap().strip_prefix("http://a/console#link=").unwrap();
    let body = serde_json::json!({ "code": code }).to_string();
    assert_eq!(step(&rest, "link", &[("origin", "http://evil.example".to_owned())], &body).await.status, 403);
    let opened = step(&rest, "link", &[], &body).await;
    assert!(cookie(&opened).0.starts_with("platform-console="));
    assert_eq!(opened.ok()["token"], OPERATOR);
    let again = step(&rest, "link", &[], &body).await;
    assert_eq!(again.status, 401);
    let without = support::call_as(&rest, None, Method::POST, "/console/links", "").await;
    assert_eq!(without.status, 401);
}

#[tokio::test]
async fn markdown_has_the_bounds_of_readmes_and_needs_an_identity_that_exists() {
    let rest = rest("http://a").await;
    let parse = async |token: Option<&'static str>, text: &str| {
        support::call_as(&rest, token, Method::POST, "/console/markdown", text.to_owned()).await
    };
    let limit = 128 << 10;
    assert_eq!(parse(Some(OPERATOR), "*a*").await.ok()[0]["open"], "p");
    assert_eq!(parse(Some(OPERATOR), &"a".repeat(limit)).await.status, 200);
    assert_eq!(parse(Some(OPERATOR), &"a".repeat(limit + 1)).await.status, 413);
    let nested = |levels: usize| format!("{}a", "> ".repeat(levels));
    assert_eq!(parse(Some(OPERATOR), &nested(64)).await.status, 200);
    let deeper = parse(Some(OPERATOR), &nested(65)).await;
    assert_eq!(deeper.status, 400);
    assert!(String::from_utf8_lossy(&deeper.body).contains("must not nest deeper than 64 levels"));
    assert_eq!(parse(None, "a").await.status, 401);
    // A token that is valid, of an identity that was deleted.
    let unknown = "63921b2c44617e3f2603851537be0123af4a57d7/00000000000000aa";
    assert_eq!(parse(Some(unknown), "a").await.status, 401);
}

#[tokio::test]
async fn a_cookie_from_before_a_sign_out_is_dead_at_every_server_and_others_are_not() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (one, other) = (over(Arc::clone(&store), "http://a").await, over(store, "http://a").await);
    let (ended, kept) = (signed_in(&one).await, signed_in(&one).await);
    for server in [&one, &other] {
        assert_eq!((renewed(server, &ended).await, renewed(server, &kept).await), (OPERATOR.into(), OPERATOR.into()));
    }
    step(&other, "end", &[("cookie", ended.clone())], "").await.ok();
    for server in [&one, &other] {
        assert_eq!((renewed(server, &ended).await, renewed(server, &kept).await), (String::new(), OPERATOR.into()));
    }
    // The next session, and a repeated sign-out with the dead cookie, which changes nothing.
    let next = signed_in(&other).await;
    step(&one, "end", &[("cookie", ended)], "").await.ok();
    assert_eq!((renewed(&one, &next).await, renewed(&one, &kept).await), (OPERATOR.into(), OPERATOR.into()));
}

#[tokio::test]
async fn a_new_session_ends_the_one_that_its_cookie_replaces() {
    let rest = rest("http://a").await;
    let first = signed_in(&rest).await;
    let again = step(&rest, "start", &[bearer(), ("cookie", first.clone())], "").await;
    assert_eq!(
        (renewed(&rest, &first).await, renewed(&rest, &cookie(&again).0).await),
        (String::new(), OPERATOR.into())
    );
}

#[tokio::test]
async fn a_sign_out_that_cannot_be_recorded_says_so_and_still_removes_the_cookie() {
    let store = Arc::new(SwitchedStore::new(Arc::new(MemoryStore::new()), false));
    let rest = over(Arc::clone(&store) as _, "http://a").await;
    let pair = signed_in(&rest).await;
    store.refuse_writes().await;
    let failed = step(&rest, "end", &[("cookie", pair.clone())], "").await;
    assert_eq!(failed.refusal().0, 503);
    assert!(cookie(&failed).1.starts_with("Max-Age=0;"));
    assert_eq!(renewed(&rest, &pair).await, OPERATOR, "copies of the cookie are valid");
}

#[tokio::test]
async fn a_link_asks_before_it_replaces_the_session_of_another_identity() {
    let rest = rest("http://a").await;
    let ci = another_identity(&rest).await;
    let (pair, mut body) = (signed_in(&rest).await, link(&rest, &ci).await);
    let with_cookie = [("cookie", pair.clone())];
    for replaces in ["", "0123456789abcdef0123456789abcdef"] {
        body["replaces"] = replaces.into();
        let asked = step(&rest, "link", &with_cookie, &body.to_string()).await;
        assert!(!asked.headers.contains_key("set-cookie"));
        let asked = asked.ok();
        assert_eq!(asked["token"], "");
        let question = &asked["question"];
        assert_eq!(question["current"], json!({ "uid": OPERATOR, "name": format!("the name of {OPERATOR}") }));
        assert_eq!(question["next"], json!({ "uid": ci, "name": format!("the name of {ci}") }));
        assert_eq!(renewed(&rest, &pair).await, OPERATOR, "the running session goes on");
        body["replaces"] = question["replaces"].clone();
    }
    let forged = [with_cookie[0].clone(), ("origin", "http://evil.example".to_owned())];
    assert_eq!(step(&rest, "link", &forged, &body.to_string()).await.status, 403);
    let changed = step(&rest, "link", &with_cookie, &body.to_string()).await;
    let next = cookie(&changed).0;
    assert_eq!(changed.ok()["token"], ci.as_str());
    assert_eq!((renewed(&rest, &pair).await, renewed(&rest, &next).await), (String::new(), ci.clone()));
    assert_eq!(step(&rest, "link", &[("cookie", next)], &body.to_string()).await.status, 401, "it was opened");
}

#[tokio::test]
async fn a_link_asks_nothing_where_it_changes_no_running_session() {
    let rest = rest("http://a").await;
    let ci = another_identity(&rest).await;
    let pair = signed_in(&rest).await;
    let same = link(&rest, OPERATOR).await;
    let opened = step(&rest, "link", &[("cookie", pair)], &same.to_string()).await;
    let pair = cookie(&opened).0;
    assert_eq!(opened.ok()["token"], OPERATOR);
    step(&rest, "end", &[("cookie", pair.clone())], "").await.ok();
    for cookie in [pair, "platform-console=x".to_owned()] {
        let body = link(&rest, &ci).await.to_string();
        assert_eq!(step(&rest, "link", &[("cookie", cookie)], &body).await.ok()["token"], ci.as_str());
    }
    // A client that does not know a code learns nothing about the session.
    let pair = signed_in(&rest).await;
    let unknown = step(&rest, "link", &[("cookie", pair)], r#"{"code":"x"}"#).await;
    assert!(!String::from_utf8_lossy(&unknown.body).contains(OPERATOR));
    assert_eq!(unknown.refusal().0, 401);
}

#[tokio::test]
async fn pages_cannot_be_framed_and_run_their_own_scripts_only() {
    let rest = rest("http://a").await;
    for path in ["/", "/console", "/console/main.js", "/console/console.css", "/console/document.json"] {
        let page = support::send(&rest, Method::GET, path, &[("accept", "text/html".to_owned())], "").await;
        assert_eq!(page.status, 200, "{path}");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.headers["x-frame-options"], "DENY");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        let known =
            [("accept", "text/html".to_owned()), ("if-none-match", page.headers["etag"].to_str().unwrap().to_owned())];
        assert_eq!(support::send(&rest, Method::GET, path, &known, "").await.status, 304, "{path}");
    }
    for path in ["/console/../Cargo.toml", "/console/ui/main.js", "/console/main.js/"] {
        assert_eq!(support::get(&rest, path).await.status, 404, "{path}");
    }
    let landing: Value = support::get(&rest, "/").await.ok();
    assert_eq!(landing["console"], "/console");
}

#[tokio::test]
async fn no_operation_accepts_a_cookie() {
    let world = World::new().await;
    world.ignores_cookies().await;
}
