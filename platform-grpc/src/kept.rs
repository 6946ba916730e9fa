//! Large answers that the platform keeps ready as JSON, kept as protobuf too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use platform_core::{
    error::{Error, Result},
    platform::Rendered,
};

use crate::encode::Plan;

/// How many bytes of JSON are worth keeping what they come to.
const LARGE: usize = 64 << 10;

/// The last large answer of each action, by its tag.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<HashMap<&'static str, (Arc<str>, Bytes)>>);

impl Kept {
    /// Returns an answer of an action as a message.
    ///
    /// # Errors
    /// INTERNAL when it is none.
    pub(crate) fn get(&self, action: &'static str, rendered: &Rendered, plan: &Plan) -> Result<Bytes> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((etag, bytes)) = known().get(action)
            && *etag == rendered.etag
        {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(plan.encode(&rendered.body).map_err(Error::internal)?);
        if rendered.body.len() >= LARGE {
            known().insert(action, (Arc::clone(&rendered.etag), bytes.clone()));
        }
        Ok(bytes)
    }
}
