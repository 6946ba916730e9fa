//! Caches the protobuf encoding of large responses that the platform caches as JSON.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use platform_engine::{
    error::{Error, Result},
    platform::Rendered,
};

use crate::encode::Plan;

/// The minimum size of a cached response, in bytes of JSON. Encoding a smaller one again is cheap.
const MIN_CACHED: usize = 64 << 10;

/// The last large response of each action, by name, with its entity tag. A different tag replaces the entry.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache(Mutex<HashMap<&'static str, (Arc<str>, Bytes)>>);

impl ResponseCache {
    /// Returns the response of an action as protobuf.
    ///
    /// # Errors
    /// INTERNAL when the response does not match the message.
    pub(crate) fn get(&self, action: &'static str, rendered: &Rendered, plan: &Plan) -> Result<Bytes> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((etag, bytes)) = lock().get(action)
            && *etag == rendered.etag
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(plan.encode(&rendered.body).map_err(Error::internal)?);
        if rendered.body.len() >= MIN_CACHED {
            lock().insert(action, (Arc::clone(&rendered.etag), bytes.clone()));
        }
        Ok(bytes)
    }
}
