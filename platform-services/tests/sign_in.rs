//! The pages of a browser sign-in, over a service that records what it is asked.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../../platform-http/tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use platform_core::tokens::{
    Begun, Confirmation, Failure, Finished, Held, Provider, ProviderResponse, RawToken, SignIn, SignInService, Target,
};
use platform_engine::{
    error::{Code, Error, Result},
    seal::Secret,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_http::{Limits, Rest};
use platform_services::BrowserSignIn;
use support::{Answer, rest, send};

const PROVIDER: &str = "https://sign-in.example/auth?state=s";
const CALLBACK: &str = "redirect=http%3A%2F%2Flocalhost%3A8123%2Fcallback%3Ftoken%3Dtrue%26error%3Dtrue";

/// A service for one browser, whose secrets are `one` before and `two` after the provider's response.
#[derive(Debug)]
struct Stub {
    url: &'static str,
    calls: Mutex<Vec<String>>,
    request: Mutex<Option<SignIn>>,
    held: Mutex<Vec<Held>>,
}

impl Stub {
    fn note(&self, call: impl Into<String>) {
        self.calls.lock().push(call.into());
    }

    fn target(&self) -> Option<Target> {
        self.request.lock().as_ref().map(|request| request.target.clone())
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }
}

#[async_trait]
impl SignInService for Stub {
    fn url(&self) -> &str {
        self.url
    }

    fn forget_expired(&self) {}

    async fn begin(&self, request: SignIn, held: Held) -> Result<Begun> {
        self.note("begin");
        if request.provider != Provider::Operator {
            return Err(Error::new(Code::NotFound, "no provider"));
        }
        *self.request.lock() = Some(request);
        self.held.lock().push(held);
        Ok(Begun { url: Secret::new(PROVIDER), browser: Secret::new("one") })
    }

    async fn complete(&self, response: ProviderResponse, browser: &str, _held: Held) -> Result<Secret, Failure> {
        let provider = response.provider.map(|uid| uid.to_string()).unwrap_or_default();
        let code = response.code.unwrap_or_default();
        self.note(format!("complete {provider} {} {} {browser}", response.state.expose(), code.expose()));
        match response.error {
            None if browser == "one" => Ok(Secret::new("two")),
            None => Err(Error::unauthenticated("another browser").into()),
            Some(error) => Err(Failure { error: Error::unauthenticated(error), target: self.target() }),
        }
    }

    async fn confirmation(&self, browser: &str) -> Result<Confirmation> {
        match browser {
            "two" => Ok(Confirmation {
                request: self.request.lock().clone().unwrap(),
                audiences: vec!["https://<api>".to_owned()],
                issuer: "https://sign-in.example".to_owned(),
                person: Uid::opaque("1".repeat(40)),
                name: "<script>alert(1)</script>".to_owned(),
                registered: false,
                form_token: Secret::new("form\"token"),
            }),
            _ => Err(Error::unauthenticated("no sign-in")),
        }
    }

    async fn confirm(&self, browser: &str, form_token: &str, agrees: bool) -> Result<Finished, Failure> {
        self.note(format!("confirm {browser} {form_token} {agrees}"));
        if browser != "two" || form_token != "form" {
            return Err(Error::unauthenticated("no sign-in").into());
        }
        let target = self.target();
        let tokens =
            RawToken { token: Secret::new("a.b.c"), refresh_token: Secret::new("r+/="), expiry: Timestamp::EPOCH };
        match target {
            target if !agrees => Err(Failure { error: Error::new(Code::NotFound, "not & registered"), target }),
            Some(Target::Loopback(callback)) if callback.challenge().is_some() => {
                Ok(Finished::Code(callback, Secret::new("secret code")))
            }
            Some(Target::Loopback(callback)) => Ok(Finished::Tokens(callback, Box::new(tokens))),
            _ => Ok(Finished::Headless),
        }
    }

    async fn has_verified_organization(&self, name: &str) -> Result<bool> {
        Ok(name == "acme.example")
    }
}

async fn over(url: &'static str) -> (Rest, Arc<Stub>) {
    let stub = Stub { url, calls: Mutex::default(), request: Mutex::default(), held: Mutex::default() };
    let stub = Arc::new(stub);
    (rest(Limits::default()).await.mount(BrowserSignIn::new(stub.clone())), stub)
}

async fn setting() -> (Rest, Arc<Stub>) {
    over("http://localhost:8080").await
}

async fn get(rest: &Rest, path: &str, browser: &str) -> Answer {
    send(rest, Method::GET, path, &[("cookie", format!("a=b; platform-sign-in={browser}"))], "").await
}

async fn post(rest: &Rest, browser: &str, more: &[(&'static str, String)], body: &'static str) -> Answer {
    let headers = [&[("cookie", format!("platform-sign-in={browser}"))], more].concat();
    send(rest, Method::POST, "/oauth/confirm", &headers, body).await
}

/// Checks what every reply of a sign-in has in common, and returns its text.
fn checked(answer: &Answer, status: u16) -> String {
    let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    assert_eq!((header("cache-control"), header("referrer-policy")), ("no-store", "no-referrer"));
    if status != 303 {
        assert_eq!((header("content-type"), header("x-frame-options")), ("text/html; charset=utf-8", "DENY"));
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'self'; form-action '"), "{policy}");
        assert!(policy.ends_with("; frame-ancestors 'none'; base-uri 'none'"), "{policy}");
    }
    String::from_utf8(answer.body.to_vec()).unwrap()
}

#[tokio::test]
async fn the_pages_of_a_server_below_a_path_have_the_path_in_their_links() {
    let (rest, _) = over("http://localhost:8080/platform").await;
    get(&rest, &format!("/oauth?exit=redirect&{CALLBACK}&client_id=auth0"), "").await;
    let completed = get(&rest, "/oauth/callback?state=s&code=c", "one").await;
    assert_eq!(completed.headers["location"], "/platform/oauth/confirm");
    let page = checked(&get(&rest, "/oauth/confirm", "two").await, 200);
    for link in ["action=\"/platform/oauth/confirm\"", "href=\"/platform/oauth/style.css\""] {
        assert!(page.contains(link), "{page}");
    }
}

#[tokio::test]
async fn a_sign_in_leads_over_the_provider_and_the_confirmation_to_the_callback() {
    let (rest, stub) = setting().await;
    let begun = get(&rest, &format!("/oauth?exit=redirect&{CALLBACK}&client_id=auth0"), "").await;
    checked(&begun, 303);
    assert_eq!(begun.headers["location"], PROVIDER);
    assert_eq!(begun.headers["set-cookie"], "platform-sign-in=one; Max-Age=600; Path=/; HttpOnly; SameSite=Lax");
    let completed = get(&rest, "/oauth/callback?state=s&code=c&session_state=x&scope=openid", "one").await;
    checked(&completed, 303);
    assert_eq!(completed.headers["location"], "/oauth/confirm", "without the code");
    assert_eq!(completed.headers["set-cookie"], "platform-sign-in=two; Max-Age=600; Path=/; HttpOnly; SameSite=Lax");
    let asked = get(&rest, "/oauth/confirm", "two").await;
    let page = checked(&asked, 200);
    for shown in [
        "<code>auth0</code>",
        "<code>http://localhost:8080</code>",
        "port <b>8123</b>",
        "http://localhost:8123/callback",
        "https://&lt;api&gt;",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        &"1".repeat(40),
        "value=\"form&quot;token\"",
        "You are not registered here yet",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("<script"));
    let policy = asked.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("form-action 'self' http://localhost:8123;"), "{policy}");
    let finished = post(&rest, "two", &[("sec-fetch-site", "same-origin".to_owned())], "token=form&answer=allow").await;
    checked(&finished, 303);
    assert_eq!(finished.headers["location"], "http://localhost:8123/callback?token=a.b.c&refresh_token=r%2B%2F%3D");
    assert_eq!(finished.headers["set-cookie"], "platform-sign-in=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax");
    assert_eq!(stub.calls(), ["begin", "complete  s c one", "confirm two form true"]);
}

#[tokio::test]
async fn a_sign_in_begins_with_a_query_of_at_most_4_kib() {
    let (rest, stub) = setting().await;
    let word = "a".repeat(1024);
    let start = format!("{CALLBACK}&client_id={word}&connection={word}&screen_hint={word}&invite=");
    let longest = format!("{start}{}", "a".repeat(4096 - start.len()));
    checked(&get(&rest, &format!("/oauth?{longest}"), "").await, 303);
    assert_eq!(stub.calls(), ["begin"]);
    checked(&get(&rest, &format!("/oauth?{longest}a"), "").await, 400);
    assert_eq!(stub.calls(), [""; 0]);
}

#[tokio::test]
async fn a_provider_of_an_organization_has_a_callback_of_its_own() {
    let (rest, stub) = setting().await;
    let provider = format!("{}/0123456789abcdef", "1".repeat(40));
    checked(&get(&rest, &format!("/oauth/callback/{provider}?state=s&code=c"), "one").await, 303);
    assert_eq!(stub.calls(), [format!("complete {provider} s c one")]);
    assert_eq!(get(&rest, "/oauth/callback/x?state=s&code=c", "one").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn with_tls_the_cookie_belongs_to_this_host_alone() {
    let (rest, stub) = over("https://api.example").await;
    let begun = get(&rest, &format!("/oauth?{CALLBACK}"), "").await;
    let expected = "__Host-platform-sign-in=one; Max-Age=600; Path=/; HttpOnly; SameSite=Lax; Secure";
    assert_eq!(begun.headers["set-cookie"], expected);
    checked(&get(&rest, "/oauth/callback?state=s&code=c", "one").await, 401);
    assert_eq!(stub.calls()[1], "complete  s c ", "the cookie without the prefix does not count");
}

#[tokio::test]
async fn open_redirect_errors_before_the_callback_is_known_are_pages() {
    let (rest, stub) = setting().await;
    for (query, named) in [
        ("", "redirect"),
        ("redirect=https://evil.example/callback", "redirect"),
        ("redirect=http://localhost@evil.example/callback", "redirect"),
        ("redirect=http://localhost:1/callback/../x", "redirect"),
        (&format!("{CALLBACK}&prompt=none"), "prompt"),
        (&format!("{CALLBACK}&{CALLBACK}"), "redirect"),
        (&format!("{CALLBACK}&%3Cscript%3E=1"), "&lt;script&gt;"),
        ("redirect=%ff", "redirect"),
    ] {
        let answer = get(&rest, &format!("/oauth?{query}"), "").await;
        let page = checked(&answer, 400);
        assert!(page.contains(&format!("<code>{named}</code>")) && !page.contains("<script"), "{query}: {page}");
        assert!(!answer.headers.contains_key("location") && !answer.headers.contains_key("set-cookie"));
    }
    assert_eq!(stub.calls(), [""; 0]);
}

#[tokio::test]
async fn failures_of_this_browser_reach_the_program_and_others_do_not() {
    let (rest, stub) = setting().await;
    get(&rest, &format!("/oauth?{CALLBACK}"), "").await;
    let refused = get(&rest, "/oauth/callback?state=s&error=access_denied&error_description=x", "one").await;
    checked(&refused, 303);
    let location = "http://localhost:8123/callback?error=access_denied&status_code=401";
    assert_eq!(refused.headers["location"], location);
    let refused = post(&rest, "two", &[], "token=form&answer=refuse").await;
    let location = "http://localhost:8123/callback?error=not+%26+registered&status_code=404";
    assert_eq!(refused.headers["location"], location);
    checked(&get(&rest, "/oauth/callback?state=s&code=c", "another").await, 401);
    checked(&get(&rest, "/oauth/confirm", "another").await, 401);
    checked(&post(&rest, "two", &[], "token=wrong&answer=allow").await, 401);
    // A form of another site does not even reach the service.
    stub.calls();
    checked(&post(&rest, "two", &[("sec-fetch-site", "cross-site".to_owned())], "token=form&answer=allow").await, 403);
    for bad in ["", "token=form", "token=form&answer=allow&x=1", "{\"token\":\"form\"}"] {
        checked(&post(&rest, "two", &[], bad).await, 400);
    }
    for bad in ["code=c", "state=a&state=b&code=c", "state=s&code=a&code=b"] {
        checked(&get(&rest, &format!("/oauth/callback?{bad}"), "one").await, 400);
    }
    assert_eq!(stub.calls(), [""; 0]);
}

#[tokio::test]
async fn a_sign_in_that_cannot_begin_is_reported_to_the_program() {
    let (rest, stub) = setting().await;
    let answer = get(&rest, &format!("/oauth?{CALLBACK}&state=s&idp_id=nobody.example"), "").await;
    checked(&answer, 303);
    let location = "http://localhost:8123/callback?error=no+provider&status_code=404&state=s";
    assert_eq!((&answer.headers["location"], stub.calls()), (&location.parse().unwrap(), vec!["begin".to_owned()]));
    // A program without a callback gets nothing; the person sees a page.
    let code = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    checked(&get(&rest, &format!("/oauth?headless_code={code}&idp_id=nobody.example"), "").await, 404);
}

#[tokio::test]
async fn a_program_with_a_challenge_gets_its_state_and_a_code() {
    let (rest, stub) = setting().await;
    let challenge = "code_challenge=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE&code_challenge_method=S256";
    get(&rest, &format!("/oauth?{CALLBACK}&state=a%26b&{challenge}"), "").await;
    let finished = post(&rest, "two", &[], "token=form&answer=allow").await;
    checked(&finished, 303);
    assert_eq!(finished.headers["location"], "http://localhost:8123/callback?code=secret+code&state=a%26b");
    let refused = post(&rest, "two", &[], "token=form&answer=refuse").await;
    assert!(refused.headers["location"].to_str().unwrap().ends_with("&status_code=404&state=a%26b"), "{refused:?}");
    stub.calls();
    for bad in [
        &format!("{CALLBACK}&code_challenge=x"),
        &format!("{CALLBACK}&code_challenge_method=S256"),
        &format!("{CALLBACK}&{}", challenge.replace("S256", "plain")),
        &format!("headless_code=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE&{challenge}"),
    ] {
        checked(&get(&rest, &format!("/oauth?{bad}"), "").await, 400);
    }
    assert_eq!(stub.calls(), [""; 0]);
}

const STANDARD: &str = "response_type=code&client_id=app&redirect_uri=http%3A%2F%2F127.0.0.1%3A8123%2Fany%2Fpath&state=s\
                        &code_challenge=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE&code_challenge_method=S256";
const ISS: &str = "iss=http%3A%2F%2Flocalhost%3A8080";

#[tokio::test]
async fn an_authorization_request_of_oauth_gets_its_response() {
    let (rest, stub) = setting().await;
    checked(&get(&rest, &format!("/oauth?{STANDARD}&scope=openid+email&nonce=n"), "").await, 303);
    let asked = get(&rest, "/oauth/confirm", "two").await;
    let page = checked(&asked, 200);
    assert!(page.contains("port <b>8123</b>") && page.contains("http://127.0.0.1:8123/any/path"), "{page}");
    let policy = asked.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("form-action 'self' http://127.0.0.1:8123;"), "{policy}");
    let finished = post(&rest, "two", &[], "token=form&answer=allow").await;
    checked(&finished, 303);
    let callback = "http://127.0.0.1:8123/any/path";
    assert_eq!(finished.headers["location"], format!("{callback}?code=secret+code&state=s&{ISS}"));
    let refused = post(&rest, "two", &[], "token=form&answer=refuse").await;
    let error = "error=access_denied&error_description=not+%26+registered";
    assert_eq!(refused.headers["location"], format!("{callback}?{error}&state=s&{ISS}"));
    checked(&post(&rest, "two", &[], "token=wrong&answer=allow").await, 401);
    assert_eq!(stub.calls().len(), 4);
}

#[tokio::test]
async fn open_redirect_errors_of_an_authorization_request_reach_loopback_callbacks_alone() {
    let (rest, stub) = setting().await;
    let with = |from: &str, to: &str| STANDARD.replace(from, to);
    for (query, error) in [
        (with("=code", "=token"), "unsupported_response_type"),
        (with("S256", "plain"), "invalid_request"),
        (with("code_challenge=", "x="), "invalid_request"),
        (format!("{STANDARD}&scope=admin"), "invalid_scope"),
        (format!("{STANDARD}&audience=a,,b"), "invalid_target"),
        (format!("{STANDARD}&x=1&x=2"), "invalid_request"),
    ] {
        let answer = get(&rest, &format!("/oauth?{query}"), "").await;
        checked(&answer, 303);
        let location = answer.headers["location"].to_str().unwrap();
        let start = format!("http://127.0.0.1:8123/any/path?error={error}&error_description=");
        assert!(location.starts_with(&start) && location.ends_with(&format!("&state=s&{ISS}")), "{location}");
        assert!(!location.contains("responseType") && !location.contains("codeChallenge"), "{location}");
        assert!(!answer.headers.contains_key("set-cookie"), "another sign-in of this browser goes on");
    }
    for query in [
        with("127.0.0.1%3A8123", "evil.example"),
        with("127.0.0.1%3A8123", "127.0.0.1%40evil.example"),
        with("http%3A", "https%3A"),
        with("client_id=app&", ""),
        format!("{STANDARD}&redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2F"),
        format!("{STANDARD}&client_id=b"),
    ] {
        let answer = get(&rest, &format!("/oauth?{query}"), "").await;
        checked(&answer, 400);
        assert!(!answer.headers.contains_key("location"), "{query}");
    }
    assert_eq!(stub.calls(), [""; 0]);
}

#[tokio::test]
async fn a_headless_sign_in_shows_the_code_and_its_fingerprint() {
    let (rest, _) = setting().await;
    let code = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    checked(&get(&rest, &format!("/oauth?headless_code={code}"), "").await, 303);
    let asked = get(&rest, "/oauth/confirm", "two").await;
    let page = checked(&asked, 200);
    assert!(page.contains(code) && page.contains("class=\"fingerprint\""), "{page}");
    assert!(asked.headers["content-security-policy"].to_str().unwrap().contains("form-action 'self';"));
    let finished = post(&rest, "two", &[], "token=form&answer=allow").await;
    assert!(checked(&finished, 200).contains("Signed in"));
}

#[tokio::test]
async fn an_ipv6_callback_is_allowed_by_the_policy() {
    let (rest, _) = setting().await;
    checked(&get(&rest, "/oauth?redirect=http://[::1]:9/callback", "").await, 303);
    let asked = get(&rest, "/oauth/confirm", "two").await;
    // A policy cannot name an IPv6 address.
    assert!(asked.headers["content-security-policy"].to_str().unwrap().contains("form-action 'self' http:;"));
}

#[tokio::test]
async fn a_head_request_takes_no_step() {
    let (rest, stub) = setting().await;
    for path in [&format!("/oauth?{CALLBACK}"), "/oauth/callback?state=s&code=c", "/oauth/confirm"] {
        let answer = send(&rest, Method::HEAD, path, &[("cookie", "platform-sign-in=two".to_owned())], "").await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    assert_eq!(stub.calls(), [""; 0]);
    assert_eq!(send(&rest, Method::POST, "/oauth", &[], "").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn orgcheck_answers_a_boolean() {
    let (rest, _) = setting().await;
    for (name, found) in [("acme.example", "true"), ("another.example", "false")] {
        let answer = get(&rest, &format!("/orgcheck?name={name}"), "").await;
        assert_eq!((answer.status, answer.body.as_ref()), (StatusCode::OK, found.as_bytes()));
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    for bad in ["", "?nam=x", "?name=a&name=b"] {
        assert_eq!(get(&rest, &format!("/orgcheck{bad}"), "").await.refusal().0, 400, "{bad}");
    }
}

#[tokio::test]
async fn open_sign_ins_are_bounded_in_bytes() {
    let (rest, stub) = setting().await;
    // 32 MiB, of which each sign-in holds 8 KiB before the provider's response.
    for _ in 0..4096 {
        assert_eq!(get(&rest, &format!("/oauth?{CALLBACK}"), "").await.headers["location"], PROVIDER);
    }
    let answer = get(&rest, &format!("/oauth?{CALLBACK}"), "").await;
    let location = answer.headers["location"].to_str().unwrap();
    assert!(location.starts_with("http://localhost:8123/callback?error=") && location.ends_with("status_code=429"));
    stub.held.lock().pop();
    assert_eq!(get(&rest, &format!("/oauth?{CALLBACK}"), "").await.headers["location"], PROVIDER);
}
