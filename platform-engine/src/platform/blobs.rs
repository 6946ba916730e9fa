//! Blobs of imported resources: storing, reading, checking and collecting them.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;

use super::{
    Platform,
    put::{InvalidResource, PutReply, demand, parent_of},
};
use crate::{
    access::Caller,
    blob::{self, BlobId, BlobStore},
    context::Context,
    error::{Error, Result},
    kind::Imported,
    offload,
    store::StoreError,
    timestamp::Timestamp,
    uid,
};

impl Platform {
    /// Stores blobs for resources of an imported kind below a parent, which is empty for a kind without parents. They
    /// are durable when this returns. Until a resource names them, they are kept for the grace period of
    /// [`Platform::collect_blobs`].
    ///
    /// Blobs of more than [`blob::MAX_LEN`] bytes are reported in [`PutReply::refused`], and the others are stored.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT and NOT_FOUND as [`Platform::put`], and those of the blob store. Earlier
    /// blobs stay.
    pub async fn put_blobs<R: Imported>(
        &self,
        caller: &Caller,
        parent: &str,
        contents: Vec<Bytes>,
    ) -> Result<PutReply> {
        let put = async {
            let parent_uid = parent_of(R::KIND, parent)?;
            let found = self.with_caller(caller, |cx| {
                Box::pin(async {
                    demand::<R>(cx, parent_uid.as_ref())?;
                    match (&parent_uid, cx.platform().parent_kind(R::KIND)) {
                        (Some(uid), Some(kind)) if cx.record(kind, uid).await?.is_none() => {
                            Err(Error::not_found(kind, uid.as_str()))
                        }
                        _ => Ok(()),
                    }
                })
            });
            found.await?;
            let (blobs, now, of) = (Arc::clone(&self.blobs), self.now(), parent.to_owned());
            let store = move || {
                let mut reply = PutReply::default();
                for (index, content) in (0..).zip(contents) {
                    if content.len() > blob::MAX_LEN {
                        let error = Error::invalid_field("content", too_long());
                        reply.refused.push(InvalidResource { index, error });
                        continue;
                    }
                    if blobs.put(&BlobId::of(&of, &content), &content, now)? {
                        reply.created += 1;
                    } else {
                        reply.unchanged += 1;
                    }
                }
                Ok::<_, StoreError>(reply)
            };
            Ok(offload::run(&*self.offload, uid::root(parent), store).await??)
        };
        put.await.map_err(|error: Error| error.of_domain(R::KIND.domain.name))
    }

    /// Deletes the blobs that no resource names and that have neither been put nor named for `grace_millis`, and
    /// returns their number. Access is not checked.
    ///
    /// Safe while resources are imported: naming a blob renews its time, and a resource is rejected if the blob is
    /// already gone. The grace period must be longer than a commit takes and than a client takes between the upload of
    /// blobs and that of the resources that name them.
    ///
    /// # Errors
    /// Those of the store and of the blob store. Earlier deletes stay.
    pub async fn collect_blobs(&self, grace_millis: i64) -> Result<u64> {
        let before = self.now().plus_millis(grace_millis.saturating_neg());
        let blobs = Arc::clone(&self.blobs);
        let all = offload::run(&*self.offload, "", move || blobs.list()).await??;
        if all.is_empty() {
            return Ok(0);
        }
        let mut used = HashSet::new();
        blob::named(self.store(), self.kinds(), |named| {
            used.insert(named.id);
        })
        .await?;
        let blobs = Arc::clone(&self.blobs);
        let delete = move || {
            let unused = all.iter().filter(|id| !used.contains(id));
            unused.map(|id| blobs.delete(id, before)).try_fold(0, |sum, deleted| Ok(sum + u64::from(deleted?)))
        };
        let deleted: Result<_, StoreError> = offload::run(&*self.offload, "", delete).await?;
        Ok(deleted?)
    }
}

impl Context<'_> {
    /// Reads a blob of a parent by its digest, and parses it outside of the threads that serve requests.
    ///
    /// # Errors
    /// DATA_LOSS when the blob is missing or damaged, RESOURCE_EXHAUSTED when too much work is queued, and those of
    /// `parse`.
    pub async fn read_blob<T: Send + 'static>(
        &self,
        parent: &str,
        digest: &str,
        parse: impl FnOnce(&[u8]) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let missing = || StoreError::Corrupt(format!("the blob {digest} of {parent} is missing").into());
        let id = BlobId::named(parent, digest).ok_or_else(missing)?;
        let blobs = Arc::clone(self.platform().blobs());
        let read = move || match blobs.get(&id)? {
            Some(content) => parse(&content).map(Some),
            None => Ok(None),
        };
        let read = offload::run(self.platform().offload(), uid::root(parent), read).await??;
        Ok(read.ok_or_else(missing)?)
    }
}

/// Sets the time of blobs to `now`, and returns whether each exists.
pub(super) async fn renew(platform: &Platform, share: &str, ids: Vec<BlobId>, now: Timestamp) -> Result<Vec<bool>> {
    let blobs: Arc<dyn BlobStore> = Arc::clone(&platform.blobs);
    let renew = move || ids.iter().map(|id| blobs.renew(id, now)).collect::<Result<Vec<_>, StoreError>>();
    Ok(offload::run(&*platform.offload, share, renew).await??)
}

fn too_long() -> String {
    format!("must have at most {} bytes", blob::MAX_LEN)
}
