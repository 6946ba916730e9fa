//! Loads a server over HTTP and prints the cost of a request: `load [figure...]`, by default all.
//!
//! `A` is `platform-server` of the same profile with a new data directory; `B` is an axum server of this program, in a
//! separate process. Both run at the same time and are loaded in alternating turns over persistent connections. The
//! goal is about the CPU time of the server's process per request.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measuring program"
)]

use std::{
    cell::RefCell,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    http::{HeaderValue, header::CONTENT_TYPE},
    routing::{get, post},
};
use futures_util::future::join_all;
use platform_benches::{
    data::{self, Data},
    figures::{Figure, LARGE},
    hand::HandCreates,
    measure::{Goal, Line, median},
    postgres,
    servers::{Load, Server, TURN, lines, rates, turns},
    world,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
};

/// Number of connections.
const CONNECTIONS: usize = 64;
/// Number of repos created over HTTP in the memory store, and in PostgreSQL.
const IN_MEMORY: u64 = 50_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [child, side, rest @ ..] = &*arguments
        && child == "child"
    {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(serve(side, rest));
        return ExitCode::SUCCESS;
    }
    let figures: [Figure; 5] = [
        ("list-sqlite", list_sqlite),
        ("list-memory", list_memory),
        ("get", gets),
        ("creates", creates),
        ("postgres", on_postgres),
    ];
    println!("{}", Line::header());
    for (name, lines) in figures {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            lines().iter().for_each(|line| println!("{line}"));
        }
    }
    ExitCode::SUCCESS
}

// ---- figures ----

fn list_sqlite() -> Vec<Line> {
    let store = format!("sqlite:{}", Data::One(LARGE).sqlite().display());
    let server = Server::platform(&store);
    let path = "/registry/v2/repos?order_by=name&uidp.descendants_of=".to_owned() + &data::organization(0);
    compare_with_static(&server, &path, "http list: SQLite of 1M / static", Goal::AtMost(5.0, 3.0))
}

fn list_memory() -> Vec<Line> {
    let server = Server::platform("memory");
    let next = AtomicU64::new(0);
    let request = |_: usize| create(&server, next.fetch_add(1, Ordering::Relaxed));
    while next.load(Ordering::Relaxed) < IN_MEMORY {
        run(&server, TURN, &request);
    }
    compare_with_static(
        &server,
        "/registry/v2/repos?order_by=name",
        "http list: memory / static",
        Goal::AtMost(3.0, 1.5),
    )
}

fn gets() -> Vec<Line> {
    let data = Data::One(LARGE);
    let server = Server::platform(&format!("sqlite:{}", data.sqlite().display()));
    let requests: Vec<_> = (0..1_000)
        .map(|number| get_of(&server, &format!("/registry/v2/repos/{}", data.repo(data::mix(number) % LARGE).uid)))
        .collect();
    let ping = Server::child(&["ping"]);
    let ping_request = get_of(&ping, "/");
    let next = |number: usize| requests[number % requests.len()].clone();
    let turns = turns(|| run(&server, TURN, &next), || run(&ping, TURN, &|_| ping_request.clone()));
    lines("http get: SQLite of 1M / axum ping", &turns, Goal::AtMost(3.0, 2.0))
}

fn creates() -> Vec<Line> {
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let server = Server::platform(&format!("sqlite:{}", directory.path().join("platform.sqlite").display()));
    let hand = Server::child(&["creates", &directory.path().join("hand.sqlite").display().to_string()]);
    let next = AtomicU64::new(0);
    let creates = |server: &Server| run(server, TURN, &|_| create(server, next.fetch_add(1, Ordering::Relaxed)));
    let turns = turns(|| creates(&server), || creates(&hand));
    let rate = |side: fn(&(Load, Load)) -> f64| median(turns.iter().map(side).collect());
    let (a, b) = (rate(|(a, _)| a.rate), rate(|(_, b)| b.rate));
    let line = Line {
        name: "http creates: 64 clients / one transaction each".to_owned(),
        sides: (format!("{a:.0}/s"), format!("{b:.0}/s")),
        value: rate(|(a, b)| a.rate / b.rate),
        cpu: Some(rate(|(a, b)| a.cpu / b.cpu)),
        goal: Goal::AtLeast(4.0, 10.0),
    };
    let p99 = rate(|(a, _)| a.p99);
    vec![
        line,
        Line {
            name: "http creates: p99, ms".to_owned(),
            value: p99 / 1e3,
            cpu: None,
            goal: Goal::None,
            sides: Default::default(),
        },
    ]
}

/// Lists and gets of both services on one PostgreSQL cluster. A needs no `platform-server`: the child serves its REST API.
fn on_postgres() -> Vec<Line> {
    let data = Data::One(IN_MEMORY);
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let (cluster, url) = runtime.block_on(postgres::prepare(data));
    let token = world::verifier().1;
    let [platform, hand] = ["platform-postgres", "hand-postgres"].map(|side| {
        let mut server = Server::child(&[side, &url]);
        server.token.clone_from(&token);
        server
    });
    let list = format!("/registry/v2/repos?order_by=name&uidp.children_of={}", data::organization(0));
    // The pages are the same up to their cursors.
    let [page, by_hand] = [&platform, &hand].map(|server| send_one(server, &get_of(server, &list)));
    let end = by_hand.windows(3).position(|end| end == b"],\"").unwrap();
    assert_eq!(page[..end], by_hand[..end]);
    let of = |server: &Server| -> Vec<Arc<[u8]>> {
        let path = |number: u64| format!("/registry/v2/repos/{}", data.repo(data::mix(number) % IN_MEMORY).uid);
        (0..1_000).map(|number| get_of(server, &path(number))).collect()
    };
    let (ours, theirs) = (of(&platform), of(&hand));
    assert_eq!(send_one(&platform, &ours[0]), send_one(&hand, &theirs[0]));
    let (page, by_hand) = (get_of(&platform, &list), get_of(&hand, &list));
    let lists = turns(|| run(&platform, TURN, &|_| page.clone()), || run(&hand, TURN, &|_| by_hand.clone()));
    let gets = turns(
        || run(&platform, TURN, &|number| ours[number % ours.len()].clone()),
        || run(&hand, TURN, &|number| theirs[number % theirs.len()].clone()),
    );
    let mut lines = rates("http list: PostgreSQL / axum, tokio-postgres", &lists, Goal::AtLeast(0.55, 0.8));
    lines.extend(rates("http get: PostgreSQL / axum, tokio-postgres", &gets, Goal::AtLeast(0.55, 0.8)));
    drop((platform, hand));
    drop(cluster);
    lines
}

fn compare_with_static(server: &Server, path: &str, name: &str, goal: Goal) -> Vec<Line> {
    let request = get_of(server, path);
    let page = send_one(server, &request);
    let file = data::directory().join(format!("page-{}.json", std::process::id()));
    fs::write(&file, &page).unwrap();
    eprintln!("a page has {} bytes: ...{}", page.len(), String::from_utf8_lossy(&page[page.len() - 60..]));
    let static_server = Server::child(&["static", &file.display().to_string()]);
    let static_request = get_of(&static_server, "/");
    assert_eq!(send_one(&static_server, &static_request), page);
    let turns =
        turns(|| run(server, TURN, &|_| request.clone()), || run(&static_server, TURN, &|_| static_request.clone()));
    let _ = fs::remove_file(file);
    lines(name, &turns, goal)
}

// ---- client ----

/// Sends requests over [`CONNECTIONS`] connections for this time, one at a time on each.
fn run(server: &Server, time: Duration, request: &dyn Fn(usize) -> Arc<[u8]>) -> Load {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let latencies = RefCell::new(Vec::new());
    let (start, cpu) = (Instant::now(), server.cpu_micros());
    let client = async |connection: usize| {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut buffer, mut number) = (vec![0; 256 * 1024], connection);
        while start.elapsed() < time {
            let started = Instant::now();
            stream.write_all(&request(number)).await.unwrap();
            let (status, _) = read_response(&mut stream, &mut buffer).await;
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&buffer[..500]));
            latencies.borrow_mut().push(started.elapsed().as_nanos() as f64 / 1e3);
            number += CONNECTIONS;
        }
    };
    runtime.block_on(join_all((0..CONNECTIONS).map(client)));
    Load::of(latencies.into_inner(), start.elapsed(), server.cpu_micros() - cpu)
}

/// Reads one response. Returns its status, and the range of its body in the buffer.
async fn read_response(stream: &mut TcpStream, buffer: &mut [u8]) -> (u16, std::ops::Range<usize>) {
    let mut read = 0;
    loop {
        let more = stream.read(&mut buffer[read..]).await.unwrap();
        assert!(more > 0, "the server closed the connection");
        read += more;
        let Some(head) = buffer[..read].windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&buffer[..head]).unwrap();
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        let (status, end) = (text[9..12].parse().unwrap(), head + 4 + length.unwrap());
        while read < end {
            read += stream.read(&mut buffer[read..]).await.unwrap();
        }
        return (status, head + 4..end);
    }
}

/// Sends one request, and returns the body of its response.
fn send_one(server: &Server, request: &[u8]) -> Vec<u8> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut buffer = vec![0; 256 * 1024];
        let (status, body) = read_response(&mut stream, &mut buffer).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&buffer[body]));
        buffer[body].to_vec()
    })
}

fn get_of(server: &Server, path: &str) -> Arc<[u8]> {
    request(server, "GET", path, "")
}

fn request(server: &Server, method: &str, path: &str, body: &str) -> Arc<[u8]> {
    let (address, token, length) = (&server.address, &server.token, body.len());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    request.into_bytes().into()
}

fn create(server: &Server, number: u64) -> Arc<[u8]> {
    let name = format!("{:08x}-{number}", data::mix(number) >> 32);
    let body = format!("{{\"name\":\"{name}\",\"description\":\"An image\",\"activeTags\":[\"latest\"]}}");
    let path = format!("/registry/v2/repos/{}", data::organization(0));
    request(server, "POST", &path, &body)
}

/// Serves one of the other sides.
async fn serve(side: &str, arguments: &[String]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("Listening on http://{}", listener.local_addr().unwrap());
    match side {
        "platform-postgres" => return postgres::serve_platform(listener, &arguments[0]).await,
        "hand-postgres" => return postgres::serve_hand(listener, &arguments[0]).await,
        _ => {}
    }
    let json = |body: bytes::Bytes| ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body);
    let app = match side {
        "ping" => Router::new().route("/", get(async || "ok")),
        "static" => {
            let page = bytes::Bytes::from(fs::read(PathBuf::from(&arguments[0])).unwrap());
            Router::new().route("/", get(async move || json(page)))
        }
        "creates" => {
            let hand = Arc::new(Mutex::new(HandCreates::open(Path::new(&arguments[0]))));
            let next = Arc::new(AtomicU64::new(0));
            let create = async move |body: String| {
                let create = move || {
                    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    hand.lock().unwrap().create(number, body["name"].as_str().unwrap(), now)
                };
                json(tokio::task::spawn_blocking(create).await.unwrap().into())
            };
            Router::new().route("/{*path}", post(create))
        }
        other => panic!("unknown side `{other}`"),
    };
    axum::serve(listener, app).await.unwrap();
}
