//! HTTP requests to URLs that others configure: key sets of issuers, and webhooks.
//!
//! [`reach`] has the client, which connects to public addresses only if a tenant and not the operator configured the URL;
//! [`fetch`] gets documents with it, within limits of size and time; [`Network`] has the certificate authorities and the
//! proxy for both.
//!
//! The crate neither installs nor requires a `CryptoProvider` or any other process-wide state.

pub mod fetch;
pub mod network;
pub mod reach;

pub use self::{
    fetch::{Fetch, HttpFetch},
    network::Network,
};
