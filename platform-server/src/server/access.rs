//! The callers of a server: the issuer of its tokens, the issuers that it trusts, and the services that exchange tokens.

use std::sync::Arc;

use anyhow::{Context, Result};
use platform_core::{
    resources::iam::normalize_issuer,
    tokens::{SignInService, TokenService},
};
use platform_engine::{access::Authenticator, platform::Platform};
use platform_oidc::{DiscoveryOptions, Issuer, Sts, StsOptions, TrustedIssuer, Verifier, VerifierOptions};
use platform_outbound::{HttpFetch, Network};
use platform_system::SystemClock;

use super::Base;
use crate::{
    audit::{Authenticated, IssuedBy},
    config::Config,
    metrics::Counting,
};

/// Authenticates callers, and exchanges tokens.
pub(super) struct Access {
    pub(super) issuer: Arc<Issuer>,
    pub(super) verifier: Arc<Verifier>,
    /// The verifier, which notes callers for the audit log and counts their organizations for the metrics.
    pub(super) authenticator: Arc<dyn Authenticator>,
    pub(super) tokens: Arc<dyn TokenService>,
    pub(super) sign_ins: Arc<dyn SignInService>,
    /// The way to issuers and sinks.
    pub(super) network: Network,
}

impl Access {
    pub(super) fn new(config: &Config, base: &Base) -> Result<Self> {
        let issuer = Arc::new(base.installation.issuer(&base.url)?);
        let network = config.network.network()?;
        let verifier = Arc::new(verifier(config, &network, &base.url, Arc::clone(&issuer))?);
        let sts = Arc::new(sts(config, &network, Arc::clone(&base.platform), Arc::clone(&verifier))?);
        let is_audited = config.audit.audit_log.is_some();
        let authenticator: Arc<dyn Authenticator> =
            if is_audited { Arc::new(Authenticated(Arc::clone(&verifier))) } else { verifier.clone() };
        let (tokens, sign_ins): (Arc<dyn TokenService>, Arc<dyn SignInService>) =
            if is_audited { (Arc::new(IssuedBy(sts.clone())), Arc::new(IssuedBy(sts))) } else { (sts.clone(), sts) };
        let authenticator = Counting::around(authenticator, &config.observe.metrics_organization)?;
        Ok(Self { issuer, verifier, authenticator, tokens, sign_ins, network })
    }
}

fn verifier(config: &Config, network: &Network, url: &str, issuer: Arc<Issuer>) -> Result<Verifier> {
    let fetch = Arc::new(HttpFetch::new(network).context("cannot set up TLS")?);
    let options = DiscoveryOptions { allow_http: config.allow_http_issuers, ..DiscoveryOptions::default() };
    let mut trusted = config.trusted_issuer.clone();
    let is_new = |issuer: &&String| trusted.iter().all(|url| normalize_issuer(url) != normalize_issuer(issuer));
    trusted.extend(config.sign_in.sign_in_issuer.iter().filter(is_new).cloned().collect::<Vec<_>>());
    let trusted = trusted.iter().map(|url| {
        TrustedIssuer::new(url, options.clone(), fetch.clone(), Arc::new(SystemClock))
            .with_context(|| format!("invalid trusted issuer `{url}`"))
    });
    let audiences = std::iter::once(url.to_owned()).chain(config.audience.iter().cloned()).collect();
    let options = VerifierOptions {
        own: Some(issuer),
        trusted: trusted.collect::<Result<_>>()?,
        audiences,
        cache_bytes: VerifierOptions::CACHE_BYTES,
    };
    Verifier::new(options, Arc::new(SystemClock)).context("invalid issuers or audiences")
}

/// Returns the token service. It contacts issuers that tenants name only on the public network, unless the operator
/// allows private issuers. Hosts of AWS that the operator names may be in any network.
fn sts(config: &Config, network: &Network, platform: Arc<Platform>, verifier: Arc<Verifier>) -> Result<Sts> {
    let fetch = if config.allow_private_issuers { HttpFetch::new(network) } else { HttpFetch::public_only(network) };
    let fetch = Arc::new(fetch.context("cannot set up TLS")?);
    let discovery = DiscoveryOptions { allow_http: config.allow_http_issuers, ..DiscoveryOptions::default() };
    let options = StsOptions { platform, verifier, fetch, discovery, clock: Arc::new(SystemClock) };
    let sts = Sts::new(options).context("cannot set up the token service")?;
    let sts = match &*config.aws_sts_host {
        [] => sts,
        hosts => sts.with_aws_hosts(hosts.to_vec(), Arc::new(HttpFetch::new(network).context("cannot set up TLS")?)),
    };
    match config.sign_in.provider()? {
        Some(provider) => sts.with_sign_in(provider).context("cannot set up browser sign-ins"),
        None => Ok(sts),
    }
}
