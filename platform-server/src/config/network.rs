//! Options of the way to other servers.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use platform_outbound::Network;

/// How the server reaches issuers, sinks and AWS.
#[derive(Debug, Args)]
#[command(next_help_heading = "Outbound requests")]
pub(crate) struct NetworkOptions {
    /// PEM file with certification authorities that are trusted in addition to the public ones, for issuers, sinks and AWS
    /// [default: SSL_CERT_FILE]. Requests to them use the proxy of HTTPS_PROXY, except to the hosts of NO_PROXY
    #[arg(long, global = true, env = "PLATFORM_OUTBOUND_CA", value_name = "FILE")]
    outbound_ca: Option<PathBuf>,
}

impl NetworkOptions {
    /// Returns the network. Reads the certificates, and the variables that other programs use, too.
    ///
    /// # Errors
    /// When the file cannot be read or used, or the proxy is not an HTTP proxy.
    pub(crate) fn network(&self) -> Result<Network> {
        let mut network = Network::default();
        let given = self.outbound_ca.clone().map(|path| ("--outbound-ca", path));
        let file = given.or_else(|| Some(("SSL_CERT_FILE", variable(&["SSL_CERT_FILE"])?.into())));
        if let Some((name, path)) = file {
            let place = || format!("{name} {}", path.display());
            let pem = fs::read(&path).with_context(place)?;
            network = network.trusting(&pem).with_context(place)?;
        }
        if let Some(proxy) = variable(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]) {
            let except = variable(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
            network = network.through(&proxy, &except).context("HTTPS_PROXY or ALL_PROXY")?;
        }
        Ok(network)
    }
}

/// Returns the first of these environment variables that is not empty.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
}
