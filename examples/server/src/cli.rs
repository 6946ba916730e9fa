//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::config::Options;

/// An open implementation of Platform API v2.
#[derive(Debug, Parser)]
#[command(name = "platform-server", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Default, Subcommand)]
pub(crate) enum Command {
    /// Serve the API (the default)
    #[default]
    Serve,
    /// Print API, ORG_ID and a fresh TOKEN for `eval "$(platform-server env)"`
    Env,
    /// Print a token for an identity
    Token(Token),
    /// Prove the store: every row, index entry, counter and key; no server may run on it
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The identity to act as; the operator's when omitted
    #[arg(long, value_name = "UID")]
    pub(crate) identity: Option<String>,
    /// How long the token is good, such as 90s, 15m, 1h or 7d; at most 30d
    #[arg(long, default_value = "1h", value_parser = crate::token::duration)]
    pub(crate) ttl: std::time::Duration,
}
