//! Proves an identity of AWS by a signed request: AWS itself verifies the signature and identifies the caller.
//!
//! The credential is an HTTP request for `GetCallerIdentity`, signed with Signature Version 4, in base64url. This
//! server sends it to AWS and compares the answer with the identity. The signature covers the audience and the
//! requested identity, so that a request for another server or identity is useless here.

mod hosts;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST},
};
use platform_core::{iam::Iam, tokens::Exchange};
use platform_engine::{
    access::{Caller, Credential},
    error::{Code, Detail, Error, Result},
    timestamp::Timestamp,
};
use serde_json::{Map, Value, json};

use super::{
    Sts,
    matching::{CallerIdentity, matches_aws},
    not_authorized,
    proof::Proof,
    token_error,
};
use crate::{discovery, error::TokenError, json, jws::MAX_TOKEN};

pub(super) use self::hosts::AwsHosts;
pub use self::hosts::{AwsHost, InvalidAwsHost};

/// The request target that is sent to AWS, and the same query in the other order, whose signature is the same.
const TARGET: &str = "/?Action=GetCallerIdentity&Version=2011-06-15";
const SAME_TARGET: &str = "/?Version=2011-06-15&Action=GetCallerIdentity";
/// The audience and the identity that the request is for.
const FOR_AUDIENCE: HeaderName = HeaderName::from_static("chainguard-audience");
const FOR_IDENTITY: HeaderName = HeaderName::from_static("chainguard-identity");
/// The time of the signature.
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// The time for which a signature is valid, as for AWS, and how far its time may be in the future.
const VALID_MILLIS: i64 = 15 * 60 * 1000;
const EARLY_MILLIS: i64 = 5 * 60 * 1000;
/// The maximum number of headers, and the maximum length of AWS's answer in bytes; our choice.
const MAX_HEADERS: usize = 32;
const MAX_ANSWER: usize = 16 * 1024;

/// The codes of errors with a status of the client (4xx) after which the same request may succeed: those that the SDKs of
/// AWS repeat.
const PASSING_CODES: [&str; 18] = [
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "InternalFailure",
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
];
/// The statuses of the client after which the same request may succeed, whatever the code.
const PASSING_STATUS: [StatusCode; 3] =
    [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];

/// A signed request that was checked, except for its signature.
#[derive(Debug)]
struct SignedRequest {
    host: String,
    /// The partition of AWS that the host belongs to.
    partition: String,
    date: Timestamp,
    audience: String,
    identity: String,
    /// The signed headers and the signature, to send to AWS.
    headers: HeaderMap,
}

impl Sts {
    /// Determines whether the caller that AWS identifies may assume the requested identity.
    pub(super) async fn prove_by_aws(&self, credential: &str, request: &Exchange) -> Result<Proof> {
        let signed =
            SignedRequest::parse(credential, &self.aws).map_err(|why| token_error(TokenError::Malformed(why)))?;
        let now = self.clock.now();
        if now >= signed.date.plus_millis(VALID_MILLIS) {
            return Err(token_error(TokenError::Expired));
        }
        if signed.date > now.plus_millis(EARLY_MILLIS) {
            return Err(token_error(TokenError::NotYetValid));
        }
        if !self.audiences.contains(&signed.audience) {
            return Err(token_error(TokenError::Audience));
        }
        let requested = match (&request.identity, &request.identity_provider) {
            (Some(requested), None) if requested.as_str() == signed.identity && !requested.is_root() => requested,
            (None, None) => return Err(Error::invalid_field("identity", "is required with a signed request to AWS")),
            _ => return Err(not_authorized()),
        };
        // Before the call: a request for an identity that cannot match must not trigger one.
        let identity = Iam::of(&self.platform).identity(requested).await?.ok_or_else(not_authorized)?;
        let aws = identity.aws_identity.as_ref().ok_or_else(not_authorized)?;
        // Account numbers of different partitions may be equal, and most identities were created for the first two.
        let of_partition = format!("arn:{}:", signed.partition);
        let is_named = [&aws.arn, &aws.arn_pattern].iter().any(|arn| arn.starts_with(&of_partition));
        if !["aws", "aws-us-gov"].contains(&&*signed.partition) && !is_named {
            return Err(not_authorized());
        }
        let found = self.ask_aws(requested.root(), &signed).await?;
        if !matches_aws(aws, &found) || !found.arn.starts_with(&of_partition) {
            return Err(not_authorized());
        }
        let act = json!({ "iss": "https://sts.amazonaws.com", "sub": found.arn, "aud": signed.audience });
        let caller = Caller::new(requested.clone()).with_credential(Credential::issued_at(Some(signed.date)));
        Ok(Proof { caller, identity, act, profile: Map::new(), expires: None, refreshable: false })
    }

    /// Sends the request to AWS, within the limits of the organization that the identity belongs to.
    async fn ask_aws(&self, organization: &str, signed: &SignedRequest) -> Result<CallerIdentity> {
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("https://{}{TARGET}", signed.host).parse().map_err(Error::internal)?;
        *request.headers_mut() = signed.headers.clone();
        self.count_operation();
        let permit = self.issuers.acquire(organization, &request.uri().to_string()).map_err(aws_error)?;
        let sent = discovery::send(&*self.aws.fetch, permit, request, MAX_ANSWER);
        let answer = sent.await.map_err(aws_error)?;
        let status = answer.status();
        if status == StatusCode::OK {
            return caller_identity(answer.body()).ok_or_else(unavailable);
        }
        let code = error_code(answer.body()).unwrap_or_default();
        // Anybody who may create an identity can cause this, so it is not a warning.
        tracing::debug!(host = signed.host, %status, code, "AWS does not identify the caller of a signed request");
        let is_final =
            status.is_client_error() && !PASSING_STATUS.contains(&status) && !PASSING_CODES.contains(&&*code);
        Err(if is_final { not_authorized() } else { unavailable() })
    }
}

impl SignedRequest {
    /// Parses a request and checks that nothing in it is ambiguous, that it can only be sent to AWS, and that the
    /// signature covers what matters. Returns the rule that it breaks.
    fn parse(credential: &str, hosts: &AwsHosts) -> Result<Self, &'static str> {
        const FORM: &str = "expected a POST to AWS whose headers are signed, as HTTP/1.1 text in base64url";
        let decoded = Some(credential.trim_end_matches('=')).filter(|_| credential.len() <= MAX_TOKEN);
        let decoded = decoded.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or(FORM)?;
        let mut space = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut space);
        match parsed.parse(&decoded) {
            Ok(httparse::Status::Complete(length)) if length == decoded.len() => {}
            _ => return Err("the signed request must be a head without a body"),
        }
        let is_target = [TARGET, SAME_TARGET].map(Some).contains(&parsed.path);
        if !is_target || (parsed.method, parsed.version) != (Some("POST"), Some(1)) {
            return Err(
                "the signed request must be a POST of HTTP/1.1 for /?Action=GetCallerIdentity&Version=2011-06-15 with the \
                 signature in its headers; a GET, a presigned URL and an action in the body are not accepted",
            );
        }
        let mut all = HeaderMap::new();
        for header in parsed.headers.iter() {
            let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| FORM)?;
            let value = HeaderValue::from_bytes(header.value).map_err(|_| FORM)?;
            if all.insert(name, value).is_some() {
                return Err("the signed request repeats a header");
            }
        }
        let text = |name: &HeaderName| all.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let host = text(&HOST).unwrap_or_default();
        let partition = hosts
            .partition(host)
            .ok_or("the signed request must be for an endpoint of the STS of AWS that this server asks")?;
        if text(&CONTENT_LENGTH).is_some_and(|length| length != "0") {
            return Err("the signed request must have no body");
        }
        let signature = all.get(AUTHORIZATION).ok_or("the request to AWS is not signed")?;
        let signed = signature.to_str().ok().and_then(signed_headers).ok_or("the signature must be of version 4")?;
        // AWS answers in the form that the signed header asks for, and in JSON otherwise, because it is set below.
        if signed.contains(&ACCEPT.as_str()) && text(&ACCEPT) != Some("application/json") {
            return Err("the signed header Accept must be application/json; or leave it out of the signature");
        }
        let mut headers = HeaderMap::new();
        for name in &signed {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| FORM)?;
            let value = all.get(&name).ok_or("the signature names a header that the request does not have")?;
            if !may_be_sent(&name) {
                return Err("the signature covers a header that is not sent to AWS");
            }
            // The client of this server sets these two, with the same values.
            if ![HOST, CONTENT_LENGTH].contains(&name) {
                headers.insert(name, value.clone());
            }
        }
        for name in [HOST, DATE, FOR_AUDIENCE, FOR_IDENTITY] {
            if !signed.contains(&name.as_str()) {
                return Err("the signature must cover host, x-amz-date, chainguard-audience and chainguard-identity");
            }
        }
        headers.insert(AUTHORIZATION, signature.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        Ok(Self {
            host: host.to_owned(),
            partition: partition.to_owned(),
            date: text(&DATE).and_then(date).ok_or("x-amz-date must be a time")?,
            audience: text(&FOR_AUDIENCE).unwrap_or_default().to_owned(),
            identity: text(&FOR_IDENTITY).unwrap_or_default().to_owned(),
            headers,
        })
    }
}

/// The error when AWS cannot be asked, or does not answer for now.
fn unavailable() -> Error {
    Error::new(Code::Unavailable, "AWS cannot be reached, or does not answer now")
}

/// Describes an error of the way to AWS. One that lasts until somebody corrects it does not look like a passing one.
fn aws_error(error: TokenError) -> Error {
    match error {
        TokenError::Busy => Error::new(Code::ResourceExhausted, "Too many requests to AWS are in progress")
            .with(Detail::RetryInfo { millis: 1000 }),
        TokenError::Document { rule, .. } => Error::blocked(
            "AWS_ENDPOINT",
            format!("the endpoint of AWS that the request is signed for is refused: {rule}"),
        ),
        _ => unavailable(),
    }
}

/// Returns the code of an error of AWS, which is in JSON as it was asked for. A proxy or a gateway of AWS that rejects a
/// request before it is read answers in XML.
fn error_code(body: &[u8]) -> Option<String> {
    if let Some(answer) = json::object(body) {
        return Some(answer.get("Error")?.get("Code")?.as_str()?.to_owned());
    }
    let (_, rest) = std::str::from_utf8(body).ok()?.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code.trim().to_owned())
}

/// Returns whether a signed header is sent to AWS: not those that belong to a connection.
fn may_be_sent(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-amz-")
        || name.starts_with("chainguard-")
        || ["host", "accept", "content-length", "content-type", "user-agent"].contains(&name)
}

/// Returns the signed headers of an `Authorization` header of Signature Version 4.
fn signed_headers(signature: &str) -> Option<Vec<&str>> {
    let parameters = signature.strip_prefix("AWS4-HMAC-SHA256 ")?;
    let mut found = parameters.split(',').filter_map(|parameter| parameter.trim().strip_prefix("SignedHeaders="));
    let signed = found.next()?;
    found.next().is_none().then(|| signed.split(';').collect())
}

/// Parses a time such as `20270115T080000Z`.
fn date(text: &str) -> Option<Timestamp> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    // `Timestamp::parse` checks the lengths of the parts, but accepts fractions of a second.
    if !day.bytes().chain(time.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, day) = day.split_at_checked(4)?;
    let (month, day) = day.split_at_checked(2)?;
    let (hour, time) = time.split_at_checked(2)?;
    let (minute, second) = time.split_at_checked(2)?;
    Timestamp::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

/// Reads AWS's answer.
fn caller_identity(answer: &[u8]) -> Option<CallerIdentity> {
    let answer = json::object(answer)?;
    let result = answer.get("GetCallerIdentityResponse")?.get("GetCallerIdentityResult")?;
    let text = |name: &str| result.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    Some(CallerIdentity { account: text("Account")?, arn: text("Arn")?, user_id: text("UserId")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_read_in_json_and_in_xml() {
        for (body, code) in [
            (
                r#"{"Error":{"Code":"Throttling","Message":"Rate exceeded","Type":"Sender"},"RequestId":"x"}"#,
                "Throttling",
            ),
            (r#"{"Error":{"Code":"SignatureDoesNotMatch"}}"#, "SignatureDoesNotMatch"),
            ("<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>", "Throttling"),
            (r#"{"Error":"Throttling"}"#, ""),
            (r#"{"Error":{"Message":"<Code>Throttling</Code>"}}"#, ""),
            ("<Code>Throttling", ""),
            ("{}", ""),
            ("", ""),
        ] {
            assert_eq!(error_code(body.as_bytes()).unwrap_or_default(), code, "{body}");
        }
    }

    #[test]
    fn the_time_of_a_signature_has_one_form() {
        assert_eq!(date("20270115T080000Z").map(|date| date.seconds()), Some(1_800_000_000));
        for bad in [
            "",
            "20270115T080000",
            "2027-01-15T08:00:00Z",
            "20271315T080000Z",
            "20270115T08000 Z",
            "2027é15T080000Z",
            "2027011T080000Z",
            "202701151T080000Z",
            "20270115T08000Z",
            "20270115T0800001Z",
            "20270115T080000.5Z",
        ] {
            assert_eq!(date(bad), None, "{bad}");
        }
    }
}
