//! A store whose writes can be switched off.

#![allow(clippy::unwrap_used, reason = "that is how tests fail")]

use std::{pin::pin, sync::Arc};

use futures_lite::future::{block_on, poll_once};

use platform_engine::{
    blob::{BlobId, BlobStore, MemoryBlobs},
    store::{Commit, Epoch, Store, StoreError, memory::MemoryStore, switched::SwitchedStore},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{Call, GatedStore};

fn raise() -> Commit {
    Commit { raise: vec![Epoch::new("changes", Uid::opaque("a"))], ..Commit::default() }
}

#[test]
fn writes_are_refused_until_they_are_allowed_again_and_reads_are_served() {
    let store = SwitchedStore::new(Arc::new(MemoryStore::new()), false);
    let blobs = store.blobs(Arc::new(MemoryBlobs::default()));
    let id = BlobId::of("a", b"text");
    let epoch = [Epoch::new("changes", Uid::opaque("a"))];
    block_on(async {
        let first = store.commit(raise()).await.unwrap().sequence;
        assert!(blobs.put(&id, b"text", Timestamp::EPOCH).unwrap());
        store.refuse_writes().await;
        for commit in [raise(), Commit::default()] {
            assert!(matches!(store.commit(commit).await, Err(StoreError::ReadOnly)));
        }
        assert!(matches!(blobs.put(&id, b"text", Timestamp::EPOCH), Err(StoreError::ReadOnly)));
        assert!(matches!(blobs.renew(&id, Timestamp::EPOCH), Err(StoreError::ReadOnly)));
        assert!(matches!(blobs.delete(&id, Timestamp::EPOCH), Err(StoreError::ReadOnly)));
        assert_eq!(blobs.get(&id).unwrap().unwrap(), "text");
        assert_eq!(store.get(&[], &epoch).await.unwrap().epochs, [first]);
        assert!(store.is_read_only() && store.health().is_ok());
        store.allow_writes();
        assert!(store.commit(raise()).await.unwrap().sequence > first && !store.is_read_only());
    });
}

#[test]
fn refusing_writes_waits_for_those_that_have_begun() {
    let (inner, gate) = GatedStore::in_memory();
    let store = SwitchedStore::new(inner, false);
    let begun = gate.interleave(
        Call::Commit,
        || block_on(store.commit(raise())),
        || {
            let mut refusing = pin!(store.refuse_writes());
            assert!(block_on(poll_once(refusing.as_mut())).is_none());
            assert!(matches!(block_on(store.commit(raise())), Err(StoreError::ReadOnly)));
        },
    );
    begun.unwrap();
    block_on(store.refuse_writes());
    assert!(store.is_read_only());
    assert!(SwitchedStore::new(Arc::new(MemoryStore::new()), true).is_read_only());
}
