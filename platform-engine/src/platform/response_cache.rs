//! A single-flight cache of a response that is computed from many resources, invalidated by epochs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_lock::Mutex;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    error::Result,
    offload::Offload,
    store::{Epoch, Store},
};

/// The bytes of a response, and their entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// A JSON object.
    pub body: Bytes,
    /// A weak entity tag (RFC 9110) including the quotes: a hash of the bytes.
    pub etag: Arc<str>,
}

impl Rendered {
    /// Returns these bytes with their entity tag.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let hash = Sha256::digest(&body);
        Self::tagged(body, &hash)
    }

    /// As [`Rendered::new`], for a long response: pauses while it hashes.
    pub async fn of_many(body: impl Into<Bytes>, offload: &dyn Offload) -> Self {
        let body = body.into();
        let mut hash = Sha256::new();
        for part in body.chunks(PART) {
            hash.update(part);
            offload.pause().await;
        }
        Self::tagged(body, &hash.finalize())
    }

    fn tagged(body: Bytes, hash: &[u8]) -> Self {
        let etag = format!("W/\"{}\"", hex::encode(hash.get(..16).unwrap_or_default())).into();
        Self { body, etag }
    }
}

/// How many bytes are hashed between two pauses: 0.1 to 0.4 ms. Our choice.
const PART: usize = 128 << 10;

/// The last response, or what responses are made of, and the lineage of the store and the values of its epochs before it was computed.
///
/// Of any number of concurrent requests one computes it, and the others that began before the computation share it.
#[derive(Debug)]
pub struct ResponseCache<T = Rendered> {
    last: ArcSwapOption<(u64, Vec<u64>, T)>,
    computing: Mutex<()>,
}

impl<T> Default for ResponseCache<T> {
    fn default() -> Self {
        Self { last: ArcSwapOption::default(), computing: Mutex::default() }
    }
}

impl<T: Clone> ResponseCache<T> {
    /// Returns the response as of this call or later: the cached one while no epoch was raised, and otherwise the one
    /// that `compute` returns. All calls have the same epochs, in the same order.
    ///
    /// # Errors
    /// Those of the store and of `compute`.
    pub async fn get(
        &self,
        store: &dyn Store,
        epochs: &[Epoch],
        compute: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        // Each is compared with its own earlier value: sequences of different organizations are not ordered.
        let lineage = store.lineage();
        let requested_at = store.get(&[], epochs).await?.epochs;
        let is_fresh = |as_of: &[u64]| {
            as_of.len() == requested_at.len() && as_of.iter().zip(&requested_at).all(|(known, now)| known >= now)
        };
        let is_fresh = |last: &(u64, Vec<u64>, T)| last.0 == lineage && is_fresh(&last.1);
        let fresh = || self.last.load_full().filter(|last| is_fresh(last)).map(|last| last.2.clone());
        if let Some(rendered) = fresh() {
            return Ok(rendered);
        }
        let _turn = self.computing.lock().await;
        // Another request may have computed it while this one waited for the lock.
        if let Some(rendered) = fresh() {
            return Ok(rendered);
        }
        // Read before the computation: a change during it must invalidate the result.
        let lineage = store.lineage();
        let computed_at = store.get(&[], epochs).await?.epochs;
        let rendered = compute.await?;
        self.last.store(Some(Arc::new((lineage, computed_at, rendered.clone()))));
        Ok(rendered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use pollster::block_on;

    use super::*;
    use crate::{
        store::{Commit, Committed, Key, Page, Query, Read, StoreError, memory::MemoryStore},
        uid::Uid,
    };

    /// A store that continues with an earlier state when its lineage changes.
    #[derive(Debug, Default)]
    struct FailingOver {
        histories: [MemoryStore; 2],
        lineage: AtomicU64,
    }

    impl FailingOver {
        fn current(&self) -> &MemoryStore {
            let [first, second] = &self.histories;
            if self.lineage() == 0 { first } else { second }
        }
    }

    #[async_trait]
    impl Store for FailingOver {
        async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
            self.current().get(keys, epochs).await
        }

        async fn list(&self, query: &Query) -> Result<Page, StoreError> {
            self.current().list(query).await
        }

        async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
            self.current().commit(commit).await
        }

        fn lineage(&self) -> u64 {
            self.lineage.load(Ordering::SeqCst)
        }

        fn health(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn a_response_of_a_lost_history_is_computed_again() {
        let (store, cache, epoch) =
            (FailingOver::default(), ResponseCache::default(), Epoch::new("sample", Uid::opaque("o")));
        let get = |body: &'static str| {
            block_on(cache.get(&store, std::slice::from_ref(&epoch), async { Ok(Rendered::new(body)) })).unwrap().body
        };
        block_on(store.commit(Commit { raise: vec![epoch.clone()], ..Commit::default() })).unwrap();
        assert_eq!(get("first"), "first");
        assert_eq!(get("again"), "first");
        // The epoch is lower than that of the cached response.
        store.lineage.store(1, Ordering::SeqCst);
        assert_eq!(get("second"), "second");
        assert_eq!(get("again"), "second");
    }
}
