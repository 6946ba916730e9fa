//! Simulation of power cuts and failed syncs.
//!
//! A program writes to a directory while a recorder records every operation on its files ([`Trace`]). A power cut is a
//! point in the trace: data that was synced before it is on the [`Disk`], and of all other operations any part may be
//! there, whole, by sectors, or not at all. For many cuts, the tests build a directory as it could be found afterwards,
//! and compare it with the writes that the program had acknowledged before the cut.
//!
//! The model is stricter than common file systems: syncing a file does not make its name durable; only syncing its
//! directory does.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

mod disk;
mod trace;
mod workload;

pub use disk::{Disk, Fate};
pub use trace::{Action, Operation, Trace};
pub use workload::{Acknowledged, Ran, Subject, verify, work};

/// A recorded run of the workload.
#[derive(Debug)]
pub struct Recording {
    /// The operations on its files.
    pub trace: Trace,
    /// The writes that it acknowledged, and the errors that it got.
    pub ran: Ran,
}

impl Recording {
    /// Reads a recording that [`Recording::keep`] wrote to a directory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(directory: &Path) -> Result<Self> {
        let ran = serde_json::from_slice(&fs::read(directory.join("ran.json"))?)?;
        Ok(Self { trace: Trace::read(&directory.join("trace"))?, ran })
    }

    /// Writes the recording to a directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, directory: &Path) -> Result<()> {
        fs::write(directory.join("ran.json"), serde_json::to_vec(&self.ran)?)?;
        self.trace.write(&directory.join("trace"))
    }
}

/// Runs the workload of a subject in an empty directory under the recorder; the sync with the number `failing_sync`
/// fails, counted from 1.
///
/// # Errors
/// If the workload fails, or the trace cannot be read.
#[cfg(recorder)]
pub fn run(workload: &Path, subject: Subject, failing_sync: Option<u64>) -> Result<Recording> {
    let home = tempfile::tempdir()?;
    let root = home.path().canonicalize()?;
    let (directory, trace) = (root.join("recorded"), root.join("trace"));
    fs::create_dir(&directory)?;
    let mut command = Command::new(workload);
    command.arg(subject.to_string()).arg(&directory).arg(&trace);
    command.env("LD_PRELOAD", env!("RECORDER")).env("RECORD_DIR", &directory).env("RECORD_TRACE", &trace);
    if let Some(number) = failing_sync {
        command.env("RECORD_FAIL", number.to_string());
    }
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the workload failed: {}: {stderr}", output.status);
    let ran = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cannot read the workload's report: {stderr}"))?;
    Ok(Recording { trace: Trace::read(&trace)?, ran })
}
