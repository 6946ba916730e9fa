//! Keys that several servers share: first wins, rotation in two steps, sealed documents.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

#[path = "support/shared.rs"]
mod shared;

use std::sync::Arc;

use platform_engine::{seal::SealKeys, timestamp::Timestamp};
use platform_keys::{
    ACTIVATION_DELAY, Algorithm, Bootstrap, DataDirError, Directory, Documents, KeyRing, Keys, POLL_INTERVAL,
    SealedDocuments, SecretKey,
};
use platform_testkit::{SeededEntropy, TestClock};
use shared::Shared;
use zeroize::Zeroizing;

fn clock() -> Arc<TestClock> {
    Arc::new(TestClock::at(Timestamp::from_millis(1_800_000_000_000)))
}

fn entropy() -> Arc<SeededEntropy> {
    Arc::new(SeededEntropy::new(1))
}

fn ring(documents: &Arc<impl Documents>, clock: &Arc<TestClock>) -> KeyRing {
    KeyRing::new(documents.clone(), Algorithm::Es256, clock.clone(), entropy()).use_new_keys_after(ACTIVATION_DELAY)
}

fn kids(keys: &Keys) -> Vec<String> {
    keys.verifying().map(|key| key.kid().unwrap().to_owned()).collect()
}

/// Returns whether `opener` opens what `sealer` seals.
fn opens(sealer: &SealKeys, opener: &SealKeys) -> bool {
    let sealed = sealer.seal(&SeededEntropy::new(5), "place", b"secret").unwrap();
    opener.open("place", &sealed).is_ok()
}

#[tokio::test]
async fn the_first_of_several_servers_creates_the_keys_and_the_uids() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let (one, two) = (ring(&shared, &clock), ring(&shared, &clock));
    assert!(one.load().await.unwrap().is_none());
    assert!(Bootstrap::load(&*shared).await.unwrap().is_none());
    let (first, second) = tokio::join!(one.load_or_create(), two.load_or_create());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(kids(&first), kids(&second));
    assert_eq!((first.page_tokens(), first.sealing()), (second.page_tokens(), second.sealing()));
    let first = Bootstrap::load_or_create(&*shared, || Bootstrap::draw(&*entropy())).await.unwrap();
    let again = Bootstrap::load_or_create(&*shared, || panic!("only the first draws uids")).await;
    assert_eq!(again.unwrap(), first);
    assert_eq!(Bootstrap::load(&*shared).await.unwrap(), Some(first));
}

#[tokio::test]
async fn a_new_key_is_accepted_by_all_servers_before_one_uses_it() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let (one, two) = (ring(&shared, &clock), ring(&shared, &clock));
    let before = one.load_or_create().await.unwrap();
    clock.advance(3_600_000);
    let rotated = one.rotate().await.unwrap();
    assert_eq!(kids(&rotated)[0], kids(&before)[0], "the old key is still in use");
    assert_eq!(kids(&rotated).len(), 2, "the new key is published");
    assert_eq!(rotated.webhook_keys().count(), 2);
    assert_eq!(rotated.webhook().unwrap().kid(), before.webhook().unwrap().kid());
    assert_eq!(rotated.page_tokens()[0], before.page_tokens()[0]);
    assert_eq!(rotated.sealing()[0], before.sealing()[0]);
    assert!(opens(&rotated.seal_keys(), &before.seal_keys()), "a server that has not read the new key opens all");

    // Every server reads the new key within the delay, and uses it after the delay without another change.
    let seen = two.changed(&before).await.unwrap().unwrap();
    assert_eq!(kids(&seen), kids(&rotated));
    assert!(two.changed(&seen).await.unwrap().is_none(), "nothing to do until the delay ends");
    clock.advance(i64::try_from(ACTIVATION_DELAY.as_millis()).unwrap() - 1);
    assert!(two.changed(&seen).await.unwrap().is_none());
    clock.advance(1);
    let used = two.changed(&seen).await.unwrap().unwrap();
    assert_eq!(kids(&used), [kids(&rotated)[1].clone(), kids(&rotated)[0].clone()]);
    assert_ne!(used.sealing()[0], before.sealing()[0]);
    assert_ne!(used.page_tokens()[0], before.page_tokens()[0]);
    assert!(opens(&used.seal_keys(), &seen.seal_keys()), "a server that is late by one step opens all");
    assert!(two.changed(&used).await.unwrap().is_none());
    assert!(ACTIVATION_DELAY >= 5 * POLL_INTERVAL);
}

#[tokio::test]
async fn concurrent_rotations_each_add_their_keys() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let (one, two) = (ring(&shared, &clock), ring(&shared, &clock));
    one.load_or_create().await.unwrap();
    let (first, second) = tokio::join!(one.rotate(), two.rotate());
    first.unwrap();
    second.unwrap();
    assert_eq!(kids(&one.load().await.unwrap().unwrap()).len(), 3);
}

/// Returns the ids of the keys of each sort, those in use first: of signing keys, webhook keys, page-token keys and keys
/// that seal secrets.
fn ids(keys: &Keys) -> [Vec<String>; 4] {
    let secrets = |keys: &[SecretKey]| keys.iter().map(|key| key.id().to_owned()).collect();
    let webhooks = keys.webhook_keys().map(|(key, _)| key.kid().unwrap().to_owned()).collect();
    [kids(keys), webhooks, secrets(keys.page_tokens()), secrets(keys.sealing())]
}

#[tokio::test]
async fn a_key_is_revoked_unless_it_is_in_use_or_seals_secrets() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let ring = ring(&shared, &clock);
    ring.load_or_create().await.unwrap();
    for after_rotation in [0, ACTIVATION_DELAY.as_millis() as i64] {
        ring.rotate().await.unwrap();
        clock.advance(after_rotation);
        let mut now = ids(&ring.load().await.unwrap().unwrap());
        let refused = async |id: &str, why: &str| {
            let Err(DataDirError::NotRevoked { id: found, reason }) = ring.revoke(id).await else { panic!("{id}") };
            assert!(found == id && reason.contains(why), "{id}: {reason}");
        };
        refused("no id", "no key has this id").await;
        for id in &now[3] {
            refused(id, "secrets").await;
        }
        for sort in 0..3 {
            refused(&now[sort][0].clone(), "it is in use").await;
            let revoked = now[sort].remove(1);
            assert_eq!(ids(&ring.revoke(&revoked).await.unwrap()), now, "{revoked}");
            refused(&revoked, "no key has this id").await;
        }
        assert_eq!(ids(&ring.load().await.unwrap().unwrap()), now);
    }
}

#[tokio::test]
async fn renewed_keys_replace_all_but_those_that_seal_secrets() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let ring = KeyRing::new(shared.clone(), Algorithm::Es256, clock.clone(), entropy());
    let before = ring.load_or_create().await.unwrap();
    let (old, renewed) = (ids(&before), ring.renew().await.unwrap());
    let new = ids(&renewed);
    for sort in 0..3 {
        assert!(new[sort].len() == 1 && new[sort] != old[sort], "{new:?}");
    }
    assert_eq!(new[3][1..], old[3]);
    assert!(opens(&before.seal_keys(), &renewed.seal_keys()));
}

#[tokio::test]
async fn unusable_keys_are_reported_before_anything_is_written() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let ring = KeyRing::new(shared.clone(), Algorithm::Es256, clock.clone(), entropy());
    ring.load_or_create().await.unwrap();
    let contents = shared.documents.lock().unwrap()["keys"].0.clone();
    let mut file: serde_json::Value = serde_json::from_slice(&contents).unwrap();
    file["signing"][0]["kid"] = "another".into();
    shared.documents.lock().unwrap().insert("keys".to_owned(), (file.to_string().into_bytes(), 5));
    ring.rotate().await.unwrap_err();
    ring.renew().await.unwrap_err();
    assert_eq!(shared.documents.lock().unwrap()["keys"].1, 5);
}

#[tokio::test]
async fn keys_of_an_earlier_release_are_completed_in_the_document() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let ring = ring(&shared, &clock);
    let before = ring.load_or_create().await.unwrap();
    for (lacking, sort) in [("webhooks", 1), ("sealing", 3)] {
        let (contents, revision) = shared.documents.lock().unwrap()["keys"].clone();
        let mut file: serde_json::Value = serde_json::from_slice(&contents).unwrap();
        file.as_object_mut().unwrap().remove(lacking).unwrap();
        shared.documents.lock().unwrap().insert("keys".to_owned(), (file.to_string().into_bytes(), revision));
        let completed = ring.load_or_create().await.unwrap();
        assert_eq!((ids(&completed)[sort].len(), kids(&completed)), (1, kids(&before)), "{lacking}");
        assert_eq!(ids(&ring.load().await.unwrap().unwrap()), ids(&completed));
        assert!(ring.changed(&completed).await.unwrap().is_none(), "it has the revision of the completed document");
    }
}

#[tokio::test]
async fn one_server_uses_a_new_key_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let clock = clock();
    let documents = Arc::new(Directory::new(directory.path()));
    let ring = KeyRing::new(documents, Algorithm::Es256, clock.clone(), entropy());
    let before = ring.load_or_create().await.unwrap();
    let rotated = ring.rotate().await.unwrap();
    assert_eq!(kids(&rotated)[1], kids(&before)[0]);
    // The files are those that `Keys` reads and writes.
    let read = Keys::read(directory.path()).unwrap().unwrap();
    assert_eq!((kids(&read), read.sealing()), (kids(&rotated), rotated.sealing()));
    let changed = Keys::rotate(directory.path(), Algorithm::Es256, &*clock, &*entropy()).unwrap();
    assert_eq!(kids(&ring.changed(&rotated).await.unwrap().unwrap()), kids(&changed));
}

#[tokio::test]
async fn a_directory_writes_only_over_the_expected_revision() {
    let directory = tempfile::tempdir().unwrap();
    let documents = Directory::new(directory.path().join("data"));
    assert!(documents.read("a").await.unwrap().is_none());
    assert!(documents.write("a", 0, b"1").await.unwrap());
    assert!(!documents.write("a", 0, b"2").await.unwrap(), "the first wins");
    let first = documents.read("a").await.unwrap().unwrap();
    assert_eq!(&**first.contents, b"1");
    assert!(!documents.write("a", first.revision + 1, b"2").await.unwrap());
    assert!(documents.write("a", first.revision, b"2").await.unwrap());
    assert!(!documents.write("a", first.revision, b"3").await.unwrap(), "the revision has changed");
    assert_eq!(&**documents.read("a").await.unwrap().unwrap().contents, b"2");
    assert!(!documents.write("b", 7, b"1").await.unwrap(), "there is no such document");
}

#[tokio::test]
async fn plain_documents_are_read_where_that_is_allowed_and_sealed_by_reseal() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let keys = ring(&shared, &clock).load_or_create().await.unwrap();
    let new = || SealedDocuments::new(shared.clone(), [Zeroizing::new([1; 32])], entropy());
    let error = ring(&Arc::new(new()), &clock).load().await.unwrap_err();
    assert!(matches!(error, DataDirError::Sealed { .. }), "not allowed: {error}");
    let sealed = Arc::new(new().reading_plain());
    assert_eq!(kids(&ring(&sealed, &clock).load().await.unwrap().unwrap()), kids(&keys));

    sealed.reseal(&["keys", "bootstrap"]).await.unwrap();
    let error = ring(&shared, &clock).load().await.unwrap_err();
    assert!(error.to_string().contains("needs the key-encryption key"), "{error}");
    assert_eq!(kids(&ring(&Arc::new(new()), &clock).load().await.unwrap().unwrap()), kids(&keys));
    let (_, revision) = shared.documents.lock().unwrap()["keys"].clone();
    sealed.reseal(&["keys"]).await.unwrap();
    assert_eq!(
        shared.documents.lock().unwrap()["keys"].1,
        revision,
        "what is sealed with this key is not written again"
    );
}

#[tokio::test]
async fn sealed_documents_open_only_with_their_key_and_under_their_name() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let key = |byte| Zeroizing::new([byte; 32]);
    let sealed = |keys: &[u8]| {
        let keys: Vec<_> = keys.iter().map(|byte| key(*byte)).collect();
        Arc::new(SealedDocuments::new(shared.clone(), keys, entropy()))
    };
    let keys = ring(&sealed(&[1]), &clock).load_or_create().await.unwrap();
    let secret = hex::encode(keys.sealing()[0].secret());
    let stored = shared.documents.lock().unwrap()["keys"].0.clone();
    assert!(!String::from_utf8_lossy(&stored).contains("signing") && !hex::encode(&stored).contains(&secret));
    let error = ring(&sealed(&[2]), &clock).load_or_create().await.unwrap_err();
    assert!(error.to_string().contains("does not open with this key-encryption key"), "{error}");
    shared.documents.lock().unwrap().insert("bootstrap".to_owned(), (stored, 1));
    assert!(matches!(sealed(&[1]).read("bootstrap").await, Err(DataDirError::Sealed { .. })), "another name");
    shared.documents.lock().unwrap().remove("bootstrap");

    // A new key-encryption key in front opens what the old one sealed, and replaces it.
    sealed(&[2, 1]).reseal(&["keys", "bootstrap"]).await.unwrap();
    assert_eq!(kids(&ring(&sealed(&[2]), &clock).load().await.unwrap().unwrap()), kids(&keys));
    assert!(matches!(sealed(&[1]).read("keys").await, Err(DataDirError::Sealed { .. })));
}
