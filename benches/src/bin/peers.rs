//! What `benches/peers/run.py` needs from this workspace: `peers repos N` prints the repos of the data as lines of JSON,
//! `peers platform N` serves them with `platform-server`, and `peers postgres N` with a service that is hand-written on
//! PostgreSQL. A server prints its addresses as one line of JSON, and ends when its input is closed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    reason = "a measuring program"
)]

use std::{
    env, fs,
    io::{self, BufWriter, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use axum::{
    Router,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use deadpool_postgres::{Manager, Pool};
use platform_benches::{
    data::{self, Data, copied, repo_put},
    servers::Server,
};
use platform_testkit::postgres::Cluster;
use serde::Deserialize;
use tokio::{net::TcpListener, runtime::Builder};
use tokio_postgres::NoTls;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let repos = |number: &str| Data::One(number.parse().unwrap());
    match *arguments {
        ["repos", number] => print_repos(repos(number)),
        ["platform", number] => platform(repos(number)),
        ["postgres", number] => postgres(repos(number)),
        ["child", "postgres", url] => {
            Builder::new_multi_thread().enable_all().build().unwrap().block_on(serve(url));
        }
        _ => panic!("usage: peers repos N | platform N | postgres N"),
    }
}

/// Waits until the input is closed.
fn wait() {
    let _ = io::stdin().read_to_end(&mut Vec::new());
}

fn print_repos(data: Data) {
    let mut out = BufWriter::new(io::stdout().lock());
    for number in 0..data.repos() {
        out.write_all(&repo_put(&data.repo(number)).body).unwrap();
        out.write_all(b"\n").unwrap();
    }
}

fn platform(data: Data) {
    let (_directory, path) = copied(&data.sqlite());
    let server = Server::platform(&format!("sqlite:{}", path.display()));
    let described = serde_json::json!({
        "address": server.address,
        "token": server.token,
        "pids": [server.id()],
        "organization": data::organization(0),
    });
    println!("{described}");
    wait();
}

const SCHEMA: &str = "
    CREATE TABLE repo (uid text COLLATE \"C\" PRIMARY KEY, name text COLLATE \"C\" NOT NULL, body text NOT NULL)";
const INDEX: &str = "CREATE INDEX by_name ON repo (name, uid); ANALYZE; CHECKPOINT";

fn postgres(data: Data) {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let settings = "shared_buffers=512MB\nmax_wal_size=4GB\nfsync=on\nsynchronous_commit=on";
    let cluster = Cluster::start_private(settings).unwrap();
    let url = runtime.block_on(async {
        let url = cluster.schema("peer").await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        client.batch_execute(SCHEMA).await.unwrap();
        let insert = "INSERT INTO repo SELECT * FROM unnest($1::text[], $2::text[], $3::text[])";
        for first in (0..data.repos()).step_by(5_000) {
            let repos = (first..data.repos().min(first + 5_000)).map(|number| data.repo(number));
            let (mut uids, mut names, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
            for repo in repos {
                bodies.push(String::from_utf8(repo_put(&repo).body.to_vec()).unwrap());
                uids.push(repo.uid.to_string());
                names.push(repo.name);
            }
            client.execute(insert, &[&uids, &names, &bodies]).await.unwrap();
        }
        client.batch_execute(INDEX).await.unwrap();
        drop(client);
        driver.await.unwrap().unwrap();
        url
    });
    let server = Server::child(&["postgres", &url]);
    let host = cluster.url().split('@').nth(1).unwrap().split('/').next().unwrap().replace("%2F", "/");
    let main = fs::read_to_string(format!("{host}/data/postmaster.pid")).unwrap();
    let main: u32 = main.lines().next().unwrap().trim().parse().unwrap();
    println!("{}", serde_json::json!({ "address": server.address, "pids": [server.id(), main] }));
    wait();
    drop((server, cluster));
}

// ---- the service ----

#[derive(Clone)]
struct Hand {
    pool: Pool,
    /// The number of repos. The service is the only writer.
    total: Arc<AtomicI64>,
}

/// Serves lists by name, gets and creates: each is one statement, without tokens, access rules and validation.
async fn serve(url: &str) {
    let pool = Pool::builder(Manager::new(url.parse().unwrap(), NoTls)).max_size(64).build().unwrap();
    let total: i64 = pool.get().await.unwrap().query_one("SELECT count(*) FROM repo", &[]).await.unwrap().get(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("Listening on http://{}", listener.local_addr().unwrap());
    let app = Router::new()
        .route("/repos", get(list))
        .route("/repos", post(create))
        .route("/repos/{*uid}", get(one))
        .with_state(Hand { pool, total: Arc::new(AtomicI64::new(total)) });
    axum::serve(listener, app).await.unwrap();
}

fn json(body: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

#[derive(Deserialize)]
struct Place {
    #[serde(default)]
    skip: i64,
}

async fn list(State(hand): State<Hand>, Query(Place { skip }): Query<Place>) -> Response {
    let client = hand.pool.get().await.unwrap();
    // The places come from the index, so that only rows of the page are read.
    let select = "SELECT body FROM (SELECT uid FROM repo ORDER BY name, uid LIMIT 50 OFFSET $1) page \
                  JOIN repo USING (uid) ORDER BY name, uid";
    let statement = client.prepare_cached(select).await.unwrap();
    let rows = client.query(&statement, &[&skip]).await.unwrap();
    let bodies: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let total = hand.total.load(Ordering::Relaxed);
    json(format!("{{\"repos\":[{}],\"totalCount\":\"{total}\"}}", bodies.join(",")))
}

async fn one(State(hand): State<Hand>, Path(uid): Path<String>) -> Result<Response, StatusCode> {
    let client = hand.pool.get().await.unwrap();
    let statement = client.prepare_cached("SELECT body FROM repo WHERE uid = $1").await.unwrap();
    let row = client.query_opt(&statement, &[&uid]).await.unwrap().ok_or(StatusCode::NOT_FOUND)?;
    Ok(json(row.get(0)))
}

async fn create(State(hand): State<Hand>, body: String) -> Result<Response, StatusCode> {
    let mut repo: serde_json::Value = serde_json::from_str(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let name = repo["name"].as_str().ok_or(StatusCode::BAD_REQUEST)?.to_owned();
    let number = hand.total.load(Ordering::Relaxed).unsigned_abs();
    let uid = format!("{}/{:016x}{name}", data::organization(0), data::mix(number));
    repo["uid"] = uid.clone().into();
    let body = repo.to_string();
    let client = hand.pool.get().await.unwrap();
    let insert = client.prepare_cached("INSERT INTO repo VALUES ($1, $2, $3)").await.unwrap();
    client.execute(&insert, &[&uid, &name, &body]).await.map_err(|_| StatusCode::CONFLICT)?;
    hand.total.fetch_add(1, Ordering::Relaxed);
    Ok(json(body))
}
