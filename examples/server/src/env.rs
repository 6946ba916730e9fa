//! `platform-server env`: prints the variables that the curl examples of the documentation use.

use std::{
    borrow::Cow,
    io::{Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;

use crate::{
    config::Config,
    installation::{Installation, block_on},
    token,
};

/// Lifetime of the printed token.
const TTL: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let installation = block_on(Installation::open_existing(config))?;
    let url = installation.issuer_url(config)?;
    let bootstrap = &installation.bootstrap;
    let token = token::issue(&installation, &url, &bootstrap.operator, TTL)?;
    for (name, value) in [("API", url.as_str()), ("ORG_ID", &bootstrap.organization), ("TOKEN", &token)] {
        writeln!(stdout(), "export {name}={}", word(value))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a text as one word of a shell command line, quoted if necessary. A text with a NUL byte, which no shell can
/// pass on, is returned unchanged.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    shlex::try_quote(text).unwrap_or(Cow::Borrowed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_text_back_unchanged() {
        for text in ["plain", "with 'quotes'", "$HOME `x` \\ \"", ""] {
            let shell = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", word(text))).output();
            assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), text);
        }
    }
}
