//! Renders responses. Stored resources are spliced into bodies as they are, without being parsed.

use std::{
    error::Error as _,
    fmt::Write as _,
    io::Write as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Version,
    header::{
        ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, VARY,
        WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use mediatype::{MediaTypeList, ReadParams, names};
use platform_engine::{
    BoxFuture,
    error::{Code, Detail, Error, Result, Status},
    idempotency::REPLAYED,
    options::Preconditions,
    platform::{ListReply, Rendered, Reply as Resource},
};
use serde_json::Value;

use crate::{BoxError, limits::admission::ReplyBytes, request, status};

/// Responses up to this size in bytes are not counted before they are sent. Our choice.
const UNCOUNTED: usize = 1 << 10;

/// Response of this crate's services.
pub type Reply = Response<ReplyBody>;

/// The body of a [`Reply`].
#[derive(Debug)]
pub enum ReplyBody {
    /// Completely in memory.
    Whole(Full<Bytes>),
    /// Produced while it is sent. An error aborts the response, so that clients do not take it for complete.
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Default for ReplyBody {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.len() <= SLICE {
            Self::Whole(Full::new(bytes))
        } else {
            Self::Stream(BodyExt::boxed_unsync(Slices { rest: bytes, pause: None }))
        }
    }
}

/// The number of bytes that are handed over between two pauses: to copy them into a socket takes less than 0.1 ms. Our
/// choice.
const SLICE: usize = 256 << 10;

/// A long body in memory, with pauses: a client that reads fast could otherwise keep a thread of the server busy.
struct Slices {
    rest: Bytes,
    pause: Option<BoxFuture<'static, ()>>,
}

impl Body for Slices {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let length = self.rest.len().min(SLICE);
        if length == 0 {
            return Poll::Ready(None);
        }
        self.pause = (length < self.rest.len()).then(|| Box::pin(tokio::task::yield_now()) as BoxFuture<'_, ()>);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

/// Returns a JSON response with status 200. The body must be JSON; it is not checked.
pub fn json(body: impl Into<Bytes>) -> Reply {
    let mut reply = Reply::new(ReplyBody::from(body.into()));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Bodies contain text from users, which browsers must not interpret as HTML.
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// Returns the result of an action as JSON.
pub(crate) fn value(value: &Value) -> Result<Reply> {
    serde_json::to_vec(value).map(json).map_err(Error::internal)
}

/// Returns a cached body, or 304 if the client already has it (RFC 9110, 13.1.2).
///
/// # Errors
/// INVALID_ARGUMENT for a malformed `If-None-Match`.
pub(crate) fn rendered(rendered: Rendered, request: &HeaderMap) -> Result<Reply> {
    let known = request::tags(request, &IF_NONE_MATCH)?;
    let known = known.and_then(|tags| tags.find(&rendered.etag));
    let mut reply = if known.is_some() { unmodified() } else { json(rendered.body) };
    if let Ok(etag) = HeaderValue::from_str(known.as_deref().unwrap_or(&rendered.etag)) {
        reply.headers_mut().insert(ETAG, etag);
        reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    Ok(reply)
}

/// Returns a resource that was read, or 304 if the client already has this representation. A cache of the client asks
/// again each time, so that it never shows what was before the client's own write (`docs/api.md`, Conditional requests).
pub(crate) fn read(resource: Resource, preconditions: &Preconditions) -> Reply {
    let etag = resource.tag.map(|tag| tag.to_string());
    let known = preconditions.if_none_match.as_ref().zip(etag.as_deref()).and_then(|(tags, etag)| tags.find(etag));
    let mut reply = if known.is_some() { unmodified() } else { json(resource.body) };
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    // A compressed representation has a tag of its own, which a cache must not give to a client without the coding.
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    insert_etag(&mut reply, known.or(etag));
    reply
}

/// Returns a resource that was written.
pub(crate) fn written(resource: Resource) -> Reply {
    let mut reply = json(resource.body);
    insert_etag(&mut reply, resource.tag.map(|tag| tag.to_string()));
    replayed(reply, resource.is_replayed)
}

/// Marks a reply as that of an earlier request with the same idempotency key, if it is one.
pub(crate) fn replayed(mut reply: Reply, is_replayed: bool) -> Reply {
    if is_replayed {
        reply.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    reply
}

fn insert_etag(reply: &mut Reply, etag: Option<String>) {
    if let Some(Ok(etag)) = etag.map(HeaderValue::try_from) {
        reply.headers_mut().insert(ETAG, etag);
    }
}

fn unmodified() -> Reply {
    let mut reply = empty();
    *reply.status_mut() = StatusCode::NOT_MODIFIED;
    reply
}

/// Returns a response without a body.
pub(crate) fn empty() -> Reply {
    Reply::default()
}

/// Returns the response to a delete, by the Accept header of its request: `{}` for clients that accept JSON, because
/// generated clients parse it, and no body for all others (`docs/api.md`, Deletes).
pub fn deleted(request: &HeaderMap) -> Reply {
    let mut reply = if asks_for_json(request) { json("{}") } else { empty() };
    reply.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    reply
}

/// Returns whether the Accept header lists `application/json`, or else `application/*`, with a weight above 0. `*/*`
/// does not count, because command line tools and HTTP libraries send it by default.
fn asks_for_json(request: &HeaderMap) -> bool {
    let values = request.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut exact, mut range) = (None, None);
    for listed in values.flat_map(MediaTypeList::new).filter_map(Result::ok) {
        let weight = listed.get_param(names::Q).map_or("1", |weight| weight.as_str());
        let wanted = weight.parse::<f32>().is_ok_and(|weight| weight > 0.0);
        let weighted = match (listed.ty.as_str(), listed.subty.as_str()) {
            (ty, "*") if ty.eq_ignore_ascii_case("application") => &mut range,
            (ty, subty) if ty.eq_ignore_ascii_case("application") && subty.eq_ignore_ascii_case("json") => &mut exact,
            _ => continue,
        };
        *weighted = Some(weighted.unwrap_or_default() || wanted);
    }
    exact.or(range).unwrap_or_default()
}

/// Returns the response to OPTIONS, with the methods of a path.
pub(crate) fn options(allow: &str) -> Reply {
    let mut reply = empty();
    set_allow(&mut reply, allow);
    reply
}

/// Returns a page of a list: an array under the kind's plural, the next page token if there is a next page, the total
/// as a string (proto3 JSON for 64-bit integers), and the number of skipped resources. Pauses while it copies a long page.
pub(crate) async fn list(plural: &str, page: &ListReply) -> Reply {
    let token = page.next_page_token.as_deref().unwrap_or_default();
    let mut body = array(plural, &page.items, token.len() + 112).await;
    // Tokens are base64, so they need no escaping.
    let token = if token.is_empty() { String::new() } else { format!("\"nextPageToken\":\"{token}\",") };
    let (total, skipped) = (page.total_count, page.skipped);
    // Writing into a vector does not fail.
    let _ = write!(body, ",{token}\"totalCount\":\"{total}\",\"skipped\":{skipped}}}");
    json(body)
}

/// Returns resources as an array under the kind's plural.
pub(crate) async fn items(plural: &str, items: &[Bytes]) -> Reply {
    let mut body = array(plural, items, 1).await;
    body.push(b'}');
    json(body)
}

/// Returns the beginning of an object, with resources as an array under the kind's plural, and capacity for this many
/// bytes more. Pauses while it copies many.
async fn array(plural: &str, items: &[Bytes], more: usize) -> Vec<u8> {
    let bodies: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut body = Vec::with_capacity(bodies + plural.len() + more + 6);
    body.extend_from_slice(b"{\"");
    body.extend_from_slice(plural.as_bytes());
    body.extend_from_slice(b"\":[");
    let mut pause_at = SLICE;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(item);
        if body.len() >= pause_at {
            pause_at = body.len() + SLICE;
            tokio::task::yield_now().await;
        }
    }
    body.push(b']');
    body
}

/// Returns the length of a response's body in bytes; 0 for a stream.
pub(crate) fn length(reply: &Reply) -> usize {
    let length = reply.body().size_hint().exact().unwrap_or_default();
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Records the size of a response's body in its extensions, for the case that another layer replaces the body by one of
/// unknown size.
pub(crate) fn record_length(reply: &mut Reply) {
    let length = length(reply);
    if length > UNCOUNTED {
        reply.extensions_mut().insert(ReplyBytes(length));
    }
}

/// Turns a response into one to HEAD: the same headers and length, but no body.
pub(crate) fn without_body(reply: Reply) -> Reply {
    let (mut head, body) = reply.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    Reply::from_parts(head, ReplyBody::default())
}

/// Announces that the connection closes after this response, if the HTTP version of the request has a header for that.
/// For services that do not read the rest of a body; [`Rest`](crate::Rest) does it for its mounts.
pub fn close<B>(version: Version, reply: &mut Response<B>) {
    if version < Version::HTTP_2 {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Rejection of a request: an error, and an HTTP status that can be more specific than that of the error's code.
#[derive(Debug)]
pub struct Refusal {
    error: Error,
    status: StatusCode,
    allow: Option<String>,
    /// The value of `error` in OAuth 2.0.
    oauth: Option<&'static str>,
}

impl From<Error> for Refusal {
    /// The status is that of the code, and 412 for a precondition of the request (RFC 9110, 13.1).
    fn from(error: Error) -> Self {
        let is_condition = error.is_of_condition();
        let status = if is_condition { StatusCode::PRECONDITION_FAILED } else { status::of(error.code()) };
        Self { status, error, allow: None, oauth: None }
    }
}

impl Refusal {
    fn new(code: Code, status: StatusCode, message: impl Into<String>) -> Self {
        Self { error: Error::new(code, message), status, allow: None, oauth: None }
    }

    /// Returns NOT_FOUND with status 404 for an unknown path.
    pub fn no_path() -> Self {
        Self::new(Code::NotFound, StatusCode::NOT_FOUND, "Path not found")
    }

    /// Returns UNIMPLEMENTED with status 405 for a method that a path does not have. `allow` is the value of the Allow
    /// header.
    pub fn other_methods(allow: String) -> Self {
        let message = "This path does not support this method";
        let refusal = Self::new(Code::Unimplemented, StatusCode::METHOD_NOT_ALLOWED, message);
        Self { allow: Some(allow), ..refusal }
    }

    /// Returns an error with status 410: what the request names existed, and never will again.
    pub(crate) fn gone(error: Error) -> Self {
        Self { status: StatusCode::GONE, ..error.into() }
    }

    /// Returns 413 for a body. The code is INVALID_ARGUMENT, because clients retry after RESOURCE_EXHAUSTED, and a
    /// retry would be rejected as well.
    pub(crate) fn too_large(most: usize) -> Self {
        let error = Error::invalid_field("body", format!("is larger than {most} bytes"));
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..error.into() }
    }

    /// Returns 414 for a path or query.
    pub(crate) fn too_long(field: &str, most: usize) -> Self {
        let error = Error::invalid_field(field, format!("is longer than {most} bytes"));
        Self { status: StatusCode::URI_TOO_LONG, ..error.into() }
    }

    /// Returns DEADLINE_EXCEEDED with status 504 and this message for a request that takes too long.
    pub fn deadline(message: &str) -> Self {
        Error::new(Code::DeadlineExceeded, message).into()
    }

    /// Returns 408 for a body that does not arrive in time.
    pub(crate) fn slow_body() -> Self {
        Self::new(Code::DeadlineExceeded, StatusCode::REQUEST_TIMEOUT, "The body took too long to arrive")
    }

    pub(crate) fn code(&self) -> Code {
        self.error.code()
    }

    /// Returns the error.
    pub const fn error(&self) -> &Error {
        &self.error
    }

    /// Renames the fields of the violations, as [`Error::rename_fields`] does.
    #[must_use]
    pub fn rename_fields(self, rename: impl Fn(&str) -> String) -> Self {
        Self { error: self.error.rename_fields(rename), ..self }
    }

    /// Answers as a token endpoint of OAuth 2.0 (RFC 6749 section 5.2): adds the members `error`, with this value, and
    /// `error_description`, and answers a request that is not authorized, or whose token is for nobody, with 400. The
    /// first value stays. Metrics and the audit log have the code of the error in any case.
    #[must_use]
    pub fn in_oauth(self, error: &'static str) -> Self {
        let status = match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::CONFLICT => {
                StatusCode::BAD_REQUEST
            }
            status => status,
        };
        Self { status, oauth: self.oauth.or(Some(error)), ..self }
    }

    /// Returns the HTTP status and the message of the error, for responses in another format.
    pub fn status_and_message(&self) -> (StatusCode, &str) {
        (self.status, self.error.message())
    }

    /// Logs a server fault with its causes, and nothing for other errors. For responses in another format, which call
    /// neither [`Refusal::status`] nor [`Refusal::into_reply`]: these two log the fault themselves.
    pub fn log(&self) {
        if self.status.is_server_error() {
            log_fault(&self.error);
        }
    }

    /// Sets the domain of the error.
    pub(crate) fn of_domain(self, domain: &'static str) -> Self {
        Self { error: self.error.of_domain(domain), ..self }
    }

    /// Returns the error in the format of AIP-193 for an installation with this service domain, for a response whose
    /// status is already sent. Logs a server fault with its causes.
    pub fn status(&self, service_domain: &str) -> Status {
        self.log();
        self.error.status(service_domain)
    }

    /// Returns the response in the format of AIP-193 for an installation with this service domain. Logs a server fault
    /// with its causes.
    pub fn into_reply(self, service_domain: &str) -> Reply {
        self.log();
        let Self { error, status, allow, oauth } = self;
        let with_oauth = |name: &str| {
            let mut body = serde_json::to_value(error.status(service_domain))?;
            if let Some(members) = body.as_object_mut() {
                members.insert("error".to_owned(), name.into());
                members.insert("error_description".to_owned(), oauth_description(error.message()).into());
            }
            serde_json::to_vec(&body)
        };
        let body = oauth.map_or_else(|| serde_json::to_vec(&error.status(service_domain)), with_oauth);
        let body = body.unwrap_or_default();
        let mut reply = json(body);
        *reply.status_mut() = status;
        if status == StatusCode::UNAUTHORIZED {
            reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = allow {
            set_allow(&mut reply, &allow);
        }
        let retry = error.details().iter().find_map(|detail| match detail {
            Detail::RetryInfo { millis } => Some(millis.div_ceil(1000)),
            _ => None,
        });
        if let Some(seconds) = retry {
            reply.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        reply
    }
}

/// Returns a message with the characters that an `error_description` of OAuth 2.0 can have (RFC 6749 section 5.2): those
/// of ASCII without control characters, quotation marks and backslashes.
pub fn oauth_description(message: &str) -> String {
    let shown = |c: char| match c {
        '"' | '\\' => '\'',
        ' '..='~' => c,
        _ => '?',
    };
    message.chars().map(shown).collect()
}

/// Logs an error with its causes if it is a server fault; for other transports. An unknown method, a deadline set by
/// the client and an unreachable token issuer are not server faults, because clients could fill the log with them.
pub fn log_fault(error: &Error) {
    let is_server_fault = match error.code() {
        Code::Unimplemented | Code::DeadlineExceeded => false,
        Code::Unavailable => error.source().is_some(),
        code => status::of(code).is_server_error(),
    };
    if is_server_fault {
        tracing::error!(
            code = error.code().reason(),
            message = error.message(),
            causes = causes(error),
            "request failed"
        );
    }
}

fn set_allow(reply: &mut Reply, allow: &str) {
    if let Ok(allow) = HeaderValue::from_str(allow) {
        reply.headers_mut().insert(ALLOW, allow);
    }
}

fn causes(error: &Error) -> String {
    let (mut text, mut next) = (String::new(), error.source());
    while let Some(cause) = next {
        let colon = if text.is_empty() { "" } else { ": " };
        // Writing into a string does not fail.
        let _ = write!(text, "{colon}{cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn text(reply: Reply) -> String {
        let body = pollster::block_on(reply.into_body().collect()).unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }

    fn page(items: &[&'static str], next_page_token: Option<&str>) -> ListReply {
        let items = items.iter().map(|item| Bytes::from_static(item.as_bytes())).collect();
        ListReply { items, next_page_token: next_page_token.map(str::to_owned), total_count: 7, skipped: 2 }
    }

    #[tokio::test]
    async fn a_page_has_array_total_and_skipped_and_a_token_only_if_there_is_a_next_page() {
        let list = async |items: &[&'static str], next| text(list("repos", &page(items, next)).await);
        assert_eq!(list(&[], None).await, r#"{"repos":[],"totalCount":"7","skipped":2}"#);
        assert_eq!(
            list(&[r#"{"uid":"a"}"#, r#"{"uid":"b"}"#], Some("Cqo-_=")).await,
            r#"{"repos":[{"uid":"a"},{"uid":"b"}],"nextPageToken":"Cqo-_=","totalCount":"7","skipped":2}"#
        );
    }

    #[test]
    fn a_delete_returns_an_object_only_to_clients_that_accept_json() {
        for (accept, body) in [
            (&[][..], ""),
            (&["*/*"], ""),
            (&["application/json"], "{}"),
            (&["Application/JSON"], "{}"),
            (&["application/json;charset=utf-8"], "{}"),
            (&["application/*"], "{}"),
            (&["text/html, application/json;q=0.1, */*;q=0.8"], "{}"),
            (&["text/html", "application/json"], "{}"),
            (&["application/json;q=0"], ""),
            (&["application/json;q=0.000, */*"], ""),
            (&["application/*;q=0"], ""),
            (&["application/json;q=0, application/*"], ""),
            (&["application/json, application/*;q=0"], "{}"),
            (&["application/json;q=x"], ""),
            (&["application/xml, text/*"], ""),
            (&["application/problem+json"], ""),
            (&["text/plain;note=\", application/json\""], ""),
            (&["application/json, */"], "{}"),
            (&["nonsense"], ""),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            let reply = deleted(&headers);
            assert_eq!((reply.status(), &reply.headers()[VARY]), (StatusCode::OK, &HeaderValue::from_static("accept")));
            let json = reply.headers().get(CONTENT_TYPE).is_some_and(|ty| ty == "application/json");
            assert_eq!(json, !body.is_empty(), "{accept:?}");
            assert_eq!(text(reply), body, "{accept:?}");
        }
    }

    #[test]
    fn a_server_fault_reveals_nothing_to_the_client() {
        let reply = Refusal::from(Error::internal("secret")).into_reply("platform.test");
        assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = text(reply);
        assert!(body.contains("\"code\":13") && !body.contains("secret"), "{body}");
    }

    #[test]
    fn an_error_in_the_form_of_oauth_has_its_members_and_keeps_the_others() {
        let error = Error::unauthenticated("is \"no\\ é\n");
        let reply = Refusal::from(error).in_oauth("invalid_grant").in_oauth("another").into_reply("x.test");
        assert_eq!((reply.status(), reply.headers().get("www-authenticate")), (StatusCode::BAD_REQUEST, None));
        let body: Value = serde_json::from_str(&text(reply)).unwrap();
        assert_eq!((&body["error"], &body["error_description"]), (&"invalid_grant".into(), &"is 'no' ??".into()));
        assert_eq!((&body["code"], &body["details"][0]["reason"]), (&16.into(), &"UNAUTHENTICATED".into()));
        let busy = Refusal::from(Error::exhausted()).in_oauth("temporarily_unavailable").into_reply("x.test");
        assert_eq!(busy.status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn errors_have_the_headers_that_http_requires() {
        let reply = Refusal::from(Error::unauthenticated("no")).into_reply("platform.test");
        assert_eq!(reply.headers()[WWW_AUTHENTICATE], "Bearer");
        let busy = Error::new(Code::Unavailable, "busy").with(Detail::RetryInfo { millis: 100 });
        assert_eq!(Refusal::from(busy).into_reply("platform.test").headers()[RETRY_AFTER], "1");
        let reply = Refusal::other_methods("GET, HEAD".to_owned()).into_reply("platform.test");
        assert_eq!((reply.status().as_u16(), &reply.headers()[ALLOW]), (405, &HeaderValue::from_static("GET, HEAD")));
    }
}
