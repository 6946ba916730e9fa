//! A server process.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use tempfile::NamedTempFile;

use super::{Ran, program};

/// The statuses of the gRPC health service.
pub(crate) const SERVING: u8 = 1;
pub(crate) const NOT_SERVING: u8 = 2;

/// Time limit for a server to start or to stop.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// The lines of standard output. The channel is closed when the process ends.
    lines: Receiver<String>,
    log: NamedTempFile,
    /// The URL that the server printed, empty until then.
    pub(crate) url: String,
}

impl Server {
    /// Starts `serve` in this directory on a free port and waits until it listens.
    #[track_caller]
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut command = program(dir, &["serve", "--listen", "127.0.0.1:0"]);
        Self::of(command.args(arguments)).unwrap_or_else(|ran| panic!("the server does not start: {ran:?}"))
    }

    /// Starts a server with this command and waits until it listens. Returns its output and exit code if it ends
    /// before.
    pub(crate) fn of(command: &mut Command) -> Result<Self, Ran> {
        let mut server = Self::spawn(command);
        let first = server.next_line();
        match first.as_deref().and_then(|line| line.strip_prefix("Listening on ")) {
            Some(url) => {
                server.url = url.to_owned();
                Ok(server)
            }
            None => Err(server.ended(first)),
        }
    }

    /// Starts a server with this command and does not wait.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let log = NamedTempFile::new().unwrap();
        let stderr = log.reopen().unwrap();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = spawned.unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, log, url: String::new() }
    }

    /// Returns the next line of output, or `None` if the process has closed it.
    #[track_caller]
    pub(crate) fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no output of the server within {TIMEOUT:?}: {}", self.log()),
        }
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }

    /// Returns the status of the gRPC health service, called over gRPC-Web.
    pub(crate) fn grpc_health(&self) -> u8 {
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        let head = "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        let head = format!("{head}Content-Type: application/grpc-web+proto\r\nContent-Length: 5\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &[0; 5]].concat()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        // The frame of a message of two bytes, whose first field is the status.
        let message = response.windows(7).find(|bytes| bytes.starts_with(&[0, 0, 0, 0, 2, 8])).unwrap();
        message[6]
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.pid())]).status();
        assert!(kill.unwrap().success());
    }

    /// Kills the process by SIGKILL, so that it cannot shut down gracefully, and returns its log.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log()
    }

    /// Waits for the process to exit.
    #[track_caller]
    pub(crate) fn wait(self) -> Ran {
        self.ended(None)
    }

    #[track_caller]
    fn ended(mut self, first: Option<String>) -> Ran {
        let started = Instant::now();
        let mut stdout: Vec<_> = first.into_iter().collect();
        while let Some(line) = self.next_line() {
            stdout.push(line);
            assert!(started.elapsed() < TIMEOUT, "the server does not exit: {stdout:?}");
        }
        let status = self.child.wait().unwrap();
        Ran { code: status.code(), stdout: stdout.join("\n"), stderr: self.log() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
