//! Servers in separate processes, loaded in alternating turns.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    data,
    measure::{Goal, Line, median, rounds, variable},
};

/// Returns the duration of a turn: `BENCH_SECONDS`, by default 2.
pub fn turn() -> Duration {
    Duration::from_secs_f64(variable("BENCH_SECONDS", 2.0))
}

/// Result of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests per second.
    pub rate: f64,
    /// CPU time of the server's process per request, in microseconds.
    pub cpu: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99: f64,
}

impl Load {
    /// Returns the result from the latency of each request and the CPU time of the server, in microseconds.
    pub fn of(mut latencies: Vec<f64>, time: Duration, cpu: f64) -> Self {
        latencies.sort_by(f64::total_cmp);
        let requests = latencies.len() as f64;
        Self { rate: requests / time.as_secs_f64(), cpu: cpu / requests, p99: latencies[latencies.len() * 99 / 100] }
    }
}

/// Loads two sides in alternating turns.
pub fn turns(mut a: impl FnMut() -> Load, mut b: impl FnMut() -> Load) -> Vec<(Load, Load)> {
    // Warms up both.
    let _ = (a(), b());
    (0..rounds(5)).map(|_| (a(), b())).collect()
}

/// Returns a line with the ratio of CPU times, which has the goal, and one with the ratio of request rates.
pub fn lines(name: &str, turns: &[(Load, Load)], goal: Goal) -> Vec<Line> {
    vec![cpu(name, turns, goal), rate(name, turns, Goal::None)]
}

/// Returns a line with the CPU time of the first side per request, in microseconds.
pub fn micros(name: &str, turns: &[(Load, Load)], goal: Goal) -> Line {
    Line::value(format!("{name}, us of CPU"), median_of(turns, |(a, _)| a.cpu), goal)
}

/// Returns a line with the ratio of request rates, which has the goal, and one with the ratio of CPU times.
pub fn rates(name: &str, turns: &[(Load, Load)], goal: Goal) -> Vec<Line> {
    vec![rate(name, turns, goal), cpu(name, turns, Goal::None)]
}

fn median_of(turns: &[(Load, Load)], side: fn(&(Load, Load)) -> f64) -> f64 {
    median(turns.iter().map(side).collect())
}

fn cpu(name: &str, turns: &[(Load, Load)], goal: Goal) -> Line {
    let of = |side| median_of(turns, side);
    Line {
        name: format!("{name}, server CPU"),
        sides: (format!("{:.1} us", of(|(a, _)| a.cpu)), format!("{:.1} us", of(|(_, b)| b.cpu))),
        value: of(|(a, b)| a.cpu / b.cpu),
        cpu: None,
        goal,
    }
}

fn rate(name: &str, turns: &[(Load, Load)], goal: Goal) -> Line {
    let of = |side| median_of(turns, side);
    Line {
        name: format!("{name}, requests"),
        sides: (format!("{:.0}/s", of(|(a, _)| a.rate)), format!("{:.0}/s", of(|(_, b)| b.rate))),
        value: of(|(a, b)| a.rate / b.rate),
        cpu: None,
        goal,
    }
}

/// A server in a separate process, which is killed on drop.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// The address on which the server listens.
    pub address: String,
    /// An access token of the operator.
    pub token: String,
    /// The time from the start of the process to the line with its address.
    pub started: Duration,
    /// The data directory and the store.
    installation: Option<(tempfile::TempDir, String)>,
}

impl Server {
    /// Starts `platform-server` on a store, with a new data directory and the first organization of the data.
    pub fn platform(store: &str) -> Self {
        Self::platform_with(store, &[])
    }

    /// Like [`Server::platform`], with additional options.
    pub fn platform_with(store: &str, options: &[&str]) -> Self {
        let data_dir = tempfile::tempdir_in(data::directory()).unwrap();
        let bootstrap = platform_keys::Bootstrap::new(data::organization(0), data::operator());
        platform_keys::Bootstrap::read_or_create(data_dir.path(), || bootstrap).unwrap();
        // A server does not start if one of the two files is missing.
        let (clock, entropy) = (platform_system::SystemClock, platform_system::SystemEntropy);
        platform_keys::Keys::read_or_create(data_dir.path(), platform_keys::Algorithm::Rs256, &clock, &entropy)
            .unwrap();
        let log = env::var("BENCH_LOG").unwrap_or_else(|_| "warn".to_owned());
        let mut serve = Command::new(program());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--log", &log, "--store", store]);
        serve.arg("--data-dir").arg(data_dir.path()).args(options);
        let begin = Instant::now();
        let (process, address) = start(serve.stderr(Stdio::null()));
        let started = begin.elapsed();
        let installation = Some((data_dir, store.to_owned()));
        let mut server = Self { process, address, token: String::new(), started, installation };
        server.token = server.token_of(&data::operator());
        server
    }

    /// Returns a new access token of an identity of [`Server::platform`].
    pub fn token_of(&self, identity: &str) -> String {
        let (data_dir, store) = self.installation.as_ref().expect("a server with a data directory");
        let mut token = Command::new(program());
        token.args(["token", "--identity", identity, "--store", store, "--data-dir"]).arg(data_dir.path());
        let issued = token.output().unwrap();
        assert!(issued.status.success(), "{}", String::from_utf8_lossy(&issued.stderr));
        String::from_utf8(issued.stdout).unwrap().trim().to_owned()
    }

    /// Starts the emulator, `platform-server dev`. It has no token yet.
    pub fn emulator() -> Self {
        let begin = Instant::now();
        let (process, address) =
            start(Command::new(program()).args(["dev", "--listen", "127.0.0.1:0", "--log", "warn"]));
        Self { process, address, token: String::new(), started: begin.elapsed(), installation: None }
    }

    /// Starts this program as a server of the other side.
    pub fn child(arguments: &[&str]) -> Self {
        let begin = Instant::now();
        let (process, address) = start(Command::new(env::current_exe().unwrap()).arg("child").args(arguments));
        Self { process, address, token: "none".to_owned(), started: begin.elapsed(), installation: None }
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the resident memory of the process, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    }

    /// Returns the CPU time of the process in microseconds, with a resolution of 10,000.
    pub fn cpu_micros(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // The process name, in parentheses, may contain spaces. User and system time are the 12th and 13th fields after
        // it.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10_000.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the program of the server: `PLATFORM_SERVER`, or that of the same profile.
fn program() -> PathBuf {
    let program = env::var_os("PLATFORM_SERVER").map(PathBuf::from);
    let program = program.unwrap_or_else(|| env::current_exe().unwrap().with_file_name("platform-server"));
    assert!(program.exists(), "build it first: cargo build --profile dist -p server");
    program
}

/// Starts a server, and returns it with the address in its first line of output.
fn start(command: &mut Command) -> (Child, String) {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    // Reads further output, so that the server does not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (process, first.rsplit('/').next().unwrap().to_owned())
}
