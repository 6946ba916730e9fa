//! `platform-server env`: the variables that the documentation's curl lines use.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{
    config::Config,
    installation::{Installation, known_url},
    token,
};

/// How long the printed token is good.
const TTL: Duration = Duration::from_secs(12 * 60 * 60);

pub(crate) fn run(config: &Config) -> Result<ExitCode> {
    let installation = Installation::open(config)?;
    let url = known_url(config);
    let bootstrap = &installation.bootstrap;
    let token = token::issue(&installation, &url, &bootstrap.operator, TTL)?;
    for (name, value) in [("API", url.as_str()), ("ORG_ID", &bootstrap.organization), ("TOKEN", &token)] {
        #[expect(clippy::print_stdout, reason = "the command's output")]
        {
            println!("export {name}={}", quoted(value));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Quotes for any POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in ["plain", "with 'quotes'", "$HOME `x` \\ \"", ""] {
            let shell = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(text))).output();
            assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), text);
        }
    }
}
