//! The log of the requests that a tenant received.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use platform_engine::timestamp::Timestamp;
use serde::Serialize;

use crate::faults::matches;

/// The number of requests that a log keeps. Our choice.
const MAX_REQUESTS: usize = 1000;

/// The number of bytes of a body that the log keeps. Our choice.
const MAX_BODY: usize = 16 << 10;

/// The number of bytes that the log keeps of a path, a query and an identity, each.
const MAX_TEXT: usize = 4 << 10;

/// A request that a tenant received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LoggedRequest {
    /// When it arrived, by the clock of the tenant.
    pub time: Timestamp,
    /// `REST` or `GRPC`, which includes gRPC-Web.
    pub protocol: &'static str,
    /// The method, such as `ReposService.ListRepos`; `None` for an unknown path.
    pub method: Option<String>,
    /// The HTTP method.
    pub http_method: String,
    /// The path.
    pub path: String,
    /// The query without the question mark.
    pub query: String,
    /// The beginning of the body, at most 16 KiB, for REST. Bytes that are not UTF-8 are replaced.
    pub body: String,
    /// The subject of the token, which the log does not verify.
    pub identity: Option<String>,
    /// The request id, which the client or the emulator chose.
    pub request_id: Option<String>,
    /// The HTTP status.
    pub status: u16,
    /// The number of the gRPC code, for gRPC.
    pub grpc_status: Option<u16>,
    /// Whether a fault was injected.
    pub fault: bool,
    /// The time until the reply began, in microseconds.
    pub micros: u64,
}

impl LoggedRequest {
    /// Returns whether the reply is an error.
    pub fn is_error(&self) -> bool {
        self.status >= 400 || self.grpc_status.is_some_and(|code| code != 0)
    }
}

/// The last requests of a tenant, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RequestLog(Mutex<VecDeque<LoggedRequest>>);

impl RequestLog {
    pub(crate) fn add(&self, mut request: LoggedRequest) {
        let identity = request.identity.as_mut();
        [&mut request.path, &mut request.query].into_iter().chain(identity).for_each(truncate);
        let mut requests = self.0.lock();
        if requests.len() >= MAX_REQUESTS {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Returns the requests whose method matches a pattern, oldest first. `*` also matches requests without a method.
    pub(crate) fn of(&self, pattern: &str) -> Vec<LoggedRequest> {
        let is_match = |request: &&LoggedRequest| matches(pattern, request.method.as_deref().unwrap_or_default());
        self.0.lock().iter().filter(is_match).cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

fn truncate(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
}

/// The beginning of a body, which is filled while the body is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beginning(Arc<Mutex<Vec<u8>>>);

impl Beginning {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    fn add(&self, data: &[u8]) {
        let mut beginning = self.0.lock();
        let free = MAX_BODY.saturating_sub(beginning.len());
        beginning.extend(data.iter().take(free));
    }
}

pin_project! {
    /// A body whose beginning is copied while it is read.
    #[derive(Debug)]
    pub(crate) struct Copied<B> {
        #[pin]
        body: B,
        beginning: Beginning,
    }
}

impl<B> Copied<B> {
    pub(crate) const fn new(body: B, beginning: Beginning) -> Self {
        Self { body, beginning }
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Copied<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            this.beginning.add(data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Option<&str>, path: String) -> LoggedRequest {
        LoggedRequest {
            time: Timestamp::EPOCH,
            protocol: "REST",
            method: method.map(str::to_owned),
            http_method: "GET".to_owned(),
            path,
            query: String::new(),
            body: String::new(),
            identity: None,
            request_id: None,
            status: 200,
            grpc_status: None,
            fault: false,
            micros: 0,
        }
    }

    #[test]
    fn the_log_keeps_the_last_requests_and_the_beginning_of_long_texts() {
        let log = RequestLog::default();
        for number in 0..=MAX_REQUESTS {
            log.add(request(Some("A.B"), format!("/{number}{}", "é".repeat(MAX_TEXT))));
        }
        let all = log.of("*");
        assert_eq!(all.len(), MAX_REQUESTS);
        assert!(all[0].path.starts_with("/1é") && all.iter().all(|request| request.path.len() <= MAX_TEXT));
        log.clear();
        assert!(log.of("*").is_empty());
    }

    #[test]
    fn requests_are_selected_by_their_method() {
        let log = RequestLog::default();
        for method in [Some("A.B"), Some("A.C"), None] {
            log.add(request(method, "/".to_owned()));
        }
        assert_eq!(["*", "A.*", "A.B", "B.*"].map(|pattern| log.of(pattern).len()), [3, 2, 1, 0]);
    }

    #[test]
    fn only_the_beginning_of_a_body_is_copied() {
        let beginning = Beginning::default();
        for _ in 0..3 {
            beginning.add(&vec![b'x'; MAX_BODY / 2 + 1]);
        }
        assert_eq!(beginning.text().len(), MAX_BODY);
    }
}
