//! Reads the parts of a request: token, path variables, query and body.

use std::{
    borrow::Cow,
    pin::{Pin, pin},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use heck::ToSnakeCase;
use http::{
    HeaderMap, HeaderValue, Method,
    header::{AUTHORIZATION, EXPECT, HOST, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE},
    request::Parts,
};
use http_body::Body;
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use platform_engine::{
    access::{Authenticator, Caller},
    aip::read_mask,
    error::{Error, Result, Violations},
    etag::Tags,
    idempotency::{HEADER, IdempotencyKey},
    json,
    offload::SLICE,
    options::{Preconditions, RequestOptions},
    platform::Platform,
    request_scope::RequestScope,
};
use serde_json::{Map, Value};

use crate::{
    BoxError,
    limits::{
        Limits,
        admission::{Origin, OverBudget},
    },
    reply::Refusal,
};

/// Returns the path and the query of a request, percent-encoded. [`Rest`](crate::Rest) calls this for its mounts.
///
/// # Errors
/// INVALID_ARGUMENT with status 414 when one of them is longer than [`Limits::path`] or [`Limits::query`], and with
/// status 400 for two Host headers, because an intermediary may have used either.
pub fn target<'h>(head: &'h Parts, limits: &Limits) -> Result<(&'h str, &'h str), Refusal> {
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    if path.len() > limits.path {
        return Err(Refusal::too_long("path", limits.path));
    }
    if query.len() > limits.query {
        return Err(Refusal::too_long("query", limits.query));
    }
    if head.headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(Error::invalid_field("host", "is specified more than once").into());
    }
    Ok((path, query))
}

/// Rejects a body that is too large before it is sent, if the client waits for `100 Continue`. The body of a client
/// that does not wait is read first, see [`read_body`]: closing the connection while the client still sends would lose
/// the response.
///
/// # Errors
/// INVALID_ARGUMENT (413) for a body whose announced length exceeds the limit.
pub(crate) fn check_expect(head: &Parts, body: &impl Body, limits: &Limits) -> Result<(), Refusal> {
    if head.headers.contains_key(EXPECT) && body.size_hint().lower() > limits.body as u64 {
        Err(Refusal::too_large(limits.body))
    } else {
        Ok(())
    }
}

/// Number of bytes of a rejected body after which reading and discarding it ends, and the maximum time for that.
const DRAIN_BYTES: usize = 64 << 10;
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// Reads and discards the rest of a body that was rejected unread, if it is small, so that the connection can be used
/// for the next request. Returns whether the end of the body was reached.
pub(crate) async fn drain<B: Body>(head: &Parts, mut body: Pin<&mut B>) -> bool {
    if body.is_end_stream() {
        return true;
    }
    // A client that waits for `100 Continue` has not sent the body.
    if head.headers.contains_key(EXPECT) {
        return false;
    }
    let drained = async {
        let mut read = 0;
        while read <= DRAIN_BYTES {
            match body.frame().await {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(frame)) => read += frame.data_ref().map_or(0, Buf::remaining),
            }
        }
        false
    };
    tokio::time::timeout(DRAIN_TIME, drained).await.unwrap_or(false)
}

/// Returns the bearer token, if any. A header value without a scheme counts as a token, because clients send the
/// contents of token files unchanged (`docs/api.md`, Tokens).
///
/// # Errors
/// UNAUTHENTICATED for other schemes, and for two Authorization headers, because an intermediary may have used either.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Error::unauthenticated("The request has more than one Authorization header"));
    }
    let none = || Error::unauthenticated("The Authorization header has no bearer token");
    let value = value.to_str().map_err(|_| none())?.trim();
    let token = match value.split_once(' ') {
        None => value,
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_start(),
        Some(_) => return Err(none()),
    };
    if token.is_empty() || token.eq_ignore_ascii_case("bearer") || token.contains(' ') {
        Err(none())
    } else {
        Ok(Some(token))
    }
}

/// Authenticates a request and returns its caller, who must be an operator of the installation. The token is verified
/// in the same way as for the kinds; a deleted identity is rejected. A write of an operator is carried to its end, even if
/// its client goes away.
///
/// # Errors
/// UNAUTHENTICATED as [`bearer`], without a token, and for an invalid one; PERMISSION_DENIED for any other caller and
/// for a narrowed token; RESOURCE_EXHAUSTED as [`Origin::admit`] and, without a valid token, as [`Origin::open`].
pub async fn operator(platform: &Platform, authenticator: &dyn Authenticator, head: &Parts) -> Result<Caller> {
    let origin = Origin::known(&head.extensions);
    if let Some(origin) = &origin {
        origin.admit()?;
    }
    let needed = Error::missing_token;
    let authenticated = match bearer(&head.headers).and_then(|token| token.ok_or_else(needed)) {
        Ok(token) => authenticator.authenticate(token).await,
        Err(error) => Err(error),
    };
    let caller = authenticated.map_err(|error| match origin {
        Some(origin) => origin.refused(error),
        None => error,
    })?;
    platform.demand_operator(&caller).await?;
    // An operator's endpoint may change files and settings, which no commit announces.
    if is_write(&head.method) {
        RequestScope::begin_change();
    }
    Ok(caller)
}

/// Rejects preconditions of a write, for endpoints that do not check them: a client that sends one must not believe that
/// it was checked. `If-Match: *` is accepted: it requires that the resource exists, which a write requires anyway. GET,
/// HEAD and OPTIONS may have any.
///
/// # Errors
/// FAILED_PRECONDITION with status 412.
pub fn reject_preconditions(head: &Parts) -> Result<(), Refusal> {
    if !is_write(&head.method) {
        return Ok(());
    }
    let values = |name: HeaderName| head.headers.get_all(name).iter();
    // If-Unmodified-Since applies only without If-Match (RFC 9110, 13.1.4).
    if head.headers.contains_key(IF_MATCH) {
        return if values(IF_MATCH).all(|value| value.as_bytes().trim_ascii() == b"*") {
            Ok(())
        } else {
            Err(Error::unchecked_condition("If-Match").into())
        };
    }
    let others = [(IF_UNMODIFIED_SINCE, "If-Unmodified-Since"), (IF_NONE_MATCH, "If-None-Match")];
    match others.into_iter().find(|(name, _)| head.headers.contains_key(name)) {
        Some((_, name)) => Err(Error::unchecked_condition(name).into()),
        None => Ok(()),
    }
}

/// Returns the options of a request to a method of a kind: its preconditions, and of a write the idempotency key and
/// whether it is a preview, which is taken out of the parameters.
///
/// # Errors
/// As [`preconditions`] and [`idempotency_key`]; INVALID_ARGUMENT on `validateOnly` that is neither true nor false; FAILED_PRECONDITION for `If-Unmodified-Since` on a write, which no method checks, as a resource
/// may change several times in the second that it can name.
pub(crate) fn options(head: &Parts, parameters: &mut Vec<(String, String)>) -> Result<RequestOptions> {
    // It applies only without If-Match (RFC 9110, 13.1.4).
    let has = |name: HeaderName| head.headers.contains_key(name);
    if is_write(&head.method) && has(IF_UNMODIFIED_SINCE) && !has(IF_MATCH) {
        return Err(Error::unchecked_condition("If-Unmodified-Since"));
    }
    let is_preview = |(name, _): &mut (String, String)| matches!(name.as_str(), "validateOnly" | "validate_only");
    let mut validate_only = None;
    if is_write(&head.method) {
        for (_, value) in parameters.extract_if(.., is_preview) {
            if validate_only.replace(boolean("validateOnly", &value)?).is_some() {
                return Err(Error::invalid_field("validateOnly", "is specified more than once"));
            }
        }
    }
    let key = if is_write(&head.method) { idempotency_key(&head.headers)? } else { None };
    let options = RequestOptions::default().preconditions(preconditions(&head.headers)?).idempotency_key(key);
    Ok(options.validate_only(validate_only.unwrap_or_default()))
}

fn boolean(name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| Error::invalid_field(name, "must be true or false"))
}

/// Returns whether a gRPC call is a preview, by its metadata `x-validate-only`, which is `validateOnly` over REST.
///
/// # Errors
/// INVALID_ARGUMENT on metadata that is neither `true` nor `false`, or present twice.
pub fn validate_only(headers: &HeaderMap) -> Result<bool> {
    const NAME: &str = "x-validate-only";
    only(headers, NAME)?.map_or(Ok(false), |value| boolean(NAME, value.to_str().unwrap_or_default()))
}

/// Returns the value of a header that may be present once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() { Err(Error::invalid_field(name, "is specified more than once")) } else { Ok(value) }
}

/// Returns the idempotency key in the header of a request, or in the metadata of a gRPC call, which has the same name.
///
/// # Errors
/// INVALID_ARGUMENT on a key that breaks a rule ([`IdempotencyKey::parse`]), or is present twice.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>> {
    let parse = |value: &HeaderValue| IdempotencyKey::parse(value.as_bytes());
    only(headers, HEADER)?.map(parse).transpose().map_err(|rule| Error::invalid_field(HEADER, rule))
}

/// Returns the preconditions in the headers of a request, or in the metadata of a gRPC call, which have the same names.
///
/// # Errors
/// INVALID_ARGUMENT on a header that is neither `*` nor a list of entity tags.
pub fn preconditions(headers: &HeaderMap) -> Result<Preconditions> {
    Ok(Preconditions { if_match: tags(headers, &IF_MATCH)?, if_none_match: tags(headers, &IF_NONE_MATCH)? })
}

/// Returns the entity tags in a header.
pub(crate) fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let Some(first) = lines.next() else { return Ok(None) };
    // Several lines are one list (RFC 9110, 5.3).
    let joined = lines.fold(Cow::Borrowed(first), |joined, line| [&joined, &b","[..], line].concat().into());
    Tags::parse(&joined).map(Some).map_err(|rule| Error::invalid_field(name.as_str(), rule))
}

/// Returns the value of the Allow header for these methods of a path.
pub(crate) fn allow<'m>(methods: impl Iterator<Item = &'m Method>) -> String {
    let mut names: Vec<_> = methods.map(Method::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    names.join(", ")
}

fn is_write(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// Percent-decodes a path variable, once.
///
/// # Errors
/// INVALID_ARGUMENT, with a violation of this name, for an invalid percent sign or bytes that are not UTF-8.
pub fn variable(name: &str, raw: &str) -> Result<String> {
    let decoded = decode(raw, false).map_err(|rule| Error::invalid_field(name, rule))?;
    Ok(decoded.into_owned())
}

/// Decodes a query string or a form into its names and values, in order. Both `%20` and `+` are a space; a name without
/// `=` has an empty value.
///
/// # Errors
/// INVALID_ARGUMENT with all violations, as [`variable`].
pub fn pairs(query: &str) -> Result<Vec<(String, String)>> {
    let mut violations = Violations::default();
    let mut pairs = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match (decode(key, true), decode(value, true)) {
            (Ok(key), Ok(value)) => pairs.push((key.into_owned(), value.into_owned())),
            (Err(rule), _) => violations.add("query", rule),
            (Ok(key), Err(rule)) => violations.add(key, rule),
        }
    }
    violations.none_or(pairs)
}

/// Rejects all parameters, for a method that has none.
///
/// # Errors
/// INVALID_ARGUMENT with a violation for each parameter, and as [`pairs`].
pub fn reject_parameters(query: &str) -> Result<()> {
    if query.is_empty() { Ok(()) } else { reject_pairs(pairs(query)?) }
}

/// Rejects these parameters, as [`reject_parameters`] does.
pub(crate) fn reject_pairs(pairs: Vec<(String, String)>) -> Result<()> {
    let mut violations = Violations::default();
    for (key, _) in pairs {
        violations.add(key, "unknown parameter");
    }
    violations.none_or(())
}

/// The parameter of the fields that an update sets, in camelCase and in snake_case, and its name in violations.
pub(crate) const UPDATE_MASK: ([&str; 2], &str) = (["updateMask", "update_mask"], "update_mask");

/// The parameter of the fields that a get shows.
pub(crate) const READ_MASK: ([&str; 2], &str) = (["readMask", "read_mask"], read_mask::NAME);

/// Returns a mask, the only parameter that a method has. An empty mask is the same as none.
pub(crate) fn mask((names, field): ([&str; 2], &str), pairs: Vec<(String, String)>) -> Result<Option<String>> {
    Ok(only_parameter(&names, field, pairs)?.filter(|mask| !mask.trim().is_empty()))
}

/// Returns the value of the only parameter that an endpoint has, if the query has it.
///
/// # Errors
/// INVALID_ARGUMENT with a violation for each other parameter and for a second value, and as [`pairs`].
pub fn parameter(name: &str, query: &str) -> Result<Option<String>> {
    only_parameter(&[name], name, pairs(query)?)
}

/// Returns the value of a parameter by one of its names. `field` is its name in violations.
fn only_parameter(names: &[&str], field: &str, pairs: Vec<(String, String)>) -> Result<Option<String>> {
    let mut violations = Violations::default();
    let mut found = None;
    for (key, value) in pairs {
        match (names.contains(&key.as_str()), &found) {
            (true, None) => found = Some(value),
            (true, Some(_)) => violations.add(field, "is specified more than once"),
            (false, _) => violations.add(key, "unknown parameter"),
        }
    }
    violations.none_or(found)
}

/// Adds a path variable to the request message of an action.
///
/// # Errors
/// INVALID_ARGUMENT when the message has another value for it, in either spelling.
pub(crate) fn bind(request: &mut Map<String, Value>, name: &str, value: String) -> Result<()> {
    match request.get(name).or_else(|| request.get(&name.to_snake_case())) {
        None => {
            request.insert(name.to_owned(), value.into());
            Ok(())
        }
        Some(Value::String(sent)) if *sent == value => Ok(()),
        Some(_) => Err(Error::invalid_field(name, "must match the value in the path")),
    }
}

/// Sets the field of a request that is the body.
///
/// # Errors
/// INVALID_ARGUMENT when the query has a value for it, too.
pub(crate) fn bind_body(request: &mut Map<String, Value>, name: &str, body: Value) -> Result<()> {
    match request.insert(name.to_owned(), body) {
        None => Ok(()),
        Some(_) => Err(Error::invalid_field(name, "is the body, and not a parameter")),
    }
}

/// Reads a body as a JSON object of at most [`Limits::depth`] levels, regardless of its Content-Type. An empty body is
/// an empty object.
///
/// # Errors
/// As [`bytes()`], and INVALID_ARGUMENT when it is not such an object or has a key twice.
pub async fn object<B>(body: B, limits: &Limits) -> Result<Map<String, Value>, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let bytes = bytes(body, limits).await?;
    if bytes.is_empty() { Ok(Map::new()) } else { Ok(json::read_object(&bytes, limits.depth)?) }
}

/// Reads a body as a JSON value, as [`object`] does. An empty body is null.
///
/// # Errors
/// As [`object`], for a value of any type.
pub(crate) async fn value<B>(body: B, limits: &Limits) -> Result<Value, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let bytes = bytes(body, limits).await?;
    if bytes.is_empty() { Ok(Value::Null) } else { Ok(json::read_value(&bytes, limits.depth)?) }
}

/// Reads a body of at most [`Limits::body`] bytes, which must arrive within [`Limits::body_time`].
///
/// # Errors
/// INVALID_ARGUMENT when it is larger (status 413) or incomplete; DEADLINE_EXCEEDED with status 408 when it arrives too
/// slowly; RESOURCE_EXHAUSTED when it is metered and exceeds a budget.
pub async fn bytes<B>(body: B, limits: &Limits) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let bytes = read_body(body, limits.body, limits.body_time).await.map_err(|error| match error {
        ReadError::TooLarge => Refusal::too_large(limits.body),
        ReadError::TooSlow => Refusal::slow_body(),
        ReadError::OverBudget => Error::from(OverBudget).into(),
        ReadError::Broken(error) => Error::invalid_field("body", "is incomplete").because(error).into(),
    })?;
    if bytes.len() > SLICE {
        // Receiving the body has taken as long as a slice of work, and its caller is about to parse it.
        tokio::task::yield_now().await;
    }
    Ok(bytes)
}

/// Error of reading a body.
///
/// Exhaustive, because each transport must report every case.
#[derive(Debug)]
pub enum ReadError {
    /// The body is too large.
    TooLarge,
    /// The body took too long to arrive.
    TooSlow,
    /// The body is metered and exceeded a budget.
    OverBudget,
    /// The body ended too early.
    Broken(BoxError),
}

/// Reads a body of at most `most` bytes that must arrive within `time`.
///
/// # Errors
/// When the body is too large, too slow, incomplete or over budget.
pub async fn read_body<B>(body: B, most: usize, time: Duration) -> Result<Bytes, ReadError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    tokio::time::timeout(time, collect(body, most)).await.unwrap_or(Err(ReadError::TooSlow))
}

/// Reads a body of at most `most` bytes.
///
/// If the body is larger, up to as many bytes again are read and discarded, so that a client that is slightly over the
/// limit finishes sending and reads the response instead of a connection reset.
async fn collect<B>(body: B, most: usize) -> Result<Bytes, ReadError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut rest = BytesMut::new();
    let (mut first, mut length) = (Bytes::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.into().downcast::<OverBudget>() {
            Ok(_) => ReadError::OverBudget,
            Err(error) => ReadError::Broken(error),
        })?;
        let Ok(mut data) = frame.into_data() else { continue };
        length = length.saturating_add(data.remaining());
        if length > most.saturating_mul(2) {
            break;
        }
        if length > most {
            continue;
        }
        let size = data.remaining();
        // A body in a single frame, the common case, is returned without copying it.
        if first.is_empty() {
            first = data.copy_to_bytes(size);
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data.copy_to_bytes(size));
        }
    }
    match length > most {
        true => Err(ReadError::TooLarge),
        false if rest.is_empty() => Ok(first),
        false => Ok(rest.freeze()),
    }
}

/// Percent-decodes a text once. Returns the violated rule for invalid input, which the library would accept.
fn decode(raw: &str, plus_is_space: bool) -> Result<Cow<'_, str>, &'static str> {
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !raw.split('%').skip(1).all(is_escape) {
        return Err("has a percent sign that is not followed by two hexadecimal digits");
    }
    let decoded = if plus_is_space && raw.contains('+') {
        percent_decode_str(&raw.replace('+', " ")).decode_utf8().map(|text| text.into_owned().into())
    } else {
        percent_decode_str(raw).decode_utf8()
    };
    decoded.map_err(|_| "is not valid UTF-8")
}

#[cfg(test)]
mod tests;
