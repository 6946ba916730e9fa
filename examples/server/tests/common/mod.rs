//! What the tests of the binary share: a directory to run it in, a server process, and a client.

#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod api;
mod disk;
mod server;

use std::{
    path::Path,
    process::{Command, Output},
};

pub(crate) use self::{
    api::{Answer, Api},
    disk::Disk,
    server::Server,
};

/// The stores that a server can have.
pub(crate) const STORES: [&str; 3] = ["sqlite", "sled", "memory"];

/// Returns the binary with these arguments, in this directory and an environment of its own.
pub(crate) fn program(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_platform-server"));
    command.env_clear().current_dir(dir).args(arguments);
    command
}

/// Runs the binary to its end.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Ran {
    Ran::of(program(dir, arguments).output().unwrap())
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns what it said, which must have been in good health.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Returns why it failed: one line for its user, and exit code 1.
    #[track_caller]
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.stderr.starts_with("platform-server: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self.stderr
    }
}

/// Returns the API of the server that was last started on this data directory, as `env` tells a shell.
pub(crate) fn api(dir: &Path, arguments: &[&str]) -> (Api, String) {
    let lines = run(dir, &[&["env"], arguments].concat()).ok();
    let script = format!("{lines}printf '%s\\n' \"$API\" \"$ORG_ID\" \"$TOKEN\"");
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    let values = String::from_utf8(shell.stdout).unwrap();
    let [url, organisation, token] = values.lines().collect::<Vec<_>>()[..] else { panic!("{lines}") };
    (Api::new(url, token), organisation.to_owned())
}
