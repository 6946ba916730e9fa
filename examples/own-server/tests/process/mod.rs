//! Servers as processes of a test.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A server process, which is killed on drop.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a server with its log in the directory, and returns the URL that it prints.
    pub(crate) fn start(dir: &Path, command: &mut Command) -> (Self, String) {
        let log = fs::File::create(dir.join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let url = first.trim_end().strip_prefix("Listening on ");
        let url = url.unwrap_or_else(|| panic!("{}", fs::read_to_string(dir.join("log")).unwrap())).to_owned();
        (Self(child), url)
    }

    /// Stops the server in order.
    pub(crate) fn stop(mut self) {
        let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.0.id())]).status();
        assert!(kill.unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
