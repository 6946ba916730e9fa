//! Two services on one PostgreSQL cluster: the platform's REST API, and a hand-written one.

use std::{future::pending, sync::Arc};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use deadpool_postgres::{Manager, Pool};
use platform_engine::access::Authenticator;
use platform_http::{Limits, Rest, serve};
use platform_oidc::Verifier;
use platform_store_postgres::{Options, PostgresStore};
use platform_system::{SystemClock, SystemEntropy};
use platform_testkit::postgres::Cluster;
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

use crate::{
    data::{Data, organization},
    world::verifier,
};

/// The table of the hand-written service, filled with the bodies that the platform has stored. The store's first column
/// of sort keys is that of the name.
const TABLE: &str = "CREATE TABLE hand (parent text COLLATE \"C\", name bytea, uid text COLLATE \"C\" PRIMARY KEY, \
     body bytea); INSERT INTO hand SELECT left(r.uid, -17), r.s1, r.uid, r.body FROM record r WHERE r.kind = 'Repo'; \
     CREATE INDEX ON hand (parent, name, uid); ANALYZE; CHECKPOINT";
const PAGE: &str = "SELECT uid, name, body FROM hand WHERE parent = $1 AND (name, uid) > ($2, $3) \
     ORDER BY name, uid LIMIT 51";
const GET: &str = "SELECT body FROM hand WHERE uid = $1";

/// Starts a cluster with the data and the table of the hand-written service. Returns it with the URL of its schema.
pub async fn prepare(data: Data) -> (Cluster, String) {
    let cluster = Cluster::start_private("shared_buffers=512MB\nmax_wal_size=4GB").unwrap();
    let url = cluster.schema("bench").await.unwrap();
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    data.fill(Arc::new(PostgresStore::open(&url, Options::default()).await.unwrap())).await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(TABLE).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
    (cluster, url)
}

/// Serves the platform's REST API.
pub async fn serve_platform(listener: TcpListener, url: &str) {
    let store = Arc::new(PostgresStore::open(url, Options::default()).await.unwrap());
    let platform = platform_v1::builder(store, SystemClock, SystemEntropy).ephemeral_keys().build().unwrap();
    let rest = Rest::new(Arc::new(platform), Arc::new(verifier().0), Limits::default()).unwrap();
    let app = Router::new().fallback_service(rest);
    serve(listener, app, &Limits::default(), pending()).await.unwrap();
}

/// The hand-written service.
#[derive(Clone)]
struct Hand {
    pool: Pool,
    verifier: Arc<Verifier>,
}

/// Serves the same pages and repos without access rules, validation, cursors and totals: each request is a check of the
/// token and one statement.
pub async fn serve_hand(listener: TcpListener, url: &str) {
    let pool = Pool::builder(Manager::new(url.parse().unwrap(), NoTls)).max_size(16).build().unwrap();
    let app = Router::new()
        .route("/registry/v2/repos", get(page))
        .route("/registry/v2/repos/{*uid}", get(one))
        .with_state(Hand { pool, verifier: Arc::new(verifier().0) });
    axum::serve(listener, app).await.unwrap();
}

async fn check(hand: &Hand, headers: &HeaderMap) -> Result<(), StatusCode> {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let token = token.ok_or(StatusCode::UNAUTHORIZED)?;
    hand.verifier.authenticate(token).await.map_err(|_| StatusCode::UNAUTHORIZED).map(drop)
}

fn json(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

async fn page(State(hand): State<Hand>, headers: HeaderMap) -> Result<Response, StatusCode> {
    check(&hand, &headers).await?;
    let client = hand.pool.get().await.unwrap();
    let statement = client.prepare_cached(PAGE).await.unwrap();
    let (parent, name, uid) = (organization(0), Vec::<u8>::new(), "");
    let rows = client.query(&statement, &[&&*parent, &name, &uid]).await.unwrap();
    let mut body = Vec::with_capacity(20_000);
    body.extend_from_slice(b"{\"repos\":[");
    for (index, row) in rows.iter().take(50).enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(row.get(2));
    }
    body.push(b']');
    if let Some(row) = rows.get(49).filter(|_| rows.len() > 50) {
        // A cursor about as long as the platform's, which is encrypted.
        let name = row.get::<_, &[u8]>(1);
        let cursor = format!("{}{}", name.escape_ascii(), row.get::<_, &str>(0));
        body.extend_from_slice(format!(",\"nextPageToken\":\"{cursor}\"").as_bytes());
    }
    body.push(b'}');
    Ok(json(body))
}

async fn one(State(hand): State<Hand>, headers: HeaderMap, Path(uid): Path<String>) -> Result<Response, StatusCode> {
    check(&hand, &headers).await?;
    let client = hand.pool.get().await.unwrap();
    let statement = client.prepare_cached(GET).await.unwrap();
    let row = client.query_opt(&statement, &[&uid]).await.unwrap().ok_or(StatusCode::NOT_FOUND)?;
    Ok(json(row.get::<_, &[u8]>(0).to_vec()))
}
