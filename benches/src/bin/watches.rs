//! Cost of watches over HTTP: `watches [memory delay creates]`.
//!
//! The server is `platform-server` on SQLite in a process of its own. The watches are connections of this process over
//! HTTP/1.1, or streams of its connections over HTTP/2, whose events it reads and drops.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "a measuring program")]

use std::{
    env,
    sync::{atomic::AtomicU64, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use platform_benches::{
    client, data,
    measure::{Goal, Line, variable},
    servers::{self, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
    sync::oneshot,
    task::JoinSet,
};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    println!("{}", Line::header());
    let watched = format!("uidp.descendants_of={}", data::organization(0));
    if wanted("memory") {
        memory(&watched);
    }
    if wanted("delay") {
        delay(&watched);
    }
    if wanted("creates") {
        let of_group = |server: &Server| format!("uidp.descendants_of={}", group(server));
        creates(100, "of another group", of_group);
        creates(2_000, "of another group", of_group);
        creates(100, "of their names", |_| format!("{watched}&watch=names"));
        creates(100, "of them", |_| watched.clone());
    }
}

/// Creates a group in the organization in which repos are created. Returns its uid.
fn group(server: &Server) -> String {
    let path = format!("/iam/v2/groups/{}", data::organization(0));
    let group = client::send_one(server, &client::request(server, "POST", &path, "{\"name\":\"other\"}"));
    let group: serde_json::Value = serde_json::from_slice(&group).unwrap();
    group["uid"].as_str().unwrap().to_owned()
}

/// Starts a server on an empty SQLite store.
fn server() -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let store = format!("sqlite:{}", directory.path().join("watches.db").display());
    let limits = ["--max-watches", "--max-connections", "--max-connections-per-address"];
    let options: Vec<_> = limits.into_iter().flat_map(|limit| [limit, "100000"]).collect();
    (Server::platform_with(&store, &options), directory)
}

/// The number of watches of a connection over HTTP/2. The server allows more.
const STREAMS: usize = 50;

/// Open watches. Dropping them closes their connections.
struct Watches {
    /// The times at which a part of a stream arrived, if they are wanted.
    arrivals: mpsc::Receiver<Instant>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watches {
    /// Opens this number of watches, and waits until each has its first event.
    fn open(server: &Server, watched: &str, number: usize) -> Self {
        let watch = if watched.contains("watch=") { "" } else { "&watch=true" };
        let path = format!("/registry/v2/repos?{watched}{watch}");
        let (address, request) = (server.address.clone(), client::get_of(server, &path));
        let (arrived, arrivals) = mpsc::channel();
        let (is_open, opened) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut streams = JoinSet::new();
                for _ in 0..number {
                    let mut stream = TcpStream::connect(&address).await.unwrap();
                    stream.write_all(&request).await.unwrap();
                    let mut buffer = vec![0; 16 << 10];
                    let mut read = 0;
                    while !buffer[..read].windows(8).any(|part| part == b"bookmark") {
                        let more = stream.read(&mut buffer[read..]).await.unwrap();
                        assert!(more > 0, "{}", String::from_utf8_lossy(&buffer[..read]));
                        read += more;
                    }
                    let arrived = (number == 1).then(|| arrived.clone());
                    streams.spawn(async move {
                        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                            if let Some(arrived) = &arrived {
                                let _ = arrived.send(Instant::now());
                            }
                        }
                    });
                }
                is_open.send(()).unwrap();
                drop(stopped.await);
            });
        });
        opened.recv().unwrap();
        Self { arrivals, stop: Some(stop), thread: Some(thread) }
    }
}

/// Opens this number of watches as streams of connections over HTTP/2, and waits until each has its first event. They
/// are open until the result is dropped.
async fn open_streams(server: &Server, watched: &str, number: usize) -> Vec<h2::RecvStream> {
    let uri = format!("http://{}/registry/v2/repos?{watched}&watch=true", server.address);
    let token = format!("Bearer {}", server.token);
    let (mut streams, mut connection) = (Vec::new(), None);
    for index in 0..number {
        if index % STREAMS == 0 {
            let stream = TcpStream::connect(&server.address).await.unwrap();
            let (requests, driver) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(driver);
            connection = Some(requests);
        }
        let mut requests = connection.take().unwrap().ready().await.unwrap();
        let request = http::Request::get(&uri).header(http::header::AUTHORIZATION, &token).body(()).unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        body.data().await.unwrap().unwrap();
        streams.push(body);
        connection = Some(requests);
    }
    streams
}

impl Drop for Watches {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// Measures the memory of the server for idle watches, and for as many idle connections.
fn memory(watched: &str) {
    let number = variable("BENCH_WATCHES", 5_000_usize);
    let (server, _directory) = server();
    drop(Watches::open(&server, watched, 100));
    let before = server.memory();
    let connections = connections(&server, number);
    let idle = server.memory().saturating_sub(before);
    drop(connections);
    let (server, _directory) = self::server();
    drop(Watches::open(&server, watched, 100));
    let before = server.memory();
    let watches = Watches::open(&server, watched, number);
    // A keep-alive has been sent to each.
    thread::sleep(Duration::from_secs(10));
    let more = server.memory().saturating_sub(before);
    drop(watches);
    let (server, _directory) = self::server();
    drop(Watches::open(&server, watched, 100));
    let before = server.memory();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let streams = runtime.block_on(async {
        let streams = open_streams(&server, watched, number).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        streams
    });
    let of_streams = server.memory().saturating_sub(before);
    drop(streams);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    for (name, bytes, goal) in [
        (format!("{number} idle watches over HTTP/1.1: more memory, MB"), more, Goal::AtMost(100.0, 50.0)),
        (format!("{number} idle connections over HTTP/1.1: more memory, MB"), idle, Goal::None),
        (format!("{number} idle watches over HTTP/2: more memory, MB"), of_streams, Goal::AtMost(100.0, 50.0)),
    ] {
        println!("{}", Line::value(name, megabytes(bytes), goal));
    }
}

/// Opens connections, each of which has sent one request.
fn connections(server: &Server, number: usize) -> Vec<std::net::TcpStream> {
    use std::io::{Read, Write};
    let request = client::get_of(server, "/registry/v2/repos?page_size=1");
    let connection = || {
        let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
        stream.write_all(&request).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream
    };
    (0..number).map(|_| connection()).collect()
}

/// Measures the time from the reply of a create to the arrival of its event, one create at a time.
fn delay(watched: &str) {
    let (server, _directory) = server();
    let (watches, next) = (Watches::open(&server, watched, 1), AtomicU64::new(0));
    let mut delays = Vec::new();
    for _ in 0..variable("BENCH_EVENTS", 500_usize) {
        // Keep-alives.
        while watches.arrivals.try_recv().is_ok() {}
        let replied = client::create_one(&server, &next);
        let arrived = watches.arrivals.recv_timeout(Duration::from_secs(10)).unwrap();
        delays.push(arrived.saturating_duration_since(replied).as_secs_f64() * 1e3);
    }
    delays.sort_by(f64::total_cmp);
    let at = |percent: usize| delays[(delays.len() * percent / 100).min(delays.len() - 1)];
    println!("{}", Line::value("from the reply of a create to its event, median, ms", at(50), Goal::AtMost(5.0, 5.0)));
    println!("{}", Line::value("from the reply of a create to its event, p99, ms", at(99), Goal::None));
}

/// Compares creates with watches and with none, in alternating turns.
fn creates(number: usize, which: &str, watched: impl Fn(&Server) -> String) {
    let ((with, _with), (without, _without)) = (server(), server());
    let watches = Watches::open(&with, &watched(&with), number);
    let (next, other) = (AtomicU64::new(0), AtomicU64::new(0));
    let turns = servers::turns(
        || client::run_creates(&with, servers::turn(), &next),
        || client::run_creates(&without, servers::turn(), &other),
    );
    drop(watches);
    let name = format!("creates: 64 clients, {number} watches {which} / none");
    servers::rates(&name, &turns, Goal::AtLeast(0.9, 0.95)).iter().for_each(|line| println!("{line}"));
}
