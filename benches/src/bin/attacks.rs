//! Attacks a running server and prints what it costs: `attacks [--store STORE]... [ATTACK...]`, all attacks on SQLite,
//! sled and memory without arguments.
//!
//! The server applies the shares of addresses to the loopback. Attackers come from 127.0.0.2; a victim from 127.0.0.1
//! gets a repo, lists and pings meanwhile, one request after another. Of each attack are printed: processor time of the
//! server, the victim's requests and the time that 99 of 100 of them took at most, and the most memory that the server
//! had. The goals are 100 ms and 512 MiB; the program fails when one is missed ten times over, or when a request of the
//! victim fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures"
)]

use std::{
    env,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use platform_benches::{data, served::Server};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Builder,
    task::JoinSet,
    time::{sleep, timeout},
};

/// How long the victim's requests are counted while an attack is held.
const TIME: Duration = Duration::from_secs(3);
/// How long one request of the victim may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// What 99 of 100 requests of the victim should take at most, and how much memory the server should have.
const P99: Duration = Duration::from_millis(100);
const MEMORY: u64 = 512 << 20;
/// How far beyond its goals an attack fails the run.
const TOO_FAR: u32 = 10;

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
                eprintln!("attacks: there is no attack `{other}`: {}", ATTACKS.join(", "));
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
    let mut sound = true;
    for store in &stores {
        for attack in ATTACKS.iter().filter(|attack| wanted.is_empty() || wanted.iter().any(|one| one == *attack)) {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            sound &= runtime.block_on(measure(store, attack));
            runtime.shutdown_background();
        }
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures one attack on a server of its own; tells whether it is bearable.
async fn measure(store: &str, attack: &str) -> bool {
    let options = ["--limit-loopback", "--allow-private-issuers", "--allow-http-issuers", "--open-rate", "100000"];
    let server = Arc::new(Server::platform_with(store, &options));
    let mut victim = Client::new(&server, VICTIM).await;
    let path = format!("/registry/v2/repos/{}", data::organisation(0));
    let repo = victim.call("POST", &path, &json!({ "name": "victim" })).await["uid"].as_str().unwrap().to_owned();
    let repo = format!("/registry/v2/repos/{repo}");
    let victims = [get(&server, &repo), get(&server, "/registry/v2/repos?page_size=10"), get(&server, "/ping/v2/ping")];

    let cpu = server.cpu_micros();
    let held = begin(attack, &server).await;
    let (mut spent, mut failed, mut memory) = (Vec::new(), 0, server.memory());
    let begun = Instant::now();
    for request in victims.iter().cycle() {
        if begun.elapsed() > TIME {
            break;
        }
        let start = Instant::now();
        match timeout(PATIENCE, victim.send(request)).await {
            Ok((200, _)) => {}
            _ => failed += 1,
        }
        spent.push(start.elapsed());
        memory = memory.max(server.memory());
    }
    drop(held);
    let cpu = (server.cpu_micros() - cpu) / 1e6;
    spent.sort();
    let p99 = spent[spent.len() * 99 / 100];
    let (requests, millis, mebibytes) = (spent.len(), p99.as_secs_f64() * 1e3, memory >> 20);
    let verdict = match () {
        () if failed > 0 || p99 > P99 * TOO_FAR || memory > MEMORY * u64::from(TOO_FAR) => "  FAILED",
        () if p99 > P99 || memory > MEMORY => "  missed",
        () => "",
    };
    println!("{store:<8} {attack:<14} {cpu:>8.2} {requests:>9} {failed:>7} {millis:>9.1} {mebibytes:>10}{verdict}");
    verdict != "  FAILED"
}

/// Begins an attack, which goes on until what is returned is dropped.
async fn begin(attack: &str, server: &Arc<Server>) -> JoinSet<()> {
    match attack {
        "bodies" => bodies(server).await,
        "windows" => windows(server).await,
        "work" => work(server).await,
        "issuers" => issuers(server).await,
        "subscriptions" => subscriptions(server).await,
        "replies" => replies(server).await,
        "reflection" => reflection(server).await,
        other => panic!("no attack `{other}`"),
    }
}

/// Has as many tasks as connections; each is dropped with the set.
async fn each<F: Future<Output = ()> + Send + 'static>(count: usize, task: impl Fn(usize) -> F) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    (0..count).for_each(|number| drop(tasks.spawn(task(number))));
    // So that it has begun.
    sleep(Duration::from_millis(500)).await;
    tasks
}

/// Bodies of a megabyte without a token that proves anything, whose last byte is withheld.
async fn bodies(server: &Arc<Server>) -> JoinSet<()> {
    let address = server.address.clone();
    each(800, move |_| {
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

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| [u8::try_from(text.len()).unwrap()];
    [&[0], &length(name)[..], name.as_bytes(), &length(value), value.as_bytes()].concat()
}

/// Connections of HTTP/2 whose windows are closed, and which answer pings.
async fn windows(server: &Arc<Server>) -> JoinSet<()> {
    let address = server.address.clone();
    each(1_500, move |_| {
        let address = address.clone();
        async move {
            let closed = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
            let head = [&b"\x82\x86\x01\x01a"[..], &literal(":path", "/ping/v2/ping")].concat();
            let begin = [PREFACE, &closed, &frame(1, 5, 1, &head)].concat();
            loop {
                let Some(mut stream) = connect(&address, ATTACKER).await else { continue };
                let _ = stream.write_all(&begin).await;
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

/// Requests of an editor that cost much: deep markup, and very many patterns.
async fn work(server: &Arc<Server>) -> JoinSet<()> {
    let mut client = Client::new(server, ATTACKER).await;
    let organization = data::organisation(0);
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
    each(8, move |number| {
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

/// Exchanges whose tokens name ever new issuers that never answer.
async fn issuers(server: &Arc<Server>) -> JoinSet<()> {
    let silent = TcpListener::bind("127.0.0.3:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let mut client = Client::new(server, ATTACKER).await;
    let matched =
        json!({ "issuerPattern": format!("http://127\\.0\\.0\\.3:{}/.*", at.port()), "subjectPattern": ".*" });
    let path = format!("/iam/v2/identities/{}", data::organisation(0));
    let identity = client.call("POST", &path, &json!({ "name": "slow", "claimMatch": matched })).await;
    let identity = identity["uid"].as_str().unwrap_or_default().to_owned();
    let server = Arc::clone(server);
    let mut tasks = each(48, move |number| {
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

/// Many subscriptions whose sinks are dead, and large changes that all of them are told of.
async fn subscriptions(server: &Arc<Server>) -> JoinSet<()> {
    let mut client = Client::new(server, ATTACKER).await;
    let organization = data::organisation(0);
    let path = format!("/events/v2/subscriptions/{organization}");
    for number in 0..100 {
        let created = client.call("POST", &path, &json!({ "sink": format!("https://sink.invalid/{number}") })).await;
        assert!(created["uid"].is_string(), "{created}");
    }
    let repos = format!("/registry/v2/repos/{organization}");
    let repo = client.call("POST", &repos, &json!({ "name": "large" })).await["uid"].as_str().unwrap().to_owned();
    let readme = format!("/registry/v2/repos/{repo}/readme");
    let server = Arc::clone(server);
    each(2, move |number| {
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

/// Lists of large resources whose answers nobody reads.
async fn replies(server: &Arc<Server>) -> JoinSet<()> {
    let mut client = Client::new(server, ATTACKER).await;
    let path = format!("/registry/v2/repos/{}", data::organisation(0));
    for number in 0..200 {
        // As much as one resource may have, where that is bounded.
        let aliases: Vec<_> = (0..500).map(|alias| format!("{alias}-{}", "a".repeat(90))).collect();
        let repo = json!({ "name": format!("large-{number}"), "description": "a".repeat(1_000), "aliases": aliases });
        if client.send(&request(server, "POST", &path, &repo)).await.0 != 200 {
            let repo = json!({ "name": format!("large-{number}"), "description": "a".repeat(1_000) });
            client.send(&request(server, "POST", &path, &repo)).await;
        }
    }
    let server = Arc::clone(server);
    each(200, move |_| {
        let server = Arc::clone(&server);
        async move {
            loop {
                let Some(mut stream) = connect(&server.address, ATTACKER).await else { continue };
                let _ = stream.write_all(&get(&server, "/registry/v2/repos?page_size=200").repeat(3)).await;
                // It never reads; closed or not, it comes again.
                sleep(Duration::from_secs(1)).await;
                let _ = stream.write_all(b" ").await;
            }
        }
    })
    .await
}

/// Messages to reflection that are announced as 4 MB and never end.
async fn reflection(server: &Arc<Server>) -> JoinSet<()> {
    let address = server.address.clone();
    each(8, move |_| {
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
            let announced = [&[0][..], &4_190_000_u32.to_be_bytes(), &[0; 16_000]].concat();
            loop {
                let Some(mut stream) = connect(&address, ATTACKER).await else { continue };
                let mut begin = [PREFACE, &frame(4, 0, 0, &[])].concat();
                for number in 0..190 {
                    begin.extend(frame(1, 4, 2 * number + 1, &head));
                }
                let _ = stream.write_all(&begin).await;
                let (mut read, mut write) = stream.split();
                let send = async {
                    for turn in 0..32 {
                        for number in 0..190 {
                            let data = if turn == 0 { &announced[..] } else { &announced[5..] };
                            // Within the window of a connection, and then against it.
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

// ---- the client ----

async fn connect(address: &str, from: [u8; 4]) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(from), 0)).unwrap();
    let connected = socket.connect(address.parse().unwrap()).await;
    if connected.is_err() {
        sleep(Duration::from_millis(100)).await;
    }
    connected.ok()
}

fn get(server: &Server, path: &str) -> Arc<[u8]> {
    request_with(server, &server.token, "GET", path, "")
}

fn request(server: &Server, method: &str, path: &str, body: &Value) -> Arc<[u8]> {
    request_with(server, &server.token, method, path, &body.to_string())
}

fn request_with(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Arc<[u8]> {
    let (address, length) = (&server.address, body.len());
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n");
    format!("{head}content-length: {length}\r\n\r\n{body}").into_bytes().into()
}

/// A client of one connection, which it opens again when the server closes it.
struct Client {
    address: String,
    token_of: Arc<Server>,
    from: [u8; 4],
    stream: Option<TcpStream>,
}

impl Client {
    async fn new(server: &Arc<Server>, from: [u8; 4]) -> Self {
        Self { address: server.address.clone(), token_of: Arc::clone(server), from, stream: None }
    }

    /// Sends JSON and returns that of the answer, which is a success.
    async fn call(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let request = request(&self.token_of, method, path, body);
        let (status, answer) = self.send(&request).await;
        assert_eq!(status, 200, "{method} {path}: {}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).unwrap()
    }

    /// Sends a request; returns status and body, or 0 when the server closes the connection.
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

/// Sends a request and reads the answer; tells whether the connection goes on.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Option<(u16, Vec<u8>, bool)> {
    let (mut read, mut write) = stream.split();
    let (sent, answer) = tokio::join!(write.write_all(request), answer(&mut read));
    let (status, body, close) = answer?;
    Some((status, body, sent.is_ok() && !close))
}

async fn answer(read: &mut (impl AsyncReadExt + Unpin)) -> Option<(u16, Vec<u8>, bool)> {
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
