//! `platform-server token`: a token for an identity.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use platform_core::uid::Uid;
use platform_oidc::AccessToken;

use crate::{
    cli::Token,
    config::Config,
    installation::{Installation, known_url},
};

pub(crate) fn run(config: &Config, token: &Token) -> Result<ExitCode> {
    let installation = Installation::open(config)?;
    let identity = match &token.identity {
        Some(text) => Uid::parse(text).with_context(|| format!("the identity `{text}`"))?,
        None => installation.bootstrap.operator.clone(),
    };
    let token = issue(&installation, &known_url(config), &identity, token.ttl)?;
    #[expect(clippy::print_stdout, reason = "the command's output")]
    {
        println!("{token}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Issues a token of the server at this URL.
pub(crate) fn issue(installation: &Installation, url: &str, identity: &Uid, ttl: Duration) -> Result<String> {
    let request = AccessToken { subject: identity, audiences: &[url], ttl, claims: serde_json::Map::new() };
    Ok(installation.issuer(url)?.access_token(&request)?.token)
}

/// Reads a whole number and a unit: `90s`, `15m`, `1h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit = |seconds: u64| (text.get(..text.len().saturating_sub(1)), seconds);
    let (number, seconds) = match text.chars().last() {
        Some('s') => unit(1),
        Some('m') => unit(60),
        Some('h') => unit(60 * 60),
        Some('d') => unit(24 * 60 * 60),
        _ => (None, 0),
    };
    number
        .and_then(|number| number.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "must be a whole number and s, m, h or d, such as 15m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604_800), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "h", "1.5h", "-1h", "1 h", "1w", "99999999999999999999d", "1é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
