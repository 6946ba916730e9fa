//! Watches as Server-Sent Events (HTML Living Standard section 9.2; `docs/api.md`, Watches).
//!
//! The bytes follow from the behavior of public clients: the `id` is the last line of an event, because some take it when they
//! read the line and would lose an event that is cut after it; each event has an id and data; each is one chunk; the
//! keep-alive is a comment without an empty line, which several clients take for an event without data; no event has a
//! name that clients use for themselves.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use platform_engine::{
    access::Caller,
    error::{Code, Result, Violations},
    kind::{Field, Registered, Type},
    platform::Platform,
    request::ListRequest,
    watch::{Closing, ResumeFrom, WatchEvent, WatchRequest, What},
};

use crate::{
    BoxError,
    limits::admission::Origin,
    reply::{Refusal, Reply, ReplyBody},
    request,
    watch_stream::{Sent, WatchStream},
};

/// How long clients wait before they reconnect, in milliseconds: after a connection was cut or has ended, and after an
/// end that another attempt would not change.
const RETRY_MILLIS: u64 = 1_000;
const RETRY_FINAL_MILLIS: u64 = 60_000;

/// How long clients wait before they reconnect to a server that cannot serve them now. Our choice.
const RETRY_LATER_MILLIS: u64 = 10_000;

/// The span from which the time before reconnecting to a server that stops, or that cannot serve a client now, is drawn,
/// so that not all clients come at once.
const JITTER_MILLIS: u64 = 2_000;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const COMMENT: &[u8] = b":\n";

/// The parameters of a watch, in addition to those of the list.
pub(crate) const WATCH: &str = "watch";
pub(crate) const RESUME_TOKEN: &str = "resumeToken";
pub(crate) const INITIAL_STATE: &str = "initialState";

/// The fields of these parameters, for the document.
pub(crate) const FIELDS: [Field; 3] = [
    Field::new(WATCH, Type::Enum(&["false", "true", "names"])).about(
        "Whether to answer with a stream of changes, as Server-Sent Events, instead of a page; `names` for events with only \
         the uids and ETags of the resources.",
    ),
    Field::string(RESUME_TOKEN).about("The id of an event, after which a watch resumes. The header Last-Event-ID has precedence."),
    Field::bool(INITIAL_STATE).about("Whether a watch begins with all resources of the list, as `added`, and a bookmark."),
];

/// The parameters of a watch in addition to those of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameters {
    names: bool,
    initial_state: bool,
    token: Option<String>,
}

impl Parameters {
    /// Takes the parameters of a watch out of those of a list; `None` for a list that is not watched.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a value that a parameter cannot have, for one that is repeated, for one of a watch without
    /// `watch`, and for those of pages.
    pub(crate) fn take(pairs: &mut Vec<(String, String)>) -> Result<Option<Self>> {
        let mut violations = Violations::default();
        let mut take = |name: &str| {
            let is_named = |key: &str| key == name || key == snake_case(name);
            let mut values = Vec::new();
            pairs.retain(|(key, value)| {
                let is_named = is_named(key);
                if is_named {
                    values.push(value.clone());
                }
                !is_named
            });
            if values.len() > 1 {
                violations.add(name, "must not be repeated");
            }
            values.pop()
        };
        let (watch, token, state) = (take(WATCH), take(RESUME_TOKEN), take(INITIAL_STATE));
        let (is_watch, names) = match watch.as_deref() {
            None | Some("false") => (false, false),
            Some("true") => (true, false),
            Some("names") => (true, true),
            Some(_) => {
                violations.add(WATCH, "must be `true`, `names` or `false`");
                (true, false)
            }
        };
        let initial_state = match state.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                violations.add(INITIAL_STATE, "must be `true` or `false`");
                false
            }
        };
        if is_watch {
            let is_of_pages = |key: &str| matches!(key, "pageToken" | "page_token" | "skip" | "pageSize" | "page_size");
            for (key, _) in pairs.iter().filter(|(key, _)| is_of_pages(key)) {
                violations.add(key, "must not be set in a watch, which has no pages");
            }
        } else {
            let without = [(RESUME_TOKEN, token.is_some()), (INITIAL_STATE, state.is_some())];
            for (name, _) in without.into_iter().filter(|(_, is_set)| *is_set) {
                violations.add(name, "needs `watch=true` or `watch=names`");
            }
        }
        let token = token.filter(|token| !token.is_empty());
        violations.none_or(is_watch.then_some(Self { names, initial_state, token }))
    }
}

fn snake_case(name: &str) -> &str {
    match name {
        RESUME_TOKEN => "resume_token",
        INITIAL_STATE => "initial_state",
        name => name,
    }
}

/// Begins a watch of a list, and replies with its events.
///
/// # Errors
/// Those of [`WatchStream::begin`], with status 410 for a token in the query that is too old.
pub(crate) async fn reply(
    platform: &Arc<Platform>,
    caller: &Caller,
    registered: &Registered,
    list: ListRequest,
    parameters: Parameters,
    (origin, headers): (&Origin, &HeaderMap),
) -> Result<Reply, Refusal> {
    let Parameters { names, initial_state, token } = parameters;
    // A client that reconnects by itself repeats the query with the first token, so the header is newer.
    let resume = last_event_id(headers).map(ResumeFrom::LastEventId).or(token.map(ResumeFrom::Token));
    let watch = WatchRequest { list, names, initial_state, resume };
    let begun = WatchStream::begin(platform, caller, registered, watch, origin).await;
    let stream = begun.map_err(|error| match error.code() {
        Code::OutOfRange => Refusal::gone(error),
        _ => Refusal::from(error),
    })?;
    let chunks = stream::unfold((stream, true), |(mut stream, is_first)| async move {
        let (chunk, is_first) = match stream.next().await? {
            Sent::Event(event) => (chunk(&event, retry(&event, is_first)), false),
            Sent::KeepAlive => (Bytes::from_static(COMMENT), is_first),
        };
        Some((Ok::<_, BoxError>(Frame::data(chunk)), (stream, is_first)))
    });
    Ok(streamed(chunks))
}

/// Answers a client that reconnects to a server that cannot serve it now: with a stream of one event, which says when to
/// try again and resumes after the same event. Most clients give up at a status such as 503 or 429, and none reads
/// Retry-After; those that come for the first time get the status. The reply has the code of the refusal as an extension.
///
/// # Errors
/// The refusal itself, for any other request and reason.
pub(crate) fn put_off(headers: &HeaderMap, query: &str, refusal: Refusal) -> Result<Reply, Refusal> {
    let is_for_now = matches!(refusal.code(), Code::Unavailable | Code::ResourceExhausted);
    let id = last_event_id(headers).filter(|id| is_for_now && id.bytes().all(|byte| byte.is_ascii_graphic()));
    let Some(token) = id else { return Err(refusal) };
    let watch = request::pairs(query).and_then(|mut pairs| Parameters::take(&mut pairs));
    let Ok(Some(_)) = watch else { return Err(refusal) };
    refusal.log();
    let code = refusal.code();
    let what = What::Closing(Closing::retryable(code, refusal.error().message()));
    let millis = RETRY_LATER_MILLIS + fastrand::u64(..JITTER_MILLIS);
    let chunk = chunk(&WatchEvent { what, token }, Some(millis));
    let mut reply = streamed(stream::iter([Ok::<_, BoxError>(Frame::data(chunk))]));
    reply.extensions_mut().insert(code);
    Ok(reply)
}

fn last_event_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(LAST_EVENT_ID).map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    id.filter(|id| !id.is_empty())
}

/// Returns a stream of events.
fn streamed(chunks: impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static) -> Reply {
    let mut reply = Reply::new(ReplyBody::Stream(BodyExt::boxed_unsync(StreamBody::new(chunks))));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies such as nginx would collect the events.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    reply
}

/// Returns when a client should reconnect after an event, in milliseconds, if the event says so.
fn retry(event: &WatchEvent, is_first: bool) -> Option<u64> {
    match &event.what {
        What::Closing(closing) if !closing.retryable => Some(RETRY_FINAL_MILLIS),
        What::Closing(_) => Some(RETRY_MILLIS + fastrand::u64(..JITTER_MILLIS)),
        _ => is_first.then_some(RETRY_MILLIS),
    }
}

/// Returns the bytes of an event.
fn chunk(event: &WatchEvent, retry: Option<u64>) -> Bytes {
    let json = event.what.to_json();
    let mut bytes = Vec::with_capacity(json.len() + event.token.len() + 64);
    if let Some(millis) = retry {
        bytes.extend_from_slice(format!("retry: {millis}\n").as_bytes());
    }
    bytes.extend_from_slice(b"event: ");
    bytes.extend_from_slice(event.what.name().as_bytes());
    bytes.extend_from_slice(b"\ndata: ");
    // JSON has no line breaks except between its tokens, where stored bodies have none either.
    bytes.extend_from_slice(&json);
    bytes.extend_from_slice(b"\nid: ");
    bytes.extend_from_slice(event.token.as_bytes());
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_id_is_the_last_line_and_retry_is_within_the_event() {
        let event = WatchEvent { what: What::Bookmark { ends_state: false }, token: "1.a.1-2-0".to_owned() };
        assert_eq!(chunk(&event, None), "event: bookmark\ndata: {\"type\":\"bookmark\"}\nid: 1.a.1-2-0\n\n");
        let first = "retry: 1000\nevent: bookmark\ndata: {\"type\":\"bookmark\"}\nid: 1.a.1-2-0\n\n";
        assert_eq!(chunk(&event, Some(1000)), first);
    }

    #[test]
    fn the_parameters_of_a_watch_are_taken_and_the_others_stay() {
        let mut query = pairs(&[("name", "a"), ("watch", "names"), ("resume_token", "t"), ("initialState", "true")]);
        let taken = Parameters::take(&mut query).unwrap();
        assert_eq!(taken, Some(Parameters { names: true, initial_state: true, token: Some("t".to_owned()) }));
        assert_eq!(query, pairs(&[("name", "a")]));
        assert_eq!(Parameters::take(&mut query).unwrap(), None);
        assert_eq!(Parameters::take(&mut pairs(&[("watch", "false")])).unwrap(), None);
    }

    #[test]
    fn all_violations_of_a_watch_are_reported_at_once() {
        for (query, fields) in [
            (
                &[("watch", "yes"), ("initialState", "1"), ("pageToken", "x")][..],
                &["watch", "initialState", "pageToken"][..],
            ),
            (&[("resumeToken", "t"), ("initialState", "true")], &["resumeToken", "initialState"]),
            (&[("watch", "true"), ("watch", "true")], &["watch"]),
        ] {
            let error = Parameters::take(&mut pairs(query)).unwrap_err();
            let found: Vec<_> = error.violations().iter().map(|violation| violation.field.as_str()).collect();
            assert_eq!(found, fields);
        }
    }
}
