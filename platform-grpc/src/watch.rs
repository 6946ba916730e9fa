//! Watches of lists as a streaming method of our own (`docs/api.md`, Watches).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};
use http_body::{Body as HttpBody, Frame};
use platform_engine::{
    access::Caller,
    error::{Code, Error, Result},
    kind::Registered,
    platform::Platform,
    request::ListRequest,
    watch::{self, Changed, ResumeFrom, WatchEvent, WatchRequest, What},
};
use platform_http::{Origin, Sent, WatchStream};
use prost::Message;
use tonic::{Status, body::Body};

use crate::{
    frame::PREFIX,
    own::{Kinds, Resource},
    status,
};

/// The path of the method.
pub(crate) const PATH: &str = "/platform.watch.v1.WatchService/Watch";

/// The service, for reflection.
pub(crate) const SERVICE: &str = "platform.watch.v1.WatchService";

/// The message of a request.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    descendants_of: String,
    #[prost(string, tag = "3")]
    children_of: String,
    #[prost(string, tag = "4")]
    filter: String,
    #[prost(bool, tag = "5")]
    names: bool,
    #[prost(bool, tag = "6")]
    initial_state: bool,
    #[prost(string, tag = "7")]
    resume_token: String,
}

/// The message of an event.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(string, tag = "1")]
    ty: String,
    #[prost(string, tag = "2")]
    token: String,
    #[prost(string, tag = "3")]
    uid: String,
    #[prost(string, tag = "4")]
    etag: String,
    #[prost(message, optional, tag = "5")]
    resource: Option<prost_types::Any>,
    #[prost(bool, tag = "6")]
    ends_state: bool,
}

/// Begins a watch, and returns the response with its events.
///
/// # Errors
/// INVALID_ARGUMENT for a malformed message or a kind that gRPC does not serve; and those of [`WatchStream::begin`].
pub(crate) async fn respond(
    kinds: &Kinds,
    platform: &Arc<Platform>,
    caller: &Caller,
    origin: &Origin,
    message: &[u8],
) -> Result<Response<Body>> {
    let (flag, message) = message.split_at_checked(PREFIX).unwrap_or_default();
    if flag.first() != Some(&0) {
        return Err(Error::new(Code::Unimplemented, "Compressed requests are not supported"));
    }
    let malformed = |error: prost::DecodeError| Error::invalid_field("message", "is malformed").because(error);
    let request = Request::decode(message).map_err(malformed)?;
    let resource = kinds.find(&request.kind, watch::is_watchable, "a list that can be watched")?;
    let registered = &resource.registered;
    let stream = begin(platform, caller, registered, request, origin).await;
    let stream = stream.map_err(|error| error.of_domain(registered.kind.domain.name))?;
    let resource = Arc::clone(resource);
    let frames = stream::unfold(Some((stream, resource)), |sending| async move {
        let (mut stream, resource) = sending?;
        loop {
            let event = match stream.next().await {
                Some(Sent::Event(event)) => event,
                // HTTP/2 has keep-alives of its own.
                Some(Sent::KeepAlive) => continue,
                None => return None,
            };
            let end = match &event.what {
                What::Closing(closing) => Some(Status::new(status::of(closing.code), closing.message.clone())),
                _ => None,
            };
            let sent = encode(&resource, event);
            let end = sent.as_ref().err().map(|error| Status::internal(error.message())).or(end);
            let sending = if end.is_none() { Some((stream, resource)) } else { None };
            return Some(((sent.ok(), end), sending));
        }
    });
    let mut response = Response::new(Body::new(Events { frames: Box::pin(frames), trailers: None }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

async fn begin(
    platform: &Arc<Platform>,
    caller: &Caller,
    registered: &Registered,
    request: Request,
    origin: &Origin,
) -> Result<WatchStream> {
    let Request { descendants_of, children_of, filter, names, initial_state, resume_token, .. } = request;
    let pairs = [("uidp.descendantsOf", descendants_of), ("uidp.childrenOf", children_of), ("filter", filter)];
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value)).collect();
    let list = ListRequest::from_query(registered.kind, &pairs)?;
    let resume = (!resume_token.is_empty()).then_some(ResumeFrom::Token(resume_token));
    let request = WatchRequest { list, names, initial_state, resume };
    WatchStream::begin(platform, caller, registered, request, origin).await
}

/// Returns an event as a message with its prefix.
fn encode(of: &Resource, WatchEvent { what, token }: WatchEvent) -> Result<Bytes> {
    let mut event = Event { ty: what.name().to_owned(), token, ..Event::default() };
    match what {
        What::Added(changed) | What::Modified(changed) | What::Deleted(changed) => {
            let Changed { uid, resource, tag } = changed;
            event.uid = uid.to_string();
            event.etag = tag.map(|tag| tag.to_string()).unwrap_or_default();
            let value = resource.map(|resource| of.plan.encode(&resource)).transpose().map_err(Error::internal)?;
            event.resource = value.map(|value| prost_types::Any { type_url: of.type_url.clone(), value });
        }
        What::Bookmark { ends_state } => event.ends_state = ends_state,
        What::Expired | What::Closing(_) => {}
    }
    let length = event.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).map_err(Error::internal)?);
    event.encode(&mut bytes).map_err(Error::internal)?;
    Ok(bytes.freeze())
}

/// A message, and the status that ends the stream after it.
type Step = (Option<Bytes>, Option<Status>);

/// The body of the response.
struct Events {
    frames: Pin<Box<dyn Stream<Item = Step> + Send>>,
    trailers: Option<HeaderMap>,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Some((message, end)) = ready!(self.frames.poll_next_unpin(cx)) else { return Poll::Ready(None) };
        if let Some(status) = end {
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            self.trailers = Some(trailers);
        }
        Poll::Ready(match message {
            Some(message) => Some(Ok(Frame::data(message))),
            None => self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
        })
    }
}
