//! The Security Token Service of AWS: answers signed `GetCallerIdentity` requests for the principals that seeds declare.
//!
//! Signature Version 4 is computed here, over the HMAC and the digest of `aws-lc-rs`, which the tokens need anyway. The
//! crate `aws-sigv4` only signs, so that a verification would sign again, and it would bring 20 more crates into every
//! build of the server.

use std::{fmt, sync::Arc, time::Instant};

use aws_lc_rs::{
    digest::{self, SHA256},
    hmac,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header, request::Parts};
use parking_lot::RwLock;
use platform_engine::{
    access::Capabilities,
    clock::Clock,
    error::{Code, Error, Result},
    fields,
    kind::Field,
    seal::Secret,
    timestamp::Timestamp,
};
use serde_json::{Map, Value, json};

use crate::{
    clock::EmulatorClock,
    faults::Faults,
    input::text,
    requests::{LoggedRequest, RequestLog},
};

/// The name of the only method, in faults and in the log of requests.
pub(crate) const METHOD: &str = "Aws.GetCallerIdentity";

/// The name of the list of principals in a seed.
pub(crate) const PRINCIPALS: &str = "awsPrincipals";

const ALGORITHM: &str = "AWS4-HMAC-SHA256 ";
/// The time for which a signature is valid, and how far its time may be in the future.
const VALID_MILLIS: i64 = 15 * 60 * 1000;
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// A caller of AWS, with the key that signs its requests.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    access_key_id: String,
    secret_access_key: Secret,
    /// Empty for a key that does not expire.
    session_token: String,
    account: String,
    arn: String,
    user_id: String,
}

impl Principal {
    const FIELDS: &'static [Field] = &[
        Field::string("accessKeyId").required(),
        Field::string("secretAccessKey").required(),
        Field::string("sessionToken"),
        Field::string("account").required(),
        Field::string("arn").required(),
        Field::string("userId").required(),
    ];

    /// Reads a principal of a seed.
    pub(crate) fn read(object: Map<String, Value>) -> Result<Self> {
        let mut input = fields::read(Self::FIELDS, &Capabilities::default(), object, None);
        input.require(Self::FIELDS);
        let get = |name| text(&input, name).unwrap_or_default();
        let read = Self {
            access_key_id: get("accessKeyId"),
            secret_access_key: Secret::new(get("secretAccessKey")),
            session_token: get("sessionToken"),
            account: get("account"),
            arn: get("arn"),
            user_id: get("userId"),
        };
        input.checked()?;
        Ok(read)
    }
}

/// The service in one tenant.
pub(crate) struct Aws {
    principals: RwLock<Vec<Principal>>,
    clock: EmulatorClock,
    faults: Arc<Faults>,
    log: Arc<RequestLog>,
}

/// An error as AWS answers it.
struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    fn invalid_token() -> Self {
        let message = "There is no such access key with this session token: declare it in the awsPrincipals of a seed";
        Self::new(StatusCode::FORBIDDEN, "InvalidClientTokenId", message)
    }

    fn signature(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "SignatureDoesNotMatch", message)
    }

    /// Returns the error of AWS that corresponds to the error of a fault.
    fn injected(error: &Error) -> Self {
        let (status, code) = match error.code() {
            Code::ResourceExhausted => (StatusCode::BAD_REQUEST, "Throttling"),
            Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Code::Unauthenticated => (StatusCode::FORBIDDEN, "ExpiredToken"),
            Code::PermissionDenied => (StatusCode::FORBIDDEN, "AccessDenied"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "InternalFailure"),
        };
        Self::new(status, code, error.message())
    }
}

impl Aws {
    pub(crate) fn new(clock: EmulatorClock, faults: Arc<Faults>, log: Arc<RequestLog>) -> Self {
        Self { principals: RwLock::default(), clock, faults, log }
    }

    /// Adds principals, each in place of one with the same access key.
    pub(crate) fn declare(&self, principals: Vec<Principal>) {
        let mut declared = self.principals.write();
        for principal in principals {
            declared.retain(|other| other.access_key_id != principal.access_key_id);
            declared.push(principal);
        }
    }

    pub(crate) fn clear(&self) {
        self.principals.write().clear();
    }

    /// Returns whether a request is signed with a declared key.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        access_key(headers).is_some_and(|key| self.find(key).is_some())
    }

    fn find(&self, access_key: &str) -> Option<Principal> {
        self.principals.read().iter().find(|principal| principal.access_key_id == access_key).cloned()
    }

    /// Answers a signed request with its faults, and logs it.
    pub(crate) async fn answer(&self, head: &Parts, body: &[u8]) -> Response<Bytes> {
        let (started, fault) = (Instant::now(), self.faults.next(METHOD));
        if let Some(fault) = fault.as_ref().filter(|fault| !fault.delay.is_zero()) {
            tokio::time::sleep(fault.delay).await;
        }
        let found = match fault.as_ref().and_then(|fault| fault.error()) {
            Some(error) => Err(Refusal::injected(&error)),
            None => self.identify(head, body),
        };
        let response = respond(head, found.as_ref());
        self.log.add(LoggedRequest {
            time: self.clock.now(),
            protocol: "REST",
            method: Some(METHOD.to_owned()),
            http_method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: String::from_utf8_lossy(body).into_owned(),
            identity: found.ok().map(|principal| principal.arn),
            request_id: None,
            status: response.status().as_u16(),
            grpc_status: None,
            fault: fault.is_some(),
            micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        });
        response
    }

    /// Returns the principal that signed a request for `GetCallerIdentity`.
    fn identify(&self, head: &Parts, body: &[u8]) -> Result<Principal, Refusal> {
        let signature = Signature::of(&head.headers).ok_or_else(|| {
            let message =
                "The header Authorization must have Credential, SignedHeaders and Signature of version 4 for sts";
            Refusal::new(StatusCode::BAD_REQUEST, "IncompleteSignature", message)
        })?;
        let principal = self.find(signature.access_key).ok_or_else(Refusal::invalid_token)?;
        let header = |name: &str| header(head, body, name);
        if header("x-amz-security-token").unwrap_or_default() != principal.session_token {
            return Err(Refusal::invalid_token());
        }
        let date = header("x-amz-date").unwrap_or_default();
        let (day, now) = (signature.scope.split('/').next().unwrap_or_default(), self.clock.now());
        let at = time(&date).filter(|_| date.starts_with(day));
        let at = at.ok_or_else(|| Refusal::signature("X-Amz-Date must be the time of the signature"))?;
        if at.plus_millis(VALID_MILLIS) < now || at > now.plus_millis(VALID_MILLIS) {
            return Err(Refusal::signature("The signature has expired or is not valid yet"));
        }
        let missing = || Refusal::signature("The signature covers a header that the request does not have");
        let canonical = canonical_request(head, body, &signature).ok_or_else(missing)?;
        let signed = [ALGORITHM.trim_end(), &date, signature.scope, &hash(canonical.as_bytes())].join("\n");
        let key = signing_key(principal.secret_access_key.expose(), signature.scope);
        if hmac::verify(&key, signed.as_bytes(), &signature.value).is_err() {
            return Err(Refusal::signature("The signature is not that of the declared key for this request"));
        }
        let parameters = [head.uri.query().unwrap_or_default().as_bytes(), body];
        let has = |name: &str, value: &str| {
            let mut pairs = parameters.into_iter().flat_map(form_urlencoded::parse);
            pairs.any(|(found, text)| found == name && text == value)
        };
        if has("Action", "GetCallerIdentity") && has("Version", "2011-06-15") {
            Ok(principal)
        } else {
            let message = "Only the Action GetCallerIdentity of Version 2011-06-15 is emulated";
            Err(Refusal::new(StatusCode::BAD_REQUEST, "InvalidAction", message))
        }
    }
}

/// Returns whether a request is signed for AWS. No other request to the emulator has such a header.
pub(crate) fn is_for<B>(request: &Request<B>) -> bool {
    let signed = request.headers().get(header::AUTHORIZATION);
    request.uri().path() == "/"
        && [Method::GET, Method::POST].contains(request.method())
        && signed.is_some_and(|value| value.as_bytes().starts_with(ALGORITHM.as_bytes()))
}

/// Returns the id of the access key that signed a request.
pub(crate) fn access_key(headers: &HeaderMap) -> Option<&str> {
    Signature::of(headers).map(|signature| signature.access_key)
}

/// The header `Authorization` of a signed request.
struct Signature<'h> {
    access_key: &'h str,
    /// The day, the region, the service and the word `aws4_request`.
    scope: &'h str,
    signed_headers: &'h str,
    value: Vec<u8>,
}

impl<'h> Signature<'h> {
    fn of(headers: &'h HeaderMap) -> Option<Self> {
        let parameters = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix(ALGORITHM)?;
        let get = |name: &str| {
            let mut all = parameters.split(',').filter_map(|one| one.trim().split_once('='));
            all.find_map(|(found, value)| (found == name).then_some(value))
        };
        let (access_key, scope) = get("Credential")?.split_once('/')?;
        let is_for_sts = scope.ends_with("/sts/aws4_request") && scope.split('/').count() == 4;
        let value = hex::decode(get("Signature")?).ok().filter(|_| is_for_sts)?;
        Some(Self { access_key, scope, signed_headers: get("SignedHeaders")?, value })
    }
}

/// Returns a header of a request. Clients of HTTP write these two only when they send it.
fn header(head: &Parts, body: &[u8], name: &str) -> Option<String> {
    let values: Vec<_> = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    match name {
        _ if !values.is_empty() => Some(values.join(",")),
        "host" => head.uri.authority().map(ToString::to_string),
        "content-length" => Some(body.len().to_string()),
        _ => None,
    }
}

/// Returns the canonical form of a request; `None` if it lacks a signed header.
fn canonical_request(head: &Parts, body: &[u8], signature: &Signature<'_>) -> Option<String> {
    let mut query: Vec<&str> = head.uri.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let mut lines = String::new();
    for name in signature.signed_headers.split(';') {
        let value = header(head, body, name)?;
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        lines.push_str(&format!("{name}:{}\n", words.join(" ")));
    }
    let parts =
        [head.method.as_str(), head.uri.path(), &query.join("&"), &lines, signature.signed_headers, &hash(body)];
    Some(parts.join("\n"))
}

fn hash(data: &[u8]) -> String {
    hex::encode(digest::digest(&SHA256, data))
}

/// Derives the key that signs requests of a day, a region and a service.
fn signing_key(secret: &str, scope: &str) -> hmac::Key {
    let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
    scope.split('/').fold(first, |key, part| {
        let tag = hmac::sign(&key, part.as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
    })
}

/// Parses a time such as `20270115T080000Z`.
fn time(text: &str) -> Option<Timestamp> {
    let part = |from: usize, to: usize| text.get(from..to);
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
    let time = Timestamp::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok();
    time.filter(|_| text.len() == 16 && part(8, 9) == Some("T") && text.ends_with('Z'))
}

/// Returns the answer in JSON if the request asks for it, and in XML otherwise, as AWS does.
fn respond(head: &Parts, found: Result<&Principal, &Refusal>) -> Response<Bytes> {
    let is_json = head.headers.get(header::ACCEPT).is_some_and(|accept| accept == "application/json");
    let id = "00000000-0000-0000-0000-000000000000";
    let (status, body) = match (found, is_json) {
        (Ok(Principal { account, arn, user_id, .. }), true) => {
            let result = json!({ "Account": account, "Arn": arn, "UserId": user_id });
            let reply = json!({ "GetCallerIdentityResult": result, "ResponseMetadata": { "RequestId": id } });
            (StatusCode::OK, json!({ "GetCallerIdentityResponse": reply }).to_string())
        }
        (Ok(Principal { account, arn, user_id, .. }), false) => {
            let [account, arn, user_id] = [account, arn, user_id].map(|text| escaped(text));
            let result = format!(
                "<GetCallerIdentityResponse xmlns=\"{NAMESPACE}\"><GetCallerIdentityResult><Arn>{arn}</Arn><UserId>{user_id}\
                 </UserId><Account>{account}</Account></GetCallerIdentityResult><ResponseMetadata><RequestId>{id}</RequestId>\
                 </ResponseMetadata></GetCallerIdentityResponse>"
            );
            (StatusCode::OK, result)
        }
        (Err(Refusal { status, code, message }), _) => {
            let of = if status.is_server_error() { "Receiver" } else { "Sender" };
            let body = if is_json {
                json!({ "Error": { "Code": code, "Message": message, "Type": of }, "RequestId": id }).to_string()
            } else {
                let message = escaped(message);
                format!(
                    "<ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{of}</Type><Code>{code}</Code><Message>{message}\
                     </Message></Error><RequestId>{id}</RequestId></ErrorResponse>"
                )
            };
            (*status, body)
        }
    };
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let form = if is_json { "application/json" } else { "text/xml" };
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(form));
    response
}

/// Returns a text as the contents of an XML element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl fmt::Debug for Aws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aws").field("principals", &self.principals.read().len()).finish_non_exhaustive()
    }
}
