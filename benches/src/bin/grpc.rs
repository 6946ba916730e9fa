//! Loads a server over gRPC and prints what a call costs it: `grpc [figure...]`, all of them without arguments.
//!
//! `A` is the release build of `platform-server`; `B` is a tonic server of this program with prost types, in a process
//! of its own, over rows of the same repos. Both are up at once and are loaded turn about, by 64 streams on 4
//! connections. What is judged is how many calls a second each answers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures"
)]

use std::{
    cell::RefCell,
    env,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use platform_benches::{
    data::{self, Data},
    figures::{Figure, LARGE},
    hand_grpc::{self, GetRepoRequest, ListReposRequest, ListReposResponse, Repo, Repos, UidpFilter},
    measure::{Goal, Line},
    served::{Load, Server, TURN, rates, turns},
};
use platform_grpc::AsBytes;
use prost::Message;
use tokio::{net::TcpListener, runtime::Builder};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

const CONNECTIONS: usize = 4;
const STREAMS: usize = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [child, _, path] = &*arguments
        && child == "child"
    {
        Builder::new_multi_thread().enable_all().build().unwrap().block_on(serve(PathBuf::from(path)));
        return ExitCode::SUCCESS;
    }
    let figures: [Figure; 2] = [("list", lists), ("get", gets)];
    println!("{}", Line::heads());
    for (name, lines) in figures {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            lines().iter().for_each(|line| println!("{line}"));
        }
    }
    ExitCode::SUCCESS
}

fn lists() -> Vec<Line> {
    let uidp = Some(UidpFilter { descendants_of: data::organisation(0).to_string() });
    let request = ListReposRequest { uidp, order_by: "name".to_owned(), ..Default::default() }.encode_to_vec();
    let method = Method::new("ListRepos", vec![request.into()]);
    let same = |a: &[u8], b: &[u8]| {
        let (a, b) = (ListReposResponse::decode(a).unwrap(), ListReposResponse::decode(b).unwrap());
        assert!(
            a.repos == b.repos
                && a.repos.len() == 50
                && a.total_count == b.total_count
                && !a.next_page_token.is_empty()
        );
    };
    beside("grpc list: SQLite of 1M / tonic, prost, rusqlite", method, same)
}

fn gets() -> Vec<Line> {
    let uids = (0..1_000).map(|number| Data::One(LARGE).repo(data::mix(number) % LARGE).uid.to_string());
    let requests = uids.map(|uid| GetRepoRequest { uid }.encode_to_vec().into()).collect();
    let same = |a: &[u8], b: &[u8]| assert_eq!(Repo::decode(a).unwrap(), Repo::decode(b).unwrap());
    beside("grpc get: SQLite of 1M / tonic, prost, rusqlite", Method::new("GetRepo", requests), same)
}

/// A method, and the requests that are sent in turn, to both sides with the same token.
struct Method {
    name: &'static str,
    requests: Vec<Bytes>,
    token: MetadataValue<Ascii>,
}

impl Method {
    fn new(name: &'static str, requests: Vec<Bytes>) -> Self {
        Self { name, requests, token: MetadataValue::from_static("none") }
    }
}

fn beside(name: &str, method: Method, same: impl Fn(&[u8], &[u8])) -> Vec<Line> {
    let platform = Server::platform(&format!("sqlite:{}", Data::One(LARGE).sqlite().display()));
    let hand = Server::child(&["repos", &hand_grpc::file(Data::One(LARGE)).display().to_string()]);
    let method = Method { token: format!("Bearer {}", platform.token).parse().unwrap(), ..method };
    let method = &method;
    same(&one(&platform, method), &one(&hand, method));
    let turns = turns(|| run(&platform, TURN, method), || run(&hand, TURN, method));
    rates(name, &turns, Goal::AtLeast(0.8, 1.0))
}

fn path(method: &Method) -> http::uri::PathAndQuery {
    format!("/chainguard.platform.registry.v2.ReposService/{}", method.name).parse().unwrap()
}

async fn call(channel: Channel, method: &Method, number: usize) -> Bytes {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = Request::new(method.requests[number % method.requests.len()].clone());
    request.metadata_mut().insert("authorization", method.token.clone());
    client.unary(request, path(method), AsBytes).await.unwrap().into_inner()
}

fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.address)).unwrap().connect_lazy()
}

fn one(server: &Server, method: &Method) -> Bytes {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { call(channel(server), method, 0).await })
}

/// Has all streams call, one after the other's answer on each, for a while.
fn run(server: &Server, time: Duration, method: &Method) -> Load {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let spent = RefCell::new(Vec::new());
    runtime.block_on(async {
        let channels: Vec<_> = (0..CONNECTIONS).map(|_| channel(server)).collect();
        join_all(channels.iter().map(|channel| call(channel.clone(), method, 0))).await;
        let (start, cpu) = (Instant::now(), server.cpu_micros());
        let stream = async |stream: usize| {
            let mut number = stream;
            while start.elapsed() < time {
                let begun = Instant::now();
                call(channels[stream % CONNECTIONS].clone(), method, number).await;
                spent.borrow_mut().push(begun.elapsed().as_nanos() as f64 / 1e3);
                number += STREAMS;
            }
        };
        join_all((0..STREAMS).map(stream)).await;
        Load::of(spent.take(), start.elapsed(), server.cpu_micros() - cpu)
    })
}

/// Serves the other side.
async fn serve(path: PathBuf) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("Listening on http://{}", listener.local_addr().unwrap());
    let incoming = TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(Repos(path.into()));
    server.serve_with_incoming(incoming).await.unwrap();
}
