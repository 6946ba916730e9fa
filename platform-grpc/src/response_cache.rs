//! Caches the protobuf encoding of large responses that the platform caches as JSON.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use platform_engine::{
    error::{Error, Result},
    offload,
    platform::{Platform, Rendered},
};

use crate::encode::Plan;

/// The minimum size of a cached response, in bytes of JSON. Encoding a smaller one again is cheap.
const MIN_CACHED: usize = 64 << 10;

/// The last large response of each action, by name, with its entity tag. A different tag replaces the entry.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache(Mutex<HashMap<&'static str, (Arc<str>, Bytes)>>);

impl ResponseCache {
    /// Returns the response of an action as protobuf. A large one is encoded on the pool.
    ///
    /// # Errors
    /// INTERNAL when the response does not match the message; RESOURCE_EXHAUSTED when the pool is full.
    pub(crate) async fn get(
        &self,
        platform: &Platform,
        action: &'static str,
        rendered: Rendered,
        plan: &Arc<Plan>,
    ) -> Result<Bytes> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((etag, bytes)) = lock().get(action)
            && *etag == rendered.etag
        {
            return Ok(bytes.clone());
        }
        if rendered.body.len() < MIN_CACHED {
            return plan.encode(&rendered.body).map(Bytes::from).map_err(Error::internal);
        }
        let (plan, body) = (Arc::clone(plan), rendered.body);
        let encoded = offload::run(platform.offload(), "", move || plan.encode(&body)).await?;
        let bytes = Bytes::from(encoded.map_err(Error::internal)?);
        lock().insert(action, (rendered.etag, bytes.clone()));
        Ok(bytes)
    }
}
