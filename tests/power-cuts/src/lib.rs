//! Power cuts and failed syncs.
//!
//! A program writes to a directory while a recorder writes down every operation on its files ([`Trace`]). A power cut
//! is then any point of that trace: what was synced is on the [`Disk`], and of the rest anything may be there, by whole
//! writes, by sectors, or not at all. For many cuts the directory is built as it could have been found afterwards, and
//! checked against what the program had acknowledged by then.
//!
//! The model is stricter than common file systems: syncing a file does not make its name durable, only syncing its
//! directory does.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

mod disk;
mod trace;
mod workload;

pub use disk::{Disk, Fate};
pub use trace::{Action, Operation, Trace};
pub use workload::{Acknowledged, Ran, Subject, verify, work};

/// A program that ran under the recorder, and what it did.
#[derive(Debug)]
pub struct Recording {
    /// What it did to its files.
    pub trace: Trace,
    /// What it acknowledged, and how it ended.
    pub ran: Ran,
}

/// Runs the workload of a subject in an empty directory under the recorder, and lets the sync with this number fail.
///
/// # Errors
/// When the workload cannot be run, or the trace cannot be read.
#[cfg(recorder)]
pub fn run(workload: &Path, subject: Subject, failing_sync: Option<u64>) -> Result<Recording> {
    let home = tempfile::tempdir()?;
    let root = home.path().canonicalize()?;
    let (directory, trace) = (root.join("recorded"), root.join("trace"));
    std::fs::create_dir(&directory)?;
    let mut command = Command::new(workload);
    command.arg(subject.to_string()).arg(&directory).arg(&trace);
    command.env("LD_PRELOAD", env!("RECORDER")).env("RECORD_DIR", &directory).env("RECORD_TRACE", &trace);
    if let Some(number) = failing_sync {
        command.env("RECORD_FAIL", number.to_string());
    }
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the workload failed: {}: {stderr}", output.status);
    let ran = serde_json::from_slice(&output.stdout).with_context(|| format!("the workload's report: {stderr}"))?;
    Ok(Recording { trace: Trace::read(&trace)?, ran })
}
