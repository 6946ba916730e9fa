//! The sessions of the console, and that no other path reads a cookie.

use std::sync::Arc;

use async_trait::async_trait;
use http::Method;
use platform_console::{Console, Options, ShortToken, Tokens};
use platform_core::{access::Authenticator, error::Result, seal::Secret, timestamp::Timestamp};
use platform_http::{Limits, Rest};
use serde_json::Value;

use crate::{
    support::{self, Answer, OPERATOR, UidIsToken},
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
}

/// Returns the console of a platform at `http://a`.
pub(crate) fn console(platform: &platform_core::platform::Platform, url: &str) -> Console {
    let mut options = Options::new("Test", url);
    options.tokens = Some(Arc::new(Same));
    Console::new(platform, &options)
}

async fn rest(url: &str) -> Rest {
    let rest = support::rest(Limits::default()).await;
    let console = console(rest.platform(), url);
    rest.mount(console)
}

/// Takes a step of a session, with these headers besides those of the page.
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
    let ended = step(&rest, "end", &[("cookie", pair.clone())], "").await;
    assert!(cookie(&ended).1.starts_with("Max-Age=0;"));

    let groups = support::send(&rest, Method::GET, "/iam/v2/groups", &[("cookie", pair)], "").await;
    assert_eq!(groups.status, 401);
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
    assert_eq!(parse(Some(OPERATOR), &"a".repeat(limit + 1)).await.status, 400);
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
