//! Options of scheduled backups.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::Args;

use super::duration;

/// The operator's settings for scheduled backups.
#[derive(Debug, Args)]
#[command(next_help_heading = "Backups")]
pub(crate) struct BackupOptions {
    /// Directory in which a running server writes backups, with keys [default: none, no scheduled backups]
    #[arg(long, global = true, env = "PLATFORM_BACKUP_DIR", value_name = "DIR")]
    pub(crate) backup_dir: Option<PathBuf>,
    /// Time between two scheduled backups
    #[arg(long, global = true, env = "PLATFORM_BACKUP_EVERY", value_name = "TIME",
          value_parser = duration)]
    pub(crate) backup_every: Duration,
    /// Number of scheduled backups to keep; older ones are deleted
    #[arg(long, global = true, env = "PLATFORM_BACKUP_KEEP", value_name = "NUMBER")]
    pub(crate) backup_keep: NonZeroUsize,
}
