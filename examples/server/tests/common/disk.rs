//! A small disk that tests can fill or make read-only without root privileges.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use platform_testkit::not_run;
use tempfile::TempDir;

/// A tmpfs in its own mount namespace, visible only to processes that enter it. Removed on drop.
pub(crate) struct Disk {
    holder: Child,
    commands: ChildStdin,
    responses: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Disk {
    /// Creates a disk of this size. Where the system does not allow user namespaces, prints a line that begins with
    /// `NOT RUN` and returns `None`.
    pub(crate) fn new(megabytes: usize) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        // Runs each line of input and prints whether it succeeded.
        let shell = "while read -r line; do eval \"$line\" && echo done || echo failed; done";
        let holder = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", shell])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut holder) = holder else {
            print_not_run();
            return None;
        };
        let commands = holder.stdin.take().unwrap();
        let responses = BufReader::new(holder.stdout.take().unwrap());
        let mut disk = Self { holder, commands, responses, directory };
        let mount = format!("mount -t tmpfs -o size={megabytes}m tmpfs {}", disk.path().display());
        if !disk.try_run(&mount) {
            print_not_run();
            return None;
        }
        Some(disk)
    }

    /// Returns the mount point, for processes that enter the namespace.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of a file on the disk.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs a line of shell in the namespace.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) {
        assert!(self.try_run(line), "{line}");
    }

    fn try_run(&mut self, line: &str) -> bool {
        let mut response = String::new();
        let sent = writeln!(self.commands, "{line}");
        sent.and_then(|()| self.responses.read_line(&mut response)).is_ok() && response == "done\n"
    }

    /// Makes the disk read-only.
    pub(crate) fn write_protect(&mut self) {
        let path = self.path().display().to_string();
        self.run(&format!("mount -o remount,ro {path}"));
    }

    /// Returns a command that runs the given one in the namespace.
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

fn print_not_run() {
    let needs = "user namespaces (`unshare --map-root-user --mount`) are not allowed here";
    not_run("a test on a small disk", needs);
}
