//! The files of the audit log.
//!
//! A caller without rights decides how many requests are denied and how many tokens it gets, and must not be able to
//! rotate the entries of changes away. So each of these has a file of its own, with its own rotation. Rejected: counting
//! the denied requests of a caller instead of writing them, because a caller has many addresses and identities, and the
//! entries that a count replaces are the evidence of an attack.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Result, bail};
use metrics::counter;
use parking_lot::Mutex;

use super::{FAILURES, entry::Entry, file::Rotated};
use crate::config::AuditOptions;

/// The file that an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Something was changed, by a caller who may.
    Changes,
    /// A token was issued, or a person has changed their own registration.
    SignIns,
    /// The request was denied, or has failed or changed nothing.
    Failed,
}

/// The audit log of a server.
#[derive(Debug)]
pub(crate) struct AuditLog {
    changes: Mutex<Rotated>,
    sign_ins: Mutex<Rotated>,
    failed: Mutex<Rotated>,
    /// Whether the last entry could not be written.
    has_failed: AtomicBool,
}

impl AuditLog {
    /// Opens the configured log, if there is one.
    pub(crate) fn open(options: &AuditOptions) -> Result<Option<Arc<Self>>> {
        let Some(path) = &options.audit_log else { return Ok(None) };
        let [sign_ins, failed] = ["sign-ins", "failed"].map(|part| part_of(path, part));
        if path.extension().is_some_and(|extension| extension == "sign-ins" || extension == "failed") {
            bail!("--audit-log {} is the name of a part of another audit log; choose another name", path.display());
        }
        let open =
            |path: &Path| Rotated::open(path, options.audit_log_size, options.audit_log_keep.get()).map(Mutex::new);
        Ok(Some(Arc::new(Self {
            changes: open(path)?,
            sign_ins: open(&sign_ins)?,
            failed: open(&failed)?,
            has_failed: AtomicBool::new(false),
        })))
    }

    /// Writes an entry. The request has been handled, so a failure is only reported.
    pub(super) fn write(&self, part: Part, entry: &Entry<'_>) {
        let file = match part {
            Part::Changes => &self.changes,
            Part::SignIns => &self.sign_ins,
            Part::Failed => &self.failed,
        };
        let written = serde_json::to_vec(entry).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            file.lock().write(&line)
        });
        let had_failed = self.has_failed.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Err(error) => {
                counter!(FAILURES).increment(1);
                if !had_failed {
                    tracing::error!(%error, "entries of the audit log cannot be written and are lost");
                }
            }
            Ok(()) if had_failed => tracing::warn!("entries of the audit log are written again"),
            Ok(()) => {}
        }
    }
}

fn part_of(path: &Path, part: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{part}"));
    name.into()
}
