//! Options of the audit log.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::bytes;

/// The operator's settings for the audit log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit log")]
pub(crate) struct AuditOptions {
    /// File to which the server writes changes, as JSON lines; FILE.sign-ins has issued tokens, and FILE.failed denied and
    /// failed requests [default: none]
    #[arg(long, global = true, env = "PLATFORM_AUDIT_LOG", value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Size of a file of the audit log at which it is renamed to FILE.1 and a new one begins
    #[arg(long, global = true, env = "PLATFORM_AUDIT_LOG_SIZE", value_name = "BYTES",
          value_parser = bytes)]
    pub(crate) audit_log_size: u64,
    /// Number of renamed files to keep, of each of the three; older ones are deleted
    #[arg(long, global = true, env = "PLATFORM_AUDIT_LOG_KEEP", value_name = "NUMBER")]
    pub(crate) audit_log_keep: NonZeroUsize,
}
