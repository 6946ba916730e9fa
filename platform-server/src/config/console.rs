//! Options of the console in the browser.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ConsoleOptions {
    /// Serve the console, a web page at /console
    #[arg(long, global = true, env = "PLATFORM_CONSOLE", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) console: bool,
}
