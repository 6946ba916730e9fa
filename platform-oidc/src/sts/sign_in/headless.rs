//! Encrypts the token of a headless sign-in for the client's key, by the published protocol: an ephemeral X25519 key
//! pair, and AES-256-GCM under the shared secret.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral},
    error::Unspecified,
    rand::SystemRandom,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::tokens::{HeadlessCode, HeadlessSession};
use platform_engine::{
    entropy::Entropy,
    error::{Error, Result},
};

/// Encrypts a token. Only the holder of the private key of `code` can decrypt it.
///
/// # Errors
/// INVALID_ARGUMENT for a code that is not a usable public key.
pub(super) fn encrypt(code: &HeadlessCode, token: &str, entropy: &dyn Entropy) -> Result<HeadlessSession> {
    let failed = |_: Unspecified| Error::invalid_field("headless_code", "is not a usable X25519 public key");
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(failed)?;
    let public = private.compute_public_key().map_err(failed)?;
    let mut nonce = [0; NONCE_LEN];
    entropy.fill(&mut nonce);
    let mut encrypted = token.as_bytes().to_vec();
    // The key is used once, so the nonce cannot repeat.
    agree_ephemeral(private, UnparsedPublicKey::new(&X25519, code.key()), Unspecified, |shared| {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, shared)?);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut encrypted)
    })
    .map_err(failed)?;
    Ok(HeadlessSession {
        ecdh_public_key: URL_SAFE_NO_PAD.encode(public.as_ref()).into_bytes(),
        encrypted_idtoken: [&nonce[..], &encrypted].concat(),
    })
}
