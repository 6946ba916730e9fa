//! The token endpoint of OAuth 2.0, over services that record what they are asked.

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
use http::Method;
use parking_lot::Mutex;
use platform_core::tokens::{
    Begun, Confirmation, CredentialOf, Exchange, Failure, Finished, Held, Issued, ProviderResponse, RawToken,
    Redemption, Refresh, Register, Registration, SignIn, SignInService, TokenPair, TokenService, WhoAmI,
};
use platform_engine::{
    error::{Code, Error, Result},
    seal::Secret,
    timestamp::Timestamp,
};
use platform_http::{Limits, Rest};
use platform_services::Tokens;
use serde_json::{Value, json};
use support::{Answer, rest, send};

const EXCHANGE: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange\
                        &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt&subject_token=";

/// A service whose credentials are the names of what becomes of them.
#[derive(Debug, Default)]
struct Stub(Mutex<Vec<String>>);

/// Returns the time in an hour, by the clock of the platform, which starts then and ticks.
fn expiry() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + 3_600_000)
}

fn outcome(credential: &str) -> Result<()> {
    match credential {
        "good" => Ok(()),
        "busy" => Err(Error::exhausted()),
        "unavailable" => Err(Error::new(Code::Unavailable, "the issuer does not answer")),
        "refused" => Err(Error::blocked("ISSUER_DOCUMENT", "the document of the issuer is refused")),
        "unregistered" => Err(Error::new(Code::NotFound, "not \"registered\"")),
        "audience" => Err(Error::invalid_field("aud", "must not be that")),
        "capability" => Err(Error::invalid_field("cap", "must be names")),
        "fault" => Err(Error::internal(std::io::Error::other("a secret"))),
        _ => Err(Error::unauthenticated("not valid")),
    }
}

impl Stub {
    fn note(&self, call: String) {
        self.0.lock().push(call);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[async_trait]
impl TokenService for Stub {
    fn check_form(&self, credential: &str, of: CredentialOf) -> Result<()> {
        if credential == "malformed" {
            return Err(Error::unauthenticated(format!("not of the form of {of:?}")));
        }
        Ok(())
    }

    async fn exchange(&self, credential: &str, request: &Exchange) -> Result<RawToken> {
        self.note(format!("exchange {credential} {request:?}"));
        outcome(credential)?;
        Ok(RawToken { token: Secret::new("a.b.c"), refresh_token: Secret::default(), expiry: expiry() })
    }

    async fn refresh(&self, credential: &str, request: &Refresh) -> Result<TokenPair> {
        self.note(format!("refresh {credential} {request:?}"));
        outcome(credential)?;
        let issued = |token: &str| Issued { token: Secret::new(token), expiry: expiry() };
        Ok(TokenPair { token: issued("a.b.c"), refresh_token: issued("next") })
    }

    async fn who_am_i(&self, _: &str) -> Result<WhoAmI> {
        Err(Error::denied())
    }

    async fn register(&self, _: &str, _: &Register) -> Result<Registration> {
        Err(Error::denied())
    }

    async fn unregister(&self, _: &str, _: &str) -> Result<()> {
        Err(Error::denied())
    }
}

#[async_trait]
impl SignInService for Stub {
    fn url(&self) -> &str {
        "http://localhost:8080"
    }

    fn forget_expired(&self) {}

    async fn begin(&self, _: SignIn, _: Held) -> Result<Begun> {
        Err(Error::denied())
    }

    async fn complete(&self, _: ProviderResponse, _: &str, _: Held) -> Result<Secret, Failure> {
        Err(Error::denied().into())
    }

    async fn confirmation(&self, _: &str) -> Result<Confirmation> {
        Err(Error::denied())
    }

    async fn confirm(&self, _: &str, _: &str, _: bool) -> Result<Finished, Failure> {
        Err(Error::denied().into())
    }

    async fn redeem(&self, request: &Redemption) -> Result<RawToken> {
        let Redemption { code, verifier, redirect_uri, client, .. } = request;
        self.note(format!("redeem {} {} {redirect_uri:?} {client:?}", code.expose(), verifier.expose()));
        outcome(code.expose())?;
        Ok(RawToken { token: Secret::new("a.b.c"), refresh_token: Secret::new("r"), expiry: expiry() })
    }

    async fn has_verified_organization(&self, _: &str) -> Result<bool> {
        Ok(false)
    }
}

async fn setting() -> (Rest, Arc<Stub>) {
    let stub = Arc::new(Stub::default());
    (rest(Limits::default()).await.mount(Tokens::new(stub.clone()).redeeming(stub.clone())), stub)
}

async fn ask(rest: &Rest, body: impl Into<String>) -> Answer {
    send(rest, Method::POST, "/oauth/token", &[], body.into()).await
}

/// Returns the members of a reply, without `expires_in`, which is about an hour.
fn tokens(answer: Answer) -> Value {
    assert_eq!(answer.headers["cache-control"], "no-store");
    let mut reply = answer.ok();
    let seconds = reply.as_object_mut().unwrap().shift_remove("expires_in").unwrap();
    assert!((3000..=3600).contains(&seconds.as_i64().unwrap()), "{seconds}");
    reply
}

#[tokio::test]
async fn a_code_is_redeemed_with_the_parameters_of_standard_clients() {
    let (rest, stub) = setting().await;
    let form = "grant_type=authorization_code&code=good&code_verifier=v&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fx\
                &client_id=c&client_secret=&client_assertion=ignored";
    let expected = json!({
        "token": "a.b.c", "refreshToken": "r", "expiry": expiry(),
        "access_token": "a.b.c", "token_type": "Bearer", "refresh_token": "r",
    });
    assert_eq!(tokens(ask(&rest, form).await), expected);
    // Without the parameters that PKCE does not need, and as JSON.
    assert_eq!(tokens(ask(&rest, "grant_type=authorization_code&code=good&code_verifier=v").await), expected);
    let body = json!({ "grantType": "authorization_code", "code": "good", "codeVerifier": "v", "extra": {} });
    assert_eq!(tokens(ask(&rest, body.to_string()).await), expected);
    let body = json!({ "grant_type": "authorization_code", "code": "good", "code_verifier": "v" });
    assert_eq!(tokens(ask(&rest, body.to_string()).await), expected);
    let without = "redeem good v None None";
    assert_eq!(stub.calls(), ["redeem good v Some(\"http://127.0.0.1:1/x\") Some(\"c\")", without, without, without]);
}

#[tokio::test]
async fn a_refresh_returns_the_next_refresh_token() {
    let (rest, stub) = setting().await;
    let group = "1".repeat(40);
    let expected = json!({
        "token": "a.b.c", "refreshToken": "next", "expiry": expiry(),
        "access_token": "a.b.c", "token_type": "Bearer", "refresh_token": "next",
    });
    assert_eq!(tokens(ask(&rest, "grant_type=refresh_token&refresh_token=good&client_id=c").await), expected);
    let narrowed = format!("grant_type=refresh_token&refresh_token=good&scope=openid+{group}&audience=a&cap=repo.list");
    assert_eq!(tokens(ask(&rest, narrowed).await)["scope"], group);
    let calls = stub.calls();
    assert_eq!(calls[0], format!("refresh good {:?}", Refresh::default()));
    assert!(calls[1].contains("audiences: [\"a\"]") && calls[1].contains("repo.list"), "{calls:?}");
}

#[tokio::test]
async fn an_exchange_takes_its_credential_as_a_parameter() {
    let (rest, stub) = setting().await;
    let identity = "2".repeat(40);
    let form = format!("{EXCHANGE}good&audience=a&audience=b&resource=https%3A%2F%2Fc&identity={identity}");
    let reply = tokens(ask(&rest, form).await);
    assert_eq!(reply["access_token"], "a.b.c");
    assert_eq!(reply["issued_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert!(reply.get("refresh_token").is_none() && reply.get("scope").is_none(), "{reply}");
    let calls = stub.calls();
    assert!(calls[0].contains("audiences: [\"a\", \"b\", \"https://c\"]"), "{calls:?}");
    // The bearer token is not a parameter of this endpoint.
    let headers = [("authorization", "Bearer good".to_owned())];
    let answer = send(&rest, Method::POST, "/oauth/token", &headers, EXCHANGE).await;
    assert_eq!(answer.fields(), ["subject_token"]);
    assert_eq!(stub.calls(), [""; 0]);
}

#[tokio::test]
async fn errors_have_the_values_and_the_statuses_of_oauth() {
    let (rest, _) = setting().await;
    let code = "grant_type=authorization_code&code_verifier=v&code=";
    let refresh = "grant_type=refresh_token&refresh_token=";
    for (start, credential, status, error) in [
        (code, "bad", 400, "invalid_grant"),
        (code, "", 400, "invalid_request"),
        (code, "busy", 429, "temporarily_unavailable"),
        (refresh, "bad", 400, "invalid_grant"),
        (refresh, "malformed", 400, "invalid_grant"),
        (refresh, "audience", 400, "invalid_target"),
        (refresh, "capability", 400, "invalid_scope"),
        (refresh, "good&scope=admin", 400, "invalid_scope"),
        (refresh, "good&resource=x", 400, "invalid_target"),
        (refresh, "good&resource=x&scope=admin", 400, "invalid_request"),
        (refresh, "good&refresh_token=good", 400, "invalid_request"),
        (refresh, "good&x=1&x=2", 400, "invalid_request"),
        // RFC 8693 section 2.2.2.
        (EXCHANGE, "bad", 400, "invalid_request"),
        (EXCHANGE, "malformed", 400, "invalid_request"),
        (EXCHANGE, "unregistered", 400, "invalid_request"),
        (EXCHANGE, "refused", 400, "invalid_request"),
        (EXCHANGE, "unavailable", 503, "temporarily_unavailable"),
        (EXCHANGE, "fault", 500, "server_error"),
        (EXCHANGE, "good&actor_token=x", 400, "invalid_request"),
        ("", "", 400, "invalid_request"),
        ("code=good", "", 400, "invalid_request"),
        ("grant_type=", "password", 400, "unsupported_grant_type"),
        ("grant_type=", "%ff", 400, "invalid_request"),
    ] {
        let answer = ask(&rest, format!("{start}{credential}")).await;
        let (found, _, message) = answer.refusal();
        let body = answer.json();
        assert_eq!((found, body["error"].as_str()), (status, Some(error)), "{start}{credential}: {body}");
        assert_eq!(body["error_description"], message.replace('"', "'"), "{body}");
        assert!(!answer.headers.contains_key("www-authenticate"), "{answer:?}");
    }
    let answer = send(&rest, Method::GET, "/oauth/token", &[], "").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]), (405, &json!("invalid_request")));
    let answer = send(&rest, Method::POST, "/oauth/token?code=good", &[], "").await;
    assert_eq!(answer.fields(), ["code"], "a code in the address");
    // The other token services keep the form of their errors.
    let answer =
        send(&rest, Method::POST, "/sts/exchange?aud=a", &[("authorization", "Bearer bad".to_owned())], "").await;
    assert_eq!((answer.status.as_u16(), answer.json().get("error")), (401, None));
}

#[tokio::test]
async fn without_browser_sign_ins_there_are_no_codes_to_redeem() {
    let rest = rest(Limits::default()).await.mount(Tokens::new(Arc::new(Stub::default())));
    let answer = ask(&rest, "grant_type=authorization_code&code=good&code_verifier=v").await;
    assert_eq!(answer.json()["error"], "unsupported_grant_type");
}
