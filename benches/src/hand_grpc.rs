//! The other side over gRPC: hand-written for these two methods with rusqlite, prost and tonic. Columns have the types
//! of protobuf: numbers for times and enums. There are no tokens and no access checks.

use std::{cell::RefCell, convert::Infallible, path::Path, pin::Pin, task};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use prost_types::Timestamp;
use rusqlite::{Connection, OpenFlags, Row, params};
use tonic::{Request, Response, Status, body::Body, server::NamedService};

use crate::data::Data;

/// A repo, with the fields that the data sets.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct Repo {
    #[prost(string, tag = "1")]
    pub uid: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub description: String,
    #[prost(int32, tag = "4")]
    pub catalog_tier: i32,
    #[prost(string, repeated, tag = "5")]
    pub bundles: Vec<String>,
    #[prost(string, repeated, tag = "8")]
    pub active_tags: Vec<String>,
    #[prost(message, optional, tag = "11")]
    pub create_time: Option<Timestamp>,
    #[prost(message, optional, tag = "12")]
    pub update_time: Option<Timestamp>,
}

/// A request for a page by name.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct ListReposRequest {
    #[prost(message, optional, tag = "1")]
    pub uidp: Option<UidpFilter>,
    #[prost(string, tag = "5")]
    pub page_token: String,
    #[prost(string, tag = "6")]
    pub order_by: String,
}

/// The scope of a list.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct UidpFilter {
    #[prost(string, tag = "2")]
    pub descendants_of: String,
}

/// A page.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct ListReposResponse {
    #[prost(message, repeated, tag = "1")]
    pub repos: Vec<Repo>,
    #[prost(string, tag = "2")]
    pub next_page_token: String,
    #[prost(int64, optional, tag = "3")]
    pub total_count: Option<i64>,
    #[prost(int32, tag = "4")]
    pub skipped: i32,
}

/// A request for a repo.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "the fields are those of the contract")]
pub struct GetRepoRequest {
    #[prost(string, tag = "1")]
    pub uid: String,
}

const SCHEMA: &str = "
    CREATE TABLE repo (
        uid TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL, tier INTEGER NOT NULL,
        bundles TEXT NOT NULL, tags TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE counter (total INTEGER NOT NULL);
";

const COVERING: &str = "
    CREATE INDEX by_name ON repo (name, uid, description, tier, bundles, tags, created, updated);
    INSERT INTO counter SELECT count(*) FROM repo;
";

/// Returns the file of this data, and creates it if it is missing.
pub fn file(data: Data) -> std::path::PathBuf {
    data.cached("hand-grpc", |path| make(path, data))
}

fn make(path: &Path, data: Data) {
    let mut connection = Connection::open(path).unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    let transaction = connection.transaction().unwrap();
    {
        let mut insert = transaction.prepare("INSERT INTO repo VALUES (?, ?, ?, ?, ?, ?, ?, ?)").unwrap();
        for repo in (0..data.repos()).map(|number| data.repo(number)) {
            let millis = |at: Option<platform_engine::timestamp::Timestamp>| at.unwrap().millis();
            let (bundles, tags) = (repo.bundles.join(","), repo.active_tags.join(","));
            let (created, updated) = (millis(repo.create_time), millis(repo.update_time));
            let tier = repo.catalog_tier as i32;
            insert
                .execute(params![repo.uid.as_str(), repo.name, repo.description, tier, bundles, tags, created, updated])
                .unwrap();
        }
    }
    transaction.execute_batch(COVERING).unwrap();
    transaction.commit().unwrap();
    connection.execute_batch("ANALYZE").unwrap();
}

thread_local! {
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// The service. Reads on the calling thread, with one connection per thread.
#[derive(Debug, Clone)]
pub struct Repos(pub std::sync::Arc<Path>);

impl Repos {
    fn with<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        CONNECTION.with_borrow_mut(|connection| {
            let open = || {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let connection = Connection::open_with_flags(&self.0, flags).unwrap();
                connection.pragma_update(None, "mmap_size", 1_i64 << 32).unwrap();
                connection
            };
            read(connection.get_or_insert_with(open))
        })
    }

    fn list(&self, request: &ListReposRequest) -> ListReposResponse {
        self.with(|connection| {
            let execute = |sql| connection.prepare_cached(sql).unwrap().execute([]).unwrap();
            execute("BEGIN");
            let total = connection.prepare_cached("SELECT total FROM counter").unwrap().query_row([], |row| row.get(0));
            let after = URL_SAFE_NO_PAD.decode(&request.page_token).unwrap();
            let after = String::from_utf8(after).unwrap();
            let (name, uid) = after.split_once('\n').unwrap_or_default();
            let select = "SELECT uid, name, description, tier, bundles, tags, created, updated FROM repo \
                          WHERE (name, uid) > (?, ?) ORDER BY name, uid LIMIT 51";
            let mut select = connection.prepare_cached(select).unwrap();
            let mut rows = select.query(params![name, uid]).unwrap();
            let mut repos = Vec::with_capacity(51);
            while let Some(row) = rows.next().unwrap() {
                repos.push(repo(row));
            }
            drop(rows);
            execute("COMMIT");
            let mut next_page_token = String::new();
            if repos.len() == 51 {
                repos.pop();
                let last = repos.last().unwrap();
                next_page_token = URL_SAFE_NO_PAD.encode(format!("{}\n{}", last.name, last.uid));
            }
            ListReposResponse { repos, next_page_token, total_count: Some(total.unwrap()), skipped: 0 }
        })
    }

    fn get(&self, request: &GetRepoRequest) -> Repo {
        self.with(|connection| {
            let select = "SELECT uid, name, description, tier, bundles, tags, created, updated FROM repo WHERE uid = ?";
            connection.prepare_cached(select).unwrap().query_row([&request.uid], |row| Ok(repo(row))).unwrap()
        })
    }
}

fn repo(row: &Row<'_>) -> Repo {
    let text = |column| row.get_ref(column).unwrap().as_str().unwrap();
    let list = |column| text(column).split(',').map(str::to_owned).collect();
    let time = |column| {
        let millis: i64 = row.get(column).unwrap();
        let nanos = (millis.rem_euclid(1000) * 1_000_000) as i32;
        Some(Timestamp { seconds: millis.div_euclid(1000), nanos })
    };
    Repo {
        uid: text(0).to_owned(),
        name: text(1).to_owned(),
        description: text(2).to_owned(),
        catalog_tier: row.get(3).unwrap(),
        bundles: list(4),
        active_tags: list(5),
        create_time: time(6),
        update_time: time(7),
    }
}

impl NamedService for Repos {
    const NAME: &'static str = "chainguard.platform.registry.v2.ReposService";
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// A method as a tonic service, as in generated code.
struct UnaryMethod<F>(Repos, F);

impl<Q, A, F> tonic::server::UnaryService<Q> for UnaryMethod<F>
where
    F: Fn(&Repos, &Q) -> A + Copy + Send + 'static,
    Q: Send + 'static,
    A: 'static,
{
    type Response = A;
    type Future = BoxFuture<Response<A>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (repos, method) = (self.0.clone(), self.1);
        Box::pin(async move { Ok(Response::new(method(&repos, request.get_ref()))) })
    }
}

impl tower::Service<http::Request<Body>> for Repos {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let repos = self.clone();
        Box::pin(async move {
            Ok(if request.uri().path().ends_with("/ListRepos") {
                let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
                grpc.unary(UnaryMethod(repos, Self::list), request).await
            } else {
                let mut grpc = tonic::server::Grpc::new(tonic_prost::ProstCodec::default());
                grpc.unary(UnaryMethod(repos, Self::get), request).await
            })
        })
    }
}
