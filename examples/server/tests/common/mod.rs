//! Shared test support: runs the binary in a directory, starts server processes, and provides an API client.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod api;
pub(crate) mod audit;
mod disk;
mod server;

use std::{
    path::Path,
    process::{Command, Output},
};

pub(crate) use self::{
    api::{Api, Response},
    disk::Disk,
    server::{NOT_SERVING, SERVING, Server},
};

/// The available stores.
pub(crate) const STORES: [&str; 3] = ["sqlite", "sled", "memory"];

/// Returns a command that runs the binary in this directory with these arguments and an empty environment.
pub(crate) fn program(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_platform-server"));
    command.env_clear().current_dir(dir).args(arguments);
    command
}

/// Runs the binary until it exits.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Ran {
    Ran::of(program(dir, arguments).output().unwrap())
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code, or `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns the output of a command, which must have succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Returns the error message of a command, which must have failed with exit code 1 and without a panic.
    #[track_caller]
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.stderr.starts_with("platform-server: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self.stderr
    }
}

/// Returns a client of the server that was last started on this data directory, and the first organization, as `env`
/// prints them for a shell.
pub(crate) fn api(dir: &Path, arguments: &[&str]) -> (Api, String) {
    let lines = run(dir, &[&["env"], arguments].concat()).ok();
    let script = format!("{lines}printf '%s\\n' \"$API\" \"$ORG_ID\" \"$TOKEN\"");
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    let values = String::from_utf8(shell.stdout).unwrap();
    let [url, organization, token] = values.lines().collect::<Vec<_>>()[..] else { panic!("{lines}") };
    (Api::new(url, token), organization.to_owned())
}
