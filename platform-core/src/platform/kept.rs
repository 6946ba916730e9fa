//! Answers that are made of many resources and kept until one of these changes.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_lock::Mutex;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    error::Result,
    pause::pause,
    store::{Epoch, Store},
};

/// The bytes of an answer, and what tells them from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// A JSON object.
    pub body: Bytes,
    /// What HTTP calls a weak entity tag, quotes included: the same for the same bytes.
    pub etag: Arc<str>,
}

impl Rendered {
    /// Returns these bytes with their tag.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let hash = Sha256::digest(&body);
        Self::tagged(body, &hash)
    }

    /// As [`Rendered::new`], for bytes that are so many that others must get their turns meanwhile.
    pub(crate) async fn of_many(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let mut hash = Sha256::new();
        for part in body.chunks(PART) {
            hash.update(part);
            pause().await;
        }
        Self::tagged(body, &hash.finalize())
    }

    fn tagged(body: Bytes, hash: &[u8]) -> Self {
        let etag = format!("W/\"{}\"", hex::encode(hash.get(..16).unwrap_or_default())).into();
        Self { body, etag }
    }
}

/// How many bytes are hashed at once.
const PART: usize = 1 << 20;

/// One answer, and the greatest value that its epochs had before it was made.
///
/// However many ask at once, one of them makes it, and it serves all who came before it was begun.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    last: ArcSwapOption<(u64, Rendered)>,
    making: Mutex<()>,
}

impl Kept {
    /// Returns the answer as of now, or of any time since.
    ///
    /// # Errors
    /// Those of the store and of `make`.
    pub(crate) async fn get(
        &self,
        store: &dyn Store,
        epochs: &[Epoch],
        make: impl Future<Output = Result<Rendered>> + Send,
    ) -> Result<Rendered> {
        let came_at = greatest_of(store, epochs).await?;
        let fresh = || self.last.load_full().filter(|last| last.0 >= came_at).map(|last| last.1.clone());
        if let Some(rendered) = fresh() {
            return Ok(rendered);
        }
        let _turn = self.making.lock().await;
        if let Some(rendered) = fresh() {
            return Ok(rendered);
        }
        let begun_at = greatest_of(store, epochs).await?;
        let rendered = make.await?;
        self.last.store(Some(Arc::new((begun_at, rendered.clone()))));
        Ok(rendered)
    }
}

/// Returns the greatest value of these epochs, which rises whenever any of them is raised.
async fn greatest_of(store: &dyn Store, epochs: &[Epoch]) -> Result<u64> {
    Ok(store.get(&[], epochs).await?.epochs.into_iter().max().unwrap_or_default())
}
