//! The emulator as the STS of AWS, with requests that botocore signed.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use platform_emulator::Fault;
use platform_engine::{error::Code, timestamp::Timestamp};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::Client;

const ARN: &str = "arn:aws:sts::123456789012:assumed-role/deploy/run-7";
const QUERY: &str = "Action=GetCallerIdentity&Version=2011-06-15";

/// A request that botocore's `SigV4Auth` signed at 2027-01-15T08:00:00Z, for `sts.us-east-1.amazonaws.com`, with the key of
/// the examples in the documentation of AWS.
#[derive(Clone, Copy)]
struct Signed {
    uri: &'static str,
    body: &'static str,
    headers: &'static [(&'static str, &'static str)],
    signed_headers: &'static str,
    signature: &'static str,
}

const BY_QUERY: Signed = Signed {
    uri: "/?Action=GetCallerIdentity&Version=2011-06-15",
    body: "",
    headers: &[("accept", "application/json")],
    signed_headers: "accept;host;x-amz-date",
    signature: "fcb094476f1b281a1890951645db41392c345992caaaaa3bae9642f9ef4ee926",
};
/// The form that the clients of the SDKs send.
const BY_FORM: Signed = Signed {
    uri: "/",
    body: QUERY,
    headers: &[("content-type", "application/x-www-form-urlencoded")],
    signed_headers: "content-type;host;x-amz-date",
    signature: "c5c3e7fba3872513e114b4081383e65d33f2bc90917616a40bef353149f67ec1",
};
const OTHER_ACTION: Signed = Signed {
    body: "Action=AssumeRole&Version=2011-06-15",
    signature: "15aaaac9b3c599cd845427bcb28ee4428202cca4ec25e50aa5f5ffb47dcb7a02",
    ..BY_FORM
};
const WITH_SESSION: Signed = Signed {
    headers: &[("accept", "application/json"), ("x-amz-security-token", "session"), ("x-note", "  two   words ")],
    signed_headers: "accept;host;x-amz-date;x-amz-security-token;x-note",
    signature: "dcf0285389c660a61449d85144802730e2d92e72904d8752c01919af18704f67",
    ..BY_QUERY
};

/// Returns a client of a tenant with the principal of the example key, at the time of the signatures.
async fn setting(session_token: &str) -> Client {
    let client = Client::new().await;
    let seed = json!({ "awsPrincipals": [{
        "accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "sessionToken": session_token, "account": "123456789012", "arn": ARN, "userId": "AROAEXAMPLE:run-7",
    }] });
    client.tenant.seed(&seed.to_string()).await.unwrap();
    client.tenant.freeze(true);
    client.tenant.set_time(Timestamp::parse("2027-01-15T08:00:00Z").unwrap());
    client
}

impl Client {
    /// Sends a signed request. Returns the status and the text of the answer.
    async fn aws(&self, signed: Signed, key: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let Signed { uri, body, signed_headers, signature, .. } = signed;
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={key}/20270115/us-east-1/sts/aws4_request, SignedHeaders={signed_headers}, \
             Signature={signature}"
        );
        let request = Request::builder().method("POST").uri(uri).header("authorization", authorization);
        let of_all = [("host", "sts.us-east-1.amazonaws.com"), ("x-amz-date", "20270115T080000Z")];
        let all = of_all.iter().chain(signed.headers).chain(headers);
        let request = all.fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap();
        let response = self.emulator.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends the request whose answer is in JSON. Returns the status and the code of the error.
    async fn code(&self, signed: Signed, key: &str) -> (u16, String) {
        let (status, body) = self.aws(signed, key, &[]).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        (status, body["Error"]["Code"].as_str().unwrap_or_default().to_owned())
    }
}

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn a_request_that_a_declared_key_signed_is_answered_in_the_form_that_it_asks_for() {
    let client = setting("").await;
    let (status, body) = client.aws(BY_QUERY, KEY, &[]).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let expected = json!({ "Account": "123456789012", "Arn": ARN, "UserId": "AROAEXAMPLE:run-7" });
    assert_eq!((status, &body["GetCallerIdentityResponse"]["GetCallerIdentityResult"]), (200, &expected));
    let (status, body) = client.aws(BY_FORM, KEY, &[]).await;
    assert_eq!(status, 200);
    assert!(body.starts_with("<GetCallerIdentityResponse") && body.contains(&format!("<Arn>{ARN}</Arn>")), "{body}");
    let logged = client.tenant.requests("Aws.GetCallerIdentity");
    assert_eq!(logged.iter().map(|request| request.identity.as_deref()).collect::<Vec<_>>(), [Some(ARN); 2]);
}

#[tokio::test]
async fn another_signature_key_time_or_action_is_an_error_of_aws() {
    let client = setting("").await;
    let other = Signed { signature: OTHER_ACTION.signature, ..BY_QUERY };
    assert_eq!(client.code(other, KEY).await, refused(403, "SignatureDoesNotMatch"));
    let unsigned = Signed { uri: "/?Action=GetCallerIdentity&Version=2011-06-16", ..BY_QUERY };
    assert_eq!(client.code(unsigned, KEY).await, refused(403, "SignatureDoesNotMatch"));
    let lacking = Signed { signed_headers: "accept;host;x-amz-date;x-lacking", ..BY_QUERY };
    assert_eq!(client.code(lacking, KEY).await, refused(403, "SignatureDoesNotMatch"));
    assert_eq!(client.code(BY_QUERY, "AKIAUNKNOWN").await, refused(403, "InvalidClientTokenId"));
    assert_eq!(client.code(WITH_SESSION, KEY).await, refused(403, "InvalidClientTokenId"));
    assert_eq!(client.code(Signed { signature: "no hex", ..BY_QUERY }, KEY).await, refused(400, "IncompleteSignature"));
    let (status, body) = client.aws(OTHER_ACTION, KEY, &[]).await;
    assert!(status == 400 && body.contains("<Code>InvalidAction</Code>"), "{body}");
    for (time, is_valid) in [
        ("2027-01-15T08:15:00Z", true),
        ("2027-01-15T08:15:01Z", false),
        ("2027-01-15T07:45:00Z", true),
        ("2027-01-15T07:44:59Z", false),
    ] {
        client.tenant.set_time(Timestamp::parse(time).unwrap());
        let expected = if is_valid { refused(200, "") } else { refused(403, "SignatureDoesNotMatch") };
        assert_eq!(client.code(BY_QUERY, KEY).await, expected, "{time}");
    }
    client.tenant.reset();
    assert_eq!(client.code(BY_QUERY, KEY).await, refused(403, "InvalidClientTokenId"), "a reset forgets the key");
}

#[tokio::test]
async fn the_session_token_of_a_key_must_be_signed() {
    let client = setting("session").await;
    assert_eq!(client.code(WITH_SESSION, KEY).await, refused(200, ""));
    assert_eq!(client.code(BY_QUERY, KEY).await, refused(403, "InvalidClientTokenId"));
}

#[tokio::test]
async fn a_fault_throttles_or_fails_as_aws_does() {
    let client = setting("").await;
    for (code, expected) in [
        (Code::ResourceExhausted, refused(400, "Throttling")),
        (Code::Unavailable, refused(503, "ServiceUnavailable")),
        (Code::Unauthenticated, refused(403, "ExpiredToken")),
        (Code::PermissionDenied, refused(403, "AccessDenied")),
        (Code::Internal, refused(500, "InternalFailure")),
    ] {
        client.tenant.inject(Fault { code: Some(code), times: Some(1), ..Fault::of("Aws.*") }).unwrap();
        assert_eq!(client.code(BY_QUERY, KEY).await, expected);
        assert_eq!(client.code(BY_QUERY, KEY).await, refused(200, ""));
    }
}

#[tokio::test]
async fn the_key_or_the_header_names_the_tenant() {
    let client = setting("").await;
    let other = client.another().await;
    other.tenant.seed(r#"{"awsPrincipals": [{"accessKeyId": "AKIAOTHER", "secretAccessKey": "other", "account": "1", "arn": "a", "userId": "u"}]}"#).await.unwrap();
    assert_eq!(client.code(BY_QUERY, "AKIAOTHER").await, refused(403, "SignatureDoesNotMatch"));
    assert_eq!(other.tenant.requests("Aws.*").len(), 1);
    let name = other.tenant.name().to_owned();
    let (status, _) = client.aws(BY_QUERY, KEY, &[("x-emulator-tenant", &name)]).await;
    assert_eq!(status, 403, "the other tenant does not have the key");
    assert_eq!(client.aws(BY_QUERY, KEY, &[("x-emulator-tenant", "none")]).await.0, 400);
}

#[tokio::test]
async fn an_invalid_principal_is_rejected_with_its_place_and_nothing_is_created() {
    let client = Client::new().await;
    for (seed, field) in [
        (
            json!({ "repos": [{ "name": "a" }], "awsPrincipals": [{ "accessKeyId": "A" }] }),
            "awsPrincipals[0].secretAccessKey",
        ),
        (json!({ "awsPrincipals": ["A"] }), "awsPrincipals[0]"),
        (json!({ "awsPrincipals": {} }), "awsPrincipals"),
    ] {
        let reply = client.post("/_emulator/seed", seed).await;
        assert_eq!((reply.status, reply.fields()[0]), (400, field), "{}", reply.body);
    }
    assert!(client.repos().await.is_empty());
}
