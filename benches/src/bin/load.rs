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
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    extract::{Path as AxumPath, Query},
    http::{HeaderValue, header::CONTENT_TYPE},
    routing::{get, post},
};
use platform_benches::{
    client::{Request, get_of, request, run, run_creates, run_file, send_one},
    data::{self, Data},
    figures::{Figure, count, large, organizations},
    hand::{HandCreates, HandReads, Layout},
    measure::{Goal, Line, median, rounds},
    postgres,
    servers::{self, Load, Server, lines, micros, rates, turns},
    world,
};
use tokio::{net::TcpListener, runtime::Builder};

/// Number of repos created over HTTP in the memory store, and in PostgreSQL.
const IN_MEMORY: u64 = 50_000;
/// Number of repos of the organization in which `skip` finds a place.
const SKIPPED: u64 = 300_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [child, side, rest @ ..] = &*arguments
        && child == "child"
    {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(serve(side, rest));
        return ExitCode::SUCCESS;
    }
    if let [client, address, connections, seconds, file, first @ ..] = &*arguments
        && client == "client"
    {
        run_file(address, connections.parse().unwrap(), seconds.parse().unwrap(), file, first);
        return ExitCode::SUCCESS;
    }
    let figures: [Figure; 10] = [
        ("list-sqlite", list_sqlite),
        ("list-memory", list_memory),
        ("get", gets),
        ("creates", creates),
        ("recording", recording),
        ("many", many),
        ("skip", skips),
        ("start", start),
        ("sled", on_sled),
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
    let store = format!("sqlite:{}", Data::One(large()).sqlite().display());
    let server = Server::platform(&store);
    let path = "/registry/v2/repos?order_by=name&uidp.descendants_of=".to_owned() + &data::organization(0);
    let name = format!("http list: SQLite of {} / static", count(large()));
    compare_with_static(&server, &path, &name, Goal::AtMost(3.5, 2.5))
}

fn list_memory() -> Vec<Line> {
    let server = Server::platform("memory");
    let next = AtomicU64::new(0);
    while next.load(Ordering::Relaxed) < IN_MEMORY.min(large()) {
        run_creates(&server, servers::turn(), &next);
    }
    compare_with_static(
        &server,
        "/registry/v2/repos?order_by=name",
        "http list: memory / static",
        Goal::AtMost(2.0, 1.5),
    )
}

fn gets() -> Vec<Line> {
    let data = Data::One(large());
    let server = Server::platform(&format!("sqlite:{}", data.sqlite().display()));
    let ping = Server::child(&["ping"]);
    let ping_request = get_of(&ping, "/");
    let mut all = Vec::new();
    for (repos, goal) in [(1_000, Goal::AtMost(2.2, 1.8)), (30_000, Goal::AtMost(2.6, 2.0))] {
        let repo = |number| data.repo(data::mix(number) % large()).uid;
        let requests: Vec<_> =
            (0..repos).map(|number| get_of(&server, &format!("/registry/v2/repos/{}", repo(number)))).collect();
        let next = |number: usize| requests[number % requests.len()].clone();
        // A number of the sequence, so that a repo is not read in turn.
        let any = |number: usize| requests[data::mix(number as u64) as usize % requests.len()].clone();
        let (order, ours): (_, &Request<'_>) = if repos == 1_000 { ("in turn", &next) } else { ("at random", &any) };
        let turns =
            turns(|| run(&server, servers::turn(), ours), || run(&ping, servers::turn(), &|_| ping_request.clone()));
        let name = format!("http get: {} of {} {order} / axum ping", count(repos), count(large()));
        all.extend(lines(&name, &turns, goal));
    }
    all
}

fn creates() -> Vec<Line> {
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let server = Server::platform(&format!("sqlite:{}", directory.path().join("platform.sqlite").display()));
    let hand = Server::child(&["creates", &directory.path().join("hand.sqlite").display().to_string()]);
    let next = AtomicU64::new(0);
    let creates = |server| run_creates(server, servers::turn(), &next);
    let turns = turns(|| creates(&server), || creates(&hand));
    let rate = |side: fn(&(Load, Load)) -> f64| median(turns.iter().map(side).collect());
    let (a, b) = (rate(|(a, _)| a.rate), rate(|(_, b)| b.rate));
    let line = Line {
        name: "http creates: 64 clients / one transaction each".to_owned(),
        sides: (format!("{a:.0}/s"), format!("{b:.0}/s")),
        value: rate(|(a, b)| a.rate / b.rate),
        cpu: Some(rate(|(a, b)| a.cpu / b.cpu)),
        goal: Goal::AtLeast(8.0, 12.0),
    };
    let p99 = rate(|(a, _)| a.p99);
    vec![
        line,
        micros("http creates: 64 clients", &turns, Goal::AtMost(150.0, 100.0)),
        Line::value("http creates: p99, ms", p99 / 1e3, Goal::None),
    ]
}

/// Creates with one live subscription, compared with creates without one. No sink listens, so that the server records
/// the events and hardly delivers: after each failed delivery it waits longer for the next one.
fn recording() -> Vec<Line> {
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let options = ["--allow-http-sinks", "--allow-private-sinks", "--max-backlog", "1000000000"];
    let start = |name: &str| {
        let store = format!("sqlite:{}", directory.path().join(name).display());
        Server::platform_with(&store, &options)
    };
    let (with, without) = (start("with.sqlite"), start("without.sqlite"));
    let path = format!("/events/v2/subscriptions/{}", data::organization(0));
    // Port 9 is reserved for a service that discards what it receives.
    let subscription = send_one(&with, &request(&with, "POST", &path, r#"{"sink":"http://127.0.0.1:9/"}"#));
    assert!(subscription.starts_with(b"{\"uid\""), "{}", String::from_utf8_lossy(&subscription));
    let next = AtomicU64::new(0);
    // When more than 64 MiB are pending for a subscription, the server makes dead letters of the oldest events.
    let turn = servers::turn() / 8;
    let creates = |server| run_creates(server, turn, &next);
    let turns = turns(|| creates(&with), || creates(&without));
    let dead = send_one(&with, &get_of(&with, "/events/v2/deadLetters"));
    assert!(dead.starts_with(b"{\"deadLetters\":[]"), "the turns are too long: {}", String::from_utf8_lossy(&dead));
    rates("recording over HTTP: 64 clients, a live subscription / none", &turns, Goal::None)
}

/// The first page of a random organization, compared with two hand-written services.
fn many() -> Vec<Line> {
    let organizations = organizations(300);
    let data = Data::Owned(organizations);
    let server = Server::platform(&format!("sqlite:{}", data.sqlite().display()));
    let ours: Vec<_> = (0..organizations)
        .map(|number| {
            let path = "/registry/v2/repos?order_by=name&uidp.descendants_of=";
            get_of(&server, &format!("{path}{}", data::organization(number)))
        })
        .collect();
    let mut all = Vec::new();
    for (layout, name, goal) in
        [(Layout::Columns, "columns", Goal::AtLeast(0.9, 1.5)), (Layout::Json, "stored JSON", Goal::AtLeast(0.5, 0.8))]
    {
        let hand = Server::child(&["pages", layout_name(layout), &layout.file(data).display().to_string()]);
        let theirs: Vec<_> = (0..organizations).map(|number| get_of(&hand, &format!("/{number}"))).collect();
        for number in [0, ours.len() / 2, ours.len() - 1] {
            assert_same(&send_one(&server, &ours[number]), &send_one(&hand, &theirs[number]));
        }
        all.extend(rates_of_random(
            &format!("http list: {organizations} organizations / hand, {name}"),
            (&server, &ours),
            (&hand, &theirs),
            |name, turns| rates(name, turns, goal),
        ));
    }
    all
}

/// Pages at random places of one organization, compared with blocks that are counted by hand.
fn skips() -> Vec<Line> {
    let data = Data::One(SKIPPED.min(large()));
    let server = Server::platform(&format!("sqlite:{}", data.sqlite().display()));
    let hand = Server::child(&["pages", layout_name(Layout::Json), &Layout::Json.file(data).display().to_string()]);
    let place = |number: u64| data::mix(number) % data.repos();
    let path = format!("/registry/v2/repos?order_by=name&uidp.descendants_of={}&skip=", data::organization(0));
    let ours: Vec<_> = (0..4_096).map(|number| get_of(&server, &format!("{path}{}", place(number)))).collect();
    let theirs: Vec<_> = (0..4_096).map(|number| get_of(&hand, &format!("/0?skip={}", place(number)))).collect();
    for number in 0..8 {
        assert_same(&send_one(&server, &ours[number]), &send_one(&hand, &theirs[number]));
    }
    rates_of_random(
        &format!("http skip: SQLite of {} / hand, counted blocks", count(data.repos())),
        (&server, &ours),
        (&hand, &theirs),
        |name, turns| lines(name, turns, Goal::AtMost(1.5, 1.0)),
    )
}

/// Loads both sides with random ones of their requests, the same at the same time.
fn rates_of_random(
    name: &str,
    (server, ours): (&Server, &[Arc<[u8]>]),
    (hand, theirs): (&Server, &[Arc<[u8]>]),
    lines: impl Fn(&str, &[(Load, Load)]) -> Vec<Line>,
) -> Vec<Line> {
    let any = |of: &[Arc<[u8]>], number: usize| of[data::mix(number as u64) as usize % of.len()].clone();
    let turns = turns(
        || run(server, servers::turn(), &|number| any(ours, number)),
        || run(hand, servers::turn(), &|number| any(theirs, number)),
    );
    lines(name, &turns)
}

/// Compares two pages, except for their cursors.
fn assert_same(a: &[u8], b: &[u8]) {
    let page = |page: &[u8]| {
        let mut page: serde_json::Value = serde_json::from_slice(page).unwrap();
        page.as_object_mut().unwrap().remove("nextPageToken");
        page
    };
    assert_eq!(page(a), page(b));
}

/// The start of a server on an existing store, until it has answered a first request, and its memory when it is idle.
fn start() -> Vec<Line> {
    let store = format!("sqlite:{}", Data::One(large()).sqlite().display());
    let (mut times, mut answers, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds(5) {
        let server = Server::platform(&store);
        times.push(server.started.as_secs_f64() * 1e3);
        memory.push(server.memory() as f64 / 1e6);
        let begin = Instant::now();
        send_one(&server, &get_of(&server, "/registry/v2/repos?order_by=name"));
        answers.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let of = count(large());
    vec![
        Line::value(format!("start: serve on SQLite of {of}, ms"), median(times), Goal::AtMost(100.0, 30.0)),
        Line::value(format!("start: first page after it, SQLite of {of}, ms"), median(answers), Goal::None),
        Line::value("start: resident memory of the idle process, MB", median(memory), Goal::AtMost(40.0, 20.0)),
    ]
}

/// The figures of a server on sled, which must not be worse than before.
fn on_sled() -> Vec<Line> {
    let data = Data::One(SKIPPED.min(large()));
    let server = Server::platform(&format!("sled:{}", data.sled().display()));
    let ping = Server::child(&["ping"]);
    let ping_request = get_of(&ping, "/");
    let path = format!("/registry/v2/repos?order_by=name&uidp.descendants_of={}", data::organization(0));
    let list = get_of(&server, &path);
    let place = |number: usize| data::mix(number as u64 % 4_096) % data.repos();
    let uid = |number: usize| data.repo(place(number)).uid;
    let requests: [(&str, &Request<'_>, Goal); 3] = [
        ("list", &|_| list.clone(), Goal::AtMost(275.0, 275.0)),
        ("skip", &|number| get_of(&server, &format!("{path}&skip={}", place(number))), Goal::AtMost(20e3, 20e3)),
        ("get", &|number| get_of(&server, &format!("/registry/v2/repos/{}", uid(number))), Goal::None),
    ];
    let mut all = Vec::new();
    for (name, request, goal) in requests {
        let turns =
            turns(|| run(&server, servers::turn(), request), || run(&ping, servers::turn(), &|_| ping_request.clone()));
        let name = format!("http {name}: sled of {} / axum ping", count(data.repos()));
        all.push(micros(&name, &turns, goal));
        all.extend(lines(&name, &turns, Goal::None));
    }
    drop(server);
    let directory = tempfile::tempdir_in(data::directory()).unwrap();
    let server = Server::platform(&format!("sled:{}", directory.path().join("sled").display()));
    let next = AtomicU64::new(0);
    let rates = (0..=rounds(5)).map(|_| run_creates(&server, servers::turn(), &next).rate).skip(1);
    let rate = median(rates.collect());
    all.push(Line::value("http creates: sled, 64 clients, a second", rate, Goal::AtLeast(2_070.0, 2_070.0)));
    all
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
    let lists = turns(
        || run(&platform, servers::turn(), &|_| page.clone()),
        || run(&hand, servers::turn(), &|_| by_hand.clone()),
    );
    let gets = turns(
        || run(&platform, servers::turn(), &|number| ours[number % ours.len()].clone()),
        || run(&hand, servers::turn(), &|number| theirs[number % theirs.len()].clone()),
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
    let turns = turns(
        || run(server, servers::turn(), &|_| request.clone()),
        || run(&static_server, servers::turn(), &|_| static_request.clone()),
    );
    let _ = fs::remove_file(file);
    lines(name, &turns, goal)
}

// ---- other sides ----

thread_local! {
    static READS: RefCell<Option<HandReads>> = const { RefCell::new(None) };
}

/// Reads on the calling thread, with one connection per thread.
fn on_thread(file: &Path, layout: Layout, read: impl FnOnce(&HandReads) -> Vec<u8>) -> Vec<u8> {
    // As much for all threads as the platform's cache has.
    READS.with_borrow_mut(|reads| read(reads.get_or_insert_with(|| HandReads::read(file, layout, 8_192))))
}

const fn layout_name(layout: Layout) -> &'static str {
    if matches!(layout, Layout::Json) { "json" } else { "columns" }
}

fn layout_of(name: &str) -> Layout {
    if name == "json" { Layout::Json } else { Layout::Columns }
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
    let json = |body: Vec<u8>| ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body);
    let app = match side {
        "ping" => Router::new().route("/", get(async || "ok")),
        "pages" => {
            let (layout, file) = (layout_of(&arguments[0]), PathBuf::from(&arguments[1]));
            let page = async move |AxumPath(organization): AxumPath<i64>, Query(query): Query<HashMap<String, i64>>| {
                json(on_thread(&file, layout, |reads| match query.get("skip") {
                    Some(skip) => reads.skip(organization, *skip),
                    None => reads.list(organization, None),
                }))
            };
            Router::new().route("/{organization}", get(page))
        }
        "static" => {
            let page = bytes::Bytes::from(fs::read(PathBuf::from(&arguments[0])).unwrap());
            let page = async move || ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], page);
            Router::new().route("/", get(page))
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
