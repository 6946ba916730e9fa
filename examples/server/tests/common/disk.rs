//! A small disk that can be filled, and made read-only, without the rights of the system's administrator.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use tempfile::TempDir;

/// A file system in memory, which only processes that enter it see; it goes when this is dropped.
pub(crate) struct Disk {
    holder: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Disk {
    /// Makes a disk of so many megabytes. None where the system does not let its users have namespaces of their own;
    /// that is said, as it leaves something untested.
    pub(crate) fn new(megabytes: usize) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        // Each line is run, and answered by whether it succeeded.
        let shell = "while read -r line; do eval \"$line\" && echo done || echo failed; done";
        let holder = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", shell])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = holder.ok().or_else(|| {
            skipped();
            None
        })?;
        let commands = holder.stdin.take().unwrap();
        let answers = BufReader::new(holder.stdout.take().unwrap());
        let mut disk = Self { holder, commands, answers, directory };
        let mount = format!("mount -t tmpfs -o size={megabytes}m tmpfs {}", disk.path().display());
        if !disk.try_run(&mount) {
            skipped();
            return None;
        }
        Some(disk)
    }

    /// Returns where it is, for processes that enter it.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a place on it.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs a line of shell on it.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) {
        assert!(self.try_run(line), "{line}");
    }

    fn try_run(&mut self, line: &str) -> bool {
        let mut answer = String::new();
        let sent = writeln!(self.commands, "{line}");
        sent.and_then(|()| self.answers.read_line(&mut answer)).is_ok() && answer == "done\n"
    }

    /// Makes the disk read-only.
    pub(crate) fn write_protect(&mut self) {
        let path = self.path().display().to_string();
        self.run(&format!("mount -o remount,ro {path}"));
    }

    /// Returns the command as run on this disk.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut entering = Command::new("nsenter");
        entering.args(["--user", "--preserve-credentials", "--mount"]);
        entering.args(["--target", &self.holder.id().to_string(), "--"]);
        entering.arg(command.get_program()).args(command.get_args());
        entering
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn skipped() {
    let told =
        "SKIPPED: a small disk needs user namespaces (`unshare --map-root-user --mount`), which are refused here";
    let _ = writeln!(std::io::stderr(), "{told}");
}
