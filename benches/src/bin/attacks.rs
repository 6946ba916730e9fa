//! Attacks a running server and prints the cost: `attacks [--store STORE]... [ATTACK...]`, by default all attacks on
//! SQLite, sled and memory.
//!
//! The server applies the limits per address to loopback addresses. Attackers use 127.0.0.2. At the same time, a victim
//! at 127.0.0.1 gets a repo, lists repos and pings, one request after another. For each attack the program prints the
//! CPU time of the server, the number and 99th percentile latency of the victim's requests, and the peak memory of the
//! server. The goals are 100 ms and 512 MiB. The program fails if a goal is exceeded tenfold or a request of the victim
//! fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measuring program"
)]

use std::{
    env,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use platform_benches::{
    client::{self, get_of, request_with},
    data,
    servers::Server,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Builder,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Duration of the measurement during an attack.
const TIME: Duration = Duration::from_secs(3);
/// Time after which a request of the victim counts as failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Goal for the 99th percentile of the victim's latencies.
const P99: Duration = Duration::from_millis(100);
/// Goal for the peak memory of the server, in bytes.
const MEMORY: u64 = 512 << 20;
/// Factor beyond a goal at which the run fails.
const FAILURE_FACTOR: u32 = 10;

const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const VICTIM: [u8; 4] = [127, 0, 0, 1];

const ATTACKS: [&str; 7] = ["bodies", "windows", "work", "issuers", "subscriptions", "replies", "reflection"];

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (mut stores, mut wanted) = (Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--store" => stores.push(arguments.next().expect("--store takes sqlite, sled or memory")),
            attack if ATTACKS.contains(&attack) => wanted.push(argument),
            other => {
                eprintln!("attacks: unknown attack `{other}`; known attacks: {}", ATTACKS.join(", "));
                return ExitCode::FAILURE;
            }
        }
    }
    if stores.is_empty() {
        stores = ["sqlite", "sled", "memory"].map(str::to_owned).into();
    }
    println!(
        "{:<8} {:<14} {:>8} {:>9} {:>7} {:>9} {:>10}",
        "store", "attack", "CPU, s", "requests", "failed", "p99, ms", "memory, MiB"
    );
    let mut passed = true;
    for store in &stores {
        for attack in ATTACKS.iter().filter(|attack| wanted.is_empty() || wanted.iter().any(|one| one == *attack)) {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            passed &= runtime.block_on(measure(store, attack));
            runtime.shutdown_background();
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures one attack on a new server. Returns false if it fails the run.
async fn measure(store: &str, attack: &str) -> bool {
    let options = ["--limit-loopback", "--allow-private-issuers", "--allow-http-issuers", "--open-rate", "100000"];
    let server = Arc::new(Server::platform_with(store, &options));
    let mut victim = Client::new(&server, VICTIM).await;
    let path = format!("/registry/v2/repos/{}", data::organization(0));
    let repo = victim.call("POST", &path, &json!({ "name": "victim" })).await["uid"].as_str().unwrap().to_owned();
    let repo = format!("/registry/v2/repos/{repo}");
    let victims =
        [get_of(&server, &repo), get_of(&server, "/registry/v2/repos?page_size=10"), get_of(&server, "/ping/v2/ping")];

    let cpu = server.cpu_micros();
    let running = start(attack, &server).await;
    let (mut latencies, mut failed, mut memory) = (Vec::new(), 0, server.memory());
    let measurement_start = Instant::now();
    for request in victims.iter().cycle() {
        if measurement_start.elapsed() > TIME {
            break;
        }
        let start = Instant::now();
        match timeout(REQUEST_TIMEOUT, victim.send(request)).await {
            Ok((200, _)) => {}
            _ => failed += 1,
        }
        latencies.push(start.elapsed());
        memory = memory.max(server.memory());
    }
    drop(running);
    let cpu = (server.cpu_micros() - cpu) / 1e6;
    latencies.sort();
    let p99 = latencies[latencies.len() * 99 / 100];
    let (requests, millis, mebibytes) = (latencies.len(), p99.as_secs_f64() * 1e3, memory >> 20);
    let verdict = match () {
        () if failed > 0 || p99 > P99 * FAILURE_FACTOR || memory > MEMORY * u64::from(FAILURE_FACTOR) => "  FAILED",
        () if p99 > P99 || memory > MEMORY => "  missed",
        () => "",
    };
    println!("{store:<8} {attack:<14} {cpu:>8.2} {requests:>9} {failed:>7} {millis:>9.1} {mebibytes:>10}{verdict}");
    verdict != "  FAILED"
}

/// Starts an attack, which continues until the returned set is dropped.
async fn start(attack: &str, server: &Arc<Server>) -> JoinSet<()> {
    match attack {
        "bodies" => bodies(server).await,
        "windows" => windows(server).await,
        "work" => work(server).await,
        "issuers" => issuers(server).await,
        "subscriptions" => subscriptions(server).await,
        "replies" => replies(server).await,
        "reflection" => reflection(server).await,
        other => panic!("unknown attack `{other}`"),
    }
}

/// Spawns this number of tasks, which end when the set is dropped.
async fn spawn_tasks<F: Future<Output = ()> + Send + 'static>(count: usize, task: impl Fn(usize) -> F) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    (0..count).for_each(|number| drop(tasks.spawn(task(number))));
    // Waits until the tasks are running.
    sleep(Duration::from_millis(500)).await;
    tasks
}

/// Sends bodies of one megabyte with an invalid token, and withholds the last byte.
async fn bodies(server: &Arc<Server>) -> JoinSet<()> {
    let address = server.address.clone();
    spawn_tasks(800, move |_| {
        let address = address.clone();
        async move {
            let head = "POST /sts/exchange HTTP/1.1\r\nhost: a\r\nauthorization: eyJhbGciOiJSUzI1NiJ9.e30.AAAA\r\n";
            loop {
                let Some(mut stream) = connect(&address, ATTACKER).await else { continue };
                let _ = stream.write_all(format!("{head}content-length: 1000001\r\n\r\n").as_bytes()).await;
                let _ = stream.write_all(&vec![b'a'; 1_000_000]).await;
                let _ = stream.read(&mut [0; 1024]).await;
                sleep(Duration::from_millis(100)).await;
            }
        }
    })
    .await
}

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns a literal HPACK header field without indexing.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| [u8::try_from(text.len()).unwrap()];
    [&[0], &length(name)[..], name.as_bytes(), &length(value), value.as_bytes()].concat()
}

/// Opens HTTP/2 connections that keep their flow control windows closed and answer pings.
async fn windows(server: &Arc<Server>) -> JoinSet<()> {
    let address = server.address.clone();
    spawn_tasks(1_500, move |_| {
        let address = address.clone();
        async move {
            let closed = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
            let head = [&b"\x82\x86\x01\x01a"[..], &literal(":path", "/ping/v2/ping")].concat();
            let opening = [PREFACE, &closed, &frame(1, 5, 1, &head)].concat();
            loop {
                let Some(mut stream) = connect(&address, ATTACKER).await else { continue };
                let _ = stream.write_all(&opening).await;
                let mut head = [0; 9];
                while stream.read_exact(&mut head).await.is_ok() {
                    let mut payload =
                        vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
                    let read = stream.read_exact(&mut payload).await;
                    if read.is_err() || head[3] == 6 && stream.write_all(&frame(6, 1, 0, &payload)).await.is_err() {
                        break;
                    }
                }
                sleep(Duration::from_millis(500)).await;
            }
        }
    })
    .await
}

/// Sends expensive requests of an editor: deeply nested markup, and many patterns.
async fn work(server: &Arc<Server>) -> JoinSet<()> {
    let mut client = Client::new(server, ATTACKER).await;
    let organization = data::organization(0);
    let repos = format!("/registry/v2/repos/{organization}");
    let repo = client.call("POST", &repos, &json!({ "name": "markup" })).await["uid"].as_str().unwrap().to_owned();
    let readme = format!("/registry/v2/repos/{repo}/readme");
    let patterns: Vec<_> = (0..10_000).map(|n| (format!("c{n}"), Value::from(".{60}"))).collect();
    let matched = json!({ "issuer": "https://a.example", "subject": "s", "claimPatterns": Value::Object(patterns.into_iter().collect()) });
    let requests = [
        request(server, "PATCH", &readme, &json!({ "content": "> ".repeat(50_000) })),
        request(server, "PATCH", &readme, &json!({ "content": "<ul><li>".repeat(20_000) })),
        request(server, "PATCH", &readme, &json!({ "content": "<div>".repeat(20_000) })),
        request(
            server,
            "POST",
            &format!("/iam/v2/identities/{organization}"),
            &json!({ "name": "a", "claimMatch": matched }),
        ),
    ];
    let server = Arc::clone(server);
    spawn_tasks(8, move |number| {
        let (server, request) = (Arc::clone(&server), requests[number % requests.len()].clone());
        async move {
            let mut client = Client::new(&server, ATTACKER).await;
            loop {
                client.send(&request).await;
            }
        }
    })
    .await
}

/// Exchanges tokens that name new issuers each time, none of which responds.
async fn issuers(server: &Arc<Server>) -> JoinSet<()> {
    let silent = TcpListener::bind("127.0.0.3:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let mut client = Client::new(server, ATTACKER).await;
    let matched =
        json!({ "issuerPattern": format!("http://127\\.0\\.0\\.3:{}/.*", at.port()), "subjectPattern": ".*" });
    let path = format!("/iam/v2/identities/{}", data::organization(0));
    let identity = client.call("POST", &path, &json!({ "name": "slow", "claimMatch": matched })).await;
    let identity = identity["uid"].as_str().unwrap_or_default().to_owned();
    let server = Arc::clone(server);
    let mut tasks = spawn_tasks(48, move |number| {
        let (server, identity) = (Arc::clone(&server), identity.clone());
        async move {
            let mut client = Client::new(&server, ATTACKER).await;
            for turn in 0.. {
                let issuer = format!("http://127.0.0.3:{}/{number}/{turn}", at.port());
                let claims = json!({ "iss": issuer, "sub": "s", "aud": "a", "exp": 4_000_000_000_u64, "iat": 1 });
                let token = format!("{}.{}.AAAA", base64(&json!({ "alg": "RS256", "kid": "k" })), base64(&claims));
                let body = format!("{{\"aud\":[\"http://{}\"],\"identity\":\"{identity}\"}}", server.address);
                client.send(&request_with(&server, &token, "POST", "/sts/exchange", &body)).await;
            }
        }
    })
    .await;
    tasks.spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            held.push(stream);
        }
    });
    tasks
}

fn base64(value: &Value) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Creates many subscriptions with unreachable sinks, and large changes that produce events for all of them.
async fn subscriptions(server: &Arc<Server>) -> JoinSet<()> {
    let mut client = Client::new(server, ATTACKER).await;
    let organization = data::organization(0);
    let path = format!("/events/v2/subscriptions/{organization}");
    for number in 0..100 {
        let created = client.call("POST", &path, &json!({ "sink": format!("https://sink.invalid/{number}") })).await;
        assert!(created["uid"].is_string(), "{created}");
    }
    let repos = format!("/registry/v2/repos/{organization}");
    let repo = client.call("POST", &repos, &json!({ "name": "large" })).await["uid"].as_str().unwrap().to_owned();
    let readme = format!("/registry/v2/repos/{repo}/readme");
    let server = Arc::clone(server);
    spawn_tasks(2, move |number| {
        let (server, readme) = (Arc::clone(&server), readme.clone());
        async move {
            let mut client = Client::new(&server, ATTACKER).await;
            for turn in 0.. {
                let content = format!("{number} {turn} ") + &"word ".repeat(40_000);
                client.send(&request(&server, "PATCH", &readme, &json!({ "content": content }))).await;
            }
        }
    })
    .await
}

/// Lists large resources and does not read the responses.
async fn replies(server: &Arc<Server>) -> JoinSet<()> {
    let mut client = Client::new(server, ATTACKER).await;
    let path = format!("/registry/v2/repos/{}", data::organization(0));
    for number in 0..200 {
        // As large as a resource may be, or smaller if the server rejects this size.
        let aliases: Vec<_> = (0..500).map(|alias| format!("{alias}-{}", "a".repeat(90))).collect();
        let repo = json!({ "name": format!("large-{number}"), "description": "a".repeat(1_000), "aliases": aliases });
        if client.send(&request(server, "POST", &path, &repo)).await.0 != 200 {
            let repo = json!({ "name": format!("large-{number}"), "description": "a".repeat(1_000) });
            client.send(&request(server, "POST", &path, &repo)).await;
        }
    }
    let server = Arc::clone(server);
    spawn_tasks(200, move |_| {
        let server = Arc::clone(&server);
        async move {
            loop {
                let Some(mut stream) = connect(&server.address, ATTACKER).await else { continue };
                let _ = stream.write_all(&get_of(&server, "/registry/v2/repos?page_size=200").repeat(3)).await;
                // Never reads, and reconnects whether or not the server has closed the connection.
                sleep(Duration::from_secs(1)).await;
                let _ = stream.write_all(b" ").await;
            }
        }
    })
    .await
}

/// Sends reflection requests that announce messages of 4 MB and never complete them.
async fn reflection(server: &Arc<Server>) -> JoinSet<()> {
    let address = server.address.clone();
    spawn_tasks(8, move |_| {
        let address = address.clone();
        async move {
            let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
            let head = [
                &b"\x83\x86\x01\x01a"[..],
                &literal(":path", path),
                &literal("content-type", "application/grpc"),
                &literal("te", "trailers"),
            ];
            let head = head.concat();
            let first_data = [&[0][..], &4_190_000_u32.to_be_bytes(), &[0; 16_000]].concat();
            loop {
                let Some(mut stream) = connect(&address, ATTACKER).await else { continue };
                let mut opening = [PREFACE, &frame(4, 0, 0, &[])].concat();
                for number in 0..190 {
                    opening.extend(frame(1, 4, 2 * number + 1, &head));
                }
                let _ = stream.write_all(&opening).await;
                let (mut read, mut write) = stream.split();
                let send = async {
                    for turn in 0..32 {
                        for number in 0..190 {
                            let data = if turn == 0 { &first_data[..] } else { &first_data[5..] };
                            // Fills the flow control window of the connection, and then blocks.
                            if write.write_all(&frame(0, 0, 2 * number + 1, data)).await.is_err() {
                                return;
                            }
                        }
                    }
                };
                let mut ignored = [0; 4096];
                let drain = async { while read.read(&mut ignored).await.is_ok_and(|length| length > 0) {} };
                tokio::join!(send, drain);
                sleep(Duration::from_millis(100)).await;
            }
        }
    })
    .await
}

// ---- client ----

async fn connect(address: &str, from: [u8; 4]) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(from), 0)).unwrap();
    let connected = socket.connect(address.parse().unwrap()).await;
    if connected.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    connected.ok()
}

fn request(server: &Server, method: &str, path: &str, body: &Value) -> Arc<[u8]> {
    client::request(server, method, path, &body.to_string())
}

/// A client with one connection, which it reopens when the server closes it.
struct Client {
    address: String,
    server: Arc<Server>,
    from: [u8; 4],
    stream: Option<TcpStream>,
}

impl Client {
    async fn new(server: &Arc<Server>, from: [u8; 4]) -> Self {
        Self { address: server.address.clone(), server: Arc::clone(server), from, stream: None }
    }

    /// Sends JSON and returns the JSON response, which must be a success.
    async fn call(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let request = request(&self.server, method, path, body);
        let (status, response) = self.send(&request).await;
        assert_eq!(status, 200, "{method} {path}: {}", String::from_utf8_lossy(&response));
        serde_json::from_slice(&response).unwrap()
    }

    /// Sends a request. Returns status and body, or status 0 if the server closes the connection.
    async fn send(&mut self, request: &[u8]) -> (u16, Vec<u8>) {
        for _ in 0..2 {
            let stream = match self.stream.take() {
                Some(stream) => Some(stream),
                None => connect(&self.address, self.from).await,
            };
            let Some(mut stream) = stream else { continue };
            if let Some((status, body, keep)) = exchange(&mut stream, request).await {
                self.stream = keep.then_some(stream);
                return (status, body);
            }
        }
        (0, Vec::new())
    }
}

/// Sends a request and reads the response. The flag is true if the connection stays open.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Option<(u16, Vec<u8>, bool)> {
    let (mut read, mut write) = stream.split();
    let (sent, response) = tokio::join!(write.write_all(request), read_response(&mut read));
    let (status, body, close) = response?;
    Some((status, body, sent.is_ok() && !close))
}

/// Reads a response. Returns status, body and whether the server closes the connection.
async fn read_response(read: &mut (impl AsyncReadExt + Unpin)) -> Option<(u16, Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    loop {
        if read.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let header =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
        let length: usize = header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        let (status, close) = (head.get(9..12)?.parse().ok()?, header("connection") == Some("close"));
        let mut body = bytes.split_off(end + 4);
        while body.len() < length {
            if read.read_buf(&mut body).await.ok()? == 0 {
                return None;
            }
        }
        return Some((status, body, close));
    }
}
