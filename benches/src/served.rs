//! Servers in processes of their own, loaded turn about.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{
    data,
    measure::{Goal, Line, median},
};

/// How often each side has its turn.
pub const TURNS: usize = 5;
/// How long a turn is.
pub const TURN: Duration = Duration::from_secs(2);
/// What a turn of load showed.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// Microseconds of the server's process for each request.
    pub cpu: f64,
    /// Microseconds that 99 of 100 requests take at most.
    pub p99: f64,
}

impl Load {
    /// Makes it of what each request took, in microseconds, and what the server's process took.
    pub fn of(mut spent: Vec<f64>, time: Duration, cpu: f64) -> Self {
        spent.sort_by(f64::total_cmp);
        let requests = spent.len() as f64;
        Self { rate: requests / time.as_secs_f64(), cpu: cpu / requests, p99: spent[spent.len() * 99 / 100] }
    }
}

/// Loads two sides turn about.
pub fn turns(mut a: impl FnMut() -> Load, mut b: impl FnMut() -> Load) -> Vec<(Load, Load)> {
    // To have both warm.
    let _ = (a(), b());
    (0..TURNS).map(|_| (a(), b())).collect()
}

/// Makes the line that is judged, of processor time, and one of requests a second.
pub fn lines(name: &str, turns: &[(Load, Load)], goal: Goal) -> Vec<Line> {
    vec![cpu(name, turns, goal), rate(name, turns, Goal::None)]
}

/// Makes the line that is judged, of requests a second, and one of processor time.
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

/// A server in a process of its own, which ends with this value.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// Where it listens.
    pub address: String,
    /// A token of the operator.
    pub token: String,
    _data_dir: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts `platform-server` over a store, in a fresh data directory with the first organisation of the data.
    pub fn platform(store: &str) -> Self {
        Self::platform_with(store, &[])
    }

    /// Starts `platform-server` as [`Server::platform`] does, with more options.
    pub fn platform_with(store: &str, options: &[&str]) -> Self {
        let program = env::current_exe().unwrap().with_file_name("platform-server");
        assert!(program.exists(), "build it first: cargo build --release -p platform-server");
        let data_dir = tempfile::tempdir_in(data::directory()).unwrap();
        let bootstrap = platform_oidc::Bootstrap::new(data::organisation(0), data::operator());
        platform_oidc::Bootstrap::read_or_create(data_dir.path(), || bootstrap).unwrap();
        // A server does not start with one of the two files alone.
        let (clock, entropy) = (platform_http::SystemClock, platform_http::SystemEntropy);
        platform_oidc::Keys::read_or_create(data_dir.path(), platform_oidc::Algorithm::Rs256, &clock, &entropy)
            .unwrap();
        let command = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            command.args(arguments).arg("--data-dir").arg(data_dir.path()).args(["--store", store]);
            command
        };
        let log = env::var("BENCH_LOG").unwrap_or_else(|_| "warn".to_owned());
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--log", &log]);
        serve.args(options);
        let (process, address) = start(serve.stderr(Stdio::null()));
        let token = command(&["token"]).output().unwrap();
        let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
        Self { process, address, token, _data_dir: Some(data_dir) }
    }

    /// Starts this program as one of the servers of the other side.
    pub fn child(what: &[&str]) -> Self {
        let (process, address) = start(Command::new(env::current_exe().unwrap()).arg("child").args(what));
        Self { process, address, token: "none".to_owned(), _data_dir: None }
    }

    /// Returns how much memory the process has, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    }

    /// Returns how long the process was on processors, in microseconds, in steps of 10,000.
    pub fn cpu_micros(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // The name, in parentheses, may have spaces; user and system time are the 12th and 13th behind it.
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

/// Starts a server that says in its first line where it listens.
fn start(command: &mut Command) -> (Child, String) {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    // It may say more, and must not be kept from it.
    std::thread::spawn(move || lines.for_each(drop));
    (process, first.rsplit('/').next().unwrap().to_owned())
}
