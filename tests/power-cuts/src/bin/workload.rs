//! Writes to a store, or to the files of a data directory, and prints the acknowledged writes as JSON.
//!
//! Usage: `workload SUBJECT DIRECTORY TRACE`. The tests run it under the recorder.

use std::{env, io::stdout, path::Path};

use anyhow::{Result, bail};
use power_cuts::{Subject, work};

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [subject, directory, trace] = arguments.as_slice() else { bail!("usage: workload SUBJECT DIRECTORY TRACE") };
    let subject: Subject = serde_json::from_value(subject.as_str().into())?;
    let ran = work(subject, Path::new(directory), Path::new(trace));
    serde_json::to_writer(stdout(), &ran)?;
    Ok(())
}
