//! Identities of AWS, with a stand-in for AWS's STS that verifies Signature Version 4.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{Request, Response};
use platform_core::{resources::iam::Identity, tokens::TokenService};
use platform_engine::{error::Code, uid::Uid};
use platform_outbound::{Fetch, fetch::FetchError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    common::{API, encode},
    fixture::{Fixture, VIEWER, claims_of, error_of},
};

const KEY_ID: &str = "AKIDTESTONLY";
const KEY: &str = "test only secret";
const ACCOUNT: &str = "123456789012";
const ARN: &str = "arn:aws:sts::123456789012:assumed-role/deploy/run-7";
const USER_ID: &str = "AROATESTONLY:run-7";
const TARGET: &str = "/?Action=GetCallerIdentity&Version=2011-06-15";

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Returns the signature of a `GetCallerIdentity` request with these signed headers, sorted by name.
fn signature(headers: &[(String, String)], date: &str, region: &str) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let query = TARGET.trim_start_matches("/?");
    let body = hex::encode(Sha256::digest(""));
    let canonical = format!("POST\n/\n{query}\n{lines}\n{}\n{body}", names.join(";"));
    let (day, _) = date.split_once('T').unwrap();
    let scope = format!("{day}/{region}/sts/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(Sha256::digest(canonical)));
    let mut key = mac(format!("AWS4{KEY}").as_bytes(), day);
    for part in [region, "sts", "aws4_request"] {
        key = mac(&key, part);
    }
    hex::encode(mac(&key, &text))
}

/// The stand-in: answers a request whose signature is valid with the caller's identity.
fn sts_of_aws(request: &Request<Bytes>) -> Response<Bytes> {
    sts_of_partition(request, ARN)
}

/// As [`sts_of_aws`], of the partition of this ARN.
fn sts_of_partition(request: &Request<Bytes>, arn: &str) -> Response<Bytes> {
    let respond =
        |status: u16, body: Value| Response::builder().status(status).body(Bytes::from(body.to_string())).unwrap();
    let header = |name: &str| match name {
        "host" => request.uri().authority().unwrap().to_string(),
        name => request.headers()[name].to_str().unwrap().to_owned(),
    };
    assert_eq!((request.method().as_str(), request.uri().scheme_str()), ("POST", Some("https")));
    assert_eq!((request.uri().path_and_query().unwrap().as_str(), request.body().len()), (TARGET, 0));
    assert_eq!(header("accept"), "application/json");
    let authorization = header("authorization");
    let part = |name: &str| {
        let rest = authorization.split_once(&format!("{name}=")).unwrap().1;
        rest.split(',').next().unwrap().to_owned()
    };
    let credential = part("Credential");
    let scope: Vec<_> = credential.split('/').collect();
    let signed: Vec<_> = part("SignedHeaders").split(';').map(|name| (name.to_owned(), header(name))).collect();
    let expected = signature(&signed, &header("x-amz-date"), scope[2]);
    if (scope[0], scope[3]) != (KEY_ID, "sts") || part("Signature") != expected {
        return respond(403, json!({ "Error": { "Code": "SignatureDoesNotMatch" } }));
    }
    let result = json!({ "Account": ACCOUNT, "Arn": arn, "UserId": USER_ID });
    respond(200, json!({ "GetCallerIdentityResponse": { "GetCallerIdentityResult": result } }))
}

/// A signed request under construction.
#[derive(Clone)]
pub struct Signed {
    host: String,
    region: String,
    date: String,
    /// Signed headers in addition to `host` and `x-amz-date`.
    headers: Vec<(String, String)>,
    /// Lines that are added after the signature.
    more: String,
    start: String,
}

impl Signed {
    pub fn new(identity: &str) -> Self {
        let headers = [("accept", "application/json"), ("chainguard-audience", API), ("chainguard-identity", identity)];
        Self {
            host: "sts.amazonaws.com".to_owned(),
            region: "us-east-1".to_owned(),
            date: "20270115T080000Z".to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            more: String::new(),
            start: format!("POST {TARGET} HTTP/1.1"),
        }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    fn head(&self) -> String {
        let Self { host, date, more, start, .. } = self;
        let mut signed = self.headers.clone();
        signed.push(("host".to_owned(), host.clone()));
        signed.push(("x-amz-date".to_owned(), date.clone()));
        signed.sort();
        let names: Vec<_> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let scope = format!("{KEY_ID}/{}/{}/sts/aws4_request", &date[..8], self.region);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={}, Signature={}",
            names.join(";"),
            signature(&signed, date, &self.region)
        );
        let lines: String = signed.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = if names.contains(&"content-length") { "" } else { "Content-Length: 0\r\n" };
        format!("{start}\r\n{lines}{length}Authorization: {authorization}\r\n{more}\r\n")
    }

    pub fn credential(&self) -> String {
        encode(self.head())
    }
}

async fn aws_identity(fixture: &Fixture, aws: Value) -> Uid {
    let identity = fixture.identity(&fixture.org, json!({ "awsIdentity": aws })).await;
    fixture.bind(&identity, VIEWER, &fixture.org).await;
    identity
}

async fn setting() -> (Fixture, Uid) {
    let fixture = Fixture::new().await;
    let identity = caller_of_aws(&fixture).await;
    (fixture, identity)
}

/// Creates the identity of the caller that the stand-in identifies.
pub async fn caller_of_aws(fixture: &Fixture) -> Uid {
    fixture.stub.respond_to(sts_of_aws);
    aws_identity(fixture, json!({ "awsAccount": ACCOUNT, "arn": ARN, "userId": USER_ID })).await
}

#[test]
fn the_stand_in_computes_the_signatures_of_botocore() {
    let identity = "63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef";
    let mut signed = Signed::new(identity).with("x-amz-security-token", "a session token");
    (signed.host, signed.region) = ("sts.eu-west-1.amazonaws.com".to_owned(), "eu-west-1".to_owned());
    // Printed by botocore's SigV4Auth for the same request, key and time.
    let expected = "4e387c99e52993b9eb35d98eb695559a0b1351cafaa9caa4cdf9d992afbcbd9e";
    assert!(signed.head().contains(&format!("Signature={expected}\r\n")), "{}", signed.head());
}

#[tokio::test]
async fn a_signed_request_of_the_right_caller_gets_a_token_for_the_identity() {
    let (fixture, identity) = setting().await;
    let regional = Signed {
        host: "sts.eu-west-1.amazonaws.com".to_owned(),
        region: "eu-west-1".to_owned(),
        ..Signed::new(&identity)
    };
    for signed in [Signed::new(&identity), regional, Signed::new(&identity).with("x-amz-security-token", "temporary")] {
        // Go's base64.URLEncoding has padding.
        let padding = "=".repeat((4 - signed.credential().len() % 4) % 4);
        let reply = fixture.assume(&(signed.credential() + &padding), &identity).await.unwrap();
        assert!(reply.refresh_token.is_empty());
        let claims = claims_of(reply.token.expose());
        assert_eq!(claims["sub"], json!(identity));
        assert_eq!(claims["act"], json!({ "iss": "https://sts.amazonaws.com", "sub": ARN, "aud": API }));
        assert!(fixture.sees(reply.token.expose(), &fixture.org).await);
    }
}

#[tokio::test]
async fn account_arn_and_user_id_must_all_match() {
    let (fixture, _) = setting().await;
    let pattern = "arn:aws:sts::123456789012:assumed-role/deploy/.*";
    for (aws, matches) in [
        (json!({ "awsAccount": ACCOUNT, "arnPattern": pattern, "userIdPattern": "AROATESTONLY:.*" }), true),
        (json!({ "awsAccount": "210987654321", "arn": ARN, "userId": USER_ID }), false),
        (json!({ "awsAccount": ACCOUNT, "arn": "arn:aws:iam::123456789012:root", "userId": USER_ID }), false),
        (json!({ "awsAccount": ACCOUNT, "arn": ARN, "userId": "AROATESTONLY" }), false),
        (json!({ "awsAccount": ACCOUNT, "arnPattern": "arn:aws:sts", "userId": USER_ID }), false),
        (json!({ "awsAccount": ACCOUNT, "arn": ARN, "userIdPattern": "AROA" }), false),
    ] {
        let identity = aws_identity(&fixture, aws.clone()).await;
        let reply = fixture.assume(&Signed::new(&identity).credential(), &identity).await;
        assert_eq!(
            reply.map(drop).map_err(|error| error.code()),
            matches.then_some(()).ok_or(Code::Unauthenticated),
            "{aws}"
        );
    }
}

#[tokio::test]
async fn a_signed_request_is_for_one_server_one_identity_and_a_short_time() {
    let (fixture, identity) = setting().await;
    let other = aws_identity(&fixture, json!({ "awsAccount": ACCOUNT, "arn": ARN, "userId": USER_ID })).await;
    let token_identity = fixture.alice().await;
    let signed = Signed::new(&identity);
    for bad in [
        signed.clone().with("chainguard-audience", "https://another.example"),
        signed.clone().with("chainguard-identity", &other),
        signed.clone().with("chainguard-identity", &fixture.operator.identity),
        Signed { date: "20270115T074500Z".to_owned(), ..signed.clone() },
        Signed { date: "20270115T080501Z".to_owned(), ..signed.clone() },
    ] {
        assert_eq!(error_of(fixture.assume(&bad.credential(), &identity).await).0, Code::Unauthenticated);
    }
    assert_eq!(error_of(fixture.assume(&signed.credential(), &other).await).0, Code::Unauthenticated);
    let of_token = Signed::new(&token_identity).credential();
    assert_eq!(error_of(fixture.assume(&of_token, &token_identity).await).0, Code::Unauthenticated);
    let provider = json!({ "aud": [API], "identity": identity, "identityProvider": other });
    assert_eq!(error_of(fixture.exchange(&signed.credential(), provider).await).0, Code::Unauthenticated);
    let untargeted = fixture.exchange(&signed.credential(), json!({ "aud": [API] })).await;
    assert_eq!(error_of(untargeted).0, Code::InvalidArgument);
    // A person acts with tokens of their issuer, whatever the relationship is.
    let person = fixture.sts.register(&fixture.upstream(json!({})), &Default::default()).await.unwrap().identity;
    let of_aws = json!({ "awsIdentity": { "awsAccount": ACCOUNT, "arn": ARN, "userId": USER_ID } });
    let of_aws: Identity = serde_json::from_value(of_aws).unwrap();
    fixture.platform.update(&fixture.operator, &person, &of_aws, "awsIdentity").await.unwrap();
    let of_person = Signed::new(&person).credential();
    assert_eq!(error_of(fixture.assume(&of_person, &person).await).0, Code::Unauthenticated);
    let requested = fixture.stub.requested();
    assert!(!requested.iter().any(|url| url.contains("amazonaws.com")), "AWS was asked: {requested:?}");

    // The limits of the time, exactly.
    for date in ["20270115T074501Z", "20270115T080500Z"] {
        let signed = Signed { date: date.to_owned(), ..signed.clone() };
        fixture.assume(&signed.credential(), &identity).await.unwrap();
    }
    fixture.clock.advance(15 * 60 * 1000);
    assert_eq!(error_of(fixture.assume(&signed.credential(), &identity).await).0, Code::Unauthenticated);
}

#[tokio::test]
async fn an_ambiguous_request_is_not_sent_to_aws() {
    let (fixture, identity) = setting().await;
    let signed = Signed::new(&identity);
    let host = |host: &str| Signed { host: host.to_owned(), ..signed.clone() };
    let more = |more: &str| Signed { more: more.to_owned(), ..signed.clone() };
    let start = |start: &str| Signed { start: start.to_owned(), ..signed.clone() };
    for (what, bad) in [
        ("another host", host("sts.evil.example")),
        ("a bucket of a customer", host("sts.s3.amazonaws.com")),
        ("a port", host("sts.amazonaws.com:8443")),
        ("a user", host("evil@sts.amazonaws.com")),
        ("an unsigned audience", signed.clone().without("chainguard-audience")),
        ("an unsigned identity", signed.clone().without("chainguard-identity")),
        (
            "an audience after the signature",
            Signed { more: format!("chainguard-audience: {API}\r\n"), ..signed.clone().without("chainguard-audience") },
        ),
        ("a second audience", more(&format!("chainguard-audience: {API}\r\n"))),
        ("a second host", more("host: evil.example\r\n")),
        ("a second signature", more("authorization: x\r\n")),
        ("a body", more("\r\nbody")),
        ("the length of a body", signed.clone().with("content-length", "4")),
        ("a chunked body", signed.clone().with("transfer-encoding", "chunked")),
        ("another format", signed.clone().with("accept", "text/xml")),
        ("any format", signed.clone().with("accept", "*/*")),
        ("a GET", start(&format!("GET {TARGET} HTTP/1.1"))),
        ("an action in the body", start("POST / HTTP/1.1")),
        ("another region of another partition", host("sts.eu-west-1.amazonaws.com.cn")),
        ("a header of the connection", signed.clone().with("connection", "upgrade")),
        ("another action", start("POST /?Action=AssumeRole&Version=2011-06-15 HTTP/1.1")),
        ("an absolute target", start("POST https://evil.example/ HTTP/1.1")),
        ("another method", start("POST  / HTTP/1.1")),
    ] {
        let reply = fixture.assume(&bad.credential(), &identity).await;
        assert_eq!(error_of(reply).0, Code::Unauthenticated, "{what}");
    }
    for bad in [encode("POST "), encode(&signed.head()[..200]), encode("POST / HTTP/1.1\r\n".repeat(2000))] {
        assert_eq!(error_of(fixture.assume(&bad, &identity).await).0, Code::Unauthenticated);
    }
    assert_eq!(fixture.stub.requested(), [""; 0], "AWS was asked");
    // Headers that the signature does not cover are not sent.
    fixture.stub.respond_to(|request| {
        assert!(!request.headers().contains_key("x-unsigned"));
        sts_of_aws(request)
    });
    fixture.assume(&more("x-unsigned: 1\r\n").credential(), &identity).await.unwrap();
    assert_eq!(fixture.stub.requested(), [format!("https://sts.amazonaws.com{TARGET}")]);
}

#[tokio::test]
async fn only_a_complete_answer_of_aws_counts() {
    let (fixture, identity) = setting().await;
    let credential = Signed::new(&identity).credential();
    let forged = credential_with_another_signature(&identity);
    assert_eq!(error_of(fixture.assume(&forged, &identity).await).0, Code::Unauthenticated);
    for (status, body, code) in [
        (200, "", Code::Unavailable),
        (200, "<GetCallerIdentityResponse/>", Code::Unavailable),
        (
            200,
            r#"{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Account":"123456789012"}}}"#,
            Code::Unavailable,
        ),
        (302, "", Code::Unavailable),
        (400, "{}", Code::Unauthenticated),
        (400, r#"{"Error":{"Code":"Throttling"}}"#, Code::Unavailable),
        (400, r#"{"Error":{"Code":"ThrottlingException"}}"#, Code::Unavailable),
        (400, r#"{"Error":{"Code":"ExpiredToken"}}"#, Code::Unauthenticated),
        (400, r#"{"Error":{"Code":"RequestTimeout"}}"#, Code::Unavailable),
        (400, "<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>", Code::Unavailable),
        (400, "<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>", Code::Unauthenticated),
        (403, "{}", Code::Unauthenticated),
        (408, "", Code::Unavailable),
        (425, "", Code::Unavailable),
        (429, "{}", Code::Unavailable),
        (500, "{}", Code::Unavailable),
    ] {
        fixture
            .stub
            .respond_to(move |_| Response::builder().status(status).body(Bytes::from_static(body.as_bytes())).unwrap());
        assert_eq!(error_of(fixture.assume(&credential, &identity).await).0, code, "{status} {body}");
    }
}

#[tokio::test]
async fn each_partition_of_aws_is_asked_at_its_own_hosts_and_must_be_named() {
    const CHINA: &str = "arn:aws-cn:sts::123456789012:assumed-role/deploy/run-7";
    let any = json!({ "awsAccount": ACCOUNT, "arnPattern": ".*", "userIdPattern": ".*" });
    let china = json!({ "awsAccount": ACCOUNT, "arnPattern": "arn:aws-cn:sts::.*", "userId": USER_ID });
    for (host, region, arn, aws, accepted) in [
        ("sts.cn-north-1.amazonaws.com.cn", "cn-north-1", CHINA, &china, true),
        ("sts.cn-north-1.amazonaws.com.cn", "cn-north-1", CHINA, &any, false),
        ("sts.cn-north-1.amazonaws.com.cn", "cn-north-1", ARN, &china, false),
        ("sts-fips.us-east-1.amazonaws.com", "us-east-1", ARN, &any, true),
        ("sts.us-east-1.api.aws", "us-east-1", ARN, &any, true),
        ("sts.us-east-1.amazonaws.com", "us-east-1", CHINA, &any, false),
    ] {
        let fixture = Fixture::new().await;
        fixture.stub.respond_to(move |request| sts_of_partition(request, arn));
        let identity = aws_identity(&fixture, aws.clone()).await;
        let signed = Signed { host: host.to_owned(), region: region.to_owned(), ..Signed::new(&identity) };
        let reply = fixture.assume(&signed.credential(), &identity).await;
        assert_eq!(
            reply.map_err(|error| error.code()).err(),
            (!accepted).then_some(Code::Unauthenticated),
            "{host} {aws}"
        );
    }
}

#[tokio::test]
async fn the_query_may_have_either_order_and_an_unsigned_accept_does_not_count() {
    let (fixture, identity) = setting().await;
    let signed = Signed::new(&identity);
    let start = "POST /?Version=2011-06-15&Action=GetCallerIdentity HTTP/1.1".to_owned();
    let accept = Signed { more: "accept: */*\r\n".to_owned(), ..signed.clone().without("accept") };
    for signed in [Signed { start, ..signed.clone() }, accept] {
        fixture.assume(&signed.credential(), &identity).await.unwrap();
    }
}

#[tokio::test]
async fn an_error_says_which_form_of_a_signed_request_is_accepted_and_who_cannot_be_reached() {
    let (fixture, identity) = setting().await;
    for credential in [
        encode(format!("GET {TARGET} HTTP/1.1\r\nHost: sts.amazonaws.com\r\n\r\n")),
        "k8s-aws-v1.aHR0cHM6Ly9zdHMuYW1hem9uYXdzLmNvbS8".to_owned(),
        format!("https://sts.amazonaws.com{TARGET}&X-Amz-Signature=0"),
    ] {
        let (code, message) = error_of(fixture.assume(&credential, &identity).await);
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains("POST") && message.contains("signed"), "{message}");
    }
    fixture.stub.respond_to(|_| Response::builder().status(503).body(Bytes::new()).unwrap());
    let (code, message) = error_of(fixture.assume(&Signed::new(&identity).credential(), &identity).await);
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("AWS") && !message.contains("issuer"), "{message}");
}

/// A way to AWS that always fails in the same way.
struct Failing(fn() -> FetchError);

impl std::fmt::Debug for Failing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Failing")
    }
}

#[async_trait]
impl Fetch for Failing {
    async fn get(&self, _: &str, _: usize) -> Result<Bytes, FetchError> {
        Err((self.0)())
    }

    async fn send(&self, _: Request<Bytes>, _: usize) -> Result<Response<Bytes>, FetchError> {
        Err((self.0)())
    }
}

#[tokio::test]
async fn an_error_of_the_way_to_aws_that_lasts_does_not_look_like_a_passing_one() {
    let untrusted = || {
        let error = tokio_rustls::rustls::CertificateError::UnknownIssuer;
        FetchError::Transport(Box::new(tokio_rustls::rustls::Error::InvalidCertificate(error)))
    };
    for (fails, expected, says) in [
        (untrusted as fn() -> FetchError, Code::FailedPrecondition, "certificate"),
        (|| FetchError::TooLong, Code::FailedPrecondition, "too long"),
        (|| FetchError::TimedOut, Code::Unavailable, "AWS"),
        (|| FetchError::Transport("refused".into()), Code::Unavailable, "AWS"),
    ] {
        let fixture = Fixture::with(Some(Arc::new(Failing(fails)))).await;
        let aws = json!({ "awsAccount": ACCOUNT, "arn": ARN, "userId": USER_ID });
        let identity = aws_identity(&fixture, aws).await;
        // More often than a host that fails is asked, so that the last errors are those of the limit.
        for attempt in 0..10 {
            let (code, message) = error_of(fixture.assume(&Signed::new(&identity).credential(), &identity).await);
            assert_eq!(code, expected, "{attempt}: {message}");
            assert!(message.contains(says) && message.contains("AWS") && !message.contains("issuer"), "{message}");
        }
    }
}

#[tokio::test]
async fn the_hosts_that_the_operator_names_are_asked_and_no_others() {
    const ISOLATED: &str = "arn:aws-iso:sts::123456789012:assumed-role/deploy/run-7";
    let mut fixture = Fixture::new().await;
    let named = Arc::clone(&fixture.stub);
    let hosts = ["127.0.0.1:8443", "sts.us-iso-east-1.c2s.ic.gov=aws-iso"];
    let hosts = hosts.map(|host| host.parse().unwrap()).to_vec();
    // The fetch of the fixture is for what tenants name.
    fixture.sts = fixture.sts.with_aws_hosts(hosts, named);
    let any = json!({ "awsAccount": ACCOUNT, "arnPattern": ".*", "userIdPattern": ".*" });
    let isolated = json!({ "awsAccount": ACCOUNT, "arnPattern": "arn:aws-iso:.*", "userIdPattern": ".*" });
    for (host, arn, aws, accepted) in [
        ("127.0.0.1:8443", ARN, &any, true),
        ("127.0.0.1:8443", ISOLATED, &isolated, false),
        ("sts.us-iso-east-1.c2s.ic.gov", ISOLATED, &isolated, true),
        ("sts.us-iso-east-1.c2s.ic.gov", ISOLATED, &any, false),
        ("127.0.0.1", ARN, &any, false),
        ("127.0.0.1:8444", ARN, &any, false),
        ("sts.amazonaws.com", ARN, &any, false),
    ] {
        fixture.stub.respond_to(move |request| sts_of_partition(request, arn));
        let identity = aws_identity(&fixture, aws.clone()).await;
        let signed = Signed { host: host.to_owned(), ..Signed::new(&identity) };
        let reply = fixture.assume(&signed.credential(), &identity).await;
        let code = reply.map_err(|error| error.code()).err();
        assert_eq!(code, (!accepted).then_some(Code::Unauthenticated), "{host} {aws}");
    }
}

fn credential_with_another_signature(identity: &str) -> String {
    let head = Signed::new(identity).head();
    let (start, rest) = head.split_once("Signature=").unwrap();
    let other = if rest.starts_with('0') { "1" } else { "0" };
    encode(format!("{start}Signature={other}{}", &rest[1..]))
}
