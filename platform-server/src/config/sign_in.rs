//! Options for browser sign-ins.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use platform_engine::seal::Secret;
use platform_oidc::SignInProvider;

/// The maximum length of the client secret, in bytes.
const MAX_SECRET: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct SignInOptions {
    /// OIDC issuer for browser sign-ins, unless the program names an organization's own provider; it is
    /// trusted as if given with --trusted-issuer
    #[arg(long, global = true, env = "PLATFORM_SIGN_IN_ISSUER", value_name = "URL")]
    pub(crate) sign_in_issuer: Option<String>,
    /// Client id of this server at that issuer
    #[arg(long, global = true, env = "PLATFORM_SIGN_IN_CLIENT_ID", value_name = "ID")]
    pub(crate) sign_in_client_id: Option<String>,
    /// File with the client secret of this server at that issuer; without it, the server is a public client
    #[arg(long, global = true, env = "PLATFORM_SIGN_IN_CLIENT_SECRET_FILE", value_name = "FILE")]
    sign_in_client_secret_file: Option<PathBuf>,
}

impl SignInOptions {
    /// Rejects invalid combinations of options.
    pub(crate) fn checked(&self) -> Result<()> {
        if self.sign_in_issuer.is_some() != self.sign_in_client_id.is_some() {
            bail!("sign-ins need both an issuer and a client id: set --sign-in-issuer and --sign-in-client-id");
        }
        if self.sign_in_issuer.is_none() && self.sign_in_client_secret_file.is_some() {
            bail!("a client secret belongs to an issuer: set --sign-in-issuer and --sign-in-client-id");
        }
        Ok(())
    }

    /// Returns the identity provider of the operator, if there is one. Reads the client secret.
    ///
    /// # Errors
    /// When the file cannot be read, is empty or is too long.
    pub(crate) fn provider(&self) -> Result<Option<SignInProvider>> {
        let (Some(issuer), Some(client_id)) = (&self.sign_in_issuer, &self.sign_in_client_id) else { return Ok(None) };
        let secret = self.sign_in_client_secret_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let secret = text.trim_end_matches(['\r', '\n']);
            if secret.is_empty() || secret.len() > MAX_SECRET {
                bail!("{} must have a client secret of 1 to {MAX_SECRET} bytes", path.display());
            }
            Ok(Secret::new(secret))
        });
        let client_secret = secret.transpose()?;
        Ok(Some(SignInProvider { issuer: issuer.clone(), client_id: client_id.clone(), client_secret }))
    }
}
