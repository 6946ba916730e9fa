//! Bearer tokens: the server's own OIDC issuer, the issuers that its operator trusts, and one verifier for both.
//!
//! `platform-core` has no tokens, no cryptography in C and no async runtime. This crate adds all three, and REST, gRPC
//! and the server share it: [`Verifier::verify`] authenticates a bearer token and returns the uid of its identity.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use platform_testkit::{SeededEntropy, TestClock};
//! # use platform_engine::{timestamp::Timestamp, uid::Uid};
//! # let clock = Arc::new(TestClock::at(Timestamp::from_millis(1_800_000_000_000)));
//! # let entropy = Arc::new(SeededEntropy::new(1));
//! use platform_oidc::{AccessToken, Issuer, Verifier, VerifierOptions};
//! use platform_keys::{Algorithm, Keys};
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
//! Modules, in reading order: [`verifier`] authenticates requests; [`sts`] exchanges tokens; [`jws`] and [`jwks`]
//! implement tokens and key sets; [`discovery`] gets the keys of trusted issuers; [`issuer`] is the server's own issuer.
//! The keys are those of `platform-keys`, and requests are sent by `platform-outbound`.
//!
//! The crate neither installs nor requires a `CryptoProvider` or any other process-wide state.

mod authenticator;
mod shorten;
pub mod sts;
pub mod verifier;

mod claims;
pub mod error;
mod json;
pub mod jwks;
pub mod jws;

pub mod discovery;
mod fetch_limits;
mod issuers;
mod url;

pub mod issuer;

pub use self::{
    discovery::{DiscoveryOptions, TrustedIssuer},
    error::TokenError,
    issuer::{AccessToken, Issuer},
    shorten::Shortened,
    sts::{AwsHost, InvalidAwsHost, SignInProvider, Sts, StsOptions, offline_claims},
    url::InvalidIssuer,
    verifier::{Verified, Verifier, VerifierOptions},
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
