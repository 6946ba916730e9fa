//! Proves an identity of AWS by a signed request: AWS itself verifies the signature and identifies the caller.
//!
//! The credential is an HTTP request for `GetCallerIdentity`, signed with Signature Version 4, in base64url. This
//! server sends it to AWS and compares the answer with the identity. The signature covers the audience and the
//! requested identity, so that a request for another server or identity is useless here.

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
use crate::{error::TokenError, json, jws::MAX_TOKEN};

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

/// A signed request that was checked, except for its signature.
#[derive(Debug)]
struct SignedRequest {
    host: String,
    /// The partition of AWS that the host belongs to.
    partition: &'static str,
    date: Timestamp,
    audience: String,
    identity: String,
    /// The signed headers and the signature, to send to AWS.
    headers: HeaderMap,
}

impl Sts {
    /// Determines whether the caller that AWS identifies may assume the requested identity.
    pub(super) async fn prove_by_aws(&self, credential: &str, request: &Exchange) -> Result<Proof> {
        let signed = SignedRequest::parse(credential).map_err(|why| token_error(TokenError::Malformed(why)))?;
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
        if !["aws", "aws-us-gov"].contains(&signed.partition) && !is_named {
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
        let answer = self.issuers.send(organization, request, MAX_ANSWER).await.map_err(aws_error)?;
        match answer.status() {
            StatusCode::OK => caller_identity(answer.body()).ok_or_else(unavailable),
            StatusCode::TOO_MANY_REQUESTS => Err(unavailable()),
            status if status.is_client_error() && !is_throttled(answer.body()) => Err(not_authorized()),
            _ => Err(unavailable()),
        }
    }
}

impl SignedRequest {
    /// Parses a request and checks that nothing in it is ambiguous, that it can only be sent to AWS, and that the
    /// signature covers what matters. Returns the rule that it breaks.
    fn parse(credential: &str) -> Result<Self, &'static str> {
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
        let partition = partition(host).ok_or("the signed request must be for an endpoint of the STS of AWS")?;
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
            partition,
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

fn aws_error(error: TokenError) -> Error {
    match error {
        TokenError::Busy => Error::new(Code::ResourceExhausted, "Too many requests to AWS are in progress")
            .with(Detail::RetryInfo { millis: 1000 }),
        _ => unavailable(),
    }
}

/// Returns whether an answer says that AWS throttles the caller, which it does with status 400, too.
fn is_throttled(body: &[u8]) -> bool {
    const CODES: [&str; 6] = [
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestLimitExceeded",
        "TooManyRequestsException",
    ];
    let answer = json::object(body).unwrap_or_default();
    let code = answer.get("Error").and_then(|error| error.get("Code")).and_then(Value::as_str);
    code.is_some_and(|code| CODES.contains(&code))
}

/// Returns the partition of AWS whose STS has this host; `None` for any other host. Other names below `amazonaws.com`
/// belong to customers of AWS.
///
/// The hosts are the global endpoint, and those of regions: with `sts-fips` where AWS has them, and dual-stack ones. The
/// isolated partitions are left out, because their networks cannot be reached (our choice).
fn partition(host: &str) -> Option<&'static str> {
    /// The ends of the names, and the partition.
    const SUFFIXES: [(&str, &str); 6] = [
        (".amazonaws.com", "aws"),
        (".api.aws", "aws"),
        (".amazonaws.com.cn", "aws-cn"),
        (".api.amazonwebservices.com.cn", "aws-cn"),
        (".amazonaws.eu", "aws-eusc"),
        (".api.amazonwebservices.eu", "aws-eusc"),
    ];
    if host == "sts.amazonaws.com" {
        return Some("aws");
    }
    let regional = host.strip_prefix("sts.").or_else(|| host.strip_prefix("sts-fips."))?;
    SUFFIXES.into_iter().find_map(|(suffix, partition)| {
        // Such as eu-west-1 or us-gov-east-1: two letters (`eusc` in its partition), words, a number.
        let parts: Vec<&str> = regional.strip_suffix(suffix)?.split('-').collect();
        let is_word = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
        let [country, middle @ .., number] = parts.as_slice() else { return None };
        let is_region = is_word(country)
            && (1..=2).contains(&middle.len())
            && middle.iter().all(is_word)
            && number.len() == 1
            && number.bytes().all(|byte| byte.is_ascii_digit());
        match (partition, *country, middle.first()) {
            _ if !is_region => None,
            ("aws-cn", "cn", _) | ("aws-eusc", "eusc", _) => Some(partition),
            ("aws", "us", Some(&"gov")) => Some("aws-us-gov"),
            ("aws", country, _) if country.len() == 2 && country != "cn" => Some(partition),
            _ => None,
        }
    })
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
    fn only_the_endpoints_of_sts_are_accepted() {
        for (host, expected) in [
            ("sts.amazonaws.com", "aws"),
            ("sts.eu-west-1.amazonaws.com", "aws"),
            ("sts-fips.us-east-1.amazonaws.com", "aws"),
            ("sts.us-east-1.api.aws", "aws"),
            ("sts-fips.us-east-1.api.aws", "aws"),
            ("sts.us-gov-east-1.amazonaws.com", "aws-us-gov"),
            ("sts.us-gov-west-1.api.aws", "aws-us-gov"),
            ("sts.cn-north-1.amazonaws.com.cn", "aws-cn"),
            ("sts.cn-northwest-1.api.amazonwebservices.com.cn", "aws-cn"),
            ("sts.eusc-de-east-1.amazonaws.eu", "aws-eusc"),
            ("sts.eusc-de-east-1.api.amazonwebservices.eu", "aws-eusc"),
        ] {
            assert_eq!(partition(host), Some(expected), "{host}");
        }
        for host in [
            "",
            "amazonaws.com",
            "sts.amazonaws.com.evil.example",
            "sts.amazonaws.com:8443",
            "evil.example",
            "sts.s3.amazonaws.com",
            "sts.s3-website-eu-west-1.amazonaws.com",
            "sts.eu-west-1.s3.amazonaws.com",
            "x.sts.amazonaws.com",
            "sts.-1.amazonaws.com",
            "sts.eu-1.amazonaws.com",
            "sts.EU-west-1.amazonaws.com",
            "sts.eu-west-1.amazonaws.com.",
            "sts.eu-west-1/.amazonaws.com",
            "sts..amazonaws.com",
            "sts-fips.amazonaws.com",
            "sts.api.aws",
            "sts.amazonaws.com.cn",
            "sts.us-east-1.amazonaws.com.cn",
            "sts.cn-north-1.amazonaws.com",
            "sts.eu-west-1.amazonaws.eu",
            "sts.eusc-de-east-1.amazonaws.com",
            "sts.us-east-1.api.aws.evil.example",
            "sts.us-east-1.amazonaws.eu.evil",
            "sts.us-iso-east-1.c2s.ic.gov",
        ] {
            assert_eq!(partition(host), None, "{host}");
        }
    }

    #[test]
    fn throttling_is_told_from_other_errors_of_the_caller() {
        for (body, throttled) in [
            (r#"{"Error":{"Code":"Throttling","Message":"Rate exceeded","Type":"Sender"},"RequestId":"x"}"#, true),
            (r#"{"Error":{"Code":"ThrottlingException"}}"#, true),
            (r#"{"Error":{"Code":"SignatureDoesNotMatch"}}"#, false),
            (r#"{"Error":"Throttling"}"#, false),
            ("{}", false),
            ("", false),
        ] {
            assert_eq!(is_throttled(body.as_bytes()), throttled, "{body}");
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
