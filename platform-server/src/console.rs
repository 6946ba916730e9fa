//! The console in the browser, and `platform-server console`, which prints a link that signs its reader in.

use std::{
    io::{IsTerminal, Write, stdout},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use platform_console::{Console, Links, Options, ShortToken, Tokens};
use platform_core::iam::Iam;
use platform_engine::{error, platform::Platform, seal::Secret, timestamp::Timestamp, uid::Uid};
use platform_oidc::Verifier;
use serde_json::Value;

use crate::{
    cli::At,
    config::Config,
    installation::{Installation, block_on, known_url},
    running::{TIMEOUT, client},
};

/// The lifetime of the tokens that the page holds. Our choice.
const PAGE_TTL: Duration = Duration::from_secs(10 * 60);

/// The lifetime of the token behind a link, which ends the session.
const LINK_TTL: Duration = Duration::from_secs(12 * 60 * 60);

/// Issues the tokens of the page as short-lived copies of the user's own.
#[derive(Debug)]
struct Copies(Arc<Verifier>);

#[async_trait]
impl Tokens for Copies {
    async fn shorten(&self, token: &str) -> error::Result<ShortToken> {
        let short = self.0.shorten(token, PAGE_TTL).await?;
        Ok(ShortToken {
            token: Secret::new(short.token.token),
            expires: short.token.expires,
            session_expires: short.original_expires,
        })
    }

    async fn name(&self, platform: &Platform, identity: &Uid) -> error::Result<String> {
        Iam::of(platform).label(identity).await
    }

    async fn end(&self, platform: &Platform, identity: &Uid, session: &str, until: Timestamp) -> error::Result<()> {
        Iam::of(platform).end_session(identity, session, until).await
    }
}

/// Returns the console of a server at this URL, unless it is turned off.
pub(crate) fn open(
    config: &Config,
    platform: &Platform,
    verifier: &Arc<Verifier>,
    url: &str,
) -> Result<Option<Console>> {
    if !config.console.console {
        return Ok(None);
    }
    let mut options = Options::new(config.kinds.service().title(), url);
    options.about = config.kinds.service().about().to_owned();
    options.version = env!("CARGO_PKG_VERSION").to_owned();
    options.docs = "/docs".to_owned();
    options.browser_sign_in = config.sign_in.provider()?.is_some();
    options.tokens = Some(Arc::new(Copies(Arc::clone(verifier))));
    Ok(Some(Console::new(platform, &options)))
}

/// Returns a link for the person at the terminal. A link in a log, or one that other machines can open, would give the
/// operator's rights away.
pub(crate) fn link_at_start(
    console: &Console,
    config: &Config,
    installation: &Installation,
    platform: &Platform,
    url: &str,
) -> Result<Option<String>> {
    if !stdout().is_terminal() || !config.listen().ip().is_loopback() || config.public_url.is_some() {
        return Ok(None);
    }
    let operator = &installation.bootstrap.operator;
    let token = Secret::new(installation.token(url, operator, LINK_TTL)?);
    let code = console.links().make(platform.entropy(), platform.now(), operator, token)?;
    Ok(Some(Links::url(url, &code)))
}

/// Asks the running server for a link, and prints it.
pub(crate) fn run(config: &Config, at: &At) -> Result<ExitCode> {
    let given = at.url();
    let url = given.map_or_else(|| known_url(config), str::to_owned);
    let token = match at.token.as_ref().filter(|token| !token.is_empty()) {
        Some(token) => token.clone(),
        None => {
            let installation = block_on(Installation::open_existing(config)).context(
                "cannot issue a token: set the data directory of the server with --data-dir, or pass --token",
            )?;
            let operator = &installation.bootstrap.operator;
            installation.token(&installation.issuer_url(config)?, operator, LINK_TTL)?
        }
    };
    let agent: ureq::Agent = client(at)?.timeout_global(Some(TIMEOUT)).build().into();
    let sent =
        agent.post(format!("{url}/console/links")).header("authorization", &format!("Bearer {token}")).send_empty();
    let mut response = sent.with_context(|| format!("no response from {url}: is the server running?"))?;
    let body = response.body_mut().read_to_string().context("lost the connection to the server")?;
    let reply: Value = serde_json::from_str(&body).unwrap_or_default();
    let text = |name: &str| reply.get(name).and_then(Value::as_str);
    match text("url") {
        Some(link) => writeln!(stdout(), "{link}")?,
        None if response.status() == 404 => bail!("{url} has no console: it was started with --console=false"),
        None => bail!("{url} returned {}: {}", response.status().as_u16(), text("message").unwrap_or(&body)),
    }
    Ok(ExitCode::SUCCESS)
}
