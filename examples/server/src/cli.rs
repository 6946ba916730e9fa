//! The command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use platform_core::uid::Uid;

use crate::config::{self, Config};

/// An open implementation of Platform API v2
///
/// Every option `--some-thing` is also the variable PLATFORM_SOME_THING and the key `some-thing` of the file that
/// --config names. Flags win over variables, variables over the file; an empty variable counts as none. What can be
/// repeated is separated by commas in a variable and an array in the file.
#[derive(Debug, Parser)]
#[command(name = "platform-server", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) config: Config,
}

#[derive(Debug, Default, Subcommand)]
pub(crate) enum Command {
    /// Serve the API, the default
    ///
    /// The first start makes keys, an organisation and its operator in the data directory. The first line of output is
    /// "Listening on " and the URL; the log goes to the standard error stream. SIGTERM and SIGINT let open requests
    /// finish.
    #[default]
    Serve,
    /// Print API, ORG_ID and a fresh TOKEN for `eval "$(platform-server env)"`
    ///
    /// The token is the operator's and good for 12 hours. The server need not run, and may.
    Env,
    /// Print a token for an identity
    Token(Token),
    /// Show or replace the keys of the data directory
    ///
    /// They sign tokens, authenticate page tokens and seal secrets in the store.
    #[command(subcommand)]
    Keys(Keys),
    /// Prove the store: every row, index entry, counter and key
    ///
    /// No server may run on it. Prints what is wrong; exits with 0 when nothing is.
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List the keys, the newest of each sort first, without their secrets
    List,
    /// Put a new key of each sort in front
    ///
    /// Tokens that the keys before signed are good until they expire, and page tokens for their three days. A server
    /// that runs on the directory goes over to the new keys within seconds.
    Rotate,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The identity to act as [default: the operator]
    #[arg(long, value_name = "UID", value_parser = Uid::parse)]
    pub(crate) identity: Option<Uid>,
    /// How long the token is good, such as 90s, 15m, 1h or 7d; at most 30d
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = config::duration)]
    pub(crate) ttl: Duration,
}
