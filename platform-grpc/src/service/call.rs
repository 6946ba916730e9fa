//! A call of tonic: the message and the metadata of its reply.

use bytes::Bytes;
use platform_engine::{
    BoxFuture,
    error::Result,
    etag::{Reply, Tag},
    idempotency,
    options::RequestOptions,
};
use platform_http::Origin;
use tonic::{Status, metadata::MetadataValue, server::UnaryService};

use super::{Inner, Principal};
use crate::{methods::Method, parts::Parts};

/// The part of a reply that is metadata.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The tag of the resource.
    pub(super) tag: Option<Tag>,
    pub(super) is_replayed: bool,
}

impl Shown {
    pub(super) const fn of(reply: &Reply) -> Self {
        Self { tag: reply.tag, is_replayed: reply.is_replayed }
    }
}

/// The message of a reply.
#[derive(Debug)]
pub(super) enum Message {
    Whole(Bytes),
    /// Several parts, which are charged to the budget of replies.
    Parts(Parts),
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<Parts> for Message {
    fn from(mut parts: Parts) -> Self {
        parts.single().map_or_else(|| Self::Parts(parts), Self::Whole)
    }
}

/// A call whose caller is authenticated.
pub(super) struct Call<'a> {
    pub(super) inner: &'a Inner,
    pub(super) method: &'a Method,
    pub(super) origin: &'a Origin,
    pub(super) principal: Principal,
    pub(super) options: &'a RequestOptions,
    /// Set to the message of a reply in parts, instead of the one that is returned.
    pub(super) parts: Option<&'a mut Option<Parts>>,
}

impl<'a> UnaryService<Bytes> for Call<'a> {
    type Response = Bytes;
    type Future = BoxFuture<'a, Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let Self { inner, method, origin, ref mut principal, options, ref mut parts } = *self;
        let (principal, parts) = (std::mem::take(principal), parts.take());
        Box::pin(async move {
            let (metadata, _, bytes) = request.into_parts();
            let (reply, shown) = match inner.reply(method, origin, principal, options, &metadata, bytes).await {
                Ok((Message::Whole(bytes), shown)) => (Ok(bytes), shown),
                Ok((Message::Parts(long), _)) => {
                    if let Some(parts) = parts {
                        *parts = Some(long);
                    }
                    return Ok(tonic::Response::new(Bytes::new()));
                }
                Err(error) => (Err(error), Shown::default()),
            };
            // A read changes nothing, so its reply may be rejected when the budget of replies is used up. The reply of
            // a write must not be: the caller could not know that the write was committed.
            let reply = reply.and_then(|reply| {
                if method.operation.is_read_only() { origin.reply(reply.len()).map(|()| reply) } else { Ok(reply) }
            });
            let reply = reply.map_err(|error| inner.statuses.of(&error.of_domain(method.domain)))?;
            let mut response = tonic::Response::new(reply);
            if let Some(Ok(etag)) = shown.tag.map(|tag| MetadataValue::try_from(tag.to_string())) {
                response.metadata_mut().insert("etag", etag);
            }
            if shown.is_replayed {
                response.metadata_mut().insert(idempotency::REPLAYED, MetadataValue::from_static("true"));
            }
            Ok(response)
        })
    }
}
