//! An issuer reads the keys of its installation again when a token has a key that it does not know.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod common;
#[path = "../../platform-keys/tests/support/shared.rs"]
mod shared;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use common::*;
use platform_keys::{ACTIVATION_DELAY, Algorithm, KeyRing, Keys};
use platform_oidc::{Issuer, TokenError};
use shared::Shared;

#[tokio::test(start_paused = true)]
async fn a_token_with_an_unknown_key_makes_a_server_read_the_keys_once_a_second() {
    let (shared, clock) = (Arc::new(Shared::default()), clock());
    let ring = || {
        let ring = KeyRing::new(shared.clone(), Algorithm::Es256, clock.clone(), entropy());
        ring.use_new_keys_after(ACTIVATION_DELAY)
    };
    let (one, two) = (ring(), Arc::new(ring()));
    let keys = Arc::new(one.load_or_create().await.unwrap());
    let issuer = |keys| Issuer::new(OWN, keys, clock.clone(), entropy()).unwrap();
    let second = Arc::new(issuer(keys.clone()).reloading_from(two));
    let verifier = verifier(Some(second), vec![], &clock);
    one.rotate().await.unwrap();
    clock.advance(60_000);
    let first = issuer(Arc::new(one.load().await.unwrap().unwrap()));
    verifier.verify(&own_token(&first)).await.expect("the second server reads the new key");

    let foreign = issuer(Arc::new(Keys::generate(Algorithm::Es256, &*clock, &*entropy()).unwrap()));
    let foreign = own_token(&foreign);
    tokio::time::advance(Duration::from_secs(1)).await;
    let before = shared.reads.load(Ordering::SeqCst);
    for _ in 0..10 {
        assert_eq!(verifier.verify(&foreign).await.unwrap_err(), TokenError::Key);
    }
    assert_eq!(shared.reads.load(Ordering::SeqCst), before + 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(verifier.verify(&foreign).await.unwrap_err(), TokenError::Key);
    assert_eq!(shared.reads.load(Ordering::SeqCst), before + 2);
}
