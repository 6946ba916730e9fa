//! Bearer tokens: a server's own OIDC issuer, the issuers its operator trusts, and one verifier for both.
//!
//! `platform-core` knows no tokens, no cryptography in C and no async runtime. All of that is here, and REST, gRPC and
//! the server share it: [`Verifier::verify`] makes of a bearer token the uid of whoever sends it.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use platform_core::{clock::Clock, entropy::Entropy, timestamp::Timestamp, uid::Uid};
//! # #[derive(Debug)] struct Noon;
//! # impl Clock for Noon { fn now(&self) -> Timestamp { Timestamp::from_millis(1_800_000_000_000) } }
//! # #[derive(Debug)] struct Dice;
//! # impl Entropy for Dice { fn fill(&self, bytes: &mut [u8]) { bytes.fill(4) } }
//! # let (clock, entropy) = (Arc::new(Noon), Arc::new(Dice));
//! use platform_oidc::{AccessToken, Algorithm, Issuer, Keys, Verifier, VerifierOptions};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let keys = Arc::new(Keys::generate(Algorithm::Es256, &*clock, &*entropy)?);
//! let issuer = Arc::new(Issuer::new("http://localhost:8080", keys, clock.clone(), entropy.clone())?);
//! let me = Uid::new_root(&*entropy);
//! let issued = issuer.access_token(&AccessToken {
//!     subject: &me,
//!     audiences: &["http://localhost:8080"],
//!     ttl: Duration::from_secs(3600),
//!     claims: Default::default(),
//! })?;
//!
//! let verifier = Verifier::new(
//!     VerifierOptions {
//!         own: Some(issuer),
//!         trusted: vec![],
//!         audiences: vec!["http://localhost:8080".into()],
//!         cache_bytes: VerifierOptions::CACHE_BYTES,
//!     },
//!     clock,
//! )?;
//! assert_eq!(verifier.verify(&issued.token).await?.principal, me);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The map, in reading order: [`verifier`] is what a request meets; [`sts`] exchanges tokens; [`jws`], [`key`] and [`jwks`] are tokens and keys
//! by themselves; [`discovery`] and [`fetch`] get the keys of trusted issuers; [`issuer`] is the server's own;
//! [`data_dir`] keeps its keys.
//!
//! No `CryptoProvider` or other process-wide state is installed, and none is needed.

mod authenticator;
pub mod sts;
pub mod verifier;

mod claims;
pub mod error;
mod json;
pub mod jwks;
pub mod jws;
pub mod key;

pub mod discovery;
pub mod fetch;
mod issuers;
pub mod reach;
mod shares;
mod url;

pub mod data_dir;
pub mod issuer;

pub use platform_core::resources::iam::person_uid;

pub use self::{
    data_dir::{Bootstrap, DataDirError, Keys, KeysStamp, SecretKey},
    discovery::{DiscoveryOptions, TrustedIssuer},
    error::TokenError,
    fetch::{Fetch, HttpFetch},
    issuer::{AccessToken, Issuer},
    jws::Algorithm,
    sts::{Sts, StsOptions},
    url::InvalidIssuer,
    verifier::{Verified, Verifier, VerifierOptions},
};
