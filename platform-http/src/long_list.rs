//! Responses that contain everything that matches a request, of any length: they are sent page by page, and never held in
//! memory as a whole.

use std::{mem, sync::Arc};

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use http::HeaderValue;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use platform_engine::{
    access::Caller,
    error::{Code, Error, Result},
    kind::{Action, Kind},
    platform::Platform,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{
    BoxError, Limits,
    limits::admission::{Origin, StreamPermit},
    reply::{self, Reply, ReplyBody, log_fault},
};

/// A list of several pages that is being sent.
struct LongList {
    platform: Arc<Platform>,
    caller: Option<Caller>,
    kind: &'static Kind,
    action: &'static Action,
    request: Map<String, Value>,
    origin: Origin,
    deadline: Instant,
    /// The text of the page that was read last.
    text: Vec<u8>,
    /// Whether all pages so far were empty: an action may find nothing to return in a page and something in the next.
    is_empty: bool,
    page_token: Option<String>,
    _permit: StreamPermit,
}

/// Runs an action that returns pages, and replies with all of them. The first page is read before the response begins, so
/// that an error of the request is answered as one.
pub(crate) async fn reply(
    platform: &Arc<Platform>,
    caller: Option<&Caller>,
    kind: &'static Kind,
    action: &'static Action,
    request: Map<String, Value>,
    (origin, limits): (&Origin, &Limits),
) -> Result<Reply> {
    let first = platform.run_page(caller, kind, action, &request, "").await?;
    let mut text = format!("{{\"{}\":[", action.list_field()).into_bytes();
    first.append_to(&mut text, true);
    let Some(page_token) = first.next_page_token else {
        text.extend_from_slice(b"]}");
        return Ok(reply::json(text));
    };
    let list = LongList {
        platform: Arc::clone(platform),
        caller: caller.cloned(),
        kind,
        action,
        request,
        origin: origin.clone(),
        deadline: Instant::now() + limits.long_list_time,
        text,
        is_empty: first.items.is_empty(),
        page_token: Some(page_token),
        _permit: origin.long_list()?,
    };
    let pages = stream::try_unfold(Some(list), |list| async move {
        match list {
            None => Ok(None),
            Some(list) => list.next().await.map(Some),
        }
    });
    let body = StreamBody::new(pages.map_ok(Frame::data));
    let mut reply = Reply::new(ReplyBody::Stream(BodyExt::boxed_unsync(body)));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(reply)
}

impl LongList {
    /// Returns the text of the page that was read last, after reading the next one.
    async fn next(mut self) -> Result<(Bytes, Option<Self>), BoxError> {
        let Some(page_token) = self.page_token.take() else { return Ok((self.text.into(), None)) };
        let page = self.platform.run_page(self.caller.as_ref(), self.kind, self.action, &self.request, &page_token);
        let page = match tokio::time::timeout_at(self.deadline, page).await {
            Ok(page) => page,
            Err(_) => Err(Error::new(Code::DeadlineExceeded, "the list took too long")),
        };
        // After an error, the client sees an aborted response.
        let page = page.inspect_err(log_fault)?;
        let mut next = Vec::new();
        page.append_to(&mut next, self.is_empty);
        self.is_empty &= page.items.is_empty();
        if page.next_page_token.is_none() {
            next.extend_from_slice(b"]}");
        }
        self.origin.reply(next.len())?;
        self.page_token = page.next_page_token;
        Ok((mem::replace(&mut self.text, next).into(), Some(self)))
    }
}
